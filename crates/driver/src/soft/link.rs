//! The linker: joins PTX texts into one image.

use super::{
    api,
    handle::Handle,
    put, put_some,
    state::{Driver, Outcome},
};
use crate::code;
use core::ffi::{CStr, c_char, c_uint, c_void};

/// `CU_JIT_INPUT_PTX`. The other kinds are machine code and libraries, which the software driver cannot use.
const INPUT_PTX: u32 = 1;

/// The texts added so far, and the image with its NUL once it is complete.
pub(super) struct Linker {
    text: Vec<u8>,
    complete: bool,
}

impl Driver {
    fn add_to_linker(&mut self, linker: Handle, kind: u32, text: &[u8]) -> Outcome {
        self.enter()?;
        let linker = self.linkers.get_mut(linker)?;
        if linker.complete {
            return Err(code::INVALID_VALUE);
        }
        if kind != INPUT_PTX {
            return Err(code::NO_BINARY_FOR_GPU);
        }
        super::module::check_image(text)?;
        linker.text.extend_from_slice(text.strip_suffix(b"\0").unwrap_or(text));
        linker.text.push(b'\n');
        Ok(())
    }
}

api! {
    fn cuLinkCreate_v2(driver, _count: c_uint, _options: *const u32, _values: *mut *mut c_void, out: *mut Handle) {
        driver.enter()?;
        put(out, 0)?;
        let linker = driver.linkers.insert(Linker { text: Vec::new(), complete: false });
        put(out, linker)
    }

    fn cuLinkAddData_v2(
        driver, linker: Handle, kind: u32, data: *const c_void, bytes: usize, _name: *const c_char,
        _count: c_uint, _options: *const u32, _values: *mut *mut c_void,
    ) {
        if data.is_null() {
            return Err(code::INVALID_VALUE);
        }
        driver.add_to_linker(linker, kind, core::slice::from_raw_parts(data.cast::<u8>(), bytes))
    }

    fn cuLinkAddFile_v2(
        driver, linker: Handle, kind: u32, path: *const c_char, _count: c_uint, _options: *const u32, _values: *mut *mut c_void,
    ) {
        if path.is_null() {
            return Err(code::INVALID_VALUE);
        }
        let path = CStr::from_ptr(path).to_str().map_err(|_| code::FILE_NOT_FOUND)?;
        driver.add_to_linker(linker, kind, &std::fs::read(path).map_err(|_| code::FILE_NOT_FOUND)?)
    }

    fn cuLinkComplete(driver, linker: Handle, image: *mut *const c_void, bytes: *mut usize) {
        driver.enter()?;
        let linker = driver.linkers.get_mut(linker)?;
        if linker.text.is_empty() {
            return Err(code::INVALID_VALUE);
        }
        if !linker.complete {
            linker.text.push(0);
            linker.complete = true;
        }
        // The linker owns the image. It is valid until cuLinkDestroy: nothing is added to a complete image.
        put_some(bytes, linker.text.len());
        put(image, linker.text.as_ptr().cast())
    }

    fn cuLinkDestroy(driver, linker: Handle) { driver.linkers.remove(linker).map(|_| ()) }
}
