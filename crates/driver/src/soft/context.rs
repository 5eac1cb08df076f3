//! Contexts: the primary context of each device, other contexts, and each thread's context stack.

use super::{
    api,
    device::{DRIVER_VERSION, PRIORITIES},
    handle::Handle,
    put, put_some,
    state::{Driver, Outcome},
    stream::Stream,
};
use crate::code;
use core::ffi::{c_int, c_uint};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    thread::ThreadId,
};

/// Allowed flags of a context: scheduling (3 bits), mapped host memory, keeping local memory.
const KNOWN_FLAGS: c_uint = 0x1f;
/// `CU_LIMIT_*` that can be set: stack size, printf buffer, malloc heap, device runtime depth and launches,
/// L2 granularity.
const KNOWN_LIMITS: core::ops::RangeInclusive<u32> = 0..=5;
const DEFAULT_LIMITS: [usize; 6] = [1024, 1 << 20, 8 << 20, 2, 2048, 64];

pub(super) struct Context {
    pub device: usize,
    /// The first kernel fault: every later call returns it.
    pub fault: Option<u32>,
    /// False between the last release of a primary context and the next retain.
    pub active: bool,
    pub legacy: Handle,
    pub per_thread: HashMap<ThreadId, Handle>,
    /// Contexts whose memory this one may access.
    pub peers: BTreeSet<Handle>,
    primary: bool,
    flags: c_uint,
    limits: BTreeMap<u32, usize>,
    cache: u32,
    banks: u32,
}

thread_local! {
    /// This thread's context stack. The current context is the last.
    static STACK: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
}

/// The context on top of this thread's stack.
pub(super) fn top() -> Option<Handle> {
    STACK.with_borrow(|stack| stack.last().copied())
}

impl Driver {
    /// The current context, checked for use.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` without one, `CONTEXT_IS_DESTROYED`, or the sticky code of a kernel fault.
    pub(super) fn enter(&self) -> Outcome<Handle> {
        let handle = top().ok_or(code::INVALID_CONTEXT)?;
        self.sound(handle)?;
        Ok(handle)
    }

    /// Checks that a context exists and has no fault.
    pub(super) fn sound(&self, context: Handle) -> Outcome {
        let context = self.contexts.get(context).map_err(|_| code::CONTEXT_IS_DESTROYED)?;
        match (context.active, context.fault) {
            (false, _) => Err(code::CONTEXT_IS_DESTROYED),
            (true, Some(fault)) => Err(fault),
            (true, None) => Ok(()),
        }
    }

    /// The device of the current context.
    pub(super) fn current_device(&self) -> Outcome<usize> {
        Ok(self.contexts.get(self.enter()?)?.device)
    }

    /// The primary context of a device, if it is active.
    pub(super) fn active_primary(&self, device: usize) -> Option<Handle> {
        self.devices[device].primary.filter(|&h| self.contexts.get(h).is_ok_and(|c| c.active))
    }

    fn make_context(&mut self, device: usize, flags: c_uint, primary: bool) -> Handle {
        let handle = self.contexts.insert(Context {
            device,
            fault: None,
            active: true,
            legacy: 0,
            per_thread: HashMap::new(),
            peers: BTreeSet::new(),
            primary,
            flags,
            limits: BTreeMap::new(),
            cache: 0,
            banks: 0,
        });
        add_legacy_stream(self, handle);
        handle
    }
}

fn add_legacy_stream(driver: &mut Driver, context: Handle) {
    let legacy = driver.streams.insert(Stream::legacy(context));
    if let Ok(context) = driver.contexts.get_mut(context) {
        context.legacy = legacy;
    }
}

/// Removes everything that a context holds, and its fault.
pub(super) fn clear(driver: &mut Driver, handle: Handle) {
    driver.wait_until_idle();
    driver.discard_work(handle);
    let gone: BTreeSet<Handle> =
        driver.streams.iter().filter(|(_, s)| s.context == handle).map(|(stream, _)| stream).collect();
    driver.captures.retain(|capture| !gone.contains(&capture.origin));
    driver.streams.retain(|stream| stream.context != handle);
    driver.events.retain(|event| event.context != handle);
    let state = &mut **driver;
    let modules = &state.modules;
    state.functions.retain(|f| modules.get(f.module).is_ok_and(|m| m.context != handle));
    state.modules.retain(|module| module.context != handle);
    driver.free_all_of(handle);
    if let Ok(context) = driver.contexts.get_mut(handle) {
        context.fault = None;
        context.per_thread.clear();
        context.peers.clear();
    }
    add_legacy_stream(driver, handle);
}

