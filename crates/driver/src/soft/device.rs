//! Devices: a simulated GPU, of compute capability 9.0 unless another one is asked for. It has one
//! multiprocessor per CPU core.

use super::{
    abi::{DeviceProperties, Uuid},
    api,
    handle::Handle,
    put,
    state::{Outcome, State},
};
use crate::{code, env, load::InitError};
use core::ffi::{CStr, c_char, c_int, c_uint};
use std::sync::OnceLock;

/// The variable with the compute capability of software devices.
pub const ARCH_VARIABLE: &str = "IRONWARP_SOFT_ARCH";

/// A compute capability, and what a multiprocessor of it holds.
#[derive(Clone, Copy)]
pub(super) struct Arch {
    /// Major and minor.
    pub capability: (u32, u32),
    /// Threads.
    pub threads: u32,
    /// Blocks.
    pub blocks: u32,
    /// Shared memory, KiB.
    shared_kib: u32,
}

/// Those that devices may have, by the CUDA programming guide's table of compute capabilities.
const ARCHS: [Arch; 7] = [
    Arch { capability: (7, 5), threads: 1024, blocks: 16, shared_kib: 64 },
    Arch { capability: (8, 0), threads: 2048, blocks: 32, shared_kib: 164 },
    Arch { capability: (8, 6), threads: 1536, blocks: 16, shared_kib: 100 },
    Arch { capability: (8, 9), threads: 1536, blocks: 24, shared_kib: 100 },
    Arch { capability: (9, 0), threads: 2048, blocks: 32, shared_kib: 228 },
    Arch { capability: (10, 0), threads: 2048, blocks: 32, shared_kib: 228 },
    Arch { capability: (12, 0), threads: 1536, blocks: 24, shared_kib: 100 },
];
const HOPPER: Arch = ARCHS[4];
static ARCH: OnceLock<Arch> = OnceLock::new();

/// That of the devices.
pub(super) fn arch() -> Arch {
    ARCH.get().copied().unwrap_or(HOPPER)
}

/// Takes the compute capability that is asked for. The driver is set up once, and calls this first.
pub(super) fn choose_arch() -> Result<(), InitError> {
    let name = |arch: &Arch| format!("{}.{}", arch.capability.0, arch.capability.1);
    let Some(value) = env::text(ARCH_VARIABLE)? else { return Ok(()) };
    let Some(arch) = ARCHS.iter().find(|arch| name(arch) == value.trim()) else {
        let allowed = ARCHS.iter().map(name).collect::<Vec<_>>().join(", ");
        return Err(InitError::BadVariable { variable: ARCH_VARIABLE, value, allowed });
    };
    ARCH.get_or_init(|| *arch);
    Ok(())
}

impl Arch {
    /// Shared memory of a multiprocessor.
    pub(super) fn shared_per_multiprocessor(self) -> u32 {
        self.shared_kib << 10
    }

    /// Shared memory of a block with opt-in (`CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`): what the
    /// system does not reserve for a block.
    pub(super) fn shared_opt_in(self) -> u32 {
        self.shared_per_multiprocessor() - self.shared_reserved()
    }

    /// Shared memory that the system reserves for a block.
    pub(super) fn shared_reserved(self) -> u32 {
        if self.capability.0 < 8 { 0 } else { 1 << 10 }
    }

    /// Whether blocks may form clusters.
    fn has_clusters(self) -> bool {
        self.capability.0 >= 9
    }

    /// Most blocks of a cluster: the portable size, or the size with
    /// `CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED`.
    pub(super) fn max_cluster(self, non_portable: bool) -> u32 {
        match (self.has_clusters(), non_portable) {
            (false, _) => 1,
            (true, false) => 8,
            (true, true) => 16,
        }
    }
}

