//! Clusters: special registers, `barrier.cluster`, `mapa`, distributed shared memory.

use core::arch::asm;

use crate::vector::Word;

// Intrinsics, not `asm!`: LLVM knows that barriers are convergent and so does not move them across branches.
unsafe extern "C" {
    #[link_name = "llvm.nvvm.barrier.cluster.arrive.aligned"]
    fn arrive_aligned();
    #[link_name = "llvm.nvvm.barrier.cluster.arrive.relaxed.aligned"]
    fn arrive_relaxed_aligned();
    #[link_name = "llvm.nvvm.barrier.cluster.wait.aligned"]
    fn wait_aligned();
}

macro_rules! special_register {
    ($name:literal) => {{
        let value: u32;
        // SAFETY: reads a special register, which never changes.
        unsafe { asm!(concat!("mov.u32 {0}, %", $name, ";"), out(reg32) value, options(pure, nomem, nostack)) };
        value
    }};
}

#[inline(always)]
pub fn block_rank() -> u32 {
    special_register!("cluster_ctarank")
}

#[inline(always)]
pub fn blocks() -> u32 {
    special_register!("cluster_nctarank")
}

#[inline(always)]
pub fn block_idx() -> [u32; 3] {
    [
        special_register!("cluster_ctaid.x"),
        special_register!("cluster_ctaid.y"),
        special_register!("cluster_ctaid.z"),
    ]
}

#[inline(always)]
pub fn dim() -> [u32; 3] {
    [
        special_register!("cluster_nctaid.x"),
        special_register!("cluster_nctaid.y"),
        special_register!("cluster_nctaid.z"),
    ]
}

#[inline(always)]
pub fn id() -> [u32; 3] {
    [special_register!("clusterid.x"), special_register!("clusterid.y"), special_register!("clusterid.z")]
}

#[inline(always)]
pub fn count() -> [u32; 3] {
    [special_register!("nclusterid.x"), special_register!("nclusterid.y"), special_register!("nclusterid.z")]
}

#[inline(always)]
pub unsafe fn arrive() {
    // SAFETY: the caller vouches that the cluster takes part.
    unsafe { arrive_aligned() }
}

#[inline(always)]
pub unsafe fn arrive_relaxed() {
    // SAFETY: the caller vouches that the cluster takes part.
    unsafe { arrive_relaxed_aligned() }
}

#[inline(always)]
pub unsafe fn wait() {
    // SAFETY: the caller vouches that it has arrived.
    unsafe { wait_aligned() }
}

#[inline(always)]
pub fn map_shared(addr: u32, rank: u32) -> u32 {
    let mapped: u32;
    // SAFETY: computes an address.
    unsafe {
        asm!("mapa.shared::cluster.u32 {0}, {1}, {2};", out(reg32) mapped, in(reg32) addr, in(reg32) rank,
            options(pure, nomem, nostack));
    }
    mapped
}

#[inline(always)]
pub unsafe fn load_shared<T: Word>(addr: u32) -> T {
    let a: u32;
    // SAFETY: one load; the caller vouches for the address.
    unsafe {
        asm!("ld.shared::cluster.b32 {0}, [{1}];", out(reg32) a, in(reg32) addr,
            options(readonly, nostack, preserves_flags));
    }
    T::from_word(a)
}

#[inline(always)]
pub unsafe fn load_shared_v2<T: Word>(addr: u32) -> [T; 2] {
    let (a, b): (u32, u32);
    // SAFETY: one load; the caller vouches for the address.
    unsafe {
        asm!("ld.shared::cluster.v2.b32 {{{0}, {1}}}, [{2}];", out(reg32) a, out(reg32) b, in(reg32) addr,
            options(readonly, nostack, preserves_flags));
    }
    [T::from_word(a), T::from_word(b)]
}

#[inline(always)]
pub unsafe fn load_shared_v4<T: Word>(addr: u32) -> [T; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: one load; the caller vouches for the address.
    unsafe {
        asm!("ld.shared::cluster.v4.b32 {{{0}, {1}, {2}, {3}}}, [{4}];", out(reg32) a, out(reg32) b, out(reg32) c,
            out(reg32) d, in(reg32) addr, options(readonly, nostack, preserves_flags));
    }
    [T::from_word(a), T::from_word(b), T::from_word(c), T::from_word(d)]
}

#[inline(always)]
pub unsafe fn store_shared<T: Word>(addr: u32, value: T) {
    // SAFETY: one store; the caller vouches for the address.
    unsafe {
        asm!("st.shared::cluster.b32 [{0}], {1};", in(reg32) addr, in(reg32) value.to_word(),
            options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub unsafe fn store_shared_v2<T: Word>(addr: u32, value: [T; 2]) {
    // SAFETY: one store; the caller vouches for the address.
    unsafe {
        asm!("st.shared::cluster.v2.b32 [{0}], {{{1}, {2}}};", in(reg32) addr, in(reg32) value[0].to_word(),
            in(reg32) value[1].to_word(), options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub unsafe fn store_shared_v4<T: Word>(addr: u32, value: [T; 4]) {
    // SAFETY: one store; the caller vouches for the address.
    unsafe {
        asm!("st.shared::cluster.v4.b32 [{0}], {{{1}, {2}, {3}, {4}}};", in(reg32) addr,
            in(reg32) value[0].to_word(), in(reg32) value[1].to_word(), in(reg32) value[2].to_word(),
            in(reg32) value[3].to_word(), options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub unsafe fn store_async<T: Word>(addr: u32, value: T, bar: u32) {
    // SAFETY: one store; the caller vouches for the addresses.
    unsafe {
        asm!("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [{0}], {1}, [{2}];", in(reg32) addr,
            in(reg32) value.to_word(), in(reg32) bar, options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub unsafe fn store_async_v2<T: Word>(addr: u32, value: [T; 2], bar: u32) {
    // SAFETY: one store; the caller vouches for the addresses.
    unsafe {
        asm!("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [{0}], {{{1}, {2}}}, [{3}];", in(reg32) addr,
            in(reg32) value[0].to_word(), in(reg32) value[1].to_word(), in(reg32) bar,
            options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub unsafe fn store_async_v4<T: Word>(addr: u32, value: [T; 4], bar: u32) {
    // SAFETY: one store; the caller vouches for the addresses.
    unsafe {
        asm!("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [{0}], {{{1}, {2}, {3}, {4}}}, [{5}];",
            in(reg32) addr, in(reg32) value[0].to_word(), in(reg32) value[1].to_word(),
            in(reg32) value[2].to_word(), in(reg32) value[3].to_word(), in(reg32) bar,
            options(nostack, preserves_flags));
    }
}
