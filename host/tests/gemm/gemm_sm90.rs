//! The kernels of `gemm::sm90`, each by itself: exact integers, tails in every direction, padded rows,
//! batches, both ways to store, the epilogue's parts.

use cuda_std::kernel::Kernel;
use cuda_std::wgmma::ElementType;
use gemm::element::{Layout, Type};
use gemm::epilogue::{Activation, EpilogueParams};
use gemm::groups::GroupParams;
use gemm::sm90::direct::{DirectParams, OperandLines};
use gemm::sm90::epilogue::{OutputFlag, OutputFormat, OutputParams, OutputType};
use gemm::sm90::instances::{Entry, GemmArguments, Kind, TABLE};
use gemm::sm90::tile_scheduler::GemmShape;
use half::{bf16, f16};
use ironwarp::tma::{L2Promotion, Swizzle, TensorMap, Tiling};
use ironwarp::{Device, DeviceBuffer, DevicePtr, LaunchConfig, Result, Stream};
use primitives::tma::box_width;
use testkit::Random;

/// A stream of a device that runs these kernels: compute capability 9.0, and no other.
fn open() -> Result<Option<Stream>> {
    let device = Device::open(0)?;
    if device.arch().is_hopper() {
        return Ok(Some(device.stream()?));
    }
    testkit::skip(&format!("{} is no Hopper", device.name()));
    Ok(None)
}

/// Elements by their size.
enum Buffer {
    Bytes(DeviceBuffer<u8>),
    Halves(DeviceBuffer<u16>),
    Words(DeviceBuffer<u32>),
}

impl Buffer {
    fn new(stream: &Stream, element: ElementType, values: &[f32]) -> Result<Self> {
        let bits: Vec<u32> = values.iter().map(|&x| encode(element, x)).collect();
        Ok(match element.bytes() {
            1 => Self::Bytes(DeviceBuffer::from_slice(
                stream,
                &bits.iter().map(|&x| x as u8).collect::<Vec<_>>(),
            )?),
            2 => Self::Halves(DeviceBuffer::from_slice(
                stream,
                &bits.iter().map(|&x| x as u16).collect::<Vec<_>>(),
            )?),
            _ => Self::Words(DeviceBuffer::from_slice(stream, &bits)?),
        })
    }

    fn map(&self, tiling: Tiling<3>) -> Result<TensorMap<'_>> {
        match self {
            Self::Bytes(buffer) => TensorMap::new(buffer.view(), &tiling),
            Self::Halves(buffer) => TensorMap::new(buffer.view(), &tiling),
            Self::Words(buffer) => TensorMap::new(buffer.view(), &tiling),
        }
    }

    fn address(&self) -> u64 {
        match self {
            Self::Bytes(buffer) => buffer.as_ptr().raw(),
            Self::Halves(buffer) => buffer.as_ptr().raw(),
            Self::Words(buffer) => buffer.as_ptr().raw(),
        }
    }

    fn read(&self, stream: &Stream, element: ElementType) -> Result<Vec<f32>> {
        let bits: Vec<u32> = match self {
            Self::Bytes(buffer) => buffer.to_vec(stream)?.into_iter().map(u32::from).collect(),
            Self::Halves(buffer) => buffer.to_vec(stream)?.into_iter().map(u32::from).collect(),
            Self::Words(buffer) => buffer.to_vec(stream)?,
        };
        Ok(bits.into_iter().map(|x| decode(element, x)).collect())
    }
}

fn encode(element: ElementType, x: f32) -> u32 {
    match element {
        ElementType::F16 => f16::from_f32(x).to_bits().into(),
        ElementType::Bf16 => bf16::from_f32(x).to_bits().into(),
        ElementType::Tf32 => x.to_bits(),
        ElementType::E4m3 => num::E4M3::from_f32(x).to_bits().into(),
        ElementType::E5m2 => num::E5M2::from_f32(x).to_bits().into(),
    }
}

/// As the type has it.
fn rounded(element: ElementType, x: f32) -> f32 {
    decode(element, encode(element, x))
}

