//! Operations that the lanes of a warp carry out together.

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::panic::Location;

use crate::exec::context::{Muted, Thread, WARP_SIZE, Wait, current};
use crate::exec::group::Group;
use crate::fault::FaultKind;

/// Lanes of a warp, as a number of array elements.
pub const LANES: usize = WARP_SIZE as usize;

/// Mask of all lanes.
const WHOLE_WARP: u32 = u32::MAX;

/// State of a warp.
pub(crate) struct WarpState {
    lanes: u32,
    /// Mask of the lanes that have exited.
    exited: Cell<u32>,
    exchanges: RefCell<Vec<Exchange>>,
}

/// One collective operation under way. Free when `mask` is 0.
#[derive(Default)]
struct Exchange {
    mask: u32,
    op: &'static str,
    element: Option<TypeId>,
    /// Lanes that have arrived.
    arrived: u32,
    /// Whether all have arrived or exited; lanes then take the data one by one.
    complete: bool,
    /// Whether lanes that have exited are missed.
    needs_all: bool,
    /// Whether a complete warp sync has ordered the accesses of its lanes.
    ordered: bool,
    /// Lanes that have not taken the data yet.
    to_leave: u32,
    /// One value for each lane, in 16-byte words so that any value is aligned.
    data: Vec<u128>,
    /// The results of [`combine`], one for each lane.
    results: Vec<u128>,
}

impl WarpState {
    pub fn all(threads: u32) -> Box<[Self]> {
        let warp = |first: u32| Self {
            lanes: WARP_SIZE.min(threads - first),
            exited: Cell::new(0),
            exchanges: RefCell::default(),
        };
        (0..threads).step_by(LANES).map(warp).collect()
    }

    pub fn reset(&self) {
        self.exited.set(0);
        self.exchanges.borrow_mut().iter_mut().for_each(|exchange| exchange.mask = 0);
    }

    /// Mask of the lanes that have not exited: the others are not waited for.
    fn present(&self) -> u32 {
        self.existing() & !self.exited.get()
    }

    /// Whether it has all lanes, none of which has exited.
    pub fn is_whole(&self) -> bool {
        self.present() == WHOLE_WARP
    }

    /// Mask of the lanes that exist.
    fn existing(&self) -> u32 {
        u32::MAX >> (WARP_SIZE - self.lanes)
    }
}

/// A lane's call of an operation.
#[derive(Clone, Copy)]
struct Call {
    op: &'static str,
    mask: u32,
    /// The type of its input and result.
    element: TypeId,
    /// Whether it needs all 32 lanes, also those that have exited.
    needs_all: bool,
    location: &'static Location<'static>,
}

impl Call {
    fn of<T: 'static>(op: &'static str, mask: u32, location: &'static Location<'static>) -> Self {
        Self { op, mask, element: TypeId::of::<T>(), needs_all: false, location }
    }
}

/// Waits for the lanes of `mask` and orders their memory accesses (`bar.warp.sync`).
#[track_caller]
pub fn sync(mask: u32) {
    let location = Location::caller();
    let thread = current("simt::warp::sync");
    let (arrival, last) = arrive(thread, &Call::of::<()>("warp sync", mask, location), &[]);
    if !last {
        thread.wait_for(Wait::Warp { op: "warp sync", mask }, location);
    }
    order_lanes(thread, arrival);
    if last {
        wake_others(thread, arrival);
    }
    leave(thread, arrival, 0, &mut []);
}

/// Orders the accesses of the lanes of a warp sync, the first time that it is called for it. The lane that
/// completes it may be one that exits.
fn order_lanes(thread: &Thread, arrival: usize) {
    let mut exchanges = thread.warp().exchanges.borrow_mut();
    let exchange = &mut exchanges[arrival];
    if std::mem::replace(&mut exchange.ordered, true) || !thread.checked() {
        return;
    }
    let slots: Vec<_> = lanes_of(exchange.arrived).map(|lane| slot_of(thread, lane)).collect();
    drop(exchanges);
    crate::check::synchronise(thread, &slots, None);
}

/// Every lane of `mask` gives a value and gets the values of all. Lanes outside the mask, lanes that have
/// exited, and lanes that the block does not have, give `None`. Does not order memory accesses; neither do
/// shuffles and votes in hardware.
///
/// # Panics
/// When `T` needs an alignment above 16 bytes.
#[track_caller]
pub fn collective<T: Copy + 'static>(op: &'static str, mask: u32, input: T) -> [Option<T>; 32] {
    const { assert!(align_of::<T>() <= align_of::<u128>()) };
    let mut values = [const { MaybeUninit::<T>::uninit() }; LANES];
    // SAFETY: `values` holds 32 elements of the input's size; `exchange` fills those that the returned mask
    // names with bytes that other lanes gave as a `T`, which is `Copy`.
    let given = unsafe {
        exchange(
            &Call::of::<T>(op, mask, Location::caller()),
            std::ptr::from_ref(&input).cast(),
            size_of::<T>(),
            0..LANES,
            values.as_mut_ptr().cast(),
        )
    };
    // SAFETY: see above: lanes of `given` are initialised.
    std::array::from_fn(|lane| (given & (1 << lane) != 0).then(|| unsafe { values[lane].assume_init() }))
}

