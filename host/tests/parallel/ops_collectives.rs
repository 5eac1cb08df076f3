//! Every collective against its oracle: element types, operators, counts, unaligned starts, every plan.

use std::error::Error as StdError;

use collective::low_latency::MAX_BYTES;
use half::{bf16, f16};
use ironwarp::ops::fill::fill;
use ironwarp::parallel::{Algorithm, Communicator, Group, Plan, Reduction};
use ironwarp::tensor::Element;
use ironwarp::{DType, Device, DeviceBuffer, E4M3, E5M2, Error, Stream, Tensor};
use reference::{collective as oracle, reduction};
use testkit::tolerance::{COLLECTIVE, COLLECTIVE_F64, Row};
use testkit::{Family, compare, input};

use crate::{devices, groups};

type Outcome = Result<(), Box<dyn StdError>>;

/// Counts around the sizes of lines, units, turns of a block, and beyond what travels with flags.
const COUNTS: [usize; 9] = [0, 1, 3, 8, 63, 1000, 4099, 20_011, 70_000];

/// The buffer that each rank gives.
fn given<T: testkit::Element>(family: Family, ranks: u32, count: usize) -> Vec<Vec<T>> {
    (0..ranks).map(|rank| input(family, u64::from(rank) + 1, count)).collect()
}

/// The same, from an element of the buffer on: `start` others stand before.
fn upload<T: Element + bytemuck::Pod>(
    stream: &Stream,
    start: usize,
    x: &[T],
) -> Result<DeviceBuffer<T>, Error> {
    let mut all = vec![bytemuck::Zeroable::zeroed(); start];
    all.extend_from_slice(x);
    DeviceBuffer::from_slice(stream, &all)
}

/// The result of each rank, from element `start` of a buffer on.
fn reduced<T: Element + bytemuck::Pod>(
    rank: &mut Communicator,
    x: &[T],
    start: usize,
    reduction: Reduction,
    plan: Plan,
) -> Result<Vec<T>, Error> {
    let stream = rank.device().stream()?;
    let mut buffer = upload(&stream, start, x)?;
    rank.all_reduce_with(&stream, reduction, buffer.view_mut().slice_mut(start..)?, plan)?;
    rank.synchronize(&stream)?;
    let mut all = buffer.to_vec(&stream)?;
    assert!(bytemuck::cast_slice::<T, u8>(&all[..start]).iter().all(|&byte| byte == 0), "before the start");
    Ok(all.split_off(start))
}

/// Where the elements of a rank begin in its buffer.
type Start = fn(u32) -> usize;

/// A case: elements of a rank, and the first one's place in its buffer on each rank.
fn cases(ranks: u32) -> Vec<(usize, Start)> {
    // Many devices are slow to simulate.
    let largest = if ranks > 3 { 4099 } else { COUNTS[COUNTS.len() - 1] };
    let aligned = COUNTS.into_iter().map(|count| (count, (|_| 0) as Start));
    let odd = [1, 63, 1000]
        .into_iter()
        .map(|count| (count, (|rank| (rank as usize * 3 + 1) % 5) as fn(u32) -> usize));
    aligned.chain(odd).filter(|&(count, _)| count <= largest).collect()
}

/// All plans, and those by owners with one block too, whose threads have several turns then.
fn plans(rank: &Communicator, count: usize, dtype: DType) -> Vec<Plan> {
    let all = rank.candidates(count, dtype);
    let by_owners = all.iter().filter(|plan| plan.algorithm == Algorithm::Owners && plan.blocks > 1);
    let fewer: Vec<Plan> = by_owners.map(|plan| Plan { blocks: 1, ..*plan }).collect();
    [all, fewer].concat()
}

