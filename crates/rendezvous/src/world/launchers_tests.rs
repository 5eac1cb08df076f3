//! Environments as launchers make them, and as they come out wrong.

use super::*;

fn read(variables: &str) -> Result<World, WorldError> {
    let pairs: Vec<_> = variables.split_whitespace().filter_map(|pair| pair.split_once('=')).collect();
    World::from_variables(|name| {
        let found = pairs.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.replace('~', " ").into())
    })
}

/// Rank, size, local rank, node, address, generation.
fn shown(variables: &str) -> String {
    let world = read(variables).unwrap_or_else(|error| panic!("{variables}: {error}"));
    let World { rank, size, local_rank, node, address, generation, launcher, .. } = world;
    format!("{rank}/{size} {local_rank} {node:?} {address} g{generation} {launcher:?}")
}

const IRONWARP: &str = "IRONWARP_RANK=5 IRONWARP_SIZE=8 IRONWARP_LOCAL_RANK=1 IRONWARP_LOCAL_SIZE=4 IRONWARP_NODE=1 \
    IRONWARP_ADDRESS=10.0.0.1:4000 IRONWARP_TOKEN=x IRONWARP_GENERATION=2 RANK=5 WORLD_SIZE=8 LOCAL_RANK=1";
const TORCHRUN: &str = "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 MASTER_ADDR=head \
    MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RESTART_COUNT=1 TORCHELASTIC_RUN_ID=job";
const SLURM: &str = "SLURM_PROCID=9 SLURM_NTASKS=16 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_JOB_ID=77 \
    SLURM_JOB_NODELIST=gpu[07-08]";
const OPENMPI: &str = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 \
    OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_RANK=1 PMIX_NAMESPACE=prterun-1";

#[test]
fn every_launcher_is_understood() {
    assert_eq!(shown(""), "0/1 0 Some(0) 127.0.0.1:0 g0 None");
    assert_eq!(shown(IRONWARP), "5/8 1 Some(1) 10.0.0.1:4000 g2 Ironwarp");
    assert_eq!(shown(TORCHRUN), "3/4 1 Some(1) head:29501 g1 Torch");
    let alone = TORCHRUN.replace("TORCHELASTIC_USE_AGENT_STORE=True", "");
    assert_eq!(shown(&alone), "3/4 1 Some(1) head:29500 g1 Torch");
    // PyTorch's operator: a process a pod.
    let operator =
        "RANK=1 WORLD_SIZE=3 MASTER_ADDR=job-master-0 MASTER_PORT=23456 KUBERNETES_SERVICE_HOST=10.0.0.1";
    assert_eq!(shown(operator), "1/3 0 None job-master-0:23456 g0 Torch");
    let port = port_of("SLURM_JOB_ID 77 ");
    assert_eq!(shown(SLURM), format!("9/16 1 Some(1) gpu07:{port} g0 Slurm"));
    let step = format!("{SLURM} SLURM_STEP_NODELIST=gpu08,gpu09 SLURM_RESTART_COUNT=2 MASTER_PORT=5000");
    assert_eq!(shown(&step), "9/16 1 Some(1) gpu08:5000 g2 Slurm");
    assert!(shown(OPENMPI).starts_with("1/2 1 None 127.0.0.1:2"), "{}", shown(OPENMPI));
    let mpich = "PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 MASTER_ADDR=fe80::1 MASTER_PORT=1";
    assert_eq!(shown(mpich), "2/4 0 None [fe80::1]:1 g0 Mpich");
    // srun with its plugin for PMI2.
    let pmi2 = format!("{SLURM} PMI_RANK=9 PMI_SIZE=16 PMI_JOBID=77.0");
    assert!(shown(&pmi2).starts_with("9/16 1 Some(1) gpu07:"), "{}", shown(&pmi2));
    assert!(shown(&pmi2).ends_with("Slurm"), "{}", shown(&pmi2));
    let pmix = "PMIX_RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2";
    assert!(shown(pmix).starts_with("1/2 1 None 127.0.0.1:"));
    let indexed = "JOB_COMPLETION_INDEX=2 WORLD_SIZE=4 MASTER_ADDR=train-0.train MASTER_PORT=9000";
    assert_eq!(shown(indexed), "2/4 0 None train-0.train:9000 g0 KubernetesJob");
}

#[test]
fn inner_launchers_count() {
    assert!(shown(&format!("{SLURM} {TORCHRUN}")).ends_with("Torch"));
    assert!(shown(&format!("{SLURM} {OPENMPI}")).ends_with("OpenMpi"));
    // mpirun over the nodes of a job: Slurm knows where the first one is.
    let many = OPENMPI.replace("LOCAL_SIZE=2", "LOCAL_SIZE=1").replace("LOCAL_RANK=1", "LOCAL_RANK=0");
    assert!(shown(&format!("{many} SLURM_JOB_NODELIST=a[1-2]")).contains(" a1:"));
}

#[test]
fn only_the_own_launcher_serves() {
    assert!(!read(IRONWARP).unwrap().rank_0_serves);
    assert!(read(TORCHRUN).unwrap().rank_0_serves && read("").unwrap().rank_0_serves);
}

