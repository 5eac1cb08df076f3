//! `ironwarp topology` on the software driver.

use std::process::{Command, Output};

use serde_json::Value;

use crate::place::PROGRAM;

fn topology(devices: &str, more: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("topology").args(more).env("IRONWARP_DRIVER", "soft").env("IRONWARP_SOFT_DEVICES", devices);
    command.output().unwrap()
}

#[test]
fn every_device_and_every_pair_is_shown() {
    let output = topology("3", &["--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["driver"], json["devices"].as_array().unwrap().len()), (&"soft".into(), 3));
    assert!(!json["devices"][2]["cpus"].as_array().unwrap().is_empty());
    let pairs =
        json["links"].as_array().unwrap().iter().map(|link| (link["from"].as_u64(), link["to"].as_u64()));
    let all = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)].map(|(from, to)| (Some(from), Some(to)));
    assert_eq!(pairs.collect::<Vec<_>>(), all);
    assert!(json["links"].as_array().unwrap().iter().all(|link| link["peer_access"] == true));
    let text = String::from_utf8(topology("2", &[]).stdout).unwrap();
    assert!(text.starts_with("software driver\n"), "{text}");
    assert!(text.ends_with("\n      GPU0  GPU1\nGPU0     -  SOFT\nGPU1  SOFT     -\n\n  SOFT  devices of the software driver\n"), "{text}");
    // One device is connected with none.
    let text = String::from_utf8(topology("1", &[]).stdout).unwrap();
    assert!(text.ends_with("GPU0     -\n"), "{text}");
}

#[test]
fn copies_are_measured_on_request() {
    let text = String::from_utf8(topology("2", &["--measure"]).stdout).unwrap();
    assert!(text.contains("\ncopies of this machine's processor, not of a GPU"), "{text}");
    for title in ["GB/s of large copies\n", "microseconds of a copy of 4 bytes\n"] {
        let (_, table) = text.split_once(title).unwrap_or_else(|| panic!("{title:?} in\n{text}"));
        let rows: Vec<Vec<&str>> =
            table.lines().take(3).map(|row| row.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["GPU0", "GPU1"], "{text}");
        for (row, name) in rows[1..].iter().zip(["GPU0", "GPU1"]) {
            let numbers: Vec<f64> = row[1..].iter().map(|number| number.parse().unwrap()).collect();
            assert!(
                row[0] == name && numbers.len() == 2 && numbers.iter().all(|&number| number >= 0.0),
                "{text}"
            );
        }
    }
    let json: Value = serde_json::from_slice(&topology("2", &["--json", "--measure"]).stdout).unwrap();
    let link = &json["links"][1];
    assert!(link["bytes_per_second"].as_f64().unwrap() > 1e7 && link["copy_seconds"].as_f64().unwrap() > 0.0);
    let json: Value = serde_json::from_slice(&topology("2", &["--json"]).stdout).unwrap();
    assert!(json["links"][0]["copy_seconds"].is_null());
}

#[test]
fn wrong_calls_are_refused() {
    for (devices, args, code, part) in [
        ("1", "--measured", 2, "--measured"),
        ("1", "all", 2, "all"),
        ("0", "--json", 1, "a number from 1 to 64"),
    ] {
        let output = topology(devices, &[args]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert!(errors.contains(part), "{errors}");
    }
}
