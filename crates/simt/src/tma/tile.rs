//! One box of a tensor: its bytes in global memory, and their places in shared memory.

use super::element;
use crate::reduction::Combine;
use crate::tensor_map::{Description, MAX_RANK, MAX_SPATIAL, Pixels};

/// A box at a place of its tensor.
pub(super) struct Tile {
    pub map: Description,
    /// Coordinates of the box's first element.
    start: [i64; MAX_RANK],
    /// Elements along dimension 0 that count as the tensor's.
    width: i64,
    /// Of a map of windows: from where a window begins to the pixel that is copied, in spatial dimensions.
    offsets: [i64; MAX_SPATIAL],
}

/// A row of the box: its elements along dimension 0.
pub(super) struct Row {
    /// Bytes of the row before the tensor.
    pub skipped: usize,
    /// Bytes of the row in the tensor.
    pub inside: usize,
    /// Address of the first of those.
    pub address: usize,
}

impl Tile {
    pub fn new(map: Description, coords: &[i32]) -> Self {
        let start = std::array::from_fn(|axis| coords.get(axis).copied().unwrap_or(0).into());
        let width = map.dims[0] as i64;
        Self { map, start, width, offsets: [0; MAX_SPATIAL] }
    }

    /// The pixels at these places of their windows.
    pub fn at_offsets(mut self, offsets: &[u16]) -> Self {
        for (offset, &given) in self.offsets.iter_mut().zip(offsets) {
            *offset = given.into();
        }
        self
    }

    /// The box for stores: the tensor ends after the last unit of `unit` bytes that it has a part of.
    pub fn in_whole_units(mut self, unit: usize) -> Self {
        self.width = self.map.dims[0].next_multiple_of((unit / self.map.data_type.bytes()) as u64) as i64;
        self
    }

    /// Whether it begins before the tensor does, along any dimension.
    pub fn begins_before(&self) -> bool {
        self.start.iter().any(|&at| at < 0)
    }

