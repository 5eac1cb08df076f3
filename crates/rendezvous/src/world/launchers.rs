//! The launchers: which variables each sets, and what they must have in common.

use super::address::Address;
use super::nodes::expand;
use super::variables::{Variables, WorldError};
use super::{Launcher, World, names};
use crate::token::Token;

/// The variables of a launcher that number its processes.
struct Source {
    launcher: Launcher,
    /// Its presence tells the launcher.
    rank: &'static str,
    size: &'static str,
    local_rank: &'static str,
    local_size: Option<&'static str>,
    node: Option<&'static str>,
    fix: &'static str,
}

const SOURCES: &[Source] = &[
    Source {
        launcher: Launcher::Ironwarp,
        rank: names::RANK,
        size: names::SIZE,
        local_rank: names::LOCAL_RANK,
        local_size: Some(names::LOCAL_SIZE),
        node: Some(names::NODE),
        fix: "Start the program with `ironwarp launch`, which sets all of them, or unset them all",
    },
    Source {
        launcher: Launcher::Torch,
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_size: Some("LOCAL_WORLD_SIZE"),
        node: Some("GROUP_RANK"),
        fix: "torchrun and `ironwarp launch` set all of RANK, WORLD_SIZE and LOCAL_RANK: start the program with one of them, or set them by hand",
    },
    Source {
        launcher: Launcher::OpenMpi,
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_size: Some("OMPI_COMM_WORLD_LOCAL_SIZE"),
        node: None,
        fix: "mpirun of OpenMPI sets them: pass them on to the program",
    },
    Source {
        launcher: Launcher::Mpich,
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        local_size: Some("MPI_LOCALNRANKS"),
        node: None,
        fix: "mpiexec of MPICH sets them: pass them on to the program",
    },
    Source {
        launcher: Launcher::Slurm,
        rank: "SLURM_PROCID",
        size: "SLURM_NTASKS",
        local_rank: "SLURM_LOCALID",
        local_size: None,
        node: Some("SLURM_NODEID"),
        fix: "srun sets them: start the program with `srun`, not in the job's script itself",
    },
    Source {
        launcher: Launcher::Pmix,
        rank: "PMIX_RANK",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_size: Some("LOCAL_WORLD_SIZE"),
        node: None,
        fix: "PMIx does not tell it: set WORLD_SIZE and LOCAL_RANK by hand",
    },
    Source {
        launcher: Launcher::KubernetesJob,
        rank: "JOB_COMPLETION_INDEX",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_size: None,
        node: None,
        fix: "Kubernetes does not tell it: set WORLD_SIZE to the job's completions, in its template",
    },
];

/// Names of the same number by different launchers, of which a process may see both: they must agree.
const SAME: &[(&str, &str, &str)] = &[
    (names::RANK, "RANK", "Two launchers are nested. Unset the outer one's variables, or leave it out"),
    (names::SIZE, "WORLD_SIZE", "Two launchers are nested. Unset the outer one's variables, or leave it out"),
    ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "Two MPI launchers are nested. Leave one of them out"),
    ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "Two MPI launchers are nested. Leave one of them out"),
];

