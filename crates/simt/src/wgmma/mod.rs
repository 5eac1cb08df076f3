//! Products by a warpgroup: `wgmma.mma_async`, with its fences and groups.
//!
//! The last of the 128 threads to arrive computes the product for all, so the results are there at once. The
//! executor does not imitate a product in flight, but checks its rules: until the group has been waited for,
//! no thread may write the operands in shared memory or touch its accumulators, and the kernel may not end.

mod product;

use std::cell::{Cell, RefCell};
use std::panic::Location;

use layout::wgmma::{self, Descriptor, K_BYTES};

pub use layout::wgmma::Major;

use crate::check::proxy::{self, Agent};
use crate::check::{self, Access};
use crate::exec::context::{Thread, WARP_SIZE, Wait, current};
use crate::fault::{AccessKind, FaultKind};
use crate::site::RawSite;
use crate::warp::WarpState;
use product::{M, ROW_BYTES, Row, Scratch, Share};

/// Threads of a warpgroup.
pub(crate) const THREADS: u32 = 128;
/// The number of columns of B is a multiple of this.
const N_STEP: usize = 8;
const MAX_N: usize = 256;
/// Operands are read in pieces of this many bytes.
const PIECE: usize = 16;

/// Type of an operand's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// `f32` of which the low 13 bits are not read.
    Tf32,
    /// 8 bits, 4 of them exponent.
    E4m3,
    /// 8 bits, 5 of them exponent.
    E5m2,
}

impl Format {
    /// Bytes of an element.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::Tf32 => 4,
            Self::E4m3 | Self::E5m2 => 1,
        }
    }

    /// Elements of k that one instruction takes.
    pub const fn k(self) -> usize {
        (K_BYTES / self.bytes()) as usize
    }

    /// Whether the tensor cores multiply the two.
    fn goes_with(self, other: Self) -> bool {
        self == other || (self.bytes() == 1 && other.bytes() == 1)
    }
}

/// An operand in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Its descriptor, see [`layout::wgmma`].
    pub descriptor: u64,
    /// Which of its dimensions is contiguous.
    pub major: Major,
}

/// The operand A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// In shared memory.
    Shared(Shared),
    /// In the thread's registers, as `mma.m16n8` has A: the 16 rows of its warp.
    Registers([u32; 4]),
}

/// The parameters that all threads of a warpgroup must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    formats: [Format; 2],
    /// `None`: in registers.
    a: Option<Shared>,
    b: Shared,
    n: usize,
    scale_d: bool,
}

/// The product for which threads of a warpgroup gather.
#[derive(Default)]
struct Gathering {
    instruction: Option<(Instruction, &'static Location<'static>)>,
    /// By rank in the warpgroup; `None` for a thread that has not arrived.
    shares: Vec<Option<Share>>,
    arrived: u32,
}

/// State of a warpgroup.
#[derive(Default)]
pub(crate) struct Warpgroup {
    gathering: RefCell<Gathering>,
    scratch: RefCell<Scratch>,
}

impl Warpgroup {
    /// The whole warpgroups of a block.
    pub fn all(threads: u32) -> Box<[Self]> {
        (0..threads / THREADS).map(|_| Self::default()).collect()
    }

    pub fn reset(&self) {
        self.gathering.borrow_mut().clear();
    }

    /// The number of threads that have arrived for a product.
    pub fn arrived(&self) -> u32 {
        self.gathering.borrow().arrived
    }
}

impl Gathering {
    fn clear(&mut self) {
        self.instruction = None;
        self.shares.clear();
        self.shares.resize(THREADS as usize, None);
        self.arrived = 0;
    }
}

