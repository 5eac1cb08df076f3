//! Tensor copies by the tensor memory accelerator: `cp.async.bulk.tensor` and `cp.reduce.async.bulk.tensor`
//! in tile mode, of one to five dimensions, and loads in im2col mode.
//!
//! A tensor map ([`crate::tensor_map`]) describes a tensor in global memory and a box; a copy moves one box
//! between there and shared memory. Elements of the box outside the tensor read as its fill and are not
//! written. A copy to shared memory always completes the bytes of the whole box on its mbarrier.
//!
//! The manual omits three rules that hold on an H200. Boxes begin at multiples of 16 bytes along dimension 0.
//! Boxes that are stored or reduced do not begin before the tensor. Stores write whole 16-byte units: where a
//! row of the tensor ends inside of a unit, the bytes beside its end are overwritten.
//!
//! In shared memory the rows of the box (dimension 0) follow each other without gaps; swizzling then changes
//! the place of 16-byte pieces by bits of their shared address ([`crate::tensor_map::Swizzle::apply`]).

mod element;
mod tile;

use std::panic::Location;

use crate::bulk;
use crate::check::{self, Access};
use crate::cluster::{self, Target};
use crate::exec::context::{Thread, current};
use crate::exec::group::Group;
use crate::fault::{AccessKind, FaultKind};
use crate::mbarrier::{self, Arrival};
use crate::reduction::{Reduction, combiner};
use crate::site::RawSite;
use crate::tensor_map::{self, DataType, Description, Interleave, WORDS};
pub(crate) use element::flush;
use tile::Tile;

/// Alignment of a tensor map.
const MAP_ALIGN: usize = 64;

/// A row of a box begins at a multiple of this in its tensor; otherwise the hardware reports an illegal
/// instruction. Stores write units of this size.
const PIECE_BYTES: usize = 16;

/// Alignment of a box in shared memory.
const BOX_ALIGN: u32 = 128;

/// Begins to copy the box at `coords` (dimension 0 first) to shared memory at `dst`, which completes on the
/// mbarrier at `bar`. With `multicast`, it copies to the same place of every block of the cluster whose rank
/// is a bit of the mask, and completes on the mbarrier at the same place there.
///
/// # Safety
/// `map` points to a tensor map whose tensor is valid for reads, and nothing touches the destination until
/// the mbarrier reports that the bytes have arrived; or checking is on.
#[track_caller]
#[inline(never)]
pub unsafe fn load(dst: u32, map: *const [u64; WORDS], bar: u32, coords: &[i32], multicast: Option<u16>) {
    let location = Location::caller();
    let thread = current("simt::tma::load");
    // SAFETY: the caller vouches for the map.
    let tile = unsafe { tile(thread, map, coords, LOAD, location) };
    require_mode(thread, &tile, false, location);
    load_tile(thread, tile, dst, bar, multicast, location);
}

/// As [`load`], in im2col mode: channels of pixels at `offsets` in windows, of which the first begins at
/// `coords`.
///
/// # Safety
/// As [`load`].
#[track_caller]
#[inline(never)]
pub unsafe fn load_im2col(
    dst: u32,
    map: *const [u64; WORDS],
    bar: u32,
    coords: &[i32],
    offsets: &[u16],
    multicast: Option<u16>,
) {
    let location = Location::caller();
    let thread = current("simt::tma::load_im2col");
    // SAFETY: the caller vouches for the map.
    let tile = unsafe { tile(thread, map, coords, LOAD, location) }.at_offsets(offsets);
    require_mode(thread, &tile, true, location);
    load_tile(thread, tile, dst, bar, multicast, location);
}

/// The instruction that loads.
const LOAD: &str = "cp.async.bulk.tensor";

/// The map is one of windows, or is not.
fn require_mode(thread: &Thread, tile: &Tile, im2col: bool, location: &'static Location<'static>) {
    if tile.map.pixels.is_some() != im2col {
        let (got, wanted) = if im2col { ("tiled", "im2col") } else { ("im2col", "tiled") };
        let message = format!("{LOAD} in {wanted} mode with a map of {got} mode");
        thread.fail(FaultKind::BulkCopyInvalid, location, message);
    }
}

