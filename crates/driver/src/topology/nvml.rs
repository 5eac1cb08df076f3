//! NVLinks, by NVIDIA's management library. It comes with the driver, and is not always there.

use core::ffi::{c_char, c_uint, c_void};
use std::ffi::CString;

/// The library's file.
const FILE: &str = "libnvidia-ml.so.1";
/// Links that a device can have: the library refuses numbers beyond its own.
const MOST_LINKS: c_uint = 64;
/// `NVML_SUCCESS`.
const SUCCESS: c_uint = 0;

/// Links of some devices.
pub struct Links {
    /// The other end of each link that is up: a device of the list, or something else, such as a switch.
    ends: Vec<Vec<Option<usize>>>,
}

/// `nvmlPciInfo_t`.
#[repr(C)]
struct PciInfo {
    legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    ids: [c_uint; 2],
    text: [c_char; 32],
}

type Handle = *mut c_void;

/// The functions in use.
struct Library {
    by_bus: extern "C" fn(*const c_char, *mut Handle) -> c_uint,
    state: extern "C" fn(Handle, c_uint, *mut c_uint) -> c_uint,
    remote: extern "C" fn(Handle, c_uint, *mut PciInfo) -> c_uint,
    shutdown: extern "C" fn() -> c_uint,
    /// Keeps the functions where they are.
    _library: libloading::Library,
}

impl Library {
    fn open() -> Option<Self> {
        // SAFETY: the initialisers of NVIDIA's library have no preconditions.
        let library = unsafe { libloading::Library::new(FILE) }.ok()?;
        // SAFETY: the types are those of NVML's header for the functions of these names; the library stays
        // open as long as they are used.
        let (init, by_bus, state, remote, shutdown) = unsafe {
            (
                *library.get::<extern "C" fn() -> c_uint>(b"nvmlInit_v2\0").ok()?,
                *library.get(b"nvmlDeviceGetHandleByPciBusId_v2\0").ok()?,
                *library.get(b"nvmlDeviceGetNvLinkState\0").ok()?,
                *library.get(b"nvmlDeviceGetNvLinkRemotePciInfo_v2\0").ok()?,
                *library.get(b"nvmlShutdown\0").ok()?,
            )
        };
        (init() == SUCCESS).then_some(Self { by_bus, state, remote, shutdown, _library: library })
    }

    /// The ends of the links of a device that are up.
    fn ends(&self, bus_id: &str, others: &[&str]) -> Option<Vec<Option<usize>>> {
        let (text, mut handle) = (CString::new(bus_id).ok()?, core::ptr::null_mut());
        if (self.by_bus)(text.as_ptr(), &mut handle) != SUCCESS {
            return None;
        }
        let mut ends = Vec::new();
        for link in 0..MOST_LINKS {
            let mut up = 0;
            if (self.state)(handle, link, &mut up) != SUCCESS {
                break;
            }
            if up == 0 {
                continue;
            }
            let ids = [0; 2];
            let mut info = PciInfo { legacy: [0; 16], domain: 0, bus: 0, device: 0, ids, text: [0; 32] };
            let known = (self.remote)(handle, link, &mut info) == SUCCESS;
            let place = format!("{:04x}:{:02x}:{:02x}.0", info.domain, info.bus, info.device);
            ends.push(others.iter().position(|other| known && *other == place));
        }
        Some(ends)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        (self.shutdown)();
    }
}

/// The links of devices by their places on the bus, if the library is there and knows them.
pub fn links(bus_ids: &[&str]) -> Option<Links> {
    let library = Library::open()?;
    let ends = bus_ids.iter().map(|bus_id| library.ends(bus_id, bus_ids)).collect::<Option<_>>()?;
    Some(Links { ends })
}

impl Links {
    /// Links of a device that are up.
    pub fn up(&self, device: usize) -> u32 {
        self.ends[device].len() as u32
    }

    /// Links that lead from one device to another: directly, or else through switches, with as many links as
    /// both have to them.
    pub fn between(&self, from: usize, to: usize) -> u32 {
        let count =
            |device: usize, end: Option<usize>| self.ends[device].iter().filter(|&&to| to == end).count();
        let direct = count(from, Some(to));
        let switched = count(from, None).min(count(to, None));
        if direct > 0 { direct as u32 } else { switched as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_counted_directly_and_through_switches() {
        let pair = Links { ends: vec![vec![Some(1), Some(1)], vec![Some(0), Some(0)], vec![]] };
        assert_eq!((pair.up(0), pair.between(0, 1), pair.between(1, 0), pair.between(0, 2)), (2, 2, 2, 0));
        let switched = Links { ends: vec![vec![None; 18], vec![None; 16], vec![None; 18]] };
        assert_eq!((switched.between(0, 2), switched.between(0, 1)), (18, 16));
    }
}