pub(super) const WARP_SIZE: u32 = 32;
pub(super) const MAX_THREADS_PER_BLOCK: u32 = 1024;
pub(super) const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
pub(super) const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
pub(super) const REGISTERS_PER_MULTIPROCESSOR: u32 = 65536;
/// Shared memory of a block without opting in.
pub(super) const SHARED_DEFAULT: u32 = 48 << 10;
/// The result of `cuDriverGetVersion`: CUDA 13.0.
pub(super) const DRIVER_VERSION: c_int = 13000;
/// Least and greatest stream priority. A smaller number means a higher priority.
pub(super) const PRIORITIES: (c_int, c_int) = (0, -5);
const NAME: &CStr = c"Ironwarp software device";
const MAX_PITCH: c_int = i32::MAX;
const CONSTANT_MEMORY: c_int = 64 << 10;
const TEXTURE_ALIGNMENT: c_int = 512;
pub(super) const PITCH_ALIGNMENT: usize = 512;
/// The clock rate that the device reports, in kHz.
const CLOCK: c_int = 1_000_000;

pub(super) struct Device {
    /// The most bytes that all allocations together may take.
    pub memory: usize,
    pub used: usize,
    pub primary: Option<Handle>,
    pub primary_references: usize,
    pub primary_flags: c_uint,
    pub default_pool: Handle,
    pub pool: Handle,
}

impl Device {
    pub(super) fn new(memory: usize, default_pool: Handle) -> Device {
        Device {
            memory,
            used: 0,
            primary: None,
            primary_references: 0,
            primary_flags: 0,
            default_pool,
            pool: default_pool,
        }
    }
}

/// Cores of the machine.
pub(super) fn multiprocessors() -> u32 {
    static COUNT: OnceLock<u32> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u32))
}

impl State {
    /// # Errors
    /// `INVALID_DEVICE` when there is no such device.
    pub(super) fn ordinal(&self, device: c_int) -> Outcome<usize> {
        usize::try_from(device).ok().filter(|&i| i < self.devices.len()).ok_or(code::INVALID_DEVICE)
    }
}

/// The value of `CU_DEVICE_ATTRIBUTE_*` number `attribute`.
fn attribute(ordinal: usize, attribute: u32) -> Outcome<c_int> {
    let value = match attribute {
        1 => MAX_THREADS_PER_BLOCK,
        2..=4 => MAX_BLOCK[attribute as usize - 2],
        5..=7 => MAX_GRID[attribute as usize - 5],
        8 => SHARED_DEFAULT,
        9 => CONSTANT_MEMORY as u32,
        10 => WARP_SIZE,
        11 => MAX_PITCH as u32,
        12 | 82 => REGISTERS_PER_MULTIPROCESSOR,
        13 | 36 => CLOCK as u32,
        14 => TEXTURE_ALIGNMENT as u32,
        16 => multiprocessors(),
        // Features that are supported: mapped host memory, concurrent kernels, unified addressing,
        // priorities, L1 caching (global, local), managed memory, cooperative launch, host registration,
        // memory pools.
        15 | 19 | 31 | 41 | 78 | 79 | 80 | 83 | 89 | 95 | 99 | 115 => 1,
        120 => arch().has_clusters().into(),
        33 => 1 + ordinal as u32, // PCI bus
        37 => 5120,               // bits of the memory bus, as Hopper's: hosts choose kernels by its rate
        38 => 32 << 20,           // L2 cache
        39 => arch().threads,
        40 => 1, // copy engines
        51 => 32,
        75 => arch().capability.0,
        76 => arch().capability.1,
        81 => arch().shared_per_multiprocessor(),
        97 => arch().shared_opt_in(),
        106 => arch().blocks,
        111 => arch().shared_reserved(),
        17..=200 => 0, // known to CUDA, and absent here: textures, virtual memory management, confidential computing, ..
        _ => return Err(code::INVALID_VALUE),
    };
    c_int::try_from(value).map_err(|_| code::INVALID_VALUE)
}

