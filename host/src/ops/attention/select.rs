//! Which configuration a problem gets: of the kernels that can do it the one with the lowest estimate. The
//! same problem on the same device always gets the same one, so results repeat bit for bit.

use attention::sm90::instances::{Entry, TABLE};
use cuda_std::wgmma::ElementType;

use crate::arch::Arch;
use crate::device::Device;
use crate::error::Result;
use crate::tensor::DType;

use super::check::invalid;
use super::config::{Candidate, Choice, Config, Rejection};
use super::problem::Problem;

/// The properties of a device that kernels ask for.
#[derive(Debug, Clone, Copy)]
struct DeviceCapabilities {
    arch: Arch,
    sm_count: u32,
    /// Shared memory of a block, bytes.
    shared_bytes: u32,
}

impl DeviceCapabilities {
    fn of(device: &Device) -> Self {
        let properties = device.properties();
        let (sm_count, shared_bytes) = (properties.sm_count, properties.shared_per_block_optin);
        DeviceCapabilities { arch: device.arch(), sm_count, shared_bytes }
    }
}

/// A launch, and the way of the first rows.
const START_US: f64 = 4.0;

/// Floating-point operations a microsecond of one multiprocessor, by the kernel's head size: a 132nd of what
/// an H200 does with long sequences.
const fn flops_per_us(head: u32) -> f64 {
    match head {
        ..=64 => 3.8e6,
        65..=128 => 4.9e6,
        _ => 5.7e6,
    }
}

/// Kernels to choose from: those without a score function, or those with one.
pub(super) type Table = &'static [Entry];

fn ask(table: Table, problem: &Problem, device: DeviceCapabilities) -> (Vec<Candidate>, Vec<Rejection>) {
    let (mut candidates, mut rejections) = (Vec::new(), Vec::new());
    for entry in table {
        match lacks(entry, problem, device) {
            Some(why) => rejections.push(Rejection { kernel: entry.name, why }),
            None => candidates.push(Candidate {
                config: Config { entry },
                estimate_us: START_US + busy_us(entry, problem, device),
                why: if entry.head == problem.head_size {
                    "its rows are as long"
                } else {
                    "its rows are longer, filled up with zeros"
                },
            }),
        }
    }
    candidates.sort_by(|a, b| a.estimate_us.total_cmp(&b.estimate_us));
    (candidates, rejections)
}

/// Why the kernel cannot do the problem.
fn lacks(entry: &Entry, problem: &Problem, device: DeviceCapabilities) -> Option<&'static str> {
    let is_hopper = (device.arch.major, device.arch.minor) == (9, 0);
    let rules = [
        (is_hopper, "wants a device of compute capability 9.0"),
        (dtype(entry.element) == Some(problem.dtype), "is for another element type"),
        (entry.head >= problem.head_size, "has shorter rows"),
        (entry.shared <= device.shared_bytes, "wants more shared memory than a block has"),
    ];
    rules.into_iter().find_map(|(holds, why)| (!holds).then_some(why))
}

pub(super) const fn dtype(element: ElementType) -> Option<DType> {
    match element {
        ElementType::Bf16 => Some(DType::BF16),
        ElementType::F16 => Some(DType::F16),
        _ => None,
    }
}

/// Time of the multiprocessor with the most tiles, each of the average work.
fn busy_us(entry: &Entry, problem: &Problem, device: DeviceCapabilities) -> f64 {
    if problem.is_empty() {
        return 0.0;
    }
    let block = f64::from(entry.block[0]);
    let rows = (f64::from(problem.queries) / block).ceil() * block;
    let tiles = problem.sequences() * f64::from(problem.heads) * rows / block;
    let filled = f64::from(entry.head) / f64::from(problem.head_size) * rows / f64::from(problem.queries);
    let turns = (tiles / f64::from(device.sm_count.max(1))).ceil();
    turns * problem.flops() * filled / tiles / flops_per_us(entry.head)
}

/// Every configuration that can do a problem on a device, the likely fastest first.
pub fn candidates(problem: &Problem, device: &Device) -> Vec<Candidate> {
    ask(TABLE, problem, DeviceCapabilities::of(device)).0
}

/// The configuration that a problem gets on a device, with everything that was considered.
///
/// # Errors
/// [`Error::InvalidArgument`](crate::Error::InvalidArgument) when no kernel can do the problem there.
pub fn select(problem: &Problem, device: &Device) -> Result<Choice> {
    select_from(TABLE, problem, device)
}

/// [`select`] of the kernels of a table.
pub(super) fn select_from(table: Table, problem: &Problem, device: &Device) -> Result<Choice> {
    let (candidates, rejections) = ask(table, problem, DeviceCapabilities::of(device));
    let &Candidate { config, why, .. } = candidates.first().ok_or_else(|| {
        invalid(
            "the problem",
            format!("{problem} on {}", device.arch()),
            "one that a kernel can do on this device".to_owned(),
            "the kernels are for Hopper, compute capability 9.0, in bf16 and f16; the software driver shows one",
        )
    })?;
    Ok(Choice { problem: *problem, config, why, candidates, rejections })
}

/// The configuration can do the problem.
pub(super) fn check(problem: &Problem, device: &Device, config: Config) -> Result<()> {
    if candidates(problem, device).iter().any(|candidate| candidate.config == config) {
        return Ok(());
    }
    Err(invalid(
        "the configuration",
        config.to_string(),
        format!("one of those for {problem}"),
        "take one of `candidates` for this very problem and device",
    ))
}

#[cfg(test)]
mod tests {
    use super::{DeviceCapabilities, TABLE, ask};
    use crate::arch::Arch;
    use crate::ops::attention::{Mask, Problem};
    use crate::tensor::DType;

    const HOPPER: DeviceCapabilities =
        DeviceCapabilities { arch: Arch { major: 9, minor: 0 }, sm_count: 132, shared_bytes: 227 * 1024 };
    const PROBLEM: Problem = Problem {
        dtype: DType::BF16,
        batch: 2,
        queries: 4096,
        keys: 4096,
        heads: 16,
        kv_heads: 16,
        head_size: 64,
        mask: Mask::FULL,
        packed: None,
        log_sum_exp: false,
    };

    fn best(problem: Problem) -> &'static str {
        ask(TABLE, &problem, HOPPER).0[0].config.name()
    }

    #[test]
    fn the_shortest_rows_that_hold_the_head() {
        for dtype in [DType::BF16, DType::F16] {
            for (head_size, kernel) in [(8, 64), (64, 64), (72, 128), (128, 128), (136, 256), (256, 256)] {
                let name = best(Problem { dtype, head_size, ..PROBLEM });
                assert_eq!(name, format!("attention_{dtype}_{kernel}"));
            }
        }
        assert_eq!(best(Problem { queries: 0, ..PROBLEM }), "attention_bf16_64");
    }

    #[test]
    fn every_kernel_can_or_says_why_not() {
        let (can, cannot) = ask(TABLE, &PROBLEM, HOPPER);
        assert_eq!((can.len(), cannot.len()), (4, 4));
        let ampere = DeviceCapabilities { arch: Arch { major: 8, minor: 0 }, ..HOPPER };
        let (can, cannot) = ask(TABLE, &PROBLEM, ampere);
        assert!(can.is_empty() && cannot.iter().all(|rejection| rejection.why.contains("9.0")));
    }
}
