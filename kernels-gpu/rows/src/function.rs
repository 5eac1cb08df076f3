//! Functions of rows, without a word on where the row lies or who computes it.

use primitives::access;
use primitives::activation::Precision;
use primitives::element::Float;
use primitives::moments::Shifted;
use primitives::row;
use primitives::running::Running;
use primitives::softmax::Softmax;
use primitives::warp::{self, Exchange};

/// Most tensors that a function reads by rows.
pub const MAX_INPUTS: usize = 3;
/// Most tensors that it writes by rows.
pub const MAX_OUTPUTS: usize = 2;

/// A function of rows: what it keeps of a row while it sees it for the first time, and what each element
/// becomes by that.
///
/// An engine calls, for each row, [`begin`](Self::begin); [`take`](Self::take) for all places of the row, by
/// the threads that share it; [`finish`](Self::finish) with what they took together; [`map`](Self::map) for
/// all places again; and [`end`](Self::end).
pub trait RowFunction<T: Float>: Copy {
    /// Tensors that it reads by rows.
    const INPUTS: usize;
    /// Known of a row before it is read.
    type Row: Copy;
    /// Kept of a row.
    type Statistics: Statistics<T::Wide>;
    /// Needed of the row by each element.
    type Of: Copy;

    /// All that is known of the row with this number.
    ///
    /// # Safety
    /// The row exists; the function's own pointers are as it wants them.
    unsafe fn begin(&self, row: u64) -> Self::Row;

    /// Takes in the elements of a place.
    ///
    /// # Safety
    /// As for [`begin`](Self::begin), and the place is one of the row.
    unsafe fn take<const N: usize>(
        &self,
        row: Self::Row,
        statistics: Self::Statistics,
        at: &impl Place<T, N>,
    ) -> Self::Statistics;

    /// From the statistics of the whole row of so many columns. `is_first` says that the thread is the first
    /// of the row's: it may store what there is one of in a row.
    ///
    /// # Safety
    /// As for [`begin`](Self::begin).
    unsafe fn finish(
        &self,
        row: Self::Row,
        statistics: Self::Statistics,
        number: u64,
        columns: u32,
        is_first: bool,
    ) -> Self::Of;

    /// Writes the results of a place.
    ///
    /// # Safety
    /// As for [`take`](Self::take).
    unsafe fn map<const N: usize>(&self, of: &mut Self::Of, at: &impl Place<T, N>);

    /// Behind a thread's last place, with what `map` left in its own `of`.
    ///
    /// # Safety
    /// As for [`begin`](Self::begin); all lanes of the warp call it together. A thread without a place calls
    /// it too.
    #[inline(always)]
    unsafe fn end(&self, _: Self::Of) {}
}

/// A function that also has sums over all rows, one for each column: gradients of what rows share.
pub trait ColumnSums<T: Float>: RowFunction<T> {
    /// Most rows that it asks places for as shared by all.
    const SHARED: usize = 1;
    /// Whether it asks places to [`replace`](Place::replace) inputs. The engine with a ring then tells the
    /// copy engine of each row's stage, and calls [`RowFunction::begin`] again before
    /// [`RowFunction::finish`]: what it gave first would stay in registers while another row is taken in.
    const REPLACES: bool = false;

    /// The only rows that it asks places for as shared by all: no more than [`SHARED`](Self::SHARED) that
    /// are not null. Null ones come last; it asks for one alone, or for the first few. An engine may keep
    /// them, and may want them at 16-byte boundaries.
    fn shared(&self) -> [*const T; MAX_SHARED];

    /// [`RowFunction::map`], which also adds the place's terms to the sums of its columns.
    ///
    /// # Safety
    /// As there.
    unsafe fn map_and_add<const N: usize>(
        &self,
        of: Self::Of,
        at: &impl Place<T, N>,
        sums: &mut [[T::Wide; N]; MAX_SUMS],
    );
}

