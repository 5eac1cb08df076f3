//! Devices: what they are and what they can do.

mod captures;
mod launches;
mod queue;

use std::any::Any;
use std::ffi::{CStr, c_int};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::sys::{CUcontext, CUdevice, CUmemoryPool};

use crate::environment;
use crate::error::{DriverError, Error, Result};
use crate::extensions::Extensions;
use crate::raw::{self, RawResult};

pub use crate::arch::Arch;
pub(crate) use captures::Captures;
pub(crate) use launches::{LaunchLog, Recent};
pub(crate) use queue::{IdleQueues, NO_TIMING, Queue};

/// The properties and limits of a device. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceProperties {
    /// Streaming multiprocessors.
    pub sm_count: u32,
    /// Threads of a block, at most.
    pub max_threads_per_block: u32,
    /// Threads resident on one multiprocessor, at most.
    pub max_threads_per_sm: u32,
    /// Block size along x, y, z, at most.
    pub max_block: [u32; 3],
    /// Grid size along x, y, z, at most.
    pub max_grid: [u32; 3],
    /// Threads of a warp.
    pub warp_size: u32,
    /// Shared memory of a block without opting in.
    pub shared_per_block: u32,
    /// Shared memory of a block, at most (a launch opts in by itself).
    pub shared_per_block_optin: u32,
    /// Shared memory of a multiprocessor.
    pub shared_per_sm: u32,
    /// 32-bit registers of a block, at most.
    pub registers_per_block: u32,
    /// Second-level cache.
    pub l2_bytes: u32,
    /// Clock of the multiprocessors, kHz.
    pub clock_khz: u32,
    /// Clock of the memory, kHz.
    pub memory_clock_khz: u32,
    /// Width of the memory bus, bits.
    pub memory_bus_bits: u32,
    /// Memory of the device.
    pub total_memory: u64,
    /// Whether it can launch cooperative grids.
    pub cooperative_launch: bool,
    /// Whether it can launch clusters of blocks, and launches that overlap the one before: from compute
    /// capability 9.0 on.
    pub clusters: bool,
}

/// Free and total device memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Free memory. Memory that this process's pool keeps counts as used.
    pub free: usize,
    /// All of it.
    pub total: usize,
}

/// How a device's buffers get their memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AllocatorOptions {
    /// Each buffer is a driver allocation of its own.
    pub(crate) passthrough: bool,
    /// Red zones around buffers, and NaN bytes in them.
    pub(crate) guarded: bool,
}

impl AllocatorOptions {
    /// `IRONWARP_ALLOCATOR` and `IRONWARP_ALLOCATOR_DEBUG`.
    fn from_env() -> Result<Self> {
        let modes = [("caching", false), ("passthrough", true)];
        let passthrough = environment::choice("IRONWARP_ALLOCATOR", "caching, passthrough", &modes)?;
        let guarded = environment::switch("IRONWARP_ALLOCATOR_DEBUG")?;
        Ok(AllocatorOptions { passthrough: passthrough.unwrap_or(false), guarded })
    }
}

/// A device, with its primary context. Cheap to clone; all handles of one device share its modules.
#[derive(Clone)]
pub struct Device {
    inner: Arc<DeviceInner>,
}

struct DeviceInner {
    ordinal: u32,
    name: String,
    arch: Arch,
    software: bool,
    /// With `IRONWARP_LAUNCH_BLOCKING`: one launch at a time.
    blocking_launches: Option<Mutex<()>>,
    properties: DeviceProperties,
    pool: CUmemoryPool,
    /// The error that killed the context, if one did.
    dead: OnceLock<Arc<DriverError>>,
    launches: LaunchLog,
    idle_queues: IdleQueues,
    allocator_options: AllocatorOptions,
    captures: Captures,
    /// Values that other layers keep with the device. They are dropped while the context lives and is
    /// current.
    extensions: Extensions,
    // Dropped last.
    context: PrimaryContext,
}

// SAFETY: the raw handles in there (context, pool) may be used from any thread; CUDA's driver API is
// thread-safe.
unsafe impl Send for DeviceInner {}
// SAFETY: as above.
unsafe impl Sync for DeviceInner {}

/// One reference to a device's primary context.
struct PrimaryContext {
    handle: CUcontext,
    device: CUdevice,
}

impl PrimaryContext {
    fn retain(device: CUdevice) -> RawResult<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: `device` came from cuDeviceGet, and `handle` may be written.
        unsafe { raw::primary_ctx_retain(&mut handle, device)? };
        Ok(PrimaryContext { handle, device })
    }
}

impl Drop for PrimaryContext {
    fn drop(&mut self) {
        // A drop cannot return an error; the end of the process releases the context too.
        // SAFETY: gives back the one reference that `retain` took.
        let _ = unsafe { raw::primary_ctx_release(self.device) };
    }
}

