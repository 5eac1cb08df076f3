//! A kernel of a loaded module, its limits, and the launch itself.

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_uint};
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::sys::CUfunction;

use super::args::Parameters;
use super::name::keep;
use super::tuples::LaunchArgs;
use crate::config::LaunchConfig;
use crate::device::{Device, DeviceProperties};
use crate::error::{Error, LaunchSite, Limit, Result};
use crate::module::{Module, ModuleInner};
use crate::raw::{self, LaunchAttribute, LaunchConfigEx, RawResult};
use crate::stream::Stream;

/// `CUfunction_attribute` codes.
mod attribute {
    pub const MAX_THREADS_PER_BLOCK: i32 = 0;
    pub const SHARED_SIZE_BYTES: i32 = 1;
    pub const LOCAL_SIZE_BYTES: i32 = 3;
    pub const NUM_REGS: i32 = 4;
    pub const PTX_VERSION: i32 = 5;
    pub const MAX_DYNAMIC_SHARED_SIZE_BYTES: i32 = 8;
    pub const NON_PORTABLE_CLUSTER_SIZE_ALLOWED: i32 = 14;
}

/// The first virtual architecture with `griddepcontrol.wait` (PTX ISA).
const FIRST_WITH_WAIT: u32 = 90;
/// The largest cluster, in blocks, that every device with clusters runs without opt-in.
const PORTABLE_CLUSTER_BLOCKS: u64 = 8;
/// Blocks of the largest cluster that any device runs.
const MAX_CLUSTER_BLOCKS: u64 = 16;

/// The attributes of a kernel, as the driver gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionAttributes {
    /// Threads of a block, at most, by launch bounds and registers.
    pub max_threads_per_block: u32,
    /// Static shared memory of a block, bytes.
    pub static_shared_bytes: u32,
    /// Local memory of a thread, bytes; spills show here.
    pub local_bytes: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// The virtual architecture that it was compiled for, ten times the major number and the minor one: 80 of
    /// PTX for sm_80, also where that runs as machine code of a later architecture. The software driver gives
    /// its device's.
    pub ptx_version: u32,
}

impl FunctionAttributes {
    /// Whether its launches can overlap the one before: the device lets them, and the kernel's code has the
    /// wait for that one, which the compiler leaves out below 90.
    fn overlaps(&self, device: &DeviceProperties) -> bool {
        device.clusters && self.has_wait()
    }

    const fn has_wait(&self) -> bool {
        self.ptx_version >= FIRST_WITH_WAIT
    }
}

/// The room that a cluster takes: its blocks, threads of a block, dynamic shared memory of a block.
type Footprint = ([u32; 3], [u32; 3], u32);

pub(crate) struct FunctionInner {
    handle: CUfunction,
    name: &'static str,
    attributes: FunctionAttributes,
    /// Dynamic shared memory that launches can have without a further opt-in.
    dynamic_shared: AtomicU32,
    /// Whether launches can have clusters larger than those that every device runs.
    large_clusters: AtomicBool,
    /// Clusters that fit on the device at once, of those that were asked for.
    resident_clusters: Mutex<HashMap<Footprint, u32>>,
    /// Whether the device keeps this function as long as itself: then a graph need not keep its code.
    kept: bool,
    /// Keeps the code loaded.
    module: Arc<ModuleInner>,
}

// SAFETY: a function handle may be used from any thread, as long as its module is loaded.
unsafe impl Send for FunctionInner {}
// SAFETY: as above.
unsafe impl Sync for FunctionInner {}

