//! Kernels of which the checker does not yet say what the tables expect.

/// A kernel, and the reason. [`crate::walk`] fails if the checker meets the expectation after all.
pub const NOT_YET: &[(&str, &str)] = &[
    ("array_store_race", NO_LINE),
    ("overlapping_arrays", NO_LINE),
    ("array_store_past_end", NO_LINE),
    ("fills_that_overlap", IN_CORE),
    ("slice_copied_too_early", COPY),
    ("array_with_a_hole", COPY),
    ("index_into_another_buffer", OTHER),
    ("index_into_another_array", OTHER),
    ("negative_index_of_an_array", OTHER),
    ("bins_not_cleared", ATOMIC_UNWRITTEN),
    ("core_flag_before_data", CORE),
    ("core_counter_cleared_late", CORE),
    ("bins_cleared_too_late", GAP),
    ("counter_cleared_by_a_block", GAP),
    ("block_acquire_between_blocks", ACQUIRE),
    ("cluster_fences_between_blocks", CLUSTER_SCOPE),
    ("two_flags_without_order", WEAK),
    ("read_only_load_of_own_store", NC),
    ("read_only_load_after_barrier", NC),
    ("streaming_load_of_own_store", NC),
    ("source_of_a_fetch_rewritten", SOURCE),
    ("source_of_a_bulk_load_rewritten", SOURCE),
    ("bulk_load_without_proxy_fence", SOURCE),
    ("reduction_read_too_early", SOURCE),
    ("accumulators_read_in_flight", ACC),
    ("accumulators_of_the_open_group", ACC),
    ("accumulators_scaled_in_flight", ACC),
    ("result_over_an_operand", WARP_WAIT),
];

/// Whether a kernel is in the list.
pub fn holds(name: &str) -> bool {
    NOT_YET.iter().any(|(listed, _)| *listed == name)
}

// The reasons.
const NO_LINE: &str = "the report has no line: the pieces into which the compiler takes the store have none";
const IN_CORE: &str = "the report names a line of `core`, not the caller's";
const COPY: &str = "copies by `memcpy`, `memmove` and `memset` are not seen";
const COPY_IN: &str = "as above; the words that it wrote count as unwritten";
const FAR: &str = "a plain access to mapped memory that no buffer is near to counts as one to host memory";
const OTHER: &str = "the address is good; the buffer that the pointer was made for is not known";
const ALIGN: &str = "the alignment of plain accesses is not checked";
const STACK: &str = "stacks of other threads count as host memory";
const ATOMIC_UNWRITTEN: &str =
    "an atomic operation counts as a write alone, not as a read of unwritten memory";
const CORE: &str = "atomics of `core` are not seen, or count as plain accesses";
const GAP: &str = "documented: an atomic operation in between hides a plain access";
const ACQUIRE: &str = "every atomic operation acquires, whatever its order and scope";
const CLUSTER_SCOPE: &str = "cluster scope counts as device scope";
const SCOPED: &str = "atomic operations of block scope at words of several blocks are no race";
const WEAK: &str = "memory is sequentially consistent in the executor, so the bad order never happens";
const NC: &str = "read-only loads count as ordinary loads";
const LANES: &str = "a value from a lane outside of the mask is not reported";
const SOURCE: &str = "documented: global memory of asynchronous copies is not checked for this order";
const ACC: &str = "accumulators are registers, which the checker does not watch";
const WARP_WAIT: &str = "the wait of one warp counts for the whole warpgroup";
const COPY_FALSE: &str = "false alarm: words that a copy or a wide store wrote count as unwritten";
const CORE_FALSE: &str = "false alarm: the order that atomics of `core` make is not seen";
