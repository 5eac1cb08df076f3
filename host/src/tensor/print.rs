//! Tensors as text.

use std::fmt::Write;

use half::{bf16, f16};
use num::{E4M3, E5M2};

use super::{DType, Element, Tensor};
use crate::error::Result;
use crate::stream::Stream;

/// Elements up to which all are shown.
const SHOWN_WHOLE: usize = 1000;
/// Places shown at each end of an axis that is not shown whole.
const EDGE: usize = 3;
/// Digits after the point.
const DIGITS: usize = 4;
/// Magnitudes from which, and below which, all numbers are shown with exponents.
const WIDE: std::ops::Range<f64> = 1e-3..1e5;

impl Tensor {
    /// The elements as text, by axes: of more than a thousand elements only the ends of each axis. Waits as [`Tensor::to_vec`].
    ///
    /// # Errors
    /// [`crate::Error::DeviceMismatch`], or the driver's error.
    pub fn to_text(&self, stream: &Stream) -> Result<String> {
        let edge = if self.elements() > SHOWN_WHOLE { EDGE } else { usize::MAX };
        let mut text = String::new();
        if !self.is_empty() {
            let elements = texts(&self.ends(edge)?, stream)?;
            let width = elements.iter().map(String::len).max().unwrap_or(0);
            write_axis(&mut text, self.shape(), edge, 0, &mut elements.iter(), width);
            text.push('\n');
        }
        // Writing to a String does not fail.
        let _ = write!(text, "{} {}", self.dtype(), self.shape());
        Ok(text)
    }

    /// The parts that are shown, the axes from the outermost inward: every combination of the ends.
    fn ends(&self, edge: usize) -> Result<Vec<Tensor>> {
        ends_from(self, 0, edge)
    }
}

/// The single elements or rows shown, in order: outer axes are taken place by place, the last one by its ends.
fn ends_from(tensor: &Tensor, axis: usize, edge: usize) -> Result<Vec<Tensor>> {
    if axis + 1 >= tensor.rank() {
        let side = tensor.shape().last().copied().unwrap_or(1);
        return if is_cut(side, edge) {
            Ok(vec![tensor.slice(axis, ..edge)?, tensor.slice(axis, side - edge..)?])
        } else {
            Ok(vec![tensor.clone()])
        };
    }
    let mut parts = Vec::new();
    for place in shown(tensor.shape()[axis], edge).flatten() {
        parts.extend(ends_from(&tensor.slice(axis, place..=place)?, axis + 1, edge)?);
    }
    Ok(parts)
}

fn is_cut(side: usize, edge: usize) -> bool {
    side > edge.saturating_mul(2)
}

/// Places shown, and `None` for the gap.
fn shown(side: usize, edge: usize) -> impl Iterator<Item = Option<usize>> {
    let (head, tail) = if is_cut(side, edge) { (edge, side - edge) } else { (side, side) };
    let gap = if head < tail { Some(None) } else { None };
    (0..head).map(Some).chain(gap).chain((tail..side).map(Some))
}

fn write_axis<'a>(
    text: &mut String,
    shape: &[usize],
    edge: usize,
    depth: usize,
    elements: &mut impl Iterator<Item = &'a String>,
    width: usize,
) {
    let Some((&side, inner)) = shape.split_first() else {
        text.push_str(elements.next().map_or("", String::as_str));
        return;
    };
    text.push('[');
    for (count, place) in shown(side, edge).enumerate() {
        match (count, inner.len()) {
            (0, _) => {}
            (_, 0) => text.push_str(", "),
            // A blank line between matrices, as between the axes that they stand for.
            (_, inner) => {
                text.push(',');
                text.extend(std::iter::repeat_n('\n', inner));
                text.extend(std::iter::repeat_n(' ', depth + 1));
            }
        }
        match place {
            None => text.push_str("..."),
            Some(_) if inner.is_empty() => {
                let element = elements.next().map_or("", String::as_str);
                let _ = write!(text, "{element:>width$}");
            }
            Some(_) => write_axis(text, inner, edge, depth + 1, elements, width),
        }
    }
    text.push(']');
}

/// The elements of all parts as text, numbers in one notation.
fn texts(parts: &[Tensor], stream: &Stream) -> Result<Vec<String>> {
    let dtype = parts.first().map_or(DType::F32, Tensor::dtype);
    match dtype {
        DType::F64 => floats::<f64>(parts, stream, |v| v),
        DType::F32 => floats::<f32>(parts, stream, f64::from),
        DType::F16 => floats::<f16>(parts, stream, f64::from),
        DType::BF16 => floats::<bf16>(parts, stream, f64::from),
        DType::F8E4M3 => floats::<E4M3>(parts, stream, |v| v.to_f32().into()),
        DType::F8E5M2 => floats::<E5M2>(parts, stream, |v| v.to_f32().into()),
        DType::I64 => Ok(values::<i64>(parts, stream)?.iter().map(i64::to_string).collect()),
        DType::I32 => Ok(values::<i32>(parts, stream)?.iter().map(i32::to_string).collect()),
        DType::U8 => Ok(values::<u8>(parts, stream)?.iter().map(u8::to_string).collect()),
        DType::Bool => Ok(values::<bool>(parts, stream)?.iter().map(bool::to_string).collect()),
    }
}

fn values<T: Element>(parts: &[Tensor], stream: &Stream) -> Result<Vec<T>> {
    let mut values = Vec::new();
    for part in parts {
        values.extend(part.to_vec::<T>(stream)?);
    }
    Ok(values)
}

fn floats<T: Element>(parts: &[Tensor], stream: &Stream, widen: impl Fn(T) -> f64) -> Result<Vec<String>> {
    let values: Vec<f64> = values::<T>(parts, stream)?.into_iter().map(widen).collect();
    let is_wide = |v: &f64| v.is_finite() && *v != 0.0 && !WIDE.contains(&v.abs());
    let exponents = values.iter().any(is_wide);
    let text = |v: &f64| if exponents { format!("{v:.DIGITS$e}") } else { format!("{v:.DIGITS$}") };
    Ok(values.iter().map(text).collect())
}
