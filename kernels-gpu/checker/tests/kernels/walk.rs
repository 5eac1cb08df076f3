//! Runs the tables.
//!
//! A usual run takes a few seeds; `IRONWARP_CORPUS_SEEDS=50` takes 50.

use simt::{Fault, KernelEntry};

use crate::launch::{self, Outcome};
use crate::not_yet::{NOT_YET, holds};
use crate::report::{Report, Tally};
use crate::tables::{self, Bug, Correct};

/// Seeds of a usual run.
const SEEDS: u64 = 8;

/// The crate's name, under which its kernels are registered.
const FAMILY: &str = "checker";

fn seeds() -> u64 {
    let given = std::env::var("IRONWARP_CORPUS_SEEDS").ok().filter(|text| !text.is_empty());
    given.map_or(SEEDS, |text| text.parse().expect("IRONWARP_CORPUS_SEEDS is a number of seeds"))
}

fn entry(name: &str) -> &'static KernelEntry {
    simt::registry::find(Some(FAMILY), name).unwrap()
}

#[test]
fn bugs_are_found() {
    let seeds = seeds();
    let (mut report, mut broken) = (Report::default(), Vec::new());
    for bug in tables::bugs() {
        let outcomes = launch::run(entry(bug.name), bug.shape, seeds);
        let judged = (0..).zip(outcomes).map(|(seed, outcome)| missed(bug, seed, outcome));
        let complaints: Vec<String> = judged.filter_map(Result::err).collect();
        report.add(bug.class, Tally::of(seeds as usize - complaints.len(), seeds as usize));
        let is_enough = bug.depends_on_schedule && complaints.len() < seeds as usize;
        broken.extend(judge(bug.name, complaints.first().filter(|_| !is_enough)));
    }
    report.print("bugs", ["found, every seed", "found, some seeds", "missed"]);
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn correct_kernels_pass() {
    let seeds = seeds();
    let (mut report, mut broken) = (Report::default(), Vec::new());
    for correct in tables::correct() {
        let outcomes = launch::run(entry(correct.name), correct.shape, seeds);
        let judged = (0..).zip(outcomes).map(|(seed, outcome)| refused(correct, seed, outcome));
        let complaints: Vec<String> = judged.filter_map(Result::err).collect();
        report.add(correct.near, Tally::of(seeds as usize - complaints.len(), seeds as usize));
        broken.extend(judge(correct.name, complaints.first()));
    }
    report.print("correct, near", ["passed, every seed", "passed, some seeds", "false alarm"]);
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// The sentence on a kernel that is not as expected: one that should be right and is not, or one of the list
/// that is right. In the list are also those that are right under some seeds only.
fn judge(name: &str, complaint: Option<&String>) -> Option<String> {
    match (complaint, holds(name)) {
        (Some(complaint), false) => Some(format!("{name}: {complaint}")),
        (None, true) => Some(format!("{name}: it is as expected now; take it off the list NOT_YET")),
        _ => None,
    }
}

/// Judges the report on a buggy kernel. The error tells how it differs from the expected one.
fn missed(bug: &Bug, seed: u64, outcome: Outcome) -> Result<(), String> {
    match outcome.result {
        Ok(()) => Err(format!("seed {seed}: no fault")),
        Err(fault) => compare(bug, entry(bug.name), seed, &fault),
    }
}

fn compare(bug: &Bug, entry: &KernelEntry, seed: u64, fault: &Fault) -> Result<(), String> {
    let (file, marked) = crate::marks::of(entry);
    let (here, other) = (&fault.site, fault.other.as_ref().map(|other| &other.site));
    let is_marked = std::iter::once(here)
        .chain(other)
        .all(|site| file.ends_with(&site.file) && !site.file.is_empty() && marked.contains(&site.line));
    let is_named = (fault.kernel.as_str(), fault.seed) == (bug.name, seed);
    if bug.kinds.contains(&fault.kind) && is_marked && is_named {
        return Ok(());
    }
    Err(format!("seed {seed}: expected {:?} on the lines {marked:?}, not\n{fault}", bug.kinds))
}

/// Judges a launch of a correct kernel.
fn refused(correct: &Correct, seed: u64, outcome: Outcome) -> Result<(), String> {
    if let Err(fault) = outcome.result {
        return Err(format!("seed {seed}: {fault}"));
    }
    let right = (correct.is_right)(&outcome.data, &outcome.aux);
    right.then_some(()).ok_or_else(|| format!("seed {seed}: no fault, but wrong results"))
}

#[test]
fn the_tables_hold_every_kernel_once() {
    let mut listed: Vec<&str> = tables::bugs().map(|bug| bug.name).collect();
    listed.extend(tables::correct().map(|correct| correct.name));
    listed.sort_unstable();
    if let Some(twice) = listed.windows(2).find(|pair| pair[0] == pair[1]) {
        panic!("{} is listed twice", twice[0]);
    }
    for (name, _) in NOT_YET {
        assert!(listed.contains(name), "{name} of NOT_YET is no kernel of the tables");
    }
    let kernels = simt::registry::kernels().filter(|entry| entry.family == FAMILY);
    let forgotten: Vec<&str> =
        kernels.map(|entry| entry.name).filter(|name| !listed.contains(name)).collect();
    assert!(forgotten.is_empty(), "kernels without a row: {forgotten:?}");
}

#[test]
fn buggy_kernels_have_marks() {
    for bug in tables::bugs() {
        assert!(!crate::marks::of(entry(bug.name)).1.is_empty(), "{}: no line is marked", bug.name);
        assert!(!bug.source.is_empty() && !bug.kinds.is_empty(), "{}", bug.name);
    }
    assert!(tables::correct().all(|correct| !correct.source.is_empty()));
}

/// The report on a buggy kernel.
fn report(name: &str) -> String {
    let bug = tables::bugs().find(|bug| bug.name == name).unwrap();
    launch::run(entry(name), bug.shape, 1).remove(0).result.unwrap_err().to_string()
}

#[test]
fn reports_name_both_memories() {
    let wrong = |space: &str, memory: &str| {
        format!("the PTX of the instruction names `{space}`, but the address lies in {memory}")
    };
    let tile = report("tile_by_global_stores");
    assert!(tile.contains(&wrong(".global", "the block's shared memory\n")), "{tile}");
    assert!(tile.contains("write of 16 bytes at byte 0 of shared `shared_array![u32; VECTORS]"), "{tile}");
    let local = report("local_by_global_loads");
    assert!(local.contains(&wrong(".global", "the thread's local memory\n")), "{local}");
    let buffer = report("buffer_by_shared_loads");
    let place = "global memory: byte 0 of global allocation `data` (1024 bytes), the kernel's `data`\n";
    assert!(buffer.contains(&wrong(".shared", place)), "{buffer}");
}

#[test]
fn reports_name_the_parameter() {
    let past_end = report("write_past_end");
    assert!(
        past_end.contains("of global allocation `data` (240 bytes), the kernel's `data`\n"),
        "{past_end}"
    );
    let host = report("host_memory");
    assert!(
        host.contains("the kernel's parameter `data` points to memory that is not the device's"),
        "{host}"
    );
}