fn sums_of<T>(families: &[Family], row: &Row) -> Outcome
where
    T: Element + bytemuck::Pod + testkit::Element + Into<f64>,
{
    for devices in groups()? {
        let ranks = devices.len() as u32;
        let results = Group::open(&devices)?.run(|mut rank| {
            let mut results = Vec::new();
            for &family in families {
                let x = given::<T>(family, ranks, COUNTS[COUNTS.len() - 1]);
                for (count, start) in cases(ranks) {
                    for plan in plans(&rank, count, T::DTYPE) {
                        for reduction in [Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::Min] {
                            // The operator is a switch in the same loop: the large counts need one.
                            if count > 63 && reduction != Reduction::Sum {
                                continue;
                            }
                            let (at, mine) = (rank.rank(), &x[rank.rank() as usize][..count]);
                            let got = reduced(&mut rank, mine, start(at), reduction, plan)?;
                            results.push((family, count, plan, reduction, got));
                        }
                    }
                }
            }
            Ok(results)
        })?;
        for (number, (family, count, plan, reduction, first)) in results[0].iter().enumerate() {
            let what = format!("{ranks} ranks, {} x {count}, {family:?}, {reduction:?}: {plan}", T::DTYPE);
            for other in &results[1..] {
                compare::bitwise_equal(&what, &other[number].4, first)?;
            }
            let x: Vec<Vec<T>> = given::<T>(*family, ranks, *count);
            let columns = oracle::columns(&x);
            let sums = reduction::sums(&columns);
            let divided = |values: &[f64]| values.iter().map(|v| v / f64::from(ranks)).collect::<Vec<_>>();
            let limit = row.for_terms(ranks as usize);
            match reduction {
                Reduction::Sum => {
                    compare::rounded(&what, first, &sums.value, &sums.magnitude, &[*count], limit)?
                }
                Reduction::Mean => compare::rounded(
                    &what,
                    first,
                    &divided(&sums.value),
                    &divided(&sums.magnitude),
                    &[*count],
                    limit,
                )?,
                Reduction::Max => compare::elementwise(
                    &what,
                    first,
                    &reduction::maxima(&columns),
                    &[*count],
                    testkit::Tolerance::EXACT,
                )?,
                _ => compare::elementwise(
                    &what,
                    first,
                    &reduction::minima(&columns),
                    &[*count],
                    testkit::Tolerance::EXACT,
                )?,
            };
        }
    }
    Ok(())
}

macro_rules! sums {
    ($($name:ident: $ty:ty, $families:expr, $row:expr;)*) => { $(
        #[test]
        fn $name() -> Outcome {
            testkit::own_process!("IRONWARP_SOFT_DEVICES" = "8");
            sums_of::<$ty>($families, &$row)
        }
    )* };
}

sums! {
    all_reduce_f32: f32, &[Family::Normal, Family::Special], COLLECTIVE;
    all_reduce_f64: f64, &[Family::Cancelling], COLLECTIVE_F64;
    all_reduce_f16: f16, &[Family::Uniform], COLLECTIVE;
    all_reduce_bf16: bf16, &[Family::Cancelling], COLLECTIVE;
    all_reduce_e4m3: E4M3, &[Family::Normal], COLLECTIVE;
    all_reduce_e5m2: E5M2, &[Family::SmallIntegers], COLLECTIVE;
}

/// A rank writes just before its call, while its peer's kernel waits for it already.
#[test]
fn a_late_rank_passes_on_what_it_has_just_written() -> Outcome {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some(devices) = devices(2)? else { return Ok(()) };
    let results = Group::open(&devices)?.run(|mut rank| {
        let (stream, count) = (rank.device().stream()?, 20_011);
        let mut results = Vec::new();
        for plan in rank.candidates(count, DType::F32) {
            let mut x = Tensor::zeros(&stream, &[count], DType::F32)?;
            rank.barrier(&stream)?;
            rank.synchronize(&stream)?;
            if rank.rank() == 0 {
                std::thread::sleep(std::time::Duration::from_millis(200));
                fill(&stream, x.view_mut()?, 2.0f32)?;
            }
            rank.all_reduce_with(&stream, Reduction::Sum, x.view_mut()?, plan)?;
            rank.synchronize(&stream)?;
            results.push(x.to_vec::<f32>(&stream)?);
        }
        Ok(results)
    })?;
    for result in results.into_iter().flatten() {
        assert!(result.iter().all(|&sum| sum == 2.0), "{:?}", result.iter().find(|&&sum| sum != 2.0));
    }
    Ok(())
}

/// Integers: sums wrap around.
#[test]
fn all_reduce_integers() -> Outcome {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "8");
    fn check<T: Element + bytemuck::Pod + Ord + std::fmt::Debug>(
        devices: &[Device],
        value: impl Fn(usize) -> T + Sync,
        plus: fn(T, T) -> T,
    ) -> Outcome {
        let count = 1003;
        let given = |rank: u32| (0..count).map(|i| value(i * 8 + rank as usize)).collect::<Vec<T>>();
        let folded = |f: fn(T, T) -> T| -> Vec<T> {
            let all = (1..devices.len() as u32).map(given);
            all.fold(given(0), |a, b| a.into_iter().zip(b).map(|(a, b)| f(a, b)).collect())
        };
        let results = Group::open(devices)?.run(|mut rank| {
            let x = given(rank.rank());
            let mut results = Vec::new();
            for plan in rank.candidates(count, T::DTYPE) {
                for reduction in [Reduction::Sum, Reduction::Max, Reduction::Min] {
                    results.push(reduced(&mut rank, &x, 0, reduction, plan)?);
                }
            }
            Ok(results)
        })?;
        for of_rank in results {
            for (number, result) in of_rank.into_iter().enumerate() {
                let want = [folded(plus), folded(T::max), folded(T::min)];
                assert_eq!(result, want[number % 3], "{}, {number}", T::DTYPE);
            }
        }
        Ok(())
    }
    for devices in groups()? {
        let mixed = |i: usize| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        check(&devices, |i| mixed(i) as i64, i64::wrapping_add)?;
        check(&devices, |i| mixed(i) as i32, i32::wrapping_add)?;
        check(&devices, |i| mixed(i) as u8, u8::wrapping_add)?;
    }
    Ok(())
}

