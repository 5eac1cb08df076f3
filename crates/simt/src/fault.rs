//! Faults: the error of a launch, its place, and the other threads involved.

use std::fmt;

use crate::Site;

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// The launch does not fit the kernel or the device.
    InvalidLaunch,
    /// A Rust panic in the kernel.
    Panic,
    /// [`crate::trap`] was called.
    Trap,
    /// Access outside a global allocation or shared variable.
    OutOfBounds,
    /// Address that is no multiple of the access's size.
    Misaligned,
    /// Access through a null pointer.
    NullPointer,
    /// Access to memory that belongs to no allocation.
    WildPointer,
    /// Access to a local variable of another thread.
    ForeignLocal,
    /// An instruction for one memory (its PTX names `.global` or `.shared`) with an address in another.
    WrongMemory,
    /// Access to memory that was freed.
    UseAfterFree,
    /// Read of shared memory that was never written.
    UninitialisedShared,
    /// Read of global memory that neither the program nor a kernel has written.
    UninitialisedGlobal,
    /// Two threads of a block access the same shared memory, and nothing orders the two accesses.
    SharedRace,
    /// Two threads of a block access the same global memory, and nothing orders the two accesses.
    GlobalRace,
    /// Threads of two blocks access the same global memory, and nothing orders the two accesses.
    InterBlockRace,
    /// Two launches that run at the same time access the same bytes, at least one writes, and nothing orders
    /// them.
    LaunchRace,
    /// A load through the read-only path, of memory that the launch has written: it may see the old value.
    ReadOnlyPath,
    /// A product's accumulators were accessed before the wait for its group.
    WgmmaPending,
    /// Memory of an asynchronous operation was accessed, and nothing orders the two: the access came before a
    /// wait for the operation, or from another operation that did not wait for its turn.
    AsyncCopyPending,
    /// An asynchronous copy of a size or alignment that the hardware does not have.
    AsyncCopyInvalid,
    /// A bulk or tensor copy that breaks a rule of the hardware.
    BulkCopyInvalid,
    /// The block ends while a copy that it has begun, or that goes to its shared memory, may be under way.
    CopyUnfinished,
    /// The async proxy accesses data that threads have written, without a proxy fence between.
    ProxyFence,
    /// An mbarrier is not initialised or is used against its rules, or its bytes are accessed.
    MbarrierInvalid,
    /// More arrivals or bytes than an mbarrier counts.
    MbarrierOverflow,
    /// The block ends while an mbarrier expects bytes that never arrived, or has got bytes that no thread
    /// expected.
    MbarrierUnbalanced,
    /// A block of the cluster that does not exist or does not run, or a cluster barrier used against its
    /// rules.
    ClusterInvalid,
    /// Some threads wait at a barrier that others never reach.
    BarrierDivergence,
    /// Threads disagree about a barrier's thread count or operation.
    BarrierMismatch,
    /// A barrier number or thread count that does not exist.
    BarrierInvalid,
    /// All remaining threads wait for each other.
    Deadlock,
    /// All remaining threads spin, for longer than [`crate::Options::spin_limit`].
    Livelock,
    /// A warp mask that leaves out its caller or names lanes that have exited.
    WarpMask,
    /// Lanes of a warp wait for each other in different operations or with different masks.
    WarpDivergence,
    /// A matrix product by a warpgroup that the hardware does not have, or an operand that it cannot read.
    WgmmaInvalid,
    /// A matrix product by a warpgroup without `wgmma.fence` before it.
    WgmmaFence,
    /// A thread ends while matrix products of its warpgroup may be in flight.
    WgmmaUnfinished,
    /// Threads of a warpgroup disagree about a matrix product, or some never reach it.
    WarpgroupDivergence,
    /// Grid synchronisation without a cooperative launch.
    GridSync,
    /// In a launch that overlaps the one before, a thread accesses global memory without having waited for
    /// that launch.
    DependencyPending,
    /// More shared memory than a block can have, or a shared variable declared in two ways.
    SharedAllocation,
}