fn decode(element: ElementType, bits: u32) -> f32 {
    match element {
        ElementType::F16 => f16::from_bits(bits as u16).to_f32(),
        ElementType::Bf16 => bf16::from_bits(bits as u16).to_f32(),
        ElementType::E4m3 => num::E4M3::from_bits(bits as u8).to_f32(),
        ElementType::E5m2 => num::E5M2::from_bits(bits as u8).to_f32(),
        ElementType::Tf32 => f32::from_bits(bits),
    }
}

/// The problem that one test runs.
#[derive(Clone, Copy)]
struct Case {
    m: u32,
    n: u32,
    k: u32,
    batch: u32,
    /// Type of the result.
    result: OutputType,
    /// By the copy engine.
    copied: bool,
    activation: Activation,
    /// beta, bias, residual, scales and amax too.
    fused: bool,
    /// Nothing is said about alignment: elements are read and written one by one.
    unaligned: bool,
    /// The copy engine brings the residual, or, where there is none, source C.
    fetched: bool,
    /// With `fused`, no residual.
    no_residual: bool,
    /// Operands come in smaller boxes, without those outside of them.
    boxes: bool,
    /// Columns of a tile, if they are fewer than the kernel's.
    width: u32,
}

const PLAIN: Case = Case {
    m: 0,
    n: 0,
    k: 0,
    batch: 1,
    result: OutputType::Element16,
    copied: true,
    activation: Activation::None,
    fused: false,
    unaligned: false,
    fetched: false,
    no_residual: false,
    boxes: false,
    width: u32::MAX,
};

/// Rows of so many elements of so many bytes begin at multiples of 16 bytes, with at least one element to
/// spare.
fn pitch(elements: u32, bytes: u32) -> usize {
    ((elements * bytes + 1).next_multiple_of(16) / bytes) as usize
}

/// A batch of matrices of small integers, as they lie: `[batch, rows, columns]` with padded rows of NaN,
/// which nothing may read.
struct Matrix {
    values: Vec<f32>,
    rows: usize,
    columns: usize,
    pitch: usize,
}

impl Matrix {
    fn random(random: &mut Random, batch: u32, rows: u32, columns: u32, bytes: u32) -> Self {
        let pitch = pitch(columns, bytes);
        let (rows, columns) = (rows as usize, columns as usize);
        let values = (0..batch as usize * rows * pitch)
            .map(|at| if at % pitch < columns { random.integer(-1, 1) as f32 } else { f32::NAN })
            .collect();
        Self { values, rows, columns, pitch }
    }

    fn at(&self, batch: usize, row: usize, column: usize) -> f32 {
        self.values[(batch * self.rows + row) * self.pitch + column]
    }

    /// As threads copy it, along k.
    fn lines(&self, alignment: u32) -> OperandLines {
        let (leading, matrix) = (self.pitch as u64, (self.rows * self.pitch) as u64);
        OperandLines { leading, matrix, along_k: true, alignment }
    }

    fn tiling(&self, bytes: u32, tile: [u32; 2], swizzle: Swizzle) -> Tiling<3> {
        let batch = self.values.len() / (self.rows * self.pitch);
        let row = u64::from(bytes) * self.pitch as u64;
        Tiling::new([self.columns, self.rows, batch], [tile[0], tile[1], 1])
            .stride(1, row)
            .stride(2, row * self.rows as u64)
            .swizzle(swizzle)
            .l2_promotion(L2Promotion::B128)
    }
}

fn swizzle_of(bytes: u32) -> Swizzle {
    match bytes {
        128 => Swizzle::B128,
        64 => Swizzle::B64,
        32 => Swizzle::B32,
        _ => Swizzle::None,
    }
}

/// The arguments of a launch.
type Parameters<'a> = (
    TensorMap<'a>,
    TensorMap<'a>,
    TensorMap<'a>,
    TensorMap<'a>,
    GemmArguments,
    DevicePtr<u8>,
    DevicePtr<i32>,
    DevicePtr<f32>,
    DevicePtr<f32>,
);

/// Launches a kernel of the table.
type Launch = for<'a> unsafe fn(&Stream, LaunchConfig, Parameters<'a>) -> Result<()>;

