//! How a product is computed: which kernel, in what shape.

use std::fmt;

use crate::ops::tuning::Source;

/// A kernel of the family, or a set of entries that differ in what their types say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kernel {
    /// [`gemm::gemm_f32`], the large tile.
    F32Large,
    /// [`gemm::gemm_f32`], the small tile.
    F32Small,
    /// [`gemm::skinny`].
    Skinny,
    /// [`gemm::skinny::direct`].
    Direct,
    /// [`gemm::any`].
    Any,
    /// A kernel of [`gemm::sm90`], by its place in the table.
    Sm90(u8),
    /// [`gemm::mma`], the large tile.
    MmaLarge,
    /// [`gemm::mma`], the small tile.
    MmaSmall,
}

/// A configuration: a kernel and its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Config {
    /// Which kernel.
    pub kernel: Kernel,
    /// Rows and columns of C that a block computes, and columns of A that it loads at a time.
    pub tile: [u32; 3],
    /// Blocks of a cluster along m, n and k.
    pub cluster: [u32; 3],
    /// Tiles of A and B under way at a time.
    pub stages: u32,
    /// Parts of k that different blocks sum.
    pub split_k: u32,
    /// Is the transpose of C computed, so that its columns are the tile's rows?
    pub swap: bool,
    /// How A and B are copied first.
    pub repack: [Repack; 2],
    /// The part of C that is computed so. The rest, if there is one, is a product of its own, by its own
    /// choice.
    pub band: Band,
}

/// The part of C that a launch computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Band {
    /// All of C.
    All,
    /// The first so many rows: whole waves of tiles.
    Rows(u32),
    /// The first so many columns.
    Columns(u32),
    /// Blocks of so many rows and columns, a launch each: between launches multiprocessors wait for each
    /// other, so that they read the same operands at a time.
    Blocks(u32, u32),
}

/// A copy of an operand that the kernel cannot address as it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Repack {
    /// None: it can.
    No,
    /// To rows that begin at 16-byte boundaries.
    Rows,
    /// To columns that do.
    Columns,
}

impl Config {
    pub(super) const fn new(kernel: Kernel, tile: [u32; 3], stages: u32) -> Self {
        let (cluster, repack, band) = ([1; 3], [Repack::No; 2], Band::All);
        Config { kernel, tile, cluster, stages, split_k: 1, swap: false, repack, band }
    }
}

impl Kernel {
    /// Its name: that of the kernel function.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::F32Large => "gemm_f32",
            Kernel::F32Small => "gemm_f32_small",
            Kernel::Skinny => "gemm_skinny",
            Kernel::Direct => "gemm_skinny_direct",
            Kernel::Any => "gemm_any",
            Kernel::Sm90(index) => super::sm90::name(index),
            Kernel::MmaLarge => "gemm_mma",
            Kernel::MmaSmall => "gemm_mma_small",
        }
    }
}

/// As in `gemm_f32 64x128x16, 3 stages, A to rows`: unique among configurations.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Config { kernel, tile: [m, n, k], cluster, stages, split_k, swap, repack, band } = self;
        write!(f, "{} {m}x{n}x{k}, {stages} stages", kernel.name())?;
        match cluster {
            [1, 1, 1] => {}
            [m, n, 1] => write!(f, ", cluster {m}x{n}")?,
            [m, n, k] => write!(f, ", cluster {m}x{n}x{k}")?,
        }
        if *split_k != 1 {
            write!(f, ", k in {split_k} parts")?;
        }
        if *swap {
            f.write_str(", swapped")?;
        }
        for (operand, repack) in ["A", "B"].iter().zip(repack) {
            match repack {
                Repack::No => {}
                Repack::Rows => write!(f, ", {operand} to rows")?,
                Repack::Columns => write!(f, ", {operand} to columns")?,
            }
        }
        match band {
            Band::All => Ok(()),
            Band::Rows(rows) => write!(f, ", {rows} rows, then the rest"),
            Band::Columns(columns) => write!(f, ", {columns} columns, then the rest"),
            Band::Blocks(rows, columns) => write!(f, ", in blocks of {rows} x {columns}"),
        }
    }
}

/// A configuration that can do a problem.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The configuration.
    pub config: Config,
    /// How long it should take, microseconds: by the table's figures, not a promise.
    pub estimate_us: f64,
    /// The reason for it.
    pub why: &'static str,
}

/// A kernel that cannot do a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejection {
    /// The kernel.
    pub kernel: &'static str,
    /// Why not.
    pub why: &'static str,
}

/// The terms of the estimate of a kernel of [`gemm::sm90`], microseconds: of the first launch, where
/// there are several.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Terms {
    /// Copies of operands, before.
    pub copies_us: f64,
    /// The launch, and the first operands' way.
    pub start_us: f64,
    /// Multiplications of all waves of tiles.
    pub products_us: f64,
    /// L2 sends them their operands.
    pub loads_us: f64,
    /// As long as power makes them.
    pub power_us: f64,
    /// A tile's store; those that others hide are not counted.
    pub store_us: f64,
    /// The four together: they overlap.
    pub tiles_us: f64,
    /// Memory reads and writes beside that.
    pub memory_us: f64,
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Terms { copies_us, start_us, products_us, loads_us, power_us, store_us, tiles_us, memory_us } =
            self;
        write!(
            f,
            "copies {copies_us:.1}, start {start_us:.1}, tiles {tiles_us:.1} (products {products_us:.1}, "
        )?;
        write!(
            f,
            "loads {loads_us:.1}, power {power_us:.1}, a store {store_us:.1}), memory {memory_us:.1} us"
        )
    }
}

/// The configuration chosen for a problem, and why. `Display` tells it all.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The problem.
    pub problem: super::Problem,
    /// The configuration that computes it.
    pub config: Config,
    /// Why that one.
    pub why: String,
    /// Whether it was measured.
    pub source: Source,
    /// The terms of its estimate, if it is one of [`gemm::sm90`].
    pub terms: Option<Terms>,
    /// Every configuration that can do it, the likely fastest first.
    pub candidates: Vec<Candidate>,
    /// The kernels that cannot.
    pub rejections: Vec<Rejection>,
}

/// Candidates shown.
const SHOWN: usize = 5;

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Choice { problem, config, why, source, terms, candidates, rejections } = self;
        writeln!(f, "{problem}\n  by {config}: {why}\n  {source}")?;
        if let Some(terms) = terms {
            writeln!(f, "  estimate: {terms}")?;
        }
        for Candidate { config, estimate_us, why } in candidates.iter().take(SHOWN) {
            writeln!(f, "  can: {config}, about {estimate_us:.1} us: {why}")?;
        }
        if candidates.len() > SHOWN {
            writeln!(f, "  can: {} more", candidates.len() - SHOWN)?;
        }
        rejections.iter().try_for_each(|Rejection { kernel, why }| writeln!(f, "  cannot: {kernel}: {why}"))
    }
}
