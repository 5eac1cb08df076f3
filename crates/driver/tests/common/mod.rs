//! Shared by the conformance tests: a context, checked calls, and kernels in both forms.
//!
//! The tests do not depend on the driver. Kernels are PTX text for a GPU and native functions of the same
//! names for the software driver. Tests of one program run one after the other, because captures and faults
//! affect the whole process.
#![allow(dead_code, unused_macros, unused_imports, reason = "no test program uses all of it")]

use cust_raw::*;
use ironwarp_driver as _; // defines the symbols that cust_raw declares
use simt::registry::Registration;
use simt::{KernelEntry, LaunchBounds, ParamLayout};
use std::{
    ffi::{CStr, CString, c_void},
    fmt,
    ptr::{null, null_mut},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// A call with an unexpected result.
#[derive(Debug)]
pub struct Failure(String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl From<&str> for Failure {
    fn from(text: &str) -> Failure {
        Failure(text.to_owned())
    }
}

pub type Check = Result<(), Failure>;

/// The code of a result.
pub fn code(result: cudaError_enum) -> u32 {
    result as u32
}

/// Ok if a call returned one of `wanted`.
pub fn expect(what: &str, got: cudaError_enum, wanted: &[cudaError_enum]) -> Check {
    if wanted.contains(&got) {
        Ok(())
    } else {
        Err(Failure(format!("{what}: got {got:?}, wanted one of {wanted:?}")))
    }
}

/// Ok if two values are equal.
pub fn equal<T: PartialEq + fmt::Debug>(what: &str, got: T, wanted: T) -> Check {
    if got == wanted { Ok(()) } else { Err(Failure(format!("{what}: got {got:?}, wanted {wanted:?}"))) }
}

/// Ok if a condition holds.
pub fn holds(what: &str, condition: bool) -> Check {
    if condition { Ok(()) } else { Err(Failure(what.to_owned())) }
}

/// Calls a driver function that must succeed.
macro_rules! ok {
    ($call:expr) => {{
        // SAFETY: the test meets the function's requirements.
        let code = unsafe { $call };
        $crate::common::expect(stringify!($call), code, &[cust_raw::cudaError_enum::CUDA_SUCCESS])?
    }};
}

/// Calls a driver function that must fail, with one of the codes.
macro_rules! fails {
    ($call:expr, $($code:ident)|+) => {{
        // SAFETY: the test meets the function's requirements, or passes values that the function must refuse
        // unread.
        let code = unsafe { $call };
        $crate::common::expect(stringify!($call), code, &[$(cust_raw::cudaError_enum::$code),+])?
    }};
}

pub(crate) use {fails, ok};

/// Lets one test run at a time.
pub fn turn() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The current context on device 0. The primary context stays retained for the life of the program.
pub struct Gpu {
    _turn: MutexGuard<'static, ()>,
    pub device: CUdevice,
    pub context: CUcontext,
}

impl Gpu {
    pub fn new() -> Result<Gpu, Failure> {
        let turn = turn();
        let (mut device, mut context) = (0, null_mut());
        ok!(cuInit(0));
        ok!(cuDeviceGet(&mut device, 0));
        ok!(cuDevicePrimaryCtxRetain(&mut context, device));
        ok!(cuCtxSetCurrent(context));
        Ok(Gpu { _turn: turn, device, context })
    }

    pub fn buffer(&self, words: usize) -> Result<Buffer, Failure> {
        let mut address = 0;
        ok!(cuMemAlloc_v2(&mut address, 4 * words));
        Ok(Buffer { address, words })
    }

    pub fn stream(&self) -> Result<Stream, Failure> {
        self.stream_with(CUstream_flags_enum::CU_STREAM_NON_BLOCKING)
    }

    pub fn stream_with(&self, flags: CUstream_flags_enum) -> Result<Stream, Failure> {
        let mut stream = null_mut();
        ok!(cuStreamCreate(&mut stream, flags as u32));
        Ok(Stream(stream))
    }

    pub fn event(&self) -> Result<Event, Failure> {
        let mut event = null_mut();
        ok!(cuEventCreate(&mut event, 0));
        Ok(Event(event))
    }

    pub fn pinned(&self, words: usize) -> Result<Pinned, Failure> {
        let mut address: *mut c_void = null_mut();
        ok!(cuMemAllocHost_v2(&mut address, 4 * words));
        Ok(Pinned { address: address.cast(), words })
    }

    pub fn module(&self) -> Result<Module, Failure> {
        let image = CString::new(include_str!("kernels.ptx")).map_err(|e| Failure(e.to_string()))?;
        let mut module = null_mut();
        ok!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
        Ok(Module(module))
    }
}

/// Device memory of 32-bit words.
pub struct Buffer {
    pub address: CUdeviceptr,
    pub words: usize,
}

impl Buffer {
    pub fn write(&self, values: &[u32]) -> Check {
        ok!(cuMemcpyHtoD_v2(self.address, values.as_ptr().cast(), size_of_val(values)));
        // From pageable memory the call comes back before the bytes are there, and streams that do not block
        // do not wait for them.
        ok!(cuCtxSynchronize());
        Ok(())
    }

    pub fn read(&self) -> Result<Vec<u32>, Failure> {
        let mut values = vec![0; self.words];
        ok!(cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), self.address, 4 * self.words));
        Ok(values)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `Gpu::buffer`, and freed once.
        unsafe { cuMemFree_v2(self.address) };
    }
}

/// Page-locked host memory of 32-bit words.
pub struct Pinned {
    pub address: *mut u32,
    pub words: usize,
}

impl Pinned {
    pub fn set(&self, value: impl Fn(usize) -> u32) {
        for i in 0..self.words {
            // SAFETY: within the allocation; volatile, since queued copies use it too.
            unsafe { self.address.add(i).write_volatile(value(i)) };
        }
    }

