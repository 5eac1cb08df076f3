//! Launches a kernel through the driver.

use std::ffi::c_void;
use std::fs;
use std::path::PathBuf;

use archive::text;
use checker::AUX_WORDS;
use driver::Backend;

use crate::gpu::{self, Buffer, Dims, Failure, Gpu};
use crate::list::Kernel;
use crate::shape::{Data, rows};

/// The kernels' code, and the folder that it is looked for in.
const FILE: &str = "checker.sm_90a.ptx";
const FOLDER: &str = "IRONWARP_PTX_DIR";
/// All that the software driver needs.
const NATIVE: &str = "// ironwarp family=checker arch=sm_90a\n";
/// The device that [`FILE`] is for.
const CAPABILITY: [i32; 2] = [9, 0];

/// How a launch ended.
pub enum Ended {
    Right,
    /// A correct kernel with wrong results.
    Wrong,
    /// It was not loaded or not launched.
    Refused(Failure),
    Failed(Failure),
}

/// A device, and code for it.
pub struct Session {
    gpu: Gpu,
    code: String,
}

impl Session {
    /// Fails with a sentence that says what is missing.
    pub fn open() -> Result<Self, String> {
        let backend = driver::backend().map_err(|error| error.to_string())?;
        let gpu = Gpu::open().map_err(|failure| failure.to_string())?;
        if backend == Backend::Software {
            return Ok(Self { gpu, code: NATIVE.to_owned() });
        }
        if gpu.capability != CAPABILITY {
            return Err(format!("the device has capability {:?}; these kernels are for 9.0", gpu.capability));
        }
        let folder = std::env::var_os(FOLDER).filter(|folder| !folder.is_empty()).map(PathBuf::from);
        let folder = folder.ok_or(format!("{FOLDER} does not name the folder of {FILE}; a bundle has it"))?;
        let path = folder.join(FILE);
        let code = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { gpu, code })
    }

    pub fn is_alive(&self) -> bool {
        self.gpu.is_alive()
    }

    /// Compiles a kernel. The driver compiles all that it is given, so it is given one kernel.
    pub fn load(&self, kernel: &Kernel) -> Result<gpu::Kernel, Ended> {
        let code = if self.code == NATIVE {
            self.code.clone()
        } else {
            text::split(&self.code).with_entry(kernel.name)
        };
        self.gpu.load(&code, kernel.name).map_err(Ended::Refused)
    }

    /// Launches with `data` counting up and `aux` zero, and waits.
    pub fn run(&self, kernel: &Kernel, loaded: &gpu::Kernel) -> Ended {
        match self.launch(kernel, loaded) {
            Ok((data, aux)) if kernel.is_right.is_some_and(|is_right| !is_right(&data, &aux)) => Ended::Wrong,
            Ok(_) => Ended::Right,
            Err(ended) => ended,
        }
    }

    fn launch(&self, kernel: &Kernel, loaded: &gpu::Kernel) -> Result<(Vec<u32>, Vec<u32>), Ended> {
        let shape = &kernel.shape;
        let memory = Memory::new(&self.gpu, kernel).map_err(Ended::Refused)?;
        let host: Vec<u32> = vec![0; if shape.data == Data::Host { 1 << 20 } else { 0 }];
        let mut data = match shape.data {
            Data::Device | Data::BeforeAux | Data::Freed => memory.data,
            Data::Host => host[host.len() / 2..].as_ptr().addr() as u64,
            Data::Null => 0,
        };
        let (mut aux, mut n) = (memory.aux(), shape.argument_n());
        let mut parameters: [*mut c_void; 3] =
            [(&raw mut data).cast(), (&raw mut aux).cast(), (&raw mut n).cast()];
        let dims = Dims {
            grid: shape.grid,
            block: shape.block,
            shared_bytes: shape.shared,
            cluster: shape.cluster,
            cooperative: shape.cooperative,
        };
        // SAFETY: kernels of this package take these three parameters. What their bugs break is this
        // process's context, which is checked after each error.
        unsafe { loaded.launch(&dims, &mut parameters) }.map_err(Ended::Refused)?;
        self.gpu.synchronize().map_err(Ended::Failed)?;
        memory.read().map_err(Ended::Failed)
    }
}

/// `data` and `aux` on the device.
struct Memory {
    /// The address of `data`, which may be freed.
    data: u64,
    words: usize,
    /// `data`, unless it is freed, with `aux` behind it if they are one allocation.
    first: Option<Buffer>,
    /// `aux`, unless it lies in the first.
    second: Option<Buffer>,
}

impl Memory {
    fn new(gpu: &Gpu, kernel: &Kernel) -> Result<Self, Failure> {
        let shape = &kernel.shape;
        let mut words: Vec<u32> = (0..shape.words as u32).collect();
        let is_one = shape.data == Data::BeforeAux;
        if is_one {
            words.resize(shape.words + AUX_WORDS, 0);
        }
        let first = gpu.buffer(&words)?;
        let data = first.address;
        let second = if is_one { None } else { Some(gpu.buffer(&[0; AUX_WORDS])?) };
        if let Some(mapped) = shape.mapped {
            let map = gpu::tensor_map(&rows(data, mapped))?;
            match &second {
                Some(aux) => aux.write(0, &map)?,
                None => first.write(shape.words, &map)?,
            }
        }
        let first = (shape.data != Data::Freed).then_some(first);
        Ok(Self { data, words: shape.words, first, second })
    }

    fn aux(&self) -> u64 {
        self.second.as_ref().map_or(self.data + 4 * self.words as u64, |aux| aux.address)
    }

    /// The words of `data` and of `aux`. Those of freed memory are none.
    fn read(&self) -> Result<(Vec<u32>, Vec<u32>), Failure> {
        let mut data = self.first.as_ref().map_or(Ok(Vec::new()), Buffer::read)?;
        let behind = data.split_off(self.words.min(data.len()));
        let aux = self.second.as_ref().map_or(Ok(behind), Buffer::read)?;
        Ok((data, aux))
    }
}
