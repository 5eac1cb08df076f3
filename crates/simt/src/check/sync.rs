//! The knowledge that threads pass on: by barriers, warp syncs, fences and atomics.

mod published;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Access;
use super::cell::{Order, Stamp};
use super::clock::{History, Previous, Seen, VectorClock, join_clocks, join_histories};
use super::proxy::{Agent, Operation};
use crate::exec::context::{Block, Thread};
use crate::exec::group::Group;
use crate::exec::together::RUNS;
use crate::memory::Scope;
use published::{Boards, tell};
pub(crate) use published::{GlobalAtomics, Learnt, group_ends};

/// The knowledge of one thread.
#[derive(Clone, Default)]
struct Known {
    /// Floor of the block under which `clock` holds.
    floor: u32,
    /// Knowledge of the threads of its block.
    clock: Option<Arc<VectorClock>>,
    /// Knowledge of other blocks.
    history: Option<Arc<History>>,
}

/// The knowledge that a thread has published with a fence or a release.
#[derive(Clone)]
struct Publication {
    own: Seen,
    history: Option<Arc<History>>,
    scope: Scope,
}

/// Knowledge of one thread.
#[derive(Default)]
pub(crate) struct ThreadSync {
    known: RefCell<Known>,
    /// The floor for which `known` has a clock; 0 for none.
    clock_floor: Cell<u32>,
    fenced: RefCell<Option<Publication>>,
    /// Words that the thread has read without acquiring what was published there: its next fence acquires it.
    unacquired: RefCell<VecDeque<usize>>,
    /// The knowledge that it has learnt last: a thread that polls meets the same again and again.
    latest: RefCell<Option<Arc<History>>>,
}

/// Words that [`ThreadSync`] remembers; a kernel polls few.
const UNACQUIRED: usize = 32;

/// Knowledge that the threads of a block share.
#[derive(Default)]
pub(crate) struct BlockSync {
    tick: Cell<u32>,
    /// Counts the ticks of all blocks that have had this place.
    epoch: Cell<u64>,
    floor: Cell<u32>,
    history: RefCell<Option<Arc<History>>>,
    /// `history` as it was when the block began: what earlier launches have learnt.
    taught: RefCell<Option<Arc<History>>>,
    /// Whether a thread has learnt of other blocks since the last barrier of the block.
    has_news: Cell<bool>,
    /// The widest fence since the last barrier of the block.
    fence: Cell<Option<Scope>>,
    /// The knowledge published by fences before the last barrier of the block.
    fenced: RefCell<Option<Publication>>,
    /// The knowledge passed on through atomics in shared memory.
    shared_atomics: RefCell<Boards>,
}

/// The knowledge published by threads that arrived at a barrier without waiting.
#[derive(Default)]
pub(crate) struct Released {
    floor: u32,
    clock: Option<Arc<VectorClock>>,
    history: Option<Arc<History>>,
    /// The latest join: threads of a warp often share the same knowledge.
    clocks: Memo<VectorClock>,
    histories: Memo<History>,
}

/// The latest of many joins with the same knowledge.
struct Memo<T>(RefCell<Option<Joined<T>>>);

/// The knowledge of a thread before and after a join.
type Joined<T> = (Option<Arc<T>>, Option<Arc<T>>);

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self(RefCell::new(None))
    }
}

impl<T> Memo<T> {
    fn clear(&self) {
        self.0.take();
    }

    /// The result of `join` on `mine`. `join` is not called if the last call had the same input.
    fn join(&self, mine: Option<Arc<T>>, join: impl FnOnce(&mut Option<Arc<T>>)) -> Option<Arc<T>> {
        let address = |knowledge: &Option<Arc<T>>| knowledge.as_ref().map(Arc::as_ptr);
        if let Some((before, after)) = &*self.0.borrow()
            && address(before) == address(&mine)
        {
            return after.clone();
        }
        let mut joined = mine.clone();
        join(&mut joined);
        self.0.replace(Some((mine, joined.clone())));
        joined
    }
}

impl Released {
    /// Adds the knowledge and the accesses of a thread of another block.
    pub fn add_remote(&mut self, thread: &Thread) {
        self.histories.clear();
        let told = thread.check.sync.publication(thread, Scope::Cluster);
        let history = Arc::make_mut(self.history.get_or_insert_default());
        history.add(thread.block().number.get(), told.own);
        if let Some(more) = told.history {
            history.join(&more);
        }
    }

