//! The configurations that a tuner finds beside those that are chosen without one, on shapes that nothing was
//! tuned for, drawn at random. Each row's samples are of the choice, of the tuner's configuration and of
//! torch's back ends in turns.

use std::cell::RefCell;

use half::bf16;
use ironwarp::ops::tuning::{Tuner, Tuning};
use ironwarp_benches::{Outcome, Session, Work, pick, spread};
use num::E4M3;
use testkit::{Random, tolerance};

use crate::decode::{STEP, Step};
use crate::{Layer, Set, attention, backward_of, check, forward};

/// The seed of the draw.
const SEED: u64 = 1127;
/// Layers and steps of decoding.
const LAYERS: usize = 8;
const STEPS: usize = 10;
/// Elements of an operand, and of a cache's keys, at most: the host takes seconds for more.
const MOST: usize = 1 << 23;

pub fn rows(session: &mut Session) -> Outcome {
    let tuner = Tuner::new(&session.device, Tuning::Measure);
    let mut random = Random::new(SEED);
    for _ in 0..LAYERS {
        let drawn = if session.small() { SMALL } else { Layer::draw(&mut random) };
        layer(session, &tuner, drawn)?;
        if session.small() {
            break;
        }
    }
    for _ in 0..STEPS {
        let drawn = if session.small() { SMALL_STEP } else { Step::draw(&mut random) };
        match drawn.is_e4m3 {
            true => drawn.bench_tuned::<E4M3>(session, &tuner)?,
            false => drawn.bench_tuned::<bf16>(session, &tuner)?,
        }
        if session.small() {
            break;
        }
    }
    Ok(())
}

const SMALL: Layer = Layer { batch: 1, rows: 150, heads: 2, size: 64, values: 64, is_causal: true };
const SMALL_STEP: Step = Step { batch: 2, keys: 200, heads: 4, kv_heads: 2, ..STEP };

impl Layer {
    fn draw(random: &mut Random) -> Self {
        let rows = spread(random, 100.0, 8_000.0);
        let (heads, size) = (pick(random, &[2, 4, 8, 12, 16]), pick(random, &[64, 80, 96, 128, 192, 256]));
        let batch = spread(random, 1.0, (MOST as f64 / (rows * heads * size) as f64).max(1.5));
        Layer { batch, rows, heads, size, values: size, is_causal: random.unit() < 0.6 }
    }
}

impl Step {
    fn draw(random: &mut Random) -> Self {
        let (heads, kv_heads) = pick(random, &[(32, 8), (16, 2), (32, 32), (64, 8), (12, 4)]);
        let (keys, size) = (spread(random, 200.0, 20_000.0), pick(random, &[64, 128, 128]));
        let most = (2 * MOST / (keys * kv_heads * size)).clamp(1, 128);
        let batch = spread(random, 1.0, most as f64 + 0.5);
        let (page, is_e4m3) = (pick(random, &[None, None, Some(16)]), random.unit() < 0.3);
        Step { batch, keys, heads, kv_heads, size, page, is_e4m3, ..STEP }
    }
}

/// Both passes.
fn layer(session: &mut Session, tuner: &Tuner, layer: Layer) -> Outcome {
    let shape = layer.shape();
    let names = ["", "_backward"].map(|pass| format!("attention_tuned{pass}_{}", layer.size));
    if !names.iter().any(|name| session.wants(&format!("{name}/{shape}"))) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let host = layer.operands();
    let mut set = layer.set(&stream, &host)?;
    tuner.run(&stream, attention(layer, &mut set))?;
    check(layer, &host, &set.output.to_vec(&stream)?, tolerance::ATTENTION_BF16)?;
    let choice = attention(layer, &mut set).explain(&stream)?.config;
    println!("chosen: {choice}; {}", tuner.explain(&stream, attention(layer, &mut set))?);
    // Both write the same results, in turns.
    let set = RefCell::new(set);
    let row = (&names[0][..], &shape[..], Work::Flops(2 * layer.flops()));
    let run = |_| forward(&stream, layer, &mut set.borrow_mut());
    let tuned = |_| tuner.run(&stream, attention(layer, &mut set.borrow_mut()));
    let peers = [layer.request("cudnn"), layer.request("flash")];
    session.measure_groups_beside(row, &peers, 1, run, ("tuned", tuned))?;
    gradients(session, tuner, layer, (&names[1], &shape), &set)
}

fn gradients(
    session: &mut Session,
    tuner: &Tuner,
    layer: Layer,
    (name, shape): (&str, &str),
    set: &RefCell<Set>,
) -> Outcome {
    let stream = session.stream.clone();
    tuner.run(&stream, backward_of(layer, &mut set.borrow_mut()))?;
    let choice = backward_of(layer, &mut set.borrow_mut()).explain(&stream)?.config;
    println!("chosen: {choice}; {}", tuner.explain(&stream, backward_of(layer, &mut set.borrow_mut()))?);
    let run = |_| backward_of(layer, &mut set.borrow_mut()).run(&stream);
    let tuned = |_| tuner.run(&stream, backward_of(layer, &mut set.borrow_mut()));
    let row = (name, shape, Work::Flops(layer.backward_flops()));
    session.measure_groups_beside(row, &[layer.request("cudnn_backward")], 1, run, ("tuned", tuned))
}