impl FaultKind {
    /// Whether it is a race: two accesses that nothing orders.
    pub fn is_race(self) -> bool {
        matches!(
            self,
            Self::SharedRace
                | Self::GlobalRace
                | Self::InterBlockRace
                | Self::LaunchRace
                | Self::AsyncCopyPending
        )
    }

    /// Short name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidLaunch => "invalid launch",
            Self::Panic => "panic in a kernel",
            Self::Trap => "trap",
            Self::OutOfBounds => "out-of-bounds access",
            Self::Misaligned => "misaligned access",
            Self::NullPointer => "null pointer",
            Self::WildPointer => "wild pointer",
            Self::ForeignLocal => "access to a local variable of another thread",
            Self::WrongMemory => "instruction for another memory",
            Self::UseAfterFree => "use after free",
            Self::UninitialisedShared => "read of uninitialised shared memory",
            Self::UninitialisedGlobal => "read of uninitialised global memory",
            Self::SharedRace => "data race on shared memory",
            Self::GlobalRace => "data race on global memory within a block",
            Self::InterBlockRace => "data race between blocks",
            Self::LaunchRace => "data race between launches",
            Self::ReadOnlyPath => "read-only load of data that the launch writes",
            Self::WgmmaPending => "access to accumulators of a product in flight",
            Self::AsyncCopyPending => "race with an asynchronous copy",
            Self::AsyncCopyInvalid => "invalid asynchronous copy",
            Self::BulkCopyInvalid => "invalid bulk copy",
            Self::CopyUnfinished => "asynchronous copy unfinished at exit",
            Self::ProxyFence => "missing proxy fence",
            Self::MbarrierInvalid => "invalid use of an mbarrier",
            Self::MbarrierOverflow => "too much for an mbarrier",
            Self::MbarrierUnbalanced => "unbalanced mbarrier transactions",
            Self::ClusterInvalid => "invalid use of a cluster",
            Self::BarrierDivergence => "barrier divergence",
            Self::BarrierMismatch => "barrier mismatch",
            Self::BarrierInvalid => "invalid barrier",
            Self::Deadlock => "deadlock",
            Self::Livelock => "livelock",
            Self::WarpMask => "wrong warp mask",
            Self::WarpDivergence => "warp divergence",
            Self::WgmmaInvalid => "invalid wgmma",
            Self::WgmmaFence => "missing wgmma.fence",
            Self::WgmmaUnfinished => "wgmma unfinished at exit",
            Self::WarpgroupDivergence => "warpgroup divergence",
            Self::GridSync => "grid sync without a cooperative launch",
            Self::DependencyPending => "access before the launch ahead has ended",
            Self::SharedAllocation => "shared memory allocation",
        }
    }

    /// The usual fix. [`Fault::hint`] knows more.
    pub fn hint(self) -> &'static str {
        match self {
            Self::InvalidLaunch => "change the launch configuration to fit the limit named above",
            Self::Panic => {
                "check indices against lengths before the access; on the GPU this would end in a trap"
            }
            Self::Trap => "the kernel gave up by itself; see the message",
            Self::OutOfBounds => "compare the index with the length before the access (`if i < n`)",
            Self::Misaligned => "an access of N bytes needs an address that is a multiple of N",
            Self::NullPointer => "check that the host passed a device pointer",
            Self::WildPointer => {
                "only device allocations can be accessed; in a test, register host memory with `memory::track`"
            }
            Self::ForeignLocal => {
                "local memory is private to a thread: pass values by shared memory, global memory or shuffles"
            }
            Self::WrongMemory => {
                "take an instruction for the memory that the address lies in, or a plain access where that is global memory, the block's shared memory or a local variable"
            }
            Self::UseAfterFree => "keep the allocation alive until the launch has finished",
            Self::UninitialisedShared => "write every element that is read, and put a barrier between",
            Self::UninitialisedGlobal => {
                "fill the buffer before the launch (`zeroed`, `from_slice`, a copy), or write before you read"
            }
            Self::SharedRace => {
                "put a barrier (`sync_threads`, or `sync_warp` within a warp) between the two accesses"
            }
            Self::GlobalRace => {
                "put a barrier between the two accesses, or pass the data on by a release and an acquire"
            }
            Self::InterBlockRace => {
                "blocks run in any order: pass the data on by a release and an acquire (or `device_fence` on both sides), give each block its own elements, or launch cooperatively and sync the grid"
            }
            Self::LaunchRace => {
                "launches that run at the same time pass data on by a release and an acquire of system scope; else order them by an event"
            }
            Self::ReadOnlyPath => "load it with `vector::load` or a plain access",
            Self::WgmmaPending => {
                "call `wgmma::wait_group` and `wgmma::fence_registers` before the accumulators are used"
            }
            Self::AsyncCopyPending => {
                "wait for the copy (its group, or the mbarrier that it completes on) before its memory is used, and for all users before the next copy"
            }
            Self::BulkCopyInvalid => "see the rule above; the PTX ISA has it under cp.async.bulk",
            Self::CopyUnfinished => {
                "wait for bulk groups and on mbarriers before the last thread ends; in a cluster, let its barrier come last"
            }
            Self::ProxyFence => {
                "let the threads that write call `fence::proxy_async_shared` after the writes, before the barrier"
            }
            Self::MbarrierInvalid => {
                "let one thread initialise it, then `mbarrier::fence_init` and a barrier before others use it; never touch its bytes"
            }
            Self::MbarrierOverflow => "initialise the mbarrier with the number of arrivals that a phase has",
            Self::MbarrierUnbalanced => {
                "expect exactly the bytes of the copies that complete on the mbarrier"
            }
            Self::ClusterInvalid => {
                "launch with a cluster; put a cluster barrier before the first and after the last access to another block"
            }
            Self::AsyncCopyInvalid => {
                "cp.async moves 4, 8 or 16 bytes between addresses that are multiples of that size"
            }
            Self::BarrierDivergence => {
                "let every thread of the block reach the barrier: no early return or branch around it"
            }
            Self::BarrierMismatch => {
                "all threads that meet at a barrier must name the same thread count and operation"
            }
            Self::BarrierInvalid => {
                "barriers are 0 to 15; counts are multiples of 32, up to the block's size"
            }
            Self::Deadlock => "see who waits for what above, and who was meant to arrive",
            Self::Livelock => {
                "threads that wait for other blocks need a cooperative launch; a lock within a warp needs divergent code"
            }
            Self::WarpMask => {
                "the mask must name exactly the lanes that make the call, the caller among them"
            }
            Self::WarpDivergence => "all lanes that a mask names must make the same call with the same mask",
            Self::WgmmaInvalid => "see the rule above; the PTX ISA has it under wgmma.mma_async",
            Self::WgmmaFence => {
                "call `wgmma::fence` before the first product and whenever registers of a product were touched"
            }
            Self::WgmmaUnfinished => "commit the products and wait for the group before the kernel ends",
            Self::WarpgroupDivergence => {
                "all 128 threads of a warpgroup must make the same calls, in the same order, with the same descriptors"
            }
            Self::GridSync => "launch cooperatively",
            Self::DependencyPending => {
                "let every thread call `grid::wait_dependencies` before its first access, or launch without `overlapping_previous`"
            }
            Self::SharedAllocation => "make the tiles smaller or the block use fewer of them",
        }
    }
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// A load.
    Read,
    /// A load that is part of a copy of several values (`memcpy`).
    CopyRead,
    /// A load through the read-only path (`ld.global.nc`).
    ReadOnly,
    /// A store.
    Write,
    /// A volatile load.
    VolatileRead,
    /// A volatile store.
    VolatileWrite,
    /// An atomic operation that may write.
    Atomic,
    /// An atomic load.
    AtomicRead,
    /// An atomic operation that may write, with the scope of the system: other devices see it as one.
    SystemAtomic,
    /// An atomic load with the scope of the system.
    SystemAtomicRead,
    /// An atomic operation that may write, with the scope of a block.
    BlockAtomic,
    /// An atomic load with the scope of a block.
    BlockAtomicRead,
    /// The write of an asynchronous copy.
    AsyncWrite,
    /// The read of an asynchronous operation.
    AsyncRead,
    /// An atomic operation of an asynchronous reduction.
    AsyncAtomic,
    /// A wait at a barrier.
    Wait,
}

