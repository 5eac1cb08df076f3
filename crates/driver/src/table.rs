//! The table: each driver function has one slot and one trampoline.
//!
//! ```text
//!  caller (cust) -> cuMemAlloc_v2:  jmp [SLOTS + 8 * index]
//!                                     |- before cuInit:     answers NOT_INITIALIZED
//!                                     |- plain:             the driver's function
//!                                     '- counted, armed:    gate -> fault::enter -> the driver's function, or an error code
//! ```
//!
//! A trampoline changes no register, so it works for every signature. The gate saves the argument registers,
//! asks [`crate::fault`] whether this call must fail, restores the registers, and jumps to the driver's
//! function.

use crate::{code, names::for_each_function};
use core::{
    arch::naked_asm,
    ffi::c_void,
    sync::atomic::{AtomicPtr, Ordering},
};

/// The address of a driver function, a trampoline or a gate.
pub(crate) type Address = *const c_void;

/// Answers every call until `cuInit` has filled the table.
extern "C" fn not_initialized() -> u32 {
    code::NOT_INITIALIZED
}

/// Answers calls of functions that the loaded driver does not have.
extern "C" fn not_supported() -> u32 {
    code::NOT_SUPPORTED
}

/// The answer of [`crate::fault::enter`] to the gate, in the two registers that return a pair of words.
#[repr(C)]
pub(crate) struct Verdict {
    /// The jump target. Null: return `code` to the caller.
    pub target: Address,
    pub code: u64,
}

/// Saves the argument registers, calls `fault::enter(index)` and follows its verdict.
///
/// In: the caller's registers and stack as at the call; the function's index in `eax` (x86-64) or `w9`
/// (aarch64).
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn gate() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 24", // keeps rsp a multiple of 16 at the call; xmm0 holds the one float argument there can be
        "movsd qword ptr [rsp], xmm0",
        "mov edi, eax",
        "call {enter}",
        "mov r11, rax",
        "mov r10d, edx",
        "movsd xmm0, qword ptr [rsp]",
        "add rsp, 24",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test r11, r11",
        "jz 2f",
        "jmp r11",
        "2:",
        "mov eax, r10d",
        "ret",
        enter = sym crate::fault::enter,
    )
}

/// See the x86-64 form.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn gate() {
    naked_asm!(
        "sub sp, sp, #80",
        "stp x0, x1, [sp]",
        "stp x2, x3, [sp, #16]",
        "stp x4, x5, [sp, #32]",
        "stp x6, x7, [sp, #48]",
        "str d0, [sp, #64]",
        "str x30, [sp, #72]",
        "mov w0, w9",
        "bl {enter}",
        "mov x16, x0",
        "mov w17, w1",
        "ldp x0, x1, [sp]",
        "ldp x2, x3, [sp, #16]",
        "ldp x4, x5, [sp, #32]",
        "ldp x6, x7, [sp, #48]",
        "ldr d0, [sp, #64]",
        "ldr x30, [sp, #72]",
        "add sp, sp, #80",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "mov w0, w17",
        "ret",
        enter = sym crate::fault::enter,
    )
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "the driver table has trampolines for x86-64 and aarch64 only; add one for this processor in table.rs"
);

/// The instruction that jumps through slot `$index`.
macro_rules! jump_through_slot {
    ($index:expr) => {
        #[cfg(target_arch = "x86_64")]
        naked_asm!("jmp qword ptr [rip + {slots} + {offset}]", slots = sym SLOTS, offset = const 8 * $index);
        #[cfg(target_arch = "aarch64")]
        naked_asm!(
            "adrp x16, {slots} + {offset}",
            "ldr x16, [x16, :lo12:{slots} + {offset}]",
            "br x16",
            slots = sym SLOTS,
            offset = const 8 * $index,
        );
    };
}

/// The instruction pair that enters the gate as function `$index`.
macro_rules! jump_to_gate {
    ($index:expr) => {
        #[cfg(target_arch = "x86_64")]
        naked_asm!("mov eax, {index}", "jmp {gate}", index = const $index, gate = sym gate);
        #[cfg(target_arch = "aarch64")]
        naked_asm!("mov w9, #{index}", "b {gate}", index = const $index, gate = sym gate);
    };
}

