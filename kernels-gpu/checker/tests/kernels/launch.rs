//! Launches a kernel of this package under a seed.

use std::ffi::c_void;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use checker::{AUX_WORDS, BOX_ROW_WORDS, BOX_ROWS};
use simt::memory::{Tracked, untrack};
use simt::tensor_map::{DataType, Description, Interleave, L2Promotion, OobFill, Swizzle};
use simt::{Fault, KernelEntry, LaunchConfig, Options};

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
    grid: [u32; 3],
    block: [u32; 3],
    cluster: u32,
    shared: u32,
    cooperative: bool,
    words: usize,
    data: Data,
    /// The number of words of `data` that the map at the start of `aux` describes. `None`: no map.
    mapped: Option<usize>,
    /// `n`, if it differs from the number of words.
    n: Option<u32>,
    /// Whether the kernel spins for ever. It then gets a short time limit. Others may have to wait for a CPU
    /// core while they spin.
    hangs: bool,
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

    fn config(&self) -> LaunchConfig {
        let &Self { grid, block, cooperative, .. } = self;
        let cluster = [self.cluster, 1, 1];
        LaunchConfig {
            grid,
            block,
            cluster,
            dynamic_shared: self.shared,
            cooperative,
            ..LaunchConfig::default()
        }
    }
}

/// The result of a launch.
pub struct Outcome {
    pub data: Vec<u32>,
    pub aux: Vec<u32>,
    pub result: Result<(), Box<Fault>>,
}

/// Words of a line of [`Memory`].
const LINE: usize = 32;

#[derive(Clone, Copy)]
#[repr(align(128))]
struct Line(#[allow(dead_code, reason = "it is read as words")] [u32; LINE]);

/// Words before, between and after `data` and `aux`. Accesses that the checker misses end there and harm
/// nothing.
const MARGIN: usize = 16 * 1024;

/// `data` and `aux` in the middle of host memory.
struct Memory {
    lines: Vec<Line>,
    words: usize,
    aux: usize,
}

impl Memory {
    fn new(shape: &Shape) -> Self {
        let end = MARGIN + shape.words;
        let aux = if shape.data == Data::BeforeAux { end } else { (end + MARGIN).next_multiple_of(LINE) };
        let lines = vec![Line([0; LINE]); (aux + AUX_WORDS + MARGIN).div_ceil(LINE)];
        let mut memory = Self { lines, words: shape.words, aux };
        (0..).zip(memory.parts().0).for_each(|(value, word)| *word = value);
        memory
    }

    fn parts(&mut self) -> (&mut [u32], &mut [u32]) {
        // SAFETY: the lines are words without padding, borrowed for as long as the result.
        let all = unsafe {
            std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast::<u32>(), self.lines.len() * LINE)
        };
        let (before, after) = all.split_at_mut(self.aux);
        (&mut before[MARGIN..][..self.words], &mut after[..AUX_WORDS])
    }
}

/// Launches under seeds 0 to `seeds`. A launch that does not come back ends the test with the kernel's name:
/// the executor does not see every endless loop.
pub fn run(entry: &'static KernelEntry, shape: Shape, seeds: u64) -> Vec<Outcome> {
    const PATIENCE: Duration = Duration::from_secs(60);
    let (give, take) = mpsc::channel();
    thread::spawn(move || (0..seeds).try_for_each(|seed| give.send(launch(entry, &shape, seed))));
    let outcome = |seed| match take.recv_timeout(PATIENCE) {
        Ok(outcome) => outcome,
        Err(why) => panic!("{} under seed {seed} does not come back: {why}", entry.name),
    };
    (0..seeds).map(outcome).collect()
}

/// Launches with `data` counting up and `aux` zero.
fn launch(entry: &'static KernelEntry, shape: &Shape, seed: u64) -> Outcome {
    let mut memory = Memory::new(shape);
    let (data, aux) = memory.parts();
    let device_data = Tracked::new(data, "data");
    if let Some(words) = shape.mapped {
        let map = simt::tensor_map::encode(&rows(device_data.as_ptr() as u64, words));
        let halves = map.iter().flat_map(|word| [*word as u32, (word >> 32) as u32]);
        aux.iter_mut().zip(halves).for_each(|(to, half)| *to = half);
    }
    let device_aux = Tracked::new(aux, "aux");
    let host: Vec<u32> = vec![0; if shape.data == Data::Host { 1 << 20 } else { 0 }];
    let pointer = match shape.data {
        Data::Device | Data::BeforeAux => device_data.as_ptr(),
        Data::Freed => {
            untrack(device_data.as_ptr());
            device_data.as_ptr()
        }
        Data::Host => host.as_ptr().cast_mut().wrapping_add(host.len() / 2),
        Data::Null => std::ptr::null_mut(),
    };
    let (aux_pointer, n) = (device_aux.as_ptr(), shape.n.unwrap_or(shape.words as u32));
    let params: [*const c_void; 3] =
        [(&raw const pointer).cast(), (&raw const aux_pointer).cast(), (&raw const n).cast()];
    let mut options = Options { seed, check: true, ..Options::default() };
    if shape.hangs {
        options.spin_limit = Duration::from_millis(20);
    }
    // SAFETY: kernels of this package take these three parameters. Their bad accesses become faults before
    // they happen, or end in the margins.
    let result = unsafe { simt::launch(entry, &shape.config(), params.as_ptr(), &options) }.map(drop);
    drop((device_data, device_aux));
    let (data, aux) = memory.parts();
    Outcome { data: data.to_vec(), aux: aux.to_vec(), result }
}

/// A tensor map of words as rows, copied in boxes.
fn rows(address: u64, words: usize) -> Description {
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
    }
}