impl AccessKind {
    pub(crate) fn is_async(self) -> bool {
        matches!(self, Self::AsyncWrite | Self::AsyncRead | Self::AsyncAtomic)
    }

    pub(crate) fn is_read(self) -> bool {
        matches!(
            self,
            Self::Read
                | Self::CopyRead
                | Self::ReadOnly
                | Self::VolatileRead
                | Self::AtomicRead
                | Self::BlockAtomicRead
                | Self::SystemAtomicRead
                | Self::AsyncRead
                | Self::Wait
        )
    }

    /// Whether two accesses of this kind never race with each other: atomic ones, and volatile ones,
    /// which are relaxed atomic accesses to a GPU.
    pub(crate) fn is_strong(self) -> bool {
        matches!(self, Self::Atomic | Self::AtomicRead | Self::AsyncAtomic)
            || self.is_narrow()
            || self.is_system_wide()
    }

    /// Whether it is an atomic operation of a thread.
    pub(crate) fn is_atomic(self) -> bool {
        let is_system = matches!(self, Self::SystemAtomic | Self::SystemAtomicRead);
        is_system || self.is_narrow() || matches!(self, Self::Atomic | Self::AtomicRead)
    }

    /// Whether it is atomic for all devices.
    pub(crate) fn is_system_wide(self) -> bool {
        matches!(self, Self::VolatileRead | Self::VolatileWrite | Self::SystemAtomic | Self::SystemAtomicRead)
    }