/// As [`collective`], but the caller gets the value of one lane alone, `source`.
///
/// # Panics
/// When `T` needs an alignment above 16 bytes, or there is no such lane.
#[track_caller]
pub fn collective_from<T: Copy + 'static>(op: &'static str, mask: u32, input: T, source: u32) -> Option<T> {
    const { assert!(align_of::<T>() <= align_of::<u128>()) };
    assert!(source < WARP_SIZE, "a warp has lanes 0 to 31");
    let mut value = MaybeUninit::<T>::uninit();
    let lane = source as usize;
    // SAFETY: `value` holds one element of the input's size; if the returned mask names the lane, `exchange`
    // fills it with bytes that the lane gave as a `T`, which is `Copy`.
    unsafe {
        let given = exchange(
            &Call::of::<T>(op, mask, Location::caller()),
            std::ptr::from_ref(&input).cast(),
            size_of::<T>(),
            lane..lane + 1,
            value.as_mut_ptr().cast(),
        );
        (given & (1 << source) != 0).then(|| value.assume_init())
    }
}

/// The caller shuffles a value from a lane that gives none: the hardware leaves the result unspecified.
///
/// # Panics
/// Ends the launch with [`FaultKind::WarpMask`].
#[track_caller]
#[cold]
pub fn no_value(op: &'static str, mask: u32, source: u32) -> ! {
    let location = Location::caller();
    let thread = current("simt::warp::no_value");
    let why = match 1u32.checked_shl(source).unwrap_or(0) {
        lane if lane & thread.warp().existing() == 0 => "which the block does not have".to_string(),
        lane if lane & mask == 0 => format!("which the mask {mask:#010x} leaves out"),
        _ => "which has exited".to_string(),
    };
    let message = format!("lane {} reads by {op} from lane {source}, {why}", thread.lane());
    thread.fail(FaultKind::WarpMask, location, message)
}

/// All 32 lanes give a value; the last lane to arrive computes the results of all lanes. It is for operations
/// that need the whole warp, such as matrix products: it copies less than [`collective`], and computes once
/// instead of 32 times. A warp with fewer lanes is a fault. Does not order memory accesses.
///
/// `f` only computes: it must not call into this crate.
///
/// # Panics
/// When `T` or `U` needs an alignment above 16 bytes.
#[track_caller]
pub fn combine<T, U>(op: &'static str, input: T, f: impl FnOnce(&[T; LANES]) -> [U; LANES]) -> U
where
    T: Copy + 'static,
    U: Copy + 'static,
{
    const { assert!(align_of::<T>() <= align_of::<u128>() && align_of::<U>() <= align_of::<u128>()) };
    let location = Location::caller();
    // SAFETY: the bytes of a value that lives until the end of this function.
    let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(&input).cast(), size_of::<T>()) };
    let call = Call { needs_all: true, ..Call::of::<(T, U)>(op, WHOLE_WARP, location) };
    let (arrival, last) = begin_combine(&call, bytes);
    if last {
        let (inputs, results) = combine_buffers(arrival, size_of::<[U; LANES]>());
        // This function is compiled with its caller, callbacks included: they must not see the executor's own
        // memory.
        let _muted = Muted::new();
        // SAFETY: 32 lanes have put a `T` each, since their operations have the same types; the results have
        // room for the array and are aligned for it.
        unsafe { results.cast::<[U; LANES]>().write(f(&*inputs.cast::<[T; LANES]>())) };
    }
    let mut mine = MaybeUninit::<U>::uninit();
    // SAFETY: the last lane has written 32 results of this type before `finish_combine` reads one.
    unsafe {
        finish_combine(op, arrival, last, mine.as_mut_ptr().cast(), size_of::<U>(), location);
        mine.assume_init()
    }
}

// The parts of `combine` that touch the executor's memory are not generic, so that they are compiled here,
// without load/store callbacks.

#[inline(never)]
fn begin_combine(call: &Call, input: &[u8]) -> (usize, bool) {
    let thread = current("simt::warp::combine");
    let lanes = thread.warp().lanes;
    if lanes != WARP_SIZE {
        let message = format!("{} needs a warp of {WARP_SIZE} threads; this one has {lanes}", call.op);
        thread.fail(FaultKind::WarpMask, call.location, message);
    }
    arrive(thread, call, input)
}

