//! New keys, and the rotation of queries and new keys.

use crate::memory::{DeviceView, same_length};
use crate::stream::Stream;

use super::super::OPERATION;
use super::super::check::invalid;
use super::super::heads::{Heads, HeadsMut};
use crate::error::Result;

/// Keys and values of a call.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one for each call, on the stack")]
pub(super) enum Cache<'a> {
    /// To look at.
    Read([Heads<'a>; 2]),
    /// With new keys and values that are put into it.
    Append {
        /// K and V.
        kept: [HeadsMut<'a>; 2],
        /// Their new rows.
        new: [Heads<'a>; 2],
    },
}

impl Cache<'_> {
    /// The same for a shorter time.
    pub fn reborrow(&mut self) -> Cache<'_> {
        match self {
            Cache::Read(rows) => Cache::Read(*rows),
            Cache::Append { kept: [keys, values], new } => {
                Cache::Append { kept: [keys.reborrow(), values.reborrow()], new: *new }
            }
        }
    }

    /// K and V.
    pub fn rows(&self) -> [Heads<'_>; 2] {
        match self {
            Cache::Read(rows) => *rows,
            Cache::Append { kept: [keys, values], .. } => [keys.view(), values.view()],
        }
    }

    /// New rows of K and V.
    pub fn new_rows(&self) -> Option<[Heads<'_>; 2]> {
        match self {
            Cache::Read(_) => None,
            Cache::Append { new, .. } => Some(*new),
        }
    }

    /// Kernels can address all rows; none that is written lies where another one does.
    pub fn check(&self) -> Result<()> {
        match self {
            Cache::Read([keys, values]) => {
                keys.check("the keys")?;
                values.check("the values")
            }
            Cache::Append { kept: [keys, values], new } => {
                keys.check("the keys")?;
                values.check("the values")?;
                new[0].check("the new keys")?;
                new[1].check("the new values")
            }
        }
    }
}

/// Elements of a row that are rotated come in so many.
const ROTATED_UNIT: usize = 16;
/// The tables begin at multiples of so many bytes.
const TABLE_ALIGNMENT: u64 = 16;

/// Rotary position embedding of queries and new keys, by f32 tables of cosines and sines, `[positions,
/// rotated / 2]`: pairs of elements of a row turn by the angles of its position among the sequence's keys.
/// The arithmetic is f32, and results are rounded to the element type. [`rotary`](crate::ops::rotary) turns
/// tensors by them, and makes them.
#[derive(Debug, Clone, Copy)]
pub struct Rotary<'a> {
    pub(in crate::ops) cosines: DeviceView<'a, f32>,
    pub(in crate::ops) sines: DeviceView<'a, f32>,
    pub(in crate::ops) rotated: usize,
    pub(in crate::ops) is_by_neighbours: bool,
}

impl<'a> Rotary<'a> {
    /// Elements `i` and `i + rotated / 2` turn together, as in Llama. The first `rotated` elements of a row
    /// do: a multiple of 16 in decoding. The tables have at least a position for each key.
    pub fn halves(
        cosines: impl Into<DeviceView<'a, f32>>,
        sines: impl Into<DeviceView<'a, f32>>,
        rotated: usize,
    ) -> Self {
        Rotary { cosines: cosines.into(), sines: sines.into(), rotated, is_by_neighbours: false }
    }

    /// As [`halves`](Self::halves), but elements `2 i` and `2 i + 1` turn together, as in GPT-J.
    pub fn neighbours(
        cosines: impl Into<DeviceView<'a, f32>>,
        sines: impl Into<DeviceView<'a, f32>>,
        rotated: usize,
    ) -> Self {
        Rotary { is_by_neighbours: true, ..Self::halves(cosines, sines, rotated) }
    }

    /// The tables fit a head size and so many keys.
    pub(super) fn check(&self, head_size: usize, keys: usize) -> Result<()> {
        let Rotary { cosines, sines, rotated, .. } = self;
        if *rotated == 0 || !rotated.is_multiple_of(ROTATED_UNIT) || *rotated > head_size {
            return Err(invalid(
                "the rotated elements",
                rotated.to_string(),
                format!("a multiple of {ROTATED_UNIT} up to the head size, {head_size}"),
                "leave `rotary` out where nothing is rotated",
            ));
        }
        let least = keys.saturating_mul(rotated / 2);
        if cosines.len() < least {
            return Err(invalid(
                "the cosines",
                format!("{} numbers", cosines.len()),
                format!("at least {least}: {} for each of {keys} keys", rotated / 2),
                "compute the tables for the most keys that a sequence can have",
            ));
        }
        same_length(OPERATION, "the sines", cosines.len(), sines.len())?;
        for (argument, table) in [("the cosines", cosines), ("the sines", sines)] {
            let remainder = table.as_ptr().raw() % TABLE_ALIGNMENT;
            if remainder != 0 {
                return Err(invalid(
                    argument,
                    format!("{remainder} bytes behind a {TABLE_ALIGNMENT}-byte boundary"),
                    format!("a table that begins at a {TABLE_ALIGNMENT}-byte boundary"),
                    "begin a slice at a multiple of 4 numbers",
                ));
            }
        }
        Ok(())
    }

    pub(super) fn check_device(&self, stream: &Stream) -> Result<()> {
        stream.same_device("the cosines", self.cosines.device())?;
        stream.same_device("the sines", self.sines.device())
    }
}
