//! Where devices are plugged in, from `/sys`.

use std::fs;
use std::path::{Path, PathBuf};

use super::cpus::CpuList;

/// The system's tree of devices.
pub struct Sys {
    root: PathBuf,
}

impl Default for Sys {
    fn default() -> Self {
        Self { root: PathBuf::from("/sys") }
    }
}

/// The bridges from the processor to a device: `pci0000:10`, `0000:10:01.0`, .., and the device itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree(Vec<String>);

impl Tree {
    pub fn from_path(path: &Path) -> Option<Self> {
        let names = path.iter().map(|name| name.to_string_lossy().into_owned());
        let names: Vec<String> = names.skip_while(|name| !name.starts_with("pci")).collect();
        (names.len() >= 2).then_some(Self(names))
    }

    /// The bridge of the processor.
    pub fn root(&self) -> &str {
        &self.0[0]
    }

    /// The switch that the device is plugged into, by the port towards the processor. A device at the
    /// processor's own port has none: between that and the device are at least two more bridges.
    pub fn switch(&self) -> Option<&str> {
        let upstream = self.0.len().checked_sub(3)?;
        (upstream >= 2).then(|| &*self.0[upstream])
    }
}

impl Sys {
    fn device(&self, bus_id: &str) -> PathBuf {
        self.root.join("bus/pci/devices").join(bus_id)
    }

    /// The NUMA node of a device. A machine with one node may say -1.
    pub fn numa_node(&self, bus_id: &str) -> Option<u32> {
        fs::read_to_string(self.device(bus_id).join("numa_node")).ok()?.trim().parse().ok()
    }

    /// The CPUs near a device.
    pub fn cpus_near(&self, bus_id: &str) -> Option<CpuList> {
        let text = fs::read_to_string(self.device(bus_id).join("local_cpulist")).ok()?;
        text.parse().ok().filter(|cpus: &CpuList| !cpus.is_empty())
    }

    /// The way to a device.
    pub fn tree(&self, bus_id: &str) -> Option<Tree> {
        Tree::from_path(&fs::canonicalize(self.device(bus_id)).ok()?)
    }

    /// All CPUs, or those that this process may use if the system does not say.
    pub fn all_cpus(&self) -> CpuList {
        let text = fs::read_to_string(self.root.join("devices/system/cpu/online")).ok();
        let all = text.and_then(|text| text.parse().ok()).filter(|cpus: &CpuList| !cpus.is_empty());
        all.or_else(|| CpuList::allowed().ok()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_a_machine_is_read() {
        let root = std::env::temp_dir().join(format!("ironwarp-sys-{}", std::process::id()));
        let device = root.join("devices/pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0/0000:13:00.0");
        fs::create_dir_all(&device).unwrap();
        fs::write(device.join("numa_node"), "1\n").unwrap();
        fs::write(device.join("local_cpulist"), "4-7\n").unwrap();
        fs::create_dir_all(root.join("bus/pci/devices")).unwrap();
        std::os::unix::fs::symlink(&device, root.join("bus/pci/devices/0000:13:00.0")).unwrap();
        let sys = Sys { root: root.clone() };
        assert_eq!(sys.numa_node("0000:13:00.0"), Some(1));
        assert_eq!(sys.cpus_near("0000:13:00.0").unwrap().to_string(), "4-7");
        let tree = sys.tree("0000:13:00.0").unwrap();
        assert_eq!((tree.root(), tree.switch()), ("pci0000:10", Some("0000:11:00.0")));
        fs::write(device.join("numa_node"), "-1\n").unwrap();
        fs::write(device.join("local_cpulist"), "\n").unwrap();
        assert_eq!((sys.numa_node("0000:13:00.0"), sys.cpus_near("0000:13:00.0")), (None, None));
        assert!(sys.tree("0000:99:00.0").is_none() && sys.numa_node("0000:99:00.0").is_none());
        assert!(!sys.all_cpus().is_empty());
        fs::remove_dir_all(root).unwrap();
    }
}
