//! `barrier.cta`, through LLVM's intrinsics: unlike inline assembly they are known to be convergent.

unsafe extern "C" {
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.count"]
    fn sync_aligned_count(id: u32, threads: u32);
    #[link_name = "llvm.nvvm.barrier.cta.arrive.aligned.count"]
    fn arrive_aligned_count(id: u32, threads: u32);
    #[link_name = "llvm.nvvm.barrier.cta.red.popc.aligned.count"]
    fn red_popc_aligned_count(id: u32, threads: u32, predicate: bool) -> u32;
    #[link_name = "llvm.nvvm.barrier.cta.red.and.aligned.count"]
    fn red_and_aligned_count(id: u32, threads: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.barrier.cta.red.or.aligned.count"]
    fn red_or_aligned_count(id: u32, threads: u32, predicate: bool) -> bool;
}

#[inline(always)]
pub unsafe fn sync(id: u32, threads: u32) {
    // SAFETY: the caller vouches for the round.
    unsafe { sync_aligned_count(id, threads) }
}

#[inline(always)]
pub unsafe fn arrive(id: u32, threads: u32) {
    // SAFETY: the caller vouches for the round.
    unsafe { arrive_aligned_count(id, threads) }
}

#[inline(always)]
pub unsafe fn sync_count(id: u32, threads: u32, predicate: bool) -> u32 {
    // SAFETY: the caller vouches for the round.
    unsafe { red_popc_aligned_count(id, threads, predicate) }
}

#[inline(always)]
pub unsafe fn sync_and(id: u32, threads: u32, predicate: bool) -> bool {
    // SAFETY: the caller vouches for the round.
    unsafe { red_and_aligned_count(id, threads, predicate) }
}

#[inline(always)]
pub unsafe fn sync_or(id: u32, threads: u32, predicate: bool) -> bool {
    // SAFETY: the caller vouches for the round.
    unsafe { red_or_aligned_count(id, threads, predicate) }
}
