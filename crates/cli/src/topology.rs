//! Shows how the machine's GPUs are connected, and which CPUs are near them.

use driver::Backend;
use driver::topology::{DeviceInfo, LinkKind, Topology};
use serde_json::{Value, json};

use crate::error::Error;
use crate::term;

/// The help of `topology`.
pub const HELP: &str = "
Shows the GPUs that a program sees, how each pair of them is connected, and the CPUs near each. Without an NVIDIA
driver these are the devices of the software driver.

Usage: {program} topology [--json]

Options:
  --json   print it as JSON

Examples:
  {program} topology
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
    let mut as_json = false;
    while let Some(arg) = args.next()? {
        match arg {
            lexopt::Arg::Long("json") => as_json = true,
            other => return Err(other.unexpected().into()),
        }
    }
    let topology = Topology::find().map_err(|error| Error::Other(Box::new(error)))?;
    if as_json {
        println!("{:#}", to_json(&topology));
    } else {
        print!("{}", to_text(&topology));
    }
    Ok(())
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
    let names: Vec<String> = (0..topology.devices.len()).map(|index| format!("GPU{index}")).collect();
    let rows: Vec<Vec<String>> = names
        .iter()
        .enumerate()
        .map(|(from, name)| std::iter::once(name.clone()).chain(cells(topology, from)).collect())
        .collect();
    let head: Vec<&str> = std::iter::once("").chain(names.iter().map(String::as_str)).collect();
    let matrix = term::table(&head, 1, &rows);
    let legend = LEGEND.iter().filter(|(mark, _)| {
        rows.iter().flatten().any(|cell| {
            cell.trim_end_matches('*').trim_end_matches(|c: char| c.is_ascii_digit()) == *mark
                || cell.ends_with('*') && *mark == "*"
        })
    });
    let legend: String = legend.map(|(mark, text)| format!("  {mark:5} {text}\n")).collect();
    let space = if legend.is_empty() { "" } else { "\n" };
    format!("{driver}\n\n{devices}\n{matrix}{space}{legend}")
}

/// The row of a device.
fn cells(topology: &Topology, from: usize) -> Vec<String> {
    let links = (0..topology.devices.len()).filter_map(|to| topology.link(from, to));
    links.map(|link| format!("{}{}", link.kind, if link.peer_access { "" } else { "*" })).collect()
}

fn to_json(topology: &Topology) -> Value {
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
        json!({
            "from": from,
            "to": to,
            "kind": link.kind.to_string(),
            "nvlinks": nvlinks,
            "peer_access": link.peer_access,
            "atomics": link.atomics,
            "performance_rank": link.performance_rank,
        })
    });
    json!({
        "driver": driver,
        "cuda": version,
        "devices": topology.devices.iter().enumerate().map(device).collect::<Vec<_>>(),
        "links": links.collect::<Vec<_>>(),
    })
}
