//! Groups over peer memory whose ranks are processes.

use std::time::Duration;

use ironwarp::parallel::{Algorithm, Backend, Communicator, GroupOptions, Reduction};
use ironwarp::{DType, DeviceBuffer, Error, ParallelError, Result, Stream, Tensor, bf16};

use crate::nccl::{library, parallel, ready, sum, with_nccl, without_ids};
use crate::ranks::{all_end_well, is_rank, joined, place};
use crate::{devices, graphs, sequences};

/// More than a stage holds.
const LONG: usize = (16 << 20) + 24;

pub fn options(milliseconds: u64) -> GroupOptions {
    GroupOptions { timeout: Duration::from_millis(milliseconds), backend: Some(Backend::PeerMemory) }
}

/// Every call against the model, in groups and their parts.
#[test]
fn random_sequences_of_processes() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "3");
    let Some(devices) = devices(3)? else { return Ok(()) };
    if !is_rank() {
        all_end_well("processes::random_sequences_of_processes", devices.len(), &[]);
        return Ok(());
    }
    let backend = Some(Backend::PeerMemory);
    let (client, mut rank) = joined(options(20_000))?;
    assert_eq!(rank.backend(), Backend::PeerMemory);
    let (small, large) = (rank.explain(256, DType::F32), rank.explain(1 << 24, DType::F32));
    assert_eq!((small.plan.algorithm, small.reason), (Algorithm::LowLatency, None));
    assert_eq!(large.plan.algorithm, Algorithm::Staged);
    for round in 0..3 {
        let part = rank.split(Some(0), 0)?.expect("a color");
        for played in sequences::rounds_of(part, round, 8, backend)? {
            played.check(backend);
        }
    }
    drop(rank);
    client.barrier("done").expect("the others come");
    Ok(())
}

fn shares(rank: &mut Communicator, stream: &Stream) -> Result<()> {
    let (me, ranks) = (rank.rank() as usize, rank.ranks() as usize);
    // Numbers that say whose they are, and where.
    let number = |rank: usize, at: usize| (at * 7 + rank * 31) as u8;
    let own: Vec<u8> = (0..LONG).map(|at| number(me, at)).collect();
    let x = DeviceBuffer::from_slice(stream, &own)?;
    let mut all = DeviceBuffer::<u8>::zeroed(stream, ranks * LONG)?;
    rank.all_gather(stream, &x, &mut all)?;
    let mut part = DeviceBuffer::<u8>::zeroed(stream, LONG)?;
    rank.reduce_scatter(stream, Reduction::Max, &all, &mut part)?;
    let mut sum = DeviceBuffer::from_slice(stream, &own)?;
    rank.all_reduce(stream, Reduction::Sum, &mut sum)?;
    rank.synchronize(stream)?;
    for (at, got) in all.to_vec(stream)?.into_iter().enumerate() {
        assert_eq!(got, number(at / LONG, at % LONG), "all-gather, byte {at}");
    }
    for (at, got) in part.to_vec(stream)?.into_iter().enumerate() {
        assert_eq!(got, number(me, at), "reduce-scatter, byte {at}");
    }
    for (at, got) in sum.to_vec(stream)?.into_iter().enumerate() {
        let want = (0..ranks).fold(0u8, |sum, rank| sum.wrapping_add(number(rank, at)));
        assert_eq!(got, want, "all-reduce, byte {at}");
    }
    Ok(())
}

