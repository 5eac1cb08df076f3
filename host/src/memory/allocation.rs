//! One piece of device memory: where it comes from, which streams use it, and how it is freed.

use std::sync::{Arc, OnceLock, Weak};

use crate::sys::CUdeviceptr;
use arena::{Failure, Site};

use super::allocator::{Allocator, Heap, Kind, Lease, Mode, Source};
use super::guard::{self, Guard};
use super::uses::{Users, Uses};
use crate::device::Device;
use crate::error::{Error, OutOfMemory, Result};
use crate::raw;
use crate::stream::{Capture, Stream};

/// The number of lines of the program that an out-of-memory error names.
const HOLDERS_NAMED: usize = 5;

/// The owner that gets the memory back.
enum Owner {
    /// None: there are no bytes.
    Nobody,
    /// The cache: it is one of its blocks.
    Cache(Block),
    /// The driver: an allocation of its own.
    Driver,
}

struct Block {
    lease: Lease,
    /// The graph's heap that it is from, if it is not from the heap of the allocating stream.
    heap: Option<Heap>,
    /// Bytes that the software driver's checker knows to be in use.
    known: Option<usize>,
    /// Its red zones.
    guard: Option<Guard>,
}

/// A piece of device memory, null without bytes. It is freed when it is dropped.
struct Piece {
    address: CUdeviceptr,
    owner: Owner,
    uses: Uses,
    /// The capture that it was allocated in.
    capture: Weak<Capture>,
}

impl Piece {
    /// The piece, for another place that drops it.
    fn take(&mut self) -> Self {
        Piece {
            address: self.address,
            owner: std::mem::replace(&mut self.owner, Owner::Nobody),
            uses: self.uses.take(),
            capture: std::mem::take(&mut self.capture),
        }
    }

    /// Whether the capture that it was allocated in is under way.
    fn is_capturing(&self) -> bool {
        self.capture.strong_count() > 0
    }
}

/// The owner's handle of a piece of device memory.
pub(crate) struct Allocation {
    piece: Piece,
    shared: OnceLock<Arc<GraphShare>>,
}

/// The part of an allocation that it shares with the graphs that use it. Few allocations have one.
pub(crate) struct GraphShare {
    users: Arc<Users>,
    /// The memory, once its owner has dropped it. The last graph frees it.
    left: OnceLock<Piece>,
}

impl GraphShare {
    pub(crate) fn users(&self) -> &Users {
        &self.users
    }
}

impl Allocation {
    pub(super) fn new(stream: &Stream, bytes: usize, site: Site) -> Result<Self> {
        if bytes == 0 {
            return Ok(Self::over(stream, 0, Owner::Nobody, Weak::new()));
        }
        let allocator = stream.device().allocator();
        match (allocator.mode, stream.capture()?) {
            (Mode::Caching, capture) => {
                let (address, owner) = from_cache(allocator, stream, bytes, site, capture.as_deref())?;
                let capture = capture.map_or_else(Weak::new, |capture| Arc::downgrade(&capture));
                Ok(Self::over(stream, address, owner, capture))
            }
            (Mode::PassThrough, None) => {
                Ok(Self::over(stream, from_driver(stream, bytes, site)?, Owner::Driver, Weak::new()))
            }
            // A captured stream would record the allocation. So another stream allocates, and the graph keeps
            // the memory.
            (Mode::PassThrough, Some(capture)) => {
                let stream = capture.memory().memory_stream()?;
                Ok(Self::over(&stream, from_driver(&stream, bytes, site)?, Owner::Driver, Weak::new()))
            }
        }
    }

    fn over(stream: &Stream, address: CUdeviceptr, owner: Owner, capture: Weak<Capture>) -> Self {
        let piece = Piece { address, owner, uses: Uses::new(stream), capture };
        Allocation { piece, shared: OnceLock::new() }
    }

    /// The owner of memory that was allocated elsewhere; address 0 stands for no memory.
    ///
    /// # Safety
    /// It is an allocation of `stream`'s device that no other code frees, with no work pending on other
    /// streams.
    pub(super) unsafe fn adopt(stream: &Stream, address: CUdeviceptr) -> Self {
        let owner = if address == 0 { Owner::Nobody } else { Owner::Driver };
        Self::over(stream, address, owner, Weak::new())
    }