#[test]
fn what_is_wrong_is_said() {
    for (variables, parts) in [
        ("RANK=0", &["RANK is set and WORLD_SIZE is not", "torchrun"][..]),
        ("WORLD_SIZE=2", &["WORLD_SIZE is set", "RANK is not"]),
        ("RANK=0 WORLD_SIZE=2", &["LOCAL_RANK is not"]),
        ("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0", &["MASTER_ADDR is not", "IRONWARP_ADDRESS"]),
        ("RANK=2 WORLD_SIZE=2 LOCAL_RANK=0", &["RANK is 2 and WORLD_SIZE is 2", "below"]),
        ("RANK=0 WORLD_SIZE=0 LOCAL_RANK=0", &["RANK is 0 and WORLD_SIZE is 0"]),
        ("RANK=0 WORLD_SIZE=2 LOCAL_RANK=5", &["LOCAL_RANK is 5 and WORLD_SIZE is 2"]),
        (
            "RANK=0 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=1",
            &["LOCAL_RANK is 1 and LOCAL_WORLD_SIZE is 1"],
        ),
        (
            "RANK=0 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=3",
            &["LOCAL_WORLD_SIZE is 3 and WORLD_SIZE is 2"],
        ),
        ("RANK=-1 WORLD_SIZE=2", &["RANK is \"-1\"", "a number from 0"]),
        ("RANK=1x WORLD_SIZE=2", &["RANK is \"1x\""]),
        ("RANK=99999999999 WORLD_SIZE=2", &["RANK is \"99999999999\""]),
        ("RANK=+1 WORLD_SIZE=2", &["RANK is \"+1\""]),
        ("RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 MASTER_PORT=0", &["MASTER_PORT is \"0\"", "a port from 1"]),
        ("RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 MASTER_PORT=70000", &["MASTER_PORT is \"70000\""]),
        ("RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=a~b", &["MASTER_ADDR is \"a b\""]),
        ("RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 IRONWARP_ADDRESS=a", &["IRONWARP_ADDRESS is \"a\"", "host:port"]),
        ("RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 IRONWARP_TIMEOUT=0", &["IRONWARP_TIMEOUT is \"0\"", "seconds"]),
        ("RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 IRONWARP_TIMEOUT=nan", &["IRONWARP_TIMEOUT"]),
        ("RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 IRONWARP_TIMEOUT=1e99", &["IRONWARP_TIMEOUT"]),
        (
            "IRONWARP_RANK=0 IRONWARP_SIZE=1 IRONWARP_LOCAL_RANK=0",
            &["IRONWARP_ADDRESS is not", "ironwarp launch"],
        ),
        (
            "IRONWARP_RANK=0 IRONWARP_SIZE=2 RANK=1 WORLD_SIZE=2",
            &["IRONWARP_RANK is 0 and RANK is 1", "nested"],
        ),
        ("IRONWARP_RANK=0 IRONWARP_SIZE=2 RANK=0 WORLD_SIZE=4", &["IRONWARP_SIZE is 2 and WORLD_SIZE is 4"]),
        ("SLURM_PROCID=0 SLURM_LOCALID=0", &["SLURM_NTASKS is not", "srun"]),
        ("SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=4", &["MASTER_ADDR is not"]),
        (
            "SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=4 SLURM_JOB_NODELIST=a[1-",
            &["SLURM_JOB_NODELIST", "without `]`"],
        ),
        (
            "SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=4 SLURM_NODEID=2 SLURM_JOB_NODELIST=a[1-2]",
            &["SLURM_NODEID is 2", "a list of 2"],
        ),
        ("JOB_COMPLETION_INDEX=0", &["WORLD_SIZE is not", "completions"]),
        ("JOB_COMPLETION_INDEX=0 WORLD_SIZE=4", &["MASTER_ADDR is not"]),
        ("PMIX_RANK=0", &["PMIX_RANK is set and WORLD_SIZE is not", "PMIx"]),
    ] {
        let error = read(variables).expect_err(variables).to_string();
        for part in parts {
            assert!(error.contains(part), "{variables}: {error}");
        }
    }
}

#[test]
fn numbers_that_contradict_are_found_between_launchers() {
    let error = read(&OPENMPI.replace("PMIX_RANK=1", "PMIX_RANK=0")).unwrap_err().to_string();
    assert!(error.contains("OMPI_COMM_WORLD_RANK is 1 and PMIX_RANK is 0"), "{error}");
    let error = read(&TORCHRUN.replace("29500", "65535")).unwrap_err().to_string();
    assert!(error.contains("below 65535"), "{error}");
}

#[test]
fn text_that_is_none_is_refused() {
    use std::os::unix::ffi::OsStringExt as _;
    let error = World::from_variables(|name| match name {
        "RANK" => Some("0".into()),
        "WORLD_SIZE" => Some(std::ffi::OsString::from_vec(vec![0xff])),
        _ => None,
    });
    assert!(error.unwrap_err().to_string().contains("text in UTF-8"));
}
