//! Inputs' gradients on Hopper: a product for each residue class of positions modulo the strides, with that
//! class's taps alone, all in one launch.
//!
//! ```text
//!   3 taps, stride 2, padding 1      class 0: positions 0, 2, ..  tap 1         at window i:  dY[i]
//!                                    class 1: positions 1, 3, ..  taps 2 and 0                dY[i], dY[i + 1]
//! ```
//! Positions of a class meet successive positions of the result at each tap ([`Walk::backward`]), so a class
//! is a walk without strides over the result's gradient, taps in reverse. One map serves all classes: it has
//! as many windows as the class with the most positions, and a class's `offset` says how much further its
//! windows begin. What a class has less of is not stored. So are rows: [`gemm::sm90::scatter`] writes each
//! to its position.
//!
//! Of 3 x 3 by 2, the four classes have 1, 2, 2 and 4 taps: 9 for 4 positions, as many multiplications as the
//! forward pass, where zeros inserted into the gradient would have 36. A class without taps (three of 1 x 1
//! by 2) multiplies one stage of zeros, which the copy engine makes and does not read. Classes with more taps
//! come first, so that short tiles fill the last wave.
//!
//! [`Walk::backward`]: crate::problem::Walk::backward

use cuda_std::tma::{self, TensorMap};
use cuda_std::wgmma::{BF16, F16};
use cuda_std::{KernelArgs, kernel, shared};
use gemm::sm90::config::{Block, Config, EpiloguePlan, Stage};
use gemm::sm90::mainloop::{InAccumulators, Loader, Maps, run_from};
use gemm::sm90::operands::Pair;
use gemm::sm90::scatter::{NOWHERE, Rows, scatter_with};
use gemm::sm90::tile_scheduler::{GemmShape, PersistentScheduler, TileCoord, TileScheduler};
use primitives::shared_plan::SharedType;
use primitives::tma::{BOX_BYTES, BOX_ELEMENTS, LINE_BYTES, box_width};
use primitives::unroll;

use super::{DEPTH, Entry, Windows, boxes_inside};

/// Classes of an axis, at most: its stride.
pub const MOST_CLASSES: u32 = 2;

/// The classes of an axis: numbers of each, those with more taps first.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, KernelArgs)]
pub struct AxisClasses {
    /// How many, 1 or 2.
    pub count: u32,
    /// The first position of each.
    pub first: [u32; 2],
    /// From a position to the next.
    pub step: u32,
    /// Positions of the input.
    pub side: u32,
    /// Taps of each.
    pub taps: [u32; 2],
    /// The number of the tap that its windows meet first.
    pub tap: [u32; 2],
    /// How much less the next tap's number is.
    pub tap_step: u32,
    /// Where its windows' first taps are, from the map's.
    pub offset: [u32; 2],
}

/// The arguments of a kernel by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct ClassArguments {
    /// The product: m windows of a class, n channels, the classes as a batch. k is not looked at.
    pub shape: GemmShape,
    /// The windows over the result's gradient.
    pub windows: Windows,
    /// The classes along the width, which count faster: a class of both axes is one of the batch.
    pub width: AxisClasses,
    /// Those along the height.
    pub height: AxisClasses,
}

impl AxisClasses {
    #[inline(always)]
    const fn of(class: u32, numbers: [u32; 2]) -> u32 {
        if class == 0 { numbers[0] } else { numbers[1] }
    }

    /// The position of a class's window, if the input has it.
    #[inline(always)]
    const fn position(&self, class: u32, window: u32) -> Option<u32> {
        let position = Self::of(class, self.first) + window * self.step;
        if position < self.side { Some(position) } else { None }
    }
}

impl ClassArguments {
    /// The class along the width and the height.
    #[inline(always)]
    const fn class(&self, batch: u32) -> [u32; 2] {
        if self.width.count == 1 { [0, batch] } else { [batch % 2, batch / 2] }
    }

    /// Taps of a class of both axes.
    #[inline(always)]
    const fn taps(&self, batch: u32) -> u32 {
        let [across, down] = self.class(batch);
        AxisClasses::of(across, self.width.taps) * AxisClasses::of(down, self.height.taps)
    }
}

/// The tiles of all classes.
#[derive(Clone, Copy)]
struct ClassScheduler<'a> {
    tiles: PersistentScheduler,
    arguments: &'a ClassArguments,
}

