//! How a machine's GPUs are connected, and which CPUs are near them.
//!
//! The driver says which devices there are and which can reach each other's memory, `/sys` where they are
//! plugged in, and NVIDIA's management library, if it is there, how many NVLinks are up.

mod cpus;
mod measure;
mod nvml;
mod pci;

pub use crate::load::Backend;
pub use cpus::{CpuList, pin_thread};
pub use measure::{Speed, Speeds};

use core::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::io;

use crate::load::{InitError, backend, proc_address};
use crate::{code, table::Address};
use pci::{Sys, Tree};

/// Room for a device's name.
const NAME_ROOM: usize = 256;
/// Room for the address of a device on the bus.
const BUS_ROOM: usize = 32;
/// `CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK`.
const PERFORMANCE_RANK: u32 = 1;
/// `CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED`: over NVLink, not over PCIe.
const NATIVE_ATOMICS: u32 = 3;

/// Why the topology cannot be found, or a thread not be pinned.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// No driver could be loaded.
    #[error(transparent)]
    Init(#[from] InitError),
    /// A call of the driver failed.
    #[error("{function} failed with {code} ({})", code::name(*.code).unwrap_or("a code unknown to this program"))]
    Driver {
        /// The call.
        function: &'static str,
        /// Its result.
        code: u32,
    },
    /// There is no such device.
    #[error("no device {device}; there are {count}, from 0")]
    NoDevice {
        /// The number asked for.
        device: usize,
        /// The number of devices.
        count: usize,
    },
    /// This process may not run on any of the CPUs.
    #[error(
        "this process may not run on any of the CPUs {wanted}, only on {allowed}. Give it some of them, with taskset or the container's settings"
    )]
    NotAllowed {
        /// The CPUs.
        wanted: CpuList,
        /// Those that it may use.
        allowed: CpuList,
    },
    /// The system refused to pin a thread.
    #[error("cannot pin a thread to the CPUs {cpus}: {source}")]
    Pin {
        /// The CPUs.
        cpus: CpuList,
        /// Why not.
        source: io::Error,
    },
}

/// The devices of a machine, and how they are connected.
#[derive(Debug, Clone)]
pub struct Topology {
    /// The driver that was asked.
    pub backend: Backend,
    /// The devices that this process sees, in the driver's order.
    pub devices: Vec<DeviceInfo>,
    /// The way from each device (the row) to each other one.
    links: Vec<Link>,
}

/// One device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The model.
    pub name: String,
    /// The memory in bytes.
    pub memory: u64,
    /// Its address on the bus: `0000:1b:00.0`.
    pub bus_id: String,
    /// The node of the machine's memory that is near it, if the system says so.
    pub numa_node: Option<u32>,
    /// The CPUs near it. All of the machine's, if the system does not say which.
    pub cpus: CpuList,
    /// NVLinks that are up, if the management library says so.
    pub nvlinks: Option<u32>,
}

/// The way from one device to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The kind of way.
    pub kind: LinkKind,
    /// Whether kernels of the first device can use the memory of the second.
    pub peer_access: bool,
    /// Whether their atomics work there.
    pub atomics: bool,
    /// The driver's rank of the way's speed: lower is faster.
    pub performance_rank: i32,
}

/// The kind of connection of two devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// They are the same.
    Itself,
    /// NVLink, directly or through switches, with the number of links if it is known.
    NvLink(Option<u32>),
    /// PCIe, by one switch.
    PcieSwitch,
    /// PCIe, by several switches or the host's bridge of one root.
    PcieRoot,
    /// PCIe roots of one NUMA node.
    PcieNode,
    /// Across NUMA nodes, or the system does not say.
    System,
    /// The software driver's devices: the same memory.
    Software,
}

impl fmt::Display for LinkKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Itself => out.write_str("-"),
            Self::NvLink(Some(links)) => write!(out, "NV{links}"),
            Self::NvLink(None) => out.write_str("NV"),
            Self::PcieSwitch => out.write_str("PIX"),
            Self::PcieRoot => out.write_str("PHB"),
            Self::PcieNode => out.write_str("NODE"),
            Self::System => out.write_str("SYS"),
            Self::Software => out.write_str("SOFT"),
        }
    }
}

