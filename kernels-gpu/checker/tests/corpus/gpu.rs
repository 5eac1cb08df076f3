//! The driver calls of this program. [`driver`] defines the symbols.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::ptr::{null, null_mut};

use driver::tensor_map::Description;

type Handle = *mut c_void;

unsafe extern "C" {
    fn cuInit(flags: c_uint) -> c_int;
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int;
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> c_int;
    fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) -> c_int;
    fn cuCtxSetCurrent(context: Handle) -> c_int;
    fn cuCtxSynchronize() -> c_int;
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int;
    fn cuMemFree_v2(address: u64) -> c_int;
    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> c_int;
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> c_int;
    fn cuModuleLoadDataEx(
        module: *mut Handle,
        image: *const c_void,
        options: c_uint,
        keys: *mut c_int,
        values: *mut *mut c_void,
    ) -> c_int;
    fn cuModuleUnload(module: Handle) -> c_int;
    fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) -> c_int;
}

/// A driver call that failed.
#[derive(Debug)]
pub struct Failure {
    call: &'static str,
    code: u32,
    /// The compiler's messages.
    log: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = driver::code::name(self.code).unwrap_or("a code unknown to this program");
        write!(f, "{} ({name}) of {}", self.code, self.call)?;
        if self.log.is_empty() { Ok(()) } else { write!(f, ": {}", self.log) }
    }
}

fn check(call: &'static str, code: c_int) -> Result<(), Failure> {
    match code {
        0 => Ok(()),
        code => Err(Failure { call, code: code.cast_unsigned(), log: String::new() }),
    }
}

/// A driver function that is newer than the symbols.
fn late(call: &'static str) -> Result<*const c_void, Failure> {
    const NOT_SUPPORTED: u32 = 801;
    driver::proc_address(call).ok_or(Failure { call, code: NOT_SUPPORTED, log: String::new() })
}

/// The current context on the first device.
pub struct Gpu {
    /// Major and minor.
    pub capability: [i32; 2],
}

impl Gpu {
    pub fn open() -> Result<Self, Failure> {
        const CAPABILITY: [c_int; 2] = [75, 76];
        let (mut device, mut context, mut capability) = (0, null_mut(), [0; 2]);
        // SAFETY: pointers to local variables, and a context that is retained for good.
        unsafe {
            check("cuInit", cuInit(0))?;
            check("cuDeviceGet", cuDeviceGet(&raw mut device, 0))?;
            for (value, attribute) in capability.iter_mut().zip(CAPABILITY) {
                check("cuDeviceGetAttribute", cuDeviceGetAttribute(value, attribute, device))?;
            }
            check("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&raw mut context, device))?;
            check("cuCtxSetCurrent", cuCtxSetCurrent(context))?;
        }
        Ok(Self { capability })
    }

    /// Memory that holds these words.
    pub fn buffer(&self, words: &[u32]) -> Result<Buffer, Failure> {
        let mut address = 0;
        // SAFETY: a pointer to a local variable.
        check("cuMemAlloc", unsafe { cuMemAlloc_v2(&raw mut address, size_of_val(words)) })?;
        let buffer = Buffer { address, words: words.len() };
        buffer.write(0, words)?;
        Ok(buffer)
    }

    /// Compiles a kernel, of which the text is PTX, or the line that the software driver reads.
    pub fn load(&self, text: &str, name: &str) -> Result<Kernel, Failure> {
        const ERROR_LOG: c_int = 5;
        const ERROR_LOG_BYTES: c_int = 6;
        const LINE_INFO: c_int = 12;
        let (Ok(text), Ok(name)) = (CString::new(text), CString::new(name)) else {
            return Err(Failure { call: "CString::new", code: 1, log: "a NUL in the PTX".to_owned() });
        };
        let mut log = vec![0u8; 4096];
        let mut keys = [ERROR_LOG, ERROR_LOG_BYTES, LINE_INFO];
        // The driver reads numbers in the place of pointers.
        let number = std::ptr::without_provenance_mut::<c_void>;
        let mut values = [log.as_mut_ptr().cast(), number(log.len()), number(1)];
        let (mut module, mut function) = (null_mut(), null_mut());
        // SAFETY: the text ends in a NUL, and the options name a buffer with its size.
        let code = unsafe {
            let (keys, values) = (keys.as_mut_ptr(), values.as_mut_ptr());
            cuModuleLoadDataEx(&raw mut module, text.as_ptr().cast(), 3, keys, values)
        };
        check("cuModuleLoadDataEx", code).map_err(|failure| {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
            let log = String::from_utf8_lossy(&log[..end]).replace('\n', " ");
            Failure { log, ..failure }
        })?;
        let kernel = Module(module);
        // SAFETY: the module is loaded, and the name ends in a NUL.
        let code = unsafe { cuModuleGetFunction(&raw mut function, module, name.as_ptr()) };
        check("cuModuleGetFunction", code)?;
        Ok(Kernel { function, _module: kernel })
    }

    pub fn synchronize(&self) -> Result<(), Failure> {
        // SAFETY: the context is current.
        check("cuCtxSynchronize", unsafe { cuCtxSynchronize() })
    }

    /// Whether the context still works after a kernel's error.
    pub fn is_alive(&self) -> bool {
        self.buffer(&[1]).and_then(|buffer| buffer.read()).is_ok()
    }
}

/// Words of device memory.
pub struct Buffer {
    pub address: u64,
    words: usize,
}

impl Buffer {
    /// Writes words from the word `at` on.
    pub fn write(&self, at: usize, words: &[u32]) -> Result<(), Failure> {
        assert!(at + words.len() <= self.words, "a write past the end of a buffer");
        let to = self.address + 4 * at as u64;
        // SAFETY: checked above; the words are borrowed until the call comes back.
        let code = unsafe { cuMemcpyHtoD_v2(to, words.as_ptr().cast(), size_of_val(words)) };
        check("cuMemcpyHtoD", code)
    }

