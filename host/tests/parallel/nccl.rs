//! The back end through NCCL. The software driver gets a library that works without a GPU (`fake_nccl`); on a
//! machine with GPUs it is the machine's own, as `IRONWARP_NCCL` names it or the loader finds it.

use std::time::{Duration, Instant};

use half::{bf16, f16};
use ironwarp::graph::Graph;
use ironwarp::parallel::{Algorithm, Backend, Communicator, Group, GroupOptions, Reduction, UniqueId};
use ironwarp::tensor::Element;
use ironwarp::{Arch, DType, Device, DeviceBuffer, E4M3, E5M2, Error, ParallelError, Result, Stream, Tensor};

use crate::ranks::{all_end_well, is_rank, joined, start};
use crate::{devices, graphs, sequences};

/// How long errors may take beyond the time limit.
pub const SLACK: Duration = Duration::from_secs(2);
const HOPPER: Arch = Arch { major: 9, minor: 0 };

/// The fake's file: cargo puts it beside the test programs.
fn fake() -> String {
    let program = std::env::current_exe().expect("a program knows where it is");
    program.with_file_name("libfake_nccl.so").to_string_lossy().into_owned()
}

/// The library of the process to come: the fake, unless there is a GPU.
pub fn library() -> String {
    match Device::open(0) {
        Ok(device) if !device.is_software() => std::env::var("IRONWARP_NCCL").unwrap_or_default(),
        _ => fake(),
    }
}

/// Devices on which NCCL works. `None`, and the test is skipped, with less than two, or without NCCL.
pub fn ready(most: u32) -> Result<Option<Vec<Device>>> {
    let Some(devices) = devices(most)? else { return Ok(None) };
    if devices[0].is_software() {
        hand_over_the_driver();
    } else if let Err(error) = UniqueId::new() {
        testkit::skip(&error.to_string());
        return Ok(None);
    }
    Ok(Some(devices))
}

/// Devices on which NCCL may refuse to make ids: the fake alone does.
pub fn without_ids(most: u32) -> Result<Option<Vec<Device>>> {
    let devices = ready(most)?;
    if devices.as_ref().is_some_and(|devices| !devices[0].is_software()) {
        testkit::skip("NVIDIA's NCCL makes ids");
        return Ok(None);
    }
    Ok(devices)
}

/// A library cannot see the driver's functions, which are the program's.
fn hand_over_the_driver() {
    let functions = [
        "cuLaunchHostFunc",
        "cuStreamGetCaptureInfo_v2",
        "cuUserObjectCreate",
        "cuGraphRetainUserObject",
        "cuCtxGetCurrent",
        "cuCtxSetCurrent",
    ]
    .map(|name| driver::proc_address(name).expect("the driver has it").cast());
    // SAFETY: the file is the fake, whose function takes the addresses of these functions of the driver, in
    // this order.
    unsafe {
        let fake = libloading::Library::new(fake()).expect("cargo has built it");
        let hand_over: libloading::Symbol<'_, extern "C" fn(Functions)> =
            fake.get(b"fake_nccl_use\0").expect("the fake has it");
        hand_over(Functions(functions));
        // It stays: threads of it may run until the end.
        std::mem::forget(fake);
    }
}

/// Functions of the driver, as the fake takes them.
#[repr(C)]
struct Functions([*const std::ffi::c_void; 6]);

pub fn options(milliseconds: u64) -> GroupOptions {
    GroupOptions { timeout: Duration::from_millis(milliseconds), backend: Some(Backend::Nccl) }
}

macro_rules! with_nccl {
    ($devices:literal) => {
        testkit::own_process!(
            "IRONWARP_SOFT_DEVICES" = stringify!($devices),
            "NCCL_NVLS_ENABLE" = "0",
            "IRONWARP_NCCL" = &library(),
        )
    };
}
pub(crate) use with_nccl;

#[test]
fn random_sequences_through_nccl() -> Result<()> {
    with_nccl!(4);
    let Some(devices) = ready(4)? else { return Ok(()) };
    for number in 0..4 {
        sequences::round(&devices, number, 5, options(20_000))?;
    }
    Ok(())
}

#[test]
fn graphs_through_nccl_replay() -> Result<()> {
    with_nccl!(3);
    let Some(devices) = ready(3)? else { return Ok(()) };
    graphs::captured(&devices, options(20_000))
}

