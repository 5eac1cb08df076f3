//! Attention of e4m3 operands, which come with scales.

use attention::sm90::fp8::config::SCALE_BLOCK;
use attention::sm90::fp8::instances::{OF_SCALE_BLOCKS, TABLE, attention_e4m3_128};
use cuda_std::kernel::Kernel;

use crate::error::Result;
use crate::launch::{self as kernel, LaunchConfig};
use crate::memory::{DeviceView, DeviceViewMut, same_length};
use crate::stream::Stream;

use super::OPERATION;
use super::check::invalid;
use super::config::{Choice, Config};
use super::heads::HeadsMut;
use super::launch::Launch;
use super::op::{Attention, Packed};
use super::problem::Problem;
use super::select;

/// The scales of queries, keys and values in e4m3: an element stands for itself times the scale of its rows.
///
/// Each is `[batch, heads]`, or `[batch, heads, blocks]` with one for each 128 rows of a sequence, the last
/// block being what is left; heads are those of the queries, and of the keys. Packed sequences count as a
/// batch, with as many blocks each as the longest that was told. Scales are positive and finite; a block of
/// zeros may have 0. Others make the results of their heads meaningless, and do no harm otherwise. A sum is
/// carried over in the scale of the next block of values: use 0 where that would be below 2^-80 of the last.
#[derive(Debug, Clone, Copy)]
pub struct Scales<'a> {
    /// Of queries.
    pub queries: DeviceView<'a, f32>,
    /// Of keys.
    pub keys: DeviceView<'a, f32>,
    /// Of values.
    pub values: DeviceView<'a, f32>,
}

/// [`Attention`] of e4m3 operands; the result is bf16. Made by [`Attention::quantized`].
///
/// Weights are rounded to e4m3 as well, 2^-4 relative, before they multiply V; sums of tensor cores keep
/// about 14 bits. There is no backward pass, and no score function.
///
/// ```no_run
/// # use ironwarp::{DeviceBuffer, Stream};
/// # use ironwarp::ops::attention::{Attention, Heads, HeadsMut, Mask, Scales};
/// use half::bf16;
/// use num::E4M3;
/// # type Memory = DeviceBuffer<E4M3>;
/// # fn run(stream: &Stream, q: Memory, k: Memory, v: Memory) -> ironwarp::Result<()> {
/// let sides = [2, 4096, 16, 128];
/// let mut o = DeviceBuffer::<bf16>::zeroed(stream, 2 * 4096 * 16 * 128)?;
/// // One a head of each sequence.
/// let (of_q, of_k, of_v) = ([0.02; 32], [0.01; 32], [0.03; 32]);
/// let (of_q, of_k) = (DeviceBuffer::from_slice(stream, &of_q)?, DeviceBuffer::from_slice(stream, &of_k)?);
/// let of_v = DeviceBuffer::from_slice(stream, &of_v)?;
/// Attention::new(
///     Heads::new::<E4M3>(&q, sides),
///     Heads::new::<E4M3>(&k, sides),
///     Heads::new::<E4M3>(&v, sides),
///     HeadsMut::new(&mut o, sides),
/// )
/// .mask(Mask::CAUSAL)
/// .quantized(Scales { queries: (&of_q).into(), keys: (&of_k).into(), values: (&of_v).into() })
/// .run(stream)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "attention is computed by `run`"]
pub struct Quantized<'a> {
    pub(super) attention: Attention<'a>,
    scales: Scales<'a>,
}

impl<'a> Attention<'a> {
    /// For queries, keys and values in e4m3 ([`num::E4M3`]) with scales, and a result in bf16. Rows begin at
    /// 16-byte boundaries, as always.
    pub fn quantized(self, scales: Scales<'a>) -> Quantized<'a> {
        Quantized { attention: self, scales }
    }
}

impl Quantized<'_> {
    /// As [`Attention::problem`].
    ///
    /// # Errors
    /// As [`Attention::problem`], and [`Error::Length`](crate::Error::Length) for another number of scales.
    pub fn problem(&self) -> Result<Problem> {
        self.attention.check_quantized_types()?;
        self.attention.check_sides()?;
        let problem = self.attention.describe()?;
        blocks(&problem, self.scales)?;
        Ok(problem)
    }

    /// As [`Attention::run`].
    ///
    /// # Errors
    /// As [`Attention::run`], and [`Error::Length`](crate::Error::Length) for another number of scales.
    pub fn run(self, stream: &Stream) -> Result<()> {
        let problem = self.checked(stream)?;
        let place = select::best(self.table(&problem)?, &problem, stream.device())?;
        self.launch(stream, &problem, place)
    }

    /// As [`Attention::run_with`]. Scales of blocks ask for a configuration in blocks of 128 keys; `explain`
    /// lists those.
    ///
    /// # Errors
    /// As [`Attention::run_with`], also for scales of blocks and another configuration, and
    /// [`Error::Length`](crate::Error::Length) for another number of scales.
    pub fn run_with(self, stream: &Stream, config: &Config) -> Result<()> {
        let problem = self.checked(stream)?;
        let place = select::place_of(TABLE, &problem, stream.device(), *config)?;
        if place >= self.table(&problem)?.len() {
            let got = format!("{config}, with scales of blocks of {SCALE_BLOCK} keys");
            let wanted = format!("blocks of {SCALE_BLOCK} keys, or a scale a head");
            return Err(invalid("the configuration", got, wanted, "ask `explain` for one"));
        }
        self.launch(stream, &problem, place)
    }