/// Buffers that pass through the stages in several pieces, graphs, and sums with what follows them.
#[test]
fn long_buffers_and_graphs_of_processes() -> Result<()> {
    // The checker would take a minute; it looks at the same kernels in the random sequences.
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2", "IRONWARP_CHECK" = "0");
    let Some(devices) = devices(2)? else { return Ok(()) };
    if !is_rank() {
        all_end_well("processes::long_buffers_and_graphs_of_processes", devices.len(), &[]);
        return Ok(());
    }
    let (client, mut rank) = joined(options(60_000))?;
    let stream = rank.device().stream()?;
    shares(&mut rank, &stream)?;
    let x = Tensor::from_slice(&stream, &[2, 8], &[bf16::ONE; 16])?;
    let weight = Tensor::from_slice(&stream, &[8], &[bf16::ONE; 8])?;
    let normed = rank.all_reduce_norm(&stream, &x, &x, &weight, 0.0)?;
    let mut scaled = Tensor::zeros(&stream, &[16], DType::F32)?;
    let squares = rank.all_reduce_scaled(&stream, &x, 0.5, scaled.view_mut()?)?;
    rank.synchronize(&stream)?;
    let sum = normed.sum.expect("it is there").to_vec::<bf16>(&stream)?;
    assert!(sum.iter().all(|x| x.to_f32() == 3.0), "{sum:?}");
    assert_eq!(squares.to_vec::<f32>(&stream)?, [16.0]);
    let ranks = rank.ranks();
    graphs::check(ranks.into(), &graphs::replayed(rank)?);
    client.barrier("done").expect("the others come");
    Ok(())
}

/// A rank that only queues its part, and waits for something else, is not missed.
#[test]
fn processes_need_not_wait_for_their_calls() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some(devices) = devices(2)? else { return Ok(()) };
    if !is_rank() {
        all_end_well("processes::processes_need_not_wait_for_their_calls", devices.len(), &[]);
        return Ok(());
    }
    let (client, mut rank) = joined(options(10_000))?;
    let stream = rank.device().stream()?;
    rank.barrier(&stream)?;
    if rank.rank() == 0 {
        rank.synchronize(&stream)?;
    }
    client.barrier("rank 0 has waited").expect("the others come");
    rank.synchronize(&stream)?;
    drop(rank);
    client.barrier("done").expect("the others come");
    Ok(())
}

/// Calls that NCCL does faster go through it, in order with the rest.
#[test]
fn processes_have_nccl_beside_peer_memory() -> Result<()> {
    with_nccl!(2);
    let Some(devices) = ready(2)? else { return Ok(()) };
    if !is_rank() {
        all_end_well("processes::processes_have_nccl_beside_peer_memory", devices.len(), &[]);
        return Ok(());
    }
    let (client, mut rank) = joined(GroupOptions { backend: None, ..options(20_000) })?;
    let (first, second) = (rank.device().stream()?, rank.device().stream()?);
    const LARGE: usize = 16 << 20;
    assert_eq!(rank.explain(LARGE, DType::I32).plan.algorithm, Algorithm::Nccl);
    assert_eq!(rank.explain(100_000, DType::I32).plan.algorithm, Algorithm::Staged);
    let mut x = DeviceBuffer::from_slice(&first, &vec![rank.rank() as i32 + 1; LARGE])?;
    rank.all_reduce(&first, Reduction::Sum, &mut x)?;
    rank.all_reduce(&second, Reduction::Sum, x.slice_mut(..100_000)?)?;
    rank.all_reduce(&first, Reduction::Sum, &mut x)?;
    rank.synchronize(&first)?;
    let x = x.to_vec(&first)?;
    assert_eq!((x[0], x[99_999], x[100_000], x[LARGE - 1]), (12, 12, 6, 6));
    let mut part = rank.split(Some(0), -i64::from(rank.rank()))?.expect("a color");
    assert_eq!(part.rank(), 1 - rank.rank());
    assert_eq!(part.explain(LARGE, DType::I32).plan.algorithm, Algorithm::Nccl);
    assert_eq!(sum(&mut part, &first, 9)?, [3; 9]);
    drop((part, rank));
    client.barrier("done").expect("the others come");
    Ok(())
}

/// NCCL ends a communicator together with those of the other ranks of the machine: a rank that drops its own,
/// and then does what another rank waits for, must not wait for that rank.
#[test]
fn processes_may_drop_communicators_one_after_the_other() -> Result<()> {
    with_nccl!(2);
    let Some(devices) = ready(2)? else { return Ok(()) };
    if !is_rank() {
        let test = "processes::processes_may_drop_communicators_one_after_the_other";
        all_end_well(test, devices.len(), &[]);
        return Ok(());
    }
    let (client, mut rank) = joined(GroupOptions { backend: None, ..options(20_000) })?;
    let part = rank.split(Some(0), 0)?.expect("a color");
    assert_eq!(part.explain(16 << 20, DType::I32).plan.algorithm, Algorithm::Nccl);
    if rank.rank() == 1 {
        drop(part);
        client.barrier("rank 1 has dropped its part").expect("rank 0 comes");
    } else {
        client.barrier("rank 1 has dropped its part").expect("rank 1 comes");
        drop(part);
    }
    drop(rank);
    client.barrier("done").expect("the others come");
    Ok(())
}

