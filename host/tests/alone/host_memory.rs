//! A host nearly full: the process may not have more memory.

use std::error::Error as StdError;
use std::io::ErrorKind;

use ironwarp::parallel::checkpoint::{CheckpointError, Checkpoints, save_shard};
use ironwarp::tensor::safetensors::{TensorFile, save};
use ironwarp::{DType, Device, Error, Tensor, TensorError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Elements of one byte.
const LEN: usize = 96 << 20;
/// Bytes that the process may still have: not so many.
const LEFT: u64 = 32 << 20;

/// Bytes of the process's address space.
fn used() -> Result<u64, Box<dyn StdError>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).ok_or("no size")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}

fn buffer_is_refused<T>(result: Result<T, Error>) {
    let error = result.err().expect("there is no memory");
    assert!(matches!(error, Error::HostMemory { bytes: LEN }), "{error}");
    assert!(error.is_recoverable() && error.to_string().contains("hint: "), "{error}");
}

fn is_refused<T>(result: Result<T, Error>, operation: &str) {
    let error = result.err().expect(operation);
    let is_it = |error: &TensorError| matches!(error, TensorError::HostMemory { bytes: LEN, .. });
    assert!(error.tensor_error().is_some_and(is_it), "{operation}: {error}");
    let wanted = format!("{operation}: shape [{LEN}] takes {LEN} bytes");
    assert!(error.to_string().starts_with(&wanted), "{error}");
}

#[test]
fn what_the_host_has_no_memory_for_is_an_error() -> Result<(), Box<dyn StdError>> {
    testkit::own_process!("IRONWARP_SOFT_MEMORY" = "1G");
    let stream = Device::open(0)?.stream()?;
    let x = Tensor::zeros(&stream, &[LEN], DType::U8)?;
    let folder = std::env::temp_dir().join(format!("ironwarp-{}-host-memory", std::process::id()));
    let path = folder.join("x.safetensors");
    std::fs::create_dir_all(&folder)?;
    save(&stream, &path, &[("x", &x)])?;
    let file = TensorFile::open(&path)?;
    let checkpoints = Checkpoints::new(folder.join("checkpoints"));
    let report = save_shard(&stream, &checkpoints, 1, 0, 1, &[("x", &x)])?;
    checkpoints.commit(1, &[report], &Default::default())?;
    let checkpoint = checkpoints.open(1)?;

    let maximum = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current: Some(used()? + LEFT), maximum })?;
    is_refused(x.to_vec::<u8>(&stream), "Tensor::to_vec");
    buffer_is_refused(x.as_view::<u8>()?.to_vec(&stream));
    is_refused(save(&stream, &path, &[("x", &x)]), "safetensors::save");
    is_refused(file.load(&stream, "x"), "TensorFile::load");
    buffer_is_refused(save_shard(&stream, &checkpoints, 2, 0, 1, &[("x", &x)]));
    match checkpoint.read("x", 0..LEN as u64) {
        Err(CheckpointError::Io { source, .. }) => assert_eq!(source.kind(), ErrorKind::OutOfMemory),
        other => panic!("{:?}", other.map(|bytes| bytes.len())),
    }
    // Less of it is there.
    assert_eq!(x.slice(0, LEN - 10..)?.to_vec::<u8>(&stream)?, [0; 10]);
    assert_eq!(checkpoint.read("x", 0..10)?, [0; 10]);
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
