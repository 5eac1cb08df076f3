//! Products of groups of rows: rows `offsets[g]..offsets[g + 1]` of A by matrix `g` of B, as the experts of a
//! mixture take their tokens.
//!
//! The offsets are numbers on the device, which the host never sees. So what a kernel makes of them must not
//! depend on their being right: each counts as no less than the one before it, and no more than the rows that
//! there are. Groups then never overlap, and nothing outside of A and C is touched, whatever the numbers are.

use cuda_std::KernelArgs;

/// The groups of a grouped kernel, but for their offsets.
#[derive(Debug, Clone, Copy, KernelArgs)]
#[repr(C)]
pub struct GroupParams {
    /// How many groups.
    pub count: u32,
    /// The offsets have 64 bits, else 32. There are `count + 1` of them.
    pub is_wide: bool,
}

/// Offsets of groups.
#[derive(Clone, Copy)]
pub struct Groups {
    /// `count + 1` numbers of 32 bits, or of 64.
    offsets: *const i32,
    is_wide: bool,
    /// Groups.
    count: u32,
    /// Rows in all.
    rows: u32,
    /// Groups that have been seen.
    seen: u32,
    /// Rows of the last one of them.
    begin: u32,
    end: u32,
}

/// A group's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Which.
    pub index: u32,
    /// First row.
    pub begin: u32,
    /// Behind the last row.
    pub end: u32,
}

impl Groups {
    /// Groups of `rows` rows in all. Nothing is read yet.
    #[inline(always)]
    pub const fn new(offsets: *const i32, params: &GroupParams, rows: u32) -> Self {
        let GroupParams { count, is_wide } = *params;
        Self { offsets, is_wide, count, rows, seen: 0, begin: 0, end: 0 }
    }

    /// The group that [`Groups::next`] gave last.
    #[inline(always)]
    pub const fn last(&self) -> Group {
        Group { index: self.seen.wrapping_sub(1), begin: self.begin, end: self.end }
    }

    /// The next group, if there is one.
    ///
    /// # Safety
    /// The offsets can be read, and stay what they are.
    #[inline(always)]
    pub unsafe fn next(&mut self) -> Option<Group> {
        if self.seen == self.count {
            return None;
        }
        // SAFETY: the caller's contract: there is one offset more than groups.
        unsafe {
            self.begin = self.offset(self.seen, self.end);
            self.end = self.offset(self.seen + 1, self.begin);
        }
        self.seen += 1;
        Some(self.last())
    }

    /// An offset, at least `low` and at most the number of rows.
    ///
    /// # Safety
    /// `self.offsets` has an element `index`, of the width that `is_wide` says.
    #[inline(always)]
    unsafe fn offset(&self, index: u32, low: u32) -> u32 {
        // SAFETY: one of the offsets, by the caller's word.
        let offset = unsafe {
            if self.is_wide {
                self.offsets.cast::<i64>().add(index as usize).read()
            } else {
                i64::from(self.offsets.add(index as usize).read())
            }
        };
        if offset < i64::from(low) {
            low
        } else if offset > i64::from(self.rows) {
            self.rows
        } else {
            offset as u32
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Group, GroupParams, Groups};

    fn groups(offsets: *const i32, is_wide: bool, count: u32, rows: u32) -> Groups {
        Groups::new(offsets, &GroupParams { count, is_wide }, rows)
    }

    fn ranges(groups: Groups) -> Vec<(u32, u32)> {
        let mut groups = groups;
        // SAFETY: the callers' arrays have one offset more than groups.
        std::iter::from_fn(|| unsafe { groups.next() }).map(|Group { begin, end, .. }| (begin, end)).collect()
    }

    #[test]
    fn right_offsets_are_taken_as_they_are() {
        let offsets = [2, 2, 5, 9];
        assert_eq!(ranges(groups(offsets.as_ptr(), false, 3, 10)), [(2, 2), (2, 5), (5, 9)]);
        let wide = offsets.map(i64::from);
        assert_eq!(ranges(groups(wide.as_ptr().cast(), true, 3, 10)), [(2, 2), (2, 5), (5, 9)]);
        assert_eq!(ranges(groups(offsets.as_ptr(), false, 0, 10)), []);
    }

    /// Whatever they are, groups ascend and stay inside.
    #[test]
    fn wrong_offsets_do_no_harm() {
        let offsets = [-3, 4, 2, i32::MAX, i32::MIN, 7];
        let seen = ranges(groups(offsets.as_ptr(), false, 5, 6));
        assert_eq!(seen, [(0, 4), (4, 4), (4, 6), (6, 6), (6, 6)]);
        let wide = [i64::MIN, 1 << 40, 3];
        assert_eq!(ranges(groups(wide.as_ptr().cast(), true, 2, 6)), [(0, 6), (6, 6)]);
    }
}
