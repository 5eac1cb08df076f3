//! Convolutions on Hopper's tensor cores: the main loop of [`gemm::sm90`], fed by TMA in im2col mode.
//!
//! ```text
//!   a stage of k:   one tap (r, s), 64 channels
//!   A  128 positions (n, p, q) in a row, through lines and images      one copy: `coords` the first window's corner,
//!                                                                     `offsets` the tap; padding reads as zeros
//!   B  the filters' channels at that tap                               one box of `[channels, taps, filters]`
//!   C  rows are positions, columns filters: dense, stored by TMA through the epilogue of products
//! ```
//! * **Backward** is the same walk over the result's gradient, with the taps in reverse and B lying the other
//!   way ([`gemm`]'s `nn`), for each class of positions: [`classes`].
//! * **Few channels** (`packed.rs`): a stage of k is four taps of 16 channels, or two of 32.
//! * **Filters' gradients**: k is positions, 64 a stage. A is the result's gradient, by filters; B is 64
//!   channels at a tap for these positions, one copy for each 64 columns; both lie with k outermost (`tn`).
//!   Positions are cut into parts, as in [`crate::weight`], a matrix of a batch each. One part alone is the
//!   gradient, and leaves as that.
//!
//! A window's corner is computed once a tile, by divisions of one thread that copies ahead; then taps and
//! channels count on. A stage of 128 x 128 takes 32 KiB and 64 instructions of 64 x 128 x 16.
//!
//! | kernel | tile | registers of accumulators |
//! |---|---|---|
//! | `conv_windows_*_256x128` | half of the rows each | 128 |
//! | `conv_windows_*_128x128`, `_128x64` | a consumer's own, in turns (ping-pong) | 128; 64 |
//! | `conv_windows_c16_*`, `_c32_*`: `_128x256` | half of the rows each | 128 |
//! | the same, `_128x128` | a consumer's own, in turns | 128 |
//! | `conv_windows_backward_*` | the same | 128; 64 |
//! | `conv_weight_windows_*_128x128` | 128 filters x 128 columns, in turns | 128 |
//! | `conv_weight_windows_*_128x192` | 128 filters x 192 columns, half of the rows each | 96 |

pub mod classes;
mod packed;

use cuda_std::tma::{self, TensorMap};
use cuda_std::wgmma::{BF16, F16, Operand};
use cuda_std::{KernelArgs, kernel, shared};
use gemm::epilogue::EpilogueParams;
use gemm::sm90::config::{Block, Config, EpiloguePlan, Stage};
use gemm::sm90::epilogue::{Output, OutputFlag, OutputParams, store_with};
use gemm::sm90::fusion::StandardFusion;
use gemm::sm90::mainloop::{InAccumulators, Loader, Maps, run_from};
use gemm::sm90::operands::{Operands, Pair};
use gemm::sm90::tile_scheduler::{GemmShape, PersistentScheduler, TileCoord};
use primitives::shared_plan::SharedType;
use primitives::tma::{BOX_BYTES, BOX_ELEMENTS, LINE_BYTES, box_width};

use crate::problem::Odometer;
use packed::packed;

/// Channels of a stage, and positions of a stage of filters' gradients.
pub const DEPTH: u32 = BOX_ELEMENTS;

/// Windows as their map has them: the width first.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, KernelArgs)]
pub struct Windows {
    /// Windows of an image, along the width and the height.
    pub counts: [u32; 2],
    /// From a window to the next.
    pub strides: [u32; 2],
    /// Where the first one begins: before the image, if padding is.
    pub lower: [i32; 2],
    /// From a tap to the next.
    pub dilations: [u32; 2],
    /// Taps along the width, and all of them.
    pub taps: [u32; 2],
    /// The number of the filters' tap that a window meets first, and what the next one's is more (wrapping).
    pub tap: [u32; 2],
    /// Channels that a tap has, those that the tensor lacks among them, which are zeros: a multiple of
    /// [`DEPTH`], or 16 or 32 where a stage has several taps.
    pub channels: u32,
}

