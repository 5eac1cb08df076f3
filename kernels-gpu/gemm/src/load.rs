//! Copies of operand tiles from global to shared memory for [`crate::gemm_f32`], for every order.
//!
//! An operand is *lines*, rows of A or columns of B, of `k` elements. A tile lies `[k][line]` in shared
//! memory, because threads read neighbouring lines of one k at a time.
//!
//! | the operand has | copies of a warp |
//! |---|---|
//! | lines side by side, at 16-byte boundaries | 16 bytes along the lines |
//! | lines side by side | an element each, along the lines |
//! | k side by side | an element each, which turns the tile: runs of 8 k of four lines |
//!
//! Lines behind the last one are zeros, or copies of others: their sums are not stored. (All copies of one
//! line by all blocks made that line's part of the L2 cache the limit of products of few rows.) Behind the
//! last k there are zeros.

use crate::block::{ELEMENT, VECTOR};
use core::marker::PhantomData;
use cuda_std::{async_copy, thread};
use layout::UNIT_BYTES;

/// Neighbouring elements along k that neighbouring threads copy: one 32-byte sector, and with four lines a
/// warp no two lanes store to the same bank.
const RUN: u32 = 8;

/// A matrix as its lines.
#[derive(Clone, Copy)]
pub(crate) struct Lines {
    pub base: *const f32,
    /// Elements from a line to the next.
    pub line: u64,
    /// Elements from one k to the next. This or `line` is 1.
    pub step: u64,
    /// How many lines there are.
    pub count: u32,
}

/// How an operand is copied.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Way {
    /// 16 bytes along the lines.
    Units,
    /// Elements along the lines.
    Across,
    /// Elements along k.
    Along,
}

/// The size of an operand's tile.
pub(crate) trait Tile {
    /// Lines, at most two for each thread.
    const LINES: u32;
    /// Elements of k.
    const DEPTH: u32;
    /// Threads that copy it.
    const THREADS: u32;
    /// Floats from one k to the next: the padding spreads a turned run over the banks.
    const PITCH: u32 = Self::LINES + VECTOR;
    /// Bytes in shared memory.
    const BYTES: u32 = Self::DEPTH * Self::PITCH * ELEMENT;
}

/// The copies of one operand of a block, tile after tile.
pub(crate) struct Loader<T> {
    lines: Lines,
    /// The first element of the next tile that this thread copies.
    source: *const f32,
    way: Way,
    /// Of the lines that this thread copies an element of at a time, those in the matrix.
    inside: u32,
    tile: PhantomData<T>,
}

impl<T: Tile> Loader<T> {
    /// Lines that the block copies at a time along k.
    const LINES_AT_ONCE: u32 = T::THREADS / RUN;

    /// For the block whose lines begin with `first`, which there is.
    #[inline(always)]
    pub fn new(lines: Lines, first: u32) -> Self {
        const { assert!(T::LINES.is_multiple_of(Self::LINES_AT_ONCE) && T::DEPTH.is_multiple_of(RUN)) };
        let Lines { base, line, step, count } = lines;
        let unit = u64::from(VECTOR);
        let is_aligned = (base as usize).is_multiple_of(UNIT_BYTES as usize)
            && step.is_multiple_of(unit)
            && count.is_multiple_of(VECTOR);
        let thread = thread::thread_idx_x();
        let (way, (at, k)) = if step == 1 {
            (Way::Along, Self::place_along(thread))
        } else if is_aligned {
            (Way::Units, Self::place_across::<VECTOR>(thread))
        } else {
            (Way::Across, Self::place_across::<1>(thread))
        };
        // Lines behind the last one become others of this thread's, or zeros where it has none.
        let left = count - first;
        let at_once = if way == Way::Along { Self::LINES_AT_ONCE } else { T::THREADS };
        let inside = left.saturating_sub(at).div_ceil(at_once);
        let at = if at < left { at } else { 0 };
        let place = u64::from(first + at) * line + u64::from(k) * step;
        Self { lines, source: base.wrapping_add(place as usize), way, inside, tile: PhantomData }
    }

    /// Line and k, within the tile, of a thread's first copy along k.
    #[inline(always)]
    fn place_along(thread: u32) -> (u32, u32) {
        (thread / RUN, thread % RUN)
    }

