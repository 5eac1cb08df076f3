//! Who knows whose accesses: barriers, warp syncs, fences and atomics.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::cell::{Order, Stamp};
use super::clock::{History, Seen, VectorClock, join_clocks, join_histories};
use crate::exec::context::{Block, Thread};
use crate::exec::group::Group;
use crate::memory::Scope;

/// What one thread knows.
#[derive(Clone, Default)]
struct Known {
    /// Floor of the block under which `clock` holds.
    floor: u32,
    /// Of the threads of its block.
    clock: Option<Arc<VectorClock>>,
    /// Of other blocks.
    history: Option<Arc<History>>,
}

/// What a thread has made known with a fence or a release.
#[derive(Clone)]
struct Publication {
    own: Seen,
    history: Option<Arc<History>>,
}

/// Knowledge of one thread.
#[derive(Default)]
pub(crate) struct ThreadSync {
    known: RefCell<Known>,
    fenced: RefCell<Option<Publication>>,
}

/// Knowledge that the threads of a block share.
#[derive(Default)]
pub(crate) struct BlockSync {
    tick: Cell<u32>,
    floor: Cell<u32>,
    history: RefCell<Option<Arc<History>>>,
    /// Whether a thread has learnt of other blocks since the last barrier of the block.
    has_news: Cell<bool>,
    /// The widest fence since the last barrier of the block.
    fence: Cell<Option<Scope>>,
    /// What fences before the last barrier of the block make known.
    fenced: RefCell<Option<Publication>>,
    /// What is known through atomics in shared memory, by address.
    shared_atomics: RefCell<HashMap<usize, Arc<History>>>,
}

/// What is known through atomics in global memory, by address.
#[derive(Default)]
pub(crate) struct GlobalAtomics {
    published: AtomicBool,
    by_address: Mutex<HashMap<usize, Arc<History>>>,
}

/// What threads that arrived at a barrier without waiting have made known.
#[derive(Default)]
pub(crate) struct Released {
    floor: u32,
    clock: Option<Arc<VectorClock>>,
    history: Option<Arc<History>>,
}

impl BlockSync {
    pub fn reset(&self) {
        self.tick.set(1);
        self.floor.set(1);
        self.history.take();
        self.has_news.set(false);
        self.fence.set(None);
        self.fenced.take();
        self.shared_atomics.borrow_mut().clear();
    }

    pub fn time(&self) -> u32 {
        self.tick.get()
    }

    fn advance(&self) -> u32 {
        self.tick.set(self.tick.get() + 1);
        self.tick.get()
    }

    fn raise_floor(&self) {
        self.floor.set(self.advance());
    }
}

impl ThreadSync {
    pub fn reset(&self) {
        *self.known.borrow_mut() = Known::default();
        self.fenced.take();
    }

    /// What the thread knows of its block under the present floor.
    fn clock(&self, block: &BlockSync) -> Option<Arc<VectorClock>> {
        let known = self.known.borrow();
        known.clock.clone().filter(|_| known.floor == block.floor.get())
    }

    fn set_clock(&self, block: &BlockSync, clock: Option<Arc<VectorClock>>) {
        let mut known = self.known.borrow_mut();
        known.floor = block.floor.get();
        known.clock = clock;
    }

    fn learn(&self, block: &BlockSync, history: Option<&Arc<History>>) {
        if history.is_some() {
            join_histories(&mut self.known.borrow_mut().history, history);
            block.has_news.set(true);
        }
    }

    /// Adds what the thread knows and has done to what a barrier passes on.
    pub fn release_into(&self, thread: &Thread, before: Option<Released>) -> Released {
        let block = &thread.block().check.sync;
        let mut released = before.filter(|released| released.floor == block.floor.get()).unwrap_or_default();
        released.floor = block.floor.get();
        join_clocks(&mut released.clock, self.clock(block).as_ref());
        Arc::make_mut(released.clock.get_or_insert_default()).raise(thread.rank, block.advance());
        join_histories(&mut released.history, self.known.borrow().history.as_ref());
        released
    }

    /// What the thread can make known now.
    fn publication(&self, thread: &Thread, scope: Scope) -> Publication {
        let block = &thread.block().check.sync;
        let mut clock = self.clock(block);
        Arc::make_mut(clock.get_or_insert_default()).raise(thread.rank, block.advance());
        let mut history = self.known.borrow().history.clone();
        join_histories(&mut history, block.history.borrow().as_ref());
        Publication { own: Seen { floor: block.floor.get(), clock, wide: scope > Scope::Block }, history }
    }
}

/// Compares earlier accesses with what the present thread knows.
pub(crate) struct View<'t> {
    pub thread: &'t Thread,
    pub block: &'t Block,
}

impl Order for View<'_> {
    #[inline]
    fn is_before(&self, earlier: Stamp) -> bool {
        let sync = &self.block.check.sync;
        if earlier.block == self.block.number.get() as u32 {
            return earlier.time < sync.floor.get() || self.knows_of_own_block(earlier);
        }
        let known = self.thread.check.sync.known.borrow();
        let covered = |history: Option<&Arc<History>>| {
            let seen = history.and_then(|history| history.get(earlier.block.into()));
            seen.is_some_and(|seen| seen.wide && seen.covers(earlier.rank(), earlier.time))
        };
        covered(known.history.as_ref()) || covered(sync.history.borrow().as_ref())
    }
}

