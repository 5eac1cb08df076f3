//! From checked operands to launches.

use std::mem;

use attention::decode::combine;
use attention::decode::config::{ElementType, THREADS, TILE_ROWS};
use attention::decode::instances::{self, TABLE};
use attention::decode::problem::DecodeParams;
use attention::decode::results::{ENDED_WORDS, PLACES};
use attention::decode::sm90::instances::{self as e4m3, TABLE as E4M3_TABLE};
use attention::problem::Strides;
use cuda_std::kernel::{Kernel as KernelType, Value};

use crate::error::Result;
use crate::launch::{self as kernel, Arg, LaunchConfig};
use crate::memory::{DeviceBuffer, DeviceView, DeviceViewMut};
use crate::stream::Stream;

use super::super::heads::{Heads, Shape};
use super::append::Cache;
use super::{Decode, DecodePlan};

/// The parts that blocks leave for the second launch.
pub struct Parts {
    pub ended: DeviceBuffer<u32>,
    pub sums: DeviceBuffer<f32>,
    pub totals: DeviceBuffer<f32>,
}

impl Parts {
    fn new(stream: &Stream, plan: &DecodePlan) -> Result<Self> {
        let blocks = plan.blocks as usize;
        let rows = if plan.is_cut { blocks * PLACES as usize * TILE_ROWS as usize } else { 0 };
        // SAFETY: numbers have no invalid values; the pass writes what the second launch reads.
        unsafe {
            Ok(Parts {
                ended: DeviceBuffer::uninit(stream, blocks * ENDED_WORDS as usize)?,
                sums: DeviceBuffer::uninit(stream, rows * plan.entry.head as usize)?,
                totals: DeviceBuffer::uninit(stream, 2 * rows)?,
            })
        }
    }
}

/// Queues the pass, and the second launch if the plan has one.
pub(super) fn launch(stream: &Stream, plan: &DecodePlan, decode: Decode<'_>) -> Result<()> {
    let Some(mut call) = Call::new(stream, plan, decode)? else { return Ok(()) };
    // SAFETY: as `Call::new` says; the kernel is the plan's.
    unsafe {
        PASSES[plan.index](&mut call)?;
        call.combine()
    }
}

/// The launches of a call.
pub struct Call<'c> {
    stream: &'c Stream,
    plan: &'c DecodePlan,
    params: DecodeParams,
    decode: Decode<'c>,
    parts: Parts,
}

/// The arguments of the pass.
pub struct Operands<'o, A> {
    pub stream: &'o Stream,
    pub config: LaunchConfig,
    pub params: DecodeParams,
    pub queries: DeviceView<'o, u16>,
    pub keys: Option<DeviceView<'o, u16>>,
    pub values: Option<DeviceView<'o, u16>>,
    pub table: Option<DeviceView<'o, i32>>,
    pub append: A,
    pub lengths: Option<DeviceView<'o, i32>>,
    pub data: DeviceViewMut<'o, u16>,
    pub log_sum_exp: Option<DeviceViewMut<'o, f32>>,
    pub sinks: Option<DeviceView<'o, f32>>,
    pub parts: &'o mut Parts,
}

impl<'c> Call<'c> {
    /// Of a checked call, by its plan; nothing where there is nothing to do. Kernels keep within its
    /// operands: shapes, strides and lengths are checked, and results do not overlap; lengths and page
    /// numbers are limited by the kernels; there are places for each block; without a cut none is used.
    pub fn new(stream: &'c Stream, plan: &'c DecodePlan, decode: Decode<'c>) -> Result<Option<Self>> {
        if plan.problem.is_empty() {
            return Ok(None);
        }
        let (params, parts) = (params(plan, &decode), Parts::new(stream, plan)?);
        Ok(Some(Call { stream, plan, params, decode, parts }))
    }

    /// The factor of scores on their way to a score function, behind which there is none: results are of its
    /// scores.
    pub fn take_scale(&mut self) -> f32 {
        mem::replace(&mut self.params.scale, 1.0)
    }

