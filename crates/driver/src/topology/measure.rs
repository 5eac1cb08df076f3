//! How fast devices copy to each other.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;
use std::time::{Duration, Instant};

use super::{Topology, TopologyError, checked, function};
use crate::code;

/// Bytes of a copy for the bandwidth: enough that beginning it does not count.
const LARGE: usize = 32 << 20;
/// Bytes of a copy for the latency.
const SMALL: usize = 4;
/// Copies are queued in ever longer rows, until one takes so long that its end on the host does not count.
const LONG_ENOUGH: Duration = Duration::from_millis(5);
/// Longest row: the queue of a stream has room for it.
const MOST_COPIES: u32 = 1 << 9;

/// The speed of copies from one device to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Bytes a second of large copies, one behind the other.
    pub bandwidth: f64,
    /// Seconds that a copy of four bytes takes, one behind the other.
    pub latency: f64,
}

/// The speed of copies between each two devices, in one direction at a time.
#[derive(Debug, Clone)]
pub struct Speeds {
    devices: usize,
    pairs: Vec<Speed>,
}

impl Speeds {
    /// From one device to another, or to itself, if there are both.
    pub fn between(&self, from: usize, to: usize) -> Option<Speed> {
        (from < self.devices && to < self.devices).then(|| self.pairs[from * self.devices + to])
    }
}

impl Topology {
    /// Measures copies between each two devices, one pair after the other. They go over the devices' links
    /// where these can reach each other's memory, through the host's memory where not. On the software driver
    /// they are copies of the processor's.
    ///
    /// Takes 64 MiB on each device, and some 20 ms a pair. Meant for machines that are idle.
    ///
    /// # Errors
    /// [`TopologyError::Driver`].
    pub fn measure(&self) -> Result<Speeds, TopologyError> {
        // On a thread of its own, which has a context of its own.
        let measured = std::thread::scope(|scope| scope.spawn(|| self.measure_here()).join());
        measured.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn measure_here(&self) -> Result<Speeds, TopologyError> {
        let devices = self.devices.len();
        let sides = (0..devices).map(Side::open).collect::<Result<Vec<_>, _>>()?;
        let mut pairs = Vec::new();
        for from in 0..devices {
            for to in 0..devices {
                if from != to && self.link(from, to).is_some_and(|link| link.peer_access) {
                    sides[from].reach(&sides[to])?;
                }
                let large = sides[from].seconds_a_copy(&sides[to], LARGE)?;
                let latency = sides[from].seconds_a_copy(&sides[to], SMALL)?;
                pairs.push(Speed { bandwidth: LARGE as f64 / large, latency });
            }
        }
        Ok(Speeds { devices, pairs })
    }
}

/// Calls a function of the driver with arguments of these types, and makes its code a result.
macro_rules! call {
    ($name:literal, $($argument:expr => $type:ty),*) => {
        function($name).and_then(|address| {
            // SAFETY: the types are CUDA's for the function of that name.
            let call: unsafe extern "C" fn($($type),*) -> u32 = unsafe { core::mem::transmute(address) };
            // SAFETY: places to write to are live; handles and memory belong to a `Side` that is alive.
            checked($name, unsafe { call($($argument),*) })
        })
    };
}

/// A device with memory to copy from and to.
struct Side {
    device: c_int,
    context: *mut c_void,
    stream: *mut c_void,
    from: u64,
    to: u64,
}

impl Side {
    fn open(device: usize) -> Result<Self, TopologyError> {
        let mut side = Side {
            device: device as c_int,
            context: ptr::null_mut(),
            stream: ptr::null_mut(),
            from: 0,
            to: 0,
        };
        call!("cuDevicePrimaryCtxRetain", &mut side.context => *mut *mut c_void, side.device => c_int)?;
        // From here on dropping it gives everything back.
        side.enter()?;
        call!("cuStreamCreate", &mut side.stream => *mut *mut c_void, 0 => c_uint)?;
        for memory in [&mut side.from, &mut side.to] {
            call!("cuMemAlloc_v2", memory => *mut u64, LARGE => usize)?;
            call!("cuMemsetD8_v2", *memory => u64, 0 => u8, LARGE => usize)?;
        }
        Ok(side)
    }

    fn enter(&self) -> Result<(), TopologyError> {
        call!("cuCtxSetCurrent", self.context => *mut c_void)
    }

    fn reach(&self, peer: &Side) -> Result<(), TopologyError> {
        self.enter()?;
        match call!("cuCtxEnablePeerAccess", peer.context => *mut c_void, 0 => c_uint) {
            Err(TopologyError::Driver { code: code::PEER_ACCESS_ALREADY_ENABLED, .. }) => Ok(()),
            result => result,
        }
    }

    /// Seconds that a copy takes, one behind the other.
    fn seconds_a_copy(&self, to: &Side, bytes: usize) -> Result<f64, TopologyError> {
        self.enter()?;
        // The first copy may have to set something up.
        self.row(to, bytes, 1)?;
        let mut copies = 1;
        loop {
            let took = self.row(to, bytes, copies)?;
            if took >= LONG_ENOUGH || copies == MOST_COPIES {
                return Ok(took.as_secs_f64() / f64::from(copies));
            }
            copies *= 2;
        }
    }

    /// How long so many copies take.
    fn row(&self, to: &Side, bytes: usize, copies: u32) -> Result<Duration, TopologyError> {
        let begun = Instant::now();
        for _ in 0..copies {
            call!(
                "cuMemcpyPeerAsync",
                to.to => u64, to.context => *mut c_void, self.from => u64, self.context => *mut c_void,
                bytes => usize, self.stream => *mut c_void
            )?;
        }
        call!("cuStreamSynchronize", self.stream => *mut c_void)?;
        Ok(begun.elapsed())
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // A drop cannot return an error; what a driver in trouble does not take back goes with the process.
        let _ = self.enter();
        for memory in [self.from, self.to].into_iter().filter(|&memory| memory != 0) {
            let _ = call!("cuMemFree_v2", memory => u64);
        }
        if !self.stream.is_null() {
            let _ = call!("cuStreamDestroy_v2", self.stream => *mut c_void);
        }
        let _ = call!("cuDevicePrimaryCtxRelease_v2", self.device => c_int);
    }
}