    /// Adds, of a thread of another block, the asynchronous operations that it has waited for, the fact that
    /// its block runs, and the knowledge that its last fence covers.
    pub fn add_remote_async(&mut self, thread: &Thread) {
        self.histories.clear();
        let block = thread.block();
        let history = Arc::make_mut(self.history.get_or_insert_default());
        history.add_relaxed(thread);
        let (own, shared) = (thread.check.sync.known.borrow(), block.check.sync.history.borrow());
        [&own.history, &*shared].into_iter().flatten().for_each(|known| history.join_completed(known));
    }

    /// Records that the first `turns` turns of an agent are over.
    pub fn complete(&mut self, agent: Agent, turns: u32) {
        self.histories.clear();
        Arc::make_mut(self.history.get_or_insert_default()).complete(agent, turns);
    }

    /// Adds later knowledge.
    pub fn join(&mut self, later: Self) {
        self.clocks.clear();
        self.histories.clear();
        if later.floor > self.floor {
            self.floor = later.floor;
            self.clock = later.clock;
        } else {
            join_clocks(&mut self.clock, later.clock.as_ref());
        }
        join_histories(&mut self.history, later.history.as_ref());
    }

    /// Gives this knowledge to the thread, which belongs to the block for which it was gathered.
    pub fn acquire(&self, thread: &Thread) {
        let sync = &thread.block().check.sync;
        let gathered = self.clock.as_ref().filter(|_| self.floor == sync.floor.get());
        let told = || self.history.iter().flat_map(|history| own_clocks(thread, history));
        if gathered.is_some() || told().next().is_some() {
            let mine = thread.check.sync.clock(sync);
            let joined = self.clocks.join(mine, |mine| {
                gathered.into_iter().chain(told()).for_each(|clock| join_clocks(mine, Some(clock)));
            });
            thread.check.sync.set_clock(sync, joined);
        }
        if let Some(history) = &self.history {
            let mut known = thread.check.sync.known.borrow_mut();
            let mine = known.history.take();
            known.history = self.histories.join(mine, |mine| join_histories(mine, Some(history)));
            sync.has_news.set(true);
        }
    }
}

/// The knowledge of others about the thread's own block, under its present floor.
fn own_clocks<'h>(thread: &Thread, told: &'h History) -> impl Iterator<Item = &'h Arc<VectorClock>> {
    let block = thread.block();
    let floor = block.check.sync.floor.get();
    told.of_own(block.number.get()).filter(move |own| own.floor == floor).filter_map(|own| own.clock.as_ref())
}

impl BlockSync {
    pub fn reset(&self) {
        self.tick.set(1);
        self.next_epoch();
        self.floor.set(1);
        self.history.take();
        self.taught.take();
        self.has_news.set(false);
        self.fence.set(None);
        self.fenced.take();
        self.shared_atomics.borrow_mut().clear();
    }

    pub fn time(&self) -> u32 {
        self.tick.get()
    }