/// Runs `entry` and compares with sums of integers, which are exact in every type. The comparison is compiled
/// once, not for each kernel.
fn check(stream: &Stream, entry: &Entry, launch: Launch, case: Case, seed: u64) -> Result<()> {
    let Case { m, n, k, batch, result, copied, activation, fused, unaligned, .. } = case;
    let Case { fetched, no_residual, boxes, width, .. } = case;
    let mut random = Random::new(seed);
    let bytes = entry.a.bytes();
    let [block_m, block_n, _] = entry.block;
    let a = if entry.trans_a {
        Matrix::random(&mut random, batch, k, m, bytes)
    } else {
        Matrix::random(&mut random, batch, m, k, bytes)
    };
    let b = if entry.trans_b {
        Matrix::random(&mut random, batch, k, n, bytes)
    } else {
        Matrix::random(&mut random, batch, n, k, bytes)
    };
    let span = 128 / bytes;
    let [across_m, across_n, _] = entry.cluster;
    let lines = |block: u32, sharers: u32| span.min(block.next_multiple_of(span) / sharers);
    let box_of = |part: u32| if boxes && entry.skips && part.is_multiple_of(16) { part / 2 } else { part };
    let [rows_a, rows_b] = [box_of(block_m / across_n), box_of(block_n / across_m)];
    let width_of = |side: u32, sharers: u32| {
        if boxes && entry.skips && sharers == 1 { box_width(side, span) } else { span }
    };
    let tile_of = |is_trans: bool, side: u32, block: u32, sharers: u32, rows: u32| {
        if is_trans { [width_of(side, sharers), lines(block, sharers)] } else { [span, rows] }
    };
    let tile_a = tile_of(entry.trans_a, m, block_m, across_n, rows_a);
    let tile_b = tile_of(entry.trans_b, n, block_n, across_m, rows_b);
    let (a_buffer, b_buffer) =
        (Buffer::new(stream, entry.a, &a.values)?, Buffer::new(stream, entry.b, &b.values)?);
    let map_a = a_buffer.map(a.tiling(bytes, tile_a, Swizzle::B128))?;
    let map_b = b_buffer.map(b.tiling(bytes, tile_b, Swizzle::B128))?;

    let element = match result {
        OutputType::F32 => ElementType::Tf32,
        OutputType::Element16 => entry.element16,
        OutputType::E4m3 => ElementType::E4m3,
        OutputType::E5m2 => ElementType::E5m2,
    };
    // If the result has 8-bit elements, added elements have 16 bits, and C is not added.
    let added = if element.bytes() == 1 { entry.element16 } else { element };
    let beta = if fused && element.bytes() > 1 { 2.0 } else { 0.0 };
    let (rows, product_columns) = if entry.transposed { (n, m) } else { (m, n) };
    let columns = product_columns / activation.columns();
    let old = Matrix::random(&mut random, batch, rows, columns, element.bytes());
    let residual = Matrix::random(&mut random, batch, rows, columns, added.bytes());
    let has_residual = fused && !no_residual;
    let bias: Vec<f32> = (0..product_columns).map(|_| random.integer(-2, 2) as f32).collect();
    let d_buffer = Buffer::new(stream, element, &old.values)?;
    let (residual_buffer, bias_buffer) =
        (Buffer::new(stream, added, &residual.values)?, Buffer::new(stream, added, &bias)?);
    let scales = DeviceBuffer::<f32>::from_slice(stream, &[0.5, 4.0, 2.0])?;
    let amax = DeviceBuffer::<u32>::zeroed(stream, 1)?;
    let halves = activation.columns();
    let box_dims = match (entry.transposed, result == OutputType::F32) {
        (true, false) => [64 / halves, entry.store_columns],
        (false, false) => [entry.store_columns / halves, 64],
        (true, true) => [32, entry.store_columns / 2],
        (false, true) => [entry.store_columns / 2, 64],
    };
    let tiling =
        |matrix: &Matrix| matrix.tiling(element.bytes(), box_dims, swizzle_of(element.bytes() * box_dims[0]));
    let map_d = if copied { d_buffer.map(tiling(&old))? } else { map_a };
    let map_added = match (fetched, has_residual) {
        (false, _) => map_d,
        (true, true) => residual_buffer.map(tiling(&residual))?,
        (true, false) => d_buffer.map(tiling(&old))?,
    };
    let maybe = |address: u64, is_there: bool| if is_there { address } else { 0 };
    let scale = |index: u64| maybe(scales.as_ptr().raw() + 4 * index, fused) as *const f32;
    let ty = match added {
        ElementType::Tf32 => Type::F32,
        ElementType::F16 => Type::F16,
        _ => Type::Bf16,
    };
    let paired = !unaligned && columns.is_multiple_of(2);
    let is_wide = matches!(result, OutputType::Element16 | OutputType::F32);
    let plain = copied && is_wide && !fused && activation == Activation::None;
    let format = OutputFormat::new(result)
        .with(OutputFlag::Paired, paired)
        .with(OutputFlag::ResidualPaired, paired)
        .with(OutputFlag::ByTma, copied)
        .with(OutputFlag::Plain, plain)
        .with(OutputFlag::SourceByTma, fetched)
        .with(OutputFlag::Halved, activation == Activation::SwiGlu);
    let [box_m, box_n] = if boxes { [rows_a, rows_b] } else { [0; 2] };
    let arguments = GemmArguments {
        shape: GemmShape {
            box_m,
            box_n,
            tile_n: width,
            cluster: [across_m, across_n],
            ..GemmShape::new([m, n, k], batch, 2)
        },
        output: OutputParams { row: old.pitch as u64, matrix: (old.rows * old.pitch) as u64, format },
        epilogue: EpilogueParams {
            beta,
            activation: activation as u32,
            bias_type: ty as u32,
            bias: maybe(bias_buffer.address(), fused) as *const u8,
            residual: maybe(residual_buffer.address(), has_residual) as *const u8,
            residual_layout: Layout {
                ty: ty as u32,
                row: residual.pitch as u64,
                column: 1,
                batch: (residual.rows * residual.pitch) as u64,
            },
            scale_a: scale(0),
            scale_b: scale(1),
            scale_c: scale(2),
            amax: maybe(amax.as_ptr().raw(), fused) as *mut u32,
            ..EpilogueParams::NONE
        },
        groups: GroupParams { count: 0, is_wide: false },
        scales_pitch: 0,
        direct: {
            let [of_a, of_b] = if unaligned { [4, 8] } else { [16; 2] };
            DirectParams { k, a: a.lines(of_a), b: b.lines(of_b) }
        },
    };
    let read = |buffer: &Buffer| DevicePtr::from_raw(maybe(buffer.address(), entry.kind == Kind::Direct));
    let parameters = (
        map_a,
        map_b,
        map_d,
        map_added,
        arguments,
        DevicePtr::from_raw(d_buffer.address()),
        DevicePtr::from_raw(0),
        read(&a_buffer),
        read(&b_buffer),
    );
    let width = width.min(block_n);
    let tiles = m.div_ceil(block_m * entry.cluster[0]) * n.div_ceil(width * entry.cluster[1]) * batch;
    // Fewer clusters than tiles, so that one walks over several.
    let cluster = entry.cluster.iter().product();
    let blocks = tiles.div_ceil(3) * cluster;
    let config = LaunchConfig::new([blocks, 1, 1], [entry.threads, 1, 1])
        .with_shared(entry.shared)
        .cluster([cluster, 1, 1]);
    // SAFETY: maps, strides, grid and block are what the kernel asks for.
    unsafe { launch(stream, config, parameters)? };

    let got = d_buffer.read(stream, element)?;
    let mut largest = 0f32;
    for z in 0..batch as usize {
        for row in 0..rows as usize {
            let element_of = |column: usize| {
                let (i, j) = if entry.transposed { (column, row) } else { (row, column) };
                let sum: f32 = (0..k as usize)
                    .map(|l| {
                        (if entry.trans_a { a.at(z, l, i) } else { a.at(z, i, l) })
                            * (if entry.trans_b { b.at(z, l, j) } else { b.at(z, j, l) })
                    })
                    .sum();
                let v = sum * if fused { 2.0 } else { 1.0 };
                v + if fused { bias[column] } else { 0.0 }
            };
            for column in 0..old.pitch {
                let at = (z * old.rows + row) * old.pitch + column;
                if column >= old.columns {
                    assert!(got[at].is_nan(), "{}: wrote behind row {row}", entry.name);
                    continue;
                }
                let want = match activation {
                    Activation::SwiGlu => {
                        let gate = element_of(2 * column);
                        gate / (1.0 + (-gate).exp()) * element_of(2 * column + 1)
                    }
                    _ => {
                        let v = element_of(column)
                            + if beta == 0.0 { 0.0 } else { beta * old.at(z, row, column) };
                        if activation == Activation::Relu { v.max(0.0) } else { v }
                    }
                };
                let want = want + if has_residual { residual.at(z, row, column) } else { 0.0 };
                largest = largest.max(want.abs());
                let want = if fused { rounded(element, 2.0 * want) } else { rounded(element, want) };
                // A value between two results may become either.
                let step = if element.bytes() == 1 { 4.0 } else { 100.0 };
                let allowed = if activation == Activation::SwiGlu { want.abs() / step + 1e-6 } else { 0.0 };
                assert!(
                    (got[at] - want).abs() <= allowed,
                    "{} {m}x{n}x{k}, cluster {across_m}x{across_n}: [{z}, {row}, {column}] is {}, wanted {want}",
                    entry.name,
                    got[at]
                );
            }
        }
    }
    if fused && activation != Activation::SwiGlu {
        assert_eq!(f32::from_bits(amax.to_vec(stream)?[0]), largest, "{}: amax", entry.name);
    }
    Ok(())
}

