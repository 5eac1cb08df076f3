//! Device memory that several processes have: a file without a name in its place, which others open through
//! the process that has it.

use super::{
    abi::{DevicePtr, IpcHandle},
    api,
    memory::{Allocation, Between, Kind},
    put,
    state::{Driver, Outcome},
};
use crate::code;
use core::ffi::c_uint;
use simt::DeviceMemory;
use std::{
    fs::{File, OpenOptions},
    os::fd::AsRawFd,
};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the one flag, which has to be there.
const LAZY_ENABLE_PEER_ACCESS: c_uint = 1;

impl Driver {
    /// Lets other processes open the allocation that holds `address`.
    fn export(&mut self, address: usize) -> Outcome<IpcHandle> {
        let allocation = self.memory.at(address).ok_or(code::INVALID_VALUE)?;
        let (start, owner) = (allocation.address, allocation.context);
        // Stores to the memory while it moves to the file are lost, so its device's work ends first. Work of
        // other devices has to have ended, which a GPU does not ask for.
        self.drain_context(owner)?;
        let allocation = self.memory.starting_at_mut(start).ok_or(code::INVALID_VALUE)?;
        let (bytes, id) = (allocation.bytes as u64, allocation.id);
        let (file, file_bytes) = allocation.share()?;
        Ok(IpcHandle {
            magic: IpcHandle::MAGIC,
            process: std::process::id(),
            file: file.as_raw_fd() as u32,
            file_bytes: file_bytes as u64,
            bytes,
            id,
            reserved: [0; 3],
        })
    }

    /// Maps another process's memory; its address here, the same when it is opened again.
    fn open(&mut self, handle: IpcHandle) -> Outcome<usize> {
        let context = self.enter()?;
        if handle.magic != IpcHandle::MAGIC {
            return Err(code::INVALID_HANDLE);
        }
        if handle.process == std::process::id() {
            return Err(code::INVALID_CONTEXT);
        }
        let is_it = |a: &&Allocation| {
            a.context == context && matches!(a.between, Between::Opened(theirs, _) if theirs == handle)
        };
        let known = self.memory.iter().find(is_it).map(|allocation| allocation.address);
        if let Some(address) = known {
            self.change_times(address, |times| times + 1)?;
            return Ok(address);
        }
        let device = self.contexts.get(context)?.device;
        let file = file_of(&handle).ok_or(code::INVALID_HANDLE)?;
        let memory = DeviceMemory::open(&file, handle.file_bytes as usize).ok_or(code::MAP_FAILED)?;
        let allocation = Allocation::opened(handle, memory, context, device);
        let address = allocation.address;
        self.keep(allocation);
        Ok(address)
    }

    /// How often memory is open, after a change.
    fn change_times(&mut self, address: usize, change: impl FnOnce(u32) -> u32) -> Outcome<u32> {
        match self.memory.starting_at_mut(address).map(|allocation| &mut allocation.kind) {
            Some(Kind::Opened { times }) => {
                *times = change(*times);
                Ok(*times)
            }
            _ => Err(code::INVALID_VALUE),
        }
    }
}

/// The file of a process that lives and may be looked at, if it still has the size that the handle says.
fn file_of(handle: &IpcHandle) -> Option<File> {
    let path = format!("/proc/{}/fd/{}", handle.process, handle.file);
    let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
    (file.metadata().ok()?.len() == handle.file_bytes).then_some(file)
}

api! {
    fn cuIpcGetMemHandle(driver, out: *mut IpcHandle, address: DevicePtr) {
        driver.enter()?;
        driver.forbid_unsafe_while_capturing()?;
        let handle = driver.export(address as usize)?;
        put(out, handle)
    }

    fn cuIpcOpenMemHandle_v2(driver, out: *mut DevicePtr, handle: IpcHandle, flags: c_uint) {
        if flags != LAZY_ENABLE_PEER_ACCESS {
            return Err(code::INVALID_VALUE);
        }
        put(out, 0)?;
        let address = driver.open(handle)?;
        put(out, address as DevicePtr)
    }

    fn cuIpcCloseMemHandle(driver, address: DevicePtr) {
        let context = driver.enter()?;
        let address = address as usize;
        // Only when nothing here uses it any more.
        driver.drain_context(context)?;
        if driver.change_times(address, |times| times - 1)? > 0 {
            return Ok(());
        }
        driver.release(address)
    }
}
