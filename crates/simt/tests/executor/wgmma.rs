//! Products of warpgroups: values for every type, size and layout, the faults of wrong calls, and operands in
//! flight.

use crate::common::fault;
use ironwarp_simt::wgmma::{self, Format, Left, Major, Shared};
use ironwarp_simt::{FaultKind, LaunchConfig, Options, StaticKey, shared, thread};
use layout::wgmma::{Swizzle, advance, descriptor, units};
use num::{E4M3, E5M2, bf16, f16};

mod flight;

const M: usize = 64;
const THREADS: u32 = 128;
const SWIZZLES: [Swizzle; 4] = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];
const FORMATS: [Format; 5] = [Format::F16, Format::Bf16, Format::Tf32, Format::E4m3, Format::E5m2];

/// Small whole numbers: exact in every format, and so are their sums of products.
fn value(row: usize, k: usize, salt: usize) -> f32 {
    let mixed = (row * 31 + k * 17 + salt * 7 + row * k) % 15;
    mixed as f32 - 7.0
}

fn encode(format: Format, x: f32) -> Vec<u8> {
    match format {
        Format::F16 => f16::from_f32(x).to_bits().to_le_bytes().to_vec(),
        Format::Bf16 => bf16::from_f32(x).to_bits().to_le_bytes().to_vec(),
        // Bits that the tensor cores do not read.
        Format::Tf32 => (x.to_bits() | 0x1fff).to_le_bytes().to_vec(),
        Format::E4m3 => vec![E4M3::from_f32(x).to_bits()],
        Format::E5m2 => vec![E5M2::from_f32(x).to_bits()],
    }
}

/// An operand of `rows` rows (of m or n) and one instruction's k, as bytes of shared memory that begin at a
/// multiple of 1024, and its descriptor there.
struct Operand {
    bytes: Vec<u8>,
    leading: u32,
    stride: u32,
    swizzle: Swizzle,
    major: Major,
}

impl Operand {
    fn new(format: Format, rows: usize, salt: usize, major: Major, swizzle: Swizzle) -> Self {
        let size = format.bytes() as usize;
        let span = swizzle.span() as usize;
        let tiled = swizzle != Swizzle::None;
        let (leading, stride) = match (major, tiled) {
            // Rows of the swizzle's span; without one, core matrices of 128 bytes one below the other.
            (Major::K, true) => (16, 8 * span),
            (Major::K, false) => (rows * 16, 128),
            // Boxes of `span` bytes of m or n and 16 of k; without a swizzle, core matrices one beside the
            // other.
            (Major::MN, true) => (16 * span, 8 * span),
            (Major::MN, false) => (rows * 16, 128),
        };
        let mut bytes = Vec::new();
        for row in 0..rows {
            for k in 0..format.k() {
                let plain = match (major, tiled) {
                    (Major::K, true) => row * span + k * size,
                    (Major::K, false) => k * size / 16 * leading + row * 16 + k * size % 16,
                    (Major::MN, true) => row * size / span * leading + k * span + row * size % span,
                    (Major::MN, false) => k / 8 * leading + row / 8 * stride + k % 8 * 16 + row % 8 * size,
                };
                let line = plain / 128;
                let moved = if tiled { plain ^ ((line % (span / 16)) << 4) } else { plain };
                bytes.resize(bytes.len().max((moved + size).next_multiple_of(16)), 0);
                bytes[moved..moved + size].copy_from_slice(&encode(format, value(row, k, salt)));
            }
        }
        Self { bytes, leading: leading as u32, stride: stride as u32, swizzle, major }
    }

    /// Copies it to shared memory, with all threads of the block, and returns the operand there.
    fn place(&self, key: &'static StaticKey) -> Shared {
        let to = shared::alloc_static(key, self.bytes.len(), 1024);
        let words = self.bytes.chunks_exact(4).enumerate();
        let mine = words.skip(thread::thread_idx()[0] as usize).step_by(thread::block_dim()[0] as usize);
        for (at, word) in mine {
            // SAFETY: within the variable, which each thread writes in its own places.
            unsafe {
                ironwarp_simt::memory::store(
                    to.cast::<[u8; 4]>().add(at),
                    [word[0], word[1], word[2], word[3]],
                )
            };
        }
        self.at(shared::to_address(to))
    }

