//! Decode attention with ALiBi or a soft cap, by kernels of the family.

use attention::decode::compiled::CompiledDecode;
use attention::functions::Pattern;
use cuda_std::kernel::StructArgs;

use crate::error::Result;
use crate::memory::DeviceView;

use super::super::places::{
    AlibiValues, NoSlopes, PatternValues, Places, pattern_of_cap, pattern_of_slopes, soft_cap,
};
use super::plan::{Kernels, PLAIN};
use super::{Decode, ModifiedDecode};

/// [`Decode`] with slopes, of which there is one for each head of queries.
pub type DecodeWithAlibi<'a, 's> = ModifiedDecode<'a, Pattern, PatternValues<AlibiValues<'s>>>;
/// [`Decode`] with a cap of scores, and one over it.
pub type DecodeWithSoftCap<'a> = ModifiedDecode<'a, Pattern, PatternValues<NoSlopes>>;

impl<'a> Decode<'a> {
    /// As [`Attention::alibi`](super::super::Attention::alibi): subtracts `slope * distance` from each score,
    /// with a slope for each head of queries. The distance is that of the key from the query's diagonal,
    /// which ends in the last query and the sequence's last key unless the mask says otherwise. The kernel
    /// computes it from the length on the device, so that a graph can replay it with other lengths.
    ///
    /// All else that the call asks for works as before: pages, new keys, rotation, a mask, a cache in e4m3.
    /// [Sinks](Self::sinks) stand beside the new scores, and log-sum-exps are theirs.
    ///
    /// # Errors
    /// [`Error::Length`](crate::Error::Length) for another number of slopes.
    pub fn alibi<'s>(self, slopes: impl Into<DeviceView<'s, f32>>) -> Result<DecodeWithAlibi<'a, 's>> {
        // The keys of a page or of a matrix: slopes do not depend on them.
        let places = Places::new(&self.queries, &self.cache.rows()[0], false);
        let function = pattern_of_slopes(places.alibi(slopes.into())?);
        // SAFETY: there is a slope for each head of queries.
        Ok(unsafe { self.pattern(function, "ALiBi") })
    }

    /// As [`Attention::soft_cap`](super::super::Attention::soft_cap): makes each score `cap * tanh(score /
    /// cap)`. The tangent has a relative error of 2^-11. A sliding window, which models with a soft cap have
    /// in some layers, is a [mask](Self::mask).
    ///
    /// All else works as with [`alibi`](Self::alibi).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a cap that is not positive and finite.
    pub fn soft_cap(self, cap: f32) -> Result<DecodeWithSoftCap<'a>> {
        let function = pattern_of_cap(soft_cap(cap)?);
        // SAFETY: no memory is read.
        Ok(unsafe { self.pattern(function, "a soft cap") })
    }

    /// With a function of the family that `explain` calls so.
    ///
    /// # Safety
    /// As for [`function`](Self::function).
    unsafe fn pattern<V>(
        self,
        function: StructArgs<Pattern, V>,
        name: &'static str,
    ) -> ModifiedDecode<'a, Pattern, V> {
        let kernels = Kernels { tables: [Pattern::DECODE, &[]], pattern: Some(name), hint: PLAIN.hint };
        ModifiedDecode { decode: self, function, kernels }
    }
}
