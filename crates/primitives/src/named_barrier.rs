//! Named barriers of a block as an enum: numbers that cannot collide, and one number of threads for each.
//!
//! ```
//! ironwarp_primitives::named_barriers! {
//!     /// Barriers of a kernel with two consumers.
//!     pub enum Barrier {
//!         /// The threads of a consumer.
//!         Consumer[2]: 128 threads,
//!         /// Both consumers, one of which waits.
//!         Order[2]: 256 threads,
//!     }
//! }
//!
//! // 0 is the barrier of the whole block.
//! assert_eq!([Barrier::Consumer(0).id(), Barrier::Consumer(1).id()], [1, 2]);
//! assert_eq!([Barrier::Order(0).id(), Barrier::Order(1).id()], [3, 4]);
//! ```
//! Numbers follow from the declaration. A block has sixteen; one more does not compile:
//!
//! ```compile_fail,E0080
//! ironwarp_primitives::named_barriers! {
//!     enum Barrier {
//!         Many[16]: 32 threads,
//!     }
//! }
//! ```

/// The number of the first barrier of the kind at `kind`. Number 0 is the block's own.
///
/// # Panics
/// When there are more barriers than a block has. Macros call it in constants, so that is a compile error.
#[doc(hidden)]
#[must_use]
pub const fn first(counts: &[u32], kind: usize) -> u32 {
    let (mut first, mut end, mut index) = (1, 1, 0);
    while index < counts.len() {
        if index < kind {
            first += counts[index];
        }
        end += counts[index];
        index += 1;
    }
    assert!(end <= cuda_std::barrier::COUNT, "a block has sixteen barriers, of which number 0 is its own");
    first
}

/// Declares the named barriers of a block; see [`named_barrier`](crate::named_barrier).
///
/// `Kind[COUNT]: THREADS threads` is COUNT barriers, each of THREADS threads a round. `Kind(index)` is one of
/// them; an index beyond COUNT panics on the host, so in every test on the executor.
#[macro_export]
macro_rules! named_barriers {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$doc:meta])* $kind:ident[$count:expr]: $threads:tt threads,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name {
            $($(#[$doc])* $kind(u32),)*
        }

        const _: u32 = $name::FIRST_CHECKED;

        #[allow(dead_code)]
        impl $name {
            const COUNTS: &'static [u32] = &[$($count),*];
            const FIRST_CHECKED: u32 = $crate::named_barrier::first(Self::COUNTS, 0);

            /// Number of the barrier in the block.
            #[inline(always)]
            #[must_use]
            #[track_caller]
            $vis const fn id(self) -> u32 {
                enum Kind { $($kind),* }
                let (first, index, count) = match self {
                    $(Self::$kind(index) => (
                        const { $crate::named_barrier::first(Self::COUNTS, Kind::$kind as usize) },
                        index,
                        $count,
                    ),)*
                };
                if cfg!(not(target_arch = "nvptx64")) {
                    assert!(index < count, "no such barrier of its kind");
                }
                first + index
            }

            /// Threads of a round.
            #[inline(always)]
            #[must_use]
            $vis const fn threads(self) -> u32 {
                match self {
                    $(Self::$kind(_) => $threads,)*
                }
            }

            /// Waits until all threads of the round have come; see [`sync`](cuda_std::barrier::sync).
            ///
            /// # Safety
            /// All live lanes of the warp call it together, and as many threads come as the declaration says.
            #[inline(always)]
            #[track_caller]
            $vis unsafe fn sync(self) {
                // SAFETY: the caller's contract; all calls of a round have the declaration's number of
                // threads.
                unsafe { $crate::cuda_std::barrier::sync(self.id(), self.threads()) }
            }

            /// Counts as having come and does not wait; see [`cuda_std::barrier::arrive`].
            ///
            /// # Safety
            /// As for `sync`.
            #[inline(always)]
            #[track_caller]
            $vis unsafe fn arrive(self) {
                // SAFETY: as in `sync`.
                unsafe { $crate::cuda_std::barrier::arrive(self.id(), self.threads()) }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    named_barriers! {
        enum Barrier {
            One[1]: 32 threads,
            Many[14]: 64 threads,
        }
    }

    #[test]
    fn numbers_follow_each_other_and_leave_out_the_blocks() {
        assert_eq!(Barrier::One(0).id(), 1);
        let many: Vec<u32> = (0..14).map(|index| Barrier::Many(index).id()).collect();
        assert_eq!(many, (2..16).collect::<Vec<_>>());
        assert_eq!((Barrier::One(0).threads(), Barrier::Many(3).threads()), (32, 64));
    }

    #[test]
    #[should_panic(expected = "no such barrier of its kind")]
    fn an_index_stays_in_its_kind() {
        let _ = Barrier::One(1).id();
    }
}