/// The cases of an entry: one that takes few steps and several tiles, with tails everywhere.
fn cases(entry: &Entry) -> Vec<Case> {
    let [block_m, block_n, block_k] = entry.block;
    let (m, n) = (block_m * entry.cluster[0] + 3, block_n * entry.cluster[1] + 10);
    let k = block_k + block_k / 4;
    let case = Case { m, n, k, ..PLAIN };
    let plain = Case { m: 20, k: 5 * block_k, batch: 3, n: block_n * entry.cluster[1] + 16, ..case };
    // The copy engine stores whole units of 16 bytes.
    let plain = if entry.transposed { Case { m: 24, ..plain } } else { plain };
    let copied = Case { batch: 2, fused: true, activation: Activation::Relu, ..plain };
    let narrow = if entry.transposed { Case { m: 48, ..copied } } else { copied };
    let swiglu = Case { fused: false, activation: Activation::SwiGlu, ..narrow };
    let mut cases = vec![
        Case { copied: entry.a != ElementType::Tf32, ..plain },
        Case { result: OutputType::F32, ..plain },
        copied,
        Case { fetched: true, ..copied },
        Case { fetched: true, no_residual: true, activation: Activation::None, ..copied },
        swiglu,
        Case { result: OutputType::E4m3, ..narrow },
        Case { result: OutputType::E5m2, fused: false, activation: Activation::None, ..narrow },
        Case {
            copied: false,
            result: OutputType::F32,
            fused: true,
            activation: Activation::Relu,
            boxes: true,
            ..case
        },
        Case { copied: false, fused: true, unaligned: true, m: case.m - 2, n: case.n - 1, ..case },
        Case { copied: false, result: OutputType::E4m3, fused: true, n: 37, m: 35, ..case },
        Case { m: 34, n: 38, copied: false, activation: Activation::SwiGlu, boxes: true, ..case },
        Case { m: 8, n: 8, k: 16 / entry.a.bytes(), copied: false, fused: true, ..case },
    ];
    if entry.narrows {
        // Ends of tiles within a subtile and between two, of columns for each instruction; the last tile is
        // narrower still.
        for width in [144, 136, 168, 208, 240] {
            let narrower = Case { n: 2 * width + 16, width, boxes: width > 136, ..plain };
            cases.extend([narrower, Case { result: OutputType::F32, ..narrower }]);
        }
        cases.push(Case { n: 2 * 136 + 8, width: 136, fetched: true, boxes: true, ..copied });
        cases.push(Case { n: 2 * 136 + 7, width: 136, copied: false, unaligned: true, fused: true, ..case });
        let wide = Case { result: OutputType::F32, copied: false, ..case };
        cases.push(Case { n: 3 * 152, width: 152, fused: true, ..wide });
    }
    if entry.cluster[2] > 1 {
        // Several tiles, and more stages than the pipeline has, in shares of k that are not all alike.
        let long = Case { k: 7 * entry.cluster[2] * block_k - 1, ..plain };
        cases.extend([Case { copied: false, ..long }, Case { result: OutputType::F32, ..long }]);
    }
    cases
}

