//! Clusters: blocks that run at the same time, meet at a barrier, and reach each other's shared memory.
//!
//! A launch says how many blocks form a cluster along x, y, z; without, every block is a cluster of its own, and everything here works.
//! A block's place is its *rank*, x fastest.
//!
//! An address in the cluster's shared window is a `u32` that [`map_shared`] makes of one of this block's: the same place in the
//! shared memory of the block of that rank. A block's shared memory lives until the block exits, so the blocks of a
//! cluster meet once more ([`sync`]) before any of them may leave.

use crate::arch::cluster as arch;
use crate::vector::Word;

/// Most blocks of a cluster that every device with clusters runs.
pub const MAX_PORTABLE_BLOCKS: u32 = 8;

/// Rank of this block in its cluster, `0..blocks()`.
///
/// # PTX
/// `%cluster_ctarank`
#[inline(always)]
#[track_caller]
#[must_use]
pub fn block_rank() -> u32 {
    arch::block_rank()
}

/// Blocks of the cluster.
///
/// # PTX
/// `%cluster_nctarank`
#[inline(always)]
#[track_caller]
#[must_use]
pub fn blocks() -> u32 {
    arch::blocks()
}

/// Place of this block in its cluster along x, y, z.
///
/// # PTX
/// `%cluster_ctaid`
#[inline(always)]
#[track_caller]
#[must_use]
pub fn block_idx() -> [u32; 3] {
    arch::block_idx()
}

/// Blocks of the cluster along x, y, z.
///
/// # PTX
/// `%cluster_nctaid`
#[inline(always)]
#[track_caller]
#[must_use]
pub fn dim() -> [u32; 3] {
    arch::dim()
}

/// Place of this cluster in the grid along x, y, z, counted in clusters.
///
/// # PTX
/// `%clusterid`
#[inline(always)]
#[track_caller]
#[must_use]
pub fn id() -> [u32; 3] {
    arch::id()
}

/// Clusters of the grid along x, y, z.
///
/// # PTX
/// `%nclusterid`
#[inline(always)]
#[track_caller]
#[must_use]
pub fn count() -> [u32; 3] {
    arch::count()
}

/// Says that this thread has come to the cluster's barrier, and releases what it did before. [`wait`] follows, and no
/// second arrival before it.
///
/// # Safety
/// Every live thread of the cluster does the same in turn, and all lanes of a warp do it together.
///
/// # PTX
/// `barrier.cluster.arrive.release.aligned`
#[inline(always)]
#[track_caller]
pub unsafe fn arrive() {
    // SAFETY: the caller keeps this function's contract, which is the same.
    unsafe { arch::arrive() }
}

/// As [`arrive`], but orders nothing.
///
/// # Safety
/// As [`arrive`].
///
/// # PTX
/// `barrier.cluster.arrive.relaxed.aligned`
#[inline(always)]
#[track_caller]
pub unsafe fn arrive_relaxed() {
    // SAFETY: the caller keeps this function's contract, which is the same.
    unsafe { arch::arrive_relaxed() }
}

/// Waits until every live thread of the cluster has arrived, and acquires what they released.
///
/// # Safety
/// This thread has arrived and not waited since; all lanes of a warp call it together.
///
/// # PTX
/// `barrier.cluster.wait.acquire.aligned`
#[inline(always)]
#[track_caller]
pub unsafe fn wait() {
    // SAFETY: the caller keeps this function's contract, which is the same.
    unsafe { arch::wait() }
}

/// [`arrive`], then [`wait`].
///
/// # Safety
/// As [`arrive`].
#[inline(always)]
#[track_caller]
pub unsafe fn sync() {
    // SAFETY: the caller keeps this function's contract, which is that of both.
    unsafe {
        arch::arrive();
        arch::wait();
    }
}

/// The place `addr` of this block's shared memory, in the block of rank `rank`: an address in the cluster's window.
/// `rank` is below [`blocks`].
///
/// # PTX
/// `mapa.shared::cluster.u32 mapped, addr, rank`
#[inline(always)]
#[track_caller]
#[must_use]
pub fn map_shared(addr: u32, rank: u32) -> u32 {
    arch::map_shared(addr, rank)
}

macro_rules! load_shared {
    ($($name:ident -> $ret:ty, $ptx:literal: $what:literal;)*) => { $(
        #[doc = $what]
        ///
        /// # Safety
        /// `addr_cluster` is an address in the cluster's window, aligned to the size of the result; its block has not exited;
        /// no thread writes there at the same time.
        ///
        /// # PTX
        #[doc = concat!("`", $ptx, "`")]
        #[inline(always)]
        #[track_caller]
        #[must_use]
        pub unsafe fn $name<T: Word>(addr_cluster: u32) -> $ret {
            // SAFETY: the caller keeps this function's contract, which is the same.
            unsafe { arch::$name(addr_cluster) }
        }
    )* };
}

load_shared! {
    load_shared -> T, "ld.shared::cluster.b32": "Loads one word of a block of the cluster.";
    load_shared_v2 -> [T; 2], "ld.shared::cluster.v2.b32": "Loads 8 bytes of a block of the cluster.";
    load_shared_v4 -> [T; 4], "ld.shared::cluster.v4.b32": "Loads 16 bytes of a block of the cluster.";
}

macro_rules! store_shared {
    ($($name:ident($value:ty), $ptx:literal: $what:literal;)*) => { $(
        #[doc = $what]
        ///
        /// # Safety
        /// `addr_cluster` is an address in the cluster's window, aligned to the size of the value; its block has not exited; no
        /// other thread reads or writes there at the same time.
        ///
        /// # PTX
        #[doc = concat!("`", $ptx, "`")]
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name<T: Word>(addr_cluster: u32, value: $value) {
            // SAFETY: the caller keeps this function's contract, which is the same.
            unsafe { arch::$name(addr_cluster, value) }
        }
    )* };
}

store_shared! {
    store_shared(T), "st.shared::cluster.b32": "Stores one word in a block of the cluster.";
    store_shared_v2([T; 2]), "st.shared::cluster.v2.b32": "Stores 8 bytes in a block of the cluster.";
    store_shared_v4([T; 4]), "st.shared::cluster.v4.b32": "Stores 16 bytes in a block of the cluster.";
}

macro_rules! store_async {
    ($($name:ident($value:ty), $bytes:literal, $ptx:literal: $what:literal;)*) => { $(
        #[doc = $what]
        #[doc = concat!("It is done some time later: then ", $bytes, " bytes count at `bar_cluster`, an [`mbarrier`](crate::mbarrier) of the same block, which has to expect them.")]
        ///
        /// # Safety
        /// Both are addresses in the cluster's window, of one block, which has not exited; `addr_cluster` is aligned to the size of the
        /// value; nobody else reads or writes there until the mbarrier's phase is over.
        ///
        /// # PTX
        #[doc = concat!("`", $ptx, " [addr], value, [bar]`")]
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name<T: Word>(addr_cluster: u32, value: $value, bar_cluster: u32) {
            // SAFETY: the caller keeps this function's contract, which is the same.
            unsafe { arch::$name(addr_cluster, value, bar_cluster) }
        }
    )* };
}

store_async! {
    store_async(T), 4, "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32": "Begins to store one word in a block of the cluster.";
    store_async_v2([T; 2]), 8, "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32": "Begins to store 8 bytes in a block of the cluster.";
    store_async_v4([T; 4]), 16, "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32": "Begins to store 16 bytes in a block of the cluster.";
}
