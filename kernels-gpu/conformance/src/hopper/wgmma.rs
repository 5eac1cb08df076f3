//! Products of a warpgroup: each pair of types, every width, both orders of 16-bit operands, A in shared
//! memory and in registers.
//!
//! The host lays out the operands. So the tests, and not the device library, define where an element lies.

use cuda_std::wgmma::{self, Accumulator, BF16, E4M3, E5M2, F16, Operand, TF32};
use cuda_std::{fence, kernel, shared, thread, vector};

/// Threads of the only warpgroup.
pub const THREADS: usize = 128;
/// Products per launch, one after the other along k.
pub const STEPS: usize = 4;
/// Operands lie at multiples of this many bytes in shared memory: the period of the widest swizzle.
pub const OPERAND_ALIGN: u32 = 1024;

/// An operand in shared memory.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct OperandImage {
    /// Its descriptor if it were at address 0.
    pub descriptor: u64,
    /// Bytes of its image, a multiple of 16.
    pub bytes: u32,
    /// Bytes from one product's operand to the next one's, a multiple of 16.
    pub step: u32,
}

impl OperandImage {
    /// The descriptor of a product's operand in the image at `base`.
    #[inline(always)]
    fn at(&self, base: u32, step: u32) -> u64 {
        // Addresses are in units of 16 bytes, in the lowest bits.
        self.descriptor + u64::from((base + step * self.step) >> 4)
    }
}

/// Copies an image into shared memory.
///
/// # Safety
/// Both are 16-byte aligned and hold the image's bytes; [`THREADS`] threads call it.
#[inline(always)]
unsafe fn fill(dst: u32, src: *const u32, bytes: u32) {
    let mut offset = 16 * thread::thread_idx_x();
    while offset < bytes {
        // SAFETY: in bounds of both, by the caller's promise.
        unsafe {
            let piece: [u32; 4] = vector::load_nc_v4(src.add(offset as usize / 4));
            vector::store_shared_v4(dst + offset, piece);
        }
        offset += 16 * THREADS as u32;
    }
}

/// Loads and stores accumulators, four at a time. Every index is a constant: run-time indices would force the
/// accumulators into local memory.
macro_rules! accumulators {
    ($($quad:literal)*) => {
        /// This thread's accumulators at `d`.
        ///
        /// # Safety
        /// `d` points to them, 16-byte aligned.
        #[inline(always)]
        unsafe fn load<const LEN: usize>(d: *const f32) -> [f32; LEN] {
            // SAFETY: zero bits are the float 0; in bounds by the caller's promise.
            unsafe {
                let mut acc: [f32; LEN] = core::mem::zeroed();
                $(if 4 * $quad < LEN {
                    let four: [f32; 4] = vector::load_v4(d.add(4 * $quad));
                    acc[4 * $quad] = four[0];
                    acc[4 * $quad + 1] = four[1];
                    acc[4 * $quad + 2] = four[2];
                    acc[4 * $quad + 3] = four[3];
                })*
                acc
            }
        }

        /// # Safety
        /// As [`load`].
        #[inline(always)]
        unsafe fn store<const LEN: usize>(d: *mut f32, acc: &[f32; LEN]) {
            $(if 4 * $quad < LEN {
                let four = [acc[4 * $quad], acc[4 * $quad + 1], acc[4 * $quad + 2], acc[4 * $quad + 3]];
                // SAFETY: in bounds by the caller's promise.
                unsafe { vector::store_v4(d.add(4 * $quad), four) };
            })*
        }
    };
}

accumulators!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);

/// `D = A B`, or `D += A B`, over [`STEPS`] products with both operands in shared memory.
///
/// # Safety
/// As the kernels.
#[inline(always)]
unsafe fn both_shared<A: Operand, B: Operand, const LEN: usize, const TRANS_A: u32, const TRANS_B: u32>(
    images: [OperandImage; 2],
    a: *const u32,
    b: *const u32,
    accumulate: u32,
    d: *mut f32,
) where
    [f32; LEN]: Accumulator,
{
    let [a_image, b_image] = images;
    let a_tile = shared::address_of(shared::dynamic_shared_mem::<u8>());
    let b_tile = a_tile + a_image.bytes.next_multiple_of(OPERAND_ALIGN);
    // SAFETY: the launch gives room for both images; a fence and a barrier separate the writes from the
    // products; the whole warpgroup is here; the accumulators are accessed only before the fence and after
    // the wait.
    unsafe {
        fill(a_tile, a, a_image.bytes);
        fill(b_tile, b, b_image.bytes);
        fence::proxy_async_shared();
        thread::sync_threads();
        let d = d.add(thread::thread_idx_x() as usize * LEN);
        let mut acc = load::<LEN>(d);
        wgmma::fence_registers(&mut acc);
        wgmma::fence();
        let mut product = |step: u32, scale_d: bool| {
            let (a, b) = (a_image.at(a_tile, step), b_image.at(b_tile, step));
            wgmma::mma::<A, B, _, TRANS_A, TRANS_B>(&mut acc, a, b, scale_d);
        };
        product(0, accumulate != 0);
        product(1, true);
        product(2, true);
        product(3, true);
        wgmma::commit_group();
        wgmma::wait_group::<0>();
        wgmma::fence_registers(&mut acc);
        store(d, &acc);
    }
}

