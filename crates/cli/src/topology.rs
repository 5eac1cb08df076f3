//! Shows how the machine's GPUs are connected, and which CPUs are near them.

use driver::Backend;
use driver::topology::{DeviceInfo, LinkKind, Speed, Speeds, Topology};
use serde_json::{Value, json};

use crate::error::Error;
use crate::term;

/// The help of `topology`.
pub const HELP: &str = "
Shows the GPUs that a program sees, how each pair of them is connected, and the CPUs near each. Without an NVIDIA
driver these are the devices of the software driver.

Usage: {program} topology [--json] [--measure]

Options:
  --json      print it as JSON
  --measure   copy between each two of them too, and show how fast that is: of large copies, and of 4 bytes. The
              machine should be idle

Examples:
  {program} topology
  {program} topology --measure
  CUDA_VISIBLE_DEVICES=0,3 {program} topology --json
  IRONWARP_DRIVER=soft IRONWARP_SOFT_DEVICES=4 {program} topology
";

/// The kinds of ways, as the legend explains those that occur.
const LEGEND: &[(&str, &str)] = &[
    ("NV", "NVLink, and how many"),
    ("PIX", "PCIe, by one switch"),
    ("PHB", "PCIe, by several switches or the bridge of one root"),
    ("NODE", "PCIe roots of one NUMA node"),
    ("SYS", "across NUMA nodes, or unknown"),
    ("SOFT", "devices of the software driver"),
    ("*", "no peer access: copies go through the host"),
];

/// Runs the command.
///
/// # Errors
/// For a wrong call, or when the driver does not answer.
pub fn run(mut args: lexopt::Parser) -> Result<(), Error> {
    let (mut as_json, mut is_measured) = (false, false);
    while let Some(arg) = args.next()? {
        match arg {
            lexopt::Arg::Long("json") => as_json = true,
            lexopt::Arg::Long("measure") => is_measured = true,
            other => return Err(other.unexpected().into()),
        }
    }
    let failed = |error| Error::Other(Box::new(error));
    let topology = Topology::find().map_err(failed)?;
    let speeds = if is_measured { Some(topology.measure().map_err(failed)?) } else { None };
    if as_json {
        println!("{:#}", to_json(&topology, speeds.as_ref()));
    } else {
        print!("{}", to_text(&topology));
        speeds.iter().for_each(|speeds| print!("{}", speeds_to_text(&topology, speeds)));
    }
    Ok(())
}

/// The speeds of copies, a table for each.
fn speeds_to_text(topology: &Topology, speeds: &Speeds) -> String {
    let by = match topology.backend {
        Backend::Nvidia { .. } => {
            "copies from the device on the left to the one above, one direction at a time"
        }
        Backend::Software => {
            "copies of this machine's processor, not of a GPU: the software driver's devices are all its memory"
        }
    };
    let bandwidths = matrix(topology, |from, to| {
        speeds.between(from, to).map(|Speed { bandwidth, .. }| format!("{:.1}", bandwidth / 1e9))
    });
    let latencies = matrix(topology, |from, to| {
        speeds.between(from, to).map(|Speed { latency, .. }| format!("{:.1}", latency * 1e6))
    });
    format!("\n{by}\n\nGB/s of large copies\n{bandwidths}\nmicroseconds of a copy of 4 bytes\n{latencies}")
}

/// A table with a row and a column for each device.
fn matrix(topology: &Topology, cell: impl Fn(usize, usize) -> Option<String>) -> String {
    let devices = 0..topology.devices.len();
    let names: Vec<String> = devices.clone().map(|index| format!("GPU{index}")).collect();
    let row = |from: usize| {
        let cells = devices.clone().map(|to| cell(from, to).unwrap_or_default());
        std::iter::once(names[from].clone()).chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = devices.clone().map(row).collect();
    let head: Vec<&str> = std::iter::once("").chain(names.iter().map(String::as_str)).collect();
    term::table(&head, 1, &rows)
}

fn to_text(topology: &Topology) -> String {
    let driver = match topology.backend {
        Backend::Nvidia { version } => {
            format!("NVIDIA's driver, CUDA {}.{}", version / 1000, version % 1000 / 10)
        }
        Backend::Software => "software driver".to_owned(),
    };
    let row = |(index, device): (usize, &DeviceInfo)| {
        let or_dash = |number: Option<u32>| number.map_or("-".to_owned(), |number| number.to_string());
        vec![
            format!("GPU{index}"),
            device.name.clone(),
            device.bus_id.clone(),
            device.cpus.to_string(),
            or_dash(device.numa_node),
            or_dash(device.nvlinks),
            format!("{:.1} GiB", device.memory as f64 / f64::from(1 << 30)),
        ]
    };
    let rows: Vec<Vec<String>> = topology.devices.iter().enumerate().map(row).collect();
    let head = ["", "name", "bus", "CPUs", "NUMA", "NVLinks", "memory"];
    let devices = term::table(&head, 4, &rows);
    let count = topology.devices.len();
    let matrix = matrix(topology, |from, to| link_text(topology, from, to));
    let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
    let links: Vec<String> = pairs.filter_map(|(from, to)| link_text(topology, from, to)).collect();
    let legend = LEGEND.iter().filter(|(mark, _)| {
        links.iter().any(|cell| {
            cell.trim_end_matches('*').trim_end_matches(|c: char| c.is_ascii_digit()) == *mark
                || cell.ends_with('*') && *mark == "*"
        })
    });
    let legend: String = legend.map(|(mark, text)| format!("  {mark:5} {text}\n")).collect();
    let space = if legend.is_empty() { "" } else { "\n" };
    format!("{driver}\n\n{devices}\n{matrix}{space}{legend}")
}

fn link_text(topology: &Topology, from: usize, to: usize) -> Option<String> {
    let link = topology.link(from, to)?;
    Some(format!("{}{}", link.kind, if link.peer_access { "" } else { "*" }))
}

fn to_json(topology: &Topology, speeds: Option<&Speeds>) -> Value {
    let (driver, version) = match topology.backend {
        Backend::Nvidia { version } => ("nvidia", Some(version)),
        Backend::Software => ("soft", None),
    };
    let device = |(index, device): (usize, &DeviceInfo)| {
        json!({
            "device": index,
            "name": device.name,
            "memory": device.memory,
            "bus_id": device.bus_id,
            "numa_node": device.numa_node,
            "cpus": device.cpus.numbers().collect::<Vec<_>>(),
            "nvlinks": device.nvlinks,
        })
    };
    let count = topology.devices.len();
    let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
    let links = pairs.filter_map(|(from, to)| Some((from, to, topology.link(from, to)?)));
    let links = links.filter(|(from, to, _)| from != to).map(|(from, to, link)| {
        let nvlinks = if let LinkKind::NvLink(links) = link.kind { links } else { Some(0) };
        let speed = speeds.and_then(|speeds| speeds.between(from, to));
        json!({
            "from": from,
            "to": to,
            "kind": link.kind.to_string(),
            "nvlinks": nvlinks,
            "peer_access": link.peer_access,
            "atomics": link.atomics,
            "performance_rank": link.performance_rank,
            "bytes_per_second": speed.map(|speed| speed.bandwidth),
            "copy_seconds": speed.map(|speed| speed.latency),
        })
    });
    json!({
        "driver": driver,
        "cuda": version,
        "devices": topology.devices.iter().enumerate().map(device).collect::<Vec<_>>(),
        "links": links.collect::<Vec<_>>(),
    })
}