/// Most sums of a column.
pub const MAX_SUMS: usize = 2;
/// Most rows that all rows share, of a function with sums of columns.
pub const MAX_SHARED: usize = 2;

/// `N` neighbours of a row, wherever an engine keeps them.
pub trait Place<T: Float, const N: usize> {
    /// Column of the first.
    fn column(&self) -> u32;

    /// The elements of an input.
    ///
    /// # Safety
    /// The launch has that input.
    unsafe fn input(&self, which: usize) -> [T::Wide; N];

    /// Stores the elements of an output, rounded.
    ///
    /// # Safety
    /// The launch has that output.
    unsafe fn output(&self, which: usize, values: [T::Wide; N]);

    /// Stores the elements of an output, rounded, in [`RowFunction::take`], for [`kept`](Self::kept). The
    /// elements of input 0 are gone then.
    ///
    /// # Safety
    /// The launch has that output, and no other is kept.
    unsafe fn keep(&self, which: usize, values: [T::Wide; N]);

    /// The elements that were kept, in [`RowFunction::map`].
    ///
    /// # Safety
    /// It was, of that output.
    unsafe fn kept(&self, which: usize) -> [T::Wide; N];

    /// Whether an engine has inputs in memory of its own, so that [`replace`](Self::replace) writes there.
    const REPLACES: bool = false;

    /// Writes elements, rounded, over those of an input, in [`RowFunction::take`]: [`input`](Self::input) has
    /// them from then on. It does nothing where [`REPLACES`](Self::REPLACES) is false.
    ///
    /// # Safety
    /// The launch has that input, and the same thread maps the place. A function with sums of columns has
    /// [`ColumnSums::REPLACES`].
    #[inline(always)]
    unsafe fn replace(&self, _which: usize, _values: [T::Wide; N]) {}

    /// The elements of rows that all rows share.
    ///
    /// # Safety
    /// Each is readable for a row.
    #[inline(always)]
    unsafe fn shared<const K: usize>(&self, rows: [*const T; K]) -> [[T::Wide; N]; K] {
        // SAFETY: the caller's promise.
        rows.map(|row| unsafe { row::shared::<T, N>(row, self.column()) })
    }
}

/// Elements of the type from numbers, one or several.
#[inline(always)]
pub fn narrow<T: Float, const N: usize>(values: [T::Wide; N]) -> [T; N] {
    if N == 1 {
        // Two at a time is the least that narrows.
        return [T::narrow([values[0]; 2])[0]; N];
    }
    T::narrow(values)
}

/// The tensors of a launch, by rows.
#[derive(Debug)]
pub struct Tensors<T> {
    /// Inputs; null where the launch has none.
    pub inputs: [*const T; MAX_INPUTS],
    /// Outputs; null where the launch has none. One may be the first input.
    pub outputs: [*mut T; MAX_OUTPUTS],
}

impl<T> Clone for Tensors<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Tensors<T> {}

impl<T> Tensors<T> {
    /// These; a first input that is null is the first output, which is then written over what it was.
    #[inline(always)]
    pub fn new(mut inputs: [*const T; MAX_INPUTS], outputs: [*mut T; MAX_OUTPUTS]) -> Self {
        if inputs[0].is_null() {
            inputs[0] = outputs[0];
        }
        Self { inputs, outputs }
    }
}

/// Numbers that threads add up for a row, and that merge over lanes, warps and blocks.
pub trait Statistics<W>: Copy {
    /// Of no elements.
    fn empty() -> Self;
    /// As four numbers.
    fn parts(self) -> [W; PARTS];
    /// From those.
    fn from_parts(parts: [W; PARTS]) -> Self;
    /// Those of every `lanes` neighbours together, which each of them gets. `lanes` is a power of two up to
    /// 32.
    ///
    /// # Safety
    /// All lanes of the warp call it together, with the same `lanes`.
    unsafe fn reduce(self, lanes: u32) -> Self;
}

/// Numbers of [`Statistics`]: 16 bytes of f32.
pub const PARTS: usize = 4;