/// As [`both_shared`] with A in registers: `a` has the four registers of each thread for product 0, then for
/// product 1, and so on.
///
/// # Safety
/// As the kernels.
#[inline(always)]
unsafe fn a_in_registers<A: Operand, B: Operand, const LEN: usize, const TRANS_B: u32>(
    b_image: OperandImage,
    a: *const u32,
    b: *const u32,
    accumulate: u32,
    d: *mut f32,
) where
    [f32; LEN]: Accumulator,
{
    let b_tile = shared::address_of(shared::dynamic_shared_mem::<u8>());
    let t = thread::thread_idx_x() as usize;
    // SAFETY: as in `both_shared`; four registers per thread and product.
    unsafe {
        fill(b_tile, b, b_image.bytes);
        fence::proxy_async_shared();
        thread::sync_threads();
        let a = |step: usize| -> [u32; 4] { vector::load_nc_v4(a.add(4 * (step * THREADS + t))) };
        let a = [a(0), a(1), a(2), a(3)];
        let d = d.add(t * LEN);
        let mut acc = load::<LEN>(d);
        wgmma::fence_registers(&mut acc);
        wgmma::fence();
        let mut product = |step: u32, scale_d: bool| {
            let b = b_image.at(b_tile, step);
            wgmma::mma_ra::<A, B, _, TRANS_B>(&mut acc, &a[step as usize], b, scale_d);
        };
        product(0, accumulate != 0);
        product(1, true);
        product(2, true);
        product(3, true);
        wgmma::commit_group();
        wgmma::wait_group::<0>();
        wgmma::fence_registers(&mut acc);
        store(d, &acc);
    }
}

/// Kernels with both operands in shared memory: types, columns, orders.
macro_rules! both_shared {
    ($($name:ident: $a:ident, $b:ident, $n:literal, $trans_a:literal, $trans_b:literal;)*) => { $(
        #[doc = concat!("64 x ", $n, ", ", stringify!($a), " x ", stringify!($b), ", transposed: ", $trans_a, ", ", $trans_b, ".")]
        ///
        /// # Safety
        /// One warpgroup; the images are as their descriptors say, and 16-byte aligned; the launch gives
        /// shared memory for both, each rounded up to [`OPERAND_ALIGN`]; `d` has the accumulators of thread
        /// 0, then of thread 1, and so on.
        #[kernel(launch_bounds(128))]
        pub unsafe fn $name(images: [OperandImage; 2], a: *const u32, b: *const u32, accumulate: u32, d: *mut f32) {
            // SAFETY: the caller keeps the contract.
            unsafe {
                both_shared::<$a, $b, { $n / 2 }, $trans_a, $trans_b>(images, a, b, accumulate, d);
            }
        }
    )* };
}

both_shared! {
    wgmma_f16: F16, F16, 64, 0, 0;
    wgmma_f16_tn: F16, F16, 64, 1, 0;
    wgmma_f16_nt: F16, F16, 128, 0, 1;
    wgmma_f16_tt: F16, F16, 256, 1, 1;
    wgmma_bf16_nt: BF16, BF16, 64, 0, 1;
    wgmma_bf16_tt: BF16, BF16, 192, 1, 1;
    wgmma_tf32: TF32, TF32, 128, 0, 0;
    wgmma_tf32_wide: TF32, TF32, 256, 0, 0;
    wgmma_e4m3: E4M3, E4M3, 96, 0, 0;
    wgmma_e5m2: E5M2, E5M2, 8, 0, 0;
    wgmma_e4m3_e5m2: E4M3, E5M2, 256, 0, 0;
    wgmma_e5m2_e4m3: E5M2, E4M3, 40, 0, 0;
}

/// Kernels with A in registers: types, columns, order of B.
macro_rules! a_in_registers {
    ($($name:ident: $a:ident, $b:ident, $n:literal, $trans_b:literal;)*) => { $(
        #[doc = concat!("64 x ", $n, ", ", stringify!($a), " in registers x ", stringify!($b), ", transposed: ", $trans_b, ".")]
        ///
        /// # Safety
        /// As the kernels with both operands in shared memory; `a` has four registers a thread a product,
        /// 16-byte aligned.
        #[kernel(launch_bounds(128))]
        pub unsafe fn $name(image: OperandImage, a: *const u32, b: *const u32, accumulate: u32, d: *mut f32) {
            // SAFETY: the caller keeps the contract.
            unsafe { a_in_registers::<$a, $b, { $n / 2 }, $trans_b>(image, a, b, accumulate, d) };
        }
    )* };
}

a_in_registers! {
    wgmma_ra_f16: F16, F16, 64, 0;
    wgmma_ra_f16_t: F16, F16, 128, 1;
    wgmma_ra_bf16: BF16, BF16, 256, 0;
    wgmma_ra_bf16_t: BF16, BF16, 72, 1;
    wgmma_ra_tf32: TF32, TF32, 64, 0;
    wgmma_ra_e4m3: E4M3, E4M3, 128, 0;
    wgmma_ra_e5m2: E5M2, E5M2, 16, 0;
    wgmma_ra_e4m3_e5m2: E4M3, E5M2, 64, 0;
    wgmma_ra_e5m2_e4m3: E5M2, E4M3, 64, 0;
}

/// bf16 at every width: `n` is 8, 16, .., 256.
///
/// # Safety
/// As the other kernels with both operands in shared memory.
#[kernel(launch_bounds(128))]
pub unsafe fn wgmma_widths(
    n: u32,
    images: [OperandImage; 2],
    a: *const u32,
    b: *const u32,
    accumulate: u32,
    d: *mut f32,
) {
    macro_rules! widths {
        ($($n:literal)*) => {
            match n {
                // SAFETY: the caller keeps the contract.
                $($n => unsafe {
                    both_shared::<BF16, BF16, { $n / 2 }, 0, 0>(images, a, b, accumulate, d);
                },)*
                _ => {}
            }
        };
    }
    widths!(
        8 16 24 32 40 48 56 64 72 80 88 96 104 112 120 128 136 144 152 160 168 176 184 192 200 208 216 224 232 240 248 256
    )
}
