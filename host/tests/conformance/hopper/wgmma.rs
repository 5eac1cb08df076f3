//! Products of a warpgroup against products in f64: every type, width, order and swizzle.
//!
//! The test lays out the operands itself, by the PTX ISA's figures, with NaN in every byte that no product
//! may read.
//!
//! Small integers must come out exactly. For random numbers the bound is that of a sum whose every step
//! rounds or truncates: `(K + 1) 2^-23` of the sum of the magnitudes. For 8-bit types the hardware keeps
//! fewer bits of the largest term, 13 behind the leading one, in each of its steps of 32.

use conformance::hopper::wgmma as kernels;
use conformance::hopper::wgmma::{OPERAND_ALIGN, OperandImage, STEPS, THREADS};
use half::{bf16, f16};
use ironwarp::{DeviceBuffer, LaunchConfig, Result, launch};
use num::{E4M3, E5M2};
use testkit::Random;

use super::hopper;
use crate::element::{Element, Tf32};
use crate::gpu::Gpu;

/// Rows of A and of D.
const M: usize = 64;
/// Bytes of k of one product.
const STEP_BYTES: usize = 32;
/// Bytes of the units that swizzles move.
const UNIT: usize = 16;
/// Rows of a core matrix.
const CORE: usize = 8;

/// How an operand lies in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// k contiguous: `span` bytes a row (16: no swizzle). Without a swizzle, `far` puts neighbours in k
    /// further apart than those in rows. With one, it takes the second half of a 64-byte row.
    KMajor { span: usize, far: bool },
    /// m or n contiguous, 16-bit elements. `far` puts neighbours in k further apart than those in m or n.
    MnMajor { span: usize, far: bool },
}

/// Strides of a layout for an operand of some rows, in bytes.
struct Strides {
    leading: usize,
    stride: usize,
    step: usize,
}

impl Layout {
    fn span(self) -> usize {
        match self {
            Layout::KMajor { span, .. } | Layout::MnMajor { span, .. } => span,
        }
    }

    fn strides(self, rows: usize) -> Strides {
        let core = CORE * self.span();
        match self {
            Layout::KMajor { span: 16, far: false } => {
                Strides { leading: core, stride: 2 * core, step: rows * STEP_BYTES }
            }
            Layout::KMajor { span: 16, far: true } => {
                Strides { leading: rows * UNIT, stride: core, step: rows * STEP_BYTES }
            }
            Layout::KMajor { span: 128, .. } => Strides { leading: 0, stride: core, step: STEP_BYTES },
            Layout::KMajor { span, .. } => Strides { leading: 0, stride: core, step: rows * span },
            Layout::MnMajor { span, far } => {
                let across = rows / (span / 2);
                let (along_mn, along_k) = if far { (core, across * core) } else { (2 * core, core) };
                // Without a swizzle the two strides swap their names.
                let (leading, stride) = if span == UNIT { (along_k, along_mn) } else { (along_mn, along_k) };
                Strides { leading, stride, step: 2 * across * core }
            }
        }
    }

    /// Where the operand of the first product begins.
    fn start(self) -> usize {
        if self == (Layout::KMajor { span: 64, far: true }) { STEP_BYTES } else { 0 }
    }

    /// Bytes of all products' operands.
    fn bytes(self, rows: usize) -> usize {
        let row = match self {
            Layout::KMajor { span: 64, .. } => 64,
            _ => STEP_BYTES,
        };
        rows * row * STEPS
    }

