//! Code that must not compile: arguments that do not fit the kernel's parameters, and other misuse that types
//! can detect.

#[test]
fn misuse_is_found_by_the_compiler() {
    // A bundle of test programs runs on machines without Rust.
    if std::env::var_os("CARGO").is_none() {
        testkit::skip("no cargo");
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
