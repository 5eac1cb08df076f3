//! `hash_bytes` against its oracle, on whichever driver is there.

use crate::common::Outcome;
use ironwarp::ops::hash::hash_bytes;
use ironwarp::{Device, Error, Stream, Tensor};
use testkit::{Family, Random, input};

/// Around a word, a unit, the units that a thread has under way, a block and two of them.
const LENGTHS: [usize; 16] = [0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 255, 4096, 16_383, 16_384, 16_401, 70_007];

fn random(seed: u64, length: usize) -> Vec<u8> {
    let random = &mut Random::new(seed);
    (0..length).map(|_| random.bits() as u8).collect()
}

/// The hashes of bytes from each of these places on.
fn hashes(stream: &Stream, bytes: &[u8], starts: &[usize]) -> Result<Vec<u64>, Error> {
    let tensor = Tensor::from_slice(stream, &[bytes.len()], bytes)?;
    let parts = starts.iter().map(|&start| tensor.slice(0, start..)).collect::<Result<Vec<_>, _>>()?;
    let hashes = hash_bytes(stream, &parts.iter().collect::<Vec<_>>())?.to_vec(stream)?;
    Ok(hashes.into_iter().map(|hash| hash as u64).collect())
}

#[test]
fn any_length_and_alignment() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    for length in LENGTHS {
        let bytes = random(length as u64, length);
        let starts: Vec<usize> = [0, 1, 4, 8, 15, 16].into_iter().filter(|&start| start <= length).collect();
        let want: Vec<u64> = starts.iter().map(|&start| reference::hash(&bytes[start..])).collect();
        assert_eq!(hashes(&stream, &bytes, &starts)?, want, "{length} bytes from {starts:?}");
    }
    Ok(())
}

/// More than one turn of all threads.
#[test]
fn many_bytes() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let bytes = random(3, (1 << 20) + 5);
    assert_eq!(hashes(&stream, &bytes, &[0, 1])?, [reference::hash(&bytes), reference::hash(&bytes[1..])]);
    Ok(())
}

#[test]
fn every_bit_and_every_place_counts() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let bytes = random(4, 40);
    let known = hashes(&stream, &bytes, &[0])?;
    for bit in 0..8 * bytes.len() {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert_ne!(hashes(&stream, &changed, &[0])?, known, "bit {bit}");
    }
    let mut turned = bytes.clone();
    turned.rotate_left(8);
    assert_ne!(hashes(&stream, &turned, &[0])?, known, "words in another order");
    let longer = [&bytes[..], &[0]].concat();
    assert_ne!(hashes(&stream, &longer, &[0])?, known, "one zero more");
    Ok(())
}

/// Bits count, not numbers; nothing else does.
#[test]
fn tensors_of_any_type() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let values = input::<f32>(Family::HugeTiny, 5, 60);
    let flat = Tensor::from_slice(&stream, &[60], &values)?;
    let folded = flat.view_as(&[3, 20])?;
    let zero = Tensor::from_slice(&stream, &[1], &[0.0f32])?;
    let negative = Tensor::from_slice(&stream, &[1], &[-0.0f32])?;
    let run = || hash_bytes(&stream, &[&flat, &folded, &zero, &negative])?.to_vec(&stream);
    let hashes = run()?;
    assert_eq!(hashes[0] as u64, reference::hash(bytemuck::cast_slice(&values)));
    assert_eq!(hashes[0], hashes[1]);
    assert_ne!(hashes[2], hashes[3]);
    assert_eq!(run()?, hashes, "the same in every run");
    let error = hash_bytes(&stream, &[&folded.t()?]).expect_err("not in one piece");
    assert!(error.to_string().contains("contiguous"), "{error}");
    Ok(())
}