    /// Place of the byte `byte` of k of row `row` of product `step`, for elements of `size` bytes.
    fn place(self, rows: usize, step: usize, row: usize, byte: usize, size: usize) -> usize {
        let Strides { leading, stride, step: step_bytes } = self.strides(rows);
        let base = self.start() + step * step_bytes;
        let plain = match self {
            Layout::KMajor { span: 16, .. } => {
                base + row / CORE * stride + row % CORE * UNIT + byte / UNIT * leading + byte % UNIT
            }
            Layout::KMajor { span, .. } => base + row / CORE * stride + row % CORE * span + byte,
            Layout::MnMajor { span, .. } => {
                let (k, across) = (byte / size, span / 2);
                let (far_k, far_mn) = (k / CORE, row / across);
                let apart = if span == UNIT {
                    far_mn * stride + far_k * leading
                } else {
                    far_mn * leading + far_k * stride
                };
                base + apart + k % CORE * span + row % across * size + byte % size
            }
        };
        // Every 128 bytes the units of a span follow the next permutation.
        plain ^ (plain / 128 % (self.span() / UNIT) * UNIT)
    }

    fn image(self, rows: usize) -> OperandImage {
        let Strides { leading, stride, step } = self.strides(rows);
        let code = match self.span() {
            16 => 0,
            32 => 3,
            64 => 2,
            _ => 1,
        };
        let descriptor = (self.start() as u64 >> 4)
            | (leading as u64 >> 4) << 16
            | (stride as u64 >> 4) << 32
            | code << 62;
        OperandImage { descriptor, bytes: self.bytes(rows) as u32, step: step as u32 }
    }
}

/// An operand: codes `[rows, k]`, row-major.
struct Operand<T: Element> {
    rows: usize,
    codes: Vec<T::Code>,
}

impl<T: Element> Operand<T> {
    const SIZE: usize = size_of::<T::Code>();
    /// Elements of k of one product, and of all.
    const K: usize = STEP_BYTES / Self::SIZE;
    const K_ALL: usize = STEPS * Self::K;

    fn new(rows: usize, mut number: impl FnMut() -> f64) -> Self {
        Self { rows, codes: (0..rows * Self::K_ALL).map(|_| T::encode(number())).collect() }
    }

    fn value(&self, row: usize, k: usize) -> f64 {
        T::decode(self.codes[row * Self::K_ALL + k])
    }

    /// The 32 bytes of a row of one product.
    fn bytes(&self, row: usize, step: usize) -> &[u8] {
        let first = row * Self::K_ALL + step * Self::K;
        bytemuck::cast_slice(&self.codes[first..first + Self::K])
    }

    /// The operand as it lies in shared memory; gaps hold all ones, which are NaN in every type.
    fn laid_out(&self, layout: Layout) -> Vec<u32> {
        let mut image = vec![u8::MAX; layout.bytes(self.rows)];
        for (row, step) in (0..self.rows).flat_map(|row| (0..STEPS).map(move |step| (row, step))) {
            for (i, &byte) in self.bytes(row, step).iter().enumerate() {
                image[layout.place(self.rows, step, row, i, Self::SIZE)] = byte;
            }
        }
        image.chunks(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect()
    }

    /// The operand as registers: the four of each thread for product 0, then for product 1, and so on.
    fn in_registers(&self) -> Vec<u32> {
        let mut registers = Vec::new();
        for step in 0..STEPS {
            for t in 0..THREADS {
                for register in 0..4 {
                    let row = 16 * (t / 32) + t % 32 / 4 + 8 * (register % 2);
                    let first = 4 * (t % 4) + 16 * (register / 2);
                    let bytes = &self.bytes(row, step)[first..first + 4];
                    registers.push(u32::from_le_bytes(bytes.try_into().expect("four bytes")));
                }
            }
        }
        registers
    }
}

#[derive(Clone, Copy, Debug)]
enum Data {
    /// Every partial sum is exact in every format.
    Integers,
    Normal,
}

/// One product, with its expected result.
struct Problem<A: Element, B: Element> {
    a: Operand<A>,
    b: Operand<B>,
    /// The accumulators before the launch: `[M, n]`.
    c: Vec<f32>,
}

impl<A: Element, B: Element> Problem<A, B> {
    fn new(n: usize, data: Data, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut number = || match data {
            Data::Integers => random.integer(-4, 4) as f64,
            Data::Normal => random.normal(),
        };
        let (a, b) = (Operand::new(M, &mut number), Operand::new(n, &mut number));
        Self { a, b, c: (0..M * n).map(|_| number() as f32).collect() }
    }