/// Devices that are open now, so that opening one twice gives the same modules.
static OPEN: Mutex<Vec<Weak<DeviceInner>>> = Mutex::new(Vec::new());

/// Starts the driver; cheap after the first time.
fn start_driver() -> Result<driver::Backend> {
    let backend = driver::backend()?;
    // SAFETY: cuInit takes no pointers.
    unsafe { raw::init(0)? };
    Ok(backend)
}

impl Device {
    /// Devices that the driver shows.
    ///
    /// # Errors
    /// [`Error::Init`] when no driver can be started.
    pub fn count() -> Result<u32> {
        start_driver()?;
        let mut count: c_int = 0;
        // SAFETY: a place to write to.
        unsafe { raw::device_get_count(&mut count)? };
        Ok(u32::try_from(count).unwrap_or(0))
    }

    /// Opens device `ordinal` and its primary context.
    ///
    /// # Errors
    /// [`Error::Init`] when no driver can be started, [`Error::NoSuchDevice`], [`Error::Environment`] for a
    /// variable of the environment that means nothing, or the driver's error.
    pub fn open(ordinal: u32) -> Result<Device> {
        let backend = start_driver()?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|device| device.strong_count() > 0);
        if let Some(inner) = open.iter().filter_map(Weak::upgrade).find(|inner| inner.ordinal == ordinal) {
            return Ok(Device { inner });
        }
        let count = Self::count()?;
        if ordinal >= count {
            return Err(Error::NoSuchDevice { ordinal, count });
        }
        let inner = Arc::new(DeviceInner::open(ordinal, matches!(backend, driver::Backend::Software))?);
        open.push(Arc::downgrade(&inner));
        Ok(Device { inner })
    }

    /// Its number.
    pub fn ordinal(&self) -> u32 {
        self.inner.ordinal
    }

    /// Its name, as the driver gives it.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its compute capability.
    pub fn arch(&self) -> Arch {
        self.inner.arch
    }

    /// Whether it is the software driver's device.
    pub fn is_software(&self) -> bool {
        self.inner.software
    }

    /// Its properties and limits.
    pub fn properties(&self) -> &DeviceProperties {
        &self.inner.properties
    }

    /// Free and total memory now.
    ///
    /// # Errors
    /// The driver's error.
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: two places to write to.
        self.call(|| unsafe { raw::mem_get_info(&mut free, &mut total) })?;
        Ok(MemoryInfo { free, total })
    }

    /// Waits for all work queued on the device by this process.
    ///
    /// # Errors
    /// [`Error::NotCapturable`] while any stream of the device is being captured, or the driver's error, also
    /// of work queued earlier.
    pub fn synchronize(&self) -> Result<()> {
        if self.inner.captures.any() {
            return Err(Error::NotCapturable {
                operation: "Device::synchronize",
                reason: "the work of a stream that is being captured is not done before its graph is replayed",
                hint: "wait for single streams that are not captured, or after the capture",
            });
        }
        // SAFETY: takes no arguments; `call` made the context current.
        self.inner.launches.wait_for_all(|| self.call(|| unsafe { raw::ctx_synchronize() }))
    }

    /// Bytes of stack that each thread of a kernel has, for calls that were not inlined and for `println!`.
    ///
    /// # Errors
    /// The driver's error.
    pub fn stack_limit(&self) -> Result<usize> {
        let mut bytes = 0;
        // SAFETY: a place to write to.
        self.call(|| unsafe { raw::ctx_get_limit(&mut bytes, STACK_SIZE) })?;
        Ok(bytes)
    }

    /// Gives each thread of later kernels `bytes` of stack, for every user of the device in this process. The
    /// driver reserves this much memory for every thread that can be resident. It may round up, and may wait
    /// for running kernels.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] above the 512 KiB of local memory that a thread can have, or the driver's
    /// error, out of memory among them.
    pub fn set_stack_limit(&self, bytes: usize) -> Result<()> {
        if bytes > MAX_LOCAL_BYTES {
            return Err(Error::InvalidArgument {
                operation: "Device::set_stack_limit",
                argument: "bytes",
                got: bytes.to_string(),
                wanted: format!("at most {MAX_LOCAL_BYTES}"),
                hint: "kernels that print need a few KiB; larger arrays belong in device memory",
            });
        }
        // SAFETY: takes numbers alone.
        self.call(|| unsafe { raw::ctx_set_limit(STACK_SIZE, bytes) })
    }

    /// Returns the memory that the driver's own pool keeps to the device.
    pub(crate) fn trim_driver_pool(&self) -> Result<()> {
        // SAFETY: the pool is the device's default pool, which lives as long as the context.
        self.call(|| unsafe { raw::mem_pool_trim_to(self.inner.pool, 0) })
    }

    /// The value of type `T` that another layer keeps with the device.
    pub(crate) fn extension<T: Any + Send + Sync>(&self, make: impl Fn() -> T) -> &T {
        self.inner.extensions.get(make)
    }

    pub(crate) fn allocator_options(&self) -> AllocatorOptions {
        self.inner.allocator_options
    }

    /// The error that killed the context, if one did.
    pub(crate) fn alive(&self) -> Result<()> {
        self.inner.dead.get().map_or(Ok(()), |first| Err(Error::Sticky { first: first.clone() }))
    }

    /// Runs driver calls with this device's context current; remembers an error that kills the context.
    pub(crate) fn call<T>(&self, calls: impl FnOnce() -> RawResult<T>) -> Result<T> {
        self.alive()?;
        self.bind().and_then(|()| calls()).map_err(|error| self.classify(error))
    }

    /// As `call`, for clean-up: it makes the calls even when the context is dead or cannot be made current.
    pub(crate) fn clean_up<T>(&self, calls: impl FnOnce() -> RawResult<T>) -> RawResult<T> {
        let _ = self.bind();
        calls()
    }

    fn bind(&self) -> RawResult {
        // SAFETY: the context is retained for as long as `self` lives.
        unsafe { raw::ctx_set_current(self.inner.context.handle) }
    }

    fn classify(&self, mut error: Box<DriverError>) -> Error {
        if !error.is_sticky() {
            return Error::Driver(error);
        }
        error.suspects = self.inner.launches.suspects();
        if let Some(report) = &error.report {
            error.suspects.keep_named(report);
        }
        let first = self.inner.dead.get_or_init(|| Arc::from(error)).clone();
        Error::Sticky { first }
    }

    /// The captures that are under way.
    pub(crate) fn captures(&self) -> &Captures {
        &self.inner.captures
    }

    /// The launches that were queued and not waited for.
    pub(crate) fn launches(&self) -> &LaunchLog {
        &self.inner.launches
    }

    /// The idle streams of the pool.
    pub(crate) fn idle_queues(&self) -> &IdleQueues {
        &self.inner.idle_queues
    }

    /// With blocking launches, the lock under which a launch is made and waited for.
    pub(crate) fn blocking_launches(&self) -> Option<&Mutex<()>> {
        self.inner.blocking_launches.as_ref()
    }

    pub(crate) fn context(&self) -> CUcontext {
        self.inner.context.handle
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}: {}, {})", self.inner.ordinal, self.inner.name, self.inner.arch)
    }
}

