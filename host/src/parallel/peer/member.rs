//! A rank of a group that works over peer memory.

use std::sync::Arc;

use super::{Algorithm, Order, Place, Plan, Shared};
use crate::error::{Error, ParallelError, Result};
use crate::parallel::call::{Call, Kind};
use crate::parallel::communicator as parallel;
use crate::parallel::nccl;
use crate::parallel::operand::{Operand, local};
use crate::parallel::process::{Book, EXCHANGES, join};
use crate::stream::Stream;
use crate::tensor::DType;

/// A rank's hold on its group.
pub(in crate::parallel) struct Member {
    pub shared: Arc<Shared>,
    pub rank: u32,
    /// For what NCCL does faster, between processes that have it. It fails with the group.
    pub large: Option<nccl::Member>,
    /// Why there is no NCCL for that, where it would be used.
    pub no_nccl: Option<String>,
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
        if let (Algorithm::Nccl, Some(large)) = (plan.algorithm, &mut self.large) {
            // Calls by either way stay in order.
            let queued = match self.shared.state(self.rank).view().within().begin(stream, true) {
                Ok(calls) => {
                    let queued = large.queue(stream, plan, call, input, output);
                    calls.commit(stream);
                    queued
                }
                Err(error) => Err(error),
            };
            return queued.inspect_err(|error| self.fail(error));
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
        let device = self.shared.device(self.rank);
        stream.same_device("the communicator", device)?;
        stream.same_device("the input", input.device)?;
        self.check()?;
        let plan = self.shared.plan(&call);
        let capture = stream.capture()?;
        let sequence = self.enter(call)?;
        if let Some(capture) = capture {
            capture.keep_alive(self.shared.clone());
        }
        let order = Order { call, sequence, input: Some(input), output: None };
        launch(self, plan, &order).inspect_err(|error| self.fail(error))
    }

    /// Whether the group is sound, as far as is known without a wait.
    pub fn check(&self) -> Result<(), ParallelError> {
        if let Some(error) = self.large.as_ref().and_then(|large| large.check().err()) {
            self.shared.fail(error.to_string());
            return self.shared.check(self.rank).and(Err(error));
        }
        self.shared.check(self.rank)
    }

    /// The rank's part of a split; `None` without a color.
    #[track_caller]
    pub fn split(&mut self, color: Option<u32>, key: i64) -> Result<Option<Self>> {
        self.enter(Call::new(Kind::Split, DType::U8, 0))?;
        let threads = match &self.shared.place {
            Place::Threads(threads) => threads,
            Place::Process { book, .. } => {
                return self.split_processes(book, color, key).inspect_err(|error| self.fail(error));
            }
        };
        let answer = threads.ledger.split(self.rank, color, key, self.shared.options.timeout)?;
        let Some(answer) = answer else { return Ok(None) };
        // The others wait for it in the new group.
        let child = self.shared.child(self.rank, threads, &answer);
        let shared = child.inspect_err(|error| self.fail(error))?;
        let rank = answer.members.iter().position(|&rank| rank == self.rank).unwrap_or(0);
        Ok(Some(Member { shared, rank: rank as u32, large: None, no_nccl: None }))
    }

    /// As [`Member::split`], of processes: they meet by the host memory that they share. Ranks without a
    /// color come to all meetings.
    #[track_caller]
    fn split_processes(&self, book: &Book, color: Option<u32>, key: i64) -> Result<Option<Self>> {
        let (limit, ranks) = (self.shared.options.timeout, self.shared.ranks());
        let own = [color.map_or(-1, i64::from), key].map(i64::to_le_bytes).concat();
        let all = book.gather(&own, limit)?;
        let number = |bytes: &[u8]| i64::from_le_bytes(std::array::from_fn(|at| bytes[at]));
        let part = |rank: u32| &all[rank as usize];
        let mut members: Vec<(i64, u32)> = (0..ranks)
            .filter(|&rank| number(part(rank)) == number(&own))
            .map(|rank| (number(&part(rank)[size_of::<i64>()..]), rank))
            .collect();
        members.sort_unstable();
        if color.is_none() {
            for _ in 0..EXCHANGES {
                book.gather(&[], limit)?;
            }
            return Ok(None);
        }
        let rank = members.iter().position(|&(_, rank)| rank == self.rank).unwrap_or(0);
        let mut exchange = |_: &str, own: &[u8]| {
            let all = book.gather(own, limit)?;
            Ok(members.iter().map(|&(_, rank)| all[rank as usize].clone()).collect())
        };
        let size = (rank as u32, members.len() as u32);
        match join(self.shared.device(self.rank), size, &mut exchange, self.shared.options)? {
            parallel::Member::Peer(member) => Ok(Some(member)),
            // Ranks that reach each other in the group do so in its parts.
            parallel::Member::Nccl(member) => {
                let reason = member.why.clone().unwrap_or_default();
                Err(ParallelError::NoPeerMemory { rank: self.rank, reason }.into())
            }
        }
    }

    /// Enters a call in the ledger; its number. A call that does not fit fails the group.
    fn enter(&self, call: Call) -> Result<u64, ParallelError> {
        self.shared.calls.enter(self.rank, call).inspect_err(|_| self.shared.abort())
    }

    /// The group has failed by this rank's error.
    fn fail(&self, error: &Error) {
        self.shared.fail(format!("rank {}: {error}", self.rank));
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.shared.calls.leave(self.rank) {
            self.shared.fail(format!("rank {} has dropped its communicator; others wait for it", self.rank));
        }
    }
}
