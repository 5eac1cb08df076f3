//! The errors of this package, with the data to fix their causes.

mod families;
mod launches;
mod memory;
mod overrun;
mod parallel;
mod quoted;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use archive::ArchiveError;

use crate::arch::Arch;

pub(crate) use families::OWN_FAMILIES;
pub use launches::{LaunchSite, Suspects};
pub use memory::OutOfMemory;
pub use overrun::Overrun;
pub use parallel::ParallelError;
pub(crate) use quoted::{first_of, quoted, shown};

/// The result of this package's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error: the function called, what it got, what it wanted, and a hint on how to fix it.
///
/// `Debug` prints the same sentence as `Display`, since `fn main() -> ironwarp::Result<()>` and `unwrap`
/// print by `Debug`.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No driver could be started.
    #[error(
        "no GPU driver: {error}\nhint: {}", hint_for(.0), error = .0
    )]
    Init(#[from] driver::InitError),

    /// A driver call failed; the next valid call works.
    #[error("{0}")]
    Driver(Box<DriverError>),

    /// The device's context is dead: every later call returns this same first error.
    #[error(
        "the device's context is unusable since {}: {first}\nhint: mend the kernel named above; the process (or every \
         handle to this device) has to go before the device can be used again; tests of a process share it, and \
         `cargo nextest run` gives each test a process", first.suspects.cause()
    )]
    Sticky {
        /// The error that killed the context.
        first: Arc<DriverError>,
    },

    /// Device memory ran out, even after waiting for pending frees and giving back the memory kept for later.
    #[error("{0}")]
    OutOfMemory(Box<OutOfMemory>),

    /// The host has no memory for what a buffer holds.
    #[error("no {bytes} bytes of memory on the host\nhint: copy the buffer part by part (`slice`)")]
    HostMemory {
        /// The bytes of the copy.
        bytes: usize,
    },

    /// Page-locked host memory ran out, even after giving back the memory kept for later.
    #[error(
        "no {requested} bytes of page-locked host memory\nhint: drop pinned buffers that are no longer needed, use smaller ones, or see \
         `ulimit -l`"
    )]
    PinnedMemory {
        /// Bytes asked for.
        requested: usize,
    },

    /// A write beside a buffer, found when it was freed.
    #[error(
        "{0}\nhint: run a development build with IRONWARP_DRIVER=soft: its checker names the line that wrote"
    )]
    Overrun(Box<Overrun>),

    /// There is no device of that number.
    #[error(
        "no device {ordinal}: {count} found\nhint: ordinals run from 0; see CUDA_VISIBLE_DEVICES and IRONWARP_SOFT_DEVICES"
    )]
    NoSuchDevice {
        /// The number asked for.
        ordinal: u32,
        /// The number of devices.
        count: u32,
    },

    /// Two lengths that must be equal are not.
    #[error(
        "{operation}: {what} has {got} elements where {expected} are needed\nhint: take a sub-view with `slice`, or resize the other side"
    )]
    Length {
        /// The function called.
        operation: &'static str,
        /// The argument that does not fit.
        what: &'static str,
        /// Elements needed.
        expected: usize,
        /// Elements given.
        got: usize,
    },

    /// A range that does not lie in the buffer.
    #[error(
        "range {start}..{end} does not lie in a buffer of {len} elements\nhint: 0 <= start <= end <= len"
    )]
    Range {
        /// First element.
        start: usize,
        /// One past the last element.
        end: usize,
        /// Elements in the buffer.
        len: usize,
    },

    /// A size in bytes that does not fit in an address.
    #[error(
        "{len} elements of {element_bytes} bytes overflow the address space\nhint: check the length's arithmetic"
    )]
    SizeOverflow {
        /// Elements.
        len: usize,
        /// Bytes each.
        element_bytes: usize,
    },

    /// A buffer, stream or event of one device used with another.
    #[error(
        "{what} lives on device {got}, the stream on device {expected}\nhint: make it with a stream of device {expected}, or copy it there (`Tensor::to_device`, `Communicator::send`, or `to_vec` and `from_slice`)"
    )]
    DeviceMismatch {
        /// The argument at fault.
        what: &'static str,
        /// Device of the stream.
        expected: u32,
        /// Device of the argument.
        got: u32,
    },

    /// No PTX of a kernel family runs on the device.
    #[error(
        "no PTX of kernel family `{family}` for a device of {arch}: searched {}; found {}\nhint: {}",
        list(.searched), list(.found), families::hint(.family)
    )]
    KernelNotBuilt {
        /// The family.
        family: String,
        /// The device's architecture.
        arch: Arch,
        /// Places searched.
        searched: Vec<String>,
        /// Architectures found for that family; the device runs none of them.
        found: Vec<String>,
    },

    /// A module has no kernel of that name.
    #[error(
        "module `{}` has no kernel `{}` ({source}){}", quoted(.module), quoted(.kernel), hint_of_kernel(.source)
    )]
    NoSuchKernel {
        /// The module.
        module: String,
        /// The kernel.
        kernel: String,
        /// The driver's error.
        source: Box<DriverError>,
    },

    /// The driver refused a module.
    #[error(
        "the driver refused module `{}`: {source}\n{log}\nhint: build for an architecture that this device runs (`ironwarp build --arch ..`), or update the driver",
        quoted(.module)
    )]
    InvalidModule {
        /// The module.
        module: String,
        /// The log of the driver's compiler.
        log: String,
        /// The driver's error.
        source: Box<DriverError>,
    },

    /// The kernels that the program embeds cannot be read.
    #[error(
        "the kernels in this program: {source}\nhint: the program or the package `ironwarp` is damaged: build it anew, from a fresh download"
    )]
    Archive {
        /// The reason.
        source: Box<ArchiveError>,
    },

    /// PTX text that cannot be handed to the driver.
    #[error(
        "PTX text of module `{module}` has a NUL byte at offset {position}\nhint: is it a binary (cubin, fatbin)? only PTX text is accepted"
    )]
    PtxText {
        /// The module.
        module: String,
        /// The offset of the NUL byte.
        position: usize,
    },

    /// A file that could not be read.
    #[error("cannot read {}: {source}\nhint: check the path and its permissions", shown(.path))]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },

    /// A file that could not be written.
    #[error("cannot write {}: {source}\nhint: check that its folder is there and may be written to", shown(.path))]
    FileWrite {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },

    /// A name that cannot be a kernel's or a family's.
    #[error("`{}` cannot be the name of a {what}\nhint: names are Rust identifiers", quoted(.name).escape_debug())]
    BadName {
        /// `kernel` or `family`.
        what: &'static str,
        /// The name given.
        name: String,
    },

    /// A kernel family of the program with the name of one of ironwarp's own.
    #[error(
        "the kernel family `{family}` is ironwarp's own and cannot be replaced\nhint: give the package with your kernels another \
         name, or find its kernels by name in a `Module::from_source`"
    )]
    OwnFamily {
        /// The name given.
        family: String,
    },

    /// A launch beyond a limit of the device or the kernel.
    #[error("cannot launch `{kernel}`: {limit} is {got}, the limit is {max}\nhint: {}", limit.hint())]
    LaunchLimit {
        /// The kernel.
        kernel: String,
        /// Which limit.
        limit: Limit,
        /// The value that the launch asked for.
        got: u64,
        /// The limit.
        max: u64,
    },

    /// An argument with a value that the function cannot take.
    #[error("{operation}: {argument} {} {}, wanted {wanted}\nhint: {hint}", verb(.argument), quoted(.got))]
    InvalidArgument {
        /// The function called.
        operation: &'static str,
        /// The argument at fault.
        argument: &'static str,
        /// The value given.
        got: String,
        /// The values allowed.
        wanted: String,
        /// How to fix it.
        hint: &'static str,
    },

    /// A wrong call on tensors: a [`TensorError`](crate::TensorError), which [`Error::tensor_error`] returns.
    #[error(transparent)]
    Tensor(Box<dyn std::error::Error + Send + Sync>),

    /// A group of devices whose ranks do not act together.
    #[error("{0}")]
    Parallel(Box<ParallelError>),

    /// A checkpoint that cannot be written or read.
    #[error("{0}")]
    Checkpoint(Box<ironwarp_checkpoint::Error>),

    /// An operation that cannot be done, or recorded, while a stream is being captured into a graph.
    #[error("{operation} cannot be captured into a graph: {reason}\nhint: {hint}")]
    NotCapturable {
        /// The operation asked for.
        operation: &'static str,
        /// The reason.
        reason: &'static str,
        /// How to fix it.
        hint: &'static str,
    },

    /// Elapsed time asked of an event that was never recorded.
    #[error(
        "the {which} event was never recorded\nhint: call `Stream::record` on it before `Event::elapsed_ms`"
    )]
    EventNotRecorded {
        /// `start` or `end`.
        which: &'static str,
    },

    /// An environment variable with an unknown value.
    #[error("environment variable {name} is `{}`\nhint: allowed values: {allowed}", quoted(.value))]
    Environment {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// The values allowed.
        allowed: &'static str,
    },
}