/// Small whole numbers: every order of adding gives the same.
fn sums_of<T: Element + bytemuck::Pod + Into<f64>>(devices: &[Device], of: fn(f32) -> T) -> Result<()> {
    let ranks = devices.len() as f64;
    let results = Group::with_options(devices, options(20_000))?.run(|mut rank| {
        assert_eq!(rank.backend(), Backend::Nccl);
        assert_eq!(rank.explain(9, T::DTYPE).plan.algorithm, Algorithm::Nccl);
        let stream = rank.device().stream()?;
        let give: Vec<T> = (0..9).map(|i| of((i % 3) as f32 + 2.0 * rank.rank() as f32)).collect();
        let mut all = Vec::new();
        for reduction in [Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::Min] {
            let mut x = DeviceBuffer::from_slice(&stream, &give)?;
            rank.all_reduce(&stream, reduction, &mut x)?;
            rank.synchronize(&stream)?;
            all.push(x.to_vec(&stream)?);
        }
        Ok(all)
    })?;
    for (rank, got) in results.iter().enumerate() {
        for i in 0..9 {
            let first = f64::from(i % 3);
            let sum = ranks * first + ranks * (ranks - 1.0);
            for (got, want) in got.iter().zip([sum, sum / ranks, first + 2.0 * (ranks - 1.0), first]) {
                assert_eq!(got[i as usize].into(), want, "rank {rank}, {}, element {i}", T::DTYPE);
            }
        }
    }
    Ok(())
}

#[test]
fn every_float_through_nccl() -> Result<()> {
    with_nccl!(2);
    let Some(devices) = ready(2)? else { return Ok(()) };
    sums_of::<f32>(&devices, |x| x)?;
    sums_of::<f64>(&devices, f64::from)?;
    sums_of::<f16>(&devices, f16::from_f32)?;
    sums_of::<bf16>(&devices, bf16::from_f32)?;
    // NCCL adds 8-bit floats up on Hopper and later alone.
    if devices[0].is_software() || devices[0].arch() >= HOPPER {
        sums_of::<E4M3>(&devices, E4M3::from_f32)?;
        sums_of::<E5M2>(&devices, E5M2::from_f32)?;
    }
    Ok(())
}

pub fn sum(rank: &mut Communicator, stream: &Stream, count: usize) -> Result<Vec<i32>> {
    let mut x = DeviceBuffer::from_slice(stream, &vec![rank.rank() as i32 + 1; count])?;
    rank.all_reduce(stream, Reduction::Sum, &mut x)?;
    rank.synchronize(stream)?;
    x.to_vec(stream)
}