    /// As [`Attention::explain`].
    ///
    /// # Errors
    /// As [`Attention::explain`], and [`Error::Length`](crate::Error::Length) for another number of scales.
    pub fn explain(self, stream: &Stream) -> Result<Choice> {
        let problem = self.checked(stream)?;
        select::select_from(self.table(&problem)?, &problem, stream.device())
    }

    /// The same with results elsewhere.
    pub(super) fn with_results<'s>(
        &'s self,
        out: HeadsMut<'s>,
        log_sum_exp: Option<DeviceViewMut<'s, f32>>,
    ) -> Quantized<'s> {
        Quantized { attention: self.attention.with_results(out, log_sum_exp), scales: self.scales }
    }

    /// The kernels that can take the scales: the first ones of the table.
    pub(super) fn table(&self, problem: &Problem) -> Result<select::Table> {
        let [_, keys, values] = blocks(problem, self.scales)?;
        Ok(if keys > 1 || values > 1 { OF_SCALE_BLOCKS } else { TABLE })
    }

    pub(super) fn checked(&self, stream: &Stream) -> Result<Problem> {
        let problem = self.problem()?;
        self.attention.check_devices(stream)?;
        let Scales { queries, keys, values } = self.scales;
        stream.same_device("the scales of the queries", queries.device())?;
        stream.same_device("the scales of the keys", keys.device())?;
        stream.same_device("the scales of the values", values.device())?;
        Ok(problem)
    }

    /// Queues the kernel of this place in the table.
    pub(super) fn launch(mut self, stream: &Stream, problem: &Problem, place: usize) -> Result<()> {
        let blocks = blocks(problem, self.scales)?;
        let launch = Launch::new(stream, problem, &TABLE[place], &mut self.attention)?;
        let Some((grid, launched)) = launch else { return Ok(()) };
        // SAFETY: the launch is of the entry's configuration, and its blocks of keys have one scale; the
        // scales are as many as the blocks say; else as `Launch::new` says.
        unsafe { LAUNCHES[place](stream, grid, launched, (self.scales, blocks)) }
    }
}

/// Scales of a head: of queries, keys and values.
type Blocks = [u32; 3];

/// How many scales a head has, of as many as were given.
fn blocks(problem: &Problem, scales: Scales<'_>) -> Result<Blocks> {
    let Problem { batch, queries, keys, heads, kv_heads, .. } = *problem;
    let of = |what: &'static str, heads: u32, rows: u32, got: usize| -> Result<u32> {
        let of_heads = batch as usize * heads as usize;
        let blocks = rows.div_ceil(SCALE_BLOCK).max(1);
        if got == of_heads {
            return Ok(1);
        }
        same_length(OPERATION, what, of_heads.saturating_mul(blocks as usize), got)?;
        Ok(blocks)
    };
    Ok([
        of("the scales of the queries", heads, queries, scales.queries.len())?,
        of("the scales of the keys", kv_heads, keys, scales.keys.len())?,
        of("the scales of the values", kv_heads, keys, scales.values.len())?,
    ])
}

/// Parameters of all kernels of the table.
type Parameters = <attention_e4m3_128 as Kernel>::Params;

/// Launches a kernel.
///
/// # Safety
/// As for the kernel.
unsafe fn launch_as<K: Kernel<Params = Parameters>>(
    stream: &Stream,
    grid: LaunchConfig,
    launched: Launch<'_>,
    (scales, blocks): (Scales<'_>, Blocks),
) -> Result<()> {
    // Results do not leave by the copy engine.
    let Launch { maps: [queries, keys, values, _], params, data, log_sum_exp, .. } = launched;
    let Launch { sinks, packed, mut counter, .. } = launched;
    let [first_queries, first_keys] = Packed::first_rows(packed);
    let counter = counter.as_mut();
    let Scales { queries: of_queries, keys: of_keys, values: of_values } = scales;
    let arguments = (
        queries,
        keys,
        values,
        params,
        data,
        log_sum_exp,
        sinks,
        first_queries,
        first_keys,
        counter,
        of_queries,
        of_keys,
        of_values,
        blocks[0],
        blocks[1],
        blocks[2],
    );
    // SAFETY: the caller's contract.
    unsafe { kernel::launch::<K>(stream, grid, arguments) }
}

/// A kernel's launch.
type Queue = unsafe fn(&Stream, LaunchConfig, Launch<'_>, (Scales<'_>, Blocks)) -> Result<()>;

macro_rules! launches {
    ($($name:ident)*) => {
        /// In the order of the table.
        static LAUNCHES: [Queue; TABLE.len()] =
            [$(launch_as::<attention::sm90::fp8::instances::$name>),*];
    };
}
attention::for_each_sm90_fp8_kernel!(launches);
