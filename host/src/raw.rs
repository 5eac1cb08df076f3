//! The only place of this package that calls the CUDA driver API.
//!
//! There is one function for each driver call. It returns the code as a [`DriverError`] with the call's name.
//! `driver` defines the symbols (late-bound to libcuda or to the software driver).
//!
//! The functions are declared here rather than taken from `cust_raw`, because there they return a Rust `enum`
//! with the codes of CUDA 11.4: a newer driver's code would be undefined behaviour. Here a code is an
//! integer.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use cuda_std::tma::TensorMap;
use driver::tensor_map::{Description, Pixels};

use crate::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUmemoryPool,
    CUmodule, CUstream,
};

use crate::error::{DriverError, Suspects};

/// The result of a driver call.
pub(crate) type RawResult<T = ()> = Result<T, Box<DriverError>>;

/// `CUDA_SUCCESS`.
const SUCCESS: c_int = 0;
/// `CUDA_ERROR_NOT_READY`: the answer "not yet" of a query.
const NOT_READY: c_int = 600;

fn check(function: &'static str, code: c_int) -> RawResult {
    if code == SUCCESS { Ok(()) } else { Err(DriverError::new(function, code)) }
}

/// Declares driver functions and a checked wrapper of each.
macro_rules! driver_calls {
    ($($(#[$doc:meta])* fn $wrapper:ident = $symbol:ident($($arg:ident: $type:ty),* $(,)?);)*) => {
        unsafe extern "C" {
            $(fn $symbol($($arg: $type),*) -> c_int;)*
        }
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// The contract of the driver function of that name: handles alive, pointers valid for what it
            /// reads and writes.
            pub(crate) unsafe fn $wrapper($($arg: $type),*) -> RawResult {
                // SAFETY: the caller keeps the driver function's contract.
                check(stringify!($symbol), unsafe { $symbol($($arg),*) })
            }
        )*
    };
}

driver_calls! {
    /// Starts the driver.
    fn init = cuInit(flags: c_uint);
    /// Devices that the driver shows.
    fn device_get_count = cuDeviceGetCount(count: *mut c_int);
    /// The device of a number.
    fn device_get = cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    /// A device's name, in so many bytes at most.
    fn device_get_name = cuDeviceGetName(name: *mut c_char, bytes: c_int, device: CUdevice);
    /// Bytes of a device's memory.
    fn device_total_mem = cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    /// One attribute of a device.
    fn device_get_attribute = cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: CUdevice);
    /// The device's default pool for stream-ordered allocations.
    fn device_get_default_mem_pool = cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice);
    /// Takes a reference to the primary context.
    fn primary_ctx_retain = cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    /// Gives back a reference to the primary context.
    fn primary_ctx_release = cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    /// Makes a context the calling thread's current one.
    fn ctx_set_current = cuCtxSetCurrent(context: CUcontext);
    /// Waits for everything queued on the current context.
    fn ctx_synchronize = cuCtxSynchronize();
    /// A limit of the current context.
    fn ctx_get_limit = cuCtxGetLimit(value: *mut usize, limit: c_int);
    /// Sets a limit of the current context.
    fn ctx_set_limit = cuCtxSetLimit(limit: c_int, value: usize);
    /// Whether a device can reach another's memory.
    fn device_can_access_peer = cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice);
    /// Lets the current context reach another's memory.
    fn ctx_enable_peer_access = cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint);
    /// The range of stream priorities; the greatest is the smaller number.
    fn ctx_priority_range = cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
    /// Free and total bytes of device memory.
    fn mem_get_info = cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    /// Device memory; may wait for the device.
    fn mem_alloc = cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    /// Stream-ordered allocation.
    fn mem_alloc_async = cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream);
    /// Stream-ordered free.
    fn mem_free_async = cuMemFreeAsync(address: CUdeviceptr, stream: CUstream);
    /// Synchronous free.
    fn mem_free = cuMemFree_v2(address: CUdeviceptr);
    /// Sets an attribute of a pool.
    fn mem_pool_set_attribute = cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_int, value: *mut c_void);
    /// Gives unused memory of a pool back to the device.
    fn mem_pool_trim_to = cuMemPoolTrimTo(pool: CUmemoryPool, keep_bytes: usize);
    /// Page-locked host memory.
    fn mem_host_alloc = cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint);
    /// Frees page-locked host memory.
    fn mem_free_host = cuMemFreeHost(address: *mut c_void);
    /// Page-locks host memory of the program's own.
    fn mem_host_register = cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: c_uint);
    /// Ends that.
    fn mem_host_unregister = cuMemHostUnregister(address: *mut c_void);
    /// Where the device sees page-locked memory.
    fn mem_host_get_device_pointer = cuMemHostGetDevicePointer_v2(
        to: *mut CUdeviceptr,
        address: *mut c_void,
        flags: c_uint,
    );
    /// A handle by which other processes open an allocation.
    fn ipc_get_mem_handle = cuIpcGetMemHandle(handle: *mut IpcHandle, address: CUdeviceptr);
    /// Maps an allocation of another process.
    fn ipc_open_mem_handle = cuIpcOpenMemHandle_v2(address: *mut CUdeviceptr, handle: IpcHandle, flags: c_uint);
    /// Ends that.
    fn ipc_close_mem_handle = cuIpcCloseMemHandle(address: CUdeviceptr);
    /// The number that a device alone has.
    fn device_get_uuid = cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: CUdevice);
    /// Host to device, done for the host's part when it returns.
    fn memcpy_htod = cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize);
    /// Device to host, done when it returns.
    fn memcpy_dtoh = cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize);
    /// Host to device, in stream order.
    fn memcpy_htod_async = cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    /// Device to host, in stream order.
    fn memcpy_dtoh_async = cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
    /// Device to device, in stream order.
    fn memcpy_dtod_async = cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    /// From a device of one context to that of another, in stream order.
    fn memcpy_peer_async = cuMemcpyPeerAsync(
        to: CUdeviceptr,
        to_context: CUcontext,
        from: CUdeviceptr,
        from_context: CUcontext,
        bytes: usize,
        stream: CUstream,
    );
    /// Sets bytes, in stream order.
    fn memset_d8_async = cuMemsetD8Async(to: CUdeviceptr, value: u8, bytes: usize, stream: CUstream);
    /// Creates a stream.
    fn stream_create = cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int);
    /// Destroys a stream once its work is done.
    fn stream_destroy = cuStreamDestroy_v2(stream: CUstream);
    /// Waits for a stream.
    fn stream_synchronize = cuStreamSynchronize(stream: CUstream);
    /// Makes a stream wait for an event.
    fn stream_wait_event = cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    /// Makes a stream record its work into a graph instead of doing it.
    fn stream_begin_capture = cuStreamBeginCapture_v2(stream: CUstream, mode: c_int);
    /// Ends a capture, and gives its graph.
    fn stream_end_capture = cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    /// Whether a stream is captured, and the number of its capture.
    fn stream_capture_info = cuStreamGetCaptureInfo(stream: CUstream, status: *mut c_int, id: *mut u64);
    /// Creates an empty graph.
    fn graph_create = cuGraphCreate(graph: *mut CUgraph, flags: c_uint);
    /// Adds a kernel to a graph, behind `count` of its nodes.
    fn graph_add_kernel_node = cuGraphAddKernelNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        parameters: *const KernelNodeParams,
    );
    /// Changes a kernel of an executable for its later launches.
    fn graph_exec_kernel_set_params = cuGraphExecKernelNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        parameters: *const KernelNodeParams,
    );
    /// Makes a graph executable.
    fn graph_instantiate = cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
    /// Runs an executable graph in stream order.
    fn graph_launch = cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
    /// Updates an executable with the parameters of a graph of the same shape.
    fn graph_exec_update = cuGraphExecUpdate(
        exec: CUgraphExec,
        graph: CUgraph,
        error_node: *mut CUgraphNode,
        result: *mut c_int,
    );
    /// Destroys an executable graph; running launches end first.
    fn graph_exec_destroy = cuGraphExecDestroy(exec: CUgraphExec);
    /// Destroys a graph.
    fn graph_destroy = cuGraphDestroy(graph: CUgraph);
    /// Creates an event.
    fn event_create = cuEventCreate(event: *mut CUevent, flags: c_uint);
    /// Destroys an event once it has completed.
    fn event_destroy = cuEventDestroy_v2(event: CUevent);
    /// Records an event.
    fn event_record = cuEventRecord(event: CUevent, stream: CUstream);
    /// Waits for an event.
    fn event_synchronize = cuEventSynchronize(event: CUevent);
    /// Milliseconds between two events.
    fn event_elapsed = cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);
    /// Loads a module.
    fn module_load_data_ex = cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        options: c_uint,
        keys: *mut c_int,
        values: *mut *mut c_void,
    );
    /// Unloads a module.
    fn module_unload = cuModuleUnload(module: CUmodule);
    /// Finds an entry of a module.
    fn module_get_function = cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    /// One attribute of a kernel.
    fn func_get_attribute = cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: CUfunction);
    /// Sets an attribute of a kernel.
    fn func_set_attribute = cuFuncSetAttribute(function: CUfunction, attribute: c_int, value: c_int);
    /// Blocks of a kernel that fit on one multiprocessor.
    fn occupancy = cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int,
        function: CUfunction,
        threads: c_int,
        shared_bytes: usize,
    );
    /// Launches a kernel.
    fn launch_kernel = cuLaunchKernel(
        function: CUfunction,
        grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared_bytes: c_uint,
        stream: CUstream,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    );
    /// Launches a kernel whose blocks are all resident at once.
    fn launch_cooperative_kernel = cuLaunchCooperativeKernel(
        function: CUfunction,
        grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared_bytes: c_uint,
        stream: CUstream,
        parameters: *mut *mut c_void,
    );
}

