//! Launches that must not compile: the arguments do not fit the kernel's parameters.

#[test]
fn arguments_are_checked_by_the_compiler() {
    // A bundle of test programs runs where there is no Rust.
    if std::env::var_os("CARGO").is_none() {
        println!("skipped: no cargo");
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
