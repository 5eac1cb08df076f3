//! Calls in NCCL's words.

use std::ffi::{c_int, c_void};

use driver::nccl::{Code, Comm, INVALID_USAGE, Library, dtype, operator};

use crate::parallel::Reduction;
use crate::parallel::call::{Call, Kind};
use crate::sys::CUstream;
use crate::tensor::DType;

/// Addresses of what a rank gives and gets, and of a number on its device for barriers.
#[derive(Clone, Copy)]
pub(super) struct Addresses {
    pub input: u64,
    pub output: u64,
    pub number: u64,
}

/// Queues a call.
///
/// # Safety
/// The communicator is a live one of `ranks` ranks, `rank` among them; the stream is one of its device, which
/// is current; the addresses are those of as many elements as the call says, alive until its end.
pub(super) unsafe fn issue(
    library: &Library,
    (comm, rank, ranks): (Comm, u32, u32),
    stream: CUstream,
    call: Call,
    at: Addresses,
) -> Code {
    let (from, to, count) = (at.input as *const c_void, at.output as *mut c_void, call.count);
    let (stream, dtype) = (stream.cast(), dtype_of(call.dtype));
    // SAFETY: the caller's promise.
    unsafe {
        match call.kind {
            Kind::AllReduce(by) => {
                (library.all_reduce)(from, to, count, dtype, operator_of(by), comm, stream)
            }
            Kind::ReduceScatter(by) => {
                (library.reduce_scatter)(from, to, count, dtype, operator_of(by), comm, stream)
            }
            Kind::AllGather => (library.all_gather)(from, to, count, dtype, comm, stream),
            Kind::Broadcast { root } => {
                (library.broadcast)(from, to, count, dtype, root as c_int, comm, stream)
            }
            Kind::AllToAll => (library.all_to_all)(from, to, count / ranks as usize, dtype, comm, stream),
            Kind::Send { from: sender, to: receiver } if sender == rank => {
                (library.send)(from, count, dtype, receiver as c_int, comm, stream)
            }
            Kind::Send { from: sender, .. } => {
                (library.recv)(to, count, dtype, sender as c_int, comm, stream)
            }
            // Those are made of other calls.
            Kind::AllReduceNorm { .. } | Kind::AllReduceScaled { .. } => INVALID_USAGE,
            // NCCL has no barrier. A sum of a number of each rank ends when all have given theirs.
            Kind::Barrier | Kind::Split => {
                let number = at.number as *mut c_void;
                (library.all_reduce)(number, number, 1, dtype::INT32, operator::SUM, comm, stream)
            }
        }
    }
}

fn dtype_of(of: DType) -> c_int {
    match of {
        DType::F64 => dtype::FLOAT64,
        DType::F32 => dtype::FLOAT32,
        DType::F16 => dtype::FLOAT16,
        DType::BF16 => dtype::BFLOAT16,
        DType::F8E4M3 => dtype::FLOAT8_E4M3,
        DType::F8E5M2 => dtype::FLOAT8_E5M2,
        DType::I64 => dtype::INT64,
        DType::I32 => dtype::INT32,
        DType::U8 | DType::Bool => dtype::UINT8,
    }
}

fn operator_of(reduction: Reduction) -> c_int {
    match reduction {
        Reduction::Sum => operator::SUM,
        Reduction::Mean => operator::AVG,
        Reduction::Max => operator::MAX,
        Reduction::Min => operator::MIN,
    }
}
