//! Both passes of layers drawn at random (`--random N`), beside cuDNN and FlashAttention 2.

use ironwarp_benches::{Outcome, Session, Work, pick, spread};
use testkit::{Random, tolerance};

use crate::{Layer, attention, backward_of, check, forward, gradients};

/// Elements of an operand, at most: the host takes seconds for more.
const MOST: usize = 1 << 23;
/// Queries of a sequence; of half of them, a multiple of this.
const LENGTHS: [f64; 2] = [64.0, 16_384.0];
const USUAL_MULTIPLE: usize = 64;
/// Head sizes: half of the layers have one of the first list.
const USUAL_SIZES: [usize; 2] = [64, 128];
const SIZES: [usize; 10] = [32, 40, 48, 72, 80, 96, 112, 160, 192, 256];

/// So many layers: lengths and numbers of sequences are as often small as large.
pub fn layers(count: usize, seed: u64) -> Vec<Layer> {
    let mut random = Random::new(seed);
    (0..count).map(|_| layer(&mut random)).collect()
}

fn layer(random: &mut Random) -> Layer {
    let rows = spread(random, LENGTHS[0], LENGTHS[1]);
    let rows = if random.unit() < 0.5 { rows.next_multiple_of(USUAL_MULTIPLE) } else { rows };
    let size = if random.unit() < 0.5 { pick(random, &USUAL_SIZES) } else { pick(random, &SIZES) };
    let most = (MOST / (rows * size)).max(1) as f64;
    let heads = spread(random, 1.0, most.min(40.0) + 0.9);
    let batch = spread(random, 1.0, most / heads as f64 + 0.9);
    Layer { batch, rows, heads, size, values: size, is_causal: random.unit() < 0.5 }
}

pub fn rows(session: &mut Session, layers: &[Layer]) -> Outcome {
    for (done, &layer) in layers.iter().enumerate() {
        if session.is_over(layers.len() - done) {
            break;
        }
        let few = Layer { batch: 1, rows: layer.rows.min(192), heads: 1, ..layer };
        row(session, if session.small() { few } else { layer })?;
    }
    Ok(())
}

fn row(session: &mut Session, layer: Layer) -> Outcome {
    let names = ["attention", "attention_backward"];
    if !session.wants_any(&names) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let (host, shape) = (layer.operands(), layer.shape());
    let mut set = layer.set(&stream, &host)?;
    forward(&stream, layer, &mut set)?;
    check(layer, &host, &set.output.to_vec(&stream)?, tolerance::ATTENTION_BF16)?;
    let choices = [
        attention(layer, &mut set).explain(&stream)?.to_string(),
        backward_of(layer, &mut set).explain(&stream)?.to_string(),
    ];
    for (name, choice) in names.into_iter().zip(choices) {
        session.explain(name, &shape, choice);
    }
    let peers = layer.peers(["cudnn", "flash"]);
    session.measure_beside(names[0], &shape, Work::Flops(2 * layer.flops()), &peers, |_| {
        forward(&stream, layer, &mut set)
    })?;
    let peers = layer.peers(["cudnn_backward", "flash_backward"]);
    session.measure_beside(names[1], &shape, Work::Flops(layer.backward_flops()), &peers, |_| {
        gradients(&stream, layer, &mut set, false)
    })
}
