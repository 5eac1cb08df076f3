//! Structures and constants of the driver's binary interface. Enumerations are plain integers here: a caller
//! may pass any value, and reading an unlisted value as a Rust enum is undefined behaviour.

use core::ffi::{c_char, c_int, c_uint, c_void};

/// `CUdeviceptr`.
pub(super) type DevicePtr = u64;
/// `CUhostFn`.
pub(super) type HostFn = unsafe extern "C" fn(*mut c_void);
/// `CUstreamCallback`.
pub(super) type StreamCallback = unsafe extern "C" fn(usize, u32, *mut c_void);

/// `CU_MEMORYTYPE_*`.
pub(super) mod memory_type {
    pub(crate) const HOST: u32 = 1;
    pub(crate) const DEVICE: u32 = 2;
    pub(crate) const ARRAY: u32 = 3;
    pub(crate) const UNIFIED: u32 = 4;
}

/// `CUuuid`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Uuid {
    pub bytes: [c_char; 16],
}

/// `CUipcMemHandle`: 64 bytes, whose meaning is the driver's.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct IpcHandle {
    /// [`IpcHandle::MAGIC`].
    pub magic: u64,
    /// The process that has the memory, and the number of its file there.
    pub process: u32,
    pub file: u32,
    /// Bytes of the file, and of the allocation in it.
    pub file_bytes: u64,
    pub bytes: u64,
    /// The allocation's number.
    pub id: u64,
    pub reserved: [u64; 3],
}

impl IpcHandle {
    pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"ironwarp");
}

/// `CUdevprop`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct DeviceProperties {
    pub max_threads_per_block: c_int,
    pub max_threads_dim: [c_int; 3],
    pub max_grid_size: [c_int; 3],
    pub shared_mem_per_block: c_int,
    pub total_constant_memory: c_int,
    pub simd_width: c_int,
    pub mem_pitch: c_int,
    pub regs_per_block: c_int,
    pub clock_rate: c_int,
    pub texture_align: c_int,
}

/// `CUDA_MEMCPY2D`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Copy2d {
    pub src_x: usize,
    pub src_y: usize,
    pub src_type: u32,
    pub src_host: *const c_void,
    pub src_device: DevicePtr,
    pub src_array: usize,
    pub src_pitch: usize,
    pub dst_x: usize,
    pub dst_y: usize,
    pub dst_type: u32,
    pub dst_host: *mut c_void,
    pub dst_device: DevicePtr,
    pub dst_array: usize,
    pub dst_pitch: usize,
    pub width: usize,
    pub height: usize,
}

/// `CUDA_MEMCPY3D`. `CUDA_MEMCPY3D_PEER` has contexts in place of the reserved words.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Copy3d {
    pub src_x: usize,
    pub src_y: usize,
    pub src_z: usize,
    pub src_lod: usize,
    pub src_type: u32,
    pub src_host: *const c_void,
    pub src_device: DevicePtr,
    pub src_array: usize,
    pub src_context: usize,
    pub src_pitch: usize,
    pub src_height: usize,
    pub dst_x: usize,
    pub dst_y: usize,
    pub dst_z: usize,
    pub dst_lod: usize,
    pub dst_type: u32,
    pub dst_host: *mut c_void,
    pub dst_device: DevicePtr,
    pub dst_array: usize,
    pub dst_context: usize,
    pub dst_pitch: usize,
    pub dst_height: usize,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// `CUDA_KERNEL_NODE_PARAMS_v1`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct KernelNode {
    pub function: usize,
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared: c_uint,
    pub params: *mut *mut c_void,
    pub extra: *mut *mut c_void,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct KernelNodeV2 {
    pub v1: KernelNode,
    pub kernel: usize,
    pub context: usize,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct MemsetNode {
    pub dst: DevicePtr,
    pub pitch: usize,
    pub value: c_uint,
    pub element_size: c_uint,
    pub width: usize,
    pub height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct HostNode {
    pub function: Option<HostFn>,
    pub data: *mut c_void,
}

/// `CUmemLocation`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Location {
    pub kind: u32,
    pub id: c_int,
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
pub(super) const LOCATION_DEVICE: u32 = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
pub(super) const ALLOCATION_PINNED: u32 = 1;

/// `CUmemPoolProps`. `max_size` (CUDA 12) lies in bytes that CUDA 11 reserves.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct PoolProperties {
    pub allocation: u32,
    pub handle_types: u32,
    pub location: Location,
    pub security: *mut c_void,
    pub max_size: usize,
    pub reserved: [u8; 56],
}

/// `CUmemAccessDesc`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct AccessDescription {
    pub location: Location,
    pub flags: u32,
}

/// `CUlaunchAttribute`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct LaunchAttribute {
    pub id: u32,
    pub pad: [u8; 4],
    pub value: [u64; 8],
}

/// `CUlaunchConfig`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct LaunchConfig {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared: c_uint,
    pub stream: usize,
    pub attributes: *const LaunchAttribute,
    pub attribute_count: c_uint,
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct InstantiateParams {
    pub flags: u64,
    pub upload_stream: usize,
    pub error_node: usize,
    pub result: u32,
}

/// `CUgraphExecUpdateResultInfo`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct UpdateInfo {
    pub result: u32,
    pub error_node: usize,
    pub error_from_node: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::size_of;

    #[test]
    fn structures_have_the_size_of_cust_raws() {
        assert_eq!(size_of::<Uuid>(), size_of::<cust_raw::CUuuid>());
        assert_eq!(size_of::<IpcHandle>(), size_of::<cust_raw::CUipcMemHandle>());
        assert_eq!(size_of::<DeviceProperties>(), size_of::<cust_raw::CUdevprop>());
        assert_eq!(size_of::<Copy2d>(), size_of::<cust_raw::CUDA_MEMCPY2D>());
        assert_eq!(size_of::<Copy3d>(), size_of::<cust_raw::CUDA_MEMCPY3D>());
        assert_eq!(size_of::<Copy3d>(), size_of::<cust_raw::CUDA_MEMCPY3D_PEER>());
        assert_eq!(size_of::<KernelNode>(), size_of::<cust_raw::CUDA_KERNEL_NODE_PARAMS>());
        assert_eq!(size_of::<MemsetNode>(), size_of::<cust_raw::CUDA_MEMSET_NODE_PARAMS>());
        assert_eq!(size_of::<HostNode>(), size_of::<cust_raw::CUDA_HOST_NODE_PARAMS>());
        assert_eq!(size_of::<PoolProperties>(), size_of::<cust_raw::CUmemPoolProps>());
        assert_eq!(size_of::<AccessDescription>(), size_of::<cust_raw::CUmemAccessDesc>());
        // cust_raw lacks these; the sizes are from CUDA 12's headers.
        assert_eq!(size_of::<LaunchAttribute>(), 72);
        assert_eq!(size_of::<LaunchConfig>(), 56);
    }
}
