//! The driver's handles, by their names in `cuda.h`: what [`Stream::raw`](crate::Stream::raw) and its like
//! return, for calls that this library does not make.
//!
//! Bindings such as `cust_raw` have types of their own for the same pointers: `stream.raw().cast()`.

use std::ffi::c_int;

/// Declares the structures behind handles. Only the driver knows their contents.
macro_rules! handles {
    ($($(#[$doc:meta])* $handle:ident = *mut $structure:ident;)*) => {
        $(
            #[doc = concat!("Behind a [`", stringify!($handle), "`].")]
            #[allow(non_camel_case_types, reason = "the name in cuda.h")]
            #[repr(C)]
            pub struct $structure {
                _contents: [u8; 0],
            }
            $(#[$doc])*
            pub type $handle = *mut $structure;
        )*
    };
}

handles! {
    /// A context.
    CUcontext = *mut CUctx_st;
    /// A loaded module.
    CUmodule = *mut CUmod_st;
    /// A kernel of a module.
    CUfunction = *mut CUfunc_st;
    /// A stream.
    CUstream = *mut CUstream_st;
    /// An event.
    CUevent = *mut CUevent_st;
    /// A graph.
    CUgraph = *mut CUgraph_st;
    /// A node of a graph.
    CUgraphNode = *mut CUgraphNode_st;
    /// A graph that can be launched.
    CUgraphExec = *mut CUgraphExec_st;
    /// A pool of stream-ordered allocations.
    CUmemoryPool = *mut CUmemPoolHandle_st;
}

/// A device, by its number.
pub type CUdevice = c_int;
/// An address in device memory.
pub type CUdeviceptr = u64;
