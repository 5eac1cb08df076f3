//! Copies of operands by themselves: lines that begin at every element, with gaps that nobody has written, in
//! every order, against the elements one by one.

use crate::gemm_case::{Outcome, device};
use bytemuck::Pod;
use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};
use gemm::repack::{self, RepackPair, RepackShape};
use ironwarp::{DeviceBuffer, LaunchConfig, Stream, launch};

/// Where the elements of a batch of matrices lie.
#[derive(Debug, Clone, Copy)]
struct Lies {
    rows: usize,
    columns: usize,
    batch: usize,
    row: usize,
    column: usize,
    matrix: usize,
    /// Elements in front of the first one.
    skip: usize,
}

impl Lies {
    /// Rows, or else columns, of neighbours with so many elements between them and between the matrices.
    fn new([batch, rows, columns]: [usize; 3], transposed: bool, gap: usize, skip: usize) -> Self {
        let (row, column) = if transposed { (1, rows + gap) } else { (columns + gap, 1) };
        let matrix = if transposed { columns * column } else { rows * row } + gap;
        Self { rows, columns, batch, row, column, matrix, skip }
    }

    fn place(&self, [matrix, row, column]: [usize; 3]) -> usize {
        self.skip + matrix * self.matrix + row * self.row + column * self.column
    }

    /// Every element, by matrix, row and column.
    fn elements(&self) -> impl Iterator<Item = [usize; 3]> {
        let Self { rows, columns, batch, .. } = *self;
        (0..batch).flat_map(move |matrix| {
            (0..rows).flat_map(move |row| (0..columns).map(move |column| [matrix, row, column]))
        })
    }

    fn pitch<T>(&self) -> usize {
        self.columns.next_multiple_of(16 / size_of::<T>())
    }

    fn shape<T>(&self) -> RepackShape {
        let Self { rows, columns, batch, row, column, matrix, .. } = *self;
        RepackShape {
            rows: rows as u32,
            columns: columns as u32,
            batch: batch as u32,
            row: row as u64,
            column: column as u64,
            matrix: matrix as u64,
            pitch: self.pitch::<T>() as u64,
        }
    }

    /// Memory to the last element, of which only elements are written, each by its place.
    fn upload<T: Bits>(&self, stream: &Stream) -> Outcome<DeviceBuffer<T>> {
        let last = self.place([self.batch - 1, self.rows - 1, self.columns - 1]);
        // SAFETY: the kernel is to read what is written below; the checker says if it reads more.
        let mut x = unsafe { DeviceBuffer::uninit(stream, last + 1)? };
        let (lines, length) =
            if self.column == 1 { (self.rows, self.columns) } else { (self.columns, self.rows) };
        for matrix in 0..self.batch {
            for line in 0..lines {
                let at = |along| {
                    let place = if self.column == 1 { [line, along] } else { [along, line] };
                    self.place([matrix, place[0], place[1]])
                };
                let step = if length > 1 { at(1) - at(0) } else { 1 };
                if step == 1 {
                    let values: Vec<T> = (at(0)..at(0) + length).map(T::of).collect();
                    x.slice_mut(at(0)..at(0) + length)?.copy_from_slice(stream, &values)?;
                } else {
                    for along in 0..length {
                        x.slice_mut(at(along)..=at(along))?.copy_from_slice(stream, &[T::of(at(along))])?;
                    }
                }
            }
        }
        Ok(x)
    }
}

/// An element type, and its kernel.
trait Bits: Pod + PartialEq + std::fmt::Debug {
    type Copy: Kernel<Params = (Value<RepackPair>, Ptr<Self>, PtrMut<Self>, Ptr<Self>, PtrMut<Self>)>;
    /// The element at a place.
    fn of(place: usize) -> Self;
}

macro_rules! bits {
    ($($ty:ty, $kernel:ident, $factor:literal;)*) => { $(
        impl Bits for $ty {
            type Copy = repack::$kernel;
            fn of(place: usize) -> Self {
                (place as u32).wrapping_mul($factor) as $ty
            }
        }
    )* };
}
bits! {
    u8, gemm_repack_b8, 37;
    u16, gemm_repack_b16, 40_503;
    u32, gemm_repack_b32, 2_654_435_761;
}