/// The progress of a thread with its products. Threads of a warpgroup agree whenever they begin another.
#[derive(Default)]
pub(crate) struct Progress {
    /// Whether it has called [`fence`].
    fenced: Cell<bool>,
    /// Whether it has begun products since the last [`commit`].
    open: Cell<bool>,
    /// Groups committed.
    committed: Cell<u32>,
    /// Groups that it has waited for, the oldest first.
    complete: Cell<u32>,
    /// Line of its latest product.
    latest: Cell<RawSite>,
    /// The address of the accumulators, and their values after the latest product since the last [`fence`].
    result: RefCell<(usize, Vec<u32>)>,
    /// Accumulators of products that the thread has not waited for.
    in_flight: RefCell<Vec<InFlight>>,
    /// The lowest address of theirs, and the one past the highest.
    watched: Cell<(usize, usize)>,
}

/// Accumulators of a product in flight.
#[derive(Clone, Copy)]
struct InFlight {
    start: usize,
    end: usize,
    /// The number of the product's group.
    group: u32,
    site: RawSite,
}

impl Progress {
    pub fn reset(&self) {
        self.fenced.set(false);
        self.open.set(false);
        self.committed.set(0);
        self.complete.set(0);
        self.forget_result();
        self.in_flight.borrow_mut().clear();
        self.watched.take();
    }

    /// Whether accumulators in flight may lie in `size` bytes at an address. Most calls end here.
    #[inline]
    pub fn may_hold(&self, address: usize, size: usize) -> bool {
        let (start, end) = self.watched.get();
        address < end && start < address + size
    }

    /// The place of a product in flight with accumulators in `size` bytes at an address.
    pub fn holds(&self, address: usize, size: usize) -> Option<RawSite> {
        let in_flight = self.in_flight.borrow();
        let hit = in_flight.iter().find(|product| address < product.end && product.start < address + size);
        hit.map(|product| product.site)
    }

    /// A product into `acc` begins.
    fn begins(&self, acc: &[f32], site: RawSite) {
        let start = acc.as_ptr() as usize;
        let product = InFlight { start, end: start + size_of_val(acc), group: self.committed.get(), site };
        let mut in_flight = self.in_flight.borrow_mut();
        in_flight.retain(|other| other.start != start);
        in_flight.push(product);
        drop(in_flight);
        self.watch();
    }

    /// The first groups, this many, are complete.
    fn completes(&self, groups: u32) {
        self.complete.set(groups);
        self.in_flight.borrow_mut().retain(|product| product.group >= groups);
        self.watch();
    }

    fn watch(&self) {
        let in_flight = self.in_flight.borrow();
        let start = in_flight.iter().map(|product| product.start).min();
        let end = in_flight.iter().map(|product| product.end).max();
        self.watched.set((start.unwrap_or(0), end.unwrap_or(0)));
    }

    fn forget_result(&self) {
        self.result.borrow_mut().1.clear();
    }

    /// # Safety
    /// `acc` is readable for `len` elements.
    unsafe fn keep_result(&self, acc: *const f32, len: usize) {
        let mut result = self.result.borrow_mut();
        result.0 = acc as usize;
        result.1.clear();
        // SAFETY: the caller's word; the bits of a float are a value of `u32`.
        result.1.extend_from_slice(unsafe { std::slice::from_raw_parts(acc.cast::<u32>(), len) });
    }

    /// Whether these are the accumulators of the latest product, with other values than it left there.
    fn has_changed(&self, acc: &[f32]) -> bool {
        let result = self.result.borrow();
        result.0 == acc.as_ptr() as usize
            && result.1.len() == acc.len()
            && result.1.iter().zip(acc).any(|(bits, now)| *bits != now.to_bits())
    }
}

const MMA: &str = "wgmma.mma_async";

