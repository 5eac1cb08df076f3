//! Kernels for the runtime's own tests.

use cuda_std::prelude::*;

/// `out[i] = value` for the first `n` elements.
///
/// # Safety
/// `out` has `n` elements.
#[kernel]
pub unsafe fn fill(n: u32, value: f32, out: *mut f32) {
    let i = thread::index_1d();
    if i < n {
        // SAFETY: `i < n`, and each thread has its own element.
        unsafe { *out.add(i as usize) = value };
    }
}

/// `y[i] = a * x[i]` for all of `x`; does nothing when `y` is null.
///
/// # Safety
/// `y` is null or has as many elements as `x`.
#[kernel]
pub unsafe fn scale(a: f32, x: &[f32], y: *mut f32) {
    let i = thread::index_1d() as usize;
    if i < x.len() && !y.is_null() {
        // SAFETY: `i < x.len()`, and each thread has its own element.
        unsafe { *y.add(i) = a * x[i] };
    }
}

/// `out[i] += 1` for all of `out`, in blocks of at most 64 threads.
///
/// # Safety
/// At most one thread for each element.
#[kernel(launch_bounds(64))]
pub unsafe fn bounded(out: &mut [u32]) {
    let i = thread::index_1d() as usize;
    if i < out.len() {
        out[i] += 1;
    }
}

/// Writes 7 to the last element of `bytes` bytes of dynamic shared memory, reads it back, and leaves it in
/// `out[0]`.
///
/// # Safety
/// `out` has one element; the launch gives at least `bytes` bytes, at least 4.
#[kernel]
pub unsafe fn last_of_dynamic_shared(bytes: u32, out: *mut u32) {
    if thread::index_1d() == 0 {
        let last = bytes as usize / size_of::<u32>() - 1;
        // SAFETY: the launch gives that many bytes, and one thread uses them.
        unsafe {
            let element = cuda_std::shared::dynamic_shared_mem::<u32>().add(last);
            *element = 7;
            *out = *element;
        }
    }
}

/// Makes the launch fail.
///
/// # Safety
/// The context is unusable afterwards.
#[kernel]
pub unsafe fn die() {
    panic!("on purpose");
}

/// The same kernels for a GPU, written by hand: a test program is no kernel package, so nothing builds its
/// PTX.
pub const PTX: &str = r#"// ironwarp family=runtime_tests arch=sm_80
.version 7.0
.target sm_80
.address_size 64

.visible .entry fill(.param .u32 n, .param .f32 value, .param .u64 out)
{
    .reg .pred %p;
    .reg .u32 %n, %i, %block, %size, %thread;
    .reg .f32 %value;
    .reg .u64 %out, %offset;
    ld.param.u32 %n, [n];
    ld.param.f32 %value, [value];
    ld.param.u64 %out, [out];
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %size, %thread;
    setp.ge.u32 %p, %i, %n;
    @%p bra DONE;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %out, %out, %offset;
    st.f32 [%out], %value;
DONE:
    ret;
}

.visible .entry scale(.param .f32 a, .param .u64 x, .param .u64 len, .param .u64 y)
{
    .reg .pred %p;
    .reg .u32 %i, %block, %size, %thread;
    .reg .f32 %a, %v;
    .reg .u64 %x, %len, %y, %offset, %wide;
    ld.param.f32 %a, [a];
    ld.param.u64 %x, [x];
    ld.param.u64 %len, [len];
    ld.param.u64 %y, [y];
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %size, %thread;
    cvt.u64.u32 %wide, %i;
    setp.ge.u64 %p, %wide, %len;
    @%p bra DONE;
    setp.eq.u64 %p, %y, 0;
    @%p bra DONE;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %x, %x, %offset;
    add.u64 %y, %y, %offset;
    ld.f32 %v, [%x];
    mul.f32 %v, %a, %v;
    st.f32 [%y], %v;
DONE:
    ret;
}

.visible .entry bounded(.param .u64 out, .param .u64 len)
.maxntid 64, 1, 1
{
    .reg .pred %p;
    .reg .u32 %i, %block, %size, %thread, %v;
    .reg .u64 %out, %len, %offset, %wide;
    ld.param.u64 %out, [out];
    ld.param.u64 %len, [len];
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %size, %thread;
    cvt.u64.u32 %wide, %i;
    setp.ge.u64 %p, %wide, %len;
    @%p bra DONE;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %out, %out, %offset;
    ld.u32 %v, [%out];
    add.u32 %v, %v, 1;
    st.u32 [%out], %v;
DONE:
    ret;
}

.extern .shared .align 16 .b8 dynamic[];

.visible .entry last_of_dynamic_shared(.param .u32 bytes, .param .u64 out)
{
    .reg .pred %p;
    .reg .u32 %thread, %block, %bytes, %base, %v;
    .reg .u64 %out;
    ld.param.u32 %bytes, [bytes];
    ld.param.u64 %out, [out];
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    or.b32 %thread, %thread, %block;
    setp.ne.u32 %p, %thread, 0;
    @%p bra DONE;
    mov.u32 %base, dynamic;
    and.b32 %bytes, %bytes, 0xfffffffc;
    add.u32 %base, %base, %bytes;
    mov.u32 %v, 7;
    st.volatile.shared.u32 [%base + -4], %v;
    ld.volatile.shared.u32 %v, [%base + -4];
    st.u32 [%out], %v;
DONE:
    ret;
}

.visible .entry die()
{
    trap;
}
"#;
