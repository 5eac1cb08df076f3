//! Attention of e4m3 operands, which come with scales.

use attention::problem::AttentionParams;
use attention::sm90::fp8::config::{BLOCK_N, SCALE_BLOCK, Turned};
use attention::sm90::fp8::instances::{TABLE, attention_e4m3_128, attention_turn_e4m3};
use attention::sm90::fp8::turn;
use cuda_std::kernel::Kernel;

use crate::error::Result;
use crate::launch::{self as kernel, LaunchConfig};
use crate::memory::tensor_map::{L2Promotion, Swizzle, TensorMap, Tiling};
use crate::memory::{DeviceBuffer, DeviceView, same_length};
use crate::stream::Stream;

use super::OPERATION;
use super::check::invalid;
use super::config::{Choice, Config};
use super::heads::Heads;
use super::launch::{Launch, unknown};
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
    attention: Attention<'a>,
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
        let config = select::select(&problem, stream.device())?.config;
        self.launch(stream, &problem, config)
    }

    /// As [`Attention::run_with`].
    ///
    /// # Errors
    /// As [`Attention::run_with`], and [`Error::Length`](crate::Error::Length) for another number of scales.
    pub fn run_with(self, stream: &Stream, config: &Config) -> Result<()> {
        let problem = self.checked(stream)?;
        select::check(&problem, stream.device(), *config)?;
        self.launch(stream, &problem, *config)
    }

    /// As [`Attention::explain`].
    ///
    /// # Errors
    /// As [`Attention::explain`], and [`Error::Length`](crate::Error::Length) for another number of scales.
    pub fn explain(self, stream: &Stream) -> Result<Choice> {
        select::select(&self.checked(stream)?, stream.device())
    }

    fn checked(&self, stream: &Stream) -> Result<Problem> {
        let problem = self.problem()?;
        self.attention.check_devices(stream)?;
        let Scales { queries, keys, values } = self.scales;
        stream.same_device("the scales of the queries", queries.device())?;
        stream.same_device("the scales of the keys", keys.device())?;
        stream.same_device("the scales of the values", values.device())?;
        Ok(problem)
    }

    fn launch(mut self, stream: &Stream, problem: &Problem, config: Config) -> Result<()> {
        let index = TABLE.iter().position(|entry| entry == config.entry);
        let Some(queue) = index.and_then(|index| LAUNCHES.get(index)) else {
            return Err(unknown(config));
        };
        let blocks = blocks(problem, self.scales)?;
        let values = self.attention.values;
        let Some((grid, mut launched)) = Launch::new(stream, problem, config, &mut self.attention)? else {
            return Ok(());
        };
        // Without keys the kernel does not read their maps.
        let turned = if values.shape.is_empty() {
            None
        } else {
            Some(TurnedValues::new(stream, &launched.params, values, launched.packed)?)
        };
        if let Some(turned) = &turned {
            launched.maps[2] = turned.map(config.head_size())?;
        }
        // SAFETY: the configuration is the entry's; the scales are as many as the blocks say; the values are
        // turned before; else as `Launch::new` says.
        unsafe { queue(stream, grid, launched, (self.scales, blocks)) }
    }
}

/// The values of a launch as [`Turned`] says.
struct TurnedValues {
    data: DeviceBuffer<u8>,
    /// Bytes of a line, lines of a head, heads of a matrix, matrices.
    sides: [usize; 4],
}

