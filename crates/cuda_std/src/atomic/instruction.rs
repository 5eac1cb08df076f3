//! Atomic instructions: `atom`, `ld`, `st`, `fence`.
//!
//! Macros, because every combination of operation, type, order and scope is an instruction of its own.

/// The qualifier of a scope.
macro_rules! scope {
    (block) => {
        ".cta"
    };
    (device) => {
        ".gpu"
    };
    (system) => {
        ".sys"
    };
}

/// The qualifiers of order and scope. Without an order an instruction is relaxed, or plainly volatile.
macro_rules! order {
    (atom volatile $scope:ident) => {
        $crate::atomic::instruction::scope!($scope)
    };
    ($any:ident volatile $scope:ident) => {
        ".volatile"
    };
    ($any:ident relaxed $scope:ident) => {
        concat!(".relaxed", $crate::atomic::instruction::scope!($scope))
    };
    ($any:ident acquire $scope:ident) => {
        concat!(".acquire", $crate::atomic::instruction::scope!($scope))
    };
    ($any:ident release $scope:ident) => {
        concat!(".release", $crate::atomic::instruction::scope!($scope))
    };
    ($any:ident acqrel $scope:ident) => {
        concat!(".acq_rel", $crate::atomic::instruction::scope!($scope))
    };
}

/// Operation and type, as `atom` has them: additions know no 64-bit signed type, and the logical ones no sign
/// at all.
macro_rules! operation {
    (add f32) => {
        ".add.f32"
    };
    (add f64) => {
        ".add.f64"
    };
    (min i32) => {
        ".min.s32"
    };
    (min i64) => {
        ".min.s64"
    };
    (max i32) => {
        ".max.s32"
    };
    (max i64) => {
        ".max.s64"
    };
    (add $ty:ident) => {
        concat!(".add", $crate::atomic::instruction::unsigned!($ty))
    };
    (min $ty:ident) => {
        concat!(".min", $crate::atomic::instruction::unsigned!($ty))
    };
    (max $ty:ident) => {
        concat!(".max", $crate::atomic::instruction::unsigned!($ty))
    };
    (inc u32) => {
        ".inc.u32"
    };
    (dec u32) => {
        ".dec.u32"
    };
    ($op:ident $ty:ident) => {
        concat!(".", stringify!($op), $crate::atomic::instruction::untyped!($ty))
    };
}

macro_rules! unsigned {
    (u32) => {
        ".u32"
    };
    (i32) => {
        ".u32"
    };
    (u64) => {
        ".u64"
    };
    (i64) => {
        ".u64"
    };
}

macro_rules! untyped {
    (u32) => {
        ".b32"
    };
    (i32) => {
        ".b32"
    };
    (f32) => {
        ".b32"
    };
    (u64) => {
        ".b64"
    };
    (i64) => {
        ".b64"
    };
    (f64) => {
        ".b64"
    };
}

/// `asm!` with operands in registers of the width of `$ty`.
macro_rules! in_registers {
    (u32 $($rest:tt)*) => { $crate::atomic::instruction::in_registers!(@ reg32 $($rest)*) };
    (i32 $($rest:tt)*) => { $crate::atomic::instruction::in_registers!(@ reg32 $($rest)*) };
    (f32 $($rest:tt)*) => { $crate::atomic::instruction::in_registers!(@ reg32 $($rest)*) };
    (u64 $($rest:tt)*) => { $crate::atomic::instruction::in_registers!(@ reg64 $($rest)*) };
    (i64 $($rest:tt)*) => { $crate::atomic::instruction::in_registers!(@ reg64 $($rest)*) };
    (f64 $($rest:tt)*) => { $crate::atomic::instruction::in_registers!(@ reg64 $($rest)*) };
    (@ $reg:ident $text:expr => $out:ident, $ptr:ident $(, $input:ident)*) => {
        core::arch::asm!($text, lateout($reg) $out, in(reg64) $ptr $(, in($reg) $input)*)
    };
    (@ $reg:ident $text:expr, $ptr:ident, $input:ident) => {
        core::arch::asm!($text, in(reg64) $ptr, in($reg) $input)
    };
}

macro_rules! fetch {
    ($op:ident $ty:ident $order:ident $scope:ident, $ptr:ident, $val:ident) => {{
        let old: $ty;
        // SAFETY: the caller vouches for the pointer.
        unsafe {
            $crate::atomic::instruction::in_registers!($ty concat!("atom", $crate::atomic::instruction::order!(atom $order $scope), $crate::atomic::instruction::operation!($op $ty), " {}, [{}], {};") => old, $ptr, $val)
        };
        old
    }};
}

macro_rules! cas {
    ($ty:ident $order:ident $scope:ident, $ptr:ident, $current:ident, $val:ident) => {{
        let old: $ty;
        // SAFETY: the caller vouches for the pointer.
        unsafe {
            $crate::atomic::instruction::in_registers!($ty concat!("atom", $crate::atomic::instruction::order!(atom $order $scope), $crate::atomic::instruction::operation!(cas $ty), " {}, [{}], {}, {};") => old, $ptr, $current, $val)
        };
        old
    }};
}

macro_rules! load {
    ($ty:ident $order:ident $scope:ident, $ptr:ident) => {{
        let value: $ty;
        // SAFETY: the caller vouches for the pointer.
        unsafe { $crate::atomic::instruction::in_registers!($ty concat!("ld", $crate::atomic::instruction::order!(ld $order $scope), $crate::atomic::instruction::unsigned!($ty), " {}, [{}];") => value, $ptr) };
        value
    }};
}

macro_rules! store {
    ($ty:ident $order:ident $scope:ident, $ptr:ident, $val:ident) => {
        // SAFETY: the caller vouches for the pointer.
        unsafe { $crate::atomic::instruction::in_registers!($ty concat!("st", $crate::atomic::instruction::order!(st $order $scope), $crate::atomic::instruction::unsigned!($ty), " [{}], {};"), $ptr, $val) }
    };
}

macro_rules! fence {
    (sc $scope:ident) => {
        $crate::atomic::instruction::fence!(concat!(
            "fence.sc",
            $crate::atomic::instruction::scope!($scope),
            ";"
        ))
    };
    (acqrel $scope:ident) => {
        $crate::atomic::instruction::fence!(concat!(
            "fence.acq_rel",
            $crate::atomic::instruction::scope!($scope),
            ";"
        ))
    };
    (membar block) => {
        $crate::atomic::instruction::fence!("membar.cta;")
    };
    (membar device) => {
        $crate::atomic::instruction::fence!("membar.gl;")
    };
    (membar system) => {
        $crate::atomic::instruction::fence!("membar.sys;")
    };
    ($text:expr) => {
        // SAFETY: a fence touches no memory of its own.
        unsafe { core::arch::asm!($text) }
    };
}

pub(crate) use {cas, fence, fetch, load, store};
pub(crate) use {in_registers, operation, order, scope, unsigned, untyped};