impl Windows {
    /// Where the window of this number begins: x, y and image.
    #[inline(always)]
    fn corner(&self, at: &Odometer) -> [i32; 3] {
        [
            (at.low * self.strides[0]) as i32 + self.lower[0],
            (at.middle * self.strides[1]) as i32 + self.lower[1],
            at.high as i32,
        ]
    }

    #[inline(always)]
    const fn odometer(&self, number: u32) -> Odometer {
        Odometer::new(number, self.counts[1], self.counts[0])
    }
}

/// The arguments of a kernel by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct Arguments {
    /// The product: m positions (or filters), n filters (channels; columns), k of a part, and parts as a
    /// batch.
    pub shape: GemmShape,
    /// The result.
    pub output: OutputParams,
    /// The inputs of the epilogue.
    pub epilogue: EpilogueParams,
    /// The windows that are gathered.
    pub windows: Windows,
}

/// Brings positions by filters: see the module.
struct Gathered<'a> {
    maps: Maps,
    arguments: &'a Arguments,
    /// Where the tile's first window begins: x, y and image.
    corner: [i32; 3],
    /// Channel, and tap: along the width, along the height, and its number.
    channel: u32,
    tap: [u32; 3],
}

impl<'a> Gathered<'a> {
    #[inline(always)]
    fn new<C: Config>(maps: Maps, arguments: &'a Arguments, block: Block<C>) -> Self {
        leave_columns(&arguments.shape, block);
        Self { maps, arguments, corner: [0; 3], channel: 0, tap: [0; 3] }
    }
}

/// Filters of a stage's box: a tile's columns, or all there are, if they are fewer. The copy engine would
/// take its time to fill the others with zeros.
pub const fn filters_of_box(filters: u32, block_n: u32) -> u32 {
    if filters < block_n { filters } else { block_n }
}

/// Bytes of a stage with such a box.
#[inline(always)]
const fn stage_bytes<C: Config>(shape: &GemmShape) -> u32 {
    (C::BLOCK_M + filters_of_box(shape.n, C::BLOCK_N)) * LINE_BYTES
}

/// Columns that no box brings are multiplied as they are, and go nowhere.
#[inline(always)]
fn leave_columns<C: Config>(shape: &GemmShape, block: Block<C>) {
    if shape.n < C::BLOCK_N {
        shared::leave_unwritten(block.shared.stage(0).a(), C::STAGES * Stage::<C>::BYTES);
    }
}

impl<C: Config> Loader<C> for Gathered<'_> {
    #[inline(always)]
    fn begin(&mut self, tile: TileCoord) {
        let Arguments { windows, shape, .. } = self.arguments;
        self.corner = windows.corner(&windows.odometer(tile.row));
        let [down, across, channel] =
            Odometer::new(tile.batch * shape.k, windows.taps[0], windows.channels).digits();
        (self.channel, self.tap) = (channel, [across, down, down * windows.taps[0] + across]);
    }

    #[inline(always)]
    fn bytes(&self) -> u32 {
        stage_bytes::<C>(&self.arguments.shape)
    }

    #[inline(always)]
    unsafe fn load(&mut self, stage: Stage<C>, full: u32, tile: TileCoord, _: u32) {
        let windows = &self.arguments.windows;
        let ([x, y, image], [across, down, number]) = (self.corner, self.tap);
        let ([width, taps], [first_tap, tap_step]) = (windows.taps, windows.tap);
        // The last part ends behind the last tap: there, channels that no tensor has are zeros.
        let (channel, offsets) = if number < taps {
            let [step_x, step_y] = windows.dilations;
            (self.channel as i32, [(across * step_x) as u16, (down * step_y) as u16])
        } else {
            (windows.channels as i32, [0; 2])
        };
        let tap = first_tap.wrapping_add(number.wrapping_mul(tap_step)) as i32;
        // SAFETY: the caller's contract; the maps are as the kernels ask.
        unsafe {
            tma::load_im2col_4d(stage.a(), self.maps.a, full, [channel, x, y, image], offsets);
            tma::load_3d(stage.b(), self.maps.b, full, [channel, tap, tile.column as i32]);
        }
        self.channel += DEPTH;
        if self.channel >= windows.channels {
            self.channel = 0;
            self.tap =
                if across + 1 == width { [0, down + 1, number + 1] } else { [across + 1, down, number + 1] };
        }
    }
}

