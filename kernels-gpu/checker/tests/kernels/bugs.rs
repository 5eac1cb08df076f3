//! The checker finds every bug under every schedule, with its kind and its line.

use crate::common::{Data, case};
use simt::{FaultKind, LaunchConfig};

#[test]
fn bounds() {
    case("write_past_end").words(60).fails(FaultKind::OutOfBounds);
    case("off_by_one").words(60).fails(FaultKind::OutOfBounds);
    case("read_before_start").fails(FaultKind::OutOfBounds);
    case("shared_overflow").fails(FaultKind::OutOfBounds);
    case("dynamic_overflow").config(LaunchConfig::linear(1, 64).shared(128)).fails(FaultKind::OutOfBounds);
    case("shared_underflow").config(LaunchConfig::linear(1, 64).shared(256)).fails(FaultKind::OutOfBounds);
    case("vector_across_end").words(254).fails(FaultKind::OutOfBounds);
    case("misaligned_vector").fails(FaultKind::Misaligned);
    case("null_pointer").data(Data::Null).fails(FaultKind::NullPointer);
    case("host_memory").data(Data::Host).fails(FaultKind::WildPointer);
    case("far_away").fails(FaultKind::WildPointer);
    case("use_after_free").data(Data::Freed).fails(FaultKind::UseAfterFree);
    case("too_much_shared").fails(FaultKind::SharedAllocation);
}

#[test]
fn uninitialised() {
    case("never_written").blocks(2).fails(FaultKind::UninitialisedShared);
    case("halo_left_out").fails(FaultKind::UninitialisedShared);
    case("byte_left_out").fails(FaultKind::UninitialisedShared);
    case("counter_not_cleared").fails(FaultKind::UninitialisedShared);
}

#[test]
fn shared_races() {
    case("missing_barrier").fails(FaultKind::SharedRace);
    case("missing_second_barrier").fails(FaultKind::SharedRace);
    case("reduction_without_barrier").fails(FaultKind::SharedRace);
    case("same_value").fails(FaultKind::SharedRace);
    case("warp_in_step").fails(FaultKind::SharedRace);
    case("warp_sync_is_too_little").fails(FaultKind::SharedRace);
    case("histogram_without_atomics").fails(FaultKind::SharedRace);
    case("read_after_atomics").fails(FaultKind::SharedRace);
    case("packed_bytes").fails(FaultKind::SharedRace);
    case("broadcast_without_barrier").fails(FaultKind::SharedRace);
}

#[test]
fn global_races() {
    case("stencil_in_place").fails(FaultKind::GlobalRace);
    case("halo_between_blocks").blocks(4).fails(FaultKind::InterBlockRace);
    case("counter_without_atomics").blocks(4).fails(FaultKind::InterBlockRace);
    case("every_block_writes").blocks(4).fails(FaultKind::InterBlockRace);
    case("last_block_without_fence").blocks(4).fails(FaultKind::InterBlockRace);
    case("last_block_with_narrow_fence").blocks(4).fails(FaultKind::InterBlockRace);
    case("missing_second_grid_sync").blocks(4).cooperative().fails(FaultKind::InterBlockRace);
}

#[test]
fn barriers() {
    case("early_return").fails(FaultKind::BarrierDivergence);
    case("barrier_in_branches").fails(FaultKind::BarrierDivergence);
    case("uneven_loop").fails(FaultKind::BarrierDivergence);
    case("different_barriers").fails(FaultKind::Deadlock);
    case("forgotten_arrival").fails(FaultKind::Deadlock);
    case("crossed_barriers").fails(FaultKind::Deadlock);
    case("different_counts").fails(FaultKind::BarrierMismatch);
    case("different_operations").fails(FaultKind::BarrierMismatch);
    case("count_of_half_a_warp").fails(FaultKind::BarrierInvalid);
    case("barrier_sixteen").fails(FaultKind::BarrierInvalid);
    case("grid_sync_alone").fails(FaultKind::GridSync);
    case("grid_sync_of_some").blocks(3).cooperative().fails(FaultKind::BarrierDivergence);
}

#[test]
fn warps() {
    case("mask_without_caller").fails(FaultKind::WarpMask);
    case("mask_with_gone_lanes").fails(FaultKind::WarpMask);
    case("different_masks").fails(FaultKind::WarpDivergence);
    case("different_operations_in_warp").fails(FaultKind::WarpDivergence);
    case("warp_against_block").fails(FaultKind::Deadlock);
}

