//! Elements of all ranks, combined in their order.

use half::{bf16, f16};
use num::{E4M3, E5M2};

/// Bytes of an element of `ncclDataType_t`.
pub fn size_of_type(dtype: i32) -> Option<usize> {
    Some(match dtype {
        0 | 1 | 10 | 11 => 1,
        6 | 9 => 2,
        2 | 3 | 7 => 4,
        4 | 5 | 8 => 8,
        _ => return None,
    })
}

/// Elements of a type, all bytes of each rank, combined by `ncclRedOp_t`. `None` for what NCCL does not do.
pub fn combine(dtype: i32, operator: i32, given: &[Vec<u8>]) -> Option<Vec<u8>> {
    let integer = |from: fn(&[u8]) -> i128, to: fn(i128) -> Vec<u8>| {
        let by = match operator {
            0 => |a: i128, b: i128| a + b,
            2 => i128::max,
            3 => i128::min,
            _ => return None,
        };
        Some(elements(dtype, given, |all| to(all.iter().map(|x| from(x)).reduce(by).unwrap_or(0))))
    };
    let float =
        |from: fn(&[u8]) -> f64, to: fn(f64) -> Vec<u8>| {
            let by = match operator {
                0 | 4 => |a: f64, b: f64| a + b,
                2 => f64::max,
                3 => f64::min,
                _ => return None,
            };
            let divisor = if operator == 4 { given.len() as f64 } else { 1.0 };
            Some(elements(dtype, given, |all| {
                to(all.iter().map(|x| from(x)).reduce(by).unwrap_or(0.0) / divisor)
            }))
        };
    match dtype {
        1 => integer(|x| x[0].into(), |x| vec![x as u8]),
        2 => integer(|x| i32::from_le_bytes(array(x)).into(), |x| (x as i32).to_le_bytes().to_vec()),
        4 => integer(|x| i64::from_le_bytes(array(x)).into(), |x| (x as i64).to_le_bytes().to_vec()),
        6 => float(|x| f16::from_le_bytes(array(x)).into(), |x| f16::from_f64(x).to_le_bytes().to_vec()),
        7 => float(|x| f32::from_le_bytes(array(x)).into(), |x| (x as f32).to_le_bytes().to_vec()),
        8 => float(|x| f64::from_le_bytes(array(x)), |x| x.to_le_bytes().to_vec()),
        9 => float(|x| bf16::from_le_bytes(array(x)).into(), |x| bf16::from_f64(x).to_le_bytes().to_vec()),
        10 => float(|x| E4M3::from_bits(x[0]).to_f32().into(), |x| vec![E4M3::from_f32(x as f32).to_bits()]),
        11 => float(|x| E5M2::from_bits(x[0]).to_f32().into(), |x| vec![E5M2::from_f32(x as f32).to_bits()]),
        _ => None,
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

/// Each element of all ranks, through a function.
fn elements(dtype: i32, given: &[Vec<u8>], result: impl Fn(&[&[u8]]) -> Vec<u8>) -> Vec<u8> {
    let size = size_of_type(dtype).unwrap_or(1);
    let count = given.iter().map(Vec::len).min().unwrap_or(0) / size;
    let of = |at: usize| given.iter().map(|bytes| &bytes[at * size..][..size]).collect::<Vec<_>>();
    (0..count).flat_map(|at| result(&of(at))).collect()
}