/// Sums, up to four.
pub struct Sums<P: Precision, const K: usize>(pub [P::Value; K]);

impl<P: Precision, const K: usize> Clone for Sums<P, K> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Precision, const K: usize> Copy for Sums<P, K> {}

impl<P: Precision<Value: Exchange>, const K: usize> Statistics<P::Value> for Sums<P, K> {
    #[inline(always)]
    fn empty() -> Self {
        Sums([P::value(0.0); K])
    }

    #[inline(always)]
    fn parts(self) -> [P::Value; PARTS] {
        const { assert!(K <= PARTS) };
        let mut parts = [P::value(0.0); PARTS];
        for i in 0..K {
            parts[i] = self.0[i];
        }
        parts
    }

    #[inline(always)]
    fn from_parts(parts: [P::Value; PARTS]) -> Self {
        let mut sums = [parts[0]; K];
        for i in 0..K {
            sums[i] = parts[i];
        }
        Sums(sums)
    }

    #[inline(always)]
    unsafe fn reduce(mut self, lanes: u32) -> Self {
        for i in 0..K {
            // SAFETY: the caller's contract.
            self.0[i] = unsafe { warp::fold_sections(self.0[i], lanes, |a, b| a + b) };
        }
        self
    }
}

impl<P: Precision<Value: Exchange>> Statistics<P::Value> for Softmax<P> {
    #[inline(always)]
    fn empty() -> Self {
        <Self as Running>::empty()
    }

    #[inline(always)]
    fn parts(self) -> [P::Value; PARTS] {
        [self.max, self.sum, self.sum, self.sum]
    }

    #[inline(always)]
    fn from_parts([max, sum, ..]: [P::Value; PARTS]) -> Self {
        Softmax { max, sum }
    }

    #[inline(always)]
    unsafe fn reduce(self, lanes: u32) -> Self {
        // SAFETY: the caller's contract.
        unsafe { self.reduce_sections(lanes) }
    }
}

impl<P: Precision<Value: Exchange>> Statistics<P::Value> for Shifted<P> {
    #[inline(always)]
    fn empty() -> Self {
        Shifted::empty()
    }

    #[inline(always)]
    fn parts(self) -> [P::Value; PARTS] {
        [self.count, self.shift, self.sum, self.squares]
    }

    #[inline(always)]
    fn from_parts([count, shift, sum, squares]: [P::Value; PARTS]) -> Self {
        Shifted { count, shift, sum, squares }
    }

    #[inline(always)]
    unsafe fn reduce(self, lanes: u32) -> Self {
        // SAFETY: the caller's contract.
        unsafe { self.reduce_sections(lanes) }
    }
}

/// A place in global memory.
pub(crate) struct Direct<T> {
    /// Where the row's elements at the place lie.
    pub tensors: Tensors<T>,
    /// Column of the first.
    pub column: u32,
}

impl<T: Float, const N: usize> Place<T, N> for Direct<T> {
    #[inline(always)]
    fn column(&self) -> u32 {
        self.column
    }

    #[inline(always)]
    unsafe fn input(&self, which: usize) -> [T::Wide; N] {
        // SAFETY: the caller's promise; vectors begin at boundaries.
        unsafe { T::widen(access::load::<T, N>(self.tensors.inputs[which])) }
    }

    #[inline(always)]
    unsafe fn output(&self, which: usize, values: [T::Wide; N]) {
        // SAFETY: the caller's promise; vectors begin at boundaries.
        unsafe { access::store(self.tensors.outputs[which], narrow::<T, N>(values)) }
    }

    #[inline(always)]
    unsafe fn keep(&self, which: usize, values: [T::Wide; N]) {
        // SAFETY: the caller's promise.
        unsafe { self.output(which, values) }
    }

    #[inline(always)]
    unsafe fn kept(&self, which: usize) -> [T::Wide; N] {
        // SAFETY: the caller's promise; this thread wrote them.
        unsafe { T::widen(access::load::<T, N>(self.tensors.outputs[which])) }
    }
}
