//! Launches: checks the limits, copies the parameters, and runs the kernel on the executor.

use super::{
    abi::LaunchAttribute,
    abi::LaunchConfig as ConfigEx,
    api,
    device::{MAX_BLOCK, MAX_GRID, MAX_THREADS_PER_BLOCK, arch},
    handle::Handle,
    module::Function,
    occupancy,
    queue::Command,
    state::{Driver, Outcome},
    take, tally,
};
use crate::code;
use core::ffi::{c_uint, c_void};
use simt::{Fault, FaultKind, KernelEntry, LaunchConfig, Options, ParamLayout};
use std::sync::{Arc, OnceLock};

/// The unit of the parameter buffer. Its alignment is that of tensor maps, the strictest that a parameter may
/// have.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Unit(#[allow(dead_code, reason = "room for parameters, reached by address")] [u8; 64]);

impl Unit {
    const EMPTY: Unit = Unit([0; size_of::<Unit>()]);
}

/// `CU_LAUNCH_PARAM_*` of the `extra` argument.
mod extra {
    pub(crate) const END: usize = 0;
    pub(crate) const BUFFER_POINTER: usize = 1;
    pub(crate) const BUFFER_SIZE: usize = 2;
}

/// `CU_LAUNCH_ATTRIBUTE_*`.
mod attribute {
    pub(crate) const COOPERATIVE: u32 = 2;
    pub(crate) const CLUSTER_DIMENSION: u32 = 4;
    pub(crate) const PROGRAMMATIC_STREAM_SERIALIZATION: u32 = 6;
    /// The last attribute of CUDA 13. Attributes without a constant here are hints and change no result.
    pub(crate) const LAST: u32 = 18;
}

/// A launch with its parameters.
pub(super) struct Launch {
    pub function: Handle,
    pub config: LaunchConfig,
    entry: &'static KernelEntry,
    device: u32,
    /// Owns the values that `pointers` point to.
    _values: Box<[Unit]>,
    pointers: Box<[*mut c_void]>,
}

// SAFETY: the pointers lead into the launch's own buffer, which is never written after its creation.
unsafe impl Send for Launch {}
// SAFETY: as above.
unsafe impl Sync for Launch {}

/// The offset of each parameter in a packed buffer, in bytes.
pub(super) fn offsets(params: &[ParamLayout]) -> Vec<usize> {
    let mut end = 0_usize;
    let place = |p: &ParamLayout| {
        let offset = end.next_multiple_of(p.align);
        end = offset + p.size;
        offset
    };
    params.iter().map(place).collect()
}

/// The caller's parameters, in either form.
#[derive(Clone, Copy)]
pub(super) struct Arguments {
    pub params: *mut *mut c_void,
    pub extra: *mut *mut c_void,
}

impl Arguments {
    /// The address of each parameter.
    ///
    /// # Safety
    /// The pointers are null or valid as CUDA documents for `cuLaunchKernel`.
    unsafe fn addresses(self, params: &[ParamLayout]) -> Outcome<Vec<*const u8>> {
        match (self.params.is_null(), self.extra.is_null()) {
            _ if params.is_empty() => Ok(Vec::new()),
            (false, true) => {
                // SAFETY: `params` holds one pointer per parameter, by this function's contract.
                let given = unsafe { core::slice::from_raw_parts(self.params, params.len()) };
                Ok(given.iter().map(|&pointer| pointer.cast::<u8>().cast_const()).collect())
            }
            // SAFETY: the same contract.
            (true, false) => unsafe { self.packed(params) },
            _ => Err(code::INVALID_VALUE),
        }
    }

    /// # Safety
    /// `extra` is a list as CUDA documents it.
    unsafe fn packed(self, params: &[ParamLayout]) -> Outcome<Vec<*const u8>> {
        let (mut buffer, mut room, mut list) = (core::ptr::null::<u8>(), 0, self.extra);
        // SAFETY: the list holds pairs up to its end mark; the size is passed by address.
        unsafe {
            while *list as usize != extra::END {
                match *list as usize {
                    extra::BUFFER_POINTER => buffer = (*list.add(1)).cast(),
                    extra::BUFFER_SIZE => room = take((*list.add(1)).cast::<usize>())?,
                    _ => return Err(code::INVALID_VALUE),
                }
                list = list.add(2);
            }
        }
        let offsets = offsets(params);
        let needed = offsets.last().zip(params.last()).map_or(0, |(offset, p)| offset + p.size);
        if buffer.is_null() || room < needed {
            return Err(code::INVALID_VALUE);
        }
        Ok(offsets.iter().map(|&offset| buffer.wrapping_add(offset)).collect())
    }
}