    /// Gives up an allocation of the driver's own that holds the first `bytes` bytes, with no work pending on
    /// it; null without bytes. A block of the cache, or memory that a graph uses, is copied to a new one.
    pub(super) fn release(mut self, bytes: usize, site: Site) -> Result<CUdeviceptr> {
        let address = self.piece.address;
        if matches!(self.piece.owner, Owner::Nobody) {
            return Ok(address);
        }
        let stream = self.piece.uses.writer();
        let is_shared = self.shared.get().is_some_and(|share| Arc::strong_count(share) > 1);
        if stream.capture()?.is_some() || (is_shared && stream.device().captures().any()) {
            return Err(Error::NotCapturable {
                operation: "DeviceBuffer::into_raw",
                reason: "captured work on the buffer is not done before its graph is replayed",
                hint: "hand the buffer on before the capture or after it",
            });
        }
        if matches!(self.piece.owner, Owner::Driver) && !is_shared {
            self.piece.uses.wait()?;
            self.piece.owner = Owner::Nobody;
            return Ok(address);
        }
        // Several streams may each have written a part of it.
        let begun = self.piece.uses.begin(&stream, false)?;
        // SAFETY: the new allocation has no other owner.
        let copy = unsafe { Self::adopt(&stream, from_driver(&stream, bytes, site)?) };
        let to = copy.piece.address;
        // SAFETY: both have `bytes` bytes; the stream is the last writer's.
        stream.call(|stream| unsafe { raw::memcpy_dtod_async(to, address, bytes, stream) })?;
        self.piece.uses.commit(&stream, false, begun);
        copy.release(bytes, site)
    }

    pub(super) fn address(&self) -> CUdeviceptr {
        self.piece.address
    }

    pub(super) fn device(&self) -> &Device {
        self.piece.uses.home().device()
    }

    pub(super) fn uses(&self) -> &Uses {
        &self.piece.uses
    }

    /// Begins a use; see [`Use`].
    pub(super) fn begin(&self, stream: &Stream, writes: bool) -> Result<Use<'_>> {
        stream.same_device("the buffer", self.device())?;
        let capture = stream.capture()?;
        let begun = match &capture {
            None => self.piece.uses.begin(stream, writes)?,
            Some(capture) => capture.memory().uses().begin(self.share(), stream, writes)?,
        };
        Ok(Use { allocation: self, capture, writes, begun })
    }

    fn share(&self) -> &Arc<GraphShare> {
        let make = || Arc::new(GraphShare { users: self.piece.uses.share(), left: OnceLock::new() });
        self.shared.get_or_init(make)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let Some(share) = self.shared.get() else { return };
        if let Some(capture) = self.piece.capture.upgrade() {
            capture.memory().uses().forget(share, self.piece.uses.home());
        }
        // The owner is dropped once, so nothing is left there yet.
        let _ = share.left.set(self.piece.take());
    }
}

/// A use that has begun: the stream waits for earlier users. Queue the work, then [commit](Use::commit) the
/// use. A use that is dropped without a commit leaves no trace: for work that was not queued, or that is
/// already done.
#[must_use = "work that is queued has to be committed"]
pub struct Use<'m> {
    allocation: &'m Allocation,
    capture: Option<Arc<Capture>>,
    writes: bool,
    begun: u64,
}

impl Use<'_> {
    /// Enters the use: its work is queued on `stream`, for which it began.
    pub(crate) fn commit(self, stream: &Stream) {
        let Use { allocation, capture, writes, begun } = self;
        match capture {
            None => allocation.piece.uses.commit(stream, writes, begun),
            Some(capture) => capture.memory().uses().commit(allocation.share(), stream, writes, begun),
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let (address, owner) = (self.address, std::mem::replace(&mut self.owner, Owner::Nobody));
        // Not a clone: all threads would write its count at each of their frees.
        let device = self.uses.home().device();
        match owner {
            Owner::Nobody => return,
            // A block that only its home stream has used needs no order across streams.
            Owner::Cache(Block { heap: None, .. }) if self.uses.is_at_home() && !device.captures().any() => {
                return free(address, owner, &self.uses);
            }
            // Its capture is under way: only captured work has used it.
            Owner::Cache(Block { lease, heap: Some(heap), .. })
                if self.is_capturing() && self.uses.is_at_home() =>
            {
                return device.allocator().device.free(&heap, lease);
            }
            Owner::Cache(_) | Owner::Driver => {}
        }
        let device = device.clone();
        let uses = self.uses.take();
        device.captures().outside(move || free(address, owner, &uses));
    }
}

fn free(address: CUdeviceptr, owner: Owner, uses: &Uses) {
    match owner {
        Owner::Nobody => {}
        Owner::Cache(block) => free_block(address, block, uses),
        Owner::Driver => free_in_order(address, uses),
    }
}