/// Brings filters of the result's gradient by columns of windows: see the module.
struct ByPositions<'a> {
    maps: Maps,
    arguments: &'a Arguments,
    /// The stage's first window, and what a stage adds to it.
    at: Odometer,
    stage: [u32; 3],
    /// The tap and the channel of the tile's first column.
    column: Odometer,
    /// Boxes of filters and of columns that the tile has.
    boxes: [u32; 2],
    /// Bytes of a box of filters.
    filter_bytes: u32,
}

impl<'a> ByPositions<'a> {
    /// Boxes behind the last filter, or the last column, are left out: the copy engine would take longer to
    /// fill them with zeros than to copy. What is multiplied in their places goes nowhere.
    #[inline(always)]
    fn new<C: Config>(maps: Maps, arguments: &'a Arguments, block: Block<C>) -> Self {
        let windows = &arguments.windows;
        let stage = windows.odometer(DEPTH).digits();
        shared::leave_unwritten(block.shared.stage(0).a(), C::STAGES * Stage::<C>::BYTES);
        let (at, column) = (windows.odometer(0), Odometer::new(0, 1, 1));
        let filter_bytes = BOX_BYTES / BOX_ELEMENTS * box_width(arguments.shape.m, BOX_ELEMENTS);
        Self { maps, arguments, at, stage, column, boxes: [0; 2], filter_bytes }
    }
}

/// Boxes of a tile that begins at `first` of so many filters or columns, at most `most`.
#[inline(always)]
fn boxes_inside(side: u32, first: u32, most: u32) -> u32 {
    let inside = (side - first).div_ceil(BOX_ELEMENTS);
    if inside < most { inside } else { most }
}

impl<C: Config> Loader<C> for ByPositions<'_> {
    #[inline(always)]
    fn begin(&mut self, tile: TileCoord) {
        let Arguments { windows, shape, .. } = self.arguments;
        self.at = windows.odometer(tile.batch * shape.k);
        self.column = Odometer::new(tile.column, windows.taps[0], windows.channels);
        self.boxes = [
            boxes_inside(shape.m, tile.row, C::BLOCK_M / BOX_ELEMENTS),
            boxes_inside(shape.n, tile.column, C::BLOCK_N / BOX_ELEMENTS),
        ];
    }

    #[inline(always)]
    fn bytes(&self) -> u32 {
        self.boxes[0] * self.filter_bytes + self.boxes[1] * BOX_BYTES
    }

    #[inline(always)]
    unsafe fn load(&mut self, stage: Stage<C>, full: u32, tile: TileCoord, k: u32) {
        let Arguments { windows, shape, .. } = self.arguments;
        let position = (tile.batch * shape.k + k) as i32;
        let [x, y, image] = windows.corner(&self.at);
        let mut column = self.column;
        // SAFETY: the caller's contract; the maps are as the kernels ask.
        unsafe {
            let mut index = 0;
            while index < self.boxes[0] {
                let filter = (tile.row + index * BOX_ELEMENTS) as i32;
                tma::load_3d(stage.a() + index * BOX_BYTES, self.maps.a, full, [filter, position, 0]);
                index += 1;
            }
            let mut index = 0;
            while index < self.boxes[1] {
                let [down, across, channel] = column.digits();
                let offsets = [(across * windows.dilations[0]) as u16, (down * windows.dilations[1]) as u16];
                let coords = [channel as i32, x, y, image];
                tma::load_im2col_4d(stage.b() + index * BOX_BYTES, self.maps.b, full, coords, offsets);
                column.add([0, 0, BOX_ELEMENTS]);
                index += 1;
            }
        }
        self.at.add(self.stage);
    }
}