#[test]
fn copies() {
    case("copy_without_wait").fails(FaultKind::AsyncCopyPending);
    case("copy_without_commit").fails(FaultKind::AsyncCopyPending);
    case("wait_for_too_few").fails(FaultKind::AsyncCopyPending);
    case("wait_without_barrier").fails(FaultKind::SharedRace);
    case("misaligned_copy").fails(FaultKind::AsyncCopyInvalid);
    case("copy_from_beyond").fails(FaultKind::OutOfBounds);
}

#[test]
fn mbarriers() {
    case("wait_for_the_wrong_parity").shared().fails(FaultKind::AsyncCopyPending);
    case("too_many_bytes_expected").shared().fails(FaultKind::Deadlock);
    case("bytes_that_nobody_sends").fails(FaultKind::MbarrierUnbalanced);
    case("too_many_arrivals").fails(FaultKind::MbarrierOverflow);
    case("too_few_arrivals").fails(FaultKind::Deadlock);
    case("write_after_the_arrival").fails(FaultKind::SharedRace);
    case("barrier_used_too_early").fails(FaultKind::MbarrierInvalid);
    case("initialisation_without_fence").shared().fails(FaultKind::ProxyFence);
    case("initialised_twice").fails(FaultKind::MbarrierInvalid);
    case("reads_the_bytes_of_a_barrier").fails(FaultKind::MbarrierInvalid);
}

#[test]
fn bulk_copies() {
    case("bulk_copy_without_wait").shared().fails(FaultKind::AsyncCopyPending);
    case("stage_reused_too_early").shared().fails(FaultKind::AsyncCopyPending);
    case("half_of_the_bytes_expected").shared().fails(FaultKind::AsyncCopyPending);
    case("end_during_a_copy").shared().fails(FaultKind::CopyUnfinished);
    case("store_without_proxy_fence").shared().fails(FaultKind::ProxyFence);
    case("source_rewritten_during_a_store").shared().fails(FaultKind::AsyncCopyPending);
    case("result_of_a_store_read_too_early").shared().fails(FaultKind::AsyncCopyPending);
    case("end_during_a_store").shared().fails(FaultKind::CopyUnfinished);
    case("odd_bulk_copy").shared().fails(FaultKind::BulkCopyInvalid);
    case("misplaced_box").shared().mapped(256).fails(FaultKind::BulkCopyInvalid);
}

#[test]
fn products() {
    let warpgroup = LaunchConfig::linear(1, 128).shared(4096);
    let with_producer = LaunchConfig::linear(1, 160).shared(4096);
    let fails = |name, kind| case(name).config(warpgroup).fails(kind);
    fails("product_without_proxy_fence", FaultKind::ProxyFence);
    fails("operand_overwritten_in_flight", FaultKind::AsyncCopyPending);
    case("stage_released_in_flight").config(with_producer).fails(FaultKind::AsyncCopyPending);
    fails("accumulators_scaled_without_fence", FaultKind::WgmmaFence);
    fails("product_without_fence", FaultKind::WgmmaFence);
    fails("end_during_a_product", FaultKind::WgmmaUnfinished);
    fails("product_without_a_warp", FaultKind::WarpgroupDivergence);
    fails("operand_off_the_pattern", FaultKind::WgmmaInvalid);
}

#[test]
fn clusters() {
    case("block_barrier_for_a_cluster").cluster(2).fails(FaultKind::SharedRace);
    case("cluster_access_too_early").cluster(2).fails(FaultKind::ClusterInvalid);
    case("cluster_access_too_late").cluster(4).fails(FaultKind::ClusterInvalid);
    case("arrival_too_late").cluster(2).fails(FaultKind::ClusterInvalid);
    case("relaxed_arrival").cluster(2).fails(FaultKind::SharedRace);
    case("cluster_barrier_left_out").cluster(2).fails(FaultKind::BarrierDivergence);
    case("cluster_barrier_in_branches").cluster(2).fails(FaultKind::BarrierDivergence);
    case("arrives_twice").cluster(2).fails(FaultKind::ClusterInvalid);
    case("rank_beyond_the_cluster").cluster(2).fails(FaultKind::ClusterInvalid);
    case("multicast_over_readers").cluster(2).mapped(256).fails(FaultKind::AsyncCopyPending);
}

#[test]
fn giving_up() {
    case("index_panic").words(60).fails(FaultKind::Panic);
    case("overflow_panic").fails(FaultKind::Panic);
    case("assertion").fails(FaultKind::Panic);
}

#[test]
fn endless_spinning() {
    case("endless_spin").fails(FaultKind::Livelock);
    case("endless_poll").fails(FaultKind::Livelock);
}