impl Topology {
    /// Asks the driver and the system. Loads a driver if none is.
    ///
    /// # Errors
    /// [`TopologyError::Init`], [`TopologyError::Driver`]. What the system does not say
    /// is no error.
    pub fn find() -> Result<Self, TopologyError> {
        let (backend, sys) = (backend()?, Sys::default());
        let mut devices = Vec::new();
        for index in 0..device_count()? {
            devices.push(DeviceInfo {
                name: device_text("cuDeviceGetName", index, NAME_ROOM)?,
                memory: device_memory(index)?,
                bus_id: bus_id(index)?,
                numa_node: None,
                cpus: sys.all_cpus(),
                nvlinks: None,
            });
        }
        let mut trees = Vec::new();
        let mut nvlinks = None;
        // The software driver's devices are on no bus.
        if backend != Backend::Software {
            for device in &mut devices {
                device.numa_node = sys.numa_node(&device.bus_id);
                device.cpus = sys.cpus_near(&device.bus_id).unwrap_or_else(|| device.cpus.clone());
                trees.push(sys.tree(&device.bus_id));
            }
            nvlinks = nvml::links(&devices.iter().map(|device| &*device.bus_id).collect::<Vec<_>>());
            for (index, device) in devices.iter_mut().enumerate() {
                device.nvlinks = nvlinks.as_ref().map(|links| links.up(index));
            }
        }
        let mut links = Vec::new();
        for from in 0..devices.len() {
            for to in 0..devices.len() {
                links.push(link(backend, &devices, &trees, nvlinks.as_ref(), from, to)?);
            }
        }
        Ok(Self { backend, devices, links })
    }

    /// The way from one device to another, if there are both.
    pub fn link(&self, from: usize, to: usize) -> Option<&Link> {
        let count = self.devices.len();
        (from < count && to < count).then(|| &self.links[from * count + to])
    }

    /// Whether kernels of every device can use the memory of every other.
    pub fn all_peers(&self) -> bool {
        self.links.iter().all(|link| link.kind == LinkKind::Itself || link.peer_access)
    }

    /// Lets the calling thread run on the CPUs near a device alone, as far as the process may use them.
    /// Returns these.
    ///
    /// # Errors
    /// [`TopologyError::NoDevice`], [`TopologyError::NotAllowed`], [`TopologyError::Pin`].
    pub fn pin_thread_near(&self, device: usize) -> Result<CpuList, TopologyError> {
        let count = self.devices.len();
        let info = self.devices.get(device).ok_or(TopologyError::NoDevice { device, count })?;
        pin_thread(&info.cpus)
    }
}

fn link(
    backend: Backend,
    devices: &[DeviceInfo],
    trees: &[Option<Tree>],
    nvlinks: Option<&nvml::Links>,
    from: usize,
    to: usize,
) -> Result<Link, TopologyError> {
    if from == to {
        return Ok(Link { kind: LinkKind::Itself, peer_access: true, atomics: true, performance_rank: 0 });
    }
    let peer_access = can_access_peer(from, to)?;
    // Without peer access there is no rank, and some drivers fail to say so.
    let attribute = |number| peer_attribute(number, from, to).unwrap_or(0);
    let (atomics, performance_rank) = (attribute(NATIVE_ATOMICS) != 0, attribute(PERFORMANCE_RANK));
    let kind = match nvlinks.map_or(0, |links| links.between(from, to)) {
        _ if backend == Backend::Software => LinkKind::Software,
        0 if atomics && peer_access => LinkKind::NvLink(None),
        0 => pcie(&devices[from], &devices[to], trees[from].as_ref(), trees[to].as_ref()),
        links => LinkKind::NvLink(Some(links)),
    };
    Ok(Link { kind, peer_access, atomics, performance_rank })
}

fn pcie(from: &DeviceInfo, to: &DeviceInfo, one: Option<&Tree>, other: Option<&Tree>) -> LinkKind {
    match (one, other) {
        (Some(one), Some(other)) if one.switch().is_some() && one.switch() == other.switch() => {
            LinkKind::PcieSwitch
        }
        (Some(one), Some(other)) if one.root() == other.root() => LinkKind::PcieRoot,
        _ if from.numa_node.is_some() && from.numa_node == to.numa_node => LinkKind::PcieNode,
        _ => LinkKind::System,
    }
}

/// The address of a driver function.
fn function(name: &'static str) -> Result<Address, TopologyError> {
    proc_address(name).ok_or(TopologyError::Driver { function: name, code: code::NOT_SUPPORTED })
}

fn checked(function: &'static str, code: u32) -> Result<(), TopologyError> {
    if code == code::SUCCESS { Ok(()) } else { Err(TopologyError::Driver { function, code }) }
}