    /// The same along the lines, `WIDTH` elements at a time.
    #[inline(always)]
    fn place_across<const WIDTH: u32>(thread: u32) -> (u32, u32) {
        let across = (T::LINES / WIDTH).min(T::THREADS);
        (thread % across * WIDTH, thread / across)
    }

    /// Starts the copies of the next tile, with `left` of k left, at least 1.
    ///
    /// # Safety
    /// The matrix has the block's first line and so much of k. `tile` is the shared address of a tile that no
    /// thread uses.
    #[inline(always)]
    pub unsafe fn start(&mut self, tile: u32, left: u32) {
        // k is below 2^31, so this is nothing. But what is added to it is not computed before the loop, where
        // it would take registers for every copy.
        let nothing = left >> 31;
        let (thread, step) = (thread::thread_idx_x() + nothing, self.lines.step + u64::from(nothing));
        // Without a line of the matrix nothing is read.
        let left = if self.inside > 0 { left } else { 0 };
        // SAFETY: the caller's word.
        unsafe {
            match self.way {
                Way::Units => self.across::<VECTOR>(tile, thread, step, left),
                Way::Across => self.across::<1>(tile, thread, step, left),
                Way::Along => self.along(tile, thread, nothing, left),
            }
        }
        self.source = self.source.wrapping_add((u64::from(T::DEPTH) * step) as usize);
    }

    /// Copies `WIDTH` elements along the lines at a time.
    ///
    /// # Safety
    /// As for [`Self::start`].
    #[inline(always)]
    unsafe fn across<const WIDTH: u32>(&self, tile: u32, thread: u32, step: u64, left: u32) {
        let (line, k) = Self::place_across::<WIDTH>(thread);
        let at_once = (T::THREADS * WIDTH / T::LINES).max(1);
        let to = tile + (k * T::PITCH + line) * ELEMENT;
        let mut from = self.source;
        for i in 0..T::DEPTH / at_once {
            let is_there = k + i * at_once < left;
            for part in 0..T::LINES.div_ceil(T::THREADS * WIDTH) {
                let further = part * T::THREADS * WIDTH;
                let to = to + (i * at_once * T::PITCH + further) * ELEMENT;
                let from = from.wrapping_add(if part < self.inside { further as usize } else { 0 });
                // SAFETY: inside of the matrix, and aligned units; else nothing is read.
                unsafe { copy::<WIDTH>(to, from, is_there) };
            }
            from = from.wrapping_add((u64::from(at_once) * step) as usize);
        }
    }

    /// Copies elements along k.
    ///
    /// # Safety
    /// As for [`Self::start`].
    #[inline(always)]
    unsafe fn along(&self, tile: u32, thread: u32, nothing: u32, left: u32) {
        let (line, k) = Self::place_along(thread);
        let to = tile + (k * T::PITCH + line) * ELEMENT;
        let (inside, pitch) = (self.inside + nothing, self.lines.line + u64::from(nothing));
        let further = u64::from(Self::LINES_AT_ONCE) * pitch;
        let mut from = self.source;
        for i in 0..T::LINES / Self::LINES_AT_ONCE {
            for j in 0..T::DEPTH / RUN {
                let to = to + (j * RUN * T::PITCH + i * Self::LINES_AT_ONCE) * ELEMENT;
                // SAFETY: inside of the matrix; else nothing is read.
                unsafe { copy::<1>(to, from.wrapping_add((j * RUN) as usize), k + j * RUN < left) };
            }
            from = from.wrapping_add(if i + 1 < inside { further as usize } else { 0 });
        }
    }
}

/// Starts a copy of `WIDTH` elements, one or four, or of zeros.
///
/// # Safety
/// If `is_there`, `from` is valid for reads of them, aligned to them all. `to` is the shared address of as
/// many, aligned likewise, that no thread uses.
#[inline(always)]
unsafe fn copy<const WIDTH: u32>(to: u32, from: *const f32, is_there: bool) {
    let bytes = if is_there { WIDTH * ELEMENT } else { 0 };
    // SAFETY: the caller's word; without bytes nothing is read.
    unsafe {
        if WIDTH == VECTOR {
            async_copy::copy_cg_zfill(to, from, bytes);
        } else {
            async_copy::copy_ca_zfill::<ELEMENT, f32>(to, from, bytes);
        }
    }
}