    fn at(&self, address: u32) -> Shared {
        let descriptor = descriptor(address, self.leading, self.stride, self.swizzle);
        Shared { descriptor, major: self.major }
    }
}

static A: StaticKey = StaticKey::new("A");
static B: StaticKey = StaticKey::new("B");

/// The fences and barrier that a kernel needs before its products read data that threads wrote.
fn ready() {
    ironwarp_simt::memory::proxy_fence();
    ironwarp_simt::barrier::sync(0, None);
    wgmma::fence();
}

/// Runs `body` in a block of one warpgroup. Returns each thread's accumulators.
fn run(body: impl Fn(usize) -> Vec<f32> + Sync) -> Vec<Vec<f32>> {
    let results = std::sync::Mutex::new(vec![Vec::new(); THREADS as usize]);
    ironwarp_simt::run(&LaunchConfig::linear(1, THREADS), &Options::default(), || {
        let rank = thread::thread_idx()[0] as usize;
        let acc = body(rank);
        results.lock().unwrap()[rank] = acc;
    })
    .unwrap_or_else(|fault| panic!("{fault}"));
    results.into_inner().unwrap()
}

/// Element `(row, column)` of D, from the accumulators of the thread that holds it.
fn element(acc: &[Vec<f32>], row: usize, column: usize) -> f32 {
    let thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
    acc[thread][column / 8 * 4 + row % 16 / 8 * 2 + column % 2]
}

fn expect(acc: &[Vec<f32>], n: usize, k: usize, start: impl Fn(usize, usize) -> f64, what: &str) {
    for row in 0..M {
        for column in 0..n {
            let products = (0..k).map(|k| f64::from(value(row, k, 1)) * f64::from(value(column, k, 2)));
            let want = start(row, column) + products.sum::<f64>();
            assert_eq!(f64::from(element(acc, row, column)), want, "{what}: ({row}, {column})");
        }
    }
}

fn product(n: usize, a: &Operand, b: &Operand, formats: [Format; 2], scale_d: bool) -> Vec<Vec<f32>> {
    run(|rank| {
        let (a, b) = (a.place(&A), b.place(&B));
        ready();
        let mut acc = vec![rank as f32; n / 2];
        wgmma::mma(&mut acc, formats, Left::Shared(a), b, scale_d);
        wgmma::commit();
        wgmma::wait(0);
        acc
    })
}

#[test]
fn every_type_and_swizzle_k_major() {
    for format in FORMATS {
        for swizzle in SWIZZLES {
            let a = Operand::new(format, M, 1, Major::K, swizzle);
            let b = Operand::new(format, 64, 2, Major::K, swizzle);
            let acc = product(64, &a, &b, [format; 2], false);
            expect(&acc, 64, format.k(), |_, _| 0.0, &format!("{format:?} {swizzle:?}"));
        }
    }
}

#[test]
fn every_size_of_n() {
    let format = Format::Bf16;
    for n in (8..=256).step_by(8) {
        let a = Operand::new(format, M, 1, Major::K, Swizzle::B128);
        let b = Operand::new(format, n, 2, Major::K, Swizzle::B32);
        let acc = product(n, &a, &b, [format; 2], true);
        let thread = |row: usize, column: usize| (row / 16 * 32 + row % 8 * 4 + column % 8 / 2) as f64;
        expect(&acc, n, format.k(), thread, &format!("n = {n}"));
    }
}

#[test]
fn either_order_of_16_bit_operands() {
    for format in [Format::F16, Format::Bf16] {
        for swizzle in SWIZZLES {
            for (major_a, major_b) in [(Major::MN, Major::K), (Major::K, Major::MN), (Major::MN, Major::MN)] {
                let a = Operand::new(format, M, 1, major_a, swizzle);
                let b = Operand::new(format, 128, 2, major_b, swizzle);
                let acc = product(128, &a, &b, [format; 2], false);
                expect(&acc, 128, format.k(), |_, _| 0.0, &format!("{swizzle:?} {major_a:?} {major_b:?}"));
            }
        }
    }
}

