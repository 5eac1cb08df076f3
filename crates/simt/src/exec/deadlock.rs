//! Faults that the scheduler finds: no thread can run any more, or all threads only spin.

use std::time::Duration;

use super::context::{RawFault, Thread, Wait};
use super::group::Group;
use super::invalid_launch;
use crate::fault::FaultKind;
use crate::site::{RawSite, Site};

/// The fault for a group in which no thread can run and some wait.
pub(super) fn explain(group: &Group<'_>) -> RawFault {
    let waiting = |wait: &Wait| !matches!(wait, Wait::Nothing | Wait::Exited);
    let first = group.threads.iter().find(|thread| waiting(&thread.wait.get()));
    let kind = classify(group);
    let message = match kind {
        FaultKind::BarrierDivergence => "threads have exited while others wait for them".into(),
        FaultKind::WarpMask => "lanes that a warp mask names have exited".into(),
        FaultKind::WarpgroupDivergence => "threads of a warpgroup do not come to its product".into(),
        FaultKind::WarpDivergence => "lanes of a warp wait for each other in different operations".into(),
        _ => match group.threads.iter().find_map(|thread| stuck_mbarrier(group, thread)) {
            Some(mbarrier) => format!("no thread can go on; {mbarrier}"),
            None => "no thread can go on".into(),
        },
    };
    about(group, kind, message, first)
}

/// The state of the mbarrier that a thread waits at.
fn stuck_mbarrier(group: &Group<'_>, thread: &Thread) -> Option<String> {
    let Wait::Mbarrier { offset, .. } = thread.wait.get() else { return None };
    let block = &group.blocks[thread.block_slot as usize];
    Some(crate::mbarrier::describe(block, offset))
}

/// The fault for a group that has only been spinning.
pub(super) fn livelock(group: &Group<'_>, idle: Duration) -> RawFault {
    let message = format!("for {:.1} s threads did nothing but spin on atomics", idle.as_secs_f64());
    let first = group.threads.iter().find(|thread| thread.wait.get() == Wait::Nothing);
    about(group, FaultKind::Livelock, message, first)
}

/// The fault for a thread that got no stack.
pub(super) fn no_stack(group: &Group<'_>, thread: &Thread, error: &std::io::Error) -> RawFault {
    let bytes = group.launch.options.stack_bytes;
    let message =
        format!("no stack of {bytes} bytes for a simulated thread: {error}; launch fewer threads at a time");
    let mut fault = invalid_launch(group.launch.kernel, message, group.launch.options.seed);
    fault.block = group.blocks[thread.block_slot as usize].index.get();
    fault.thread = thread.index;
    RawFault { fault, site: None, other_site: RawSite::default() }
}

fn about(group: &Group<'_>, kind: FaultKind, message: String, first: Option<&Thread>) -> RawFault {
    let mut fault = invalid_launch(group.launch.kernel, message, group.launch.options.seed);
    fault.kind = kind;
    fault.waits = who_waits(group);
    if let Some(thread) = first {
        fault.block = group.blocks[thread.block_slot as usize].index.get();
        fault.thread = thread.index;
    }
    RawFault { fault, site: first.map(|thread| thread.wait_site.get()), other_site: RawSite::default() }
}

fn classify(group: &Group<'_>) -> FaultKind {
    let threads = &group.threads;
    let exited = |thread: &&Thread| thread.wait.get() == Wait::Exited;
    let in_warp = |thread: &&Thread| matches!(thread.wait.get(), Wait::Warp { .. });
    if let Some(waiter) = threads.iter().find(in_warp) {
        let Wait::Warp { mask, .. } = waiter.wait.get() else { return FaultKind::Deadlock };
        let named: Vec<_> = threads.iter().filter(|other| is_named(waiter, mask, other)).collect();
        if named.iter().any(exited) {
            return FaultKind::WarpMask;
        }
        let waits_here = |other: &&Thread| {
            matches!(other.wait.get(), Wait::Nothing | Wait::Warp { .. } | Wait::ActiveMask | Wait::Exited)
        };
        return if named.iter().all(waits_here) { FaultKind::WarpDivergence } else { FaultKind::Deadlock };
    }
    if threads.iter().any(|thread| matches!(thread.wait.get(), Wait::Warpgroup { .. })) {
        return FaultKind::WarpgroupDivergence;
    }
    let barrier = |thread: &&Thread| match thread.wait.get() {
        Wait::Grid => threads.iter().any(|other| exited(&other)),
        Wait::Barrier { expected, .. } => {
            let block = thread.block_slot;
            let all = group.blocks[block as usize].threads;
            expected >= all && threads.iter().any(|other| other.block_slot == block && exited(&other))
        }
        _ => false,
    };
    if threads.iter().any(|thread| barrier(&thread)) {
        FaultKind::BarrierDivergence
    } else {
        FaultKind::Deadlock
    }
}

