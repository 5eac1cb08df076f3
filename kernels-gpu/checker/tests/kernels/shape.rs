//! The shape of a kernel's launch, for the executor and for the driver.

use checker::{BOX_ROW_WORDS, BOX_ROWS};
use simt::tensor_map::{DataType, Description, Interleave, L2Promotion, OobFill, Swizzle};

/// The kind of memory that `data` points to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// A device allocation.
    Device,
    /// A device allocation with `aux` right behind its last word.
    BeforeAux,
    /// A device allocation that is freed before the launch.
    Freed,
    /// Host memory.
    Host,
    /// A null pointer.
    Null,
}

/// The shape of a launch.
#[derive(Clone, Copy)]
pub struct Shape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: u32,
    pub shared: u32,
    pub cooperative: bool,
    pub words: usize,
    pub data: Data,
    /// The number of words of `data` that the map at the start of `aux` describes. `None`: no map.
    pub mapped: Option<usize>,
    /// `n`, if it differs from the number of words.
    n: Option<u32>,
    /// Whether the kernel spins for ever. It then gets a short time limit. Others may have to wait for a CPU
    /// core while they spin.
    pub hangs: bool,
}

/// One block of 64 threads over 256 words.
pub const ONE: Shape = Shape {
    grid: [1; 3],
    block: [checker::BLOCK as u32, 1, 1],
    cluster: 1,
    shared: 0,
    cooperative: false,
    words: 256,
    data: Data::Device,
    mapped: None,
    n: None,
    hangs: false,
};

/// That many blocks of 64 threads over 256 words.
pub const fn blocks(blocks: u32) -> Shape {
    Shape { grid: [blocks, 1, 1], ..ONE }
}

/// That many blocks, which run at the same time.
pub const fn together(count: u32) -> Shape {
    Shape { cooperative: true, ..blocks(count) }
}

/// A cluster of that many blocks, each with 4 KiB of dynamic shared memory.
pub const fn cluster(count: u32) -> Shape {
    Shape { cluster: count, ..blocks(count).shared(4096) }
}

/// A block of that many threads.
pub const fn threads(threads: u32) -> Shape {
    Shape { block: [threads, 1, 1], ..ONE }
}

/// Any grid of any blocks.
pub const fn grid(grid: [u32; 3], block: [u32; 3]) -> Shape {
    Shape { grid, block, ..ONE }
}

impl Shape {
    /// Adds dynamic shared memory.
    pub const fn shared(self, bytes: u32) -> Self {
        Self { shared: bytes, ..self }
    }

    /// Sets the size of `data`.
    pub const fn words(self, words: usize) -> Self {
        Self { words, ..self }
    }

    /// Puts a map of the first `words` words of `data` at the start of `aux`.
    pub const fn mapped(self, words: usize) -> Self {
        Self { mapped: Some(words), ..self }
    }

    /// Sets `n`.
    pub const fn n(self, n: u32) -> Self {
        Self { n: Some(n), ..self }
    }

    /// Sets what `data` points to.
    pub const fn data(self, data: Data) -> Self {
        Self { data, ..self }
    }

    /// For kernels that spin for ever.
    pub const fn hangs(self) -> Self {
        Self { hangs: true, ..self }
    }

    /// The kernel's argument `n`.
    pub const fn argument_n(&self) -> u32 {
        match self.n {
            Some(n) => n,
            None => self.words as u32,
        }
    }
}

/// A tensor map of words as rows, copied in boxes.
pub fn rows(address: u64, words: usize) -> Description {
    let (width, height) = (BOX_ROW_WORDS as u64, (words / BOX_ROW_WORDS) as u64);
    Description {
        address,
        data_type: DataType::U32,
        rank: 2,
        dims: [width, height, 1, 1, 1],
        strides: [4 * width, 4 * width * height, 0, 0],
        box_dims: [width as u32, BOX_ROWS, 1, 1, 1],
        element_strides: [1; 5],
        interleave: Interleave::None,
        swizzle: Swizzle::None,
        l2_promotion: L2Promotion::None,
        oob_fill: OobFill::Zeros,
        pixels: None,
    }
}