/// Ends a context. The primary one keeps its handle for the next retain.
fn destroy(driver: &mut Driver, handle: Handle) -> Outcome {
    driver.contexts.get(handle).map_err(|_| code::INVALID_CONTEXT)?;
    // Queued work finishes first, as on a GPU. Its fault, if any, is discarded with the context.
    let _ = driver.drain_context(handle);
    clear(driver, handle);
    for context in driver.contexts.values_mut() {
        context.peers.remove(&handle);
    }
    let legacy = driver.contexts.get(handle)?.legacy;
    if driver.contexts.get(handle)?.primary {
        driver.contexts.get_mut(handle)?.active = false;
    } else {
        driver.contexts.remove(handle)?;
        driver.streams.remove(legacy)?;
        STACK.with_borrow_mut(|stack| {
            if stack.last() == Some(&handle) {
                stack.pop();
            }
        });
    }
    Ok(())
}

fn retain_primary(driver: &mut Driver, device: usize) -> Outcome<Handle> {
    let flags = driver.devices[device].primary_flags;
    let handle = match driver.devices[device].primary {
        Some(handle) => handle,
        None => driver.make_context(device, flags, true),
    };
    let context = driver.contexts.get_mut(handle)?;
    context.active = true;
    context.flags = flags;
    driver.devices[device].primary = Some(handle);
    driver.devices[device].primary_references += 1;
    Ok(handle)
}

fn create(driver: &mut Driver, flags: c_uint, device: c_int) -> Outcome<Handle> {
    let device = driver.ordinal(device)?;
    if flags & !KNOWN_FLAGS != 0 {
        return Err(code::INVALID_VALUE);
    }
    let handle = driver.make_context(device, flags, false);
    STACK.with_borrow_mut(|stack| stack.push(handle));
    Ok(handle)
}