    /// Row and column of each thread's accumulators, in the order of memory.
    fn places(&self) -> impl Iterator<Item = (usize, usize)> {
        let len = self.b.rows / 2;
        (0..THREADS * len).map(move |at| {
            let (t, i) = (at / len, at % len);
            (16 * (t / 32) + t % 32 / 4 + i % 4 / 2 * 8, i / 4 * 8 + 2 * (t % 4) + i % 2)
        })
    }

    /// Checks each accumulator against its expected value and its error bound.
    fn check(&self, what: &str, data: Data, accumulate: bool, got: &[f32]) {
        let n = self.b.rows;
        for ((row, column), &got) in self.places().zip(got) {
            let c = if accumulate { f64::from(self.c[row * n + column]) } else { 0.0 };
            let products = (0..Operand::<A>::K_ALL).map(|k| self.a.value(row, k) * self.b.value(column, k));
            let (want, size) =
                products.fold((c, c.abs()), |(sum, size), product| (sum + product, size + product.abs()));
            let bound = match (data, Operand::<A>::SIZE) {
                (Data::Integers, _) => 0.0,
                (_, 1) => size * (STEPS * (STEP_BYTES + 1)) as f64 * 2f64.powi(-13),
                _ => size * (Operand::<A>::K_ALL + 1) as f64 * 2f64.powi(-23),
            };
            let error = (f64::from(got) - want).abs();
            assert!(
                error <= bound,
                "{what}, {data:?}, accumulate {accumulate}: D({row}, {column}) is {got}, want {want}; off by {error:e}, allowed {bound:e}"
            );
        }
    }