/// `CUipcMemHandle`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IpcHandle(pub [u8; 64]);

/// `CUDA_KERNEL_NODE_PARAMS`.
#[repr(C)]
pub(crate) struct KernelNodeParams {
    pub function: CUfunction,
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared_bytes: c_uint,
    pub parameters: *mut *mut c_void,
    pub extra: *mut *mut c_void,
}

/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: c_int = 801;

/// `CUlaunchAttribute`: one attribute of a launch.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LaunchAttribute {
    id: c_uint,
    _pad: c_uint,
    value: [c_uint; 16],
}

impl LaunchAttribute {
    /// The number of kinds below: a launch has at most one of each.
    pub(crate) const KINDS: usize = 3;

    fn new(id: c_uint, words: [c_uint; 3]) -> Self {
        let mut value = [0; 16];
        value[..words.len()].copy_from_slice(&words);
        LaunchAttribute { id, _pad: 0, value }
    }

    /// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`: all blocks are resident at once.
    pub(crate) fn cooperative() -> Self {
        Self::new(2, [1, 0, 0])
    }

    /// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`: blocks of a cluster along x, y, z.
    pub(crate) fn cluster(blocks: [c_uint; 3]) -> Self {
        Self::new(4, blocks)
    }

    /// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`: starts before the launch ahead in the stream
    /// has ended.
    pub(crate) fn overlapping() -> Self {
        Self::new(6, [1, 0, 0])
    }
}

