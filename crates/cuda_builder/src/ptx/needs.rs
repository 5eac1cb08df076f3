//! The architectures that instructions need. LLVM checks its own; inline assembly it passes on, and a module
//! that a GPU's driver refuses says so only when it is loaded.

use super::{Module, PtxError, count, demangle};
use crate::arch::Arch;

/// Opcodes that begin with the first text and contain the second need this compute capability.
type Need = (&'static str, &'static str, u16);

/// "Target ISA Notes" of each instruction's section in the PTX ISA.
const NEEDS: &[Need] = &[
    ("dp4a", "", 61),
    ("nanosleep", "", 70),
    ("match.", "", 70),
    ("wmma", "", 70),
    ("", ".L1::", 70),
    ("ldmatrix", "", 75),
    ("movmatrix", "", 75),
    ("tanh.approx", "", 75),
    ("ex2.approx", ".f16", 75),
    ("cp.async", "", 80),
    ("createpolicy", "", 80),
    ("applypriority", "", 80),
    ("discard", "", 80),
    ("mbarrier", "", 80),
    ("redux", "", 80),
    ("max.", ".NaN", 80),
    ("min.", ".NaN", 80),
    ("max.", ".f16", 80),
    ("min.", ".f16", 80),
    ("", ".L2::cache_hint", 80),
    ("", ".bf16", 80),
    ("", ".tf32", 80),
    ("mma", "m16n8k16", 80),
    ("cvt", ".e4m3", 89),
    ("cvt", ".e5m2", 89),
    ("mma", ".e4m3", 89),
    ("mma", ".e5m2", 89),
    ("", ".shared::cluster", 90),
    ("barrier.cluster", "", 90),
    ("mapa", "", 90),
    ("getctarank", "", 90),
    ("griddepcontrol", "", 90),
    ("elect.sync", "", 90),
    ("setmaxnreg", "", 90),
    ("stmatrix", "", 90),
    ("wgmma", "", 90),
    ("cp.async.bulk", "", 90),
    ("cp.reduce.async.bulk", "", 90),
    ("fence.proxy.async", "", 90),
    ("prefetch.tensormap", "", 90),
    ("st.async", "", 90),
    ("red.async", "", 90),
    ("ex2.approx", ".bf16", 90),
    ("tanh.approx", ".bf16", 90),
    ("tcgen05", "", 100),
];

/// Opcodes that begin with these are of one generation alone: they need the name with an `a` behind it, such
/// as sm_90a, or of a family, with an `f`.
const ACCELERATED: &[&str] = &["wgmma", "setmaxnreg", "tcgen05"];

/// Refuses an instruction that the architecture does not have.
pub(super) fn check(module: &Module<'_>, arch: Arch) -> Result<(), PtxError> {
    for function in &module.functions {
        for opcode in count::opcodes(module.body(function)) {
            let needed = needed(opcode);
            let is_accelerated = needed.suffix.is_some();
            if needed.capability > arch.capability || is_accelerated && arch.suffix.is_none() {
                let (function, instruction) = (demangle(function.name), opcode.to_owned());
                return Err(PtxError::NeedsArch { instruction, function, needed, arch });
            }
        }
    }
    Ok(())
}

/// The first architecture that has it; sm_0 where all do.
fn needed(opcode: &str) -> Arch {
    let fits = |(start, part, _): &&Need| opcode.starts_with(start) && opcode.contains(part);
    let capability = NEEDS.iter().filter(fits).map(|&(_, _, capability)| capability).max().unwrap_or(0);
    let suffix = ACCELERATED.iter().any(|start| opcode.starts_with(start)).then_some('a');
    Arch { capability, suffix }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_part_of_an_instruction_counts() {
        let needed = |opcode| needed(opcode).to_string();
        assert_eq!(needed("ld.global.b32"), "sm_0");
        assert_eq!(needed("cp.async.cg.shared.global"), "sm_80");
        assert_eq!(needed("cp.async.bulk.tensor.2d.shared::cluster.global.tile"), "sm_90");
        assert_eq!(needed("cvt.rn.bf16x2.f32"), "sm_80");
        assert_eq!((&*needed("max.NaN.f32"), &*needed("max.f32")), ("sm_80", "sm_0"));
        assert_eq!((&*needed("min.ftz.f16x2"), &*needed("add.rn.f16x2")), ("sm_80", "sm_0"));
        assert_eq!(needed("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"), "sm_0");
        assert_eq!(needed("wgmma.fence.sync.aligned"), "sm_90a");
    }
}
