//! The parameters of an optimiser: checks, and their entries in a table.

use optim::table::{ALIGNMENT, Entry, Format, MAX_TENSORS};

use super::not_negative;
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::tensor::{DType, Layout, Shape, Tensor, TensorError, TensorMut};

/// A parameter as it was when the optimiser was made.
pub(super) struct Parameter {
    pub shape: Shape,
    pub dtype: DType,
    /// Where its moments begin.
    pub state: usize,
    pub weight_decay: f32,
    pub rate_factor: f32,
}

/// All parameters of an optimiser, in order.
pub(super) struct Parameters {
    /// The optimiser's name, for errors.
    operation: &'static str,
    known: Vec<Parameter>,
    /// Elements of a moment of all parameters.
    pub elements: usize,
}

impl Parameters {
    pub fn new(
        operation: &'static str,
        stream: &Stream,
        parameters: &[TensorMut<'_>],
        weight_decay: f64,
    ) -> Result<Self> {
        few_enough(operation, parameters.len())?;
        for parameter in parameters {
            stream.same_device("a parameter", parameter.device())?;
            if !matches!(parameter.dtype(), DType::F32 | DType::BF16 | DType::F16) {
                let (got, wanted) = (parameter.dtype(), "f32, bf16 or f16".to_owned());
                let hint = "parameters that are trained are floats";
                return Err(TensorError::DType { operation, what: "a parameter", got, wanted, hint }.into());
            }
            contiguous(operation, parameter.layout())?;
        }
        let described = parameters.iter().map(|parameter| (parameter.shape().clone(), parameter.dtype()));
        Self::described(operation, described, weight_decay)
    }

    /// Of these shapes and element types, which fit.
    pub fn described(
        operation: &'static str,
        parameters: impl IntoIterator<Item = (Shape, DType)>,
        weight_decay: f64,
    ) -> Result<Self> {
        let weight_decay = not_negative(operation, "weight_decay", weight_decay)? as f32;
        let (mut elements, mut known) = (0usize, Vec::new());
        for (shape, dtype) in parameters {
            // All of them are in memory, so the sum does not overflow.
            let end = elements + shape.elements().next_multiple_of(ALIGNMENT as usize);
            known.push(Parameter { shape, dtype, state: elements, weight_decay, rate_factor: 1.0 });
            elements = end;
        }
        Ok(Parameters { operation, known, elements })
    }

    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether there are any of 16 bits.
    pub fn has_short(&self) -> bool {
        self.known.iter().any(|parameter| parameter.dtype != DType::F32)
    }

    /// A parameter by its number.
    pub fn get(&self, number: usize) -> Result<&Parameter> {
        self.known.get(number).ok_or_else(|| self.no_such(number))
    }

    pub fn set_weight_decay(&mut self, number: usize, weight_decay: f64) -> Result<()> {
        let weight_decay = not_negative(self.operation, "weight_decay", weight_decay)?;
        self.get(number)?;
        self.known[number].weight_decay = weight_decay as f32;
        Ok(())
    }

    pub fn set_rate_factor(&mut self, number: usize, factor: f64) -> Result<()> {
        let factor = not_negative(self.operation, "factor", factor)?;
        self.get(number)?;
        self.known[number].rate_factor = factor as f32;
        Ok(())
    }

    fn no_such(&self, number: usize) -> Error {
        let (operation, argument) = (self.operation, "parameter");
        let (got, wanted) = (number.to_string(), format!("below {}", self.known.len()));
        let hint = "parameters have the numbers that they were passed in, from 0";
        Error::InvalidArgument { operation, argument, got, wanted, hint }
    }

    /// Do the tensors of a step fit those that the optimiser was made with?
    pub fn check(&self, stream: &Stream, parameters: &[TensorMut<'_>], gradients: &[&Tensor]) -> Result<()> {
        let operation = self.operation;
        for (argument, got) in [("params", parameters.len()), ("grads", gradients.len())] {
            if got != self.known.len() {
                let (got, wanted) = (format!("{got} tensors"), format!("{} tensors", self.known.len()));
                let hint = "a step takes a tensor for each that the optimiser was made with, in that order";
                return Err(Error::InvalidArgument { operation, argument, got, wanted, hint });
            }
        }
        for (number, (known, (parameter, gradient))) in
            self.known.iter().zip(parameters.iter().zip(gradients)).enumerate()
        {
            stream.same_device("a parameter", parameter.device())?;
            stream.same_device("a gradient", gradient.device())?;
            for (what, shape) in [("a parameter", parameter.shape()), ("a gradient", gradient.shape())] {
                if *shape != known.shape {
                    let (got, wanted) = (shape.clone(), format!("{} of parameter {number}", known.shape));
                    let hint = "pass tensors in the order that the optimiser was made with";
                    return Err(TensorError::Shape { operation, what, got, wanted, hint }.into());
                }
            }
            if parameter.dtype() != known.dtype {
                let (got, wanted) = (parameter.dtype(), format!("{} of parameter {number}", known.dtype));
                let hint = "make a new optimiser for parameters of another type";
                return Err(TensorError::DType { operation, what: "a parameter", got, wanted, hint }.into());
            }
            contiguous(operation, parameter.layout())?;
            contiguous(operation, gradient.layout())?;
        }
        Ok(())
    }

    /// The entries of parameters at `addresses`, with their gradients or with none; first chunks left out.
    pub fn entries(&self, addresses: &[u64], gradients: Option<&[&Tensor]>) -> Result<Vec<Entry>> {
        let entry = |(number, (known, &parameter)): (usize, (&Parameter, &u64))| {
            let gradient = gradients.map(|gradients| gradients[number]);
            let format = self.format(known, gradient.map_or(known.dtype, Tensor::dtype))?;
            let gradient = gradient.map_or(0, Tensor::address);
            Ok(Entry {
                parameter,
                gradient,
                length: known.shape.elements() as u64,
                state: known.state as u64,
                first_chunk: 0,
                format,
                weight_decay: known.weight_decay,
                rate_factor: known.rate_factor,
                is_aligned: is_aligned(parameter | gradient),
                reserved: 0,
            })
        };
        self.known.iter().zip(addresses).enumerate().map(entry).collect()
    }

    fn format(&self, known: &Parameter, gradient: DType) -> Result<Format> {
        match (known.dtype, gradient) {
            (DType::F32, DType::F32) => Ok(Format::F32),
            (DType::F32, DType::BF16) => Ok(Format::F32WithBf16),
            (DType::BF16, DType::BF16) => Ok(Format::Bf16),
            (DType::BF16, DType::F32) => Ok(Format::Bf16WithF32),
            (DType::F16, DType::F16) => Ok(Format::F16),
            (DType::F16, DType::F32) => Ok(Format::F16WithF32),
            (parameter, got) => {
                let (operation, what) = (self.operation, "a gradient");
                let other = if parameter == DType::F32 { DType::BF16 } else { DType::F32 };
                let wanted = format!("{parameter} or {other}");
                let hint = "gradients have their parameter's type, or are f32; those of f32 may be bf16";
                Err(TensorError::DType { operation, what, got, wanted, hint }.into())
            }
        }
    }
}

/// 1 for an address of whole vectors.
pub(super) fn is_aligned(address: u64) -> u32 {
    address.is_multiple_of(primitives::access::VECTOR_BYTES as u64).into()
}

pub(super) fn few_enough(operation: &'static str, tensors: usize) -> Result<()> {
    if tensors <= MAX_TENSORS {
        return Ok(());
    }
    let (got, wanted) = (format!("{tensors} tensors"), format!("at most {MAX_TENSORS}"));
    let hint = "put small parameters together in one tensor";
    Err(Error::InvalidArgument { operation, argument: "the tensors", got, wanted, hint })
}

pub(super) fn contiguous(operation: &'static str, layout: &Layout) -> Result<()> {
    if layout.is_contiguous() {
        return Ok(());
    }
    let (shape, strides) = (layout.shape().clone(), layout.strides().to_vec());
    Err(TensorError::NotContiguous { operation, shape, strides }.into())
}