    /// For the pass.
    pub fn operands(&mut self) -> Operands<'_, impl Arg<Value<instances::Append>>> {
        let Call { stream, plan, params, decode, parts } = self;
        let (read, kept, new) = match &mut decode.cache {
            Cache::Read([keys, values]) => ([Some(*keys), Some(*values)], [None, None], [None, None]),
            Cache::Append { kept: [keys, values], new: [new_keys, new_values] } => {
                ([None, None], [Some(keys), Some(values)], [Some(*new_keys), Some(*new_values)])
            }
        };
        let [keys, values] = read.map(bits);
        let [kept_keys, kept_values] = kept.map(|rows| rows.map(|rows| rows.data.view_mut().cast::<u16>()));
        let [new_keys, new_values] = new.map(bits);
        let [cosines, sines] =
            decode.rotary.map_or([None, None], |rotary| [Some(rotary.cosines), Some(rotary.sines)]);
        let [key_scales, value_scales] =
            decode.scales.map_or([None, None], |scales| [Some(scales.keys), Some(scales.values)]);
        let append = instances::AppendArgs {
            kept_keys,
            kept_values,
            new_keys,
            new_values,
            cosines,
            sines,
            key_scales,
            value_scales,
        };
        Operands {
            stream,
            config: LaunchConfig::new([plan.blocks, 1, 1], [THREADS, 1, 1])
                .with_shared(plan.entry.shared)
                .overlapping_previous(),
            params: *params,
            queries: decode.queries.data.cast(),
            keys,
            values,
            table: decode.pages.map(|pages| pages.table),
            append: append.pass(),
            lengths: decode.lengths,
            data: decode.out.data.view_mut().cast(),
            log_sum_exp: decode.log_sum_exp.as_mut().map(DeviceViewMut::view_mut),
            sinks: decode.sinks,
            parts,
        }
    }

    /// Queues the second launch, if the plan has one.
    ///
    /// # Safety
    /// The pass is queued.
    pub unsafe fn combine(self) -> Result<()> {
        if !self.plan.is_cut {
            return Ok(());
        }
        // SAFETY: the caller's word, and as `Call::new` says.
        unsafe {
            match self.plan.entry.element {
                ElementType::Bf16 => self.combine_as::<instances::attention_combine_bf16>(),
                ElementType::F16 => self.combine_as::<instances::attention_combine_f16>(),
            }
        }
    }

    /// Queues the second launch.
    ///
    /// # Safety
    /// As for the kernel, but for the launch's configuration.
    unsafe fn combine_as<K: KernelType<Params = CombineParameters>>(self) -> Result<()> {
        let Call { stream, plan, params, mut decode, mut parts } = self;
        let rows = params.rows().min(TILE_ROWS);
        let config = LaunchConfig::new([plan.blocks, rows, 1], [combine::THREADS, 1, 1])
            .with_shared(combine::SHARED)
            .overlapping_previous();
        let arguments = (
            params,
            plan.entry.head,
            decode.out.data.view_mut().cast::<u16>(),
            decode.log_sum_exp.as_mut(),
            decode.sinks,
            &mut parts.ended,
            &mut parts.sums,
            &mut parts.totals,
        );
        // SAFETY: the caller's contract.
        unsafe { kernel::launch::<K>(stream, config, arguments) }
    }
}

fn params(plan: &DecodePlan, decode: &Decode<'_>) -> DecodeParams {
    let problem = &plan.problem;
    let [pages, page_size, table_row] = problem.pages.unwrap_or([problem.batch, problem.keys, 0]);
    let [keys, values] = decode.cache.rows();
    // Without new keys, any will do.
    let [new_key_strides, new_value_strides] =
        decode.cache.new_rows().unwrap_or([keys, values]).map(|rows| strides(rows.shape));
    DecodeParams {
        batch: problem.batch,
        queries: problem.queries,
        kv_heads: problem.kv_heads,
        group: problem.group(),
        keys: problem.keys,
        head_size: problem.head_size,
        pages,
        page_size,
        table_row,
        band: problem.mask.band(),
        scale: decode.scale.unwrap_or(1.0 / (problem.head_size as f32).sqrt()),
        query_strides: strides(decode.queries.shape),
        key_strides: strides(keys.shape),
        value_strides: strides(values.shape),
        output_strides: strides(decode.out.shape),
        new_keys: if problem.appends { problem.queries } else { 0 },
        new_key_strides,
        new_value_strides,
        rotated: problem.rotated,
        rotates_neighbours: decode.rotary.is_some_and(|rotary| rotary.is_by_neighbours).into(),
    }
}

fn strides(shape: Shape) -> Strides {
    let [matrix, row, head, _] = shape.bounded().strides.map(|stride| stride as u64);
    Strides { row, head, matrix }
}

/// The bits of rows' elements; of e4m3 two a number.
fn bits(rows: Option<Heads<'_>>) -> Option<DeviceView<'_, u16>> {
    rows.map(|rows| rows.data.cast::<u16>())
}

/// Queues the pass.
///
/// # Safety
/// As for the kernel, but for the launch's configuration.
unsafe fn pass_as<K: KernelType<Params = PassParameters>>(call: &mut Call<'_>) -> Result<()> {
    let operands = call.operands();
    let arguments = (
        operands.params,
        operands.queries,
        operands.keys,
        operands.values,
        operands.table,
        operands.append,
        operands.lengths,
        operands.data,
        operands.log_sum_exp,
        operands.sinks,
        &mut operands.parts.ended,
        &mut operands.parts.sums,
        &mut operands.parts.totals,
    );
    // SAFETY: the caller's contract.
    unsafe { kernel::launch::<K>(operands.stream, operands.config, arguments) }
}

type PassParameters = <instances::attention_decode_bf16_64 as KernelType>::Params;
type CombineParameters = <instances::attention_combine_bf16 as KernelType>::Params;
type Pass = unsafe fn(&mut Call<'_>) -> Result<()>;

/// In the order of the tables.
static PASSES: [Pass; TABLE.len() + E4M3_TABLE.len()] = [
    pass_as::<instances::attention_decode_bf16_64>,
    pass_as::<instances::attention_decode_bf16_128>,
    pass_as::<instances::attention_decode_bf16_256>,
    pass_as::<instances::attention_decode_f16_64>,
    pass_as::<instances::attention_decode_f16_128>,
    pass_as::<instances::attention_decode_f16_256>,
    pass_as::<e4m3::attention_decode_bf16_e4m3_64>,
    pass_as::<e4m3::attention_decode_bf16_e4m3_128>,
    pass_as::<e4m3::attention_decode_f16_e4m3_64>,
    pass_as::<e4m3::attention_decode_f16_e4m3_128>,
];
