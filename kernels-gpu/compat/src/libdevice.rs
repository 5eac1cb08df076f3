//! `cuda_std::intrinsics`: a kernel for each kind of function.
#![allow(unsafe_op_in_unsafe_fn)]

use cuda_std::intrinsics as nv;
use cuda_std::prelude::*;

/// `x / y` and `x + y` in the four directions, in both widths.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn nv_directions(x: &[f64], y: f64, out: *mut [f64; 16]) {
    let i = thread::index_1d() as usize;
    if i >= x.len() {
        return;
    }
    let (a, b) = (x[i] as f32, y as f32);
    *out.add(i) = [
        nv::ddiv_rd(x[i], y),
        nv::ddiv_rn(x[i], y),
        nv::ddiv_ru(x[i], y),
        nv::ddiv_rz(x[i], y),
        nv::fma_rd(x[i], y, 1.0),
        nv::fma_rn(x[i], y, 1.0),
        nv::fma_ru(x[i], y, 1.0),
        nv::fma_rz(x[i], y, 1.0),
        f64::from(nv::fadd_rd(a, b)),
        f64::from(nv::fadd_rn(a, b)),
        f64::from(nv::fadd_ru(a, b)),
        f64::from(nv::fadd_rz(a, b)),
        f64::from(nv::fsqrt_rd(a)),
        f64::from(nv::frcp_ru(a)),
        f64::from(nv::double2float_rz(x[i])),
        f64::from(nv::ll2float_ru(nv::double2ll_rd(x[i] * 1e12))),
    ];
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn nv_integers(x: &[i32], y: i32, out: *mut [i32; 16]) {
    let i = thread::index_1d() as usize;
    if i >= x.len() {
        return;
    }
    let v = x[i];
    *out.add(i) = [
        nv::abs(v),
        nv::brev(v),
        nv::byte_perm(v, y, 0x5410),
        nv::clz(v),
        nv::ffs(v),
        nv::popc(v),
        nv::hadd(v, y),
        nv::rhadd(v, y),
        nv::mul24(v, y),
        nv::mulhi(v, y),
        nv::umulhi(v, y),
        nv::sad(v, y, 1),
        nv::max(v, y),
        nv::umin(v, y),
        nv::float_as_int(nv::int_as_float(v & 0x3fff_ffff)),
        nv::float2int_rn(nv::int2float_rz(v >> 8) * 0.5),
    ];
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn nv_pointers(x: &[f64], out: *mut [f64; 6], whole: *mut i32) {
    let i = thread::index_1d() as usize;
    if i >= x.len() {
        return;
    }
    let (mut exponent, mut integer) = (0, 0.0);
    let (mut sin, mut cos) = (0.0f32, 0.0f32);
    let fraction = nv::frexp(x[i], &mut exponent);
    let rest = nv::modf(x[i], &mut integer);
    nv::sincospif(x[i] as f32, &mut sin, &mut cos);
    let remainder = nv::remquo(x[i], 0.75, whole.add(i));
    *out.add(i) = [nv::ldexp(fraction, exponent), rest, integer, f64::from(sin), f64::from(cos), remainder];
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn nv_functions(x: &[f64], out: *mut [f64; 8]) {
    let i = thread::index_1d() as usize;
    if i < x.len() {
        *out.add(i) = [
            nv::sqrt(x[i]),
            nv::rsqrt(x[i]),
            nv::erfinv(nv::erf(x[i] * 0.25)),
            nv::exp10(nv::log10(x[i])),
            f64::from(nv::powif(x[i] as f32, -2)),
            nv::fmod(x[i] * 1e9, 7.0),
            f64::from(nv::normcdff(0.0)),
            nv::nextafter(x[i], 0.0),
        ];
    }
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn nv_fast(x: &[f32], out: *mut [f32; 8]) {
    let i = thread::index_1d() as usize;
    if i < x.len() {
        let v = x[i];
        *out.add(i) = [
            nv::fast_expf(v),
            nv::fast_logf(v),
            nv::fast_log10f(v),
            nv::fast_powf(v, 2.0),
            nv::fast_fdividef(v, 3.0),
            nv::fast_sinf(v),
            nv::fast_cosf(v),
            nv::fast_tanf(v * 0.25),
        ];
    }
}