impl View<'_> {
    fn knows_of_own_block(&self, earlier: Stamp) -> bool {
        let known = self.thread.check.sync.known.borrow();
        known.floor == self.block.check.sync.floor.get()
            && known.clock.as_ref().is_some_and(|clock| earlier.time < clock.get(earlier.rank()))
    }
}

/// The threads in `slots`, all of one block, have met; `released` comes from those that did not wait.
pub(crate) fn synchronise(thread: &Thread, slots: &[u32], released: Option<Released>) {
    let block = thread.block();
    let group = thread.group();
    if slots.len() == block.threads as usize && released.is_none() {
        return synchronise_block(group, block, slots);
    }
    let sync = &block.check.sync;
    let released = released.unwrap_or_default();
    let mut clock = released.clock.filter(|_| released.floor == sync.floor.get());
    let mut history = released.history;
    let threads = || slots.iter().map(|&slot| &group.threads[slot as usize]);
    for other in threads() {
        join_clocks(&mut clock, other.check.sync.clock(sync).as_ref());
        join_histories(&mut history, other.check.sync.known.borrow().history.as_ref());
    }
    let now = sync.advance();
    let met = Arc::make_mut(clock.get_or_insert_default());
    threads().for_each(|other| met.raise(other.rank, now));
    for other in threads() {
        other.check.sync.set_clock(sync, clock.clone());
        other.check.sync.learn(sync, history.as_ref());
    }
}

/// All threads of a block have met.
fn synchronise_block(group: &Group<'_>, block: &Block, slots: &[u32]) {
    let sync = &block.check.sync;
    sync.raise_floor();
    if let Some(fault) = block.check.suspicion.take() {
        group.raise(fault);
    }
    if sync.has_news.replace(false) {
        let mut history = sync.history.borrow_mut();
        for &slot in slots {
            let news = group.threads[slot as usize].check.sync.known.borrow_mut().history.take();
            join_histories(&mut history, news.as_ref());
        }
    }
    if let Some(scope) = sync.fence.take() {
        // A fence by any thread before the barrier counts for all after it: kernels often fence in every thread
        // and let one of them tell the other blocks.
        let own = Seen { floor: sync.floor.get(), clock: None, wide: scope > Scope::Block };
        sync.fenced.replace(Some(Publication { own, history: sync.history.borrow().clone() }));
    }
}

/// All threads of the grid have met.
pub(crate) fn synchronise_grid(group: &Group<'_>) {
    let mut history = History::default();
    for block in &group.blocks {
        let sync = &block.check.sync;
        sync.raise_floor();
        history.add(block.number.get(), Seen { floor: sync.floor.get(), clock: None, wide: true });
    }
    let history = Arc::new(history);
    for block in &group.blocks {
        join_histories(&mut block.check.sync.history.borrow_mut(), Some(&history));
    }
}

/// The thread has carried out a fence.
pub(crate) fn fence(thread: &Thread, scope: Scope) {
    let sync = &thread.block().check.sync;
    let publication = thread.check.sync.publication(thread, scope);
    thread.check.sync.fenced.replace(Some(publication));
    sync.fence.set(sync.fence.get().max(Some(scope)));
}

/// The thread carries out an atomic operation at `address`. It makes known what its order or an earlier fence allows,
/// and learns what others have made known there, whatever its order: being strict about missing acquire fences would
/// report kernels that are right on every GPU.
pub(crate) fn atomic_order(thread: &Thread, address: usize, order: Ordering, scope: Scope, is_shared: bool) {
    let block = thread.block();
    let publications = publications(thread, order, scope);
    if is_shared {
        let mut atomics = block.check.sync.shared_atomics.borrow_mut();
        return exchange(thread, &mut atomics, address, publications);
    }
    let Some(check) = &thread.group().launch.check else { return };
    let atomics = &check.atomics;
    if publications.iter().flatten().next().is_some() {
        atomics.published.store(true, Ordering::Release);
    } else if !atomics.published.load(Ordering::Acquire) {
        return;
    }
    let mut by_address = atomics.by_address.lock().unwrap_or_else(PoisonError::into_inner);
    exchange(thread, &mut by_address, address, publications);
}

fn publications(thread: &Thread, order: Ordering, scope: Scope) -> [Option<Publication>; 3] {
    let releases = matches!(order, Ordering::Release | Ordering::AcqRel | Ordering::SeqCst);
    let now = releases.then(|| thread.check.sync.publication(thread, scope));
    [now, thread.check.sync.fenced.borrow().clone(), thread.block().check.sync.fenced.borrow().clone()]
}

fn exchange(
    thread: &Thread,
    atomics: &mut HashMap<usize, Arc<History>>,
    address: usize,
    publications: [Option<Publication>; 3],
) {
    let block = thread.block();
    let number = block.number.get();
    let sync = &block.check.sync;
    for publication in publications.into_iter().flatten() {
        let told = atomics.entry(address).or_default();
        Arc::make_mut(told).add(number, publication.own);
        if let Some(history) = publication.history {
            Arc::make_mut(told).join(&history);
        }
    }
    let Some(told) = atomics.get(&address) else { return };
    let own = told.get(number).filter(|seen| seen.floor == sync.floor.get());
    if let Some(clock) = own.and_then(|seen| seen.clock.as_ref()) {
        let mut mine = thread.check.sync.clock(sync);
        join_clocks(&mut mine, Some(clock));
        thread.check.sync.set_clock(sync, mine);
    }
    thread.check.sync.learn(sync, Some(told));
}