impl Drop for DeviceInner {
    fn drop(&mut self) {
        // A drop cannot return an error; the context frees its streams at its end.
        // SAFETY: the context is retained until the last field is dropped.
        let _ = unsafe { raw::ctx_set_current(self.context.handle) };
        self.idle_queues.destroy_all();
        self.extensions.clear();
    }
}

impl DeviceInner {
    fn open(ordinal: u32, software: bool) -> Result<Self> {
        let blocking_launches = blocking_launches()?.then(|| Mutex::new(()));
        let allocator_options = AllocatorOptions::from_env()?;
        let device = device_of(ordinal)?;
        let name = name_of(device)?;
        let mut total = 0;
        // SAFETY: a place to write to and a device.
        unsafe { raw::device_total_mem(&mut total, device)? };
        let (arch, properties) = query(device, total as u64)?;
        let context = PrimaryContext::retain(device)?;
        let pool = keep_freed_memory(device)?;
        Ok(DeviceInner {
            ordinal,
            name,
            arch,
            software,
            blocking_launches,
            properties,
            pool,
            dead: OnceLock::new(),
            launches: LaunchLog::default(),
            idle_queues: IdleQueues::default(),
            allocator_options,
            captures: Captures::default(),
            extensions: Extensions::default(),
            context,
        })
    }
}

fn device_of(ordinal: u32) -> Result<CUdevice> {
    let mut device = 0;
    // A number that is no `int` is no device's, which the driver then says.
    let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
    // SAFETY: a place to write to.
    unsafe { raw::device_get(&mut device, ordinal)? };
    Ok(device)
}

