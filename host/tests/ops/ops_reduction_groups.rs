//! Rows taken by groups of every size: which one an op chooses depends on how many rows there are. On
//! whichever driver is there.

use ironwarp::{Device, DeviceBuffer, Error, LaunchConfig, Stream, launch};
use reference::reduction as oracle;
use std::error::Error as StdError;
use tensor::THREADS;
use tensor::reduce::arg::{Extreme, arg_rows_f32};
use tensor::reduce::fold::{Finish, Fold, Kind, fold_rows_f32};
use tensor::reduce::rows::Rows;
use testkit::{Family, compare, input, tolerance};

/// Rows of each launch: more than one block has, of the smaller groups.
const ROWS: usize = 11;

fn plan(columns: usize, shift: u32) -> Rows {
    Rows { rows: ROWS as u64, columns: columns as u64, chunk: columns as u64, chunks: 1, shift }
}

fn config(plan: &Rows) -> Result<LaunchConfig, Error> {
    let blocks = u32::try_from(plan.blocks()).expect("few");
    Ok(LaunchConfig::new([blocks, 1, 1], [THREADS, 1, 1]))
}

fn reduced(stream: &Stream, kind: Kind, plan: Rows, x: &DeviceBuffer<f32>) -> Result<Vec<f32>, Error> {
    let y = DeviceBuffer::<f32>::zeroed(stream, ROWS)?;
    let fold = Fold { kind, finish: Finish::Nothing };
    // SAFETY: x holds the plan's rows, y a place for each.
    unsafe { launch::<fold_rows_f32>(stream, config(&plan)?, (fold, plan, 1.0, x.as_ptr(), y.as_ptr()))? };
    y.to_vec(stream)
}

fn places(stream: &Stream, extreme: Extreme, plan: Rows, x: &DeviceBuffer<f32>) -> Result<Vec<i64>, Error> {
    let y = DeviceBuffer::<i64>::zeroed(stream, ROWS)?;
    // SAFETY: x holds the plan's rows, y a place for each; there are no candidates.
    unsafe {
        let none = ironwarp::DevicePtr::<i64>::null();
        let arguments = (extreme, plan, plan.columns, x.as_ptr(), none, y.as_ptr());
        launch::<arg_rows_f32>(stream, config(&plan)?, arguments)?;
    }
    y.to_vec(stream)
}

#[test]
fn groups_of_every_size_reduce_alike() -> Result<(), Box<dyn StdError>> {
    let stream = Device::open(0)?.stream()?;
    for family in [Family::Normal, Family::SmallIntegers, Family::Special] {
        // Fewer elements than threads, units for some threads only, and for each thread five and a rest.
        for columns in [3, 130, 1100, 5 * 4 * THREADS as usize + 7] {
            let x: Vec<f32> = input(family, columns as u64, ROWS * columns);
            let device = DeviceBuffer::from_slice(&stream, &x)?;
            let groups = oracle::groups(&x, &[ROWS, columns], &[1]);
            let negative: Vec<Vec<f64>> =
                groups.iter().map(|group| group.iter().map(|&v| -f64::from(v)).collect()).collect();
            let sums = oracle::sums(&groups);
            for shift in [0, 5, 6, 7, 8] {
                let (plan, what) = (plan(columns, shift), format!("{family:?}, {columns} by 2^{shift}"));
                let limit = tolerance::SCATTER_ADD.for_terms(columns);
                let got = reduced(&stream, Kind::Sum, plan, &device)?;
                compare::accumulated(&what, &got, &sums.value, &sums.magnitude, &[ROWS], limit)?;
                let got: Vec<f64> =
                    reduced(&stream, Kind::Max, plan, &device)?.into_iter().map(f64::from).collect();
                let maxima = oracle::maxima(&groups);
                let same = |a: &f64, b: &f64| a == b || a.is_nan() && b.is_nan();
                assert!(got.iter().zip(&maxima).all(|(a, b)| same(a, b)), "{what}: {got:?}, {maxima:?}");
                let (largest, smallest) =
                    (oracle::places_of_maxima(&groups), oracle::places_of_maxima(&negative));
                assert_eq!(places(&stream, Extreme::Largest, plan, &device)?, largest, "{what}");
                assert_eq!(places(&stream, Extreme::Smallest, plan, &device)?, smallest, "{what}");
            }
        }
    }
    Ok(())
}