/// `is`, or `are` for an argument that is many: "the queries", but not "the bias" or "the class".
fn verb(argument: &str) -> &'static str {
    let is_one = ["as", "is", "us", "ss"].iter().any(|end| argument.ends_with(end));
    if argument.ends_with('s') && !is_one { "are" } else { "is" }
}

/// None below a report of the software driver, which has one.
fn hint_of_kernel(source: &DriverError) -> &'static str {
    match source.report {
        Some(_) => "",
        None => {
            "\nhint: the name is the Rust function's, marked #[kernel]; rebuild the PTX if the kernel is new"
        }
    }
}

fn hint_for(error: &driver::InitError) -> &'static str {
    match error {
        driver::InitError::BadVariable { .. } => "give the variable one of these values, or unset it",
        _ => {
            "IRONWARP_DRIVER=soft runs on the processor, with no GPU; `ironwarp doctor` looks at what there is"
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    pub(crate) fn archive(source: ArchiveError) -> Self {
        Error::Archive { source: Box::new(source) }
    }

    /// Whether the next valid call works. False once a device's context is dead, or when there is no driver.
    pub fn is_recoverable(&self) -> bool {
        match self {
            Error::Init(_) | Error::Sticky { .. } => false,
            Error::Driver(e) => !e.is_sticky(),
            Error::NoSuchKernel { source, .. } | Error::InvalidModule { source, .. } => !source.is_sticky(),
            _ => true,
        }
    }

    /// Whether the error says that an operation cannot be captured into a graph.
    pub(crate) fn is_about_capture(&self) -> bool {
        match self {
            Error::NotCapturable { .. } => true,
            Error::Driver(error) => CAPTURE_ERRORS.contains(&error.code),
            _ => false,
        }
    }

    /// The driver's error behind this one.
    pub fn driver_error(&self) -> Option<&DriverError> {
        match self {
            Error::Driver(e) => Some(e),
            Error::Sticky { first } => Some(first),
            Error::NoSuchKernel { source, .. } | Error::InvalidModule { source, .. } => Some(source),
            _ => None,
        }
    }
}

fn list(items: &[String]) -> String {
    if items.is_empty() { "nothing".to_owned() } else { items.join(", ") }
}

/// A limit that a launch is checked against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// Threads of a block, by the device.
    ThreadsPerBlock,
    /// Threads of a block, by the kernel's launch bounds or registers.
    KernelThreads,
    /// Block size along an axis (0 = x).
    BlockAxis(u8),
    /// Grid size along an axis (0 = x).
    GridAxis(u8),
    /// Static and dynamic shared memory of a block, bytes.
    SharedBytes,
    /// Blocks of a cooperative launch, which are all resident at once.
    CooperativeBlocks,
    /// Blocks of a cluster.
    ClusterBlocks,
    /// Threads of a block, at least.
    NoThreads,
}

