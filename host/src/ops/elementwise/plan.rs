//! How an element-wise kernel is launched over operands of any layout: axes merged, the mode chosen, what is
//! too long for 32 bits cut into pieces. Pure arithmetic.

use layout::Divisor;
use tensor::place::{Axis, Geometry, MAX_AXES, Mode};

use crate::error::Result;
use crate::tensor::layout::{Run, Runs, merge};
use crate::tensor::shape::PerAxis;

/// An operand of a launch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operand<'a> {
    /// Distance of neighbours along each axis of the common shape, elements.
    pub(super) strides: &'a [usize],
    /// Bytes of an element.
    pub(super) size: usize,
    /// Address of the first element.
    pub(super) address: u64,
}

/// One launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece<const K: usize> {
    /// Its shape.
    pub(super) geometry: Geometry<K>,
    /// Blocks.
    pub(super) blocks: u64,
    /// Address of each operand's first element.
    pub(super) addresses: [u64; K],
}

/// Gives `launch` each launch for `K` operands, the output last, over `shape`, whose threads take `width`
/// neighbours. None without elements. Allocates nothing: this is part of what every launch costs.
pub(super) fn each_piece<const K: usize>(
    shape: &[usize],
    operands: [Operand<'_>; K],
    width: usize,
    mut launch: impl FnMut(&Piece<K>) -> Result<()>,
) -> Result<()> {
    if shape.contains(&0) {
        return Ok(());
    }
    let problem = Problem { sizes: operands.map(|operand| operand.size), width };
    let addresses = operands.map(|operand| operand.address);
    match one_run(shape, operands) {
        Some(run) => problem.cut(&[run], addresses, &mut launch),
        None => problem.cut(&runs(shape, operands), addresses, &mut launch),
    }
}

/// The run that all axes make together where the output is contiguous and every other operand lies as it
/// does, or is one element. So most launches are, and it is what `runs` would find.
fn one_run<const K: usize>(shape: &[usize], operands: [Operand<'_>; K]) -> Option<Run<K>> {
    let dense = operands[K - 1].strides;
    let mut extent = 1;
    for (&side, &stride) in shape.iter().zip(dense).rev() {
        if stride != extent {
            return None;
        }
        extent *= side;
    }
    let mut strides = [1; K];
    for (stride, operand) in strides.iter_mut().zip(operands) {
        if operand.strides.iter().all(|&stride| stride == 0) {
            *stride = 0;
        } else if operand.strides != dense {
            return None;
        }
    }
    (extent > 1).then_some(Run { extent, strides })
}

/// Axes merged as far as all operands allow, innermost first.
fn runs<const K: usize>(shape: &[usize], operands: [Operand<'_>; K]) -> Runs<K> {
    // The output's densest axis goes innermost: its writes are then neighbours, and inputs laid out alike
    // merge.
    let mut axes: PerAxis = (0..shape.len()).collect();
    axes.sort_by_key(|&axis| std::cmp::Reverse(operands[K - 1].strides[axis]));
    let sides: PerAxis = axes.iter().map(|&axis| shape[axis]).collect();
    let strides: [PerAxis; K] =
        operands.map(|operand| axes.iter().map(|&axis| operand.strides[axis]).collect());
    let mut runs = merge(&sides, strides.each_ref().map(|strides| strides.as_slice()));
    runs.reverse();
    runs
}

/// The properties that all pieces share.
struct Problem<const K: usize> {
    sizes: [usize; K],
    width: usize,
}

impl<const K: usize> Problem<K> {
    /// An axis of a single place.
    const IDLE: Axis<K> = Axis { extent: Divisor::new(1), strides: [0; K] };

    /// The launches over `runs`, innermost first: one, or those of the halves along the axis that reaches
    /// furthest.
    fn cut(
        &self,
        runs: &[Run<K>],
        addresses: [u64; K],
        launch: &mut impl FnMut(&Piece<K>) -> Result<()>,
    ) -> Result<()> {
        let mode = self.mode(runs, addresses);
        if mode == Mode::Run || Self::fits(runs) {
            return launch(&self.piece(mode, runs, addresses));
        }
        let reach =
            |run: &Run<K>| run.strides.iter().map(|stride| stride.saturating_mul(run.extent - 1)).max();
        // Something that does not fit has an axis of more than one place.
        let Some(axis) = (0..runs.len()).max_by_key(|&axis| reach(&runs[axis])) else { return Ok(()) };
        let run = runs[axis];
        let half = run.extent / 2;
        for (start, extent) in [(0, half), (half, run.extent - half)] {
            let mut part: Runs<K> = runs.iter().copied().collect();
            part[axis].extent = extent;
            part.retain(|run| run.extent > 1);
            let moved = |k: usize| addresses[k] + (start * run.strides[k] * self.sizes[k]) as u64;
            self.cut(&part, std::array::from_fn(moved), launch)?;
        }
        Ok(())
    }

    fn mode(&self, runs: &[Run<K>], addresses: [u64; K]) -> Mode {
        let Some((inner, outer)) = runs.split_first() else { return Mode::Run };
        let is_dense = |k: usize| match inner.strides[k] {
            // The output moves along every axis.
            0 => true,
            1 => {
                // Vectors are aligned to their size, and so is every line of them.
                let bytes = (self.width * self.sizes[k]).min(tensor::VECTOR_BYTES);
                addresses[k].is_multiple_of(bytes as u64)
                    && outer.iter().all(|run| (run.strides[k] * self.sizes[k]).is_multiple_of(bytes))
            }
            _ => false,
        };
        match (0..K).all(is_dense) {
            true if outer.is_empty() => Mode::Run,
            true if inner.extent.is_multiple_of(self.width) => Mode::Units,
            _ => Mode::Scattered,
        }
    }

    /// Do numbers and places of all elements fit in the kernels' 32 bits?
    fn fits(runs: &[Run<K>]) -> bool {
        let elements = runs.iter().try_fold(1usize, |n, run| n.checked_mul(run.extent));
        let reach = |k: usize| {
            runs.iter().try_fold(0usize, |reach, run| {
                reach.checked_add((run.extent - 1).checked_mul(run.strides[k])?)
            })
        };
        elements.is_some_and(|n| n <= Divisor::MAX as usize)
            && (0..K).all(|k| reach(k).is_some_and(|reach| u32::try_from(reach).is_ok()))
    }

    fn piece(&self, mode: Mode, runs: &[Run<K>], addresses: [u64; K]) -> Piece<K> {
        let elements: usize = runs.iter().map(|run| run.extent).product();
        let (count, unit) =
            if mode == Mode::Units { (elements / self.width, self.width) } else { (elements, 1) };
        let repeated = (0..K).filter(|&k| runs.first().is_some_and(|inner| inner.strides[k] == 0));
        let mut geometry = Geometry {
            count: count as u64,
            mode,
            repeated: repeated.map(|k| 1 << k).sum(),
            rank: 0,
            whole: 0,
            axes: [Self::IDLE; MAX_AXES],
        };
        if mode != Mode::Run {
            geometry.rank = runs.len() as u32;
            for (index, (axis, run)) in geometry.axes.iter_mut().zip(runs).enumerate() {
                let unit = if index == 0 { unit } else { 1 };
                // Both fit: the piece does.
                axis.extent = Divisor::new((run.extent / unit) as u32);
                axis.strides = run.strides.map(|stride| (stride * unit) as u32);
            }
        }
        geometry.whole = geometry.whole_blocks(self.width);
        let blocks = geometry.blocks(self.width);
        Piece { geometry, blocks, addresses }
    }
}

#[cfg(test)]
mod tests {
    use super::{Operand, Piece, each_piece, one_run, runs};
    use tensor::place::Mode;

    const BASE: u64 = 1 << 40;

    fn modes<const K: usize>(pieces: &[Piece<K>]) -> Vec<Mode> {
        pieces.iter().map(|piece| piece.geometry.mode).collect()
    }

    fn unary(shape: &[usize], x: &[usize], y: &[usize], addresses: [u64; 2]) -> Vec<Piece<2>> {
        let [x, y] = [(x, addresses[0]), (y, addresses[1])].map(|(strides, address)| Operand {
            strides,
            size: 4,
            address,
        });
        let mut pieces = Vec::new();
        each_piece(shape, [x, y], 4, |piece| {
            pieces.push(piece.clone());
            Ok(())
        })
        .expect("nothing fails here");
        pieces
    }

    #[test]
    fn dense_operands_are_one_run_of_any_length() {
        let long = 5 << 31;
        let one = unary(&[5, 1 << 31], &[1 << 31, 1], &[1 << 31, 1], [BASE, BASE]);
        assert_eq!(modes(&one), [Mode::Run]);
        assert_eq!((one[0].geometry.count, one[0].blocks), (long, long / 1024));
        // Alike but not in order.
        assert_eq!(modes(&unary(&[6, 8], &[1, 6], &[1, 6], [BASE, BASE])), [Mode::Run]);
        // One element, repeated.
        let repeated = unary(&[6, 8], &[0, 0], &[8, 1], [BASE + 4, BASE]);
        assert_eq!((modes(&repeated), repeated[0].geometry.repeated), (vec![Mode::Run], 0b01));
        assert_eq!(modes(&unary(&[], &[], &[], [BASE + 4, BASE + 12])), [Mode::Run]);
        assert!(unary(&[3, 0], &[0, 1], &[0, 1], [0, 0]).is_empty());
    }

    #[test]
    fn the_short_way_finds_what_merging_finds() {
        let mut found = 0;
        let strides: [&[usize]; 7] =
            [&[0, 0, 0], &[12, 4, 1], &[0, 4, 1], &[12, 0, 1], &[12, 4, 0], &[1, 2, 6], &[24, 8, 2]];
        for shape in [[2, 3, 4], [1, 3, 4], [2, 1, 4], [1, 1, 1]] {
            for (x, y) in strides.iter().flat_map(|x| strides.iter().map(move |y| (*x, *y))) {
                let operands = [x, y].map(|strides| Operand { strides, size: 4, address: BASE });
                let short = one_run(&shape, operands);
                assert!(short.is_none_or(|run| *runs(&shape, operands) == [run]), "{shape:?}: {x:?}, {y:?}");
                found += usize::from(short.is_some());
            }
        }
        // One element, and the output's own strides; nothing else is in one piece.
        assert_eq!(found, 4);
    }

    #[test]
    fn lines_go_by_units_when_they_are_aligned() {
        let at = [BASE, BASE];
        assert_eq!(modes(&unary(&[6, 8], &[0, 1], &[8, 1], at)), [Mode::Units]);
        assert_eq!(modes(&unary(&[6, 8], &[1, 0], &[8, 1], at)), [Mode::Units]);
        assert_eq!(modes(&unary(&[6, 7], &[0, 1], &[7, 1], at)), [Mode::Scattered]);
        assert_eq!(modes(&unary(&[6, 8], &[9, 1], &[8, 1], at)), [Mode::Scattered]);
        assert_eq!(modes(&unary(&[6, 8], &[12, 1], &[8, 1], at)), [Mode::Units]);
        assert_eq!(modes(&unary(&[6, 8], &[1, 6], &[8, 1], at)), [Mode::Scattered]);
        assert_eq!(modes(&unary(&[8], &[1], &[1], [BASE + 4, BASE])), [Mode::Scattered]);
        assert_eq!(modes(&unary(&[8], &[2], &[1], at)), [Mode::Scattered]);
    }

    #[test]
    fn what_does_not_fit_is_cut() {
        // 2^33 elements turned around: four pieces of 2^31 are still one too many for a signed number.
        let (rows, columns) = (1 << 16, 1 << 17);
        let cut = unary(&[rows, columns], &[1, rows], &[columns, 1], [BASE, BASE]);
        assert_eq!(cut.len(), 8);
        assert!(cut.iter().all(|piece| piece.geometry.count == 1 << 30));
        let mut starts = std::collections::BTreeSet::new();
        for piece in &cut {
            let [x, y] = piece.addresses.map(|address| (address - BASE) as usize / 4);
            assert_eq!(x, y / columns + y % columns * rows);
            starts.insert((y / columns, y % columns));
        }
        assert_eq!(starts.len(), 8);
        // Few elements far apart.
        let far = unary(&[3, 2], &[1 << 33, 1], &[2, 1], [BASE, BASE]);
        assert_eq!(far.iter().map(|piece| piece.geometry.count).collect::<Vec<_>>(), [2, 2, 2]);
        assert_eq!(far[2].addresses, [BASE + (4 << 34), BASE + 16]);
        // One axis alone.
        let line = unary(&[1 << 32], &[3], &[1], [BASE, BASE]);
        assert_eq!(line.iter().map(|piece| piece.geometry.count).sum::<u64>(), 1 << 32);
        assert!(line.iter().all(|piece| piece.geometry.count <= 1 << 30));
    }
}