/// A rank whose NCCL makes no id: peer memory does it all, and says why; where NCCL is asked for, the rank's
/// error is NCCL's.
#[test]
fn a_failing_nccl_is_explained() -> Result<()> {
    with_nccl!(2);
    let Some(devices) = without_ids(2)? else { return Ok(()) };
    if !is_rank() {
        all_end_well("processes::a_failing_nccl_is_explained", devices.len(), &[("FAKE_NCCL_IDS", "0")]);
        return Ok(());
    }
    const WHY: &str = "rank 0 has no NCCL: rank 0, UniqueId::new: ";
    let (client, mut rank) = joined(GroupOptions { backend: None, ..options(20_000) })?;
    let explained = rank.explain(16 << 20, DType::I32);
    assert_eq!((explained.plan.algorithm, &explained.reason), (Algorithm::Staged, &None));
    assert!(explained.to_string().contains(&format!("; NCCL is not used: {WHY}")), "{explained}");
    let stream = rank.device().stream()?;
    assert_eq!(sum(&mut rank, &stream, 10)?, [3; 10]);
    let number = rank.rank();
    drop(rank);
    let exchange = |name: &str, own: &[u8]| client.gather(name, own);
    let wanted = GroupOptions { backend: Some(Backend::Nccl), ..options(20_000) };
    let device = &devices[number as usize];
    let error = parallel(Communicator::join(device, number, 2, exchange, wanted));
    match &error {
        ParallelError::Nccl { .. } if number == 0 => {}
        ParallelError::NoPeerMemory { reason, .. } if number == 1 => {
            assert!(reason.contains("NCCL is asked for; and ") && reason.contains(WHY), "{reason}");
        }
        _ => panic!("{error}"),
    }
    client.barrier("done").expect("the others come");
    Ok(())
}

/// The reason why processes do not reach each other's memory is said, and NCCL does it where it may.
#[test]
fn hindrances_are_explained() -> Result<()> {
    with_nccl!(2);
    let Some(devices) = ready(2)? else { return Ok(()) };
    // The driver's code, `CUDA_ERROR_INVALID_HANDLE`, is what a handle from another container gets.
    const CLOSED: (&str, &str) = ("IRONWARP_FAULT", "cuIpcOpenMemHandle_v2:1:400:always");
    if !is_rank() {
        let test = "processes::hindrances_are_explained";
        let variables = [CLOSED, ("WANTED", "cannot be opened: cuIpcOpenMemHandle_v2")];
        all_end_well(test, devices.len(), &variables);
        let variables = [("LOCAL_RANK", "0"), ("WANTED", "ranks 0 and 1 have the same device")];
        all_end_well(test, devices.len(), &variables);
        return Ok(());
    }
    let wanted = std::env::var("WANTED").expect("the test sets it");
    let (world, client, device) = place()?;
    let exchange = |name: &str, own: &[u8]| client.gather(name, own);
    let join = |options| Communicator::join(&device, world.rank, world.size, exchange, options);
    match join(options(5000)) {
        Err(Error::Parallel(error)) if matches!(*error, ParallelError::NoPeerMemory { .. }) => {
            assert!(error.to_string().contains(&wanted), "{error}");
        }
        other => panic!("{other:?}"),
    }
    // NVIDIA's NCCL takes no device twice either.
    if device.is_software() || !wanted.contains("same device") {
        let mut rank = join(GroupOptions { backend: None, ..options(20_000) })?;
        let explained = rank.explain(1000, DType::F32);
        assert_eq!(explained.plan.algorithm, Algorithm::Nccl);
        assert!(explained.to_string().contains(&wanted), "{explained}");
        let stream = device.stream()?;
        assert_eq!(sum(&mut rank, &stream, 10)?, [3; 10]);
    }
    client.barrier("done").expect("the others come");
    Ok(())
}