api! {
    fn cuDevicePrimaryCtxRetain(driver, out: *mut Handle, device: c_int) {
        let device = driver.ordinal(device)?;
        if out.is_null() {
            return Err(code::INVALID_VALUE);
        }
        let handle = retain_primary(driver, device)?;
        put(out, handle)
    }

    fn cuDevicePrimaryCtxRelease_v2(driver, device: c_int) {
        let device = driver.ordinal(device)?;
        let references = driver.devices[device].primary_references.checked_sub(1).ok_or(code::INVALID_CONTEXT)?;
        driver.devices[device].primary_references = references;
        match driver.devices[device].primary {
            Some(handle) if references == 0 => destroy(driver, handle),
            _ => Ok(()),
        }
    }

    fn cuDevicePrimaryCtxReset_v2(driver, device: c_int) {
        let device = driver.ordinal(device)?;
        driver.devices[device].primary_references = 0;
        match driver.devices[device].primary {
            Some(handle) => destroy(driver, handle),
            None => Ok(()),
        }
    }

    fn cuDevicePrimaryCtxSetFlags_v2(driver, device: c_int, flags: c_uint) {
        let device = driver.ordinal(device)?;
        if flags & !KNOWN_FLAGS != 0 {
            return Err(code::INVALID_VALUE);
        }
        driver.devices[device].primary_flags = flags;
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(driver, device: c_int, flags: *mut c_uint, active: *mut c_int) {
        let device = driver.ordinal(device)?;
        put(flags, driver.devices[device].primary_flags)?;
        put(active, c_int::from(driver.active_primary(device).is_some()))
    }

    fn cuCtxCreate_v2(driver, out: *mut Handle, flags: c_uint, device: c_int) {
        if out.is_null() {
            return Err(code::INVALID_VALUE);
        }
        let handle = create(driver, flags, device)?;
        put(out, handle)
    }

    fn cuCtxDestroy_v2(driver, context: Handle) {
        if driver.contexts.get(context).map_err(|_| code::INVALID_CONTEXT)?.primary {
            return Err(code::INVALID_CONTEXT);
        }
        destroy(driver, context)
    }

    fn cuCtxPushCurrent_v2(driver, context: Handle) {
        driver.contexts.get(context).map_err(|_| code::INVALID_CONTEXT)?;
        STACK.with_borrow_mut(|stack| stack.push(context));
        Ok(())
    }

    fn cuCtxPopCurrent_v2(_driver, out: *mut Handle) {
        let popped = STACK.with_borrow_mut(Vec::pop).ok_or(code::INVALID_CONTEXT)?;
        put_some(out, popped);
        Ok(())
    }

    fn cuCtxSetCurrent(driver, context: Handle) {
        if context != 0 {
            driver.contexts.get(context).map_err(|_| code::INVALID_CONTEXT)?;
        }
        STACK.with_borrow_mut(|stack| {
            stack.pop();
            if context != 0 {
                stack.push(context);
            }
        });
        Ok(())
    }

    fn cuCtxGetCurrent(_driver, out: *mut Handle) { put(out, top().unwrap_or(0)) }

    fn cuCtxGetDevice(driver, out: *mut c_int) {
        let context = driver.contexts.get(top().ok_or(code::INVALID_CONTEXT)?).map_err(|_| code::CONTEXT_IS_DESTROYED)?;
        put(out, context.device as c_int)
    }

    fn cuCtxGetFlags(driver, out: *mut c_uint) { put(out, driver.contexts.get(driver.enter()?)?.flags) }

    fn cuCtxGetId(driver, context: Handle, out: *mut u64) {
        let context = if context == 0 { driver.enter()? } else { context };
        driver.contexts.get(context).map_err(|_| code::INVALID_CONTEXT)?;
        put(out, context as u64)
    }

    fn cuCtxSynchronize(driver) {
        let context = driver.enter()?;
        driver.forbid_while_capturing(context)?;
        driver.drain_context(context)
    }

    fn cuCtxGetApiVersion(driver, context: Handle, out: *mut c_uint) {
        if context != 0 {
            driver.contexts.get(context).map_err(|_| code::INVALID_CONTEXT)?;
        }
        put(out, DRIVER_VERSION as c_uint)
    }

    fn cuCtxGetStreamPriorityRange(driver, least: *mut c_int, greatest: *mut c_int) {
        driver.enter()?;
        put_some(least, PRIORITIES.0);
        put_some(greatest, PRIORITIES.1);
        Ok(())
    }

    fn cuCtxSetLimit(driver, limit: u32, value: usize) {
        let context = driver.enter()?;
        if !KNOWN_LIMITS.contains(&limit) {
            return Err(code::UNSUPPORTED_LIMIT);
        }
        driver.contexts.get_mut(context)?.limits.insert(limit, value);
        Ok(())
    }

    fn cuCtxGetLimit(driver, out: *mut usize, limit: u32) {
        let context = driver.enter()?;
        let default = DEFAULT_LIMITS.get(limit as usize).ok_or(code::UNSUPPORTED_LIMIT)?;
        put(out, driver.contexts.get(context)?.limits.get(&limit).copied().unwrap_or(*default))
    }

    fn cuCtxSetCacheConfig(driver, config: u32) {
        let context = driver.enter()?;
        if config > 3 {
            return Err(code::INVALID_VALUE);
        }
        driver.contexts.get_mut(context)?.cache = config;
        Ok(())
    }

    fn cuCtxGetCacheConfig(driver, out: *mut u32) { put(out, driver.contexts.get(driver.enter()?)?.cache) }

    fn cuCtxSetSharedMemConfig(driver, config: u32) {
        let context = driver.enter()?;
        if config > 2 {
            return Err(code::INVALID_VALUE);
        }
        driver.contexts.get_mut(context)?.banks = config;
        Ok(())
    }

    fn cuCtxGetSharedMemConfig(driver, out: *mut u32) { put(out, driver.contexts.get(driver.enter()?)?.banks) }

    fn cuCtxResetPersistingL2Cache(driver) { driver.enter().map(|_| ()) }
}

/// The calling thread's own stream of a context (`CU_STREAM_PER_THREAD`). Created on first use.
pub(super) fn per_thread_stream(driver: &mut Driver, context: Handle) -> Outcome<Handle> {
    let thread = std::thread::current().id();
    if let Some(&stream) = driver.contexts.get(context)?.per_thread.get(&thread) {
        return Ok(stream);
    }
    let stream = driver.streams.insert(Stream::blocking(context));
    driver.contexts.get_mut(context)?.per_thread.insert(thread, stream);
    Ok(stream)
}
