//! Function lookup by name, and profiler marks.

use super::{api, put};
use crate::code;
use core::ffi::{CStr, c_char, c_int, c_void};

api! {
    fn cuGetProcAddress(_driver, name: *const c_char, out: *mut *const c_void, _version: c_int, _flags: u64) {
        if name.is_null() {
            return Err(code::INVALID_VALUE);
        }
        let name = CStr::from_ptr(name).to_str().map_err(|_| code::NOT_FOUND)?;
        let found = crate::load::proc_address(name);
        put(out, found.unwrap_or(core::ptr::null()))?;
        found.map(|_| ()).ok_or(code::NOT_FOUND)
    }

    fn cuProfilerStart(driver) { driver.enter().map(|_| ()) }

    fn cuProfilerStop(driver) { driver.enter().map(|_| ()) }
}
