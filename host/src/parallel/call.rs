//! The calls of ranks: the same on all of them.

use std::fmt;

use super::peer::Plan;
use crate::tensor::DType;

/// How elements of all ranks are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reduction {
    /// The sum. Integers wrap around.
    Sum,
    /// The sum divided by the number of ranks. Floats only.
    Mean,
    /// The largest; NaN if any is.
    Max,
    /// The smallest; NaN if any is.
    Min,
}

/// The collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    AllReduce(Reduction),
    /// With the norm of rows so wide.
    AllReduceNorm {
        width: usize,
    },
    /// In f32, by a factor: its bits.
    AllReduceScaled {
        bits: u32,
    },
    ReduceScatter(Reduction),
    AllGather,
    Broadcast {
        root: u32,
    },
    AllToAll,
    /// Between two ranks: they agree on it apart from the others.
    Send {
        from: u32,
        to: u32,
    },
    Barrier,
    Split,
}

impl Kind {
    /// The name of its function.
    pub fn operation(self) -> &'static str {
        match self {
            Kind::AllReduce(_) => "Communicator::all_reduce",
            Kind::AllReduceNorm { .. } => "Communicator::all_reduce_norm",
            Kind::AllReduceScaled { .. } => "Communicator::all_reduce_scaled",
            Kind::ReduceScatter(_) => "Communicator::reduce_scatter",
            Kind::AllGather => "Communicator::all_gather",
            Kind::Broadcast { .. } => "Communicator::broadcast",
            Kind::AllToAll => "Communicator::all_to_all",
            Kind::Send { .. } => "Communicator::send",
            Kind::Barrier => "Communicator::barrier",
            Kind::Split => "Communicator::split",
        }
    }
}

/// A call. `count` is that of the larger side, or of the smaller side of an all-gather and a reduce-scatter:
/// the elements that a rank gives or gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub kind: Kind,
    pub dtype: DType,
    pub count: usize,
    /// The plan that the program asks for, if it does.
    pub plan: Option<Plan>,
}

impl Call {
    /// A call by the usual plan.
    pub const fn new(kind: Kind, dtype: DType, count: usize) -> Self {
        Call { kind, dtype, count, plan: None }
    }

    /// A number that ranks compare on the device. Other calls most likely have others.
    pub fn number(&self) -> u32 {
        let mut number = 0x811c_9dc5_u32;
        for byte in self.to_string().bytes() {
            number = (number ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
        number
    }

    pub fn bytes(&self) -> usize {
        self.count.saturating_mul(self.dtype.size())
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call { kind, dtype, count, plan } = self;
        match kind {
            Kind::AllReduce(reduction) => write!(f, "all_reduce({reduction:?}, {count} x {dtype})"),
            Kind::AllReduceNorm { width } => write!(f, "all_reduce_norm({count} x {dtype}, rows of {width})"),
            Kind::AllReduceScaled { bits } => {
                write!(f, "all_reduce_scaled({count} x {dtype}, by {})", f32::from_bits(*bits))
            }
            Kind::ReduceScatter(reduction) => {
                write!(f, "reduce_scatter({reduction:?}, {count} x {dtype} a rank)")
            }
            Kind::AllGather => write!(f, "all_gather({count} x {dtype} a rank)"),
            Kind::Broadcast { root } => write!(f, "broadcast({count} x {dtype} from rank {root})"),
            Kind::AllToAll => write!(f, "all_to_all({count} x {dtype})"),
            Kind::Send { from, to } => write!(f, "send({count} x {dtype} from rank {from} to rank {to})"),
            Kind::Barrier => f.write_str("barrier"),
            Kind::Split => f.write_str("split"),
        }?;
        plan.map_or(Ok(()), |Plan { algorithm, blocks }| write!(f, " by {algorithm:?} in {blocks} blocks"))
    }
}
