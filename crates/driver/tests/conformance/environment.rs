//! Environment variables. Each case has its own process, because the driver reads them once.

use ironwarp_driver::{InitError, fault, soft};
use std::process::Command;

/// Set in the processes that this program starts. It selects the text that they print.
const CASE: &str = "IRONWARP_TEST_CASE";

/// Runs the test `probe` of this program with variables set; returns what it printed.
fn probe(case: &str, variables: &[(&str, &str)]) -> String {
    let program = std::env::current_exe().expect("a test program knows where it is");
    let output = Command::new(program)
        .args(["--exact", "environment::probe_in_a_process_of_its_own", "--nocapture", "--test-threads=1"])
        .env_remove("IRONWARP_DRIVER")
        .env(CASE, case)
        .envs(variables.iter().copied())
        .output()
        .expect("this program can be started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let at = text.find("ANSWER ").unwrap_or_else(|| panic!("no answer in {text}"));
    text[at + "ANSWER ".len()..].lines().next().unwrap_or_default().to_owned()
}

#[test]
fn probe_in_a_process_of_its_own() {
    let Ok(case) = std::env::var(CASE) else { return };
    let (mut count, mut bytes) = (0, 0_usize);
    // SAFETY: out-pointers to live variables.
    let (init, device_calls) = unsafe {
        use cust_raw::*;
        let init = cuInit(0) as u32;
        let calls = [cuDeviceGetCount(&mut count) as u32, cuDeviceGetCount(&mut count) as u32];
        cuDeviceTotalMem_v2(&mut bytes, 0);
        (init, calls)
    };
    match case.as_str() {
        "error" => {
            println!(
                "ANSWER {init}: {}",
                ironwarp_driver::init_error().map_or_else(String::new, |e| e.to_string())
            )
        }
        "devices" => println!("ANSWER {init} {count} {bytes}"),
        "arch" => println!("ANSWER {init} {:?}", [75, 76, 97, 120].map(attribute)),
        "calls" => println!("ANSWER {init} {device_calls:?}"),
        "bad" => {
            let variable = match ironwarp_driver::init_error() {
                Some(InitError::BadVariable { variable, value, allowed }) => {
                    format!("{variable} {value} | {allowed}")
                }
                other => format!("{other:?}"),
            };
            println!("ANSWER {init} {variable}");
        }
        other => panic!("no such case: {other}"),
    }
    assert_eq!(soft::last_fault(), None);
}

#[test]
fn the_number_and_memory_of_devices_can_be_set() {
    let set = [("IRONWARP_DRIVER", "soft"), ("IRONWARP_SOFT_DEVICES", "3"), ("IRONWARP_SOFT_MEMORY", "2M")];
    assert_eq!(probe("devices", &set), "0 3 2097152");
}

/// An attribute of device 0, by its number in `CU_DEVICE_ATTRIBUTE_*`.
fn attribute(number: u32) -> i32 {
    let mut value = -1;
    // SAFETY: an out-pointer to a live variable; the numbers of this file are of attributes.
    unsafe {
        let number = core::mem::transmute::<u32, cust_raw::CUdevice_attribute_enum>(number);
        cust_raw::cuDeviceGetAttribute(&mut value, number, 0);
    }
    value
}

/// The capability, shared memory of a block, and whether there are clusters.
#[test]
fn the_compute_capability_of_devices_can_be_set() {
    let arch = |set: &[(&str, &str)]| probe("arch", &[&[("IRONWARP_DRIVER", "soft")], set].concat());
    assert_eq!(arch(&[]), "0 [9, 0, 232448, 1]");
    for (value, wanted) in [
        ("7.5", "0 [7, 5, 65536, 0]"),
        (" 8.0 ", "0 [8, 0, 166912, 0]"),
        ("8.9", "0 [8, 9, 101376, 0]"),
        ("12.0", "0 [12, 0, 101376, 1]"),
    ] {
        assert_eq!(arch(&[("IRONWARP_SOFT_ARCH", value)]), wanted);
    }
}

#[test]
fn a_driver_that_is_asked_for_and_missing_is_explained() {
    let answer = probe("error", &[("IRONWARP_DRIVER", "nvidia")]);
    if answer.starts_with("0: ") {
        return; // a machine with NVIDIA's driver has nothing to miss
    }
    assert!(answer.starts_with("100: "), "{answer}");
    assert!(answer.contains("libcuda.so.1") || answer.contains("no device"), "{answer}");
    assert!(!answer.contains("dlopen failed"), "the loader's own words: {answer}");
    assert!(answer.contains("IRONWARP_DRIVER=soft"), "{answer}");
}

#[test]
fn bad_values_are_named_with_what_is_allowed() {
    for (variable, value, allowed) in [
        ("IRONWARP_DRIVER", "amd", "nvidia, soft"),
        ("IRONWARP_SOFT_DEVICES", "0", "a number from 1 to 64"),
        ("IRONWARP_SOFT_DEVICES", "many", "a number from 1 to 64"),
        ("IRONWARP_SOFT_MEMORY", "5 apples", "a number of bytes"),
        ("IRONWARP_SEED", "abc", "a number from 0"),
        ("IRONWARP_CHECK", "yes", "a number from 0 to 1"),
        ("IRONWARP_WORKERS", "-1", "a number from 0"),
        ("IRONWARP_SOFT_ARCH", "9.5", "7.5, 8.0, 8.6, 8.9, 9.0, 10.0, 12.0"),
        ("IRONWARP_SOFT_ARCH", "sm_80", "7.5, 8.0"),
        (fault::VARIABLE, "cuMemAlloc_v2", "FUNCTION:NTH:CODE"),
        (fault::VARIABLE, "cuMemAlloc_v2:1:0", "code 0"),
        (fault::VARIABLE, "cuMemAlloc:1:2", "cuMemAlloc_v2"),
        (fault::VARIABLE, "cuMemAlloc_v2:0:2", "counted from 1"),
    ] {
        let answer = probe("bad", &[("IRONWARP_DRIVER", "soft"), (variable, value)]);
        assert!(answer.starts_with(&format!("1 {variable} {value} | ")), "{answer}");
        assert!(answer.contains(allowed), "{answer}");
    }
}

#[test]
fn faults_can_be_set_from_outside() {
    let run = |rule| probe("calls", &[("IRONWARP_DRIVER", "soft"), (fault::VARIABLE, rule)]);
    assert_eq!(run("cuDeviceGetCount:1:OUT_OF_MEMORY"), "0 [2, 0]");
    assert_eq!(run("cuDeviceGetCount:2:100"), "0 [0, 100]");
    assert_eq!(run("cuDeviceGetCount:1:999:always"), "0 [999, 999]");
    assert_eq!(run("cuDeviceGetCount:1:2, cuInit:1:802"), "802 [3, 3]");
}