/// Texts that are the same on all ranks of a job and on no other: they keep jobs apart.
const JOB_NAMES: &[&str] =
    &["TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "SLURM_JOB_ID"];

/// Ports for jobs whose launcher names none: by a hash of the job's name, below those that systems hand out.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

pub fn world(variables: &Variables<'_>) -> Result<World, WorldError> {
    let Some(source) = source(variables) else { return Ok(World::alone()) };
    check_same(variables)?;
    let size = variables.required(source.size, source.rank, source.fix)?;
    let rank = variables.required(source.rank, source.size, source.fix)?;
    let local_size = source.local_size.map(|name| variables.number(name)).transpose()?.flatten();
    let local_rank = match variables.number(source.local_rank)? {
        Some(local_rank) => local_rank,
        // One process a pod.
        None if source.is_of_kubernetes(variables) => 0,
        None => {
            return Err(WorldError::Missing {
                present: source.rank,
                missing: source.local_rank,
                fix: source.fix,
            });
        }
    };
    let number = |name: &'static str, value: u32| (name, value.to_string());
    let below = |first, second| {
        Err(WorldError::Contradiction {
            first,
            second,
            wanted: "the first below the second",
            fix: source.fix,
        })
    };
    if rank >= size {
        return below(number(source.rank, rank), number(source.size, size));
    }
    if local_rank >= size {
        return below(number(source.local_rank, local_rank), number(source.size, size));
    }
    if let (Some(name), Some(local_size)) = (source.local_size, local_size) {
        if local_rank >= local_size {
            return below(number(source.local_rank, local_rank), number(name, local_size));
        }
        if local_size > size {
            let (first, second) = (number(name, local_size), number(source.size, size));
            let wanted = "the first at most the second";
            return Err(WorldError::Contradiction { first, second, wanted, fix: source.fix });
        }
    }
    let node = source.node.map(|name| variables.number(name)).transpose()?.flatten();
    if let (Some(name), Some(node)) = (source.node, node.filter(|&node| node >= size)) {
        return below(number(name, node), number(source.size, size));
    }
    let one_node = size == 1 || local_size == Some(size);
    Ok(World {
        rank,
        size,
        local_rank,
        local_size,
        node,
        address: address(variables, source, one_node, node)?,
        token: Token::from_text(&token_text(variables)?),
        generation: generation(variables, source)?,
        launcher: source.launcher,
        rank_0_serves: source.launcher != Launcher::Ironwarp,
        timeout: variables.seconds(names::TIMEOUT)?,
        join_timeout: variables.seconds(names::JOIN_TIMEOUT)?,
        records: variables.raw(names::RECORDS).map(Into::into),
    })
}

impl Source {
    fn is_of_kubernetes(&self, variables: &Variables<'_>) -> bool {
        self.launcher == Launcher::KubernetesJob
            || self.launcher == Launcher::Torch && variables.has("KUBERNETES_SERVICE_HOST")
    }

    /// Whether these are MPICH's variables by Slurm's plugin for PMI2, which sets no local rank. Slurm's own
    /// variables have all.
    fn is_of_slurm(&self, variables: &Variables<'_>) -> bool {
        let is_same = |[one, other]: [&str; 2]| variables.raw(one) == variables.raw(other);
        self.launcher == Launcher::Mpich
            && !variables.has(self.local_rank)
            && is_same([self.rank, "SLURM_PROCID"])
            && is_same([self.size, "SLURM_NTASKS"])
    }
}

fn source(variables: &Variables<'_>) -> Option<&'static Source> {
    let numbered = SOURCES.iter().find(|source| variables.has(source.rank) && !source.is_of_slurm(variables));
    // A lone WORLD_SIZE is half of torchrun's pair, unless another launcher needs it.
    let half =
        || SOURCES.iter().find(|source| variables.has(source.size) && source.launcher != Launcher::Slurm);
    numbered.or_else(half)
}

fn check_same(variables: &Variables<'_>) -> Result<(), WorldError> {
    for &(one, other, fix) in SAME {
        let (first, second) = (variables.number(one)?, variables.number(other)?);
        if let (Some(first), Some(second)) = (first, second)
            && first != second
        {
            let (first, second) = ((one, first.to_string()), (other, second.to_string()));
            return Err(WorldError::Contradiction { first, second, wanted: "the same number", fix });
        }
    }
    Ok(())
}

fn address(
    variables: &Variables<'_>,
    source: &Source,
    one_node: bool,
    node: Option<u32>,
) -> Result<Address, WorldError> {
    if let Some(address) = variables.parsed(names::ADDRESS, str::parse::<Address>)? {
        return Ok(address);
    }
    if source.launcher == Launcher::Ironwarp {
        return Err(WorldError::Missing { present: source.rank, missing: names::ADDRESS, fix: source.fix });
    }
    let host = variables.text("MASTER_ADDR")?;
    let port = variables.parsed("MASTER_PORT", |text| {
        text.parse::<u16>().ok().filter(|&port| port > 0).ok_or("a port from 1 to 65535")
    })?;
    let port = match port {
        // torchrun's agent has a store of its own at its port.
        Some(port) if variables.text("TORCHELASTIC_USE_AGENT_STORE")?.as_deref() == Some("True") => {
            Some(port.checked_add(1).ok_or_else(|| WorldError::Malformed {
                variable: "MASTER_PORT",
                got: port.to_string(),
                wanted: "a port below 65535: the store takes the next one".to_owned(),
            })?)
        }
        port => port,
    };
    let host = match host {
        Some(host) => host,
        None => match slurm_host(variables, node)? {
            Some(host) if !one_node => host,
            _ if one_node => "127.0.0.1".to_owned(),
            _ => {
                let fix = "Set MASTER_ADDR and MASTER_PORT, or IRONWARP_ADDRESS, to where rank 0 can be reached, the same for all ranks";
                return Err(WorldError::Missing { present: source.rank, missing: "MASTER_ADDR", fix });
            }
        },
    };
    let port = match port {
        Some(port) => port,
        None => port_of(&token_text(variables)?),
    };
    let (got, wanted) = (format!("{host}:{port}"), "a host's name or number".to_owned());
    let is_number = host.parse::<std::net::IpAddr>().is_ok();
    if is_number || got.parse::<Address>().is_ok() {
        Ok(Address { host, port })
    } else {
        Err(WorldError::Malformed { variable: "MASTER_ADDR", got: host, wanted })
    }
}

/// The first node of the step's list, else of the job's.
fn slurm_host(variables: &Variables<'_>, node: Option<u32>) -> Result<Option<String>, WorldError> {
    for name in ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"] {
        let list = |text: &str| {
            expand(text).map_err(|why| format!("a list of nodes, as in gpu[01-03]; in this one {why}"))
        };
        let Some(nodes) = variables.parsed(name, list)? else { continue };
        if let Some(node) = node.filter(|&node| node as usize >= nodes.len()) {
            return Err(WorldError::Contradiction {
                first: ("SLURM_NODEID", node.to_string()),
                second: (name, format!("a list of {}", nodes.len())),
                wanted: "a place in the list",
                fix: "srun sets both: leave them as they are",
            });
        }
        return Ok(nodes.into_iter().next());
    }
    Ok(None)
}

/// The text that the job's token is made of. Without one of the job's own, its name keeps jobs apart, but is
/// no secret.
fn token_text(variables: &Variables<'_>) -> Result<String, WorldError> {
    if let Some(token) = variables.text(names::TOKEN)? {
        return Ok(token);
    }
    for &name in JOB_NAMES {
        if let Some(job) = variables.text(name)? {
            let step =
                variables.text("SLURM_STEP_ID")?.filter(|_| name == "SLURM_JOB_ID").unwrap_or_default();
            return Ok(format!("{name} {job} {step}"));
        }
    }
    Ok(String::new())
}

fn port_of(job: &str) -> u16 {
    let hash = blake3::hash(job.as_bytes());
    let number = u16::from_le_bytes([hash.as_bytes()[0], hash.as_bytes()[1]]);
    PORTS.start + number % (PORTS.end - PORTS.start)
}

fn generation(variables: &Variables<'_>, source: &Source) -> Result<u32, WorldError> {
    if let Some(generation) = variables.number(names::GENERATION)? {
        return Ok(generation);
    }
    let restarts = match source.launcher {
        Launcher::Torch => "TORCHELASTIC_RESTART_COUNT",
        Launcher::Slurm => "SLURM_RESTART_COUNT",
        _ => return Ok(0),
    };
    Ok(variables.number(restarts)?.unwrap_or(0))
}

#[cfg(test)]
#[path = "launchers_tests.rs"]
mod tests;
