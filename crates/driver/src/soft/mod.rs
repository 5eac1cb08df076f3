//! The software driver: CUDA's driver API on the CPU. `simt` runs the kernels.
//!
//! It favours strictness over speed:
//!
//! - Memory has red zones and is filled with NaN bytes.
//! - Work in a stream waits until something needs its result. So a missing synchronisation in the host
//!   program gives a wrong result, the same in every run.
//! - A fault in a kernel is sticky, as on a GPU. [`last_fault`] returns the checker's report.
//!
//! Missing functions return `NOT_SUPPORTED`: arrays, textures and surfaces (native kernels cannot use them),
//! graphics, external memory, events of other processes, virtual memory management, machine code.
//!
//! Each file holds one chapter of the API. One lock guards all state. It is not held while a kernel or a host
//! function runs.

mod abi;
mod blocks;
mod capture;
mod context;
mod copy;
mod device;
mod event;
mod exec;
mod graph;
mod handle;
mod ipc;
mod launch;
mod link;
mod memory;
mod misc;
mod module;
mod occupancy;
mod peer;
mod pointer;
mod pool;
mod queue;
mod state;
mod stream;
mod tally;
mod tensor_map;
mod user_object;

use crate::{
    code,
    load::InitError,
    table::{Address, Function},
};
use state::{Driver, Outcome};
use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
};

pub use blocks::mark_block;
pub use launch::checks;
pub use module::take_ambiguous;
pub use queue::start_waiting_work;
pub use state::{last_fault, reset};
pub use tally::{Launches, launches};

/// Defines driver functions and the chapter's `FUNCTIONS`. In `fn NAME(driver, args) { body }`, the body is a
/// block of type `Outcome`. It runs with the state locked.
macro_rules! api {
    ($($(#[$meta:meta])* fn $name:ident($driver:ident $(, $arg:ident: $type:ty)* $(,)?) $body:block)*) => {
        $(
            $(#[$meta])*
            /// # Safety
            /// As CUDA documents for the function: pointers are null or valid for what is read or written.
            #[allow(non_snake_case, reason = "the name in CUDA's API")]
            unsafe extern "C" fn $name($($arg: $type),*) -> u32 {
                $crate::soft::call(|$driver| {
                    // SAFETY: the caller keeps the contract of this function. The body relies on nothing
                    // else.
                    #[allow(unused_unsafe, reason = "not every function touches pointers")]
                    unsafe { $body }
                })
            }
        )*
        /// The functions of this chapter.
        pub(super) const FUNCTIONS: &[($crate::table::Function, $crate::table::Address)] =
            &[$(($crate::table::Function::$name, $name as $crate::table::Address)),*];
    };
}
use api;

const CHAPTERS: &[&[(Function, Address)]] = &[
    misc::FUNCTIONS,
    device::FUNCTIONS,
    context::FUNCTIONS,
    memory::FUNCTIONS,
    pointer::FUNCTIONS,
    copy::FUNCTIONS,
    stream::FUNCTIONS,
    event::FUNCTIONS,
    module::FUNCTIONS,
    launch::FUNCTIONS,
    link::FUNCTIONS,
    occupancy::FUNCTIONS,
    capture::FUNCTIONS,
    graph::FUNCTIONS,
    exec::FUNCTIONS,
    pool::FUNCTIONS,
    peer::FUNCTIONS,
    ipc::FUNCTIONS,
    tensor_map::FUNCTIONS,
    user_object::FUNCTIONS,
];

/// Reads the configuration and sets up the devices.
pub(crate) fn start() -> Result<(), InitError> {
    state::start()
}

/// The software driver's function. `None` if it lacks the function.
pub(crate) fn find(function: Function) -> Option<Address> {
    match function {
        Function::cuInit => Some(function.trampoline()),
        Function::cuGetErrorName => Some(code::error_name as Address),
        Function::cuGetErrorString => Some(code::error_string as Address),
        _ => CHAPTERS.iter().copied().flatten().find(|(f, _)| *f == function).map(|(_, address)| *address),
    }
}

thread_local! {
    /// Whether this thread runs a function of the program that the driver called.
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Calls a function of the program, such as a host function of a stream. Driver calls inside it return
/// `NOT_PERMITTED`, as CUDA allows: on a GPU they could deadlock.
fn host_function<R>(call: impl FnOnce() -> R) -> R {
    IN_HOST_FUNCTION.set(true);
    let result = call();
    IN_HOST_FUNCTION.set(false);
    result
}

/// Runs the body of a driver function.
fn call(body: impl FnOnce(&mut Driver) -> Outcome) -> u32 {
    if IN_HOST_FUNCTION.get() {
        return code::NOT_PERMITTED;
    }
    // A panic here is a defect of this driver, and the panic hook has printed it. It must not unwind into the
    // caller's frames.
    let locked = || {
        let mut driver = Driver::lock();
        let outcome = body(&mut driver);
        driver.destroy_ended_objects();
        outcome
    };
    match catch_unwind(AssertUnwindSafe(locked)) {
        Ok(Ok(())) => code::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => code::UNKNOWN,
    }
}

/// Writes a result through the caller's pointer.
///
/// # Safety
/// `out` is null or valid for a write.
unsafe fn put<T>(out: *mut T, value: T) -> Outcome {
    if out.is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: not null, and valid by this function's contract.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes an optional result. Skips a null pointer.
///
/// # Safety
/// `out` is null or valid for a write.
unsafe fn put_some<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: not null, and valid by this function's contract.
        unsafe { out.write(value) };
    }
}

/// Reads a structure through the caller's pointer.
///
/// # Safety
/// `input` is null or valid for a read of `T`.
unsafe fn take<T: Copy>(input: *const T) -> Outcome<T> {
    if input.is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: not null, and valid by this function's contract.
    Ok(unsafe { input.read() })
}