fn is_named(waiter: &Thread, mask: u32, other: &Thread) -> bool {
    use super::context::WARP_SIZE;
    waiter.block_slot == other.block_slot
        && waiter.rank / WARP_SIZE == other.rank / WARP_SIZE
        && mask & (1 << other.lane()) != 0
}

/// A line for every group of threads that wait for the same in the same place.
fn who_waits(group: &Group<'_>) -> Vec<String> {
    const SHOWN: usize = 16;
    let mut groups: Vec<(u32, Wait, RawSite, Vec<u32>)> = Vec::new();
    for thread in &group.threads {
        let key = (thread.block_slot, thread.wait.get(), site_of(thread));
        match groups.iter_mut().find(|(block, wait, site, _)| (*block, *wait, *site) == key) {
            Some((.., ranks)) => ranks.push(thread.rank),
            None => groups.push((key.0, key.1, key.2, vec![thread.rank])),
        }
    }
    let more = groups.len().saturating_sub(SHOWN);
    let mut lines: Vec<_> = groups.iter().take(SHOWN).map(|entry| describe(group, entry)).collect();
    if more != 0 {
        lines.push(format!("and {more} more groups of threads"));
    }
    lines
}

fn site_of(thread: &Thread) -> RawSite {
    match thread.wait.get() {
        Wait::Exited => RawSite::default(),
        _ => thread.wait_site.get(),
    }
}

fn describe(group: &Group<'_>, (block, wait, site, ranks): &(u32, Wait, RawSite, Vec<u32>)) -> String {
    let block = &group.blocks[*block as usize];
    let what = match *wait {
        Wait::Nothing => "spin".into(),
        Wait::Exited => "have exited".into(),
        Wait::ActiveMask => "ask for the active mask".into(),
        Wait::Grid => format!(
            "wait for the grid: {} of {} are there",
            group.grid_barrier.arrived.get(),
            group.threads.len()
        ),
        Wait::Cluster => "wait for the cluster".into(),
        Wait::Mbarrier { offset, parity, .. } => {
            format!("wait for the phase of parity {parity} of {}", crate::mbarrier::describe(block, offset))
        }
        Wait::BulkGroups { pending } => {
            format!("wait until at most {pending} of their bulk groups are pending")
        }
        Wait::Warp { op, mask } => format!("wait in {op} for the lanes of mask {mask:#010x}"),
        Wait::Warpgroup { op, number } => {
            let arrived = block.warpgroups[number as usize].arrived();
            format!("wait in {op} for their warpgroup: {arrived} of {} are there", crate::wgmma::THREADS)
        }
        Wait::Barrier { id, expected } => {
            let arrived = block.barriers[id as usize].arrived.get();
            format!("wait at barrier {id}: {arrived} of {expected} are there")
        }
    };
    let place = match site.resolve() {
        site if site == Site::default() => String::new(),
        site => format!(" ({site})"),
    };
    let [x, y, z] = block.index.get();
    format!("block ({x}, {y}, {z}): threads {} {what}{place}", ranges(ranks))
}

/// `0..=31, 64` for ascending ranks.
fn ranges(ranks: &[u32]) -> String {
    const SHOWN: usize = 8;
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let shown =
        runs.iter().take(SHOWN).map(|&(a, b)| if a == b { a.to_string() } else { format!("{a}..={b}") });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if runs.len() > SHOWN {
        text += &format!(", ... ({} in all)", ranks.len());
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn ranges_are_short() {
        assert_eq!(super::ranges(&[0, 1, 2, 5, 7, 8]), "0..=2, 5, 7..=8");
        let odd: Vec<_> = (0..64).map(|i| 2 * i + 1).collect();
        assert_eq!(super::ranges(&odd), "1, 3, 5, 7, 9, 11, 13, 15, ... (64 in all)");
    }
}