/// `CUlaunchConfig`.
#[repr(C)]
pub(crate) struct LaunchConfigEx {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared_bytes: c_uint,
    pub stream: CUstream,
    pub attributes: *const LaunchAttribute,
    pub attribute_count: c_uint,
}

/// Launches a kernel with attributes. The function came with CUDA 11.8, so it is looked up.
///
/// # Safety
/// As for `cuLaunchKernelEx`: handles alive, pointers valid for what it reads.
pub(crate) unsafe fn launch_kernel_ex(
    config: &LaunchConfigEx,
    function: CUfunction,
    parameters: *mut *mut c_void,
) -> RawResult {
    type Launch =
        unsafe extern "C" fn(*const LaunchConfigEx, CUfunction, *mut *mut c_void, *mut *mut c_void) -> c_int;
    static LAUNCH: Late = Late::new("cuLaunchKernelEx");
    // SAFETY: the driver's function of that name has this type.
    let launch = unsafe { std::mem::transmute::<*const c_void, Launch>(LAUNCH.address()?) };
    // SAFETY: the caller keeps the driver function's contract.
    check(LAUNCH.name, unsafe { launch(config, function, parameters, std::ptr::null_mut()) })
}

/// Clusters of such a launch that the device has room for at once. The function came with CUDA 11.8.
///
/// # Safety
/// As for `cuOccupancyMaxActiveClusters`: handles alive, pointers valid for what it reads.
pub(crate) unsafe fn occupancy_clusters(
    clusters: &mut c_int,
    function: CUfunction,
    config: &LaunchConfigEx,
) -> RawResult {
    type Occupancy = unsafe extern "C" fn(*mut c_int, CUfunction, *const LaunchConfigEx) -> c_int;
    static OCCUPANCY: Late = Late::new("cuOccupancyMaxActiveClusters");
    // SAFETY: the driver's function of that name has this type.
    let occupancy = unsafe { std::mem::transmute::<*const c_void, Occupancy>(OCCUPANCY.address()?) };
    // SAFETY: the caller keeps the driver function's contract.
    check(OCCUPANCY.name, unsafe { occupancy(clusters, function, config) })
}

