//! Windows of few channels: several taps a stage.
//!
//! ```text
//!   a stage of k:   taps t, t+1, t+2, t+3 of 16 channels, or t, t+1 of 32
//!   A  a box for each tap: 128 positions by 32 or 64 bytes, swizzled over as many, one box behind the other
//!   B  64 columns of the filters' matrix: taps by 16 or 32 channels side by side
//! ```
//! The copy engine fills a stage of 64 channels of one tap with zeros where the tensor has 16, which takes
//! its time. Here each row of a box is a sector or two of one tap. Behind the last tap the boxes are zeros.

use cuda_std::tma;
use gemm::sm90::config::{Block, Config, EpiloguePlan, Stage};
use gemm::sm90::epilogue::{Output, store_with};
use gemm::sm90::fusion::StandardFusion;
use gemm::sm90::mainloop::{InAccumulators, Loader, Maps, run_from};
use gemm::sm90::operands::Operands;
use gemm::sm90::tile_scheduler::{PersistentScheduler, TileCoord};
use primitives::tma::LINE_BYTES;

use super::{Arguments, DEPTH, leave_columns, stage_bytes};

/// Channels of a tap, of which the tensor may lack some.
#[inline(always)]
const fn channels<C: Config>() -> u32 {
    DEPTH * C::LINE_A / LINE_BYTES
}

/// Brings positions by filters, several taps a stage.
struct Packed<'a> {
    maps: Maps,
    arguments: &'a Arguments,
    /// Where the tile's first window begins: x, y and image.
    corner: [i32; 3],
    /// The filters' tap that comes next, and the windows' one that it meets, along the width and the height.
    number: u32,
    tap: [u32; 2],
}

impl<'a> Packed<'a> {
    #[inline(always)]
    fn new<C: Config>(maps: Maps, arguments: &'a Arguments, block: Block<C>) -> Self {
        leave_columns(&arguments.shape, block);
        Self { maps, arguments, corner: [0; 3], number: 0, tap: [0; 2] }
    }

    /// Goes to the next tap: forward, or backward where the filters' last tap is met first.
    #[inline(always)]
    fn advance(&mut self) {
        let windows = &self.arguments.windows;
        let (width, step) = (windows.taps[0], windows.tap[1]);
        self.number += 1;
        let across = self.tap[0].wrapping_add(step);
        // Beyond the line, on either side.
        self.tap = if across >= width {
            [if step == 1 { 0 } else { width - 1 }, self.tap[1].wrapping_add(step)]
        } else {
            [across, self.tap[1]]
        };
    }
}

impl<C: Config> Loader<C> for Packed<'_> {
    #[inline(always)]
    fn begin(&mut self, tile: TileCoord) {
        let Arguments { windows, shape, .. } = self.arguments;
        self.corner = windows.corner(&windows.odometer(tile.row));
        self.number = tile.batch * (shape.k / channels::<C>());
        let met = windows.tap[0].wrapping_add(self.number.wrapping_mul(windows.tap[1]));
        // `max` is for the compiler, which sees a division by 0.
        let width = windows.taps[0].max(1);
        self.tap = [met % width, met / width];
    }

    #[inline(always)]
    fn bytes(&self) -> u32 {
        stage_bytes::<C>(&self.arguments.shape)
    }

    #[inline(always)]
    unsafe fn load(&mut self, stage: Stage<C>, full: u32, tile: TileCoord, k: u32) {
        let Arguments { windows, shape, .. } = self.arguments;
        let [x, y, image] = self.corner;
        let mut to = stage.a();
        let mut index = 0;
        // SAFETY: the caller's contract; the maps are as the kernels ask.
        unsafe {
            while index < LINE_BYTES / C::LINE_A {
                // Behind the last tap, channels that no tensor has: zeros.
                let (channel, offsets) = if self.number < windows.taps[1] {
                    let [across, down] = [0, 1].map(|i| (self.tap[i] * windows.dilations[i]) as u16);
                    (0, [across, down])
                } else {
                    (channels::<C>() as i32, [0; 2])
                };
                tma::load_im2col_4d(to, self.maps.a, full, [channel, x, y, image], offsets);
                self.advance();
                to += C::BLOCK_M * C::LINE_A;
                index += 1;
            }
            let column = (tile.batch * shape.k + k) as i32;
            tma::load_3d(stage.b(), self.maps.b, full, [column, tile.column as i32, 0]);
        }
    }
}

/// # Safety
/// As the kernels.
#[inline(always)]
pub(super) unsafe fn packed<C: Config<EpiloguePlan = EpiloguePlan<C>, Stored = <C as Config>::Tile>>(
    maps: Maps,
    arguments: &Arguments,
    data: *mut u8,
) {
    const { assert!(C::Operands::BLOCK_K == DEPTH) };
    let Arguments { shape, output, epilogue, .. } = arguments;
    let output = Output::new(data, output);
    let fusion: StandardFusion<'_, <C::Operands as Operands>::Element16> =
        StandardFusion::new(epilogue, output);
    let scheduler = PersistentScheduler::new::<C>(shape);
    let loader = |maps: Maps, block: Block<C>| Packed::new(maps, arguments, block);
    // SAFETY: the caller's contract.
    unsafe {
        let epilogue = store_with(maps, *shape, output, fusion);
        run_from::<C, _, _, _, _>(maps, *shape, scheduler, loader, InAccumulators, epilogue)
    }
}