/// `acc = A B + acc`, or `A B` when `scale_d` is false: A has 64 rows, B has twice as many columns as `acc`
/// has elements, and k is 32 bytes. All 128 threads of a warpgroup call it together. `acc[4 j + 2 r + c]` is
/// row `g + 8 r` of the warp's 16, column `8 j + 2 t + c`, where `g = lane / 4` and `t = lane % 4`.
#[track_caller]
#[inline(never)]
pub fn mma(acc: &mut [f32], formats: [Format; 2], a: Left, b: Shared, scale_d: bool) {
    let location = Location::caller();
    let thread = current("simt::wgmma::mma");
    let (a, registers) = match a {
        Left::Shared(a) => (Some(a), [0; 4]),
        Left::Registers(registers) => (None, registers),
    };
    let instruction = Instruction { formats, a, b, n: 2 * acc.len(), scale_d };
    check_instruction(thread, &instruction, location);
    if scale_d && thread.products.has_changed(acc) {
        let message =
            "the accumulators have changed since the latest product, without wgmma.fence between".into();
        thread.fail(FaultKind::WgmmaFence, location, message);
    }
    let warpgroup = warpgroup(thread, location);
    join(thread, warpgroup, instruction, Share { acc: acc.as_mut_ptr(), a: registers }, location);
    thread.products.open.set(true);
    thread.products.latest.set(RawSite::of(location));
    thread.products.begins(acc, RawSite::of(location));
    if warpgroup.arrived() < THREADS {
        return thread.wait_for(Wait::Warpgroup { op: MMA, number: thread.rank / THREADS }, location);
    }
    carry_out(thread, warpgroup, &instruction);
    warpgroup.gathering.borrow_mut().clear();
    let first = thread.slot - thread.rank % THREADS;
    (first..first + THREADS).filter(|&slot| slot != thread.slot).for_each(|slot| thread.group().wake(slot));
}

/// Makes the present registers visible to the products that follow (`wgmma.fence`).
#[track_caller]
#[inline(never)]
pub fn fence() {
    let thread = current("simt::wgmma::fence");
    warpgroup(thread, Location::caller());
    thread.products.fenced.set(true);
    thread.products.forget_result();
}

/// Commits the products since the last call as a group (`wgmma.commit_group`).
#[track_caller]
#[inline(never)]
pub fn commit() {
    let thread = current("simt::wgmma::commit");
    warpgroup(thread, Location::caller());
    let progress = &thread.products;
    progress.open.set(false);
    progress.committed.set(progress.committed.get() + 1);
}

/// Waits until at most `pending` of the latest groups are in flight (`wgmma.wait_group`).
#[track_caller]
#[inline(never)]
pub fn wait(pending: u32) {
    let thread = current("simt::wgmma::wait");
    warpgroup(thread, Location::caller());
    let progress = &thread.products;
    let complete = progress.committed.get().saturating_sub(pending);
    if complete > progress.complete.get() {
        progress.completes(complete);
        if thread.checked() {
            check::completed(thread, agent(thread), complete);
        }
    }
}