/// # Safety
/// As the kernels.
#[inline(always)]
unsafe fn gathered<C: Config<EpiloguePlan = EpiloguePlan<C>, Stored = <C as Config>::Tile>>(
    maps: Maps,
    arguments: &Arguments,
    data: *mut u8,
) {
    let Arguments { shape, output, epilogue, .. } = arguments;
    let output = Output::new(data, output);
    let fusion: StandardFusion<'_, <C::Operands as Operands>::Element16> =
        StandardFusion::new(epilogue, output);
    let scheduler = PersistentScheduler::new::<C>(shape);
    let loader = |maps: Maps, block: Block<C>| Gathered::new(maps, arguments, block);
    // SAFETY: the caller's contract.
    unsafe {
        let epilogue = store_with(maps, *shape, output, fusion);
        run_from::<C, _, _, _, _>(maps, *shape, scheduler, loader, InAccumulators, epilogue)
    }
}

/// # Safety
/// As the kernels.
#[inline(always)]
unsafe fn by_positions<C: Config<EpiloguePlan = EpiloguePlan<C>, Stored = <C as Config>::Tile>>(
    maps: Maps,
    arguments: &Arguments,
    data: *mut u8,
) {
    let Arguments { shape, output, epilogue, .. } = arguments;
    // f32, by the threads; or the gradient itself.
    let output =
        Output::limited(data, output, &[OutputFlag::Paired, OutputFlag::Identity, OutputFlag::Plain]);
    let fusion: StandardFusion<'_, <C::Operands as Operands>::Element16> =
        StandardFusion::new(epilogue, output);
    let scheduler = PersistentScheduler::new::<C>(shape);
    let loader = |maps: Maps, block: Block<C>| ByPositions::new(maps, arguments, block);
    // SAFETY: the caller's contract.
    unsafe {
        let epilogue = store_with(maps, *shape, output, fusion);
        run_from::<C, _, _, _, _>(maps, *shape, scheduler, loader, InAccumulators, epilogue)
    }
}

/// A kernel, as the host needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Rows and columns of a tile.
    pub block: [u32; 2],
    /// Columns of the subtiles that the copy engine stores.
    pub store_columns: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
}

impl Entry {
    const fn of<C: Config>() -> Self {
        Self {
            block: [C::BLOCK_M, C::BLOCK_N],
            store_columns: C::STORE_COLUMNS,
            threads: C::THREADS,
            shared: C::SHARED,
        }
    }
}