/// Checks a launch against the limits of the device and the kernel before anything runs, as a GPU does.
fn check(f: &Function, c: &LaunchConfig) -> Outcome {
    let within = |have: &[u32; 3], most: &[u32; 3]| have.iter().zip(most).all(|(h, m)| (1..=*m).contains(h));
    if !within(&c.grid, &MAX_GRID) || !within(&c.block, &MAX_BLOCK) {
        return Err(code::INVALID_VALUE);
    }
    let threads = c.threads_per_block();
    if threads > u64::from(MAX_THREADS_PER_BLOCK)
        || c.dynamic_shared > f.max_dynamic_shared.min(arch().shared_opt_in())
    {
        return Err(code::INVALID_VALUE);
    }
    if threads > u64::from(f.max_threads()) {
        return Err(code::LAUNCH_OUT_OF_RESOURCES);
    }
    check_cluster(f, c)?;
    let resident = || occupancy::resident_blocks(threads as u32, c.dynamic_shared);
    if c.cooperative && c.blocks() > resident() {
        return Err(code::COOPERATIVE_LAUNCH_TOO_LARGE);
    }
    Ok(())
}

/// Checks that a kernel can have clusters of this size, and that the clusters divide the grid.
pub(super) fn check_cluster(f: &Function, c: &LaunchConfig) -> Outcome {
    if c.cluster.contains(&0) {
        return Err(code::INVALID_VALUE);
    }
    let most = arch().max_cluster(f.non_portable_cluster);
    let divides = c.grid.iter().zip(&c.cluster).all(|(grid, cluster)| grid.is_multiple_of(*cluster));
    if c.blocks_per_cluster() > u64::from(most) || !divides {
        return Err(code::INVALID_CLUSTER_SIZE);
    }
    Ok(())
}

/// The seed and whether to check. Both come from the environment.
fn options() -> &'static Options {
    static OPTIONS: OnceLock<Options> = OnceLock::new();
    OPTIONS.get_or_init(Options::from_env)
}

/// Whether launches on this driver are checked.
pub fn checks() -> bool {
    options().check
}

/// The code that a GPU returns for such a fault.
fn code_of(fault: &Fault) -> u32 {
    match fault.kind {
        FaultKind::OutOfBounds
        | FaultKind::NullPointer
        | FaultKind::WildPointer
        | FaultKind::WrongMemory
        | FaultKind::UseAfterFree => code::ILLEGAL_ADDRESS,
        FaultKind::Misaligned => code::MISALIGNED_ADDRESS,
        FaultKind::Panic => code::ASSERT,
        FaultKind::InvalidLaunch | FaultKind::SharedAllocation => code::LAUNCH_OUT_OF_RESOURCES,
        FaultKind::Deadlock | FaultKind::Livelock => code::LAUNCH_TIMEOUT,
        _ => code::LAUNCH_FAILED,
    }
}

impl Launch {
    /// Runs the kernel.
    pub(super) fn run(&self) -> Result<(), (u32, String)> {
        tally::count(self.entry);
        let params = self.pointers.as_ptr().cast::<*const c_void>();
        // SAFETY: `pointers` has one pointer per parameter of the entry, each to a copy of the caller's
        // value. The executor's checker verifies that the memory that kernels reach through them is live.
        match unsafe {
            simt::launch(self.entry, &self.config, params, &options().clone().device(self.device))
        } {
            Ok(_) => Ok(()),
            Err(fault) => Err((code_of(&fault), fault.to_string())),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        self.entry.name
    }

    /// The addresses of the copied parameters.
    pub(super) fn params(&self) -> *mut *mut c_void {
        self.pointers.as_ptr().cast_mut()
    }
}

impl Driver {
    /// Checks a launch and copies its parameters.
    ///
    /// # Safety
    /// `arguments` are as CUDA documents for `cuLaunchKernel` and this function.
    pub(super) unsafe fn prepare(
        &self,
        function: Handle,
        config: LaunchConfig,
        arguments: Arguments,
    ) -> Outcome<Arc<Launch>> {
        let f = self.function(function)?;
        check(f, &config)?;
        let params = f.entry.params;
        if params.iter().any(|p| p.align > align_of::<Unit>()) {
            return Err(code::NOT_SUPPORTED);
        }
        // SAFETY: this function's contract.
        let from = unsafe { arguments.addresses(params) }?;
        if from.contains(&core::ptr::null()) {
            return Err(code::INVALID_VALUE);
        }
        let offsets = offsets(params);
        let bytes = offsets.last().zip(params.last()).map_or(0, |(offset, p)| offset + p.size);
        let mut values = vec![Unit::EMPTY; bytes.div_ceil(size_of::<Unit>())].into_boxed_slice();
        let base = values.as_mut_ptr().cast::<u8>();
        let mut pointers = Vec::with_capacity(params.len());
        for ((from, offset), layout) in from.into_iter().zip(offsets).zip(params) {
            // SAFETY: the caller's parameter has the kernel's type; the buffer has room for all parameters at
            // these offsets.
            unsafe {
                let to = base.add(offset);
                to.copy_from_nonoverlapping(from, layout.size);
                pointers.push(to.cast::<c_void>());
            }
        }
        let device = self.contexts.get(self.modules.get(f.module)?.context)?.device as u32;
        Ok(Arc::new(Launch {
            function,
            config,
            entry: f.entry,
            device,
            _values: values,
            pointers: pointers.into(),
        }))
    }

