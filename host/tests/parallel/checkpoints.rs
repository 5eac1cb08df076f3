//! Replicas and their optimiser in sharded checkpoints: training that goes on from one has the bits of
//! training that never ended, on any number of ranks.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use ironwarp::ops::optim::{AdamW, AdamWConfig, StateConfig};
use ironwarp::parallel::checkpoint::{Checkpoints, Report, restore, save_shard};
use ironwarp::parallel::{Communicator, Group, Reduction, shard};
use ironwarp::{DType, Device, Error, Result, Stream, Tensor, bf16};

use crate::devices;

const SAMPLES: usize = 8;
const WEIGHTS: [usize; 2] = [37, 3];
const BIASES: usize = 5;
/// The step at which the state is saved, and the last one.
const SAVED: u64 = 3;
const STEPS: u64 = 6;

/// A folder that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Folder(std::env::temp_dir().join(format!("ironwarp-{name}-{}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The system removes what is left of it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Small whole numbers: their sums are exact, however many ranks add them up.
fn gradient(rank: &Communicator, step: u64, len: usize) -> Vec<f32> {
    let samples = shard(SAMPLES, rank.rank(), rank.ranks());
    let of_sample = |sample: usize, i: usize| ((sample * 7 + i * 3 + step as usize * 5) % 9) as f32 - 4.0;
    (0..len).map(|i| samples.clone().map(|sample| of_sample(sample, i)).sum()).collect()
}

/// A replica's weights, biases, the optimiser's tensors and its steps.
type Bits = (Vec<u32>, Vec<u16>, Vec<Vec<u32>>, u64);

/// Parameters of two types, and their optimiser.
struct Replica {
    weights: Tensor,
    biases: Tensor,
    optimizer: AdamW,
}

impl Replica {
    fn new(stream: &Stream) -> Result<Self> {
        let values: Vec<f32> = (0..WEIGHTS[0] * WEIGHTS[1]).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut weights = Tensor::from_slice(stream, &WEIGHTS, &values)?;
        let mut biases = Tensor::from_slice(stream, &[BIASES], &[bf16::from_f32(0.5); BIASES])?;
        let state = StateConfig { master: true, ..StateConfig::default() };
        let config = AdamWConfig { learning_rate: 0.01, state, ..AdamWConfig::default() };
        let optimizer = AdamW::new(stream, &[weights.view_mut()?, biases.view_mut()?], config)?;
        Ok(Replica { weights, biases, optimizer })
    }

    fn step(&mut self, rank: &mut Communicator, stream: &Stream, step: u64) -> Result<()> {
        let mut of_weights =
            Tensor::from_slice(stream, &WEIGHTS, &gradient(rank, step, WEIGHTS[0] * WEIGHTS[1]))?;
        let mut of_biases = Tensor::from_slice(stream, &[BIASES], &gradient(rank, step, BIASES))?;
        rank.all_reduce(stream, Reduction::Sum, of_weights.view_mut()?)?;
        rank.all_reduce(stream, Reduction::Sum, of_biases.view_mut()?)?;
        let mut parameters = [self.weights.view_mut()?, self.biases.view_mut()?];
        self.optimizer.step(stream, &mut parameters, &[&of_weights, &of_biases], None)
    }

    fn save(
        &self,
        rank: &Communicator,
        stream: &Stream,
        checkpoints: &Checkpoints,
        step: u64,
    ) -> Result<Report> {
        let state = self.optimizer.state(stream)?;
        let mut tensors = vec![("weights", &self.weights), ("biases", &self.biases)];
        tensors.extend(state.iter().map(|(name, tensor)| (name.as_str(), tensor)));
        save_shard(stream, checkpoints, step, rank.rank(), rank.ranks(), &tensors)
    }

    fn restore(&mut self, stream: &Stream, checkpoints: &Checkpoints, step: u64) -> Result<()> {
        let checkpoint = checkpoints.open(step)?;
        restore(stream, &checkpoint, "weights", self.weights.view_mut()?)?;
        restore(stream, &checkpoint, "biases", self.biases.view_mut()?)?;
        self.optimizer.restore(stream, |name, tensor| restore(stream, &checkpoint, name, tensor))
    }

    /// Everything, as bits.
    fn bits(&self, stream: &Stream) -> Result<Bits> {
        let bits =
            |x: &Tensor| Ok(x.to_vec::<f32>(stream)?.into_iter().map(f32::to_bits).collect::<Vec<_>>());
        let state = self.optimizer.state(stream)?;
        let state =
            state.iter().filter(|(_, tensor)| tensor.dtype() == DType::F32).map(|(_, tensor)| bits(tensor));
        let biases = self.biases.to_vec::<bf16>(stream)?.into_iter().map(bf16::to_bits).collect();
        Ok((bits(&self.weights)?, biases, state.collect::<Result<_>>()?, self.optimizer.steps(stream)?))
    }
}

