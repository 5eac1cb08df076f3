//! Tensors as text, laid out as PyTorch does.
//!
//! ```text
//! [[ 1.0000, -2.0000],
//!  [ 0.5000,  4.0000]]
//! f32 [2, 2]
//! ```
//!
//! Of more than a thousand elements only the ends of each dimension are shown. All numbers have one notation:
//! whole numbers, four digits after the point, or, where magnitudes lie far apart, exponents.

use std::fmt::{self, Write};

use half::{bf16, f16};
use num::{E4M3, E5M2};

use super::{DType, Element, Tensor};
use crate::error::Result;
use crate::stream::Stream;

/// Elements up to which all are shown.
const SHOWN_WHOLE: usize = 1000;
/// Places shown at each end of an axis that is not shown whole.
const EDGE: usize = 3;
/// Columns of a line.
const COLUMNS: usize = 80;
/// The mark for places that are left out.
const GAP: &str = " ...";

/// The text of [`Tensor::to_text`] by the current stream. Where the elements cannot be had, the error stands
/// in their place.
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.device().current_stream().and_then(|stream| self.to_text(&stream)) {
            Ok(text) => f.write_str(&text),
            Err(error) => write!(f, "<{error}>\n{} {}", self.dtype(), self.shape()),
        }
    }
}

impl Tensor {
    /// The elements as text, by axes: of more than a thousand elements only the ends of each axis. The last
    /// line has type and shape. Waits as [`Tensor::to_vec`].
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

/// The single elements or rows shown, in order: outer axes are taken place by place, the last one by its
/// ends.
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
    // As many elements as fit in a line, each with a comma and a space.
    let per_line = (COLUMNS.saturating_sub(depth) / (width + 2)).max(1);
    for (count, place) in shown(side, edge).enumerate() {
        match (count, inner.len()) {
            (0, _) => {}
            (count, 0) if count % per_line != 0 => text.push_str(", "),
            // A blank line between matrices, as between the axes that they stand for.
            (_, inner) => {
                text.push(',');
                text.extend(std::iter::repeat_n('\n', inner.max(1)));
                text.extend(std::iter::repeat_n(' ', depth + 1));
            }
        }
        match place {
            None if inner.is_empty() => text.push_str(GAP),
            None => text.push_str(GAP.trim_start()),
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
    let notation = Notation::of(&values);
    Ok(values.iter().map(|&value| notation.text(value)).collect())
}

/// How floats are written: one way for all of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notation {
    /// `3.`
    Whole,
    /// `3.1416`
    Point,
    /// `3.1416e+00`
    Exponent,
}

impl Notation {
    /// PyTorch's choice (`torch._tensor_str`).
    fn of(values: &[f64]) -> Self {
        let magnitudes = || values.iter().map(|v| v.abs()).filter(|v| v.is_finite() && *v != 0.0);
        let largest = magnitudes().fold(0.0, f64::max);
        let smallest = magnitudes().fold(f64::INFINITY, f64::min);
        let is_whole = magnitudes().all(|v| v.fract() == 0.0);
        if largest > 1e8 || largest / smallest > 1e3 || (!is_whole && smallest < 1e-4) {
            Notation::Exponent
        } else if is_whole {
            Notation::Whole
        } else {
            Notation::Point
        }
    }

    fn text(self, value: f64) -> String {
        if value.is_nan() {
            return "nan".to_owned();
        }
        if value.is_infinite() {
            return value.to_string();
        }
        match self {
            Notation::Whole => format!("{value:.0}."),
            Notation::Point => format!("{value:.4}"),
            Notation::Exponent => {
                let text = format!("{value:.4e}");
                let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                // Of at most three digits.
                format!("{digits}e{:+03}", exponent.parse::<i32>().unwrap_or(0))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Notation;

    #[test]
    fn numbers_are_written_as_pytorch_writes_them() {
        // By the rules of `torch._tensor_str`.
        let cases: [(&[f64], &[&str]); 7] = [
            (&[1.0, -2.0, 300.0], &["1.", "-2.", "300."]),
            (&[0.0, 0.0], &["0.", "0."]),
            (&[1.5, f64::NAN, f64::INFINITY], &["1.5000", "nan", "inf"]),
            (&[1.0, f64::NEG_INFINITY], &["1.", "-inf"]),
            (&[1e-9, 2.0], &["1.0000e-09", "2.0000e+00"]),
            (&[1.0, 1001.0], &["1.0000e+00", "1.0010e+03"]),
            (&[1e200], &["1.0000e+200"]),
        ];
        for (values, want) in cases {
            let notation = Notation::of(values);
            let got: Vec<String> = values.iter().map(|&value| notation.text(value)).collect();
            assert_eq!(got, want);
        }
    }
}
