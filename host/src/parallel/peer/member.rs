//! A rank of a group that works over peer memory.

use std::sync::Arc;

use super::{Algorithm, Order, Plan, Shared};
use crate::error::{Error, ParallelError, Result};
use crate::parallel::call::{Call, Kind};
use crate::parallel::operand::{Operand, local};
use crate::stream::Stream;
use crate::tensor::DType;

/// A rank's hold on its group.
pub(in crate::parallel) struct Member {
    pub shared: Arc<Shared>,
    pub rank: u32,
}

impl Member {
    /// Enters a call in the ledger, and queues the rank's part of it, by a plan that all ranks have.
    #[track_caller]
    pub fn queue(
        &mut self,
        stream: &Stream,
        plan: Plan,
        call: Call,
        input: Option<Operand<'_>>,
        output: Option<Operand<'_>>,
    ) -> Result<()> {
        let capture = stream.capture()?;
        let sequence = self.enter(call)?;
        if let Some(capture) = capture {
            capture.keep_alive(self.shared.clone());
        }
        if plan.algorithm == Algorithm::Local {
            return local(stream, input, output);
        }
        let order = Order { call, sequence, input, output };
        // The others may already wait for it.
        self.shared.launch(self.rank, stream, plan, &order).inspect_err(|error| self.fail(error))
    }

    /// Checks and enters a call with kernels of its own, and queues them by `launch`.
    #[track_caller]
    pub fn queue_fused<'a>(
        &mut self,
        stream: &Stream,
        call: Call,
        input: Operand<'a>,
        launch: impl FnOnce(&Self, Plan, &Order<'a>) -> Result<()>,
    ) -> Result<()> {
        let device = &self.shared.devices[self.rank as usize];
        stream.same_device("the communicator", device)?;
        stream.same_device("the input", input.device)?;
        self.shared.check(self.rank)?;
        let plan = Plan::of(&call, self.shared.ranks(), self.shared.room);
        let capture = stream.capture()?;
        let sequence = self.enter(call)?;
        if let Some(capture) = capture {
            capture.keep_alive(self.shared.clone());
        }
        let order = Order { call, sequence, input: Some(input), output: None };
        launch(self, plan, &order).inspect_err(|error| self.fail(error))
    }

    /// The rank's part of a split; `None` without a color.
    #[track_caller]
    pub fn split(&mut self, color: Option<u32>, key: i64) -> Result<Option<Self>> {
        self.enter(Call::new(Kind::Split, DType::U8, 0))?;
        let answer = self.shared.ledger.split(self.rank, color, key, self.shared.options.timeout)?;
        let Some(answer) = answer else { return Ok(None) };
        // The others wait for it in the new group.
        let shared = self.shared.child(&answer).inspect_err(|error| self.fail(error))?;
        let rank = answer.members.iter().position(|&rank| rank == self.rank).unwrap_or(0);
        Ok(Some(Member { shared, rank: rank as u32 }))
    }

    /// Enters a call in the ledger; its number. A call that does not fit fails the group.
    fn enter(&self, call: Call) -> Result<u64, ParallelError> {
        self.shared.ledger.enter(self.rank, call).inspect_err(|_| self.shared.abort())
    }

    /// The group has failed by this rank's error.
    fn fail(&self, error: &Error) {
        self.shared.fail(format!("rank {}: {error}", self.rank));
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.shared.ledger.leave(self.rank) {
            self.shared.fail(format!("rank {} has dropped its communicator; others wait for it", self.rank));
        }
    }
}
