//! The runtime that `core` leaves open on the device: the panic handler, the allocator, and the functions
//! that compiled code calls by name.

mod calls;

use core::alloc::{GlobalAlloc, Layout};
use core::arch::nvptx;
use core::panic::PanicInfo;

/// Fails the launch and names the place. The message is not formatted: that would put the formatting code
/// into every kernel that can panic.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let (file, line) = match info.location() {
        Some(place) => (place.file_as_c_str(), place.line()),
        None => (c"unknown", 0),
    };
    // SAFETY: all three strings end with NUL.
    unsafe {
        nvptx::__assert_fail(c"Rust panic".as_ptr().cast(), file.as_ptr().cast(), line, c"".as_ptr().cast());
        nvptx::trap()
    }
}

/// The heap that the driver keeps on the device.
struct DeviceHeap;

/// Alignment of the device's `malloc`, in bytes.
const HEAP_ALIGN: usize = 16;

// SAFETY: `malloc` returns memory that is not in use, of at least the size asked for, or null.
unsafe impl GlobalAlloc for DeviceHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > HEAP_ALIGN {
            // Nothing in the heap is aligned that far, and no room would be left to remember the original
            // pointer.
            return core::ptr::null_mut();
        }
        // SAFETY: any size may be asked for.
        unsafe { nvptx::malloc(layout.size()).cast() }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, _layout: Layout) {
        // SAFETY: the caller passes what `alloc` returned.
        unsafe { nvptx::free(ptr.cast()) }
    }
}

#[global_allocator]
static HEAP: DeviceHeap = DeviceHeap;