impl TurnedValues {
    /// Queues the kernel that turns them.
    fn new(
        stream: &Stream,
        params: &AttentionParams,
        values: Heads<'_>,
        packed: Option<Packed<'_>>,
    ) -> Result<Self> {
        let [matrices, _, heads, _] = values.sides();
        let line_bytes = line_bytes(params, packed.is_some())?;
        let blocks = blocks_that_turn(params)?;
        let sides = [line_bytes as usize, Turned::lines(params.head_size) as usize, heads, matrices];
        let bytes = sides.iter().fold(1usize, |all, &side| all.saturating_mul(side));
        // SAFETY: bytes have no invalid values; the kernel writes all that the next one reads.
        let mut data = unsafe { DeviceBuffer::uninit(stream, bytes)? };
        let grid = LaunchConfig::new([blocks, 1, 1], [turn::THREADS, 1, 1]).overlapping_previous();
        let [first_queries, first_keys] = Packed::first_rows(packed);
        let arguments = (
            *params,
            values.data,
            values.strides_of_rows(),
            &mut data,
            line_bytes,
            first_queries,
            first_keys,
        );
        // SAFETY: shapes, strides and lengths are checked; the lines have the bytes that the layout says; as
        // many blocks as the kernel wants.
        unsafe { kernel::launch::<attention_turn_e4m3>(stream, grid, arguments)? }
        Ok(TurnedValues { data, sides })
    }

    /// A map in boxes of a block of keys of so many lines.
    fn map(&self, lines: u32) -> Result<TensorMap<'_>> {
        let tiling = Tiling::new(self.sides, [BLOCK_N, lines, 1, 1])
            .swizzle(Swizzle::B128)
            .l2_promotion(L2Promotion::B128);
        TensorMap::new(self.data.view(), &tiling)
    }
}

/// Bytes of a line of turned values.
fn line_bytes(params: &AttentionParams, is_packed: bool) -> Result<u32> {
    let bytes = Turned::line_bytes(params.keys, is_packed.then_some([params.key_rows, params.batch]));
    // The copy engine counts them in 31 bits.
    u32::try_from(bytes).ok().filter(|&bytes| bytes <= i32::MAX as u32).ok_or_else(|| {
        let got = format!("{} rows of keys in {} sequences", params.key_rows, params.batch);
        let wanted = format!("fewer than 2^31, with up to {BLOCK_N} more for each sequence");
        invalid("the sequences", got, wanted, "split the sequences and call once for each part")
    })
}

/// Blocks of the kernel that turns values.
fn blocks_that_turn(params: &AttentionParams) -> Result<u32> {
    let blocks = turn::blocks(params);
    u32::try_from(blocks).ok().filter(|&blocks| blocks <= i32::MAX as u32).ok_or_else(|| {
        let got = format!("{blocks} blocks of {BLOCK_N} keys");
        let hint = "split the batch and call once for each part";
        invalid("the values", got, "fewer than 2^31".to_owned(), hint)
    })
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

#[cfg(test)]
mod tests {
    use attention::problem::AttentionParams;

    use super::super::launch::list_params;
    use super::super::{Mask, Problem};
    use super::{blocks_that_turn, line_bytes};
    use crate::tensor::DType;

    fn params(batch: u32, keys: u32, packed: Option<[u32; 2]>) -> AttentionParams {
        list_params(&Problem {
            dtype: DType::F8E4M3,
            batch,
            queries: 1,
            keys,
            heads: 4,
            kv_heads: 2,
            head_size: 200,
            mask: Mask::FULL,
            packed,
            log_sum_exp: false,
        })
    }

    #[test]
    fn lines_have_whole_blocks_of_each_sequence() {
        assert_eq!(line_bytes(&params(3, 129, None), false).ok(), Some(256));
        assert_eq!(line_bytes(&params(3, 129, Some([1, 130])), true).ok(), Some(256 + 3 * 128));
        let many = params(1 << 24, 1, Some([1, 1 << 24]));
        let why = line_bytes(&many, true).map_err(|error| error.to_string());
        assert!(
            why.is_err_and(|why| why.contains("16777216 sequences") && why.contains("split the sequences"))
        );
    }

    #[test]
    fn blocks_turn_128_columns_of_128_keys() {
        assert_eq!(blocks_that_turn(&params(3, 129, None)).ok(), Some(3 * 2 * 2 * 2));
        let many = blocks_that_turn(&params(1 << 20, 1 << 20, None)).map_err(|error| error.to_string());
        assert!(many.is_err_and(|why| why.contains("the values") && why.contains("split the batch")));
    }
}