    /// # Safety
    /// As [`Driver::prepare`].
    unsafe fn launch(
        &mut self,
        function: Handle,
        config: LaunchConfig,
        stream: usize,
        arguments: Arguments,
    ) -> Outcome {
        let context = self.enter()?;
        let stream = self.stream(stream, context)?;
        let module = self.function(function)?.module;
        if self.modules.get(module)?.context != self.streams.get(stream)?.context {
            return Err(code::INVALID_HANDLE);
        }
        // SAFETY: this function's contract.
        let launch = unsafe { self.prepare(function, config, arguments) }?;
        self.issue(stream, Command::Kernel(launch))
    }
}

fn plain(grid: [c_uint; 3], block: [c_uint; 3], shared: c_uint) -> LaunchConfig {
    LaunchConfig { grid, block, dynamic_shared: shared, ..LaunchConfig::default() }
}

/// Reads a launch configuration with its attributes.
///
/// # Safety
/// `config` is as CUDA documents it.
pub(super) unsafe fn read_config(config: &ConfigEx) -> Outcome<LaunchConfig> {
    let mut read = plain(config.grid, config.block, config.shared);
    for i in 0..config.attribute_count as usize {
        // SAFETY: the list has as many elements as the configuration says.
        let LaunchAttribute { id, value, .. } = unsafe { take(config.attributes.wrapping_add(i)) }?;
        let words = [value[0] as u32, (value[0] >> 32) as u32, value[1] as u32];
        match id {
            attribute::COOPERATIVE => read.cooperative = words[0] != 0,
            attribute::CLUSTER_DIMENSION => read.cluster = words,
            attribute::PROGRAMMATIC_STREAM_SERIALIZATION => read.overlapping = words[0] != 0,
            0..=attribute::LAST => {}
            _ => return Err(code::INVALID_VALUE),
        }
    }
    Ok(read)
}

api! {
    fn cuLaunchKernel(
        driver, function: Handle,
        grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared: c_uint, stream: usize, params: *mut *mut c_void, extra: *mut *mut c_void,
    ) {
        let config = plain([grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared);
        driver.launch(function, config, stream, Arguments { params, extra })
    }

    fn cuLaunchCooperativeKernel(
        driver, function: Handle,
        grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared: c_uint, stream: usize, params: *mut *mut c_void,
    ) {
        let config = plain([grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared).cooperative();
        driver.launch(function, config, stream, Arguments { params, extra: core::ptr::null_mut() })
    }

    fn cuLaunchKernelEx(driver, config: *const ConfigEx, function: Handle, params: *mut *mut c_void, extra: *mut *mut c_void) {
        let config = take(config)?;
        let read = read_config(&config)?;
        driver.launch(function, read, config.stream, Arguments { params, extra })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_packed_at_their_alignment() {
        let layouts = [
            ParamLayout::of::<u32>(),
            ParamLayout::of::<u64>(),
            ParamLayout::of::<u8>(),
            ParamLayout::of::<u16>(),
        ];
        assert_eq!(offsets(&layouts), [0, 8, 16, 18]);
        assert_eq!(offsets(&[]), [0; 0]);
    }
}
