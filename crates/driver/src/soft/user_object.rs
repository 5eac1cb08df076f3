//! User objects: what a program ties to graphs. An object's destructor runs when nothing refers to it any
//! more: neither the program, nor a graph, nor an executable.

use super::{
    abi::HostFn,
    api,
    handle::Handle,
    host_function, put,
    queue::UserData,
    state::{Driver, Outcome},
};
use crate::code;
use core::ffi::{c_uint, c_void};
use std::collections::BTreeMap;

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, which CUDA demands.
const NO_DESTRUCTOR_SYNC: c_uint = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`: the references are the program's, which gives them away.
const MOVE: c_uint = 1;

pub(super) struct UserObject {
    destroy: HostFn,
    data: UserData,
    /// Of the program, of graphs and of executables.
    references: u32,
}

/// The references that a graph or an executable has, by object.
pub(super) type References = BTreeMap<Handle, u32>;

impl Driver {
    fn retain_object(&mut self, object: Handle, count: u32) -> Outcome {
        let object = self.user_objects.get_mut(object).map_err(|_| code::INVALID_VALUE)?;
        object.references = object.references.checked_add(count).ok_or(code::INVALID_VALUE)?;
        Ok(())
    }

    fn release_object(&mut self, handle: Handle, count: u32) -> Outcome {
        let object = self.user_objects.get_mut(handle).map_err(|_| code::INVALID_VALUE)?;
        object.references = object.references.checked_sub(count).ok_or(code::INVALID_VALUE)?;
        if object.references == 0 {
            let ended = self.user_objects.remove(handle)?;
            self.ended_objects.push(ended);
        }
        Ok(())
    }

    /// Adds references of a graph or an executable to objects that others refer to.
    pub(super) fn retain_objects(&mut self, references: &References) -> Outcome {
        references.iter().try_for_each(|(&object, &count)| self.retain_object(object, count))
    }

    pub(super) fn release_objects(&mut self, references: &References) -> Outcome {
        references.iter().try_for_each(|(&object, &count)| self.release_object(object, count))
    }

    /// Calls the destructors of the objects that have ended, with the lock released.
    pub(super) fn destroy_ended_objects(&mut self) {
        let ended = std::mem::take(&mut self.ended_objects);
        if ended.is_empty() {
            return;
        }
        self.unlocked(|| {
            for UserObject { destroy, data, .. } in ended {
                // SAFETY: whoever made the object promised that the function takes this pointer. It is called
                // once: the object has left the table.
                host_function(|| unsafe { destroy(data.0) });
            }
        });
    }
}

fn counted(count: c_uint) -> Outcome<c_uint> {
    if count == 0 { Err(code::INVALID_VALUE) } else { Ok(count) }
}

api! {
    fn cuUserObjectCreate(
        driver, out: *mut Handle, data: *mut c_void, destroy: Option<HostFn>, references: c_uint, flags: c_uint,
    ) {
        if out.is_null() || flags != NO_DESTRUCTOR_SYNC {
            return Err(code::INVALID_VALUE);
        }
        let (destroy, references) = (destroy.ok_or(code::INVALID_VALUE)?, counted(references)?);
        let object = driver.user_objects.insert(UserObject { destroy, data: UserData(data), references });
        put(out, object)
    }

    fn cuUserObjectRetain(driver, object: Handle, count: c_uint) { driver.retain_object(object, counted(count)?) }

    fn cuUserObjectRelease(driver, object: Handle, count: c_uint) { driver.release_object(object, counted(count)?) }

    fn cuGraphRetainUserObject(driver, graph: Handle, object: Handle, count: c_uint, flags: c_uint) {
        if flags > MOVE || !driver.user_objects.contains(object) {
            return Err(code::INVALID_VALUE);
        }
        let count = counted(count)?;
        let held = driver.graphs.get_mut(graph).map_err(|_| code::INVALID_VALUE)?.objects.entry(object).or_default();
        *held = held.checked_add(count).ok_or(code::INVALID_VALUE)?;
        if flags == MOVE { Ok(()) } else { driver.retain_object(object, count) }
    }

    fn cuGraphReleaseUserObject(driver, graph: Handle, object: Handle, count: c_uint) {
        let count = counted(count)?;
        let objects = &mut driver.graphs.get_mut(graph).map_err(|_| code::INVALID_VALUE)?.objects;
        let held = objects.get_mut(&object).ok_or(code::INVALID_VALUE)?;
        *held = held.checked_sub(count).ok_or(code::INVALID_VALUE)?;
        if *held == 0 {
            objects.remove(&object);
        }
        driver.release_object(object, count)
    }
}
