//! Tests of how the program `corpus` reads and counts the reports of compute-sanitizer.

use crate::list;
use crate::log;
use crate::results::{self, Finding, Row, State, TOOLS};
use crate::table::table;

const NAMES: [&str; 4] = ["first", "second", "third", "fourth"];

fn read(text: &str) -> [(State, Option<String>); 4] {
    let mut findings = [(); 4].map(|()| Finding::default());
    log::read(text, &NAMES, &mut findings);
    findings.map(|finding| (finding.state, finding.report))
}

#[test]
fn reports_go_to_the_kernel_that_they_name() {
    let text = "\
========= COMPUTE-SANITIZER
corpus: begin 0 first
========= Invalid __global__ read of size 4 bytes
=========     at first+0x90 in bounds.rs:12
=========     by thread (63,0,0) in block (0,0,0)
========= Invalid __global__ write of size 4 bytes
=========     at first+0xa0
corpus: end 0 first failed 719 (CUDA_ERROR_LAUNCH_FAILED) of cuCtxSynchronize
corpus: begin 1 second
corpus: end 1 second ran
corpus: begin 2 third
========= Error: Race reported between Write access at second+0x10 in a.rs:1
=========     and Read access at second+0x20 [4 hazards]
corpus: end 2 third wrong
corpus: begin 3 fourth
========= Barrier error detected. Divergent thread(s) in block.
=========     at core::slice::fill+0x20
=========     by thread (0,0,0) in block (0,0,0)
========= ERROR SUMMARY: 3 errors
";
    let failed = State::Failed("719 (CUDA_ERROR_LAUNCH_FAILED) of cuCtxSynchronize".to_owned());
    let [first, second, third, fourth] = read(text);
    assert_eq!(first, (failed, Some("Invalid __global__ read of size 4 bytes".to_owned())));
    let race = "Error: Race reported between Write access at second+0x10 in a.rs:1".to_owned();
    assert_eq!(second, (State::Ran, Some(race)), "printed late");
    assert_eq!(third, (State::Wrong, None));
    let barrier = "Barrier error detected. Divergent thread(s) in block.".to_owned();
    assert_eq!(fourth, (State::Died, Some(barrier)), "the process ended in it");
    assert_eq!(log::progress(text), (Some(3), false));
    assert_eq!(log::progress("corpus: begin 0 first\ncorpus: done\n"), (Some(0), true));
    assert_eq!(log::progress("cannot start\n"), (None, false));
    assert!(log::is_at_work(text) && log::is_at_work("cannot start\n"));
    assert!(!log::is_at_work("corpus: begin 0 first\ncorpus: end 0 first hung\nError: bye\n"));
}

#[test]
fn errors_of_calls_are_no_reports_on_a_kernel() {
    let text = "\
corpus: begin 0 first
========= Program hit CUDA_ERROR_ILLEGAL_ADDRESS (error 700) on CUDA API call to cuCtxSynchronize.
=========     Saved host backtrace up to driver entry point at error
=========     Host Frame: corpus::launch at first:12
========= Error: process didn't terminate successfully
========= ERROR SUMMARY: 1 error
";
    assert_eq!(read(text)[0], (State::Died, None));
}

#[test]
fn a_file_of_results_is_read_as_it_was_written() {
    let mut rows = vec![Row::default(); NAMES.len()];
    let failed = State::Failed("700 of\ta call".to_owned());
    rows[1][0] = Finding { state: failed, report: None };
    rows[2][4] = Finding { state: State::Hung, report: Some("Barrier error".to_owned()) };
    for (row, state) in rows[3].iter_mut().zip([State::Ran, State::Wrong, State::Died, State::Skipped]) {
        row.state = state;
    }
    rows[0][0].state = State::Refused("218: a line".to_owned());
    let read = results::read(&NAMES, &results::write(&NAMES, &rows)).unwrap();
    rows[1][0].state = State::Failed("700 of a call".to_owned());
    rows[3][3].state = State::Skipped;
    assert_eq!(read, rows);
    let broken = |text: &str| results::read(&NAMES, text).unwrap_err();
    assert!(broken("head\nfifth\tran").contains("line 2: no such kernel"));
    assert!(broken("head\nfirst\tran").contains("2 fields, wanted 11"));
    assert!(broken(&format!("head\nfirst{}", "\tfell\t".repeat(5))).contains("no such state: fell"));
}

/// A line of numbers of the table.
fn line(text: &str, title: &str, class: &str) -> Vec<usize> {
    let part = &text[text.find(title).unwrap()..];
    let line = part.lines().find(|line| line.starts_with(class)).unwrap();
    line[class.len()..].split_whitespace().map(|number| number.parse().unwrap()).collect()
}

#[test]
fn the_table_counts_by_class() {
    let kernels = list::all();
    let mut rows = vec![Row::default(); kernels.len()];
    let at = |name: &str| kernels.iter().position(|kernel| kernel.name == name).unwrap();
    let report = |state| Finding { state, report: Some("a report".to_owned()) };
    let memcheck = TOOLS.iter().position(|tool| *tool == "memcheck").unwrap();
    let synccheck = TOOLS.iter().position(|tool| *tool == "synccheck").unwrap();
    rows[at("early_return")][synccheck] = report(State::Ran);
    rows[at("uneven_loop")][0].state = State::Hung;
    rows[at("index_into_another_buffer")][memcheck] = report(State::Ran);
    rows[at("warp_sum")] = [(); 5].map(|()| Finding { state: State::Ran, report: None });
    rows[at("block_scan")][0].state = State::Wrong;
    rows[at("block_scan")][memcheck] = report(State::Ran);
    rows[at("barrier_sixteen")][0].state = State::Refused("by the compiler".to_owned());
    let text = table(&kernels, &rows);
    let (bugs, correct) = ("bugs found", "false alarms, near");
    // Kernels, ours, the four tools, any of them, both, error or hang.
    let barriers = line(&text, bugs, "barriers");
    assert_eq!(barriers[2..], [0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(barriers[0], barriers[1], "none of this class is missed");
    let all = line(&text, bugs, "all");
    assert_eq!(all[0], crate::tables::bugs().count());
    assert!(all[1] < all[0], "some are missed");
    assert_eq!(all[2..], [1, 0, 0, 1, 2, 1, 1]);
    // Kernels, ours, the four tools, any of them, right results.
    assert_eq!(line(&text, correct, "warps")[1..], [1, 1, 0, 0, 0, 1, 1]);
    let list = |title: &str| text[text.find(title).unwrap()..].lines().nth(1).unwrap().to_owned();
    assert_eq!(list("found by a tool and not by ours: 1"), "  index_into_another_buffer: memcheck: a report");
    assert_eq!(list("false alarms of the tools: 1"), "  block_scan: memcheck: a report");
    assert_eq!(list("not compiled or not launched: 1"), "  barrier_sixteen: refused by the compiler");
    assert!(text.contains("  block_scan: wrong\n"), "{text}");
    assert!(text.contains("  early_return: none: missing; memcheck: missing"), "{text}");
    assert!(!text.contains("  warp_sum:"), "it ran everywhere: {text}");
}