#[test]
fn the_two_8_bit_formats_mix() {
    for formats in [[Format::E4m3, Format::E5m2], [Format::E5m2, Format::E4m3]] {
        let a = Operand::new(formats[0], M, 1, Major::K, Swizzle::B32);
        let b = Operand::new(formats[1], 16, 2, Major::K, Swizzle::B32);
        let acc = product(16, &a, &b, formats, false);
        expect(&acc, 16, 32, |_, _| 0.0, "mixed");
    }
}

/// Register `r` of lane `4 g + t`: four bytes of k from `4 t + 16 (r / 2)` of row `g + 8 (r % 2)`.
fn registers(format: Format, rank: usize) -> [u32; 4] {
    let row = rank / 32 * 16 + rank % 32 / 4;
    std::array::from_fn(|register| {
        let size = format.bytes() as usize;
        let first = (rank % 4 * 4 + register / 2 * 16) / size;
        let bytes: Vec<u8> = (first..first + 4 / size)
            .flat_map(|k| encode(format, value(row + register % 2 * 8, k, 1)))
            .collect();
        u32::from_le_bytes(bytes.try_into().unwrap())
    })
}

#[test]
fn a_in_registers() {
    for format in FORMATS {
        let b = Operand::new(format, 40, 2, Major::K, Swizzle::B64);
        let acc = run(|rank| {
            let b = b.place(&B);
            ready();
            let mut acc = vec![0.5; 20];
            wgmma::mma(&mut acc, [format; 2], Left::Registers(registers(format, rank)), b, true);
            wgmma::commit();
            wgmma::wait(0);
            acc
        });
        expect(&acc, 40, format.k(), |_, _| 0.5, &format!("{format:?}"));
    }
}

/// Two warpgroups with their own rows of A, several products of a tile of 64 elements of k, one group.
#[test]
fn warpgroups_work_by_themselves() {
    let tile = |rows: usize, salt: usize| {
        let mut bytes = vec![0; rows * 128];
        for row in 0..rows {
            for k in 0..64 {
                let plain = row * 128 + k * 2;
                let moved = plain ^ ((row % 8) << 4);
                bytes[moved..moved + 2].copy_from_slice(&encode(Format::F16, value(row, k, salt)));
            }
        }
        Operand { bytes, leading: 16, stride: 1024, swizzle: Swizzle::B128, major: Major::K }
    };
    let (a, b) = (tile(2 * M, 1), tile(32, 2));
    let results = std::sync::Mutex::new(vec![Vec::new(); 2 * THREADS as usize]);
    for seed in 0..4 {
        let options = Options { seed, ..Options::default() };
        ironwarp_simt::run(&LaunchConfig::linear(1, 2 * THREADS), &options, || {
            let rank = thread::thread_idx()[0];
            let a = a.place(&A).descriptor + u64::from(rank / THREADS * 64 * 128 / 16);
            let b = b.place(&B).descriptor;
            ready();
            let mut acc = vec![0.0; 16];
            for step in 0..4 {
                let at = |descriptor| Shared { descriptor: descriptor + 2 * step, major: Major::K };
                wgmma::mma(&mut acc, [Format::F16; 2], Left::Shared(at(a)), at(b), step != 0);
            }
            wgmma::commit();
            wgmma::wait(0);
            results.lock().unwrap()[rank as usize] = acc;
        })
        .unwrap_or_else(|fault| panic!("{fault}"));
        let results = results.lock().unwrap();
        for row in 0..2 * M {
            for column in 0..32 {
                let products = (0..64).map(|k| f64::from(value(row, k, 1)) * f64::from(value(column, k, 2)));
                let half = &results[row / M * 128..][..128];
                let got = f64::from(element(half, row % M, column));
                assert_eq!(got, products.sum::<f64>(), "({row}, {column})");
            }
        }
    }
}

// Wrong calls.

fn plain() -> (Operand, Operand) {
    (
        Operand::new(Format::F16, M, 1, Major::K, Swizzle::B128),
        Operand::new(Format::F16, 8, 2, Major::K, Swizzle::B128),
    )
}

/// The fault of a kernel that gets both operands in shared memory.
fn wrong(threads: u32, body: impl Fn(u32, Shared, Shared) + Sync) -> ironwarp_simt::Fault {
    let (a, b) = plain();
    *fault(LaunchConfig::linear(1, threads), 1, || {
        let (a, b) = (a.place(&A), b.place(&B));
        ironwarp_simt::memory::proxy_fence();
        ironwarp_simt::barrier::sync(0, None);
        body(thread::thread_idx()[0], a, b);
    })
}