fn name_of(device: CUdevice) -> Result<String> {
    /// Bytes, with the NUL; names are a few dozen.
    const LONGEST: usize = 256;
    let mut bytes = [0_u8; LONGEST];
    // SAFETY: `LONGEST` bytes to write to and a device.
    unsafe { raw::device_get_name(bytes.as_mut_ptr().cast(), LONGEST as c_int, device)? };
    let text = CStr::from_bytes_until_nul(&bytes).map_or_else(|_| bytes.as_slice(), CStr::to_bytes);
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// `CUdevice_attribute` codes.
mod attribute {
    pub const MAX_THREADS_PER_BLOCK: i32 = 1;
    pub const MAX_BLOCK_DIM_X: i32 = 2;
    pub const MAX_GRID_DIM_X: i32 = 5;
    pub const MAX_SHARED_MEMORY_PER_BLOCK: i32 = 8;
    pub const WARP_SIZE: i32 = 10;
    pub const MAX_REGISTERS_PER_BLOCK: i32 = 12;
    pub const CLOCK_RATE: i32 = 13;
    pub const MULTIPROCESSOR_COUNT: i32 = 16;
    pub const MEMORY_CLOCK_RATE: i32 = 36;
    pub const GLOBAL_MEMORY_BUS_WIDTH: i32 = 37;
    pub const L2_CACHE_SIZE: i32 = 38;
    pub const MAX_THREADS_PER_MULTIPROCESSOR: i32 = 39;
    pub const COMPUTE_CAPABILITY_MAJOR: i32 = 75;
    pub const COMPUTE_CAPABILITY_MINOR: i32 = 76;
    pub const MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: i32 = 81;
    pub const COOPERATIVE_LAUNCH: i32 = 95;
    pub const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: i32 = 97;
    pub const CLUSTER_LAUNCH: i32 = 120;
}

fn query(device: CUdevice, total_memory: u64) -> RawResult<(Arch, DeviceProperties)> {
    use attribute::*;
    let get = |attribute: i32| -> RawResult<u32> {
        let mut value: c_int = 0;
        // SAFETY: a place to write to, and a device that cuDeviceGet gave.
        unsafe { raw::device_get_attribute(&mut value, attribute, device)? };
        Ok(u32::try_from(value).unwrap_or(0))
    };
    let axes = |first: i32| -> RawResult<[u32; 3]> { Ok([get(first)?, get(first + 1)?, get(first + 2)?]) };
    let arch = Arch { major: get(COMPUTE_CAPABILITY_MAJOR)?, minor: get(COMPUTE_CAPABILITY_MINOR)? };
    let properties = DeviceProperties {
        sm_count: get(MULTIPROCESSOR_COUNT)?,
        max_threads_per_block: get(MAX_THREADS_PER_BLOCK)?,
        max_threads_per_sm: get(MAX_THREADS_PER_MULTIPROCESSOR)?,
        max_block: axes(MAX_BLOCK_DIM_X)?,
        max_grid: axes(MAX_GRID_DIM_X)?,
        warp_size: get(WARP_SIZE)?,
        shared_per_block: get(MAX_SHARED_MEMORY_PER_BLOCK)?,
        shared_per_block_optin: get(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        shared_per_sm: get(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
        registers_per_block: get(MAX_REGISTERS_PER_BLOCK)?,
        l2_bytes: get(L2_CACHE_SIZE)?,
        clock_khz: get(CLOCK_RATE)?,
        memory_clock_khz: get(MEMORY_CLOCK_RATE)?,
        memory_bus_bits: get(GLOBAL_MEMORY_BUS_WIDTH)?,
        total_memory,
        cooperative_launch: get(COOPERATIVE_LAUNCH)? != 0,
        clusters: arch.major >= 9 && get(CLUSTER_LAUNCH)? != 0,
    };
    Ok((arch, properties))
}

/// Shared memory that the driver keeps for itself beside each block's, in bytes.
pub(crate) const RESERVED_SHARED: u32 = 1 << 10;

/// `CU_LIMIT_STACK_SIZE`.
const STACK_SIZE: c_int = 0;
/// Local memory of a thread, at most, on every architecture since sm_30 (CUDA programming guide, technical
/// specifications).
const MAX_LOCAL_BYTES: usize = 512 << 10;

/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
const POOL_RELEASE_THRESHOLD: c_int = 4;

/// Tells the default pool to keep freed memory, so that the workspaces of repeated ops need no driver calls
/// that allocate.
fn keep_freed_memory(device: CUdevice) -> RawResult<CUmemoryPool> {
    let mut pool = std::ptr::null_mut();
    let mut threshold = u64::MAX;
    // SAFETY: a place to write to; the attribute is a 64-bit integer, read before the call returns.
    unsafe {
        raw::device_get_default_mem_pool(&mut pool, device)?;
        raw::mem_pool_set_attribute(pool, POOL_RELEASE_THRESHOLD, (&raw mut threshold).cast())?;
    }
    Ok(pool)
}

/// `IRONWARP_LAUNCH_BLOCKING`: wait after each launch, so that an error names the launch that caused it.
fn blocking_launches() -> Result<bool> {
    environment::switch("IRONWARP_LAUNCH_BLOCKING")
}
