//! Rows of every length and alignment: softmax, mean and variance, and what is written beside them, against
//! f64.

use super::{Global, run};
use cuda_std::{shared_array, thread};
use half::{bf16, f16};
use ironwarp_primitives::access::VECTOR_BYTES;
use ironwarp_primitives::activation::Precision;
use ironwarp_primitives::block;
use ironwarp_primitives::element::{Element, Float};
use ironwarp_primitives::moments::{Moments, Welford};
use ironwarp_primitives::row::{self, Part};
use ironwarp_primitives::softmax::{Online, Softmax};
use simt::LaunchConfig;

/// Lengths around vectors of every type, and some that give each thread several.
const LENGTHS: [usize; 14] = [1, 2, 3, 7, 8, 9, 15, 17, 31, 64, 100, 513, 1031, 2500];
/// Elements that lie before the row.
const STARTS: [usize; 5] = [0, 1, 2, 3, 7];
/// The value around a row that is written.
const BESIDE: f64 = 77.0;

type Value<T> = <<T as Float>::Precision as Precision>::Value;

/// A block of 64 threads reads the row, combines, and writes its softmax; returns that and the moments.
fn softmax<T, const N: usize>(data: &[T], start: usize, write_start: usize) -> (Vec<T>, [f64; 3])
where
    T: Float + testkit::Element + Element<Wide = Value<T>>,
    Value<T>: Into<f64>,
{
    let len = data.len();
    let around = |start: usize| {
        let mut memory = vec![T::from_f64(BESIDE); start + len + 9];
        memory[start..start + len].copy_from_slice(data);
        memory
    };
    let (mut x, mut y) = (Global::new(around(start), "x"), Global::new(around(write_start), "y"));
    let mut moments = Global::new(vec![0.0; 3], "moments");
    let (x_at, y_at, moments_at) = (x.address(), y.address(), moments.address());
    run(9, LaunchConfig::linear(1, 64), || {
        let part = Part { len: len as u64, thread: thread::thread_idx_x().into(), threads: 64 };
        // SAFETY: rows of `len` elements; slots are used once; one thread writes the moments.
        unsafe {
            let x = (x_at as *const T).add(start);
            let online = Online::<T::Precision>::NEW;
            let state = row::read::<T, _, N>(online, part, x);
            let slots = shared_array![[f64; 3]; 2];
            let state: Softmax<T::Precision> = block::reduce(online, state, slots.cast());
            let slots = shared_array![[f64; 3]; 2];
            let welford = Welford::<T::Precision>::NEW;
            let of_thread = row::read::<T, _, N>(welford, part, x);
            let all: Moments<T::Precision> = block::reduce(welford, of_thread, slots.cast());
            if part.thread == 0 {
                let values = [all.count, all.mean, all.variance(T::Precision::value(0.0))].map(Into::into);
                *(moments_at as *mut [f64; 3]) = values;
            }
            let factor = state.inverse_sum();
            let y = (y_at as *mut T).add(write_start);
            row::map::<T, N>(part, x, y, |x, _| state.weight(x) * factor);
        }
    });
    for (place, value) in y.data.iter().enumerate() {
        let inside = place >= write_start && place < write_start + len;
        assert!(inside || value.to_f64() == BESIDE, "place {place} beside the row is {}", value.to_f64());
    }
    (y.data[write_start..write_start + len].to_vec(), [moments.data[0], moments.data[1], moments.data[2]])
}

fn check<T, const N: usize>(tolerance: f64)
where
    T: Float + testkit::Element + Element<Wide = Value<T>>,
    Value<T>: Into<f64>,
{
    for len in LENGTHS {
        for (start, write_start) in STARTS.into_iter().zip([0, 1, 0, 3, 2]) {
            let data: Vec<T> = (0..len).map(|i| T::from_f64(((i * 37 % 101) as f64 - 50.0) * 0.25)).collect();
            let (got, [count, mean, variance]) = softmax::<T, N>(&data, start, write_start);
            let x: Vec<f64> = data.iter().map(|x| x.to_f64()).collect();
            let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = x.iter().map(|x| (x - max).exp()).sum();
            for (i, got) in got.iter().enumerate() {
                let want = (x[i] - max).exp() / sum;
                let got = got.to_f64();
                let near = (got - want).abs() <= tolerance * want + 1e-7;
                assert!(near, "{len} from {start}: [{i}] {got}, wanted {want}");
            }
            let want_mean = x.iter().sum::<f64>() / len as f64;
            let want_variance = x.iter().map(|x| (x - want_mean).powi(2)).sum::<f64>() / len as f64;
            assert_eq!(count, len as f64);
            assert!((mean - want_mean).abs() < 1e-4, "{len} from {start}: mean {mean}, wanted {want_mean}");
            assert!(
                (variance - want_variance).abs() <= 1e-4 * want_variance + 1e-6,
                "{len} from {start}: variance {variance}, wanted {want_variance}"
            );
        }
    }
}

#[test]
fn rows_of_any_length_and_alignment() {
    check::<f32, { VECTOR_BYTES / 4 }>(2e-6);
    check::<f64, { VECTOR_BYTES / 8 }>(1e-13);
    check::<f16, { VECTOR_BYTES / 2 }>(1e-3);
    check::<bf16, { VECTOR_BYTES / 2 }>(8e-3);
}

#[test]
fn infinities_and_nans_are_as_in_pytorch() {
    let (low, nan) = (f32::NEG_INFINITY, f32::NAN);
    let softmax = |x: &[f32]| softmax::<f32, 4>(x, 0, 0).0;
    assert_eq!(softmax(&[low, 1.0, low, 1.0, low]), [0.0, 0.5, 0.0, 0.5, 0.0]);
    // More elements than the first vectors hold, so that a thread meets minus infinity first.
    let mut long = vec![low; 400];
    long[399] = 5.0;
    assert_eq!(softmax(&long)[396..], [0.0, 0.0, 0.0, 1.0]);
    assert!(softmax(&[low; 9]).iter().all(|x| x.is_nan()));
    assert!(softmax(&[1.0, nan, 2.0]).iter().all(|x| x.is_nan()));
    assert!(softmax(&[1.0, f32::INFINITY]).iter().any(|x| x.is_nan()));
    // No exponential overflows.
    assert_eq!(softmax(&[3e38, 3e38, -3e38]), [0.5, 0.5, 0.0]);
}