fn mma(acc: &mut [f32], a: Shared, b: Shared) {
    wgmma::mma(acc, [Format::F16; 2], Left::Shared(a), b, true);
}

fn finish() {
    wgmma::commit();
    wgmma::wait(0);
}

fn says(fault: &ironwarp_simt::Fault, kind: FaultKind, words: &str) {
    assert_eq!(fault.kind, kind, "{fault}");
    assert!(fault.to_string().contains(words), "{words:?} not in: {fault}");
}

#[test]
fn sizes_and_types_that_do_not_exist() {
    for n in [0, 4, 12, 264] {
        let fault = wrong(THREADS, |_, a, b| {
            wgmma::fence();
            mma(&mut vec![0.0; n / 2], a, b);
        });
        says(&fault, FaultKind::WgmmaInvalid, &format!("B of {n} columns"));
    }
    let fault = wrong(THREADS, |_, a, b| {
        wgmma::fence();
        wgmma::mma(&mut [0.0; 4], [Format::F16, Format::Bf16], Left::Shared(a), b, true);
    });
    says(&fault, FaultKind::WgmmaInvalid, "only E4m3 and E5m2 mix");
    let fault = wrong(THREADS, |_, a, b| {
        wgmma::fence();
        let b = Shared { major: Major::MN, ..b };
        wgmma::mma(&mut [0.0; 4], [Format::Tf32; 2], Left::Shared(a), b, true);
    });
    says(&fault, FaultKind::WgmmaInvalid, "B of Tf32 is not K-major");
}

#[test]
fn operands_in_the_wrong_place() {
    let fault = wrong(THREADS, |_, a, b| {
        wgmma::fence();
        mma(&mut [0.0; 4], Shared { descriptor: a.descriptor + 128 / 16, ..a }, b);
    });
    says(&fault, FaultKind::WgmmaInvalid, "in row 1 of the B128 swizzle's pattern");
    let fault = wrong(THREADS, |_, a, b| {
        wgmma::fence();
        mma(&mut [0.0; 4], Shared { descriptor: b.descriptor & !0x3fff, ..a }, b);
    });
    assert_eq!(fault.kind, FaultKind::OutOfBounds, "{fault}");
}

/// In a cluster addresses have the block's rank above the 18 bits that a descriptor has room for.
#[test]
fn addresses_of_a_cluster_in_descriptors() {
    let config = LaunchConfig { cluster: [2, 1, 1], ..LaunchConfig::linear(2, THREADS) };
    // Two boxes, one beside the other, are placed by the leading offset.
    let product = |major: Major, cut: bool| {
        let (a, b) = (plain().0, Operand::new(Format::F16, M, 2, major, Swizzle::B64));
        ironwarp_simt::run(&config, &Options::default(), || {
            let a = a.place(&A);
            b.place(&B);
            let first = shared::to_address(shared::alloc_static(&B, b.bytes.len(), 1024));
            let first = if cut { units(first) * layout::UNIT_BYTES } else { first };
            let b = Shared { descriptor: advance(b.at(0).descriptor, first), major };
            ready();
            let mut acc = [0.0; M / 2];
            mma(&mut acc, a, b);
            finish();
            let (row, column) = (thread::rank() / 32 * 16 + thread::rank() % 32 / 4, thread::rank() % 4 * 2);
            let (row, column) = (row as usize, column as usize + M - 8);
            let want: f32 = (0..Format::F16.k()).map(|k| value(row, k, 1) * value(column, k, 2)).sum();
            assert_eq!(acc[M / 2 - 4], want);
        })
    };
    for (major, cut) in [(Major::K, false), (Major::K, true), (Major::MN, true)] {
        product(major, cut).unwrap_or_else(|fault| panic!("{major:?} {cut}: {fault}"));
    }
    let fault = product(Major::MN, false).map(drop).unwrap_err();
    says(&fault, FaultKind::WgmmaInvalid, "B begins at a shared address with bits above the 18");
}

#[test]
fn a_product_without_a_fence() {
    let fault = wrong(THREADS, |_, a, b| mma(&mut [0.0; 4], a, b));
    says(&fault, FaultKind::WgmmaFence, "wgmma::fence");
    assert!(fault.site.file.ends_with("wgmma.rs"), "{fault}");
}

