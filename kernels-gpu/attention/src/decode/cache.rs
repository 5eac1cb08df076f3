//! Where keys and values lie: in a matrix for each sequence, or in pages that a table names.

use super::config::{Cached, TILE_KEYS};
use super::problem::DecodeParams;
use super::schedule::Cursor;

/// K and V, and the table of their pages.
#[derive(Clone, Copy)]
pub struct Cache<T> {
    /// First element of K.
    pub keys: *const T,
    /// First element of V.
    pub values: *const T,
    /// Page numbers, `table_row` of each sequence; null where each sequence has a matrix of its own.
    pub table: *const i32,
    /// New keys, which do not lie in the cache yet.
    pub new_keys: *const u16,
    /// Their values.
    pub new_values: *const u16,
    /// Of a cache in e4m3 the scales of keys and of values, one for each head of keys; else null.
    pub scales: [*const f32; 2],
}

/// A row of K, and the one of V beside it.
#[derive(Clone, Copy)]
pub struct Place<T> {
    /// Where the rows begin; anywhere if they are not there.
    pub rows: [*const T; 2],
    /// Whether they are there.
    pub is_there: bool,
}

impl<T> Place<T> {
    /// The rows so many elements on.
    #[inline(always)]
    #[must_use]
    pub fn on(self, [keys, values]: [u64; 2]) -> Self {
        let rows = [self.rows[0].wrapping_add(keys as usize), self.rows[1].wrapping_add(values as usize)];
        Self { rows, ..self }
    }
}

/// Whether some key of the tile that begins at a key is new.
#[inline(always)]
#[must_use]
pub fn has_new(params: &DecodeParams, at: &Cursor, key: u32) -> bool {
    params.new_keys > 0 && key < at.span.end && key + TILE_KEYS > params.first_new(at.span.keys)
}

impl<T: Cached> Cache<T> {
    /// Whether the keys of the tile that begins at a key lie at equal distances: those in use.
    #[inline(always)]
    #[must_use]
    pub fn is_whole_tile(self, params: &DecodeParams, at: &Cursor, key: u32) -> bool {
        let has_whole_tiles = self.table.is_null() || params.page_size.is_multiple_of(TILE_KEYS);
        has_whole_tiles && !has_new(params, at, key)
    }

    /// The scales of a head's keys and values.
    ///
    /// # Safety
    /// The cache is in e4m3, and has the head.
    #[inline(always)]
    #[must_use]
    pub unsafe fn scales(self, head: u32) -> [f32; 2] {
        // SAFETY: the caller's word.
        self.scales.map(|scales| unsafe { *scales.add(head as usize) })
    }

    /// The rows of a key, of new ones too, unless they are to become e4m3.
    ///
    /// # Safety
    /// As for [`place`](Self::place).
    #[inline(always)]
    #[must_use]
    pub unsafe fn source(self, params: &DecodeParams, at: &Cursor, key: u32) -> Place<T> {
        let first = params.first_new(at.span.keys);
        if key < first || params.new_keys == 0 {
            // SAFETY: the caller's word.
            return unsafe { self.place(params, at, key) };
        }
        let [keys, values] = [params.new_key_strides, params.new_value_strides]
            .map(|strides| strides.at(key - first, at.head, at.sequence));
        let rows = [self.new_keys.wrapping_add(keys), self.new_values.wrapping_add(values)];
        Place { rows: rows.map(<*const u16>::cast), is_there: !T::IS_E4M3 && key < at.span.end }
    }

    /// The rows of a key in the cache, of the sequence and the head of a place in the line. There are none
    /// behind the last key, and on a page that is none of the cache.
    ///
    /// # Safety
    /// The table is null, or has `params.table_row` numbers for each sequence, which are pages enough for
    /// `params.keys`.
    #[inline(always)]
    #[must_use]
    pub unsafe fn place(self, params: &DecodeParams, at: &Cursor, key: u32) -> Place<T> {
        let (mut matrix, mut row, mut is_there) = (at.sequence, key, key < at.span.end);
        if !self.table.is_null() && is_there {
            let page_size = params.page_size.max(1);
            let index = at.sequence as usize * params.table_row as usize + (key / page_size) as usize;
            // SAFETY: the caller's word; the key is one of the sequence.
            matrix = unsafe { *self.table.add(index) }.cast_unsigned();
            row = key % page_size;
            // Negative numbers are larger than all pages.
            is_there = matrix < params.pages;
        }
        let rows = [
            self.keys.wrapping_add(params.key_strides.at(row, at.head, matrix)),
            self.values.wrapping_add(params.value_strides.at(row, at.head, matrix)),
        ];
        Place { rows, is_there }
    }
}