/// The addresses of the inputs of a complete operation and of `bytes` bytes for its results, both aligned to
/// 16.
#[inline(never)]
fn combine_buffers(arrival: usize, bytes: usize) -> (*const u8, *mut u8) {
    let mut exchanges = current("simt::warp::combine").warp().exchanges.borrow_mut();
    let exchange = &mut exchanges[arrival];
    let words = bytes.div_ceil(size_of::<u128>());
    if exchange.results.len() < words {
        exchange.results.resize(words, 0);
    }
    (exchange.data.as_ptr().cast(), exchange.results.as_mut_ptr().cast())
}

/// Waits for the results unless the caller made them, takes the lane's result and leaves the operation.
///
/// # Safety
/// `out` is writable for `size` bytes, and the operation will have 32 results of that size.
#[inline(never)]
unsafe fn finish_combine(
    op: &'static str,
    arrival: usize,
    last: bool,
    out: *mut u8,
    size: usize,
    location: &'static Location<'static>,
) {
    let thread = current("simt::warp::combine");
    if last {
        wake_others(thread, arrival);
    } else {
        thread.wait_for(Wait::Warp { op, mask: WHOLE_WARP }, location);
    }
    let exchanges = thread.warp().exchanges.borrow();
    let results = exchanges[arrival].results.as_ptr().cast::<u8>();
    // SAFETY: the caller vouches for both ranges; no new operation takes this place before all lanes have
    // left.
    unsafe { std::ptr::copy_nonoverlapping(results.add(thread.lane() as usize * size), out, size) };
    drop(exchanges);
    leave(thread, arrival, 0, &mut []);
}

/// Lanes that run together with the caller (`activemask`): it waits until no lane of the warp can run, then
/// returns the lanes that called it on the same line.
#[track_caller]
pub fn active_mask() -> u32 {
    let location = Location::caller();
    let thread = current("simt::warp::active_mask");
    thread.wait_for(Wait::ActiveMask, location);
    thread.answer.get()
}

/// Takes the values of some lanes. Not generic, so that it is compiled here, without load/store callbacks.
///
/// # Safety
/// `input` is readable for `size` bytes, `out` writable for as many times that as there are lanes in `lanes`.
#[inline(never)]
unsafe fn exchange(call: &Call, input: *const u8, size: usize, lanes: Range<usize>, out: *mut u8) -> u32 {
    let thread = current("simt::warp::collective");
    // SAFETY: the caller vouches for the ranges.
    let (input, out) = unsafe {
        (std::slice::from_raw_parts(input, size), std::slice::from_raw_parts_mut(out, size * lanes.len()))
    };
    let &Call { op, mask, location, .. } = call;
    let (arrival, last) = arrive(thread, call, input);
    if last {
        wake_others(thread, arrival);
    } else {
        thread.wait_for(Wait::Warp { op, mask }, location);
    }
    leave(thread, arrival, size * lanes.start, out)
}

/// Joins the operation of `mask`, or begins it. Returns its number, and whether the caller was the last to
/// arrive.
fn arrive(thread: &Thread, call: &Call, input: &[u8]) -> (usize, bool) {
    let &Call { op, mask, element, location, .. } = call;
    let warp = thread.warp();
    let me = 1 << thread.lane();
    if mask & me == 0 {
        let message =
            format!("lane {} calls {op} with mask {mask:#010x}, which leaves it out", thread.lane());
        thread.fail(FaultKind::WarpMask, location, message);
    }
    let mut exchanges = warp.exchanges.borrow_mut();
    let open = exchanges.iter().position(|exchange| exchange.mask == mask && !exchange.complete);
    let number = match open {
        Some(number) => {
            let other = &exchanges[number];
            if other.op != op || other.element != Some(element) {
                let message = format!(
                    "lane {} calls {op}; lanes {:#010x} of the same mask {mask:#010x} wait in {}",
                    thread.lane(),
                    other.arrived,
                    other.op
                );
                drop(exchanges);
                thread.fail(FaultKind::WarpDivergence, location, message);
            }
            number
        }
        None => {
            let clash = exchanges.iter().find(|other| {
                !other.complete
                    && other.mask & me != 0
                    && other.arrived & mask & other.mask != 0
                    && other.mask != 0
            });
            if let Some(other) = clash {
                let message = format!(
                    "lane {} calls {op} with mask {mask:#010x}; lanes {:#010x} wait for it in {} with mask {:#010x}",
                    thread.lane(),
                    other.arrived,
                    other.op,
                    other.mask
                );
                drop(exchanges);
                thread.fail(FaultKind::WarpDivergence, location, message);
            }
            begin(&mut exchanges, call)
        }
    };
    let exchange = &mut exchanges[number];
    exchange.arrived |= me;
    exchange.put(thread.lane() as usize, input);
    let present = warp.present();
    if call.needs_all && present != WHOLE_WARP {
        drop(exchanges);
        let message = format!("{op} needs all lanes, but lane {} has exited", present.trailing_ones());
        thread.fail(FaultKind::WarpMask, location, message);
    }
    (number, exchange.completes(present))
}