impl FunctionInner {
    pub(crate) fn find(device: &Device, module: &Arc<ModuleInner>, name: &str) -> Result<Self> {
        let Ok(c_name) = CString::new(name) else {
            return Err(Error::BadName { what: "kernel", name: name.to_owned() });
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: a place to write to, a loaded module and a NUL-terminated name.
        let found = device
            .call(|| unsafe { raw::module_get_function(&mut handle, module.handle(), c_name.as_ptr()) });
        match found {
            Ok(()) => {}
            Err(Error::Driver(mut source)) => {
                source.report = driver::soft::take_ambiguous();
                let (module, kernel) = (module.label().to_owned(), name.to_owned());
                return Err(Error::NoSuchKernel { module, kernel, source });
            }
            Err(other) => return Err(other),
        }
        let attributes = device.call(|| attributes(handle))?;
        // The size that needs no opt-in, less the kernel's static shared memory.
        let without_asking =
            device.properties().shared_per_block.saturating_sub(attributes.static_shared_bytes);
        Ok(FunctionInner {
            handle,
            name: keep(name),
            attributes,
            dynamic_shared: AtomicU32::new(without_asking),
            large_clusters: AtomicBool::new(false),
            resident_clusters: Mutex::default(),
            kept: false,
            module: module.clone(),
        })
    }

    /// The same, marked as kept by its device.
    pub(super) fn kept(self) -> Self {
        FunctionInner { kept: true, ..self }
    }

    /// Launches the kernel.
    ///
    /// # Safety
    /// As [`Function::launch`].
    pub(crate) unsafe fn launch<P>(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        args: impl LaunchArgs<P>,
        location: &'static Location<'static>,
    ) -> Result<()> {
        if config.blocks() == 0 {
            return self.make_ready(stream.device(), &config);
        }
        let one_at_a_time = self.before(stream, &config)?;
        args.with(stream, |parameters| {
            // SAFETY: the arguments fit the kernel's parameters by their types, and the rest is the caller's
            // promise.
            stream.call(|_| unsafe { self.submit(stream, &config, parameters) })
        })?;
        self.after(stream, config, location, one_at_a_time.is_some())
    }

    /// The part of a launch before its arguments are packed: it does not depend on their types. With blocking
    /// launches no other one runs beside this one, so this one caused any error: the lock says so.
    fn before<'d>(&self, stream: &'d Stream, config: &LaunchConfig) -> Result<Option<MutexGuard<'d, ()>>> {
        self.make_ready(stream.device(), config)?;
        let lock = stream.device().blocking_launches();
        let one_at_a_time = lock.map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner));
        if !self.kept
            && let Some(capture) = stream.capture()?
        {
            capture.keep_alive(self.module.clone());
        }
        Ok(one_at_a_time)
    }

    /// The part of a launch behind the queueing.
    fn after(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        location: &'static Location<'static>,
        one_at_a_time: bool,
    ) -> Result<()> {
        stream.note_launch(LaunchSite { kernel: self.name, config: Some(config), location })?;
        if one_at_a_time && stream.capture()?.is_none() { stream.synchronize() } else { Ok(()) }
    }

    /// # Safety
    /// As [`Function::launch`]; `parameters` fit the kernel.
    pub(super) unsafe fn submit(
        &self,
        stream: &Stream,
        config: &LaunchConfig,
        parameters: &mut Parameters,
    ) -> RawResult {
        let LaunchConfig { grid, block, shared_bytes, cluster, cooperative, overlapping } = *config;
        let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
        let overlapping = overlapping && self.attributes.overlaps(stream.device().properties());
        let (function, values) = (self.handle, parameters.as_mut_ptr());
        // SAFETY: live handles; the driver copies the parameters before it returns; the rest is the caller's
        // promise.
        unsafe {
            if cluster != [1; 3] || overlapping {
                let mut attributes = [LaunchAttribute::cluster(cluster); LaunchAttribute::KINDS];
                let mut attribute_count = usize::from(cluster != [1; 3]);
                let others = [
                    cooperative.then(LaunchAttribute::cooperative),
                    overlapping.then(LaunchAttribute::overlapping),
                ];
                for attribute in others.into_iter().flatten() {
                    attributes[attribute_count] = attribute;
                    attribute_count += 1;
                }
                let config = LaunchConfigEx {
                    grid,
                    block,
                    shared_bytes,
                    stream: stream.handle(),
                    attributes: attributes.as_ptr(),
                    attribute_count: attribute_count as c_uint,
                };
                raw::launch_kernel_ex(&config, function, values)
            } else if cooperative {
                let stream = stream.handle();
                raw::launch_cooperative_kernel(function, gx, gy, gz, bx, by, bz, shared_bytes, stream, values)
            } else {
                let (stream, no_extra) = (stream.handle(), std::ptr::null_mut());
                raw::launch_kernel(function, gx, gy, gz, bx, by, bz, shared_bytes, stream, values, no_extra)
            }
        }
    }

    /// Checks the configuration, and makes the opt-ins that it needs.
    pub(super) fn make_ready(&self, device: &Device, config: &LaunchConfig) -> Result<()> {
        self.check(device, config)?;
        self.opt_in(device, config.shared_bytes)?;
        self.opt_in_to_clusters(device, config)
    }

    pub(super) fn handle(&self) -> CUfunction {
        self.handle
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self, device: &Device, config: &LaunchConfig) -> Result<()> {
        let limits = device.properties();
        let exceeds = |limit, got: u64, max: u64| {
            Err(Error::LaunchLimit { kernel: self.name.to_string(), limit, got, max })
        };
        let threads = config.threads_per_block();
        if threads == 0 {
            return exceeds(Limit::NoThreads, 0, u64::from(limits.max_threads_per_block));
        }
        for axis in 0..3 {
            let (got, max) = (config.block[axis], limits.max_block[axis]);
            if got > max {
                return exceeds(Limit::BlockAxis(axis as u8), got.into(), max.into());
            }
            let (got, max) = (config.grid[axis], limits.max_grid[axis]);
            if got > max {
                return exceeds(Limit::GridAxis(axis as u8), got.into(), max.into());
            }
        }
        if threads > u64::from(limits.max_threads_per_block) {
            return exceeds(Limit::ThreadsPerBlock, threads, limits.max_threads_per_block.into());
        }
        if threads > u64::from(self.attributes.max_threads_per_block) {
            return exceeds(Limit::KernelThreads, threads, self.attributes.max_threads_per_block.into());
        }
        let shared = u64::from(config.shared_bytes) + u64::from(self.attributes.static_shared_bytes);
        if shared > u64::from(limits.shared_per_block_optin) {
            return exceeds(Limit::SharedBytes, shared, limits.shared_per_block_optin.into());
        }
        self.check_cluster(device, config)?;
        if config.cooperative {
            let max = self.resident_blocks(device, config)?;
            if config.blocks() > max {
                return exceeds(Limit::CooperativeBlocks, config.blocks(), max);
            }
        }
        Ok(())
    }

    fn check_cluster(&self, device: &Device, config: &LaunchConfig) -> Result<()> {
        let max = if device.properties().clusters { MAX_CLUSTER_BLOCKS } else { 1 };
        let got = config.blocks_per_cluster();
        if !(1..=max).contains(&got) {
            let kernel = self.name.to_string();
            return Err(Error::LaunchLimit { kernel, limit: Limit::ClusterBlocks, got, max });
        }
        let uneven = (0..3).find(|&axis| !config.grid[axis].is_multiple_of(config.cluster[axis]));
        if let Some(axis) = uneven {
            return Err(Error::InvalidArgument {
                operation: "launch",
                argument: "the grid",
                got: format!("{:?}", config.grid),
                wanted: format!("a multiple of the cluster {:?} along axis {axis}", config.cluster),
                hint: "round the number of blocks up and let the last ones find nothing to do",
            });
        }
        Ok(())
    }

    /// Lets launches of this kernel have clusters beyond the size that every device runs, the first time one
    /// needs it.
    fn opt_in_to_clusters(&self, device: &Device, config: &LaunchConfig) -> Result<()> {
        if config.blocks_per_cluster() <= PORTABLE_CLUSTER_BLOCKS
            || self.large_clusters.load(Ordering::Acquire)
        {
            return Ok(());
        }
        // SAFETY: a loaded function.
        device.call(|| unsafe {
            raw::func_set_attribute(self.handle, attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
        })?;
        self.large_clusters.store(true, Ordering::Release);
        Ok(())
    }

    /// Blocks of this kernel that fit on the device at once.
    fn resident_blocks(&self, device: &Device, config: &LaunchConfig) -> Result<u64> {
        let mut blocks: c_int = 0;
        // `check` has checked that the count fits.
        let threads = config.threads_per_block() as c_int;
        self.opt_in(device, config.shared_bytes)?;
        // SAFETY: a place to write to and a loaded function.
        device.call(|| unsafe {
            raw::occupancy(&mut blocks, self.handle, threads, config.shared_bytes as usize)
        })?;
        Ok(u64::try_from(blocks).unwrap_or(0) * u64::from(device.properties().sm_count))
    }

    /// Clusters of this kernel that fit on the device at once. Multiprocessors come in groups, and a cluster
    /// takes those of one: fewer fit than multiprocessors over the blocks of a cluster. The driver is asked
    /// once.
    pub(super) fn resident_clusters(&self, stream: &Stream, config: &LaunchConfig) -> Result<u32> {
        let footprint = (config.cluster, config.block, config.shared_bytes);
        let known = || self.resident_clusters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&clusters) = known().get(&footprint) {
            return Ok(clusters);
        }
        let device = stream.device();
        self.make_ready(device, config)?;
        let attributes = [LaunchAttribute::cluster(config.cluster)];
        let raw_config = LaunchConfigEx {
            grid: config.grid,
            block: config.block,
            shared_bytes: config.shared_bytes,
            stream: stream.handle(),
            attributes: attributes.as_ptr(),
            attribute_count: attributes.len() as c_uint,
        };
        let mut clusters: c_int = 0;
        // SAFETY: a place to write to, a loaded function, and a configuration that lives until the call ends.
        device.call(|| unsafe { raw::occupancy_clusters(&mut clusters, self.handle, &raw_config) })?;
        let clusters = u32::try_from(clusters).unwrap_or(0);
        known().insert(footprint, clusters);
        Ok(clusters)
    }

    /// Lets launches of this kernel take all the dynamic shared memory that a block can have, the first time
    /// one needs more than is there without opt-in. Always the same value: threads that ask at the same time
    /// must not lower each other's limit.
    fn opt_in(&self, device: &Device, bytes: u32) -> Result<()> {
        if bytes <= self.dynamic_shared.load(Ordering::Acquire) {
            return Ok(());
        }
        let most =
            device.properties().shared_per_block_optin.saturating_sub(self.attributes.static_shared_bytes);
        let value = c_int::try_from(most).unwrap_or(c_int::MAX);
        // SAFETY: a loaded function.
        device.call(|| unsafe {
            raw::func_set_attribute(self.handle, attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES, value)
        })?;
        self.dynamic_shared.store(most, Ordering::Release);
        Ok(())
    }
}

