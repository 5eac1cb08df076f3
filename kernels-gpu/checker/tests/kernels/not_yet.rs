//! Kernels of which the checker does not yet say what the tables expect.

/// A kernel, and the reason. [`crate::walk`] fails if the checker meets the expectation after all.
pub const NOT_YET: &[(&str, &str)] = &[
    ("fills_that_overlap", IN_CORE),
    ("slice_copied_too_early", IN_CORE),
    ("core_flag_before_data", FIRST_LINE),
    ("array_with_a_hole", PADDING),
    ("index_into_another_buffer", OTHER),
    ("index_into_another_array", OTHER),
    ("negative_index_of_an_array", OTHER),
    ("core_counter_cleared_late", GAP),
    ("bins_cleared_too_late", GAP),
    ("counter_cleared_by_a_block", GAP),
    ("cluster_fences_between_blocks", CLUSTER_SCOPE),
    ("two_flags_without_order", WEAK),
    ("result_over_an_operand", WARP_WAIT),
    ("proxy_fence_of_the_storing_thread", CUMULATIVE),
    ("bias_behind_the_fence", FIRST_PRODUCT),
    ("epilogue_with_one_product_open", IN_CORE),
    ("tail_with_a_mask_of_its_own", UNUSED),
    ("heap_words_of_two_threads", HEAP),
    ("edit_distance_row_from_one", HEAP),
    ("fragment_replaced_in_flight", FRAGMENTS),
    ("buffers_not_quite_full", COPIED),
    ("tail_stored_along", COPIED),
    ("local_list_read_past_its_end", LOCALS),
    ("accumulators_scaled_by_one", VALUES),
];

/// Whether a kernel is in the list.
pub fn holds(name: &str) -> bool {
    NOT_YET.iter().any(|(listed, _)| *listed == name)
}

// The reasons.
const IN_CORE: &str = "the report names a line of `core`, whose function was not inlined, not the caller's";
const FIRST_LINE: &str = "the report names the kernel's first line: LLVM has moved the store";
const PADDING: &str = "a copy of several values may cover padding: eight bytes in a row have to be unwritten";
const OTHER: &str = "the address is good; the buffer that the pointer was made for is not known";
const GAP: &str = "documented: an atomic operation in between hides a plain access";
const CLUSTER_SCOPE: &str = "cluster scope counts as device scope";
const WEAK: &str = "memory is sequentially consistent in the executor, so the bad order never happens";
const WARP_WAIT: &str = "the wait of one warp counts for the whole warpgroup";
const CUMULATIVE: &str =
    "a proxy fence counts for all writes that its thread knows of, not for its own alone";
const FIRST_PRODUCT: &str = "before the first product the checker only sees that there was a fence at all";
const UNUSED: &str = "false alarm: a shuffle from a lane outside of the mask, whose value is not used";
const HEAP: &str = "memory of `mem::malloc` is the host's, and nothing about it is checked";
const LOCALS: &str = "a thread's accesses to its own stack are not checked";
const VALUES: &str = "that accumulators have changed is seen by their values";
const FRAGMENTS: &str = "the registers of A are copied when the product begins; later writes are not seen";
const COPIED: &str = "false alarm: a copy of memory that is not all written counts as a use of all of it";
