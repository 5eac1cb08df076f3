//! Who this process is, from the variables of its launcher.

mod address;
mod launchers;
mod nodes;
mod variables;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub use address::Address;
pub use nodes::{MAX_NODES, expand};
pub use variables::WorldError;

use crate::token::Token;
use variables::Variables;

/// The variables that `ironwarp launch` sets.
pub mod names {
    /// This process, from 0.
    pub const RANK: &str = "IRONWARP_RANK";
    /// The number of processes.
    pub const SIZE: &str = "IRONWARP_SIZE";
    /// This process among those of its node, from 0.
    pub const LOCAL_RANK: &str = "IRONWARP_LOCAL_RANK";
    /// The number of processes of this node.
    pub const LOCAL_SIZE: &str = "IRONWARP_LOCAL_SIZE";
    /// This node, from 0.
    pub const NODE: &str = "IRONWARP_NODE";
    /// Where the store is: `host:port`.
    pub const ADDRESS: &str = "IRONWARP_ADDRESS";
    /// The job's secret.
    pub const TOKEN: &str = "IRONWARP_TOKEN";
    /// Which start of the job it is, from 0.
    pub const GENERATION: &str = "IRONWARP_GENERATION";
    /// How long a rank may be silent and an operation may take, in seconds.
    pub const TIMEOUT: &str = "IRONWARP_TIMEOUT";
    /// How long ranks wait for each other at the beginning, in seconds.
    pub const JOIN_TIMEOUT: &str = "IRONWARP_JOIN_TIMEOUT";
    /// The folder for flight records.
    pub const RECORDS: &str = "IRONWARP_RECORDS";
}

/// Who this process is, and how it meets the others.
#[derive(Debug, Clone)]
pub struct World {
    /// This process, from 0.
    pub rank: u32,
    /// The number of processes.
    pub size: u32,
    /// This process among those of its node, from 0: the number of its GPU.
    pub local_rank: u32,
    /// The number of processes of this node, where the launcher says it.
    pub local_size: Option<u32>,
    /// This node, from 0, where the launcher says it.
    pub node: Option<u32>,
    /// Where the store is.
    pub address: Address,
    /// The job's secret.
    pub token: Token,
    /// Which start of the job it is, from 0. Stores let no process of another one in.
    pub generation: u32,
    /// Who started this process.
    pub launcher: Launcher,
    /// Whether rank 0 serves the store. `ironwarp launch` does it itself.
    pub rank_0_serves: bool,
    /// The launcher's limit for silence and operations.
    pub timeout: Option<Duration>,
    /// The launcher's limit for joining.
    pub join_timeout: Option<Duration>,
    /// The launcher's folder for flight records.
    pub records: Option<PathBuf>,
}

/// Who started this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// Nobody: the only process of its job.
    None,
    /// `ironwarp launch`.
    Ironwarp,
    /// torchrun, PyTorch's operator for Kubernetes, or anything that sets `RANK` and `WORLD_SIZE`.
    Torch,
    /// OpenMPI, or the MPI operator for Kubernetes with it.
    OpenMpi,
    /// MPICH, Intel MPI, or another that speaks PMI.
    Mpich,
    /// A launcher that speaks PMIx alone.
    Pmix,
    /// `srun`.
    Slurm,
    /// An indexed job of Kubernetes.
    KubernetesJob,
}

impl World {
    /// Who this process is, from its environment. Without the variables of any launcher it is the only
    /// process of its job.
    ///
    /// | launcher | variables |
    /// |---|---|
    /// | `ironwarp launch` | `IRONWARP_RANK` and those beside it |
    /// | torchrun, PyTorch's operator | `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `GROUP_RANK`, `TORCHELASTIC_*` |
    /// | OpenMPI | `OMPI_COMM_WORLD_RANK`, `_SIZE`, `_LOCAL_RANK`, `_LOCAL_SIZE` |
    /// | MPICH, Intel MPI | `PMI_RANK`, `PMI_SIZE`, `MPI_LOCALRANKID`, `MPI_LOCALNRANKS` |
    /// | Slurm | `SLURM_PROCID`, `SLURM_NTASKS`, `SLURM_LOCALID`, `SLURM_NODEID`, `SLURM_JOB_NODELIST` |
    /// | PMIx | `PMIX_RANK`, with `WORLD_SIZE` and `LOCAL_RANK` |
    /// | an indexed job of Kubernetes | `JOB_COMPLETION_INDEX`, with `WORLD_SIZE` and `MASTER_ADDR` |
    ///
    /// Of several launchers the one that is further up counts. The store is at `IRONWARP_ADDRESS`, else at
    /// `MASTER_ADDR` and `MASTER_PORT` (one port further where torchrun's agent has a store of its own), else
    /// on the first node of Slurm's list, else on this machine, if all ranks are here.
    ///
    /// # Errors
    /// [`WorldError`]: a variable that is missing, does not parse, or contradicts another one.
    pub fn from_env() -> Result<Self, WorldError> {
        Self::from_variables(|name| std::env::var_os(name))
    }

    /// [`from_env`](Self::from_env) with the variables from a function.
    ///
    /// # Errors
    /// The same.
    pub fn from_variables(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, WorldError> {
        launchers::world(&Variables::new(&lookup))
    }

    /// The only process of its job.
    pub fn alone() -> Self {
        Self {
            rank: 0,
            size: 1,
            local_rank: 0,
            local_size: Some(1),
            node: Some(0),
            address: Address { host: "127.0.0.1".to_owned(), port: 0 },
            token: Token::from_text(""),
            generation: 0,
            launcher: Launcher::None,
            rank_0_serves: true,
            timeout: None,
            join_timeout: None,
            records: None,
        }
    }
}