#[test]
fn accumulators_changed_without_a_fence() {
    fn kernel(fence: bool, a: Shared, b: Shared) {
        let mut acc = [0.0; 4];
        two_products(&mut acc, a, b);
        wgmma::wait(0);
        acc[3] += 1.0;
        if fence {
            wgmma::fence();
        }
        mma(&mut acc, a, b);
        finish();
        // Values that the product does not read may change.
        acc[0] = 5.0;
        wgmma::mma(&mut acc, [Format::F16; 2], Left::Shared(a), b, false);
        finish();
    }
    let fault = wrong(THREADS, |_, a, b| kernel(false, a, b));
    says(&fault, FaultKind::WgmmaFence, "accumulators have changed");
    let right = |rank, a, b, _| {
        if rank < THREADS {
            kernel(true, a, b)
        }
    };
    crate::common::passes(with_producer(), in_flight(right));
}

#[test]
fn a_kernel_that_ends_too_early() {
    let fault = wrong(THREADS, |_, a, b| {
        wgmma::fence();
        mma(&mut [0.0; 4], a, b);
    });
    says(&fault, FaultKind::WgmmaUnfinished, "no wgmma.commit_group follows");
    let fault = wrong(THREADS, |_, a, b| {
        wgmma::fence();
        mma(&mut [0.0; 4], a, b);
        wgmma::commit();
        wgmma::wait(1);
    });
    says(&fault, FaultKind::WgmmaUnfinished, "1 groups that no wgmma.wait_group");
}

#[test]
fn warpgroups_that_disagree() {
    let fault = wrong(96, |_, _, _| wgmma::fence());
    says(&fault, FaultKind::WarpgroupDivergence, "has 96");
    let fault = wrong(THREADS, |rank, a, b| {
        wgmma::fence();
        if rank != 77 {
            mma(&mut [0.0; 4], a, b);
            finish();
        }
    });
    assert_eq!(fault.kind, FaultKind::WarpgroupDivergence, "{fault}");
    let fault = wrong(THREADS, |rank, a, b| {
        wgmma::fence();
        let b = Shared { descriptor: b.descriptor + if rank / 32 == 2 { 2 } else { 0 }, ..b };
        mma(&mut [0.0; 4], a, b);
        finish();
    });
    says(&fault, FaultKind::WarpgroupDivergence, "of its warpgroup wait in");
    let fault = wrong(THREADS, |rank, a, b| {
        wgmma::fence();
        let mut acc = [0.0; 4];
        mma(&mut acc, a, b);
        wgmma::commit();
        if rank < 32 {
            wgmma::wait(0);
        }
        mma(&mut acc, a, b);
        finish();
    });
    says(&fault, FaultKind::WarpgroupDivergence, "waited for");
    let fault = wrong(THREADS, |rank, a, b| {
        wgmma::fence();
        if rank < 64 {
            ironwarp_simt::barrier::sync(0, None);
        }
        mma(&mut [0.0; 4], a, b);
        finish();
    });
    says(&fault, FaultKind::WarpgroupDivergence, "64 of 128 are there");
}

/// Runs a kernel of a warpgroup and one warp more, whose threads get the rank, the operands, and the address
/// of an mbarrier that one arrival completes; with checks, under many schedules.
fn in_flight(body: impl Fn(u32, Shared, Shared, u32) + Sync) -> impl Fn() + Sync {
    static BARRIER: StaticKey = StaticKey::new("empty");
    let (a, b) = plain();
    move || {
        let rank = thread::thread_idx()[0];
        let (a, b) = (a.place(&A), b.place(&B));
        let bar = shared::to_address(shared::alloc_static(&BARRIER, 8, 8));
        if rank == 0 {
            ironwarp_simt::mbarrier::init(bar, 1);
        }
        ironwarp_simt::memory::proxy_fence();
        ironwarp_simt::barrier::sync(0, None);
        body(rank, a, b, bar);
    }
}

fn with_producer() -> LaunchConfig {
    LaunchConfig::linear(1, THREADS + 32)
}

fn two_products(acc: &mut [f32], a: Shared, b: Shared) {
    wgmma::fence();
    mma(acc, a, b);
    mma(acc, a, b);
    wgmma::commit();
}