    /// Accesses of the block stamped before it are known to all its threads.
    #[inline]
    pub fn floor(&self) -> u32 {
        self.floor.get()
    }

    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.get()
    }

    fn next_epoch(&self) {
        self.epoch.set(self.epoch.get() + 1);
    }

    fn advance(&self) -> u32 {
        self.next_epoch();
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
        self.clock_floor.set(0);
        self.fenced.take();
        self.unacquired.borrow_mut().clear();
        self.latest.take();
    }

    /// Whether the thread knows of accesses of its block at or above the floor.
    #[inline]
    pub fn knows_more_than(&self, floor: u32) -> bool {
        self.clock_floor.get() == floor
    }

    /// Whether the thread knows of anything beyond its block.
    #[inline]
    pub fn knows_of_others(&self, block: &Block) -> bool {
        self.known.borrow().history.is_some() || block.check.sync.history.borrow().is_some()
    }

    /// The thread's knowledge of its block under the present floor.
    fn clock(&self, block: &BlockSync) -> Option<Arc<VectorClock>> {
        let known = self.known.borrow();
        known.clock.clone().filter(|_| known.floor == block.floor.get())
    }

    fn set_clock(&self, block: &BlockSync, clock: Option<Arc<VectorClock>>) {
        let mut known = self.known.borrow_mut();
        known.floor = block.floor.get();
        self.clock_floor.set(if clock.is_some() { known.floor } else { 0 });
        known.clock = clock;
    }

    fn learn(&self, block: &BlockSync, history: Option<&Arc<History>>) {
        if history.is_some() {
            join_histories(&mut self.known.borrow_mut().history, history);
            block.has_news.set(true);
        }
    }

    /// Adds the knowledge that other threads have passed on.
    fn learn_from(&self, thread: &Thread, told: &Arc<History>) {
        // While it is kept here, nobody changes it: whoever adds to it makes a copy.
        if self.latest.borrow().as_ref().is_some_and(|latest| Arc::ptr_eq(latest, told)) {
            return;
        }
        self.latest.replace(Some(Arc::clone(told)));
        let sync = &thread.block().check.sync;
        for clock in own_clocks(thread, told) {
            let mut mine = self.clock(sync);
            join_clocks(&mut mine, Some(clock));
            self.set_clock(sync, mine);
        }
        self.learn(sync, Some(told));
    }

    /// Adds the thread's knowledge and accesses to the knowledge that a barrier passes on.
    pub fn release_into(&self, thread: &Thread, before: Option<Released>) -> Released {
        let block = &thread.block().check.sync;
        let mut released = before.unwrap_or_default();
        if released.floor != block.floor.get() {
            // All knowledge under an earlier floor is below this one.
            released.floor = block.floor.get();
            released.clock = None;
        }
        join_clocks(&mut released.clock, self.clock(block).as_ref());
        Arc::make_mut(released.clock.get_or_insert_default()).raise(thread.rank, block.advance());
        join_histories(&mut released.history, self.known.borrow().history.as_ref());
        released
    }

    /// The knowledge that the thread can publish now.
    fn publication(&self, thread: &Thread, scope: Scope) -> Publication {
        let block = &thread.block().check.sync;
        let mut clock = self.clock(block);
        Arc::make_mut(clock.get_or_insert_default()).raise(thread.rank, block.advance());
        let mut history = self.known.borrow().history.clone();
        join_histories(&mut history, block.history.borrow().as_ref());
        let begun = thread.group().launch.membership.begun;
        if begun > history.as_ref().map_or(0, |history| history.ended()) {
            Arc::make_mut(history.get_or_insert_default()).end(begun);
        }
        Publication {
            own: Seen { floor: block.floor.get(), clock, wide: scope > Scope::Block },
            history,
            scope,
        }
    }
}

/// Compares earlier accesses with the knowledge of the present thread.
pub(crate) struct View<'t> {
    pub thread: &'t Thread,
    pub block: &'t Block,
}

impl Order for View<'_> {
    #[inline]
    fn is_before(&self, earlier: Stamp) -> bool {
        let sync = &self.block.check.sync;
        if earlier.is_tracked() {
            return match self.operation(earlier) {
                Some(operation) => self.has_completed(operation),
                // Of a block that runs elsewhere: whoever has heard from it is not accused.
                None => self.is_over(earlier) || self.any_history(|history| history.covers(earlier)),
            };
        }
        if earlier.block == self.block.number.get() as u32 {
            return earlier.time < sync.floor.get() || self.knows_of_own_block(earlier);
        }
        self.any_history(|history| history.covers(earlier)) || self.is_over(earlier)
    }

    #[inline]
    fn is_over(&self, earlier: Stamp) -> bool {
        let membership = &self.thread.group().launch.membership;
        if membership.has(earlier.block) {
            return false;
        }
        if membership.is_settled(earlier.block) {
            return true;
        }
        let ended = membership.ended(earlier.block);
        ended < membership.begun || ended != RUNS && self.any_history(|history| ended < history.ended())
    }

    fn is_before_block(&self, earlier: Stamp) -> bool {
        self.block.check.sync.taught.borrow().as_ref().is_some_and(|history| history.covers(earlier))
    }

    fn is_of_device(&self, earlier: Stamp) -> bool {
        self.thread.group().launch.membership.is_beside(earlier.block)
    }

    fn is_fenced(&self, earlier: Stamp) -> bool {
        if earlier.is_tracked() {
            let is_fenced = |operation| self.any_history(|history| history.is_fenced_behind(operation));
            return self.operation(earlier).is_none_or(is_fenced);
        }
        self.any_history(|history| history.is_fenced(earlier.block.into(), earlier.rank(), earlier.time))
    }

    fn in_sequence(&self, earlier: Stamp, later: Stamp) -> bool {
        let agent = |stamp| self.operation(stamp).map(|operation| operation.agent);
        earlier.is_tracked()
            && later.is_tracked()
            && agent(earlier).is_some_and(|of| Some(of) == agent(later))
    }
}

