//! The programs for several devices, on those of the software driver. They assert what they compare: a
//! program that is wrong ends badly.

use std::process::Command;

/// Runs a program; what it printed.
fn printed(program: &str, arguments: &[&str], devices: &str) -> String {
    let mut command = Command::new(program);
    command.args(arguments).env("IRONWARP_DRIVER", "soft").env("IRONWARP_SOFT_DEVICES", devices);
    let output = command.output().expect("the program starts");
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{}:\n{out}\n{err}", output.status);
    out
}

fn has(text: &str, lines: &[&str]) {
    assert_eq!(text.lines().count(), lines.len(), "{text}");
    for (line, begin) in text.lines().zip(lines) {
        assert!(line.starts_with(begin), "{begin:?} in\n{text}");
    }
}

#[test]
fn training_on_any_number_of_devices() {
    let text = printed(env!("CARGO_BIN_EXE_data_parallel"), &[], "4");
    let models = ["network", "transformer block"];
    let lines =
        models.map(|model| ["1 device", "2 devices", "4 devices"].map(|on| format!("{model}, {on}: loss ")));
    has(&text, &lines.as_flattened().iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn several_devices_do_what_one_does() {
    let program = env!("CARGO_BIN_EXE_several_gpus");
    let lines = [
        "models: 6 side by side on 3 devices",
        "pipeline: 6 micro-batches through 8 layers on 3",
        "search: 5",
    ];
    has(&printed(program, &[], "3"), &lines);
    has(&printed(program, &["pipeline"], "1"), &["pipeline: 6 micro-batches through 8 layers on 1"]);
    let help = printed(program, &["models", "--help"], "1");
    assert!(["models", "pipeline", "search"].iter().all(|part| help.contains(part)), "{help}");
    let wrong = Command::new(program).arg("training").output().expect("the program starts");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&wrong.stderr).contains("\"training\" is none of models, pipeline, search")
    );
}
