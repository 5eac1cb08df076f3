//! The table of the operations that read, change and write.

/// Calls `$then!` with all rows. A row is one operation:
///
/// `name "its doc" { PTX operation |old, operands| new value } type PTX-type registers, .. ;`
///
/// * The name is a part of the functions' names, and the operands are their parameters behind the pointer.
/// * The device runs `atom.<order>.<scope>.<PTX operation>.<PTX type>`, the executor computes the new value.
/// * `, operand = value` behind the new value changes an operand first, for both: PTX has no `atom.sub`.
/// * Additions know no signed type in PTX, and the operations on bits no sign at all.
macro_rules! operations {
    ($then:ident) => {
        $then! {
            add "Adds `val`" { add |old, val| old.wrapping_add(val) }
                u32 u32 reg32, i32 u32 reg32, u64 u64 reg64, i64 u64 reg64;
            add "Adds `val`" { add |old, val| old + val } f32 f32 reg32, f64 f64 reg64;
            sub "Subtracts `val`, by adding its negative"
                { add |old, val| old.wrapping_add(val), val = val.wrapping_neg() }
                u32 u32 reg32, i32 u32 reg32, u64 u64 reg64, i64 u64 reg64;
            sub "Subtracts `val`, by adding its negative"
                { add |old, val| old + val, val = -val } f32 f32 reg32, f64 f64 reg64;
            and "Bitwise and with the bits of `val`"
                { and |old, val| on_bits(old, val, |old, val| old & val) }
                u32 b32 reg32, i32 b32 reg32, f32 b32 reg32, u64 b64 reg64, i64 b64 reg64, f64 b64 reg64;
            or "Bitwise or with the bits of `val`" { or |old, val| on_bits(old, val, |old, val| old | val) }
                u32 b32 reg32, i32 b32 reg32, f32 b32 reg32, u64 b64 reg64, i64 b64 reg64, f64 b64 reg64;
            xor "Bitwise exclusive or with the bits of `val`"
                { xor |old, val| on_bits(old, val, |old, val| old ^ val) }
                u32 b32 reg32, i32 b32 reg32, f32 b32 reg32, u64 b64 reg64, i64 b64 reg64, f64 b64 reg64;
            exch "Puts `val` in" { exch |_old, val| val }
                u32 b32 reg32, i32 b32 reg32, f32 b32 reg32, u64 b64 reg64, i64 b64 reg64, f64 b64 reg64;
            cas "Puts `val` in where `current` is found, bit for bit"
                { cas |old, current, val| if same_bits(old, current) { val } else { old } }
                u32 b32 reg32, i32 b32 reg32, f32 b32 reg32, u64 b64 reg64, i64 b64 reg64, f64 b64 reg64;
            min "Puts `val` in where it is smaller" { min |old, val| old.min(val) }
                u32 u32 reg32, i32 s32 reg32, u64 u64 reg64, i64 s64 reg64;
            max "Puts `val` in where it is larger" { max |old, val| old.max(val) }
                u32 u32 reg32, i32 s32 reg32, u64 u64 reg64, i64 s64 reg64;
            inc "Adds 1, or puts 0 in where the value is `val` or more"
                { inc |old, val| if old >= val { 0 } else { old + 1 } } u32 u32 reg32;
            dec "Subtracts 1, or puts `val` in where the value is 0 or more than `val`"
                { dec |old, val| if old == 0 || old > val { val } else { old - 1 } } u32 u32 reg32;
        }
    };
}

pub(super) use operations;