/// Begins to copy the tile.
fn load_tile(
    thread: &Thread,
    tile: Tile,
    dst: u32,
    bar: u32,
    multicast: Option<u16>,
    location: &'static Location<'static>,
) {
    const OP: &str = LOAD;
    let (bytes, extent) = (tile.map.box_bytes(), tile.map.shared_bytes());
    let site = RawSite::of(location);
    let targets = destinations(thread, dst, bar, multicast, location);
    let mut arrivals: Vec<(*mut u8, Arrival)> = Vec::with_capacity(targets.len());
    for (to, bar) in &targets {
        require_box(thread, to, extent, OP, location);
        let arrival = mbarrier::begin_copy(thread, bar, bytes, OP, location);
        // Gaps between rows count as written: the checker does not see who reads them.
        bulk::write_shared(thread, to, extent, arrival.operation(), site);
        arrivals.push((to.block.arena.base(), arrival));
    }
    let operation = arrivals[0].1.operation();
    tile.rows().for_each(|row| bulk::read_global(thread, row.address, row.inside, operation, site));
    let (offset, issuer) = (targets[0].0.offset, thread.slot);
    thread.group().take_off(Box::new(move |group: &Group<'_>| {
        // SAFETY: the caller vouches for the tensor; nothing outside it is read.
        let plain = unsafe { tile.read_global() };
        for (base, arrival) in arrivals {
            // SAFETY: the box at `offset` is in the arena that begins at `base`, which has been checked.
            unsafe { tile.write_shared(&plain, base, offset) };
            arrival.complete(group, &group.threads[issuer as usize]);
        }
    }));
}

/// Begins to copy a box from shared memory at `src` to `coords` of the tensor, as part of the thread's open
/// bulk group.
///
/// # Safety
/// `map` points to a tensor map whose tensor is valid for writes; nothing else touches the box there, or
/// writes to the source, until the group has been waited for; or checking is on.
#[track_caller]
#[inline(never)]
pub unsafe fn store(map: *const [u64; WORDS], src: u32, coords: &[i32]) {
    // SAFETY: forwarded from the caller.
    unsafe { send(map, src, coords, None, "cp.async.bulk.tensor to global memory", Location::caller()) }
}

/// As [`store`], but combines each element atomically with that of the tensor.
///
/// # Safety
/// As [`store`]; others may reduce into the tensor meanwhile.
#[track_caller]
#[inline(never)]
pub unsafe fn reduce(op: Reduction, map: *const [u64; WORDS], src: u32, coords: &[i32]) {
    // SAFETY: forwarded from the caller.
    unsafe { send(map, src, coords, Some(op), "cp.reduce.async.bulk.tensor", Location::caller()) }
}

/// Fetches a tensor map ahead of its use (`prefetch.tensormap`). Only checks that it is one.
///
/// # Safety
/// `map` points to a tensor map, or checking is on.
#[track_caller]
#[inline(never)]
pub unsafe fn prefetch(map: *const [u64; WORDS]) {
    let thread = current("simt::tma::prefetch");
    // SAFETY: forwarded from the caller.
    unsafe { description(thread, map, "prefetch.tensormap", Location::caller()) };
}

/// # Safety
/// As [`store`].
unsafe fn send(
    map: *const [u64; WORDS],
    src: u32,
    coords: &[i32],
    reduction: Option<Reduction>,
    op: &str,
    location: &'static Location<'static>,
) {
    let thread = current("simt::tma::store");
    // SAFETY: the caller vouches for the map.
    let tile = unsafe { tile(thread, map, coords, op, location) }.in_whole_units(PIECE_BYTES);
    require_mode(thread, &tile, false, location);
    if tile.begins_before() {
        let message = format!("{op}: the box at {coords:?} begins before its tensor, which only loads can");
        thread.fail(FaultKind::BulkCopyInvalid, location, message);
    }
    // For f64 only plain bulk copies have a reduction.
    let is_known = tile.map.data_type != DataType::F64;
    let combine = reduction.map(|reduction| match combiner(tile.map.data_type, reduction) {
        Some(combine) if is_known => combine,
        _ => {
            let message = format!("{op}: {reduction:?} is not defined for {:?}", tile.map.data_type);
            thread.fail(FaultKind::BulkCopyInvalid, location, message)
        }
    });
    let bytes = tile.map.shared_bytes();
    let from = bulk::own_source(thread, src, op, location);
    require_box(thread, &from, bytes, op, location);
    let writes = tile.rows().filter(|row| row.inside != 0).map(|row| (row.address, row.inside)).collect();
    let kind = if combine.is_some() { AccessKind::AsyncAtomic } else { AccessKind::AsyncWrite };
    let (base, offset) = (from.block.arena.base(), from.offset);
    bulk::begin_store(thread, &from, bytes, writes, kind, location, move || {
        // SAFETY: the box is in the arena, which has been checked; the caller vouches for the tensor.
        unsafe {
            let plain = tile.read_shared(base, offset);
            tile.write_global(&plain, combine);
        }
    });
}