    /// The rows of the box in the order in which they lie in shared memory.
    pub fn rows(&self) -> Box<dyn Iterator<Item = Row> + '_> {
        match self.map.pixels {
            Some(pixels) => Box::new(self.pixel_rows(pixels)),
            None => Box::new(self.box_rows()),
        }
    }

    /// Rows of channels: one pixel after the other, each at its offset from where its window begins.
    fn pixel_rows(&self, pixels: Pixels) -> impl Iterator<Item = Row> {
        let image = self.map.rank as usize - 1;
        let mut begins = self.start;
        (0..self.map.copied(1)).map(move |_| {
            let mut at = begins;
            for (at, offset) in at[1..image].iter_mut().zip(self.offsets) {
                *at += offset;
            }
            let row = self.row(at);
            for (axis, begin) in begins.iter_mut().enumerate().take(image).skip(1) {
                *begin += i64::from(self.map.step(axis));
                let last = self.map.dims[axis] as i64 - 1 + i64::from(pixels.upper[axis - 1]);
                if *begin <= last {
                    return row;
                }
                *begin = pixels.lower[axis - 1].into();
            }
            begins[image] += 1;
            row
        })
    }

    /// Rows of a box.
    fn box_rows(&self) -> impl Iterator<Item = Row> {
        let counts: [u64; MAX_RANK] = std::array::from_fn(|axis| self.map.copied(axis).into());
        let total: u64 = counts[1..].iter().product();
        (0..total).map(move |number| {
            let mut rest = number;
            let coords = std::array::from_fn(|axis| {
                if axis == 0 {
                    return self.start[0];
                }
                let index = rest % counts[axis];
                rest /= counts[axis];
                self.start[axis] + (index * u64::from(self.map.step(axis))) as i64
            });
            self.row(coords)
        })
    }

    /// The row that begins at `coords`.
    fn row(&self, coords: [i64; MAX_RANK]) -> Row {
        let element = self.map.data_type.bytes();
        let is_inside = |axis: usize| (0..self.map.dims[axis] as i64).contains(&coords[axis]);
        if !(1..MAX_RANK).all(is_inside) {
            return Row { skipped: self.map.row_bytes(), inside: 0, address: 0 };
        }
        let first = coords[0].max(0);
        let end = (coords[0] + i64::from(self.map.copied(0))).min(self.width);
        let inside = (end - first).max(0) as usize * element;
        if inside == 0 {
            return Row { skipped: self.map.row_bytes(), inside, address: 0 };
        }
        let outer: i64 = (1..MAX_RANK).map(|axis| coords[axis] * self.map.strides[axis - 1] as i64).sum();
        let offset = outer + first * element as i64;
        Row {
            skipped: (first - coords[0]) as usize * element,
            inside,
            address: (self.map.address as usize).wrapping_add(offset as usize),
        }
    }

    /// The box as it is in global memory, with fill for elements outside the tensor, and rows without gaps.
    ///
    /// # Safety
    /// The elements of the tensor in the box are readable.
    pub unsafe fn read_global(&self) -> Vec<u8> {
        let mut plain = vec![0; self.map.box_bytes()];
        let fill = element::fill(&self.map);
        for (row, to) in self.rows().zip(plain.chunks_exact_mut(self.map.row_bytes())) {
            if let Some(fill) = fill
                && row.inside != to.len()
            {
                to.chunks_exact_mut(fill.len()).for_each(|element| element.copy_from_slice(fill));
            }
            let inside = &mut to[row.skipped..][..row.inside];
            // SAFETY: the caller vouches for the elements of the tensor, which these are.
            unsafe { std::ptr::copy(row.address as *const u8, inside.as_mut_ptr(), row.inside) };
            element::convert(self.map.data_type, inside);
        }
        plain
    }

    /// Writes a box to shared address `offset` of the arena that begins at `base`.
    ///
    /// # Safety
    /// The box at `offset` lies in the arena.
    pub unsafe fn write_shared(&self, plain: &[u8], base: *mut u8, offset: u32) {
        self.pieces(plain.len(), offset).for_each(|(at, shared, bytes)| {
            // SAFETY: a swizzle changes places within the box's rows of 128 bytes, which are in the arena
            // with it.
            unsafe { std::ptr::copy_nonoverlapping(plain[at..].as_ptr(), base.add(shared), bytes) };
        });
    }

    /// Reads a box from the arena.
    ///
    /// # Safety
    /// As [`Tile::write_shared`].
    pub unsafe fn read_shared(&self, base: *const u8, offset: u32) -> Vec<u8> {
        let mut plain = vec![0; self.map.box_bytes()];
        self.pieces(plain.len(), offset).for_each(|(at, shared, bytes)| {
            // SAFETY: as above.
            unsafe { std::ptr::copy_nonoverlapping(base.add(shared), plain[at..].as_mut_ptr(), bytes) };
        });
        plain
    }

    /// Parts of a box of `len` bytes that stay together: offset in the box, offset in the arena, bytes.
    fn pieces(&self, len: usize, offset: u32) -> impl Iterator<Item = (usize, usize, usize)> {
        const PIECE: usize = 16;
        let (row, pitch) = (self.map.row_bytes(), self.map.row_pitch());
        let (row, pitch, piece) =
            if self.map.swizzle.span().is_some() { (row, pitch, PIECE) } else { (len, len, len) };
        (0..len).step_by(row.max(1)).enumerate().flat_map(move |(number, begin)| {
            (0..row).step_by(piece).map(move |at| {
                let plain = offset + (number * pitch + at) as u32;
                (begin + at, self.map.swizzle.apply(plain) as usize, piece.min(row - at))
            })
        })
    }

    /// Writes the elements of a box that lie in the tensor, or combines them with the tensor's.
    ///
    /// # Safety
    /// The elements of the tensor in the box are writable.
    pub unsafe fn write_global(&self, plain: &[u8], combine: Option<Combine>) {
        let element = self.map.data_type.bytes();
        for (row, from) in self.rows().zip(plain.chunks_exact(self.map.row_bytes())) {
            let from = &from[row.skipped..][..row.inside];
            let Some(combine) = combine else {
                // SAFETY: the caller vouches for the elements of the tensor, which these are.
                unsafe { std::ptr::copy(from.as_ptr(), row.address as *mut u8, row.inside) };
                continue;
            };
            for (index, value) in from.chunks_exact(element).enumerate() {
                // SAFETY: as above.
                unsafe { combine((row.address + index * element) as *mut u8, value) };
            }
        }
    }
}