fn warpgroup(thread: &'static Thread, location: &'static Location<'static>) -> &'static Warpgroup {
    let number = thread.rank / THREADS;
    match thread.block().warpgroups.get(number as usize) {
        Some(warpgroup) => warpgroup,
        None => {
            let there = thread.block().threads - number * THREADS;
            let message = format!(
                "wgmma needs a warpgroup of {THREADS} threads; that of thread {} has {there}",
                thread.rank
            );
            thread.fail(FaultKind::WarpgroupDivergence, location, message)
        }
    }
}

/// Checks the rules that concern a single thread.
fn check_instruction(thread: &Thread, instruction: &Instruction, location: &'static Location<'static>) {
    let &Instruction { formats, a, b, n, .. } = instruction;
    let invalid = |message: String| thread.fail(FaultKind::WgmmaInvalid, location, message);
    if n == 0 || n > MAX_N || !n.is_multiple_of(N_STEP) {
        invalid(format!("B of {n} columns; there are multiples of {N_STEP} up to {MAX_N}"));
    }
    if !formats[0].goes_with(formats[1]) {
        invalid(format!("A of {:?} and B of {:?}; only E4m3 and E5m2 mix", formats[0], formats[1]));
    }
    for (name, format, operand, rows) in [("A", formats[0], a, M), ("B", formats[1], Some(b), n)] {
        let Some(Shared { descriptor, major }) = operand else { continue };
        if major == Major::MN && format.bytes() != 2 {
            invalid(format!("{name} of {format:?} is not K-major; only 16-bit elements can be otherwise"));
        }
        let fields = Descriptor::decode(descriptor);
        if fields.first_row() != 0 {
            invalid(format!(
                "{name} begins at shared address {:#x}, in row {} of the {:?} swizzle's pattern; tiles begin at multiples of {}",
                fields.start,
                fields.first_row(),
                fields.swizzle,
                fields.swizzle.period()
            ));
        }
        let has_more = wgmma::is_overflown(descriptor);
        if has_more && fields.needs_leading(major, format.bytes(), rows as u32) {
            invalid(format!(
                "{name} begins at a shared address with bits above the 18 that a descriptor has room for, as addresses in a cluster have; they have changed its leading offset: cut them off by `layout::wgmma::units`"
            ));
        }
    }
    if !thread.products.fenced.get() {
        let message = "the first product of the kernel comes without wgmma.fence before it".into();
        thread.fail(FaultKind::WgmmaFence, location, message);
    }
}

/// Adds the thread to those that have arrived, after checking that it agrees with them.
fn join(
    thread: &Thread,
    warpgroup: &Warpgroup,
    instruction: Instruction,
    share: Share,
    location: &'static Location<'static>,
) {
    let mut gathering = warpgroup.gathering.borrow_mut();
    if let Some(message) = disagreement(thread, &gathering, &instruction, location) {
        drop(gathering);
        thread.fail(FaultKind::WarpgroupDivergence, location, message);
    }
    gathering.instruction = Some((instruction, location));
    gathering.shares[(thread.rank % THREADS) as usize] = Some(share);
    gathering.arrived += 1;
}

/// The difference between a thread and the rest of its warpgroup, if there is one.
fn disagreement(
    thread: &Thread,
    gathering: &Gathering,
    instruction: &Instruction,
    location: &'static Location<'static>,
) -> Option<String> {
    let first = thread.slot - thread.rank % THREADS;
    let others = &thread.group().threads[first as usize..(first + THREADS) as usize];
    let mut warps = others.chunks_exact(WARP_SIZE as usize).map(|lanes| lanes[0].warp());
    if !warps.all(WarpState::is_whole)
        && let Some(gone) = others.iter().find(|other| other.wait.get() == Wait::Exited)
    {
        return Some(format!("{MMA} by thread {}, but thread {} has exited", thread.rank, gone.rank));
    }
    let (other, place) = gathering.instruction.as_ref()?;
    if other != instruction || !std::ptr::eq(*place, location) && **place != *location {
        return Some(format!(
            "thread {} begins {instruction:x?} here; others of its warpgroup wait in {other:x?} at {place}",
            thread.rank
        ));
    }
    let state = |thread: &Thread| (thread.products.committed.get(), thread.products.complete.get());
    let waiting = gathering.shares.iter().position(Option::is_some)?;
    let (mine, theirs) = (state(thread), state(&others[waiting]));
    (mine != theirs).then(|| {
        format!(
            "thread {} has committed {} groups and waited for {}, thread {} {} and {}",
            thread.rank, mine.0, mine.1, others[waiting].rank, theirs.0, theirs.1
        )
    })
}

/// Reads the operands and computes, for all threads of the warpgroup.
fn carry_out(thread: &Thread, warpgroup: &Warpgroup, instruction: &Instruction) {
    let gathering = warpgroup.gathering.borrow();
    let shares: Vec<Share> = gathering.shares.iter().flatten().copied().collect();
    let location = gathering.instruction.map(|(_, location)| location);
    drop(gathering);
    let Some(location) = location else { return };
    let reads = Reads::begin(thread, location);
    let &Instruction { formats, a, b, n, scale_d } = instruction;
    let rows_of_a = match a {
        None => product::rows_of_registers(&shares),
        Some(operand) => {
            let mut rows = [[0; ROW_BYTES]; M];
            reads.rows("A", operand, formats[0], &mut rows);
            rows
        }
    };
    let mut rows_of_b = [[0; ROW_BYTES]; MAX_N];
    reads.rows("B", b, formats[1], &mut rows_of_b[..n]);
    // SAFETY: the threads wait in `mma`, which has borrowed their accumulators of `n / 2` elements
    // exclusively.
    unsafe {
        warpgroup.scratch.borrow_mut().multiply(formats, &rows_of_a, &rows_of_b[..n], scale_d, &shares);
        if thread.checked() {
            let first = (thread.slot - thread.rank % THREADS) as usize;
            for (other, share) in thread.group().threads[first..].iter().zip(&shares) {
                other.products.keep_result(share.acc, n / 2);
            }
        }
    }
}

/// Reads operands as part of the warpgroup's present group.
struct Reads<'t> {
    thread: &'t Thread,
    location: &'static Location<'static>,
    operation: u32,
}