/// Collectives that move bytes, and the sums that are scattered: a rank's results in order.
fn moved(rank: &mut Communicator, count: usize, start: usize) -> Result<Vec<Vec<bf16>>, Error> {
    let (ranks, me) = (rank.ranks() as usize, rank.rank());
    let stream = rank.device().stream()?;
    let x = &given::<bf16>(Family::Normal, rank.ranks(), count * ranks)[me as usize];
    let whole = upload(&stream, start, x)?;
    let part = upload(&stream, start, &x[..count])?;
    let mut results = Vec::new();
    let zeros = |n: usize| DeviceBuffer::<bf16>::zeroed(&stream, n);

    let mut gathered = zeros(count * ranks)?;
    rank.all_gather(&stream, part.view().slice(start..)?, &mut gathered)?;
    results.push(gathered.to_vec(&stream)?);

    let mut scattered = zeros(count + start)?;
    let own = scattered.view_mut().slice_mut(start..)?;
    rank.reduce_scatter(&stream, Reduction::Sum, whole.view().slice(start..)?, own)?;
    results.push(scattered.slice(start..)?.to_vec(&stream)?);

    let mut exchanged = zeros(count * ranks)?;
    rank.all_to_all(&stream, whole.view().slice(start..)?, &mut exchanged)?;
    results.push(exchanged.to_vec(&stream)?);

    for root in 0..rank.ranks() {
        let mut buffer = upload(&stream, start, x)?;
        rank.broadcast(&stream, root, buffer.view_mut().slice_mut(start..)?)?;
        results.push(buffer.slice(start..)?.to_vec(&stream)?);
    }

    // Around a ring: even ranks send first.
    let (next, previous) = ((me + 1) % rank.ranks(), (me + rank.ranks() - 1) % rank.ranks());
    let mut received = zeros(count)?;
    if me.is_multiple_of(2) {
        rank.send(&stream, next, part.view().slice(start..)?)?;
    }
    rank.receive(&stream, previous, &mut received)?;
    if !me.is_multiple_of(2) {
        rank.send(&stream, next, part.view().slice(start..)?)?;
    }
    results.push(received.to_vec(&stream)?);
    rank.barrier(&stream)?;
    rank.synchronize(&stream)?;
    Ok(results)
}

#[test]
fn collectives_that_move() -> Outcome {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "8");
    for devices in groups()? {
        let ranks = devices.len();
        // Too long to travel with their flags.
        let long = [131_100, 65_541][usize::from(ranks > 2)];
        // An odd ring has two neighbours that send at the same time; the last one then waits for the first.
        for (count, start) in [(1, 0), (8, 0), (999, 1), (4096, 0), (9001, 3), (long, 0)] {
            if ranks > 3 && count > 999 {
                continue;
            }
            let results = Group::open(&devices)?.run(|mut rank| moved(&mut rank, count, start))?;
            let x = given::<bf16>(Family::Normal, ranks as u32, count * ranks);
            let parts: Vec<Vec<bf16>> = x.iter().map(|x| x[..count].to_vec()).collect();
            let sums = reduction::sums(&oracle::columns(&x));
            for (rank, got) in results.iter().enumerate() {
                let what = |name: &str| format!("{name} on rank {rank} of {ranks}, {count} from {start}");
                compare::bitwise_equal(&what("all_gather"), &got[0], &oracle::gathered(&parts))?;
                let mine = rank * count..(rank + 1) * count;
                compare::rounded(
                    &what("reduce_scatter"),
                    &got[1],
                    &sums.value[mine.clone()],
                    &sums.magnitude[mine],
                    &[count],
                    COLLECTIVE.for_terms(ranks),
                )?;
                compare::bitwise_equal(&what("all_to_all"), &got[2], &oracle::exchanged(&x, rank))?;
                for root in 0..ranks {
                    compare::bitwise_equal(&what("broadcast"), &got[3 + root], &x[root])?;
                }
                let previous = &parts[(rank + ranks - 1) % ranks];
                compare::bitwise_equal(&what("receive"), &got[3 + ranks], previous)?;
            }
        }
    }
    Ok(())
}

