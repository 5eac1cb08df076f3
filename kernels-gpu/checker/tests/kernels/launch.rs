//! Launches a kernel of this package under a seed.

use std::ffi::c_void;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use checker::AUX_WORDS;
use simt::memory::{Tracked, untrack};
use simt::{Fault, KernelEntry, LaunchConfig, Options};

use crate::shape::{Data, Shape, rows};

fn config(shape: &Shape) -> LaunchConfig {
    let &Shape { grid, block, cooperative, .. } = shape;
    LaunchConfig {
        grid,
        block,
        cluster: [shape.cluster, 1, 1],
        dynamic_shared: shape.shared,
        cooperative,
        ..LaunchConfig::default()
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
    let (aux_pointer, n) = (device_aux.as_ptr(), shape.argument_n());
    let params: [*const c_void; 3] =
        [(&raw const pointer).cast(), (&raw const aux_pointer).cast(), (&raw const n).cast()];
    let mut options = Options { seed, check: true, ..Options::default() };
    if shape.hangs {
        options.spin_limit = Duration::from_millis(20);
    }
    // SAFETY: kernels of this package take these three parameters. Their bad accesses become faults before
    // they happen, or end in the margins.
    let result = unsafe { simt::launch(entry, &config(shape), params.as_ptr(), &options) }.map(drop);
    drop((device_data, device_aux));
    let (data, aux) = memory.parts();
    Outcome { data: data.to_vec(), aux: aux.to_vec(), result }
}