impl View<'_> {
    /// The operation of a tracked access, if its block runs beside the thread's own.
    fn operation(&self, tracked: Stamp) -> Option<Operation> {
        let group = self.thread.group();
        let first = group.blocks[0].number.get() as u32;
        let is_here = (tracked.block.wrapping_sub(first) as usize) < group.blocks.len();
        is_here.then(|| group.operations.get(tracked.time))
    }

    /// Whether an asynchronous operation is known to be over.
    pub fn has_completed(&self, operation: Operation) -> bool {
        self.any_history(|history| history.has_completed(operation))
    }

    /// Whether `holds` is true of the thread's or its whole block's knowledge of other blocks.
    fn any_history(&self, holds: impl Fn(&History) -> bool) -> bool {
        let known = self.thread.check.sync.known.borrow();
        known.history.as_ref().is_some_and(|history| holds(history))
            || self.block.check.sync.history.borrow().as_ref().is_some_and(|history| holds(history))
    }

    fn knows_of_own_block(&self, earlier: Stamp) -> bool {
        let known = self.thread.check.sync.known.borrow();
        known.floor == self.block.check.sync.floor.get()
            && known.clock.as_ref().is_some_and(|clock| earlier.time < clock.get(earlier.rank()))
    }
}

/// Synchronises the threads in `slots`, all of one block. `released` comes from threads that did not wait.
pub(crate) fn synchronise(thread: &Thread, slots: &[u32], released: Option<Released>) {
    let (block, group) = (thread.block(), thread.group());
    if slots.len() == block.threads as usize && released.is_none() {
        return synchronise_block(group, block, slots);
    }
    let sync = &block.check.sync;
    let released = released.unwrap_or_default();
    let mut clock = released.clock.filter(|_| released.floor == sync.floor.get());
    let mut history = released.history;
    let threads = || slots.iter().map(|&slot| &group.threads[slot as usize]);
    // Threads that waited together know the same. All give theirs away, and get the union.
    let (mut clocks, mut histories) = (Previous::default(), Previous::default());
    for other in threads() {
        let Known { floor, clock: theirs, history: news } = other.check.sync.known.take();
        let theirs = theirs.filter(|_| floor == sync.floor.get());
        join_clocks(&mut clock, clocks.unless_same(theirs.as_ref()));
        join_histories(&mut history, histories.unless_same(news.as_ref()));
    }
    let now = sync.advance();
    let met = Arc::make_mut(clock.get_or_insert_default());
    threads().for_each(|other| met.raise(other.rank, now));
    sync.has_news.set(sync.has_news.get() || history.is_some());
    for other in threads() {
        other.check.sync.set_clock(sync, clock.clone());
        other.check.sync.known.borrow_mut().history = history.clone();
    }
}

/// Synchronises all threads of a block.
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
        // A fence by any thread before the barrier counts for all threads after it: kernels often fence in
        // every thread and let one thread signal the other blocks.
        let own = Seen { floor: sync.floor.get(), clock: None, wide: scope > Scope::Block };
        let history = sync.history.borrow().clone();
        sync.fenced.replace(Some(Publication { own, history, scope }));
    }
}

/// Synchronises all threads of the grid.
pub(crate) fn synchronise_grid(group: &Group<'_>) {
    let mut history = None;
    for thread in &group.threads {
        join_histories(&mut history, thread.check.sync.known.borrow_mut().history.take().as_ref());
    }
    for block in &group.blocks {
        let sync = &block.check.sync;
        join_histories(&mut history, sync.history.take().as_ref());
        sync.has_news.set(false);
        sync.raise_floor();
        let own = Seen { floor: sync.floor.get(), clock: None, wide: true };
        Arc::make_mut(history.get_or_insert_default()).add(block.number.get(), own);
    }
    for block in &group.blocks {
        block.check.sync.history.replace(history.clone());
    }
}

/// Records that the thread has carried out a fence. It acquires what its relaxed reads have found, and
/// publishes what it knows with its later atomic operations.
pub(crate) fn fence(thread: &Thread, scope: Scope) {
    for address in thread.check.sync.unacquired.take() {
        tell(thread, address, [const { None }; 3], Some(scope));
    }
    let sync = &thread.block().check.sync;
    let publication = thread.check.sync.publication(thread, scope);
    thread.check.sync.fenced.replace(Some(publication));
    sync.fence.set(sync.fence.get().max(Some(scope)));
}