impl Limit {
    fn hint(self) -> &'static str {
        match self {
            Limit::ThreadsPerBlock => "use smaller blocks",
            Limit::KernelThreads => {
                "use blocks no larger than the kernel's #[kernel(launch_bounds(..))] and its registers allow"
            }
            Limit::BlockAxis(_) => "spread the block over the other axes",
            Limit::GridAxis(0) => {
                "let each thread take several elements, in a loop; `LaunchConfig::linear` has at most 2^32 threads"
            }
            Limit::GridAxis(_) => "spread the grid over axis x, or let each thread do more",
            Limit::SharedBytes => "smaller tiles or fewer stages",
            Limit::CooperativeBlocks => {
                "a cooperative grid has to fit on the device at once: fewer blocks, each doing more"
            }
            Limit::ClusterBlocks => {
                "every axis of a cluster is at least 1, its blocks are few, and devices before compute capability 9.0 have none"
            }
            Limit::NoThreads => "every axis of a block is at least 1",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const AXES: [&str; 3] = ["x", "y", "z"];
        match self {
            Limit::ThreadsPerBlock => f.write_str("threads per block (device)"),
            Limit::KernelThreads => f.write_str("threads per block (kernel)"),
            Limit::BlockAxis(axis) => write!(f, "block size along {}", AXES[usize::from(*axis) % 3]),
            Limit::GridAxis(axis) => write!(f, "grid size along {}", AXES[usize::from(*axis) % 3]),
            Limit::SharedBytes => f.write_str("shared memory per block in bytes (static + dynamic)"),
            Limit::CooperativeBlocks => f.write_str("blocks of a cooperative launch"),
            Limit::ClusterBlocks => f.write_str("blocks of a cluster"),
            Limit::NoThreads => f.write_str("threads along an axis of the block"),
        }
    }
}

