//! Stream-K: whether tiles are cut, and the memory that the sums of their pieces go through. How is
//! [`gemm::sm90::stream_k`]'s.

use gemm::sm90::instances::Entry;
use gemm::sm90::partials::{flag_words, slots};
use gemm::sm90::stream_k::StreamK;

use crate::error::Result;
use crate::memory::{DeviceBuffer, DeviceViewMut};
use crate::ops::gemm::problem::Problem;
use crate::ops::gemm::select::DeviceCapabilities;
use crate::stream::Stream;

use super::candidates::{View, blocks, clusters, resident};

/// Stages of a share, at least, where there are fewer tiles than clusters: below, handing the sums over takes
/// longer than making them.
const LEAST_STAGES: u32 = 4;
/// Stages of all cut tiles at most: kernels count them in 32 bits.
const MOST_STAGES: u64 = 1 << 31;

/// Tiles that are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    pub shares: StreamK,
    /// Clusters of the launch; each has a share.
    pub clusters: u32,
    /// Tiles of a cluster behind its share.
    pub whole: u32,
}

impl Cut {
    /// Stages that a cluster sums at most.
    pub fn stages(&self, k_tiles: u32) -> u32 {
        self.shares.begin(1) + self.whole * k_tiles
    }

    /// Pieces of others that a cluster adds to one of its own, at most.
    pub fn added(&self) -> u32 {
        self.clusters.div_ceil(self.shares.tiles).max(1)
    }
}

/// How the kernel cuts the problem's tiles; none where they make whole waves, or are too short.
pub(super) fn cut(entry: &Entry, view: &View, problem: &Problem, device: &DeviceCapabilities) -> Option<Cut> {
    if entry.cluster[2] > 1 {
        return None;
    }
    plan(clusters(entry, view, problem.batch), k_tiles(entry, problem), resident(entry, device))
}

/// Stages of a tile.
pub(super) fn k_tiles(entry: &Entry, problem: &Problem) -> u32 {
    problem.k.div_ceil(entry.block[2])
}

/// The same for so many tiles, of so many stages each, and clusters that run at once.
fn plan(tiles: u32, k_tiles: u32, resident: u32) -> Option<Cut> {
    let left = tiles % resident;
    if left == 0 || k_tiles < 2 {
        return None;
    }
    let cut = if tiles > resident { resident + left } else { tiles };
    let stages = u64::from(cut) * u64::from(k_tiles);
    if stages > MOST_STAGES {
        return None;
    }
    let most = if tiles > resident { resident } else { stages as u32 / LEAST_STAGES };
    let clusters = most.min(resident);
    // As many shares as tiles are the tiles.
    (clusters > left).then(|| Cut {
        shares: StreamK::new(cut, k_tiles, clusters),
        clusters,
        whole: (tiles - cut) / resident,
    })
}

/// The memory of a launch.
pub(super) struct Workspace {
    shares: StreamK,
    sums: DeviceBuffer<f32>,
    flags: DeviceBuffer<u32>,
}

/// A kernel's view of it.
pub(crate) struct Pieces<'a> {
    pub shares: StreamK,
    pub sums: DeviceViewMut<'a, f32>,
    pub flags: DeviceViewMut<'a, u32>,
}

impl Workspace {
    /// For a launch on `stream`. Flags are zero before it.
    ///
    /// # Errors
    /// Those of [`DeviceBuffer::uninit`].
    pub fn new(stream: &Stream, entry: &Entry, cut: &Cut) -> Result<Self> {
        let slots = slots(cut.clusters, blocks(entry));
        let tile = entry.block[0] as usize * entry.block[1] as usize;
        // SAFETY: a slot is written before its flag is set, and read behind that.
        let sums = unsafe { DeviceBuffer::uninit(stream, slots as usize * tile)? };
        let flags = DeviceBuffer::zeroed(stream, flag_words(slots, entry.consumers) as usize)?;
        Ok(Workspace { shares: cut.shares, sums, flags })
    }

    /// For the kernel.
    pub fn pieces(&mut self) -> Pieces<'_> {
        Pieces { shares: self.shares, sums: self.sums.view_mut(), flags: self.flags.view_mut() }
    }
}

#[cfg(test)]
mod tests {
    use super::plan;

    fn cut(tiles: u32, k_tiles: u32) -> Option<(u32, u32, u32)> {
        plan(tiles, k_tiles, 132).map(|cut| (cut.shares.tiles, cut.clusters, cut.whole))
    }

    #[test]
    fn a_wave_and_what_is_left_over_is_cut() {
        assert_eq!(cut(133, 64), Some((133, 132, 0)));
        assert_eq!(cut(192, 64), Some((192, 132, 0)));
        assert_eq!(cut(4 * 132 + 5, 2), Some((137, 132, 3)));
        assert_eq!(cut(100, 64), Some((100, 132, 0)));
        // So few stages are for fewer clusters.
        assert_eq!(cut(10, 20), Some((10, 50, 0)));
    }

    #[test]
    fn whole_waves_and_short_tiles_stay_whole() {
        assert_eq!(cut(132, 64), None);
        assert_eq!(cut(264, 64), None);
        assert_eq!(cut(200, 1), None);
        // Ten shares of four stages would be the tiles.
        assert_eq!(cut(10, 4), None);
        assert_eq!(cut(10, 3), None);
        assert_eq!(cut(131, 1 << 26), None);
    }

    #[test]
    fn the_longest_share_is_what_a_cluster_takes() {
        // 137 * 2 stages for 132, then three tiles.
        let some = plan(4 * 132 + 5, 2, 132).unwrap();
        assert_eq!((some.stages(2), some.added()), (3 + 6, 1));
        let few = plan(10, 20, 132).unwrap();
        assert_eq!((few.stages(20), few.added()), (4, 5));
    }
}
