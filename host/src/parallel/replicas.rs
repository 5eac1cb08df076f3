//! Replicas of a model: the same bits on all ranks, at the beginning and later.

use super::communicator::Communicator;
use crate::error::{ParallelError, Result};
use crate::memory::DeviceBuffer;
use crate::ops::hash::hash_bytes;
use crate::stream::Stream;
use crate::tensor::{Tensor, TensorMut};

impl Communicator {
    /// Copies the parameters of rank 0 to all ranks: replicas then begin with the same bits.
    ///
    /// # Errors
    /// As [`Communicator::broadcast`].
    #[track_caller]
    pub fn replicate<'a>(
        &mut self,
        stream: &Stream,
        parameters: impl IntoIterator<Item = TensorMut<'a>>,
    ) -> Result<()> {
        parameters.into_iter().try_for_each(|parameter| self.broadcast(stream, 0, parameter))
    }

    /// Checks that these tensors have the same bits on all ranks, by hashes that the devices compute, and
    /// waits. Call it now and then: a replica that differs may not show in the loss for long. All ranks get
    /// the same answer, and the group stays usable.
    ///
    /// # Errors
    /// [`ParallelError::ReplicasDiffer`], which names the first tensor that differs, and the ranks: those
    /// that are not with the most, or not with the lower ranks. [`ParallelError`] also when a rank checks
    /// another number of tensors; [`TensorError::NotContiguous`](crate::TensorError::NotContiguous),
    /// [`Error::DeviceMismatch`](crate::Error::DeviceMismatch), or the driver's error.
    #[track_caller]
    pub fn check_replicas(&mut self, stream: &Stream, tensors: &[(&str, &Tensor)]) -> Result<()> {
        let named: Vec<&Tensor> = tensors.iter().map(|(_, tensor)| *tensor).collect();
        let hashes = hash_bytes(stream, &named)?;
        let mut all = DeviceBuffer::<i64>::zeroed(stream, named.len() * self.ranks() as usize)?;
        self.all_gather(stream, &hashes, &mut all)?;
        let all = all.to_vec(stream)?;
        self.check()?;
        for (number, (name, _)) in tensors.iter().enumerate() {
            let ranks = apart(all.iter().skip(number).step_by(named.len()).copied());
            if !ranks.is_empty() {
                let (rank, tensor) = (self.rank(), (*name).to_owned());
                return Err(ParallelError::ReplicasDiffer { rank, tensor, ranks }.into());
            }
        }
        Ok(())
    }
}

/// The ranks whose hash is not that of the most ranks; of as many, that of the lower ranks counts.
fn apart(hashes: impl Iterator<Item = i64>) -> Vec<u32> {
    let hashes: Vec<i64> = hashes.collect();
    let votes = |hash: i64| hashes.iter().filter(|&&other| other == hash).count();
    // Of equal ones, `max_by_key` takes the last.
    let common = hashes.iter().rev().copied().max_by_key(|&hash| votes(hash));
    (0..).zip(&hashes).filter(|(_, hash)| Some(**hash) != common).map(|(rank, _)| rank).collect()
}

#[cfg(test)]
mod tests {
    use super::apart;

    #[test]
    fn the_most_are_right() {
        for (hashes, want) in [
            (vec![], vec![]),
            (vec![5], vec![]),
            (vec![5, 5, 5], vec![]),
            (vec![5, 6], vec![1]),
            (vec![6, 5, 5], vec![0]),
            (vec![7, 5, 5, 7], vec![1, 2]),
            (vec![7, 5, 6, 5], vec![0, 2]),
        ] {
            assert_eq!(apart(hashes.iter().copied()), want, "{hashes:?}");
        }
    }
}