fn device_count() -> Result<usize, TopologyError> {
    let (name, mut count) = ("cuDeviceGetCount", 0);
    // SAFETY: the type is CUDA's for the function of that name.
    let get: extern "C" fn(*mut c_int) -> u32 = unsafe { core::mem::transmute(function(name)?) };
    checked(name, get(&mut count))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// A text about a device, by a function that takes room for it.
fn device_text(name: &'static str, index: usize, room: usize) -> Result<String, TopologyError> {
    let mut text: Vec<c_char> = vec![0; room];
    // SAFETY: the type is CUDA's for the functions that callers name.
    let get: extern "C" fn(*mut c_char, c_int, c_int) -> u32 =
        unsafe { core::mem::transmute(function(name)?) };
    checked(name, get(text.as_mut_ptr(), room as c_int - 1, index as c_int))?;
    // SAFETY: the function writes less than `room` bytes, so that the text ends in a zero.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) };
    Ok(text.to_string_lossy().into_owned())
}

fn bus_id(index: usize) -> Result<String, TopologyError> {
    // Folders of /sys have small letters.
    Ok(device_text("cuDeviceGetPCIBusId", index, BUS_ROOM)?.to_ascii_lowercase())
}

fn device_memory(index: usize) -> Result<u64, TopologyError> {
    let (name, mut bytes) = ("cuDeviceTotalMem_v2", 0_usize);
    // SAFETY: the type is CUDA's for the function of that name.
    let get: extern "C" fn(*mut usize, c_int) -> u32 = unsafe { core::mem::transmute(function(name)?) };
    checked(name, get(&mut bytes, index as c_int))?;
    Ok(bytes as u64)
}

fn can_access_peer(from: usize, to: usize) -> Result<bool, TopologyError> {
    let (name, mut can) = ("cuDeviceCanAccessPeer", 0);
    // SAFETY: the type is CUDA's for the function of that name.
    let get: extern "C" fn(*mut c_int, c_int, c_int) -> u32 =
        unsafe { core::mem::transmute(function(name)?) };
    checked(name, get(&mut can, from as c_int, to as c_int))?;
    Ok(can != 0)
}

fn peer_attribute(attribute: u32, from: usize, to: usize) -> Result<i32, TopologyError> {
    let (name, mut value) = ("cuDeviceGetP2PAttribute", 0);
    // SAFETY: the type is CUDA's for the function of that name.
    let get: extern "C" fn(*mut c_int, u32, c_int, c_int) -> u32 =
        unsafe { core::mem::transmute(function(name)?) };
    checked(name, get(&mut value, attribute, from as c_int, to as c_int))?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(numa_node: Option<u32>) -> DeviceInfo {
        let cpus = CpuList::from_numbers([0]);
        DeviceInfo { name: String::new(), memory: 0, bus_id: String::new(), numa_node, cpus, nvlinks: None }
    }

    #[test]
    fn the_software_drivers_devices_are_found_and_threads_pinned() -> Result<(), TopologyError> {
        testkit::own_process!("IRONWARP_DRIVER" = "soft", "IRONWARP_SOFT_DEVICES" = "2");
        let topology = Topology::find()?;
        assert_eq!((topology.backend, topology.devices.len()), (Backend::Software, 2));
        assert!(topology.devices[1].memory > 0 && topology.devices[1].bus_id == "0000:02:00.0");
        let link = topology.link(0, 1).unwrap();
        assert_eq!((link.kind, link.peer_access, topology.all_peers()), (LinkKind::Software, true, true));
        assert_eq!(topology.link(1, 1).unwrap().kind, LinkKind::Itself);
        assert!(topology.link(0, 2).is_none() && topology.link(2, 0).is_none());
        let speeds = topology.measure()?;
        for (from, to) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let speed = speeds.between(from, to).unwrap();
            // A processor copies more than 10 MB a second, and a few bytes in less than a second.
            assert!(speed.bandwidth > 1e7 && (1e-9..1.0).contains(&speed.latency), "{speed:?}");
        }
        assert!(speeds.between(0, 2).is_none() && speeds.between(2, 0).is_none());
        assert_eq!(topology.pin_thread_near(1)?, CpuList::allowed()?);
        let none = topology.pin_thread_near(2).unwrap_err();
        assert_eq!(none.to_string(), "no device 2; there are 2, from 0");
        Ok(())
    }

    #[test]
    fn ways_over_pcie_are_told_apart() {
        let tree = |path: &str| Tree::from_path(std::path::Path::new(path));
        let switch =
            tree("/sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0/0000:13:00.0").unwrap();
        let beside =
            tree("/sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:01.0/0000:14:00.0").unwrap();
        let port = tree("/sys/devices/pci0000:10/0000:10:02.0/0000:15:00.0").unwrap();
        let other = tree("/sys/devices/pci0000:20/0000:20:01.0/0000:21:00.0").unwrap();
        let kind =
            |a, b, nodes: [Option<u32>; 2]| pcie(&device(nodes[0]), &device(nodes[1]), Some(a), Some(b));
        assert_eq!(kind(&switch, &beside, [None; 2]), LinkKind::PcieSwitch);
        assert_eq!(kind(&switch, &port, [None; 2]), LinkKind::PcieRoot);
        assert_eq!(kind(&port, &other, [Some(0); 2]), LinkKind::PcieNode);
        assert_eq!(kind(&port, &other, [Some(0), Some(1)]), LinkKind::System);
        assert_eq!(kind(&port, &other, [None; 2]), LinkKind::System);
        assert_eq!(pcie(&device(None), &device(None), None, None), LinkKind::System);
    }
}