/// The entry in clusters of the launch's shapes, each with a case whose tiles fill several blocks and end in
/// the last one.
fn clustered(entry: &Entry) -> impl Iterator<Item = (Entry, Case)> {
    let shapes = [[2, 1], [1, 2], [2, 2], [4, 1], [1, 4], [4, 2], [2, 4]];
    let shapes = shapes.into_iter().filter(|&shape| entry.any_cluster && entry.can_cluster(shape));
    shapes.flat_map(|[across_m, across_n]| {
        let [block_m, block_n, block_k] = entry.block;
        let entry = Entry { cluster: [across_m, across_n, 1], ..*entry };
        let behind = |across: u32, block: u32| (across - 1) * block + 8;
        let case = Case {
            m: behind(across_m, block_m),
            n: behind(across_n, block_n),
            k: 3 * block_k - 8,
            batch: 2,
            copied: entry.a != ElementType::Tf32,
            boxes: across_m > across_n,
            ..PLAIN
        };
        // Tiles that a launch makes narrower.
        let width = 144;
        let narrow = Case { n: behind(across_n, width) + width, width, ..case };
        let in_f32 = Case { result: OutputType::F32, copied: true, ..narrow };
        let narrower = [narrow, in_f32].map(|case| entry.narrows.then_some((entry, case)));
        [Some((entry, case))].into_iter().chain(narrower).flatten()
    })
}