    /// Whether it is atomic for the threads of its block alone.
    pub(crate) fn is_narrow(self) -> bool {
        matches!(self, Self::BlockAtomic | Self::BlockAtomicRead)
    }
}

impl fmt::Display for AccessKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read | Self::CopyRead => "read",
            Self::ReadOnly => "read-only load",
            Self::Write => "write",
            Self::VolatileRead => "volatile read",
            Self::VolatileWrite => "volatile write",
            Self::Atomic | Self::SystemAtomic => "atomic access",
            Self::AtomicRead | Self::SystemAtomicRead => "atomic read",
            Self::BlockAtomic => "atomic access of block scope",
            Self::BlockAtomicRead => "atomic read of block scope",
            Self::AsyncWrite => "asynchronous write",
            Self::AsyncRead => "asynchronous read",
            Self::AsyncAtomic => "asynchronous reduction",
            Self::Wait => "wait",
        })
    }
}

/// Where an accessed address lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In, or just outside, a tracked global allocation.
    Global {
        /// Label of the allocation.
        label: String,
        /// Bytes from its start; negative before it.
        offset: i64,
        /// Its length in bytes.
        len: usize,
        /// The name of the kernel's parameter that points into it, if one does.
        parameter: Option<&'static str>,
    },
    /// In the block's shared memory.
    Shared {
        /// Bytes from the start of the block's shared memory.
        offset: i64,
        /// The name, offset and size of the shared variable, if there is one.
        variable: Option<(String, i64, usize)>,
    },
    /// In a local variable of the thread.
    Local {
        /// The address.
        address: usize,
    },
    /// In no known memory.
    Unknown {
        /// The address.
        address: usize,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Global { label, offset, len, parameter } => {
                write!(f, "byte {offset} of global allocation `{label}` ({len} bytes)")?;
                parameter.map_or(Ok(()), |name| write!(f, ", the kernel's `{name}`"))
            }
            Self::Shared { variable: Some((name, offset, len)), .. } => {
                write!(f, "byte {offset} of shared `{name}` ({len} bytes)")
            }
            Self::Shared { offset, variable: None } => {
                write!(f, "shared memory at offset {offset}, which no variable covers")
            }
            Self::Local { address } => write!(f, "address {address:#x}, in a local variable of the thread"),
            Self::Unknown { address } => write!(f, "address {address:#x}, which is in no tracked allocation"),
        }
    }
}