impl<'t> Reads<'t> {
    fn begin(thread: &'t Thread, location: &'static Location<'static>) -> Self {
        let turn = thread.products.committed.get();
        let operation = thread.group().operations.begin(agent(thread), turn);
        Self { thread, location, operation }
    }

    /// Fills rows with an operand's bytes of k.
    fn rows(&self, name: &str, operand: Shared, format: Format, rows: &mut [Row]) {
        let fields = Descriptor::decode(operand.descriptor);
        let bytes = format.bytes() as usize;
        let address = |mn: usize, k: usize| fields.address(operand.major, bytes as u32, mn as u32, k as u32);
        match operand.major {
            Major::K => {
                for (mn, row) in rows.iter_mut().enumerate() {
                    let [low, high] = [0, PIECE / bytes].map(|k| address(mn, k));
                    let (first, second) = row.split_at_mut(PIECE);
                    // A swizzled row is contiguous; its halves may be exchanged.
                    if low ^ high == PIECE as u32 {
                        self.check(name, low.min(high), 2 * PIECE);
                    } else {
                        self.check(name, low, PIECE);
                        self.check(name, high, PIECE);
                    }
                    first.copy_from_slice(&self.piece(low));
                    second.copy_from_slice(&self.piece(high));
                }
            }
            Major::MN => {
                let per_piece = PIECE / bytes;
                for k in 0..format.k() {
                    for (piece, rows) in rows.chunks_exact_mut(per_piece).enumerate() {
                        let at = address(piece * per_piece, k);
                        self.check(name, at, PIECE);
                        for (row, element) in rows.iter_mut().zip(self.piece(at).chunks_exact(bytes)) {
                            row[k * bytes..][..bytes].copy_from_slice(element);
                        }
                    }
                }
            }
        }
    }

    fn check(&self, name: &str, address: u32, size: usize) {
        let block = self.thread.block();
        if !block.arena.has(address, size) {
            let message =
                format!("{name} reaches shared address {address:#x}, beyond the block's shared memory");
            self.thread.fail(FaultKind::OutOfBounds, self.location, message);
        }
        let address = block.arena.base() as usize + address as usize;
        let site = RawSite::of(self.location);
        let access = Access { address, size, align: 1, kind: AccessKind::AsyncRead, site };
        proxy::async_access(self.thread, block, access, self.operation);
    }

    /// 16 bytes at an address that was checked.
    fn piece(&self, address: u32) -> [u8; PIECE] {
        let from = self.thread.block().arena.base().wrapping_add(address as usize);
        // SAFETY: `check` has checked that the bytes lie in the arena, which is initialised memory of the
        // running group.
        unsafe { from.cast::<[u8; PIECE]>().read_unaligned() }
    }
}

fn agent(thread: &Thread) -> Agent {
    Agent::of_warpgroup(thread.block().number.get(), thread.rank / THREADS)
}

/// At the end of a thread, checks that no product is in flight.
pub(crate) fn finish(thread: &Thread) {
    let progress = &thread.products;
    let in_flight = progress.committed.get() - progress.complete.get();
    if !progress.open.get() && in_flight == 0 {
        return;
    }
    let message = if progress.open.get() {
        "products that no wgmma.commit_group follows".into()
    } else {
        format!("{in_flight} groups that no wgmma.wait_group has waited for")
    };
    thread.fail_access(FaultKind::WgmmaUnfinished, progress.latest.get(), message, None, None);
}
