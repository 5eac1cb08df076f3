//! A rank's place in a group of processes: its own memory, that of its peers, and the thread that watches.

use std::fs::{File, OpenOptions};
use std::sync::Arc;

use collective::MAX_RANKS;
use collective::team::state_bytes;

use super::offer::Offer;
use super::watch::{Process, Watch};
use super::words::{Mark, Words};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::DeviceBuffer;
use crate::parallel::peer::STAGE;
use crate::raw::{self, IpcHandle};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

/// A rank's flags, slots and stages: all zero, in an allocation of its own, since a handle opens a whole one.
#[track_caller]
pub fn own_memory(device: &Device, ranks: usize) -> Result<DeviceBuffer<u8>> {
    let bytes = state_bytes(ranks) + 2 * STAGE as usize;
    let stream = device.pooled_stream()?;
    let mut address = 0;
    // SAFETY: a place to write to.
    device.call(|| unsafe { raw::mem_alloc(&mut address, bytes) })?;
    // SAFETY: a new allocation, which nobody else frees or uses.
    let mut memory = unsafe { DeviceBuffer::from_raw(&stream, address, bytes) };
    memory.fill_zero(&stream)?;
    // Peers write there as soon as they like.
    stream.synchronize()?;
    Ok(memory)
}

/// The handle by which other processes open an allocation, or why there is none.
pub fn handle_of(device: &Device, memory: &DeviceBuffer<u8>) -> Result<Vec<u8>> {
    let mut handle = IpcHandle([0; 64]);
    // SAFETY: a place to write to; the address is that of a live allocation.
    device.call(|| unsafe { raw::ipc_get_mem_handle(&mut handle, memory.as_ptr().raw()) })?;
    Ok(handle.0.to_vec())
}

/// Peers' memory, mapped here; closed when it is dropped.
pub struct Opened {
    device: Device,
    /// By ranks; 0 for the own rank.
    pub addresses: [u64; MAX_RANKS],
}

impl Opened {
    /// Opens the memory of all ranks but `rank`. `Ok(Err(..))` says why that is not possible.
    pub fn of(device: &Device, rank: u32, offers: &[Offer]) -> Result<Result<Self, String>> {
        let mut opened = Opened { device: device.clone(), addresses: [0; MAX_RANKS] };
        for (peer, offer) in offers.iter().enumerate().filter(|(peer, _)| *peer != rank as usize) {
            if !offer.process.is_alive() {
                let number = offer.process.number;
                return Ok(Err(format!(
                    "the process of rank {peer} ({number}) cannot be seen: is it in another container?"
                )));
            }
            let Ok(handle) = <[u8; 64]>::try_from(&*offer.handle) else {
                return Ok(Err(format!("rank {peer} gave no handle of its memory")));
            };
            let place = &raw mut opened.addresses[peer];
            // SAFETY: a place to write to; the driver looks at the handle.
            let result = device.call(|| unsafe {
                raw::ipc_open_mem_handle(place, IpcHandle(handle), LAZY_ENABLE_PEER_ACCESS)
            });
            match result {
                Ok(()) => {}
                Err(Error::Driver(error)) => {
                    opened.addresses[peer] = 0;
                    return Ok(Err(format!("the memory of rank {peer} cannot be opened: {error}")));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Ok(opened))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        for address in self.addresses.into_iter().filter(|address| *address != 0) {
            // SAFETY: opened, and closed once; nothing of this process uses it any more, as its owners see
            // to. A drop cannot return an error.
            let _ = self.device.clean_up(|| unsafe { raw::ipc_close_mem_handle(address) });
        }
    }
}

/// The host memory that the first rank has made. `Ok(Err(..))` says why it cannot be had.
pub fn words_of(device: &Device, first: Process, file: i32) -> Result<Result<Words, String>> {
    let path = format!("/proc/{}/fd/{file}", first.number);
    let file: Result<File, _> = OpenOptions::new().read(true).write(true).open(path);
    match file {
        Ok(file) => Words::map(device, &file),
        Err(error) => Ok(Err(format!("the host memory of rank 0's process cannot be opened: {error}"))),
    }
}

/// See the module.
pub struct Seat {
    pub device: Device,
    pub rank: u32,
    /// `None` once the rank has left it.
    memory: Option<DeviceBuffer<u8>>,
    /// `None` once it is closed.
    opened: Option<Opened>,
    words: Arc<Words>,
    watch: Watch,
}

impl Seat {
    pub fn new(
        device: &Device,
        rank: u32,
        memory: DeviceBuffer<u8>,
        opened: Opened,
        words: Arc<Words>,
        watch: Watch,
    ) -> Self {
        Seat { device: device.clone(), rank, memory: Some(memory), opened: Some(opened), words, watch }
    }

    /// The rank's own memory.
    pub fn memory(&self) -> &DeviceBuffer<u8> {
        self.memory.as_ref().expect("it is there until the seat is dropped")
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        // Kernels of this rank may still write to its peers. A drop cannot return an error; a context that
        // has failed runs nothing.
        let _ = memory.synchronize();
        self.opened = None;
        self.words.set(self.rank, Mark::Closed);
        self.watch.leave(memory);
    }
}