/// A driver call that failed.
#[derive(Debug, Clone)]
pub struct DriverError {
    /// The driver function.
    pub function: &'static str,
    /// The `CUresult` code.
    pub code: i32,
    /// CUDA's name of the code.
    pub name: String,
    /// CUDA's sentence for the code.
    pub text: String,
    /// The checker's report, when the software driver ran the kernel that failed; or that it has several of
    /// that name.
    pub report: Option<String>,
    /// The launches that may have caused it, when a kernel died. Exact with `IRONWARP_LAUNCH_BLOCKING=1`.
    pub suspects: Suspects,
}

/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` to `CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD`.
const CAPTURE_ERRORS: std::ops::RangeInclusive<i32> = 900..=908;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: i32 = 2;

impl DriverError {
    /// Whether the context is dead after this: illegal addresses, failed launches, hardware errors.
    pub fn is_sticky(&self) -> bool {
        // DEINITIALIZED, ECC, NVLINK; ILLEGAL_ADDRESS, LAUNCH_TIMEOUT, CONTEXT_IS_DESTROYED, ASSERT;
        // HARDWARE_STACK .. LAUNCH_FAILED; EXTERNAL_DEVICE.
        matches!(self.code, 4 | 214 | 220 | 700 | 702 | 709 | 710 | 714..=719 | 911)
    }

    /// Whether the driver cannot use machine code: it is for another device or a later driver.
    pub(crate) fn is_refused_image(&self) -> bool {
        const INVALID_IMAGE: i32 = 200;
        const NO_BINARY_FOR_GPU: i32 = 209;
        matches!(self.code, INVALID_IMAGE | NO_BINARY_FOR_GPU)
    }

    /// Whether memory ran out.
    pub fn is_out_of_memory(&self) -> bool {
        self.code == OUT_OF_MEMORY
    }

    fn hint(&self) -> &'static str {
        match self.code {
            1 => {
                "an argument is out of range for the driver; this may be a defect of ironwarp: report it with this text"
            }
            OUT_OF_MEMORY => "drop buffers that are no longer needed, or cut the problem into smaller pieces",
            3 | 4 => {
                "the driver is not running (yet, or any more): open a `Device` first, keep no handle past the end of main"
            }
            100 | 101 => {
                "see CUDA_VISIBLE_DEVICES, `nvidia-smi`, and IRONWARP_DRIVER=soft for a machine with no GPU"
            }
            200 | 209 | 218 | 222 => {
                "rebuild the kernels for this device (`ironwarp build`), or update the NVIDIA driver"
            }
            214 | 220 => "a hardware error: see `nvidia-smi -q` and the kernel log; reset the GPU",
            500 => "the kernel or symbol is not in that module: rebuild the PTX",
            700 | 716 | 717 => {
                "a kernel touched memory that it does not own: run a development build with IRONWARP_DRIVER=soft, whose checker names the line"
            }
            710 | 714 | 715 | 718 | 719 => {
                "a kernel trapped or died: run a development build with IRONWARP_DRIVER=soft, whose checker names the line"
            }
            701 => {
                "the launch wants more registers or shared memory than a multiprocessor has: use smaller blocks, or less shared memory"
            }
            702 => {
                "the kernel ran longer than the display watchdog allows: use a GPU with no display, or split the work"
            }
            720 => "a cooperative grid has to fit on the device at once: fewer blocks",
            802 | 803 => {
                "the driver installation is not complete: see `nvidia-smi` and, on NVSwitch machines, the fabric manager"
            }
            901 => "an earlier call has spoilt the capture: its own error says which",
            902 => {
                "a stream cannot join two captures: capture one graph after the other, or both from one stream"
            }
            904 => {
                "a stream was forked inside the capture and not joined: fork with `Stream::scope`, which joins"
            }
            905 => {
                "the captured stream was made to wait for work outside the capture: order them before the capture begins"
            }
            907 => {
                "an event recorded inside a capture marks a place in the graph: it cannot be waited for or asked outside"
            }
            908 => "a capture ends on the thread that began it",
            900..=906 => "not allowed while a stream is being captured: do it before the capture or after it",
            910 => "the graph has changed its shape: capture it anew",
            _ => "look the code up in the CUDA driver API's reference",
        }
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed with {} ({}): {}", self.function, self.name, self.code, self.text)?;
        if self.is_sticky() && self.suspects.is_any() {
            write!(f, "\n{}", self.suspects)?;
        }
        match &self.report {
            // It has a hint of its own, and the line.
            Some(report) => write!(f, "\n{report}"),
            None => write!(f, "\nhint: {}", self.hint()),
        }
    }
}

impl std::error::Error for DriverError {}

impl From<Box<DriverError>> for Error {
    fn from(error: Box<DriverError>) -> Self {
        Error::Driver(error)
    }
}
