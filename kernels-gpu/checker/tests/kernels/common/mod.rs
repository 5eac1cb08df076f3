//! Runs a kernel of this package under many schedules and compares the checker's report with the marks in the
//! source.

#![allow(dead_code, reason = "not every test program needs all of it")]

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::time::Duration;

use checker::{AUX_WORDS, BOX_ROW_WORDS, BOX_ROWS};
use simt::memory::{Tracked, untrack};
use simt::tensor_map::{DataType, Description, Interleave, L2Promotion, OobFill, Swizzle};
use simt::{Fault, FaultKind, KernelEntry, LaunchConfig, Options};

/// The number of schedules for every kernel.
const SEEDS: u64 = 20;

/// The kind of memory that `data` points to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// A device allocation.
    Device,
    /// A device allocation that is freed before the launch.
    Freed,
    /// Host memory.
    Host,
    /// A null pointer.
    Null,
}

/// A launch of a kernel.
#[derive(Clone)]
pub struct Case {
    pub name: &'static str,
    pub config: LaunchConfig,
    pub words: usize,
    pub data: Data,
    /// The number of words of `data` that the map at the start of `aux` describes. `None`: no map.
    pub mapped: Option<usize>,
    /// `n`, if it differs from the number of words.
    pub n: Option<u32>,
}

/// `aux`, aligned as a tensor map is.
#[repr(align(64))]
struct Aux([u32; AUX_WORDS]);

/// The result of a launch.
struct Outcome {
    data: Vec<u32>,
    aux: Vec<u32>,
    result: Result<(), Box<Fault>>,
}

/// A launch of one block of 64 threads over 256 words.
pub fn case(name: &'static str) -> Case {
    Case {
        name,
        config: LaunchConfig::linear(1, checker::BLOCK as u32),
        words: 256,
        data: Data::Device,
        mapped: None,
        n: None,
    }
}

impl Case {
    pub fn blocks(mut self, blocks: u32) -> Self {
        self.config.grid = [blocks, 1, 1];
        self
    }

    pub fn config(self, config: LaunchConfig) -> Self {
        Self { config, ..self }
    }

    pub fn cooperative(mut self) -> Self {
        self.config.cooperative = true;
        self
    }

    pub fn words(self, words: usize) -> Self {
        Self { words, ..self }
    }

    /// A cluster of that many blocks, each with 4 KiB of dynamic shared memory.
    pub fn cluster(mut self, blocks: u32) -> Self {
        self.config.cluster = [blocks, 1, 1];
        self.blocks(blocks).shared()
    }

    /// Adds 4 KiB of dynamic shared memory.
    pub fn shared(mut self) -> Self {
        self.config.dynamic_shared = 4096;
        self
    }

    /// Puts a map of the first `words` words of `data` at the start of `aux`.
    pub fn mapped(self, words: usize) -> Self {
        Self { mapped: Some(words), ..self }
    }

    pub fn data(self, data: Data) -> Self {
        Self { data, ..self }
    }

    /// The kernel must fail under every seed, with this kind, on lines marked in its source.
    #[track_caller]
    pub fn fails(self, kind: FaultKind) {
        let entry = self.entry();
        let (file, marked) = marks(entry);
        assert!(!marked.is_empty(), "{}: no line is marked", self.name);
        for seed in 0..SEEDS {
            let Err(fault) = self.run(seed, kind == FaultKind::Livelock).result else {
                panic!("{} under seed {seed}: no fault", self.name)
            };
            assert_eq!(fault.kind, kind, "{fault}");
            assert_eq!((fault.kernel.as_str(), fault.seed), (self.name, seed));
            let sites = [Some(&fault.site), fault.other.as_ref().map(|other| &other.site)];
            for site in sites.into_iter().flatten() {
                assert!(
                    file.ends_with(&site.file) && !site.file.is_empty(),
                    "{} and {file:?}: {fault}",
                    site.file
                );
                assert!(marked.contains(&site.line), "marked lines are {marked:?}: {fault}");
            }
        }
    }