/// Copies both in one launch, and compares every element; the copies are the same bits a second time.
fn check<T: Bits>(pair: [Lies; 2]) -> Outcome {
    let stream = device()?.stream()?;
    let [first, second] = pair.map(|lies| lies.shape::<T>());
    let x = [pair[0].upload::<T>(&stream)?, pair[1].upload::<T>(&stream)?];
    let copy = || -> Outcome<[Vec<T>; 2]> {
        let empty = |lies: Lies| vec![T::zeroed(); lies.batch * lies.rows * lies.pitch::<T>()];
        let mut y = [
            DeviceBuffer::from_slice(&stream, &empty(pair[0]))?,
            DeviceBuffer::from_slice(&stream, &empty(pair[1]))?,
        ];
        let bytes = size_of::<T>() as u32;
        let blocks = (first.blocks(bytes) + second.blocks(bytes)) as u32;
        // Fewer blocks than matrices, so that some take several.
        let deep = first.batch.max(second.batch).min(2);
        let config = LaunchConfig::new([blocks, 1, deep], [repack::THREADS, 1, 1]);
        let [to, other_to] = &mut y;
        let from = [x[0].slice(pair[0].skip..)?, x[1].slice(pair[1].skip..)?];
        // SAFETY: x has what the strides reach, y is as large as both say; the grid is what the kernel asks
        // for.
        unsafe {
            launch::<T::Copy>(
                &stream,
                config,
                (RepackPair { first, second }, from[0], to, from[1], other_to),
            )?;
        }
        Ok([y[0].to_vec(&stream)?, y[1].to_vec(&stream)?])
    };
    let copies = copy()?;
    for (lies, copied) in pair.into_iter().zip(&copies) {
        for [matrix, row, column] in lies.elements() {
            let got = copied[(matrix * lies.rows + row) * lies.pitch::<T>() + column];
            let want = T::of(lies.place([matrix, row, column]));
            assert_eq!(got, want, "matrix {matrix}, row {row}, column {column} of {lies:?}");
        }
    }
    assert_eq!(copy()?, copies, "{pair:?}");
    Ok(())
}

fn check_all(pair: [Lies; 2]) -> Outcome {
    check::<u8>(pair)?;
    check::<u16>(pair)?;
    check::<u32>(pair)
}

/// Lines without gaps, and with gaps that are not read, from every element of a unit on.
#[test]
fn repack_lines_that_begin_anywhere() -> Outcome {
    for skip in 0..=8 {
        let (dense, apart) = ([1, 5, 131], [1, 7, 35]);
        check_all([Lies::new(dense, false, 0, skip), Lies::new(apart, false, skip, 1)])?;
        check_all([Lies::new([1, 67, 9], true, 0, skip), Lies::new([1, 35, 66], true, skip, 1)])?;
    }
    check::<u8>([Lies::new([1, 9, 77], false, 3, 13), Lies::new([1, 77, 9], true, 5, 15)])
}

/// Rows of every length about a unit, and of one block and more.
#[test]
fn repack_ends_of_rows() -> Outcome {
    for columns in 1..=18 {
        check_all([Lies::new([1, 3, columns], false, 0, 0), Lies::new([1, columns, 3], true, 0, 0)])?;
    }
    let span = repack::SPAN as usize;
    for units in [span - 1, span, span + 1, 2 * span + 3] {
        check::<u8>([Lies::new([1, 2, 16 * units - 5], false, 1, 3), Lies::new([1, 1, 1], false, 0, 0)])?;
    }
    // More rows than a block has.
    check_all([Lies::new([1, 1500, 11], false, 0, 1), Lies::new([1, 300, 67], false, 1, 0)])
}

/// Batches of different numbers of matrices, and matrices that lie over each other.
#[test]
fn repack_batches() -> Outcome {
    check_all([Lies::new([5, 3, 21], false, 1, 2), Lies::new([2, 66, 5], true, 1, 3)])?;
    check_all([Lies::new([1, 70, 70], true, 1, 0), Lies::new([3, 9, 17], false, 0, 7)])?;
    let windows = Lies { row: 3, ..Lies::new([1, 20, 29], false, 0, 1) };
    let again = Lies { matrix: 0, ..Lies::new([3, 4, 19], false, 2, 1) };
    check_all([windows, again])
}

/// No neighbours in either direction.
#[test]
fn repack_strides_of_both_sides() -> Outcome {
    let apart = Lies { rows: 9, columns: 70, batch: 2, row: 2, column: 19, matrix: 1340, skip: 3 };
    let across = Lies { rows: 6, columns: 5, batch: 1, row: 17, column: 3, matrix: 0, skip: 0 };
    check_all([apart, across])
}