/// The access that a fault is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The kind of access.
    pub kind: AccessKind,
    /// Bytes.
    pub size: usize,
    /// The memory accessed.
    pub place: Place,
}

/// The earlier access that it conflicts with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherAccess {
    /// The kind of access.
    pub kind: AccessKind,
    /// Its source line.
    pub site: Site,
    /// Its block.
    pub block: [u32; 3],
    /// Its thread.
    pub thread: [u32; 3],
    /// The kernel and the device, if it was made by another launch.
    pub launch: Option<(String, u32)>,
}

/// Why a launch ended early. `Display` is a report of a few lines, and so is `Debug`: a test that returns it
/// prints by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Fault {
    /// The kind of fault.
    pub kind: FaultKind,
    /// Kernel that was launched.
    pub kernel: String,
    /// A sentence that describes it, with the relevant values.
    pub message: String,
    /// Source line.
    pub site: Site,
    /// Block that was running.
    pub block: [u32; 3],
    /// Thread that was running.
    pub thread: [u32; 3],
    /// Schedule under which it happened.
    pub seed: u64,
    /// The access, for memory faults.
    pub access: Option<Access>,
    /// The other access, for races.
    pub other: Option<OtherAccess>,
    /// For faults of synchronisation: one line for each group of threads, with what it waits for.
    pub waits: Vec<String>,
    /// A fix of this fault, where that of its kind does not say enough.
    pub remedy: Option<&'static str>,
}

impl std::error::Error for Fault {}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in kernel `{}`", self.kind.name(), self.kernel)?;
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        if self.kind != FaultKind::InvalidLaunch && self.waits.is_empty() {
            let (block, thread) = (Index(self.block), Index(self.thread));
            write!(f, "\n  at {}, block {block}, thread {thread}", self.site)?;
        }
        if let Some(access) = &self.access {
            write!(f, "\n  {} of {} bytes at {}", access.kind, access.size, access.place)?;
        }
        if let Some(other) = &self.other {
            let (block, thread) = (Index(other.block), Index(other.thread));
            write!(f, "\n  conflicts with {} at {}, block {block}, thread {thread}", other.kind, other.site)?;
            if let Some((kernel, device)) = &other.launch {
                write!(f, ", of kernel `{kernel}` on device {device}")?;
            }
        }
        for line in &self.waits {
            write!(f, "\n  {line}")?;
        }
        write!(f, "\n  hint: {}", self.hint())?;
        if self.kind != FaultKind::InvalidLaunch {
            write!(f, "\n  seed {} (replay with IRONWARP_SEED={})", self.seed, self.seed)?;
        }
        Ok(())
    }
}

impl Fault {
    /// The usual fix of this fault.
    pub fn hint(&self) -> &'static str {
        if let Some(remedy) = self.remedy {
            return remedy;
        }
        let sides =
            [self.access.as_ref().map(|access| access.kind), self.other.as_ref().map(|other| other.kind)];
        let has = |wanted: fn(AccessKind) -> bool| sides.iter().flatten().any(|kind| wanted(*kind));
        match self.kind {
            FaultKind::InterBlockRace if has(AccessKind::is_narrow) => {
                "an atomic of block scope is atomic for its block alone: use the `_device` form on both sides"
            }
            FaultKind::SharedRace if has(|kind| kind == AccessKind::VolatileRead) => {
                "volatile orders nothing: put `sync_warp` or `sync_threads` between, or use atomics"
            }
            FaultKind::LaunchRace
                if has(|kind| kind == AccessKind::Atomic || kind == AccessKind::AtomicRead) =>
            {
                "an atomic of device scope is atomic for its device alone: use the `_system` form on both sides"
            }
            kind => kind.hint(),
        }
    }
}

/// `(x, y, z)`, without trailing zero parts.
pub(crate) struct Index(pub [u32; 3]);

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [x, 0, 0] => write!(f, "{x}"),
            [x, y, 0] => write!(f, "({x}, {y})"),
            [x, y, z] => write!(f, "({x}, {y}, {z})"),
        }
    }
}