/// As many bytes as threads need for turns of several units, and then some units more.
#[test]
fn long_all_gathers() -> Outcome {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    const COUNT: usize = 600_016;
    let Some(devices) = devices(2)? else { return Ok(()) };
    let part = |rank: u32| (0..COUNT).map(|at| (at * 7 + at / 253 + rank as usize * 31) as u8).collect();
    let parts: Vec<Vec<u8>> = vec![part(0), part(1)];
    let results = Group::open(&devices)?.run(|mut rank| {
        let stream = rank.device().stream()?;
        let own = DeviceBuffer::from_slice(&stream, &parts[rank.rank() as usize])?;
        let mut all = DeviceBuffer::<u8>::zeroed(&stream, 2 * COUNT)?;
        rank.all_gather(&stream, &own, &mut all)?;
        rank.synchronize(&stream)?;
        all.to_vec(&stream)
    })?;
    assert!(results.iter().all(|got| *got == parts.concat()));
    Ok(())
}

/// A product reads by the copy engine what peers have written.
#[test]
fn products_read_what_peers_wrote() -> Outcome {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    const ROWS: usize = 576;
    const WIDTH: usize = 256;
    let Some(devices) = devices(2)? else { return Ok(()) };
    Group::open(&devices)?.run(|mut rank| {
        let stream = rank.device().stream()?;
        let own = bf16::from_f32((rank.rank() + 1) as f32);
        let x = Tensor::from_slice(&stream, &[ROWS, WIDTH], &[own; ROWS * WIDTH])?;
        let ones = Tensor::from_slice(&stream, &[WIDTH, 64], &[bf16::ONE; WIDTH * 64])?;
        let mut all = Tensor::zeros(&stream, &[2 * ROWS, WIDTH], DType::BF16)?;
        rank.all_gather(&stream, &x, all.view_mut()?)?;
        let gathered = stream.scope(|_| all.matmul(&ones))?;
        rank.all_reduce(&stream, Reduction::Sum, all.view_mut()?)?;
        let summed = stream.scope(|_| all.matmul(&ones))?;
        rank.synchronize(&stream)?;
        for (factor, product) in [(1, gathered), (2, summed)] {
            for (at, got) in product.to_vec::<bf16>(&stream)?.into_iter().enumerate() {
                let want = factor * WIDTH * (at / (ROWS * 64) + 1);
                assert_eq!(got.to_f32(), want as f32, "element {at} behind {factor} ranks");
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// A root is not ahead of its peers by more than its slots hold.
#[test]
fn slow_ranks_miss_no_broadcast() -> Outcome {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "3");
    for devices in groups()? {
        let results = crate::impatient(&devices, 5000)?.run(|mut rank| {
            let stream = rank.device().stream()?;
            if rank.rank() != 0 {
                std::thread::sleep(std::time::Duration::from_millis(300));
            }
            let mut all = Vec::new();
            for number in 1..8 {
                let own = if rank.rank() == 0 { number } else { 0 };
                let mut x = DeviceBuffer::from_slice(&stream, &[own; 5])?;
                rank.broadcast(&stream, 0, &mut x)?;
                if rank.rank() == 0 {
                    rank.synchronize(&stream)?;
                }
                all.push(x);
            }
            rank.synchronize(&stream)?;
            all.iter().map(|x| x.to_vec(&stream)).collect::<Result<Vec<_>, Error>>()
        })?;
        for got in results {
            assert_eq!(got, (1..8).map(|number| vec![number; 5]).collect::<Vec<_>>());
        }
    }
    Ok(())
}

/// Broadcasts of more than a slot holds take two launches between two ranks; small sums come between.
#[test]
fn broadcasts_by_two_launches() -> Outcome {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some(devices) = devices(2)? else { return Ok(()) };
    const COUNTS: [usize; 3] = [MAX_BYTES + 1, 300_003, 2 * MAX_BYTES];
    let number = |root: u32, at: usize| (at * 7 + at / 251 + root as usize * 31) as u8;
    Group::open(&devices)?.run(|mut rank| {
        let (me, stream) = (rank.rank(), rank.device().stream()?);
        let mut one = DeviceBuffer::from_slice(&stream, &[1i32])?;
        for (count, start) in COUNTS.into_iter().zip([0, 3, 16]) {
            for root in 0..2 {
                let own: Vec<u8> = (0..start + count).map(|at| number(me, at)).collect();
                let mut x = DeviceBuffer::from_slice(&stream, &own)?;
                rank.broadcast(&stream, root, x.view_mut().slice_mut(start..)?)?;
                rank.all_reduce(&stream, Reduction::Sum, &mut one)?;
                rank.synchronize(&stream)?;
                for (at, got) in x.to_vec(&stream)?.into_iter().enumerate() {
                    let from = if at < start { me } else { root };
                    assert_eq!(got, number(from, at), "{count} bytes from {start} of rank {root}: byte {at}");
                }
            }
        }
        assert_eq!(one.to_vec(&stream)?, [1 << (2 * COUNTS.len())]);
        Ok(())
    })?;
    Ok(())
}

#[test]
fn tensors_views_and_copies() -> Outcome {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "8");
    for devices in groups()? {
        let ranks = devices.len() as f32;
        let results = Group::open(&devices)?.run(|mut rank| {
            let stream = rank.device().stream()?;
            let x = Tensor::from_slice(&stream, &[2, 3], &[rank.rank() as f32; 6])?;
            let mut y = Tensor::zeros(&stream, &[3, 2], x.dtype())?;
            rank.all_reduce_into(&stream, Reduction::Mean, &x, y.view_mut()?)?;
            rank.all_reduce(&stream, Reduction::Sum, y.view_mut()?)?;
            // Types that only move.
            let mut flags = Tensor::from_slice(&stream, &[2], &[rank.rank() == 0, rank.rank() != 0])?;
            rank.broadcast(&stream, 0, flags.view_mut()?)?;
            rank.synchronize(&stream)?;
            Ok((x.to_vec::<f32>(&stream)?, y.to_vec::<f32>(&stream)?, flags.to_vec::<bool>(&stream)?))
        })?;
        let mean = (ranks - 1.0) / 2.0;
        for (rank, (x, y, flags)) in results.into_iter().enumerate() {
            assert_eq!(x, [rank as f32; 6]);
            assert_eq!(y, [mean * ranks; 6]);
            assert_eq!(flags, [true, false]);
        }
    }
    Ok(())
}

/// Groups of a group: even and odd ranks, in the reverse order.
#[test]
fn groups_split() -> Outcome {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "8");
    for devices in groups()? {
        let results = Group::open(&devices)?.run(|mut rank| {
            let (me, stream) = (rank.rank(), rank.device().stream()?);
            let none = rank.split(None, 0)?;
            let part = rank.split(Some(me % 2), -i64::from(me))?;
            let mut part = part.expect("it has a color");
            let mut x = DeviceBuffer::from_slice(&stream, &[1i32 << me])?;
            part.all_reduce(&stream, Reduction::Sum, &mut x)?;
            let mut all = DeviceBuffer::from_slice(&stream, &[1i32 << me])?;
            rank.all_reduce(&stream, Reduction::Sum, &mut all)?;
            part.synchronize(&stream)?;
            rank.synchronize(&stream)?;
            Ok((none.is_none(), part.rank(), x.to_vec(&stream)?[0], all.to_vec(&stream)?[0]))
        })?;
        let ranks = devices.len() as u32;
        for (me, (was_none, place, sum, all)) in (0..).zip(results) {
            let members: Vec<u32> = (0..ranks).rev().filter(|other| other % 2 == me % 2).collect();
            assert!(was_none);
            assert_eq!(place as usize, members.iter().position(|&other| other == me).expect("itself"));
            assert_eq!(sum, members.iter().map(|other| 1 << other).sum::<i32>());
            assert_eq!(all, (1 << ranks) - 1);
        }
    }
    Ok(())
}

/// Small sums travel with their flags, and every plan has a sentence.
#[test]
fn plans_are_explained() -> Outcome {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "8");
    for devices in groups()? {
        Group::open(&devices)?.run(|rank| {
            let small = rank.explain(256, f32::DTYPE);
            assert_eq!(small.plan.algorithm, Algorithm::LowLatency);
            assert!(small.to_string().contains("with flags"), "{small}");
            assert_eq!(rank.explain(1 << 24, f32::DTYPE).plan.algorithm, Algorithm::Owners);
            assert_eq!(rank.explain(0, f32::DTYPE).plan.algorithm, Algorithm::Local);
            Ok(())
        })?;
    }
    Ok(())
}
