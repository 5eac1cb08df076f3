//! Peer access between devices. All software devices can access each other.

use super::{
    api,
    handle::Handle,
    put,
    state::{Driver, Outcome},
};
use crate::code;
use core::ffi::{c_int, c_uint};

impl Driver {
    /// The current context and another context on another device.
    fn peers(&self, peer: Handle) -> Outcome<(Handle, Handle)> {
        let current = self.enter()?;
        let other = self.contexts.get(peer).map_err(|_| code::INVALID_CONTEXT)?;
        if other.device == self.contexts.get(current)?.device {
            return Err(code::INVALID_DEVICE);
        }
        Ok((current, peer))
    }
}

api! {
    fn cuDeviceCanAccessPeer(driver, out: *mut c_int, device: c_int, peer: c_int) {
        let (device, peer) = (driver.ordinal(device)?, driver.ordinal(peer)?);
        put(out, c_int::from(device != peer))
    }

    fn cuDeviceGetP2PAttribute(driver, out: *mut c_int, number: u32, from: c_int, to: c_int) {
        let (from, to) = (driver.ordinal(from)?, driver.ordinal(to)?);
        if from == to {
            return Err(code::INVALID_DEVICE);
        }
        // Rank, access, native atomics, arrays.
        put(out, *[0, 1, 1, 0].get((number as usize).wrapping_sub(1)).ok_or(code::INVALID_VALUE)?)
    }

    fn cuCtxEnablePeerAccess(driver, peer: Handle, flags: c_uint) {
        let (current, peer) = driver.peers(peer)?;
        if flags != 0 {
            return Err(code::INVALID_VALUE);
        }
        let new = driver.contexts.get_mut(current)?.peers.insert(peer);
        if new { Ok(()) } else { Err(code::PEER_ACCESS_ALREADY_ENABLED) }
    }

    fn cuCtxDisablePeerAccess(driver, peer: Handle) {
        let (current, peer) = driver.peers(peer)?;
        let was_enabled = driver.contexts.get_mut(current)?.peers.remove(&peer);
        if was_enabled { Ok(()) } else { Err(code::PEER_ACCESS_NOT_ENABLED) }
    }
}