fn free_block(address: CUdeviceptr, block: Block, uses: &Uses) {
    let Block { lease, heap, known, guard } = block;
    if let Some(guard) = guard {
        guard.check(address, uses);
    }
    // A block that waits for other streams stays known to the checker until its memory is given out again.
    if let Some(bytes) = known.filter(|_| uses.is_at_home()) {
        // The block is not used after this, so no stream has to wait for the mark.
        driver::soft::mark_block(uses.home().handle().cast(), address, bytes, None);
    }
    let home = uses.home();
    let allocator = home.device().allocator();
    match heap {
        Some(heap) => allocator.free_private(&heap, lease, uses),
        None => allocator.free(home.own_heap(), lease, uses),
    }
}

/// Frees in stream order, after everything that uses the memory. If the driver refuses, the host waits
/// instead. If no order is possible, the memory is leaked, since some stream may still write it.
fn free_in_order(address: CUdeviceptr, uses: &Uses) {
    let Some(stream) = uses.last_stream() else { return };
    let device = stream.device();
    // SAFETY: an allocation of the driver's, freed once, and every user's work is ordered before.
    let freed = device.clean_up(|| unsafe { raw::mem_free_async(address, stream.handle()) });
    if freed.is_err() && stream.drain() {
        // SAFETY: as above, and the refused call has not freed it; no work is pending on it.
        let _ = device.clean_up(|| unsafe { raw::mem_free(address) });
    }
}

/// Memory of a capture comes from heaps that its graph keeps.
fn from_cache(
    allocator: &Allocator,
    stream: &Stream,
    bytes: usize,
    site: Site,
    capture: Option<&Capture>,
) -> Result<(CUdeviceptr, Owner)> {
    stream.device().alive()?;
    let guarded = allocator.guarded && !stream.device().captures().any();
    let wanted = match guarded {
        true => Guard::padded(bytes),
        false if stream.device().is_software() => guard::apart(bytes),
        false => bytes as u64,
    };
    let diverted = capture.map(|capture| capture.memory().pool().heap_of(stream));
    let heap = diverted.as_ref().unwrap_or_else(|| stream.own_heap());
    let source = Source { device: stream.device(), kind: Kind::Device };
    let lease = allocator.device.allocate(&source, heap, wanted, site).map_err(|failure| match failure {
        Failure::OutOfMemory => out_of_memory(stream.device(), bytes as u64, site),
        Failure::Backend(error) => error,
    })?;
    let mut address = lease.address();
    // Replays of a graph use its memory when the program holds no buffer of it: the checker is told of no
    // blocks there.
    let known = (stream.device().is_software() && !heap.is_private()).then_some(bytes);
    let mut guard = None;
    if guarded {
        match Guard::set(stream, &lease, bytes, site) {
            Ok((inner, set)) => (address, guard) = (inner, Some(set)),
            Err(error) => {
                allocator.device.free(heap, lease);
                return Err(error);
            }
        }
    }
    if known.is_some() {
        let label = format!("buffer of {}:{}", site.file(), site.line());
        // Needs no current context, so this may be the thread's first call.
        if driver::soft::mark_block(stream.handle().cast(), address, bytes, Some(&label)) {
            stream.queued();
        }
    }
    Ok((address, Owner::Cache(Block { lease, heap: diverted, known, guard })))
}

/// The error with the present figures, or the driver's error if it cannot report them.
fn out_of_memory(device: &Device, requested: u64, site: Site) -> Error {
    let info = match device.memory_info() {
        Ok(info) => info,
        Err(error) => return error,
    };
    let snapshot = device.allocator().device.snapshot();
    Error::OutOfMemory(Box::new(OutOfMemory {
        device: device.ordinal(),
        requested: requested as usize,
        site,
        free: info.free,
        total: info.total,
        reserved: snapshot.stats.reserved as usize,
        live: snapshot.stats.live as usize,
        limit: snapshot.stats.limit.map(|bytes| bytes as usize),
        holders: snapshot.holders(HOLDERS_NAMED),
    }))
}

/// An allocation of the driver's, in stream order. When memory is short, the memory kept for later is given
/// back, and the call is tried once more.
fn from_driver(stream: &Stream, bytes: usize, site: Site) -> Result<CUdeviceptr> {
    let device = stream.device();
    let attempt = || {
        let mut address = 0;
        // SAFETY: a place to write to.
        stream.call(|stream| unsafe { raw::mem_alloc_async(&mut address, bytes, stream) })?;
        Ok(address)
    };
    let out_of_memory = |error: &Error| error.driver_error().is_some_and(|e| e.is_out_of_memory());
    match attempt() {
        Err(error) if out_of_memory(&error) => {}
        done => return done,
    }
    // Frees that are queued behind running work return their memory only when it is done.
    device.trim_pool()?;
    match attempt() {
        Err(error) if out_of_memory(&error) => Err(self::out_of_memory(device, bytes as u64, site)),
        done => done,
    }
}
