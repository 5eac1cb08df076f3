//! Clusters: blocks that run at the same time, meet at a barrier, and reach each other's shared memory.
//!
//! A launch says how many blocks form a cluster along x, y, z; without, every block is a cluster of its own,
//! and everything here works. A block's place is its *rank*, x fastest.
//!
//! An address in the cluster's shared window is a `u32` that [`map_shared`] makes of one of this block's: the
//! same place in the shared memory of the block of that rank. A block's shared memory lives until the block
//! exits, so the blocks of a cluster meet once more ([`sync`]) before any of them may leave.
//!
//! The high bits of such an address are the rank, those of the block's own addresses too. The descriptors of
//! [`wgmma`](crate::wgmma) have no room for them: `layout::wgmma::descriptor` and `units` cut them off, while
//! `advance` by a whole address adds them to the next field.

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

use crate::vector::Word;
#[cfg(target_arch = "nvptx64")]
use crate::vector::{load_words, store_words};

// Intrinsics, not `asm!`: LLVM knows that barriers are convergent and so does not move them across branches.
#[cfg(target_arch = "nvptx64")]
unsafe extern "C" {
    #[link_name = "llvm.nvvm.barrier.cluster.arrive.aligned"]
    fn arrive_aligned();
    #[link_name = "llvm.nvvm.barrier.cluster.arrive.relaxed.aligned"]
    fn arrive_relaxed_aligned();
    #[link_name = "llvm.nvvm.barrier.cluster.wait.aligned"]
    fn wait_aligned();
}

#[cfg(target_arch = "nvptx64")]
macro_rules! special_register {
    ($name:literal) => {{
        let value: u32;
        // SAFETY: reads a special register, which never changes.
        unsafe { asm!(concat!("mov.u32 {0}, %", $name, ";"), out(reg32) value, options(pure, nomem, nostack)) };
        value
    }};
}

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
    arms! {
        ptx: { special_register!("cluster_ctarank") }
        sim: { simt::cluster::block_rank() }
    }
}

/// Blocks of the cluster.
///
/// # PTX
/// `%cluster_nctarank`
#[inline(always)]
#[track_caller]
#[must_use]
pub fn blocks() -> u32 {
    arms! {
        ptx: { special_register!("cluster_nctarank") }
        sim: { simt::cluster::blocks() }
    }
}

/// Place of this block in its cluster along x, y, z.
///
/// # PTX
/// `%cluster_ctaid`
#[inline(always)]
#[track_caller]
#[must_use]
pub fn block_idx() -> [u32; 3] {
    arms! {
        ptx: {
            [
                special_register!("cluster_ctaid.x"),
                special_register!("cluster_ctaid.y"),
                special_register!("cluster_ctaid.z"),
            ]
        }
        sim: { simt::cluster::block_idx() }
    }
}

/// Blocks of the cluster along x, y, z.
///
/// # PTX
/// `%cluster_nctaid`
#[inline(always)]
#[track_caller]
#[must_use]
pub fn dim() -> [u32; 3] {
    arms! {
        ptx: {
            [
                special_register!("cluster_nctaid.x"),
                special_register!("cluster_nctaid.y"),
                special_register!("cluster_nctaid.z"),
            ]
        }
        sim: { simt::cluster::dim() }
    }
}

/// Place of this cluster in the grid along x, y, z, counted in clusters.
///
/// # PTX
/// `%clusterid`
#[inline(always)]
#[track_caller]
#[must_use]
pub fn id() -> [u32; 3] {
    arms! {
        ptx: {
            [special_register!("clusterid.x"), special_register!("clusterid.y"), special_register!("clusterid.z")]
        }
        sim: { simt::cluster::id() }
    }
}

/// Clusters of the grid along x, y, z.
///
/// # PTX
/// `%nclusterid`
#[inline(always)]
#[track_caller]
#[must_use]
pub fn count() -> [u32; 3] {
    arms! {
        ptx: {
            [special_register!("nclusterid.x"), special_register!("nclusterid.y"), special_register!("nclusterid.z")]
        }
        sim: { simt::cluster::count() }
    }
}

/// Says that this thread has come to the cluster's barrier, and releases what it did before. [`wait`]
/// follows, and no second arrival before it.
///
/// # Safety
/// Every live thread of the cluster does the same in turn, and all lanes of a warp do it together.
///
/// # PTX
/// `barrier.cluster.arrive.release.aligned`
#[inline(always)]
#[track_caller]
pub unsafe fn arrive() {
    arms! {
        // SAFETY: the caller vouches that the cluster takes part.
        ptx: { unsafe { arrive_aligned() } }
        sim: { simt::cluster::arrive() }
    }
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
    arms! {
        // SAFETY: the caller vouches that the cluster takes part.
        ptx: { unsafe { arrive_relaxed_aligned() } }
        sim: { simt::cluster::arrive_relaxed() }
    }
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
    arms! {
        // SAFETY: the caller vouches that it has arrived.
        ptx: { unsafe { wait_aligned() } }
        sim: { simt::cluster::wait() }
    }
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
        arrive();
        wait();
    }
}