macro_rules! define_table {
    (declared: $($declared:ident)* ; extra: $($extra:ident)* ;) => {
        /// Every driver function that has a slot. Its value is the number of the slot.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        #[allow(non_camel_case_types, missing_docs, clippy::enum_variant_names, reason = "the names are CUDA's")]
        pub(crate) enum Function { cuInit, $($declared,)* $($extra,)* }

        impl Function {
            /// All functions, in the order of their slots.
            pub(crate) const ALL: &'static [Function] =
                &[Function::cuInit, $(Function::$declared,)* $(Function::$extra,)*];

            /// The name in CUDA's API.
            pub(crate) fn name(self) -> &'static str {
                const NAMES: &[&str] = &["cuInit", $(stringify!($declared),)* $(stringify!($extra),)*];
                NAMES[self as usize]
            }

            /// The trampoline's address. Callers use it.
            pub(crate) fn trampoline(self) -> Address {
                match self {
                    Function::cuInit => crate::load::cuInit as Address,
                    $(Function::$declared => $declared as Address,)*
                    $(Function::$extra => $extra as Address,)*
                }
            }

            /// The entry that counts the call and may fail it.
            fn gate(self) -> Address {
                match self {
                    Function::cuInit => crate::load::cuInit as Address, // counts itself
                    $(Function::$declared => gates::$declared as Address,)*
                    $(Function::$extra => gates::$extra as Address,)*
                }
            }
        }

        /// One entry per function: loads the function's number and jumps to the gate.
        mod gates {
            use super::{Function, gate, naked_asm};
            $(
                #[unsafe(naked)]
                #[allow(non_snake_case, reason = "the names are CUDA's")]
                pub(super) unsafe extern "C" fn $declared() { jump_to_gate!(Function::$declared as usize); }
            )*
            $(
                #[unsafe(naked)]
                #[allow(non_snake_case, reason = "the names are CUDA's")]
                pub(super) unsafe extern "C" fn $extra() { jump_to_gate!(Function::$extra as usize); }
            )*
        }

        $(
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "the symbol that cust links")]
            unsafe extern "C" fn $declared() { jump_through_slot!(Function::$declared as usize); }
        )*
        $(
            #[unsafe(naked)]
            #[allow(non_snake_case, reason = "the names are CUDA's")]
            unsafe extern "C" fn $extra() { jump_through_slot!(Function::$extra as usize); }
        )*
    };
}
for_each_function!(define_table);

/// The number of functions with a slot.
pub(crate) const COUNT: usize = Function::ALL.len();

const fn unfilled() -> [AtomicPtr<c_void>; COUNT] {
    let mut slots = [const { AtomicPtr::new(not_initialized as *mut c_void) }; COUNT];
    // As in NVIDIA's library, these two work before cuInit: error messages need them.
    slots[Function::cuGetErrorName as usize] = AtomicPtr::new(crate::code::error_name as *mut c_void);
    slots[Function::cuGetErrorString as usize] = AtomicPtr::new(crate::code::error_string as *mut c_void);
    slots
}

/// The jump target of each trampoline: the driver's function or its gate.
static SLOTS: [AtomicPtr<c_void>; COUNT] = unfilled();
/// The loaded driver's function of each slot.
static TARGETS: [AtomicPtr<c_void>; COUNT] = unfilled();

impl Function {
    /// The function called `name` in CUDA's API.
    pub(crate) fn from_name(name: &str) -> Option<Function> {
        Function::ALL.iter().copied().find(|f| f.name() == name)
    }

    /// The loaded driver's function behind the slot.
    pub(crate) fn target(self) -> Address {
        TARGETS[self as usize].load(Ordering::Acquire)
    }
}

/// Fills the table. `find` returns the driver's function, or `None` if it lacks one. `counted` inserts the
/// gates.
pub(crate) fn fill(find: impl Fn(Function) -> Option<Address>, counted: bool) {
    for &function in Function::ALL {
        let target = find(function).unwrap_or(not_supported as Address);
        TARGETS[function as usize].store(target.cast_mut(), Ordering::Release);
    }
    set_counted(counted);
}

/// Whether the loaded driver has `function`.
pub(crate) fn has(function: Function) -> bool {
    let target = function.target();
    target != not_supported as Address && target != not_initialized as Address
}

/// Routes all slots through their gates, or directly to the driver.
pub(crate) fn set_counted(counted: bool) {
    for &function in Function::ALL {
        let next = if counted { function.gate() } else { function.target() };
        SLOTS[function as usize].store(next.cast_mut(), Ordering::Release);
    }
}