    pub fn get(&self) -> Vec<u32> {
        // SAFETY: within the allocation; volatile, since queued copies use it too.
        (0..self.words).map(|i| unsafe { self.address.add(i).read_volatile() }).collect()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated by `Gpu::pinned`, and freed once.
        unsafe { cuMemFreeHost(self.address.cast()) };
    }
}

pub struct Stream(pub CUstream);

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: created by `Gpu::stream`, and destroyed once.
        unsafe { cuStreamDestroy_v2(self.0) };
    }
}

pub struct Event(pub CUevent);

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created by `Gpu::event`, and destroyed once.
        unsafe { cuEventDestroy_v2(self.0) };
    }
}

pub struct Module(pub CUmodule);

impl Module {
    pub fn function(&self, name: &CStr) -> Result<CUfunction, Failure> {
        let mut function = null_mut();
        ok!(cuModuleGetFunction(&mut function, self.0, name.as_ptr()));
        Ok(function)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: loaded by `Gpu::module`, and unloaded once.
        unsafe { cuModuleUnload(self.0) };
    }
}

/// The parameters of `count_up` and `double_and_add`: memory, words, a number.
pub struct Params {
    address: CUdeviceptr,
    words: u32,
    number: u32,
}

impl Params {
    pub fn new(buffer: &Buffer, number: u32) -> Params {
        Params { address: buffer.address, words: buffer.words as u32, number }
    }

    pub fn pointers(&mut self) -> [*mut c_void; 3] {
        [(&raw mut self.address).cast(), (&raw mut self.words).cast(), (&raw mut self.number).cast()]
    }
}

/// Launches one of the two kernels over a whole buffer.
pub fn launch(function: CUfunction, stream: CUstream, buffer: &Buffer, number: u32) -> Check {
    const THREADS: u32 = 64;
    let mut params = Params::new(buffer, number);
    let mut pointers = params.pointers();
    let blocks = (buffer.words as u32).div_ceil(THREADS);
    ok!(cuLaunchKernel(function, blocks, 1, 1, THREADS, 1, 1, 0, stream, pointers.as_mut_ptr(), null_mut()));
    // The driver has copied the parameters, so later changes must have no effect.
    (params.address, params.words, params.number) = (0, u32::MAX, 0);
    std::hint::black_box(&params);
    Ok(())
}

/// `base`, `base + 1`, ..
pub fn counting(words: usize, base: u32) -> Vec<u32> {
    (base..).take(words).collect()
}

pub const NULL_STREAM: CUstream = null_mut();

/// A pointer that no driver function may write through.
pub fn null_out<T>() -> *mut T {
    null::<T>().cast_mut()
}

/// Parameter `i` of a kernel.
///
/// # Safety
/// `params` has more than `i` entries, and entry `i` points to a `T`.
unsafe fn value<T: Copy>(params: *const *const c_void, i: usize) -> T {
    // SAFETY: the executor passes as many parameters as the entry declares, each of its type.
    unsafe { (*params.add(i)).cast::<T>().read() }
}

fn index() -> u32 {
    simt::thread::block_idx()[0] * simt::thread::block_dim()[0] + simt::thread::thread_idx()[0]
}

/// `out[i] = base + i`, for `i < n`.
///
/// # Safety
/// `params` points to pointers to a `*mut u32`, a `u32` and a `u32`.
unsafe fn count_up(params: *const *const c_void) {
    // SAFETY: these are the kernel's parameter types; the executor checks the store.
    unsafe {
        let (out, n, base) = (value::<*mut u32>(params, 0), value::<u32>(params, 1), value::<u32>(params, 2));
        let i = index();
        if i < n {
            simt::memory::store(out.wrapping_add(i as usize), base + i);
        }
    }
}

/// `data[i] = 2 * data[i] + number`, for `i < n`.
///
/// # Safety
/// `params` points to pointers to a `*mut u32`, a `u32` and a `u32`.
unsafe fn double_and_add(params: *const *const c_void) {
    // SAFETY: these are the kernel's parameter types; the executor checks load and store.
    unsafe {
        let (data, n, number) =
            (value::<*mut u32>(params, 0), value::<u32>(params, 1), value::<u32>(params, 2));
        let i = index();
        if i < n {
            let at = data.wrapping_add(i as usize);
            let doubled = simt::memory::load(at).wrapping_mul(2);
            simt::memory::store(at, doubled.wrapping_add(number));
        }
    }
}

/// Does nothing; its entry limits the threads of a block.
///
/// # Safety
/// None: no parameter is read.
unsafe fn small_blocks(_params: *const *const c_void) {}

const PARAMS: &[ParamLayout] =
    &[ParamLayout::of::<*mut u32>(), ParamLayout::of::<u32>(), ParamLayout::of::<u32>()];

const fn entry(name: &'static str, invoke: unsafe fn(*const *const c_void)) -> KernelEntry {
    let bounds = LaunchBounds { max_threads: 0, min_blocks: 0 };
    KernelEntry {
        name,
        family: "driver_tests",
        file: file!(),
        line: line!(),
        params: PARAMS,
        bounds,
        checked: true,
        invoke,
    }
}

simt::inventory::submit! { Registration::Linked(&const { entry("count_up", count_up) }) }
simt::inventory::submit! { Registration::Linked(&const { entry("double_and_add", double_and_add) }) }
simt::inventory::submit! {
    Registration::Linked(&const {
        let bounds = LaunchBounds { max_threads: 64, min_blocks: 0 };
        KernelEntry { params: &[], bounds, ..entry("small_blocks", small_blocks) }
    })
}