/// The place `addr` of this block's shared memory, in the block of rank `rank`: an address in the cluster's
/// window. `rank` is below [`blocks`].
///
/// # PTX
/// `mapa.shared::cluster.u32 mapped, addr, rank`
#[inline(always)]
#[track_caller]
#[must_use]
pub fn map_shared(addr: u32, rank: u32) -> u32 {
    arms! {
        ptx: {
            let mapped: u32;
            // SAFETY: computes an address.
            unsafe {
                asm!("mapa.shared::cluster.u32 {0}, {1}, {2};", out(reg32) mapped, in(reg32) addr, in(reg32) rank,
                    options(pure, nomem, nostack));
            }
            mapped
        }
        sim: { simt::cluster::map_shared(addr, rank) }
    }
}

macro_rules! load_shared {
    ($($name:ident -> $n:tt $ret:ty, $ptx:literal: $what:literal;)*) => { $(
        #[doc = $what]
        ///
        /// # Safety
        /// `addr_cluster` is an address in the cluster's window, aligned to the size of the result; its block
        /// has not exited; no thread writes there at the same time.
        ///
        /// # PTX
        #[doc = concat!("`", $ptx, "`")]
        #[inline(always)]
        #[track_caller]
        #[must_use]
        pub unsafe fn $name<T: Word>(addr_cluster: u32) -> $ret {
            // SAFETY: one load; the caller vouches for the address.
            unsafe {
                arms! {
                    ptx: { load_words!($n, $ptx, reg32 addr_cluster) }
                    sim: { simt::cluster::load_shared(addr_cluster) }
                }
            }
        }
    )* };
}

load_shared! {
    load_shared -> 1 T, "ld.shared::cluster.b32": "Loads one word of a block of the cluster.";
    load_shared_v2 -> 2 [T; 2], "ld.shared::cluster.v2.b32": "Loads 8 bytes of a block of the cluster.";
    load_shared_v4 -> 4 [T; 4], "ld.shared::cluster.v4.b32": "Loads 16 bytes of a block of the cluster.";
}

macro_rules! store_shared {
    ($($name:ident($n:tt $value:ty), $ptx:literal: $what:literal;)*) => { $(
        #[doc = $what]
        ///
        /// # Safety
        /// `addr_cluster` is an address in the cluster's window, aligned to the size of the value; its block
        /// has not exited; no other thread reads or writes there at the same time.
        ///
        /// # PTX
        #[doc = concat!("`", $ptx, "`")]
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name<T: Word>(addr_cluster: u32, value: $value) {
            // SAFETY: one store; the caller vouches for the address.
            unsafe {
                arms! {
                    ptx: { store_words!($n, $ptx, reg32 addr_cluster, value) }
                    sim: { simt::cluster::store_shared(addr_cluster, value) }
                }
            }
        }
    )* };
}

store_shared! {
    store_shared(1 T), "st.shared::cluster.b32": "Stores one word in a block of the cluster.";
    store_shared_v2(2 [T; 2]), "st.shared::cluster.v2.b32": "Stores 8 bytes in a block of the cluster.";
    store_shared_v4(4 [T; 4]), "st.shared::cluster.v4.b32": "Stores 16 bytes in a block of the cluster.";
}

/// The bits of 1, 2 or 4 words.
#[cfg(not(target_arch = "nvptx64"))]
macro_rules! words {
    (1, $value:ident) => {
        [$value.to_word()]
    };
    ($n:literal, $value:ident) => {
        $value.map(T::to_word)
    };
}

macro_rules! store_async {
    ($($name:ident($n:tt $value:ty), $bytes:literal, $ptx:literal: $what:literal;)*) => { $(
        #[doc = $what]
        #[doc = concat!("It is done some time later: then ", $bytes, " bytes count at `bar_cluster`, an [`mbarrier`](crate::mbarrier) of the same block, which has to expect them.")]
        ///
        /// # Safety
        /// Both are addresses in the cluster's window, of one block, which has not exited; `addr_cluster` is
        /// aligned to the size of the value; no other thread reads or writes there until the mbarrier's phase
        /// is over.
        ///
        /// # PTX
        #[doc = concat!("`", $ptx, " [addr], value, [bar]`")]
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name<T: Word>(addr_cluster: u32, value: $value, bar_cluster: u32) {
            // SAFETY: one store; the caller vouches for the address.
            unsafe {
                arms! {
                    ptx: { store_words!($n, $ptx, reg32 addr_cluster, value, bar_cluster) }
                    sim: { simt::remote::store_async(addr_cluster, &words!($n, value), bar_cluster) }
                }
            }
        }
    )* };
}

store_async! {
    store_async(1 T), 4, "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32": "Begins to store one word in a block of the cluster.";
    store_async_v2(2 [T; 2]), 8, "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32": "Begins to store 8 bytes in a block of the cluster.";
    store_async_v4(4 [T; 4]), 16, "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32": "Begins to store 16 bytes in a block of the cluster.";
}