/// Launches `K`.
///
/// # Safety
/// As for the kernel.
unsafe fn launch<K>(stream: &Stream, config: LaunchConfig, parameters: Parameters<'_>) -> Result<()>
where
    for<'a> Parameters<'a>: ironwarp::LaunchArgs<K::Params>,
    K: Kernel,
{
    // SAFETY: the caller's contract.
    unsafe { ironwarp::launch::<K>(stream, config, parameters) }
}

macro_rules! kernels {
    ($($name:ident)*) => {
        /// Runs the dense entries that the filter takes, and those of operands as they lie.
        fn check_all(takes: fn(&Entry) -> bool) -> Result<()> {
            let Some(stream) = open()? else { return Ok(()) };
            let kernels: &[(&str, Launch)] =
                &[$((stringify!($name), launch::<gemm::sm90::instances::$name>)),*];
            assert_eq!(kernels.len(), TABLE.len());
            for (entry, &(name, launch)) in TABLE.iter().zip(kernels) {
                assert_eq!(entry.name, name, "the table's order");
                if matches!(entry.kind, Kind::Dense | Kind::Direct) && takes(entry) {
                    for (seed, case) in cases(entry).into_iter().enumerate() {
                        check(&stream, entry, launch, case, seed as u64)?;
                    }
                    for (entry, case) in clustered(entry) {
                        check(&stream, &entry, launch, case, 0)?;
                    }
                }
            }
            Ok(())
        }
    };
}
gemm::for_each_sm90_kernel!(kernels);

#[test]
fn bf16() -> Result<()> {
    check_all(|entry| entry.a == ElementType::Bf16)
}

#[test]
fn f16() -> Result<()> {
    check_all(|entry| entry.a == ElementType::F16)
}

#[test]
fn tf32() -> Result<()> {
    check_all(|entry| entry.a == ElementType::Tf32)
}

#[test]
fn fp8() -> Result<()> {
    check_all(|entry| entry.a.bytes() == 1)
}