/// Publishes, with later atomic operations of the thread, what was over when its launch began and what
/// earlier launches have learnt. A fence that the thread has carried out covers that too.
pub(crate) fn publish_earlier_launches(thread: &Thread) {
    let mut history = thread.block().check.sync.taught.borrow().clone();
    let begun = thread.group().launch.membership.begun;
    if begun > history.as_ref().map_or(0, |history| history.ended()) {
        Arc::make_mut(history.get_or_insert_default()).end(begun);
    }
    let own = Seen { floor: 0, clock: None, wide: true };
    let publication = Publication { own, history, scope: Scope::System };
    thread.check.sync.fenced.borrow_mut().get_or_insert(publication);
}

/// The thread carries out an atomic operation. It publishes the knowledge that its order or an earlier
/// fence allows. It learns the knowledge that others have published there: at once if it acquires, else
/// with its next fence.
pub(crate) fn atomic_order(thread: &Thread, access: Access, acquires: bool, order: Ordering, scope: Scope) {
    let address = access.address;
    if !acquires {
        let mut unacquired = thread.check.sync.unacquired.borrow_mut();
        if !unacquired.contains(&address) {
            unacquired.truncate(UNACQUIRED - 1);
            unacquired.push_front(address);
        }
    }
    let is_read = access.kind.is_read();
    let publications = if is_read { [const { None }; 3] } else { publications(thread, order, scope) };
    tell(thread, address, publications, acquires.then_some(scope));
}

fn publications(thread: &Thread, order: Ordering, scope: Scope) -> [Option<Publication>; 3] {
    let releases = matches!(order, Ordering::Release | Ordering::AcqRel | Ordering::SeqCst);
    let now = releases.then(|| thread.check.sync.publication(thread, scope));
    [now, thread.check.sync.fenced.borrow().clone(), thread.block().check.sync.fenced.borrow().clone()]
}

/// Records a proxy fence of the thread: the accesses that it knows of are now visible to the async proxy.
pub(crate) fn proxy_fence(thread: &Thread) {
    let block = thread.block();
    let sync = &thread.check.sync;
    let told = sync.publication(thread, Scope::Block);
    let mut history = told.history.unwrap_or_default();
    Arc::make_mut(&mut history).fence(block.number.get(), &told.own);
    sync.learn(&block.check.sync, Some(&history));
}

/// Records that the thread has waited for the first `turns` turns of an agent.
pub(crate) fn completed(thread: &Thread, agent: Agent, turns: u32) {
    let mut told = Released::default();
    told.complete(agent, turns);
    told.acquire(thread);
}

/// Whether the thread has learnt anything of another block, which has then begun to run.
pub(crate) fn knows_of(thread: &Thread, block: &Block) -> bool {
    let knows = |history: Option<&Arc<History>>| {
        history.is_some_and(|history| history.of_own(block.number.get()).next().is_some())
    };
    knows(thread.check.sync.known.borrow().history.as_ref())
        || knows(thread.block().check.sync.history.borrow().as_ref())
}

/// The knowledge that the threads of a cluster publish at its barrier.
#[derive(Default)]
pub(crate) struct ClusterRelease(Option<Arc<History>>);

impl History {
    /// Adds the knowledge that a thread of another block publishes.
    fn add_published(&mut self, thread: &Thread, told: Publication) {
        if let Some(more) = told.history {
            self.join(&more);
        }
        self.add(thread.block().number.get(), told.own);
    }

    /// Adds the knowledge that a relaxed arrival publishes: what the thread's last fence covers, and that its
    /// block runs.
    fn add_relaxed(&mut self, thread: &Thread) {
        let fenced = thread.check.sync.fenced.borrow().clone().filter(|publication| publication.own.wide);
        match fenced {
            Some(told) => self.add_published(thread, told),
            None => self.add(thread.block().number.get(), Seen { floor: 0, clock: None, wide: true }),
        }
    }
}

impl ClusterRelease {
    /// Adds the thread's knowledge and accesses; without `release`, only those that its last fence covers.
    pub fn add(&mut self, thread: &Thread, release: bool) {
        let history = Arc::make_mut(self.0.get_or_insert_default());
        if release {
            history.add_published(thread, thread.check.sync.publication(thread, Scope::Cluster));
        } else {
            history.add_relaxed(thread);
        }
    }

    /// Gives this knowledge to the thread.
    pub fn acquire(&self, thread: &Thread) {
        if let Some(history) = &self.0 {
            thread.check.sync.learn_from(thread, history);
        }
    }
}