/// The thread has exited: lanes of its warp that waited for nobody else go on.
pub(crate) fn lane_exits(thread: &Thread) {
    let warp = thread.warp();
    warp.exited.set(warp.exited.get() | 1 << thread.lane());
    let mut exchanges = warp.exchanges.borrow_mut();
    if exchanges.iter().all(|exchange| exchange.mask == 0 || exchange.complete) {
        return;
    }
    let present = warp.present();
    for exchange in exchanges.iter_mut().filter(|exchange| exchange.mask != 0 && !exchange.complete) {
        if !exchange.needs_all && exchange.completes(present) {
            lanes_of(exchange.arrived).for_each(|lane| thread.group().wake(slot_of(thread, lane)));
        }
    }
}

fn begin(exchanges: &mut Vec<Exchange>, call: &Call) -> usize {
    let free = exchanges.iter().position(|exchange| exchange.mask == 0);
    let number = free.unwrap_or_else(|| {
        exchanges.push(Exchange::default());
        exchanges.len() - 1
    });
    let exchange = &mut exchanges[number];
    exchange.mask = call.mask;
    exchange.op = call.op;
    exchange.element = Some(call.element);
    exchange.needs_all = call.needs_all;
    exchange.arrived = 0;
    exchange.complete = false;
    exchange.ordered = false;
    number
}

/// Takes the values of a complete operation, from a byte of theirs on. Returns the lanes that have given
/// some.
fn leave(thread: &Thread, number: usize, first: usize, out: &mut [u8]) -> u32 {
    let mut exchanges = thread.warp().exchanges.borrow_mut();
    let exchange = &mut exchanges[number];
    exchange.get(first, out);
    exchange.to_leave -= 1;
    if exchange.to_leave == 0 {
        exchange.mask = 0;
    }
    exchange.arrived
}

impl Exchange {
    /// Completes the operation if all lanes of its mask that are `present` have arrived.
    fn completes(&mut self, present: u32) -> bool {
        self.complete = self.mask & present & !self.arrived == 0;
        if self.complete {
            self.to_leave = self.arrived.count_ones();
        }
        self.complete
    }

    fn put(&mut self, lane: usize, value: &[u8]) {
        let words = (value.len() * LANES).div_ceil(size_of::<u128>());
        if self.data.len() < words {
            self.data.resize(words, 0);
        }
        // SAFETY: the vector holds 32 values of this length, and `lane` is below 32.
        unsafe {
            let to = self.data.as_mut_ptr().cast::<u8>().add(lane * value.len());
            std::ptr::copy_nonoverlapping(value.as_ptr(), to, value.len());
        }
    }

    fn get(&self, first: usize, out: &mut [u8]) {
        // SAFETY: lanes put values of the same length (their type is the same), 32 of which the data hold;
        // the bytes are those of some of them.
        unsafe {
            let from = self.data.as_ptr().cast::<u8>().add(first);
            std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len());
        }
    }
}

/// Wakes the other lanes of a complete operation.
fn wake_others(thread: &Thread, arrival: usize) {
    let arrived = thread.warp().exchanges.borrow()[arrival].arrived;
    let others = lanes_of(arrived & !(1 << thread.lane()));
    thread.group().wake_each(others.map(|lane| slot_of(thread, lane)));
}

fn lanes_of(mask: u32) -> impl Iterator<Item = u32> {
    let mut left = mask;
    std::iter::from_fn(move || {
        let lane = left.trailing_zeros();
        left &= left.wrapping_sub(1);
        (lane < WARP_SIZE).then_some(lane)
    })
}

fn slot_of(thread: &Thread, lane: u32) -> u32 {
    thread.slot - thread.lane() + lane
}

/// Answers the lanes that asked for the active mask, now that no other lane can run. Returns whether there
/// were any.
pub(crate) fn settle_active_masks(group: &Group<'_>) -> bool {
    let asks = |thread: &&Thread| thread.wait.get() == Wait::ActiveMask;
    let asking: Vec<_> = group.threads.iter().filter(asks).collect();
    for thread in &asking {
        let first = thread.slot - thread.lane();
        let same = |other: &&&Thread| {
            other.slot - other.lane() == first && other.wait_site.get() == thread.wait_site.get()
        };
        let mask = asking.iter().filter(same).fold(0, |mask, other| mask | 1 << other.lane());
        thread.answer.set(mask);
    }
    asking.iter().for_each(|thread| group.wake(thread.slot));
    !asking.is_empty()
}
