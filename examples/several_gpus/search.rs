//! A search in a corpus that is shared out: each device embeds its texts and finds the nearest ones to each
//! question among them; the lists are merged by score. The result is that of one device with the whole
//! corpus.

use ironwarp::ops::cosine::{Hit, Vectors, cosine_topk};
use ironwarp::parallel::{Group, shard};
use ironwarp::{DType, Device, Result, Stream, Tensor, f16};

use crate::numbers::numbers;

const TEXTS: usize = 203;
/// Numbers of a text: how often each word occurs.
const WORDS: usize = 48;
const DIM: usize = 64;
/// Texts are embedded so many at a time.
const BATCH: usize = 16;
const QUESTIONS: usize = 5;
const K: usize = 4;
/// Words of a text, and of a question.
const LONG: usize = 9;
const SHORT: usize = 4;

/// How often each word occurs in text `number`, which looks random.
fn words(number: usize, length: usize) -> [f32; WORDS] {
    let mut counts = [0.0; WORDS];
    let mut state = number as u64 + 1;
    for _ in 0..length {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        counts[(state >> 33) as usize % WORDS] += 1.0;
    }
    counts
}

/// Embeddings of texts: a layer of a network, in f16. Batches have one size, the last one is filled up.
fn embed(stream: &Stream, texts: &[[f32; WORDS]]) -> Result<Tensor> {
    let layer = numbers(stream, &[WORDS, DIM], 1.0, 5)?;
    let embedded = texts.chunks(BATCH).map(|batch| {
        let mut padded = batch.to_vec();
        padded.resize(BATCH, [0.0; WORDS]);
        let x = Tensor::from_slice(stream, &[BATCH, WORDS], padded.as_flattened())?;
        x.matmul(&layer)?.tanh()?.to(DType::F16)?.slice(0, ..batch.len())
    });
    let embedded: Vec<Tensor> = embedded.collect::<Result<_>>()?;
    Tensor::cat(&embedded.iter().collect::<Vec<_>>(), 0)
}

/// The best texts of a part of the corpus for each question, numbered as in the whole.
fn search(stream: &Stream, part: std::ops::Range<usize>) -> Result<Vec<Vec<Hit>>> {
    let first = part.start as u32;
    let corpus: Vec<_> = part.map(|number| words(number, LONG)).collect();
    let questions: Vec<_> = (0..QUESTIONS).map(|number| words(7 * number + 3, SHORT)).collect();
    let (corpus, questions) = (embed(stream, &corpus)?, embed(stream, &questions)?);
    let (corpus, questions) = (corpus.as_view::<f16>()?, questions.as_view::<f16>()?);
    let found = cosine_topk(stream, Vectors::new(corpus, DIM)?, Vectors::new(questions, DIM)?, K)?;
    let mut hits = found.to_host(stream)?;
    hits.iter_mut().flatten().for_each(|hit| hit.index += first);
    Ok(hits)
}

/// The best of all parts' lists; of equal scores the earlier text, as the kernel has them.
fn merge(parts: &[Vec<Vec<Hit>>]) -> Vec<Vec<Hit>> {
    let of_question = |question: usize| {
        let mut hits: Vec<Hit> = parts.iter().flat_map(|part| part[question].iter().copied()).collect();
        hits.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.index.cmp(&b.index)));
        hits.truncate(K);
        hits
    };
    (0..QUESTIONS).map(of_question).collect()
}

pub fn run(devices: &[Device]) -> Result<()> {
    let parts = Group::open(devices)?.run(|rank| {
        let stream = rank.device().stream()?;
        stream.scope(|_| search(&stream, shard(TEXTS, rank.rank(), rank.ranks())))
    })?;
    let merged = merge(&parts);
    let stream = devices[0].stream()?;
    let alone = stream.scope(|_| search(&stream, 0..TEXTS))?;
    assert_eq!(merged, alone, "the texts and scores of one device");
    let best = merged[0][0];
    let count = devices.len();
    println!(
        "search: {QUESTIONS} questions to {TEXTS} texts on {count} devices, as on one device; the first finds text {} ({:.3})",
        best.index, best.score
    );
    Ok(())
}