    pub fn read(&self) -> Result<Vec<u32>, Failure> {
        let mut words = vec![0; self.words];
        // SAFETY: both sides have that many words.
        let code = unsafe { cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), self.address, 4 * self.words) };
        check("cuMemcpyDtoH", code)?;
        Ok(words)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `Gpu::buffer`, and freed once. A context that a kernel broke refuses.
        unsafe { cuMemFree_v2(self.address) };
    }
}

struct Module(Handle);

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: loaded by `Gpu::load`, and unloaded once. A context that a kernel broke refuses.
        unsafe { cuModuleUnload(self.0) };
    }
}

/// A kernel, ready to be launched.
pub struct Kernel {
    function: Handle,
    _module: Module,
}

/// `CUlaunchAttribute`.
#[repr(C)]
struct Attribute {
    id: c_uint,
    _pad: c_uint,
    value: [c_uint; 16],
}

/// `CUlaunchConfig`.
#[repr(C)]
struct Config {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: Handle,
    attributes: *const Attribute,
    attribute_count: c_uint,
}

/// Blocks, threads and memory of a launch.
pub struct Dims {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    /// Blocks of a cluster.
    pub cluster: u32,
    pub cooperative: bool,
}

impl Dims {
    fn attributes(&self) -> Vec<Attribute> {
        const COOPERATIVE: c_uint = 2;
        const CLUSTER_DIMENSION: c_uint = 4;
        let attribute = |id, words: [c_uint; 3]| {
            let mut value = [0; 16];
            value[..3].copy_from_slice(&words);
            Attribute { id, _pad: 0, value }
        };
        let cooperative = self.cooperative.then(|| attribute(COOPERATIVE, [1, 0, 0]));
        let cluster = (self.cluster > 1).then(|| attribute(CLUSTER_DIMENSION, [self.cluster, 1, 1]));
        cooperative.into_iter().chain(cluster).collect()
    }
}

impl Kernel {
    /// Queues a launch.
    ///
    /// # Safety
    /// The parameters are the kernel's. They may be wrong in the ways that it tests.
    pub unsafe fn launch(&self, dims: &Dims, parameters: &mut [*mut c_void]) -> Result<(), Failure> {
        const NAME: &str = "cuLaunchKernelEx";
        type Launch =
            unsafe extern "C" fn(*const Config, Handle, *mut *mut c_void, *mut *mut c_void) -> c_int;
        // SAFETY: the driver's function of that name has this type.
        let launch = unsafe { std::mem::transmute::<*const c_void, Launch>(late(NAME)?) };
        let attributes = dims.attributes();
        let config = Config {
            grid: dims.grid,
            block: dims.block,
            shared_bytes: dims.shared_bytes,
            stream: null_mut(),
            attributes: attributes.as_ptr(),
            attribute_count: attributes.len() as c_uint,
        };
        // SAFETY: configuration and parameters outlive the call, which copies them. The caller vouches for
        // the parameters.
        check(NAME, unsafe { launch(&raw const config, self.function, parameters.as_mut_ptr(), null_mut()) })
    }
}

/// A tensor map, as words of global memory.
pub fn tensor_map(d: &Description) -> Result<[u32; 32], Failure> {
    const NAME: &str = "cuTensorMapEncodeTiled";
    type Encode = unsafe extern "C" fn(
        *mut Map,
        c_uint,
        c_uint,
        *mut c_void,
        *const u64,
        *const u64,
        *const c_uint,
        *const c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
    ) -> c_int;
    /// `CUtensorMap`.
    #[repr(C, align(64))]
    struct Map([u32; 32]);

    // SAFETY: the driver's function of that name has this type.
    let encode = unsafe { std::mem::transmute::<*const c_void, Encode>(late(NAME)?) };
    let mut map = Map([0; 32]);
    // SAFETY: the description's lists cover its rank; the driver reads no tensor.
    let code = unsafe {
        encode(
            &raw mut map,
            d.data_type as c_uint,
            d.rank,
            null::<c_void>().with_addr(d.address as usize).cast_mut(),
            d.dims.as_ptr(),
            d.strides.as_ptr(),
            d.box_dims.as_ptr(),
            d.element_strides.as_ptr(),
            d.interleave as c_uint,
            d.swizzle as c_uint,
            d.l2_promotion as c_uint,
            d.oob_fill as c_uint,
        )
    };
    check(NAME, code)?;
    Ok(map.0)
}