fn properties() -> DeviceProperties {
    let int = |n: u32| c_int::try_from(n).unwrap_or(c_int::MAX);
    DeviceProperties {
        max_threads_per_block: int(MAX_THREADS_PER_BLOCK),
        max_threads_dim: MAX_BLOCK.map(int),
        max_grid_size: MAX_GRID.map(int),
        shared_mem_per_block: int(SHARED_DEFAULT),
        total_constant_memory: CONSTANT_MEMORY,
        simd_width: int(WARP_SIZE),
        mem_pitch: MAX_PITCH,
        regs_per_block: int(REGISTERS_PER_MULTIPROCESSOR),
        clock_rate: CLOCK,
        texture_align: TEXTURE_ALIGNMENT,
    }
}

fn uuid(ordinal: usize) -> Uuid {
    let mut bytes = *b"ironwarp-soft\0\0\0";
    bytes[15] = ordinal as u8;
    Uuid { bytes: bytes.map(|b| b as c_char) }
}

fn bus_id(ordinal: usize) -> String {
    format!("0000:{:02x}:00.0\0", 1 + ordinal)
}

/// Writes `text` (with its NUL), truncated to `room` bytes.
///
/// # Safety
/// `out` is null or valid for writes of `room` bytes.
unsafe fn put_text(out: *mut c_char, room: c_int, text: &[u8]) -> Outcome {
    let room = usize::try_from(room).map_err(|_| code::INVALID_VALUE)?;
    if out.is_null() || room == 0 {
        return Err(code::INVALID_VALUE);
    }
    let length = text.len().min(room);
    // SAFETY: `length` is within both; the caller's buffer cannot overlap this module's constant.
    unsafe {
        core::ptr::copy_nonoverlapping(text.as_ptr().cast(), out, length);
        out.add(length - 1).write(0);
    }
    Ok(())
}

api! {
    fn cuDriverGetVersion(_driver, out: *mut c_int) { put(out, DRIVER_VERSION) }

    fn cuDeviceGetCount(driver, out: *mut c_int) { put(out, driver.devices.len() as c_int) }

    fn cuDeviceGet(driver, out: *mut c_int, ordinal: c_int) {
        driver.ordinal(ordinal)?;
        put(out, ordinal)
    }

    fn cuDeviceGetName(driver, out: *mut c_char, room: c_int, device: c_int) {
        driver.ordinal(device)?;
        put_text(out, room, NAME.to_bytes_with_nul())
    }

    fn cuDeviceGetUuid(driver, out: *mut Uuid, device: c_int) { put(out, uuid(driver.ordinal(device)?)) }

    fn cuDeviceGetUuid_v2(driver, out: *mut Uuid, device: c_int) { put(out, uuid(driver.ordinal(device)?)) }

    fn cuDeviceTotalMem_v2(driver, out: *mut usize, device: c_int) {
        let ordinal = driver.ordinal(device)?;
        put(out, driver.devices[ordinal].memory)
    }

    fn cuDeviceGetAttribute(driver, out: *mut c_int, number: u32, device: c_int) {
        let value = attribute(driver.ordinal(device)?, number)?;
        put(out, value)
    }

    fn cuDeviceComputeCapability(driver, major: *mut c_int, minor: *mut c_int, device: c_int) {
        driver.ordinal(device)?;
        put(major, arch().capability.0 as c_int)?;
        put(minor, arch().capability.1 as c_int)
    }

    fn cuDeviceGetProperties(driver, out: *mut DeviceProperties, device: c_int) {
        driver.ordinal(device)?;
        put(out, properties())
    }

    fn cuDeviceGetPCIBusId(driver, out: *mut c_char, room: c_int, device: c_int) {
        let ordinal = driver.ordinal(device)?;
        put_text(out, room, bus_id(ordinal).as_bytes())
    }

    fn cuDeviceGetByPCIBusId(driver, out: *mut c_int, text: *const c_char) {
        if text.is_null() {
            return Err(code::INVALID_VALUE);
        }
        let wanted = CStr::from_ptr(text).to_bytes_with_nul();
        let found = (0..driver.devices.len()).find(|&i| bus_id(i).as_bytes() == wanted);
        put(out, found.ok_or(code::INVALID_DEVICE)? as c_int)
    }
}