    /// The accumulators before the launch.
    fn before(&self, gpu: &Gpu) -> Result<DeviceBuffer<f32>> {
        let c: Vec<f32> = self.places().map(|(row, column)| self.c[row * self.b.rows + column]).collect();
        gpu.put(&c)
    }
}

/// A launch of a kernel with both operands in shared memory. Kernels differ only in their name, and a name is
/// a type.
type Run = dyn Fn(
    &Gpu,
    LaunchConfig,
    [OperandImage; 2],
    &DeviceBuffer<u32>,
    &DeviceBuffer<u32>,
    u32,
    &mut DeviceBuffer<f32>,
) -> Result<()>;

/// A [`Run`] of a kernel.
macro_rules! run {
    ($kernel:ident) => {
        &|gpu, config, images, a, b, accumulate, d| {
            // SAFETY: images as their descriptors say, room for both, all accumulators.
            unsafe { launch::<kernels::$kernel>(&gpu.stream, config, (images, a, b, accumulate, d)) }
        }
    };
}

/// A [`Run`] of a kernel with A in registers, whose image is not used.
macro_rules! run_ra {
    ($kernel:ident) => {
        &|gpu, config, [_, image], a, b, accumulate, d| {
            // SAFETY: an image as its descriptor says, room for it, all registers and accumulators.
            unsafe { launch::<kernels::$kernel>(&gpu.stream, config, (image, a, b, accumulate, d)) }
        }
    };
}

const K_MAJOR: [Layout; 6] = [
    Layout::KMajor { span: 16, far: false },
    Layout::KMajor { span: 16, far: true },
    Layout::KMajor { span: 32, far: false },
    Layout::KMajor { span: 64, far: false },
    Layout::KMajor { span: 64, far: true },
    Layout::KMajor { span: 128, far: false },
];

/// The layouts of an operand of so many rows: those whose spans fit.
fn layouts(transposed: bool, rows: usize) -> Vec<Layout> {
    if !transposed {
        return K_MAJOR.to_vec();
    }
    let spans = [16, 32, 64, 128].into_iter().filter(|span| rows.is_multiple_of(span / 2));
    spans.flat_map(|span| [false, true].map(|far| Layout::MnMajor { span, far })).collect()
}

/// Launches one problem for each pair of layouts, paired off so that each occurs, and compares.
fn check<A: Element, B: Element>(what: &str, n: usize, trans: [bool; 2], run: &Run) -> Result<()> {
    check_layouts::<A, B>(what, [&layouts(trans[0], M), &layouts(trans[1], n)], n, run)
}

fn check_layouts<A: Element, B: Element>(
    what: &str,
    [of_a, of_b]: [&[Layout]; 2],
    n: usize,
    run: &Run,
) -> Result<()> {
    let Some(gpu) = hopper()? else { return Ok(()) };
    for i in 0..of_a.len().max(of_b.len()) {
        let (a_layout, b_layout) = (of_a[i % of_a.len()], of_b[i % of_b.len()]);
        let images = [a_layout.image(M), b_layout.image(n)];
        let config = LaunchConfig::linear(THREADS, THREADS as u32)
            .with_shared(images[0].bytes.next_multiple_of(OPERAND_ALIGN) + images[1].bytes);
        for (data, accumulate) in
            [(Data::Integers, true), (Data::Integers, false), (Data::Normal, i % 2 == 0)]
        {
            let problem = Problem::<A, B>::new(n, data, i as u64);
            let (a, b) = (gpu.put(&problem.a.laid_out(a_layout))?, gpu.put(&problem.b.laid_out(b_layout))?);
            let mut d = problem.before(&gpu)?;
            run(&gpu, config, images, &a, &b, u32::from(accumulate), &mut d)?;
            let what = format!("{what}, n {n}, A {a_layout:?}, B {b_layout:?}");
            problem.check(&what, data, accumulate, &gpu.get(&d)?);
        }
    }
    Ok(())
}

/// As [`check`], with A in registers.
fn check_ra<A: Element, B: Element>(what: &str, n: usize, trans_b: bool, run: &Run) -> Result<()> {
    let Some(gpu) = hopper()? else { return Ok(()) };
    for (i, layout) in layouts(trans_b, n).into_iter().enumerate() {
        let image = layout.image(n);
        let config = LaunchConfig::linear(THREADS, THREADS as u32).with_shared(image.bytes);
        for (data, accumulate) in
            [(Data::Integers, true), (Data::Integers, false), (Data::Normal, i % 2 == 0)]
        {
            let problem = Problem::<A, B>::new(n, data, i as u64);
            let (a, b) = (gpu.put(&problem.a.in_registers())?, gpu.put(&problem.b.laid_out(layout))?);
            let mut d = problem.before(&gpu)?;
            run(&gpu, config, [image; 2], &a, &b, u32::from(accumulate), &mut d)?;
            let what = format!("{what} with A in registers, n {n}, B {layout:?}");
            problem.check(&what, data, accumulate, &gpu.get(&d)?);
        }
    }
    Ok(())
}

const PLAIN: [bool; 2] = [false, false];

#[test]
fn f16_products() -> Result<()> {
    check::<f16, f16>("f16", 64, PLAIN, run!(wgmma_f16))?;
    check::<f16, f16>("f16", 64, [true, false], run!(wgmma_f16_tn))?;
    check::<f16, f16>("f16", 128, [false, true], run!(wgmma_f16_nt))?;
    check::<f16, f16>("f16", 256, [true, true], run!(wgmma_f16_tt))?;
    check_ra::<f16, f16>("f16", 64, false, run_ra!(wgmma_ra_f16))?;
    check_ra::<f16, f16>("f16", 128, true, run_ra!(wgmma_ra_f16_t))
}

#[test]
fn bf16_products() -> Result<()> {
    check::<bf16, bf16>("bf16", 64, [false, true], run!(wgmma_bf16_nt))?;
    check::<bf16, bf16>("bf16", 192, [true, true], run!(wgmma_bf16_tt))?;
    check_ra::<bf16, bf16>("bf16", 256, false, run_ra!(wgmma_ra_bf16))?;
    check_ra::<bf16, bf16>("bf16", 72, true, run_ra!(wgmma_ra_bf16_t))
}

#[test]
fn tf32_products() -> Result<()> {
    check::<Tf32, Tf32>("tf32", 128, PLAIN, run!(wgmma_tf32))?;
    check::<Tf32, Tf32>("tf32", 256, PLAIN, run!(wgmma_tf32_wide))?;
    check_ra::<Tf32, Tf32>("tf32", 64, false, run_ra!(wgmma_ra_tf32))
}

#[test]
fn fp8_products() -> Result<()> {
    check::<E4M3, E4M3>("e4m3", 96, PLAIN, run!(wgmma_e4m3))?;
    check::<E5M2, E5M2>("e5m2", 8, PLAIN, run!(wgmma_e5m2))?;
    check::<E4M3, E5M2>("e4m3 x e5m2", 256, PLAIN, run!(wgmma_e4m3_e5m2))?;
    check::<E5M2, E4M3>("e5m2 x e4m3", 40, PLAIN, run!(wgmma_e5m2_e4m3))?;
    check_ra::<E4M3, E4M3>("e4m3", 128, false, run_ra!(wgmma_ra_e4m3))?;
    check_ra::<E5M2, E5M2>("e5m2", 16, false, run_ra!(wgmma_ra_e5m2))?;
    check_ra::<E4M3, E5M2>("e4m3 x e5m2", 64, false, run_ra!(wgmma_ra_e4m3_e5m2))?;
    check_ra::<E5M2, E4M3>("e5m2 x e4m3", 64, false, run_ra!(wgmma_ra_e5m2_e4m3))
}

#[test]
fn every_width() -> Result<()> {
    let layout = [Layout::KMajor { span: 128, far: false }];
    for n in (8..=256).step_by(8) {
        check_layouts::<bf16, bf16>(
            "bf16",
            [&layout; 2],
            n,
            &move |gpu, config, images, a, b, accumulate, d| {
                let n = n as u32;
                // SAFETY: images as their descriptors say, room for both, all accumulators.
                unsafe {
                    launch::<kernels::wgmma_widths>(&gpu.stream, config, (n, images, a, b, accumulate, d))
                }
            },
        )?;
    }
    Ok(())
}

/// The hardware must give the same bits with A from registers as with A from shared memory.
#[test]
fn registers_and_shared_memory_give_the_same_bits() -> Result<()> {
    let Some(gpu) = hopper()? else { return Ok(()) };
    const N: usize = 64;
    let layout = Layout::KMajor { span: 128, far: false };
    let images = [layout.image(M), layout.image(N)];
    let config = LaunchConfig::linear(THREADS, THREADS as u32).with_shared(images[0].bytes + images[1].bytes);
    for seed in 0..8 {
        let problem = Problem::<f16, f16>::new(N, Data::Normal, seed);
        let b = gpu.put(&problem.b.laid_out(layout))?;
        let mut outputs = Vec::new();
        let shared: &Run = run!(wgmma_f16);
        let registers: &Run = run_ra!(wgmma_ra_f16);
        for (a, run) in [(problem.a.laid_out(layout), shared), (problem.a.in_registers(), registers)] {
            let mut d = problem.before(&gpu)?;
            run(&gpu, config, images, &gpu.put(&a)?, &b, 1, &mut d)?;
            outputs.push(gpu.get(&d)?.into_iter().map(f32::to_bits).collect::<Vec<u32>>());
        }
        assert_eq!(outputs[0], outputs[1], "seed {seed}");
    }
    Ok(())
}
