//! The choice of the driver. The first call of `cuInit` or [`backend`] makes it, once per process.

use crate::{
    code, env, fault, nvidia, soft,
    table::{self, Address, Function},
};
use core::ffi::c_uint;
use std::sync::OnceLock;

/// The variable that selects the driver: `nvidia` or `soft`.
pub const VARIABLE: &str = "IRONWARP_DRIVER";

/// The driver behind the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// NVIDIA's libcuda.
    Nvidia {
        /// The result of `cuDriverGetVersion`: 1000 * major + 10 * minor, so 13000 is CUDA 13.0.
        version: u32,
    },
    /// The software driver of this package. It runs on the CPU.
    Software,
}

/// The reason why no driver could be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InitError {
    /// An environment variable has a value that is not allowed.
    #[error("environment variable {variable} is {value:?}; allowed: {allowed}")]
    BadVariable {
        /// The variable's name.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The allowed values.
        allowed: String,
    },
    /// NVIDIA's driver was requested, and its library cannot be loaded.
    #[error(
        "{VARIABLE}=nvidia, but NVIDIA's driver library cannot be loaded (searched for {searched} as the dynamic loader \
         does: LD_LIBRARY_PATH, /etc/ld.so.cache, the system's library folders; the loader says: {reason}). \
         Install NVIDIA's driver, put the folder of libcuda.so.1 into LD_LIBRARY_PATH, or set {VARIABLE}=soft to run without a GPU"
    )]
    NoLibrary {
        /// The file names that were tried, in order.
        searched: String,
        /// The message of the dynamic loader.
        reason: String,
    },
    /// NVIDIA's `cuInit` failed.
    #[error(
        "NVIDIA's driver library is there, but its cuInit failed with {code} ({name}): check `nvidia-smi`, \
         or set {VARIABLE}=soft to run without a GPU",
        name = code::name(*.code).unwrap_or("a code unknown to this program")
    )]
    CuInit {
        /// The code that `cuInit` returned.
        code: u32,
    },
    /// NVIDIA's driver was requested and reports no device.
    #[error(
        "{VARIABLE}=nvidia, but the driver reports no device: check `nvidia-smi` and CUDA_VISIBLE_DEVICES, \
         or set {VARIABLE}=soft to run without a GPU"
    )]
    NoDevice,
}

impl InitError {
    /// The code that `cuInit` returns for this error.
    pub fn code(&self) -> u32 {
        match self {
            InitError::BadVariable { .. } => code::INVALID_VALUE,
            InitError::NoLibrary { .. } | InitError::NoDevice => code::NO_DEVICE,
            // Only codes that cust can read.
            InitError::CuInit { code } if code::name(*code).is_some() => *code,
            InitError::CuInit { .. } => code::UNKNOWN,
        }
    }
}

static BACKEND: OnceLock<Result<Backend, InitError>> = OnceLock::new();

/// The driver in use. The first call of this function or of `cuInit` loads it.
///
/// # Errors
/// [`InitError`] says what was searched and how to fix it. The result never changes within a process.
pub fn backend() -> Result<Backend, InitError> {
    BACKEND.get_or_init(load).clone()
}

/// The error of the last `cuInit`. `None` if it succeeded or was never called.
pub fn init_error() -> Option<InitError> {
    BACKEND.get().and_then(|result| result.clone().err())
}

/// The driver, if one is loaded. This function loads none.
pub(crate) fn loaded() -> Option<Backend> {
    BACKEND.get().and_then(|result| result.clone().ok())
}

fn load() -> Result<Backend, InitError> {
    fault::read_variable()?;
    match env::text(VARIABLE)?.as_deref() {
        Some("soft") => fill_with_software(),
        Some("nvidia") => fill_with_nvidia(nvidia::open()?),
        Some(other) => Err(InitError::BadVariable {
            variable: VARIABLE,
            value: other.to_owned(),
            allowed: "nvidia, soft; unset: nvidia where it has a device, else soft".to_owned(),
        }),
        None => match nvidia::open() {
            Ok(library) => fill_with_nvidia(library),
            // The library that was meant is unknown.
            Err(error @ InitError::BadVariable { .. }) => Err(error),
            Err(_) => fill_with_software(),
        },
    }
}

fn fill_with_nvidia(library: nvidia::Library) -> Result<Backend, InitError> {
    let backend = Backend::Nvidia { version: library.version };
    let counted = fault::arm(&backend);
    table::fill(|f| library.find(f.name()), counted);
    nvidia::keep(library);
    Ok(backend)
}

fn fill_with_software() -> Result<Backend, InitError> {
    soft::start()?;
    let counted = fault::arm(&Backend::Software);
    table::fill(soft::find, counted);
    Ok(Backend::Software)
}

/// `cuInit`: loads a driver. [`init_error`] explains a failure.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the symbol that cust links")]
pub(crate) extern "C" fn cuInit(flags: c_uint) -> u32 {
    // The variable may hold a rule for this very call. `backend` reports a bad value.
    let _ = fault::read_variable();
    if let Some(code) = fault::count(Function::cuInit) {
        return code;
    }
    match backend() {
        Err(error) => error.code(),
        Ok(_) if flags != 0 => code::INVALID_VALUE,
        Ok(_) => code::SUCCESS,
    }
}

/// The address of a driver function, found by its name in CUDA's API. Use it for functions that cust does not
/// declare (`cuLaunchKernelEx`). A name without an exact match finds the newest version (`cuMemAlloc`:
/// `cuMemAlloc_v2`). `None` if the loaded driver lacks the function or no driver could be loaded. If the
/// function has a slot, calls through the address are counted, and rules can make them fail.
pub fn proc_address(name: &str) -> Option<Address> {
    let backend = backend().ok()?;
    let in_table =
        |name: &str| Function::from_name(name).filter(|&f| table::has(f)).map(Function::trampoline);
    let known = ["", "_v3", "_v2"].iter().find_map(|suffix| in_table(&format!("{name}{suffix}")));
    match backend {
        Backend::Software => known,
        Backend::Nvidia { version } => known.or_else(|| nvidia::proc_address(name, version)),
    }
}