pub fn parallel<R: std::fmt::Debug>(result: Result<R>) -> ParallelError {
    match result {
        Err(Error::Parallel(error)) => *error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_nccl_it_says_what_to_install() -> Result<()> {
    testkit::own_process!("NCCL_NVLS_ENABLE" = "0", "IRONWARP_NCCL" = "/nowhere/libnccl.so.2");
    let Err(error) = UniqueId::new() else {
        testkit::skip("this machine has NCCL");
        return Ok(());
    };
    let text = error.to_string();
    for part in
        ["/nowhere/libnccl.so.2, libnccl.so.2, libnccl.so", "libnccl2", "pip install", "IRONWARP_NCCL"]
    {
        assert!(text.contains(part), "{text}");
    }
    let device = Device::open(0)?;
    let group = Group::with_options(&[device], options(1000)).err().expect("no NCCL");
    assert!(matches!(group, Error::Parallel(error) if matches!(*error, ParallelError::NoNccl(_))));
    Ok(())
}

#[test]
fn an_old_nccl_is_refused() -> Result<()> {
    testkit::own_process!("NCCL_NVLS_ENABLE" = "0", "IRONWARP_NCCL" = &fake(), "FAKE_NCCL_VERSION" = "22707");
    if !std::path::Path::new(&fake()).exists() {
        testkit::skip("the fake is not beside this program");
        return Ok(());
    }
    let text = UniqueId::new().expect_err("too old").to_string();
    assert!(text.contains("is NCCL 2.27.7; 2.28 or newer is needed"), "{text}");
    Ok(())
}

#[test]
fn another_library_is_refused() -> Result<()> {
    testkit::own_process!("NCCL_NVLS_ENABLE" = "0", "IRONWARP_NCCL" = "libc.so.6");
    let text = UniqueId::new().expect_err("not NCCL").to_string();
    assert!(text.contains("libc.so.6 has no function ncclGetVersion"), "{text}");
    Ok(())
}

#[test]
fn multicast_has_to_be_off() -> Result<()> {
    testkit::own_process!("NCCL_NVLS_ENABLE" = "1", "IRONWARP_NCCL" = &fake());
    let text = UniqueId::new().expect_err("multicast").to_string();
    assert!(text.contains("NCCL_NVLS_ENABLE is 1") && text.contains("set NCCL_NVLS_ENABLE=0"), "{text}");
    Ok(())
}

#[test]
fn wrong_places_are_named() -> Result<()> {
    with_nccl!(2);
    let Some(devices) = ready(2)? else { return Ok(()) };
    let id = UniqueId::new()?;
    let error = Communicator::join_by_id(&devices[0], 2, 2, &id, options(1000)).expect_err("no such rank");
    assert!(matches!(error, Error::InvalidArgument { argument: "the rank", .. }), "{error}");
    let error = UniqueId::from_bytes(&id.as_bytes()[1..]).expect_err("a byte is missing");
    assert!(matches!(error, Error::Length { expected: 128, got: 127, .. }), "{error}");
    // Nobody else comes.
    let begun = Instant::now();
    let error = parallel(Communicator::join_by_id(&devices[0], 0, 2, &id, options(500)));
    assert!(matches!(error, ParallelError::TimedOut { rank: 0, .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_millis(500) + SLACK, "{:?}", begun.elapsed());
    Ok(())
}

/// A process a device: sums, parts, and the end.
#[test]
fn processes_meet_through_nccl() -> Result<()> {
    with_nccl!(3);
    let Some(devices) = ready(3)? else { return Ok(()) };
    if !is_rank() {
        all_end_well("nccl::processes_meet_through_nccl", devices.len(), &[]);
        return Ok(());
    }
    let (client, mut rank) = joined(options(20_000))?;
    let stream = rank.device().stream()?;
    let ranks = rank.ranks() as i32;
    assert_eq!(sum(&mut rank, &stream, 1000)?, vec![ranks * (ranks + 1) / 2; 1000]);
    // Rank 0 alone, the others in reverse order.
    let key = -i64::from(rank.rank());
    let mut part = rank.split(Some(u32::from(rank.rank() > 0)), key)?.expect("a color");
    let wanted = if rank.rank() == 0 { (0, 1) } else { (rank.ranks() - 1 - rank.rank(), rank.ranks() - 1) };
    assert_eq!((part.rank(), part.ranks()), wanted);
    let of_part = part.ranks() as i32;
    assert_eq!(sum(&mut part, &stream, 7)?, vec![of_part * (of_part + 1) / 2; 7]);
    drop((part, rank));
    client.barrier("done").expect("the others come");
    Ok(())
}

/// A process that is killed: the others get an error within the limit.
#[test]
fn a_killed_process_ends_calls_through_nccl() -> Result<()> {
    with_nccl!(2);
    let Some(devices) = ready(2)? else { return Ok(()) };
    if !is_rank() {
        let mut ranks = start("nccl::a_killed_process_ends_calls_through_nccl", devices.len(), &[]);
        let first = ranks[0].wait().expect("a child");
        let last = ranks[1].wait().expect("a child");
        assert!(first.success() && !last.success(), "{first}, {last}");
        return Ok(());
    }
    let (client, mut rank) = joined(options(4000))?;
    let stream = rank.device().stream()?;
    sum(&mut rank, &stream, 10)?;
    if rank.rank() == 1 {
        std::process::abort();
    }
    let begun = Instant::now();
    let error = parallel(sum(&mut rank, &stream, 10));
    assert!(matches!(error, ParallelError::Nccl { .. } | ParallelError::TimedOut { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_millis(4000) + SLACK, "{:?}", begun.elapsed());
    // Leaving the job would wait for rank 1.
    std::mem::forget(client);
    Ok(())
}

/// Sums with what follows them go to the stream that they are given: into a graph, say, and not to the
/// current one.
#[test]
fn scaled_sums_through_nccl_are_captured() -> Result<()> {
    with_nccl!(2);
    let Some(devices) = ready(2)? else { return Ok(()) };
    Group::with_options(&devices, options(20_000))?.run(|rank| {
        let (stream, other) = (rank.device().stream()?, rank.device().stream()?);
        let x = Tensor::from_slice(&stream, &[2], &[2.0f32, 4.0])?;
        let into = Tensor::zeros(&stream, &[2], DType::F32)?;
        let mut graph = Graph::capture(&stream, (rank, x, into), |stream, (rank, x, into)| {
            other.scope(|_| rank.all_reduce_scaled(stream, x, 0.5, into.view_mut()?))
        })?;
        for x in [[2.0f32, 4.0], [1.0, 3.0]] {
            graph.inputs_mut().1.view_mut()?.copy_from_slice(&stream, &x)?;
            graph.replay(&stream)?;
            graph.inputs_mut().0.synchronize(&stream)?;
            let squares = graph.outputs().to_vec::<f32>(&stream)?;
            assert_eq!(graph.inputs().2.to_vec::<f32>(&stream)?, x);
            assert_eq!(squares, [x[0] * x[0] + x[1] * x[1]]);
        }
        Ok(())
    })?;
    Ok(())
}