fn attributes(function: CUfunction) -> RawResult<FunctionAttributes> {
    use attribute::*;
    let get = |attribute: i32| -> RawResult<u32> {
        let mut value: c_int = 0;
        // SAFETY: a place to write to and a loaded function.
        unsafe { raw::func_get_attribute(&mut value, attribute, function)? };
        Ok(u32::try_from(value).unwrap_or(0))
    };
    Ok(FunctionAttributes {
        max_threads_per_block: get(MAX_THREADS_PER_BLOCK)?,
        static_shared_bytes: get(SHARED_SIZE_BYTES)?,
        local_bytes: get(LOCAL_SIZE_BYTES)?,
        registers: get(NUM_REGS)?,
        ptx_version: get(PTX_VERSION)?,
    })
}

/// A kernel found by name in a [`crate::Module`]. Only the caller knows its parameters.
#[derive(Clone)]
pub struct Function {
    inner: Arc<FunctionInner>,
    device: Device,
}

impl Function {
    pub(crate) fn new(inner: Arc<FunctionInner>, device: &Device) -> Self {
        Function { inner, device: device.clone() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.inner.name
    }

    /// Its attributes, as the driver gives them.
    pub fn attributes(&self) -> FunctionAttributes {
        self.inner.attributes
    }

    /// The driver's handle, for calls that ironwarp does not make. It lives as long as this value or its
    /// module.
    pub fn raw(&self) -> CUfunction {
        self.inner.handle
    }

    /// Blocks of this kernel that fit on the device at once: the largest cooperative grid.
    ///
    /// # Errors
    /// The driver's error.
    pub fn max_resident_blocks(&self, config: &LaunchConfig) -> Result<u64> {
        self.inner.check(&self.device, &LaunchConfig { cooperative: false, ..*config })?;
        self.inner.resident_blocks(&self.device, config)
    }

    /// Queues the kernel on `stream`. `P` names its parameters, as in `function.launch::<(Value<u32>,
    /// Slice<f32>, PtrMut<f32>)>(&stream, config, (n, &x, &mut y))`.
    ///
    /// # Safety
    /// `P` is what the kernel takes, and the kernel, so launched, stays within the memory that it is given,
    /// does not race, and leaves valid values of the buffers' types.
    ///
    /// # Errors
    /// [`Error::LaunchLimit`], [`Error::DeviceMismatch`], or the driver's error. A later call returns the
    /// errors that happen while the kernel runs.
    #[track_caller]
    pub unsafe fn launch<P>(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        args: impl LaunchArgs<P>,
    ) -> Result<()> {
        stream.same_device("the kernel", &self.device)?;
        // SAFETY: the caller's promise.
        unsafe { self.inner.launch::<P>(stream, config, args, Location::caller()) }
    }
}

impl Module {
    /// The kernel `name`, to be launched with parameters that the caller knows.
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`], [`Error::BadName`], or the driver's error.
    pub fn function(&self, name: &str) -> Result<Function> {
        let inner = FunctionInner::find(self.device(), self.inner(), name)?;
        Ok(Function::new(Arc::new(inner), self.device()))
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({} on device {})", self.inner.name, self.device.ordinal())
    }
}

#[cfg(test)]
mod tests {
    use super::FunctionAttributes;

    /// Blackwell runs machine code of the PTX for sm_80, which has no wait.
    #[test]
    fn code_before_sm_90_has_no_wait_for_the_launch_before() {
        let of = |ptx_version: u32| {
            let max_threads_per_block = 1024;
            FunctionAttributes {
                max_threads_per_block,
                static_shared_bytes: 0,
                local_bytes: 0,
                registers: 32,
                ptx_version,
            }
        };
        assert_eq!(
            [75, 80, 89, 90, 100, 120].map(|version| of(version).has_wait()),
            [false, false, false, true, true, true]
        );
    }
}