impl<C: Config> TileScheduler<C> for ClassScheduler<'_> {
    #[inline(always)]
    fn has_tile(&mut self) -> bool {
        TileScheduler::<C>::has_tile(&mut self.tiles)
    }

    #[inline(always)]
    fn advance(&mut self, tiles: u32) {
        TileScheduler::<C>::advance(&mut self.tiles, tiles);
    }

    #[inline(always)]
    fn coord(&self, place: [u32; 2]) -> TileCoord {
        TileScheduler::<C>::coord(&self.tiles, place)
    }

    #[inline(always)]
    fn k_tiles(&self, _: &GemmShape) -> u32 {
        let taps = self.arguments.taps(self.tiles.batch::<C>());
        if taps == 0 { 1 } else { taps * (self.arguments.windows.channels / DEPTH) }
    }
}

/// Brings a class's positions by filters.
struct ByClass<'a> {
    maps: Maps,
    arguments: &'a ClassArguments,
    /// Where the tile's first window begins: x, y and image.
    corner: [i32; 3],
    channel: u32,
    /// Of the next tap, along the width and the height: how many are left on its line with it, its number,
    /// and its offset.
    left: u32,
    number: [u32; 2],
    offset: [u32; 2],
    class: [u32; 2],
    /// Boxes of filters that the tile has, and bytes of each.
    boxes: u32,
    box_bytes: u32,
}

impl<'a> ByClass<'a> {
    /// Boxes behind the last column are left out, and what a box has no columns for: see [`super`].
    #[inline(always)]
    fn new<C: Config>(maps: Maps, arguments: &'a ClassArguments, block: Block<C>) -> Self {
        shared::leave_unwritten(block.shared.stage(0).a(), C::STAGES * Stage::<C>::BYTES);
        let zeros = [0; 2];
        Self {
            maps,
            arguments,
            corner: [0; 3],
            channel: 0,
            left: 0,
            number: zeros,
            offset: zeros,
            class: zeros,
            boxes: 0,
            box_bytes: BOX_BYTES / BOX_ELEMENTS * box_width(arguments.shape.n, BOX_ELEMENTS),
        }
    }

    /// Goes to the first tap of a line.
    #[inline(always)]
    fn begin_line(&mut self) {
        let (class, axis) = (self.class[0], &self.arguments.width);
        self.left = AxisClasses::of(class, axis.taps);
        self.number[0] = AxisClasses::of(class, axis.tap);
        self.offset[0] = AxisClasses::of(class, axis.offset);
    }
}

impl<C: Config> Loader<C> for ByClass<'_> {
    #[inline(always)]
    fn begin(&mut self, tile: TileCoord) {
        let ClassArguments { windows, height, shape, .. } = self.arguments;
        self.boxes = boxes_inside(shape.n, tile.column, C::BLOCK_N / BOX_ELEMENTS);
        self.class = self.arguments.class(tile.batch);
        self.corner = windows.corner(&windows.odometer(tile.row));
        // Without taps, behind the last channel: zeros.
        self.channel = if self.arguments.taps(tile.batch) == 0 { windows.channels } else { 0 };
        self.number[1] = AxisClasses::of(self.class[1], height.tap);
        self.offset[1] = AxisClasses::of(self.class[1], height.offset);
        self.begin_line();
    }

    #[inline(always)]
    fn bytes(&self) -> u32 {
        C::BLOCK_M * LINE_BYTES + self.boxes * self.box_bytes
    }

    #[inline(always)]
    unsafe fn load(&mut self, stage: Stage<C>, full: u32, tile: TileCoord, _: u32) {
        let ClassArguments { windows, width, height, .. } = self.arguments;
        let ([x, y, image], channel) = (self.corner, self.channel as i32);
        let number = (self.number[1] * windows.taps[0] + self.number[0]) as i32;
        // SAFETY: the caller's contract; the maps are as the kernels ask.
        unsafe {
            let offsets = [self.offset[0] as u16, self.offset[1] as u16];
            tma::load_im2col_4d(stage.a(), self.maps.a, full, [channel, x, y, image], offsets);
            let mut index = 0;
            while index < self.boxes {
                let column = (tile.column + index * BOX_ELEMENTS) as i32;
                let coords = [column, number, channel];
                tma::load_3d(stage.b() + index * BOX_BYTES, self.maps.b, full, coords);
                index += 1;
            }
        }
        self.channel += DEPTH;
        if self.channel >= windows.channels {
            self.channel = 0;
            self.left = self.left.wrapping_sub(1);
            self.number[0] = self.number[0].wrapping_sub(width.tap_step);
            self.offset[0] += windows.dilations[0];
            if self.left == 0 {
                self.number[1] = self.number[1].wrapping_sub(height.tap_step);
                self.offset[1] += windows.dilations[1];
                self.begin_line();
            }
        }
    }
}

