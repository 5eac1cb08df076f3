//! Operations that the lanes of a warp carry out together.

use std::any::TypeId;
use std::cell::RefCell;
use std::mem::MaybeUninit;
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
    /// Whether all have arrived; lanes then take the data one by one.
    complete: bool,
    /// Lanes that have not taken the data yet.
    to_leave: u32,
    /// One value for each lane, in 16-byte words so that any value is aligned.
    data: Vec<u128>,
    /// The results of [`combine`], one for each lane.
    results: Vec<u128>,
}

impl WarpState {
    pub fn all(threads: u32) -> Box<[Self]> {
        let warp = |first: u32| Self { lanes: WARP_SIZE.min(threads - first), exchanges: RefCell::default() };
        (0..threads).step_by(LANES).map(warp).collect()
    }

    pub fn reset(&self) {
        self.exchanges.borrow_mut().iter_mut().for_each(|exchange| exchange.mask = 0);
    }

    /// Mask of the lanes that exist.
    fn existing(&self) -> u32 {
        u32::MAX >> (WARP_SIZE - self.lanes)
    }
}

/// Waits for the lanes of `mask` and orders their memory accesses (`bar.warp.sync`).
#[track_caller]
pub fn sync(mask: u32) {
    let location = Location::caller();
    let thread = current("simt::warp::sync");
    let (arrival, last) = arrive(thread, "warp sync", mask, TypeId::of::<()>(), &[], location);
    if last {
        if thread.checked() {
            let slots = lanes_of(mask & thread.warp().existing())
                .map(|lane| slot_of(thread, lane))
                .collect::<Vec<_>>();
            crate::check::synchronise(thread, &slots, None);
        }
        wake_others(thread, mask);
    } else {
        thread.wait_for(Wait::Warp { op: "warp sync", mask }, location);
    }
    leave(thread, arrival, &mut []);
}

/// Every lane of `mask` gives a value and gets the values of all. Lanes outside the mask, and lanes that the
/// block does not have, give `None`. Does not order memory accesses; neither do shuffles and votes in
/// hardware.
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
            op,
            mask,
            TypeId::of::<T>(),
            std::ptr::from_ref(&input).cast(),
            size_of::<T>(),
            values.as_mut_ptr().cast(),
            Location::caller(),
        )
    };
    // SAFETY: see above: lanes of `given` are initialised.
    std::array::from_fn(|lane| (given & (1 << lane) != 0).then(|| unsafe { values[lane].assume_init() }))
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
    let (arrival, last) = begin_combine(op, TypeId::of::<(T, U)>(), bytes, location);
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
fn begin_combine(
    op: &'static str,
    element: TypeId,
    input: &[u8],
    location: &'static Location<'static>,
) -> (usize, bool) {
    let thread = current("simt::warp::combine");
    let lanes = thread.warp().lanes;
    if lanes != WARP_SIZE {
        let message = format!("{op} needs a warp of {WARP_SIZE} threads; this one has {lanes}");
        thread.fail(FaultKind::WarpMask, location, message);
    }
    arrive(thread, op, WHOLE_WARP, element, input, location)
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
        wake_others(thread, WHOLE_WARP);
    } else {
        thread.wait_for(Wait::Warp { op, mask: WHOLE_WARP }, location);
    }
    let exchanges = thread.warp().exchanges.borrow();
    let results = exchanges[arrival].results.as_ptr().cast::<u8>();
    // SAFETY: the caller vouches for both ranges; no new operation takes this place before all lanes have
    // left.
    unsafe { std::ptr::copy_nonoverlapping(results.add(thread.lane() as usize * size), out, size) };
    drop(exchanges);
    leave(thread, arrival, &mut []);
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

/// Not generic, so that it is compiled here, without load/store callbacks.
///
/// # Safety
/// `input` is readable for `size` bytes, `out` writable for 32 times as many.
#[inline(never)]
unsafe fn exchange(
    op: &'static str,
    mask: u32,
    element: TypeId,
    input: *const u8,
    size: usize,
    out: *mut u8,
    location: &'static Location<'static>,
) -> u32 {
    let thread = current("simt::warp::collective");
    // SAFETY: the caller vouches for the ranges.
    let (input, out) = unsafe {
        (std::slice::from_raw_parts(input, size), std::slice::from_raw_parts_mut(out, size * LANES))
    };
    let (arrival, last) = arrive(thread, op, mask, element, input, location);
    if last {
        wake_others(thread, mask);
    } else {
        thread.wait_for(Wait::Warp { op, mask }, location);
    }
    leave(thread, arrival, out);
    mask & thread.warp().existing()
}

/// Joins the operation of `mask`, or begins it. Returns its number, and whether the caller was the last to
/// arrive.
fn arrive(
    thread: &Thread,
    op: &'static str,
    mask: u32,
    element: TypeId,
    input: &[u8],
    location: &'static Location<'static>,
) -> (usize, bool) {
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
            let gone = lanes_of(mask & warp.existing()).find(|&lane| {
                thread.group().threads[slot_of(thread, lane) as usize].wait.get() == Wait::Exited
            });
            if let Some(gone) = gone {
                drop(exchanges);
                let message = format!("{op} with mask {mask:#010x}, but lane {gone} has exited");
                thread.fail(FaultKind::WarpMask, location, message);
            }
            begin(&mut exchanges, op, mask, element, warp.existing())
        }
    };
    let exchange = &mut exchanges[number];
    exchange.arrived |= me;
    exchange.put(thread.lane() as usize, input);
    exchange.complete = exchange.arrived == mask & warp.existing();
    (number, exchange.complete)
}

fn begin(
    exchanges: &mut Vec<Exchange>,
    op: &'static str,
    mask: u32,
    element: TypeId,
    existing: u32,
) -> usize {
    let free = exchanges.iter().position(|exchange| exchange.mask == 0);
    let number = free.unwrap_or_else(|| {
        exchanges.push(Exchange::default());
        exchanges.len() - 1
    });
    let exchange = &mut exchanges[number];
    exchange.mask = mask;
    exchange.op = op;
    exchange.element = Some(element);
    exchange.arrived = 0;
    exchange.complete = false;
    exchange.to_leave = (mask & existing).count_ones();
    number
}

/// Takes the values of a complete operation.
fn leave(thread: &Thread, number: usize, out: &mut [u8]) {
    let mut exchanges = thread.warp().exchanges.borrow_mut();
    let exchange = &mut exchanges[number];
    exchange.get(out);
    exchange.to_leave -= 1;
    if exchange.to_leave == 0 {
        exchange.mask = 0;
    }
}

impl Exchange {
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

    fn get(&self, out: &mut [u8]) {
        // SAFETY: lanes put values of the same length (their type is the same), 32 of which `out` and the
        // data hold.
        unsafe {
            std::ptr::copy_nonoverlapping(self.data.as_ptr().cast::<u8>(), out.as_mut_ptr(), out.len())
        };
    }
}

fn wake_others(thread: &Thread, mask: u32) {
    let others = mask & thread.warp().existing() & !(1 << thread.lane());
    for lane in lanes_of(others) {
        thread.group().wake(slot_of(thread, lane));
    }
}

fn lanes_of(mask: u32) -> impl Iterator<Item = u32> {
    (0..WARP_SIZE).filter(move |lane| mask & (1 << lane) != 0)
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
