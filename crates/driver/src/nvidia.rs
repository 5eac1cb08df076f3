//! NVIDIA's driver library, opened at run time.

use crate::{code, load::InitError, table::Address};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::{error::Error as _, ffi::CString, sync::OnceLock};

/// File names of the driver library, tried in this order.
const FILES: &[&str] = &["libcuda.so.1", "libcuda.so"];
/// The variable with the path of a driver library. It is tried before the standard names.
pub const PATH_VARIABLE: &str = "IRONWARP_LIBCUDA";

/// The opened and initialised library.
pub(crate) struct Library {
    handle: libloading::Library,
    /// The result of `cuDriverGetVersion`.
    pub version: u32,
}

static LIBRARY: OnceLock<Library> = OnceLock::new();

impl Library {
    /// The address of a symbol.
    pub(crate) fn find(&self, name: &str) -> Option<Address> {
        let name = CString::new(name).ok()?;
        self.symbol::<Address>(&name)
    }

    /// Reads a symbol as a value of `T`, which is a pointer or a function pointer.
    fn symbol<T: Copy>(&self, name: &CStr) -> Option<T> {
        // SAFETY: callers name the pointer or function type that CUDA documents for the symbol; the library
        // stays loaded.
        unsafe { self.handle.get::<T>(name.to_bytes_with_nul()) }.ok().map(|symbol| *symbol)
    }
}

/// Opens the library and initialises it.
pub(crate) fn open() -> Result<Library, InitError> {
    let own = crate::env::text(PATH_VARIABLE)?;
    let files: Vec<&str> = own.as_deref().into_iter().chain(FILES.iter().copied()).collect();
    let mut reason = String::new();
    for file in &files {
        // SAFETY: the initialisers of NVIDIA's driver library have no preconditions.
        match unsafe { libloading::Library::new(*file) } {
            Ok(handle) => return initialise(handle),
            // The loader's own words are below the name of the call that failed.
            Err(error) if reason.is_empty() => {
                reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            }
            Err(_) => {}
        }
    }
    Err(InitError::NoLibrary { searched: files.join(", "), reason })
}

fn initialise(handle: libloading::Library) -> Result<Library, InitError> {
    let mut library = Library { handle, version: 0 };
    let missing = || InitError::CuInit { code: code::SHARED_OBJECT_SYMBOL_NOT_FOUND };
    let init: extern "C" fn(c_uint) -> u32 = library.symbol(c"cuInit").ok_or_else(missing)?;
    let count: extern "C" fn(*mut c_int) -> u32 = library.symbol(c"cuDeviceGetCount").ok_or_else(missing)?;
    let version: extern "C" fn(*mut c_int) -> u32 =
        library.symbol(c"cuDriverGetVersion").ok_or_else(missing)?;
    match init(0) {
        code::SUCCESS => {}
        code::NO_DEVICE => return Err(InitError::NoDevice),
        code => return Err(InitError::CuInit { code }),
    }
    let (mut devices, mut number) = (0, 0);
    match count(&mut devices) {
        code::SUCCESS if devices > 0 => {}
        code::SUCCESS => return Err(InitError::NoDevice),
        code => return Err(InitError::CuInit { code }),
    }
    if version(&mut number) == code::SUCCESS {
        library.version = number.unsigned_abs();
    }
    Ok(library)
}

/// Keeps the library loaded for the life of the process.
pub(crate) fn keep(library: Library) {
    // Loading happens once (see `load::backend`), so the cell is empty.
    let _ = LIBRARY.set(library);
}

/// Finds a function without a slot: first with `cuGetProcAddress` for this version of CUDA, then by its
/// symbol. (A plain name may be the symbol of an outdated version.)
pub(crate) fn proc_address(name: &str, version: u32) -> Option<Address> {
    type GetProcAddress = extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> u32;
    let library = LIBRARY.get()?;
    let by_version = || {
        let get: GetProcAddress = library.symbol(c"cuGetProcAddress_v2")?;
        let name = CString::new(name).ok()?;
        let (mut address, mut status) = (core::ptr::null_mut(), 0);
        let code = get(name.as_ptr(), &mut address, version.cast_signed(), 0, &mut status);
        (code == code::SUCCESS && !address.is_null()).then_some(address.cast_const())
    };
    by_version().or_else(|| library.find(name))
}