/// The tile of a map at `coords`.
///
/// # Safety
/// `map` is readable for 128 bytes, or checking is on.
unsafe fn tile(
    thread: &Thread,
    map: *const [u64; WORDS],
    coords: &[i32],
    op: &str,
    location: &'static Location<'static>,
) -> Tile {
    // SAFETY: forwarded from the caller.
    let map = unsafe { description(thread, map, op, location) };
    if map.rank as usize != coords.len() {
        let message =
            format!("{op} with {} coordinates in a tensor of {} dimensions", coords.len(), map.rank);
        thread.fail(FaultKind::BulkCopyInvalid, location, message);
    }
    if map.interleave != Interleave::None {
        let message = format!("{op}: interleaved layouts are not modelled");
        thread.fail(FaultKind::BulkCopyInvalid, location, message);
    }
    let first = i64::from(coords[0]) * map.data_type.bytes() as i64;
    if !first.unsigned_abs().is_multiple_of(PIECE_BYTES as u64) {
        let message = format!(
            "{op}: coordinate {} along dimension 0 is byte {first}, no multiple of {PIECE_BYTES}",
            coords[0]
        );
        thread.fail(FaultKind::BulkCopyInvalid, location, message);
    }
    Tile::new(map, coords)
}

/// The description in a tensor map.
///
/// # Safety
/// `map` is readable for 128 bytes, or checking is on.
unsafe fn description(
    thread: &Thread,
    map: *const [u64; WORDS],
    op: &str,
    location: &'static Location<'static>,
) -> Description {
    let address = map as usize;
    let site = RawSite::of(location);
    if !address.is_multiple_of(MAP_ALIGN) {
        let message = format!("{op}: its tensor map at {address:#x} is not aligned to {MAP_ALIGN} bytes");
        thread.fail(FaultKind::BulkCopyInvalid, location, message);
    }
    check::space::require_map_outside_shared(thread, address, op, location);
    if thread.checked() {
        let size = size_of::<[u64; WORDS]>();
        check::plain_access(thread, Access { address, size, align: 1, kind: AccessKind::Read, site });
    }
    // SAFETY: the caller vouches for the map; its alignment has been checked.
    match tensor_map::decode(unsafe { &*map }) {
        Ok(map) => map,
        Err(error) => thread.fail(FaultKind::BulkCopyInvalid, location, format!("{op}: {error}")),
    }
}

/// The destinations of a load, and the mbarriers on which it completes.
fn destinations<'t>(
    thread: &'t Thread,
    dst: u32,
    bar: u32,
    multicast: Option<u16>,
    location: &'static Location<'static>,
) -> Vec<(Target<'t>, Target<'t>)> {
    const OP: &str = "cp.async.bulk.tensor";
    let (to, bar) = bulk::remote(thread, dst, bar, OP, location);
    let Some(mask) = multicast else { return vec![(to, bar)] };
    let blocks = thread.group().launch.config.blocks_per_cluster() as u32;
    if mask == 0 || u32::from(mask) >> blocks != 0 {
        let message = format!("{OP}: multicast mask {mask:#06x} in a cluster of {blocks} blocks");
        thread.fail(FaultKind::BulkCopyInvalid, location, message);
    }
    let at = |rank, offset| cluster::of_rank(thread, rank, offset, OP, location);
    let named = (0..blocks).filter(|rank| mask & 1 << rank != 0);
    named.map(|rank| (at(rank, to.offset), at(rank, bar.offset))).collect()
}

fn require_box(
    thread: &Thread,
    target: &Target<'_>,
    bytes: usize,
    op: &str,
    location: &'static Location<'static>,
) {
    if !target.offset.is_multiple_of(BOX_ALIGN) {
        let message = format!(
            "{op}: the box at shared address {:#x} is not aligned to {BOX_ALIGN} bytes",
            target.offset
        );
        thread.fail(FaultKind::BulkCopyInvalid, location, message);
    }
    bulk::require_in_arena(thread, target, bytes, op, location);
}