/// Writes a tensor map. The function came with CUDA 12.0.
///
/// # Safety
/// As for `cuTensorMapEncodeTiled`; the description's lists cover its rank.
pub(crate) unsafe fn tensor_map_encode_tiled(map: &mut TensorMap, d: &Description) -> RawResult {
    type Encode = unsafe extern "C" fn(
        *mut TensorMap,
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
    static ENCODE: Late = Late::new("cuTensorMapEncodeTiled");
    // SAFETY: the driver's function of that name has this type.
    let encode = unsafe { std::mem::transmute::<*const c_void, Encode>(ENCODE.address()?) };
    // SAFETY: the caller keeps the driver function's contract.
    let code = unsafe {
        encode(
            map,
            d.data_type as c_uint,
            d.rank,
            d.address as *mut c_void,
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
    check(ENCODE.name, code)
}

/// Writes a map of windows. The function came with CUDA 12.0.
///
/// # Safety
/// As for `cuTensorMapEncodeIm2col`; the description's lists cover its rank.
pub(crate) unsafe fn tensor_map_encode_im2col(
    map: &mut TensorMap,
    d: &Description,
    pixels: &Pixels,
) -> RawResult {
    type Encode = unsafe extern "C" fn(
        *mut TensorMap,
        c_uint,
        c_uint,
        *mut c_void,
        *const u64,
        *const u64,
        *const c_int,
        *const c_int,
        c_uint,
        c_uint,
        *const c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
    ) -> c_int;
    static ENCODE: Late = Late::new("cuTensorMapEncodeIm2col");
    // SAFETY: the driver's function of that name has this type.
    let encode = unsafe { std::mem::transmute::<*const c_void, Encode>(ENCODE.address()?) };
    // SAFETY: the caller keeps the driver function's contract.
    let code = unsafe {
        encode(
            map,
            d.data_type as c_uint,
            d.rank,
            d.address as *mut c_void,
            d.dims.as_ptr(),
            d.strides.as_ptr(),
            pixels.lower.as_ptr(),
            pixels.upper.as_ptr(),
            d.box_dims[0],
            d.box_dims[1],
            d.element_strides.as_ptr(),
            d.interleave as c_uint,
            d.swizzle as c_uint,
            d.l2_promotion as c_uint,
            d.oob_fill as c_uint,
        )
    };
    check(ENCODE.name, code)
}

/// A driver function that is newer than cust's declarations, looked up when first needed.
struct Late {
    name: &'static str,
    address: OnceLock<Option<usize>>,
}

impl Late {
    const fn new(name: &'static str) -> Self {
        Late { name, address: OnceLock::new() }
    }

    /// Its address, or `CUDA_ERROR_NOT_SUPPORTED`.
    fn address(&self) -> RawResult<*const c_void> {
        let find = || driver::proc_address(self.name).map(|address| address as usize);
        match self.address.get_or_init(find) {
            Some(address) => Ok(*address as *const c_void),
            None => Err(DriverError::new(self.name, NOT_SUPPORTED)),
        }
    }
}

unsafe extern "C" {
    fn cuStreamQuery(stream: CUstream) -> c_int;
    fn cuEventQuery(event: CUevent) -> c_int;
    fn cuGetErrorName(code: c_int, text: *mut *const c_char) -> c_int;
    fn cuGetErrorString(code: c_int, text: *mut *const c_char) -> c_int;
}

fn ready(function: &'static str, code: c_int) -> RawResult<bool> {
    if code == NOT_READY { Ok(false) } else { check(function, code).map(|()| true) }
}

/// Whether the stream has done all its work.
///
/// # Safety
/// `stream` is alive.
pub(crate) unsafe fn stream_query(stream: CUstream) -> RawResult<bool> {
    // SAFETY: the caller's promise.
    ready("cuStreamQuery", unsafe { cuStreamQuery(stream) })
}

/// Whether the work before the event's last record is done.
///
/// # Safety
/// `event` is alive.
pub(crate) unsafe fn event_query(event: CUevent) -> RawResult<bool> {
    // SAFETY: the caller's promise.
    ready("cuEventQuery", unsafe { cuEventQuery(event) })
}

impl DriverError {
    /// The error of a call that returned `code`, in the driver's words.
    pub(crate) fn new(function: &'static str, code: i32) -> Box<Self> {
        let (name, text) = error_texts(code);
        let mut error = Box::new(DriverError {
            function,
            code,
            name: name.unwrap_or_else(|| format!("code {code}")),
            text: text.unwrap_or_else(|| "a code that this driver does not explain".to_owned()),
            report: None,
            suspects: Suspects::default(),
        });
        if error.is_sticky() {
            error.report = driver::soft::last_fault();
        }
        error
    }
}

/// CUDA's name and its sentence for a code, where the driver knows it.
fn error_texts(code: i32) -> (Option<String>, Option<String>) {
    // SAFETY: both functions write a pointer to a static string, or null for a code that they do not know.
    unsafe { (text_of(|to| cuGetErrorName(code, to)), text_of(|to| cuGetErrorString(code, to))) }
}

fn text_of(ask: impl FnOnce(*mut *const c_char) -> c_int) -> Option<String> {
    let mut text: *const c_char = std::ptr::null();
    if ask(&mut text) != SUCCESS || text.is_null() {
        return None;
    }
    // SAFETY: the driver answered success and a non-null pointer to a static NUL-terminated string.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// One thread at a time makes, changes and destroys graphs. The driver's graph objects are not thread-safe,
/// and it is not known which state they share inside the driver.
pub(crate) fn one_graph_at_a_time<R>(work: impl FnOnce() -> R) -> R {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    work()
}
