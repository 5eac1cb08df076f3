//! NVIDIA's collectives library (NCCL), opened at run time: the functions that Ironwarp calls.
//!
//! [`library`] opens the file that `IRONWARP_NCCL` names, then `libnccl.so.2`, then `libnccl.so`. Nothing is
//! linked, so programs start without it.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::load::InitError;

/// The variable with the path of a library. It is tried before the standard names.
pub const PATH_VARIABLE: &str = "IRONWARP_NCCL";
/// NCCL's own variable for NVLink multicast, which Ironwarp never uses. It has to be 0.
pub const MULTICAST_VARIABLE: &str = "NCCL_NVLS_ENABLE";
/// File names of the library, tried in this order. Packages without headers have the first one alone.
const FILES: &[&str] = &["libnccl.so.2", "libnccl.so"];
/// The oldest version that will do, as `ncclGetVersion` counts: 2.28.
const LEAST: c_int = 22800;

/// `ncclResult_t`.
pub type Code = c_int;
/// `ncclSuccess`.
pub const SUCCESS: Code = 0;
/// `ncclInvalidUsage`.
pub const INVALID_USAGE: Code = 5;
/// `ncclInProgress`: a call on a communicator that does not block goes on in the background.
pub const IN_PROGRESS: Code = 7;

/// `ncclComm_t`.
pub type Comm = *mut c_void;
/// `cudaStream_t`, which is `CUstream`.
pub type Stream = *mut c_void;

/// `ncclDataType_t`.
pub mod dtype {
    #![allow(missing_docs, reason = "NCCL's names")]
    use core::ffi::c_int;

    pub const UINT8: c_int = 1;
    pub const INT32: c_int = 2;
    pub const INT64: c_int = 4;
    pub const FLOAT16: c_int = 6;
    pub const FLOAT32: c_int = 7;
    pub const FLOAT64: c_int = 8;
    pub const BFLOAT16: c_int = 9;
    pub const FLOAT8_E4M3: c_int = 10;
    pub const FLOAT8_E5M2: c_int = 11;
}

/// `ncclRedOp_t`.
pub mod operator {
    #![allow(missing_docs, reason = "NCCL's names")]
    use core::ffi::c_int;

    pub const SUM: c_int = 0;
    pub const MAX: c_int = 2;
    pub const MIN: c_int = 3;
    pub const AVG: c_int = 4;
}

/// `ncclUniqueId`: by it ranks find each other.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct UniqueId(pub [u8; 128]);

/// `ncclConfig_t` of version 2.28. Later versions only append, and go by `size` and `version`.
#[repr(C)]
pub struct Config {
    size: usize,
    magic: u32,
    version: c_int,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
    traffic_class: c_int,
    comm_name: *const c_char,
    collnet_enable: c_int,
    cta_policy: c_int,
    shrink_share: c_int,
    nvls_ctas: c_int,
    channels_per_net_peer: c_int,
    nvlink_centric_sched: c_int,
}

/// `NCCL_CONFIG_UNDEF_INT`: the library chooses.
const UNDEFINED: c_int = c_int::MIN;

impl Config {
    /// A communicator whose calls never block: they say [`IN_PROGRESS`], and can be aborted.
    pub const NON_BLOCKING: Self = Config {
        size: size_of::<Self>(),
        magic: 0xcafe_beef,
        version: LEAST,
        blocking: 0,
        cga_cluster_size: UNDEFINED,
        min_ctas: UNDEFINED,
        max_ctas: UNDEFINED,
        net_name: core::ptr::null(),
        split_share: UNDEFINED,
        traffic_class: UNDEFINED,
        comm_name: core::ptr::null(),
        collnet_enable: UNDEFINED,
        cta_policy: UNDEFINED,
        shrink_share: UNDEFINED,
        nvls_ctas: UNDEFINED,
        channels_per_net_peer: UNDEFINED,
        nvlink_centric_sched: UNDEFINED,
    };
}

/// The reason why there is no NCCL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NcclError {
    /// An environment variable has a value that is not allowed.
    #[error("{0}")]
    Variable(InitError),
    /// No file could be loaded.
    #[error(
        "NCCL cannot be loaded (searched for {searched} as the dynamic loader does; it says: {reason})\nhint: install NVIDIA's package \
         libnccl2, or `pip install nvidia-nccl-cu13`, and put the folder of libnccl.so.2 into LD_LIBRARY_PATH, or the file's path into \
         {PATH_VARIABLE}"
    )]
    NotFound {
        /// The files that were tried, in order.
        searched: String,
        /// The message of the dynamic loader, of the first.
        reason: String,
    },
    /// The file lacks a function.
    #[error(
        "{file} has no function {function}\nhint: it is not NCCL, or older than 2.28: install NVIDIA's package libnccl2 of that version or \
         a newer one, or name another file in {PATH_VARIABLE}"
    )]
    NoFunction {
        /// The file.
        file: String,
        /// The function.
        function: &'static str,
    },
    /// The library is too old.
    #[error(
        "{file} is NCCL {}.{}.{}; 2.28 or newer is needed\nhint: install NVIDIA's package libnccl2 of that version, or \
         `pip install nvidia-nccl-cu13`, or name another file in {PATH_VARIABLE}", version / 10_000, version / 100 % 100, version % 100
    )]
    TooOld {
        /// The file.
        file: String,
        /// Its version, as it counts.
        version: i32,
    },
    /// NCCL would use NVLink multicast.
    #[error(
        "{MULTICAST_VARIABLE} is {}, and Ironwarp uses no NVLink multicast\nhint: set {MULTICAST_VARIABLE}=0; `ironwarp launch` does",
        value.as_deref().unwrap_or("not set")
    )]
    Multicast {
        /// Its value.
        value: Option<String>,
    },
}

