//! Norms of a sum whose first term is dropped out: `norm(dropout(x) + residual)`, as transformers have it.

use crate::function::{Place, RowFunction};
use crate::norm::{Norm, added};
use cuda_std::KernelArgs;
use primitives::access;
use primitives::dropout::{Mask, Rate, State};
use primitives::element::{InF32, zip};
use primitives::moments::Shifted;

/// [`Norm`] of input 1 plus dropout of input 0. The mask is that of `x` alone, row behind row. The sum, which
/// is rounded once, is output 1.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct NormOfDropout {
    /// The norm.
    pub norm: Norm,
    /// The generator.
    pub state: *const State,
    /// Which of a step's uses of the generator this is.
    pub call: u32,
    /// As in [`Rate`].
    pub threshold: u32,
    /// As in [`Rate`].
    pub scale: f32,
    /// Elements of a row.
    pub columns: u32,
}

impl<T: InF32> RowFunction<T> for NormOfDropout {
    const INPUTS: usize = <Norm as RowFunction<T>>::INPUTS;
    /// The generator, and the place of the row's first element.
    type Row = (State, u64);
    type Statistics = Shifted<T::Precision>;
    type Of = <Norm as RowFunction<T>>::Of;

    #[inline(always)]
    unsafe fn begin(&self, row: u64) -> (State, u64) {
        // SAFETY: the state is readable. Loads of global memory, which plain ones of it would not be.
        let ([seed], [step]) = unsafe {
            (access::load(&raw const (*self.state).seed), access::load(&raw const (*self.state).step))
        };
        (State { seed, step }, row * u64::from(self.columns))
    }

    #[inline(always)]
    unsafe fn take<const N: usize>(
        &self,
        (state, first): (State, u64),
        moments: Self::Statistics,
        at: &impl Place<T, N>,
    ) -> Self::Statistics {
        let rate = Rate { threshold: self.threshold, scale: self.scale };
        let mask = Mask { state, call: self.call, rate };
        // SAFETY: the caller's promise; input 0 is not asked for again.
        unsafe {
            let random = mask.random::<N>(first + u64::from(at.column()));
            let x = zip(at.input(0), random, |x, random| mask.of(x, random));
            let sum = added::<T, N>(x, at.input(1));
            at.keep(1, sum);
            self.norm.push::<T, N>(moments, sum)
        }
    }

    #[inline(always)]
    unsafe fn finish(
        &self,
        _: (State, u64),
        moments: Self::Statistics,
        number: u64,
        columns: u32,
        is_first: bool,
    ) -> Self::Of {
        // SAFETY: the caller's promise.
        unsafe { RowFunction::<T>::finish(&self.norm, (), moments, number, columns, is_first) }
    }

    #[inline(always)]
    unsafe fn map<const N: usize>(&self, of: &mut Self::Of, at: &impl Place<T, N>) {
        // SAFETY: the caller's promise; the sum was kept.
        unsafe { at.output(0, self.norm.results(*of, at.kept(1), at)) }
    }
}