/// Trains to the last step, from the checkpoint of a step if there is one, and saves on the way otherwise.
fn train(devices: &[Device], checkpoints: &Checkpoints) -> Result<Vec<Bits>> {
    let newest = checkpoints.newest_whole()?.map(|checkpoint| checkpoint.step());
    let reports = Mutex::new(Vec::new());
    Group::open(devices)?.run(|mut rank| {
        let stream = rank.device().stream()?;
        let mut replica = Replica::new(&stream)?;
        if let Some(step) = newest {
            replica.restore(&stream, checkpoints, step)?;
        }
        for step in newest.unwrap_or(0)..STEPS {
            if newest.is_none() && step == SAVED {
                let report = replica.save(&rank, &stream, checkpoints, step)?;
                reports.lock().unwrap_or_else(PoisonError::into_inner).push(report);
                rank.barrier(&stream)?;
                rank.synchronize(&stream)?;
                if rank.rank() == 0 {
                    let reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
                    checkpoints.commit(step, &reports, &BTreeMap::new())?;
                }
            }
            replica.step(&mut rank, &stream, step)?;
        }
        rank.synchronize(&stream)?;
        replica.bits(&stream)
    })
}

#[test]
fn training_goes_on_with_any_number_of_ranks() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "8");
    let Some(all) = devices(8)? else { return Ok(()) };
    let folder = Folder::new("training-goes-on");
    let checkpoints = Checkpoints::new(&folder.0);
    let whole = train(&all[..all.len().min(4)], &checkpoints)?;
    assert!(whole.iter().all(|bits| *bits == whole[0]) && whole[0].3 == STEPS);
    assert_eq!(checkpoints.open(SAVED)?.ranks(), whole.len());
    for ranks in [1, 2, 4, 7].into_iter().filter(|&ranks| ranks <= all.len()) {
        let resumed = train(&all[..ranks], &checkpoints)?;
        assert!(resumed.iter().all(|bits| *bits == whole[0]), "{ranks} ranks");
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "1");
    let (folder, stream) = (Folder::new("does-not-fit"), Device::open(0)?.stream()?);
    let checkpoints = Checkpoints::new(&folder.0);
    let flags = Tensor::from_slice(&stream, &[3], &[true, false, true])?;
    let x = Tensor::from_slice(&stream, &[2, 3], &[1i32, 2, 3, 4, 5, 6])?;
    let tensors = [("x", &x), ("flags", &flags)];
    // Five ranks have 6 and 3 elements between them: some have none.
    let reports = (0..5).map(|rank| save_shard(&stream, &checkpoints, 1, rank, 5, &tensors));
    checkpoints.commit(1, &reports.collect::<Result<Vec<_>>>()?, &BTreeMap::new())?;
    let checkpoint = checkpoints.open(1)?;
    let mut y = Tensor::zeros(&stream, &[2, 3], DType::I32)?;
    restore(&stream, &checkpoint, "x", y.view_mut()?)?;
    assert_eq!(y.to_vec::<i32>(&stream)?, [1, 2, 3, 4, 5, 6]);
    let mut read = Tensor::zeros(&stream, &[3], DType::Bool)?;
    restore(&stream, &checkpoint, "flags", read.view_mut()?)?;
    assert_eq!(read.to_vec::<bool>(&stream)?, [true, false, true]);
    let says = |result: Result<()>, part: &str| {
        let error = result.expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    };
    let into = |name: &str, shape: &[usize], dtype| {
        restore(&stream, &checkpoint, name, Tensor::zeros(&stream, shape, dtype)?.view_mut()?)
    };
    says(into("x", &[3, 2], DType::I32), "has shape [3, 2], wanted [2, 3]");
    says(into("x", &[2, 3], DType::F32), "wanted I32, as it was saved");
    says(into("y", &[2, 3], DType::I32), "no tensor \"y\" in the checkpoint of step 1");
    says(restore(&stream, &checkpoint, "x", y.view_mut()?.permute(&[1, 0])?), "has shape [3, 2]");
    says(save_shard(&stream, &checkpoints, 2, 0, 1, &[("x", &x.t()?)]).map(drop), "is not contiguous");
    says(save_shard(&stream, &checkpoints, 2, 2, 2, &tensors).map(drop), "a rank below 2");
    // A byte of the data changes on disk.
    let path = checkpoint.path().join("shard-00000-of-00005.safetensors");
    let mut bytes = fs::read(&path).expect("it was written");
    *bytes.last_mut().expect("it has data") ^= 1;
    fs::write(&path, bytes).expect("it may be written");
    let error = restore(&stream, &checkpoints.open(1)?, "x", y.view_mut()?).expect_err("damaged");
    assert!(matches!(&error, Error::Checkpoint(_)) && error.to_string().contains("is damaged"), "{error}");
    Ok(())
}