/// Kernels: name, configuration, type, orders, groups of rows of a consumer and columns, whether consumers
/// take turns, and the function that runs them.
macro_rules! kernels {
    ($(#[kernel] fn $name:ident as $config:ident: $element:ident, trans $trans_a:literal $trans_b:literal, $groups:literal x $columns:literal $turns:literal, $run:ident $(by $channels:literal)?;)*) => { $(
        /// The configuration of the kernel of this name.
        #[derive(Clone, Copy)]
        pub struct $config;

        impl Config for $config {
            type Operands = Pair<$element, $element, $element, $trans_a, $trans_b>;
            type Tile = [[f32; $columns / 2]; $groups];
            type Stored = Self::Tile;
            type EpiloguePlan = EpiloguePlan<Self>;
            const CONSUMERS: u32 = 2;
            const PING_PONG: bool = $turns;
            const CLUSTER_M: u32 = 1;
            const CLUSTER_N: u32 = 1;
            const TRANSPOSED: bool = false;
            $(const LINE_A: u32 = $channels * <$element as Operand>::TYPE.bytes();)?
        }

        impl $config {
            /// The row of a table of kernels.
            pub const ENTRY: Entry = Entry::of::<Self>();
        }

        /// See the module.
        ///
        /// # Safety
        /// The maps describe what the module says, of live tensors: windows of `BLOCK_M` positions (64 for
        /// filters' gradients) and 64 channels, or those that the name says; filters in boxes of 64 channels,
        /// a tap (of kernels of 16 and 32 channels the matrix of filters by taps and channels), and
        /// [`filters_of_box`] filters; the result's gradient in boxes of [`box_width`] by 64, and the result;
        /// swizzled. The arguments describe the same; `data` is valid for writes of the result. The
        /// configuration of the launch is that of [`run_from`].
        #[kernel(launch_bounds(<$config as Config>::THREADS, 1))]
        pub unsafe fn $name(
            a: &TensorMap,
            b: &TensorMap,
            c: &TensorMap,
            arguments: Arguments,
            data: *mut u8,
        ) {
            // SAFETY: the caller's contract.
            unsafe { $run::<$config>(Maps { a, b, c, source: a }, &arguments, data) }
        }
    )* };
}

kernels! {
    #[kernel] fn conv_windows_bf16_256x128 as Bf16x256: BF16, trans 0 0, 2 x 128 false, gathered;
    #[kernel] fn conv_windows_bf16_128x128 as Bf16x128: BF16, trans 0 0, 2 x 128 true, gathered;
    #[kernel] fn conv_windows_bf16_128x64 as Bf16x64: BF16, trans 0 0, 2 x 64 true, gathered;
    #[kernel] fn conv_windows_f16_256x128 as F16x256: F16, trans 0 0, 2 x 128 false, gathered;
    #[kernel] fn conv_windows_f16_128x128 as F16x128: F16, trans 0 0, 2 x 128 true, gathered;
    #[kernel] fn conv_windows_f16_128x64 as F16x64: F16, trans 0 0, 2 x 64 true, gathered;
    #[kernel] fn conv_windows_c16_bf16_128x256 as Bf16x256By16: BF16, trans 0 0, 1 x 256 false, packed by 16;
    #[kernel] fn conv_windows_c16_bf16_128x128 as Bf16x128By16: BF16, trans 0 0, 2 x 128 true, packed by 16;
    #[kernel] fn conv_windows_c32_bf16_128x256 as Bf16x256By32: BF16, trans 0 0, 1 x 256 false, packed by 32;
    #[kernel] fn conv_windows_c32_bf16_128x128 as Bf16x128By32: BF16, trans 0 0, 2 x 128 true, packed by 32;
    #[kernel] fn conv_windows_c16_f16_128x256 as F16x256By16: F16, trans 0 0, 1 x 256 false, packed by 16;
    #[kernel] fn conv_windows_c16_f16_128x128 as F16x128By16: F16, trans 0 0, 2 x 128 true, packed by 16;
    #[kernel] fn conv_windows_c32_f16_128x256 as F16x256By32: F16, trans 0 0, 1 x 256 false, packed by 32;
    #[kernel] fn conv_windows_c32_f16_128x128 as F16x128By32: F16, trans 0 0, 2 x 128 true, packed by 32;
    #[kernel] fn conv_weight_windows_bf16_128x192 as WeightBf16x192: BF16, trans 1 1, 1 x 192 false, by_positions;
    #[kernel] fn conv_weight_windows_bf16_128x128 as WeightBf16x128: BF16, trans 1 1, 2 x 128 true, by_positions;
    #[kernel] fn conv_weight_windows_f16_128x192 as WeightF16x192: F16, trans 1 1, 1 x 192 false, by_positions;
    #[kernel] fn conv_weight_windows_f16_128x128 as WeightF16x128: F16, trans 1 1, 2 x 128 true, by_positions;
}