/// Declares the functions in use: a field for each, with the type in `nccl.h`.
macro_rules! functions {
    ($($(#[$doc:meta])* $field:ident = $name:literal ($($type:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions in use.
        pub struct Library {
            $($(#[$doc])* pub $field: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
            /// Keeps the functions where they are.
            _library: libloading::Library,
        }

        impl Library {
            fn find(library: libloading::Library, file: &str) -> Result<Self, NcclError> {
                Ok(Library {
                    $($field: {
                        // SAFETY: the type is that of NCCL's header for the function of this name; the
                        // library stays open as long as `Library` lives, which is for ever.
                        let found = unsafe { library.get(concat!($name, "\0").as_bytes()) };
                        *found.map_err(|_| NcclError::NoFunction { file: file.to_owned(), function: $name })?
                    },)*
                    _library: library,
                })
            }
        }
    };
}

functions! {
    /// A new id.
    get_unique_id = "ncclGetUniqueId" (*mut UniqueId) -> Code;
    /// A code in words.
    get_error_string = "ncclGetErrorString" (Code) -> *const c_char;
    /// The last error in words.
    get_last_error = "ncclGetLastError" (Comm) -> *const c_char;
    /// Joins a communicator: its place, ranks, id, rank, config.
    comm_init_rank_config = "ncclCommInitRankConfig" (*mut Comm, c_int, UniqueId, c_int, *mut Config) -> Code;
    /// Frees a communicator.
    comm_destroy = "ncclCommDestroy" (Comm) -> Code;
    /// Stops a communicator's work, and frees it.
    comm_abort = "ncclCommAbort" (Comm) -> Code;
    /// The state of a communicator.
    comm_get_async_error = "ncclCommGetAsyncError" (Comm, *mut Code) -> Code;
    /// All-reduce.
    all_reduce = "ncclAllReduce" (*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream) -> Code;
    /// Reduce-scatter: the count is that of the output.
    reduce_scatter = "ncclReduceScatter" (*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream) -> Code;
    /// All-gather: the count is that of the input.
    all_gather = "ncclAllGather" (*const c_void, *mut c_void, usize, c_int, Comm, Stream) -> Code;
    /// Broadcast from a root.
    broadcast = "ncclBroadcast" (*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream) -> Code;
    /// All-to-all: the count is that of a part.
    all_to_all = "ncclAlltoAll" (*const c_void, *mut c_void, usize, c_int, Comm, Stream) -> Code;
    /// Sends to a rank.
    send = "ncclSend" (*const c_void, usize, c_int, c_int, Comm, Stream) -> Code;
    /// Receives from a rank.
    recv = "ncclRecv" (*mut c_void, usize, c_int, c_int, Comm, Stream) -> Code;
}

impl Library {
    /// A code in the library's words.
    pub fn words(&self, code: Code) -> String {
        // SAFETY: the function takes any code, and returns a text that lives for ever.
        unsafe { text((self.get_error_string)(code)) }
    }

    /// The last error in the library's words; empty if it has none.
    pub fn last_error(&self) -> String {
        // SAFETY: without a communicator the function returns the text of the last error.
        unsafe { text((self.get_last_error)(core::ptr::null_mut())) }
    }
}

/// # Safety
/// `words` is null or a text that ends with 0.
unsafe fn text(words: *const c_char) -> String {
    if words.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
}

static LIBRARY: OnceLock<Result<Library, NcclError>> = OnceLock::new();

/// NCCL. The first call loads it, or finds that it is not there; the result never changes within a process.
///
/// # Errors
/// [`NcclError`] says what was searched, and what to install or to set.
pub fn library() -> Result<&'static Library, NcclError> {
    LIBRARY.get_or_init(open).as_ref().map_err(Clone::clone)
}

fn open() -> Result<Library, NcclError> {
    let multicast = crate::env::text(MULTICAST_VARIABLE).map_err(NcclError::Variable)?;
    if multicast.as_deref().map(str::trim) != Some("0") {
        return Err(NcclError::Multicast { value: multicast });
    }
    let own = crate::env::text(PATH_VARIABLE).map_err(NcclError::Variable)?;
    let files: Vec<&str> = own.as_deref().into_iter().chain(FILES.iter().copied()).collect();
    let mut reason = String::new();
    for file in &files {
        // SAFETY: the initialisers of NCCL have no preconditions.
        match unsafe { libloading::Library::new(*file) } {
            Ok(library) => return checked(library, file),
            Err(error) if reason.is_empty() => reason = error.to_string(),
            Err(_) => {}
        }
    }
    Err(NcclError::NotFound { searched: files.join(", "), reason })
}

/// The functions of a library that is new enough. Its version comes first: an old one lacks functions.
fn checked(library: libloading::Library, file: &str) -> Result<Library, NcclError> {
    let mut version = 0;
    // SAFETY: the type is that of NCCL's header for the function of this name.
    let get = unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> Code>(b"ncclGetVersion\0") };
    let get = get.map_err(|_| NcclError::NoFunction { file: file.to_owned(), function: "ncclGetVersion" })?;
    // SAFETY: a place to write to.
    if unsafe { get(&mut version) } != SUCCESS || version < LEAST {
        return Err(NcclError::TooOld { file: file.to_owned(), version });
    }
    Library::find(library, file)
}