    /// The kernel must pass under every seed, and `data` and `aux` must then equal `expected`.
    #[track_caller]
    pub fn passes(self, expected: impl Fn(&[u32], &[u32])) {
        for seed in 0..SEEDS {
            let outcome = self.run(seed, false);
            if let Err(fault) = outcome.result {
                panic!("{} under seed {seed}: {fault}", self.name);
            }
            expected(&outcome.data, &outcome.aux);
        }
    }

    #[track_caller]
    fn entry(&self) -> &'static KernelEntry {
        simt::registry::find(Some("checker"), self.name).unwrap()
    }

    /// Launches with `data` counting up and `aux` zero. A kernel that spins for ever gets a short time limit.
    /// Others may have to wait for a CPU core while they spin.
    fn run(&self, seed: u64, hangs: bool) -> Outcome {
        let mut data: Vec<u32> = (0..self.words as u32).collect();
        let mut aux = Box::new(Aux([0; AUX_WORDS]));
        let device_data = Tracked::new(&mut data, "data");
        if let Some(words) = self.mapped {
            let map = simt::tensor_map::encode(&rows(device_data.as_ptr() as u64, words));
            let halves = map.iter().flat_map(|word| [*word as u32, (word >> 32) as u32]);
            aux.0.iter_mut().zip(halves).for_each(|(to, half)| *to = half);
        }
        let device_aux = Tracked::new(&mut aux.0, "aux");
        let host: Vec<u32> = vec![0; 1 << 20];
        let pointer = match self.data {
            Data::Device => device_data.as_ptr(),
            Data::Freed => {
                untrack(device_data.as_ptr());
                device_data.as_ptr()
            }
            Data::Host => host.as_ptr().cast_mut().wrapping_add(host.len() / 2),
            Data::Null => std::ptr::null_mut(),
        };
        let (aux_pointer, n) = (device_aux.as_ptr(), self.n.unwrap_or(self.words as u32));
        let params: [*const c_void; 3] =
            [(&raw const pointer).cast(), (&raw const aux_pointer).cast(), (&raw const n).cast()];
        let mut options = Options { seed, check: true, ..Options::default() };
        if hangs {
            options.spin_limit = Duration::from_millis(20);
        }
        // SAFETY: kernels of this package take these three parameters; their bad accesses become faults
        // before they happen.
        let result = unsafe { simt::launch(self.entry(), &self.config, params.as_ptr(), &options) }.map(drop);
        drop((device_data, device_aux));
        Outcome { data, aux: aux.0.to_vec(), result }
    }
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

/// The kernel's file and its marked lines, up to the next kernel. If the kernel only calls a function of its
/// file, the marks are that function's.
fn marks(entry: &KernelEntry) -> (PathBuf, Vec<u32>) {
    let name = Path::new(entry.file).file_name().expect("a file name");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name);
    let source = std::fs::read_to_string(&file).expect("the kernel's source");
    let of_kernel = marked_lines(&source, |line| line.contains(&format!("fn {}(", entry.name)));
    let called = source.lines().find_map(|line| line.strip_prefix("unsafe fn ")?.split('(').next());
    match (of_kernel.is_empty(), called) {
        (true, Some(called)) => (file, marked_lines(&source, |line| line.contains(&format!("fn {called}(")))),
        _ => (file, of_kernel),
    }
}

fn marked_lines(source: &str, is_start: impl Fn(&str) -> bool) -> Vec<u32> {
    let numbered = (1u32..).zip(source.lines());
    let body = numbered.skip_while(|(_, line)| !is_start(line)).skip(1);
    let body = body.take_while(|(_, line)| *line != "}");
    body.filter(|(_, line)| line.ends_with("// bug")).map(|(number, _)| number).collect()
}
