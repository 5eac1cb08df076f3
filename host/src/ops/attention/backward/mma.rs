//! The launches of the backward pass by `mma.sync`: one for dK and dV, and one for dQ.

use attention::backward::ResultStrides;
use attention::mma::backward::config::{key_threads, query_threads};
use attention::mma::backward::instances;
use attention::mma::forward::InputStrides;
use attention::sm90::backward::instances::Entry;
use cuda_std::kernel::Kernel as KernelType;

use crate::error::Result;
use crate::launch::{self as kernel, LaunchConfig};
use crate::stream::Stream;

use super::super::check::blocks_of_grid;
use super::super::problem::Problem;
use super::launch::{Begun, begin};
use super::{Backward, Gradients};

/// Queues the kernels, the main ones of this place in their table.
pub(super) fn launch(stream: &Stream, problem: &Problem, place: usize, backward: Backward<'_>) -> Result<()> {
    let entry = &instances::TABLE[place];
    let grids = Grids::new(problem, entry)?;
    let begun = begin(stream, problem, entry, backward)?;
    // SAFETY: the launches are of the entry's configuration. Shapes, strides and lengths have been checked,
    // and gradients do not overlap themselves; numbers of rows are limited by the kernels.
    unsafe { LAUNCHES[place](stream, grids, begun) }
}

/// The launches of dK and dV, and of dQ.
struct Grids {
    keys: LaunchConfig,
    queries: LaunchConfig,
}

impl Grids {
    /// A block for each tile of own rows.
    fn new(problem: &Problem, entry: &Entry) -> Result<Self> {
        let Problem { batch, queries, keys, heads, kv_heads, .. } = *problem;
        let own = entry.block[1];
        let grid = |argument, heads: u32, rows: u32, threads: u32| -> Result<LaunchConfig> {
            let blocks = u64::from(batch) * u64::from(heads) * u64::from(rows.div_ceil(own));
            let blocks = blocks_of_grid(argument, blocks, &format!("{own} rows"))?;
            let grid = LaunchConfig::new([blocks, 1, 1], [threads, 1, 1]);
            Ok(grid.with_shared(entry.shared).overlapping_previous())
        };
        Ok(Grids {
            keys: grid("the keys", kv_heads, keys, key_threads(own, entry.head))?,
            queries: grid("the queries", heads, queries, query_threads(own))?,
        })
    }
}

/// Parameters of the kernels of keys, and of those of queries.
type KeyParameters = <instances::attention_mma_backward_bf16_64 as KernelType>::Params;
type QueryParameters = <instances::attention_mma_query_gradients_bf16_64 as KernelType>::Params;

/// Queues a pair of kernels, where they have something to do.
///
/// # Safety
/// As for the kernels; the grids are theirs.
unsafe fn launch_as<K, Q>(stream: &Stream, grids: Grids, begun: Begun<'_>) -> Result<()>
where
    K: KernelType<Params = KeyParameters>,
    Q: KernelType<Params = QueryParameters>,
{
    let Begun { forward, gradient, gradients, launched, workspace, tiles, has_keys } = begun;
    let Gradients { queries: d_queries, keys: d_keys, values: d_values } = gradients;
    let [queries, keys, values] = [forward.queries, forward.keys, forward.values];
    let strides = InputStrides {
        queries: queries.strides_of_rows(),
        keys: keys.strides_of_rows(),
        values: values.strides_of_rows(),
    };
    let [first_queries, first_keys] = launched.first();
    if has_keys {
        let of_results = ResultStrides {
            keys: d_keys.view().strides_of_rows(),
            values: d_values.view().strides_of_rows(),
        };
        let arguments = (
            launched.params,
            strides,
            queries.data.cast::<u16>(),
            keys.data.cast::<u16>(),
            values.data.cast::<u16>(),
            gradient.data.cast::<u16>(),
            gradient.strides_of_rows(),
            &workspace.logarithms,
            &workspace.deltas,
            d_keys.data.cast::<u16>(),
            d_values.data.cast::<u16>(),
            of_results,
            first_queries,
            first_keys,
        );
        // SAFETY: the caller's contract.
        unsafe { kernel::launch::<K>(stream, grids.keys, arguments)? };
    }
    if tiles == 0 {
        return Ok(());
    }
    let of_result = d_queries.view().strides_of_rows();
    let arguments = (
        launched.params,
        strides,
        queries.data.cast::<u16>(),
        keys.data.cast::<u16>(),
        values.data.cast::<u16>(),
        gradient.data.cast::<u16>(),
        gradient.strides_of_rows(),
        &workspace.logarithms,
        &workspace.deltas,
        d_queries.data.cast::<u16>(),
        of_result,
        first_queries,
        first_keys,
    );
    // SAFETY: the caller's contract.
    unsafe { kernel::launch::<Q>(stream, grids.queries, arguments) }
}

/// Launches a pair of kernels.
type Launch = unsafe fn(&Stream, Grids, Begun<'_>) -> Result<()>;

macro_rules! launches {
    ($($keys:ident $queries:ident)*) => {
        /// In the order of their table.
        static LAUNCHES: [Launch; instances::TABLE.len()] =
            [$(launch_as::<instances::$keys, instances::$queries>),*];
    };
}
attention::for_each_mma_backward_kernel!(launches);