/// Where the windows of a class lie in the input's gradient.
#[derive(Clone, Copy)]
struct Positions<'a> {
    arguments: &'a ClassArguments,
    images: u32,
}

impl Rows for Positions<'_> {
    #[inline(always)]
    fn places<const N: usize>(&self, tile: TileCoord, first: u32, step: u32) -> [u32; N] {
        let ClassArguments { windows, width, height, .. } = self.arguments;
        let [across, down] = self.arguments.class(tile.batch);
        let mut at = windows.odometer(first);
        let step = windows.odometer(step).digits();
        let mut places = [NOWHERE; N];
        unroll!(I in 0..4, { if I < N {
            let position = (height.position(down, at.middle), width.position(across, at.low));
            if let (Some(y), Some(x)) = position && at.high < self.images {
                places[I] = (at.high * height.side + y) * width.side + x;
            }
            at.add(step);
        } });
        places
    }
}

/// # Safety
/// As the kernels.
#[inline(always)]
unsafe fn by_class<C: Config<EpiloguePlan = EpiloguePlan<C>, Stored = <C as Config>::Tile>>(
    maps: Maps,
    arguments: &ClassArguments,
    images: u32,
    result: *mut u16,
) {
    let shape = arguments.shape;
    let scheduler = ClassScheduler { tiles: PersistentScheduler::new::<C>(&shape), arguments };
    let loader = |maps: Maps, block: Block<C>| ByClass::new(maps, arguments, block);
    // SAFETY: the caller's contract.
    unsafe {
        let epilogue = scatter_with(Positions { arguments, images }, shape.n, result);
        run_from::<C, _, _, _, _>(maps, shape, scheduler, loader, InAccumulators, epilogue)
    }
}

/// Kernels: name, configuration, type, columns.
macro_rules! kernels {
    ($(#[kernel] fn $name:ident as $config:ident: $element:ident, 2 x $columns:literal;)*) => { $(
        /// The configuration of the kernel of this name.
        #[derive(Clone, Copy)]
        pub struct $config;

        impl Config for $config {
            type Operands = Pair<$element, $element, $element, 0, 1>;
            type Tile = [[f32; $columns / 2]; 2];
            type Stored = Self::Tile;
            type EpiloguePlan = EpiloguePlan<Self>;
            const CONSUMERS: u32 = 2;
            const PING_PONG: bool = true;
            const CLUSTER_M: u32 = 1;
            const CLUSTER_N: u32 = 1;
            const TRANSPOSED: bool = false;
        }

        impl $config {
            /// The row of a table of kernels.
            pub const ENTRY: Entry = Entry::of::<Self>();
        }

        /// See the module.
        ///
        /// # Safety
        /// `gradient` is a map of windows of `BLOCK_M` positions and 64 channels over the result's gradient
        /// of so many images, `filters` one of boxes of [`box_width`] channels, a tap, and 64 filters, of
        /// live tensors, swizzled; the arguments describe the same. `result` begins at a multiple of 16
        /// bytes, and is valid for writes of the input's gradient, apart from all else. The configuration of
        /// the launch is that of [`run_from`].
        #[kernel(launch_bounds(<$config as Config>::THREADS, 1))]
        pub unsafe fn $name(
            gradient: &TensorMap,
            filters: &TensorMap,
            arguments: ClassArguments,
            images: u32,
            result: *mut u16,
        ) {
            let maps = Maps { a: gradient, b: filters, c: gradient, source: gradient };
            // SAFETY: the caller's contract.
            unsafe { by_class::<$config>(maps, &arguments, images, result) }
        }
    )* };
}

kernels! {
    #[kernel] fn conv_windows_backward_bf16_128x128 as BackwardBf16x128: BF16, 2 x 128;
    #[kernel] fn conv_windows_backward_bf16_128x64 as BackwardBf16x64: BF16, 2 x 64;
    #[kernel] fn conv_windows_backward_f16_128x128 as BackwardF16x128: F16, 2 x 128;
    #[kernel] fn conv_windows_backward_f16_128x64 as BackwardF16x64: F16, 2 x 64;
}
