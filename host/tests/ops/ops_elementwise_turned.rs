//! Copies between tensors that are dense along different axes. On whichever driver is there.

use crate::common::Outcome;
use half::f16;
use ironwarp::ops::elementwise::{copy, copy_into};
use ironwarp::tensor::Element;
use ironwarp::{Device, Tensor};

/// Every order of three axes, of matrices within larger ones, with sides around the tiles' and at every
/// alignment.
fn every_turn<T: Element + PartialEq + Copy>(of: impl Fn(usize) -> T, sides: [[usize; 3]; 4]) -> Outcome {
    let stream = Device::open(0)?.stream()?;
    for [a, b, c] in sides {
        for skip in [0, 1] {
            let data: Vec<T> = (0..a * b * c + skip).map(&of).collect();
            let x =
                Tensor::from_slice(&stream, &[data.len()], &data)?.slice(0, skip..)?.view_as(&[a, b, c])?;
            for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
                let turned = x.permute(&order)?;
                let shape: Vec<usize> = turned.shape().to_vec();
                let want: Vec<T> = (0..a * b * c)
                    .map(|i| {
                        let at = [i / (shape[1] * shape[2]), i / shape[2] % shape[1], i % shape[2]];
                        let mut from = [0; 3];
                        order.into_iter().zip(at).for_each(|(axis, at)| from[axis] = at);
                        data[skip + (from[0] * b + from[1]) * c + from[2]]
                    })
                    .collect();
                let what = format!("{:?} {order:?} of {a}x{b}x{c} from {skip} on", T::DTYPE);
                assert!(copy(&stream, &turned)?.to_vec::<T>(&stream)? == want, "{what}");
                // Into a part of something larger, of which the rest stays.
                let sides = [shape[0], shape[1] + 1, shape[2] + 3];
                let mut out = Tensor::zeros(&stream, &sides, T::DTYPE)?;
                copy_into(&stream, &turned, out.view_mut()?.slice(1, 1..)?.slice(2, 3..)?)?;
                let out = out.to_vec::<T>(&stream)?;
                let zero = of(0);
                for (i, &value) in out.iter().enumerate() {
                    let at = [i / (sides[1] * sides[2]), i / sides[2] % sides[1], i % sides[2]];
                    let expected = if at[1] >= 1 && at[2] >= 3 {
                        want[(at[0] * shape[1] + at[1] - 1) * shape[2] + at[2] - 3]
                    } else {
                        zero
                    };
                    assert!(value == expected, "{what}, {at:?}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn dense_axes_change_places() -> Outcome {
    every_turn(|i| i as u8, [[2, 130, 144], [16, 16, 16], [3, 129, 17], [1, 256, 128]])?;
    every_turn(
        |i| f16::from_bits((i % 30_000) as u16),
        [[2, 130, 136], [16, 16, 16], [3, 129, 17], [1, 128, 128]],
    )?;
    every_turn(|i| i as i32, [[2, 66, 72], [16, 16, 16], [3, 65, 17], [1, 64, 128]])?;
    every_turn(|i| i as i64, [[2, 34, 70], [16, 16, 16], [3, 33, 17], [1, 32, 64]])
}
