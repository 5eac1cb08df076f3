//! Vector clocks: the past of other threads that a thread knows.
//!
//! A block has a tick that grows with every synchronisation. An access is stamped with the tick of its
//! moment. A barrier of the whole block raises the block's floor: every access stamped below the floor
//! happened before. Barriers of some threads, warp syncs and atomics need more: a vector clock stores for
//! each thread the tick up to which its accesses are known. Vector clocks are valid for one floor only, so
//! they end with the next barrier of the block.

use std::sync::Arc;

use super::cell::Stamp;
use super::proxy::{Agent, Operation};
use crate::exec::context::WARP_SIZE;

const LANES: usize = WARP_SIZE as usize;

/// For each thread of a block the tick below which its accesses are known; 0 for none. Rows are warps,
/// sorted.
#[derive(Clone, Debug, Default)]
pub(crate) struct VectorClock {
    rows: Vec<(u32, [u32; LANES])>,
}

impl VectorClock {
    pub fn get(&self, rank: u32) -> u32 {
        match self.rows.binary_search_by_key(&(rank / WARP_SIZE), |row| row.0) {
            Ok(row) => self.rows[row].1[(rank % WARP_SIZE) as usize],
            Err(_) => 0,
        }
    }

    pub fn raise(&mut self, rank: u32, tick: u32) {
        let known = &mut self.row(rank / WARP_SIZE)[(rank % WARP_SIZE) as usize];
        *known = tick.max(*known);
    }

    pub fn join(&mut self, other: &Self) {
        let mut at = 0;
        for (warp, ticks) in &other.rows {
            // Both are sorted, so the next row is often right here.
            at += self.rows[at..].iter().take_while(|row| row.0 < *warp).count();
            match self.rows.get_mut(at) {
                Some((number, row)) if number == warp => {
                    row.iter_mut().zip(ticks).for_each(|(known, tick)| *known = (*known).max(*tick));
                }
                _ => self.rows.insert(at, (*warp, *ticks)),
            }
        }
    }

    fn row(&mut self, warp: u32) -> &mut [u32; LANES] {
        let at = match self.rows.binary_search_by_key(&warp, |row| row.0) {
            Ok(at) => at,
            Err(at) => {
                self.rows.insert(at, (warp, [0; LANES]));
                at
            }
        };
        &mut self.rows[at].1
    }
}

/// Knowledge of a block: everything below its floor, and what the clock adds above it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub floor: u32,
    pub clock: Option<Arc<VectorClock>>,
    /// Whether other blocks may rely on it: false when published by a fence or atomic of block scope.
    pub wide: bool,
}

impl Seen {
    /// Whether an access of thread `rank` at `time` is known.
    pub fn covers(&self, rank: u32, time: u32) -> bool {
        time < self.floor || self.clock.as_ref().is_some_and(|clock| time < clock.get(rank))
    }

    fn join(&mut self, other: &Self) {
        if other.floor > self.floor {
            self.floor = other.floor;
            self.clock = other.clock.clone();
        } else if other.floor == self.floor {
            join_clocks(&mut self.clock, other.clock.as_ref());
        }
    }
}

/// Knowledge of several blocks, sorted by their numbers. Shared instead of copied until it changes.
#[derive(Clone, Debug, Default)]
struct Blocks(Arc<Vec<(u64, Seen)>>);

impl Blocks {
    fn get(&self, block: u64) -> Option<&Seen> {
        self.0.binary_search_by_key(&block, |known| known.0).ok().map(|at| &self.0[at].1)
    }

    fn add(&mut self, block: u64, seen: &Seen) {
        let all = Arc::make_mut(&mut self.0);
        match all.binary_search_by_key(&block, |known| known.0) {
            Ok(at) => all[at].1.join(seen),
            Err(at) => all.insert(at, (block, seen.clone())),
        }
    }

    fn join(&mut self, other: &Self) {
        if other.0.is_empty() || Arc::ptr_eq(&self.0, &other.0) {
            return;
        }
        if self.0.is_empty() {
            return self.clone_from(other);
        }
        let all = Arc::make_mut(&mut self.0);
        let (known, mut at) = (all.len(), 0);
        for (block, seen) in other.0.iter() {
            // Both are sorted, and mostly of the same blocks.
            at += all[at..known].iter().take_while(|known| known.0 < *block).count();
            match all[..known].get_mut(at) {
                Some(mine) if mine.0 == *block => mine.1.join(seen),
                _ => all.push((*block, seen.clone())),
            }
        }
        if all.len() > known {
            all.sort_by_key(|known| known.0);
        }
    }

    /// Its knowledge of the blocks that count.
    fn about(&self, counts: impl Fn(u64) -> bool) -> Self {
        Self(Arc::new(self.0.iter().filter(|(block, _)| counts(*block)).cloned().collect()))
    }

    fn forget(&mut self, is_over: impl Fn(u64) -> bool) {
        if self.0.iter().any(|(block, _)| is_over(*block)) {
            Arc::make_mut(&mut self.0).retain(|(block, _)| !is_over(*block));
        }
    }
}

/// For agents, sorted, a number of turns each.
#[derive(Clone, Debug, Default)]
struct Turns(Vec<(Agent, u32)>);

impl Turns {
    fn raise(&mut self, agent: Agent, turns: u32) {
        match self.0.binary_search_by_key(&agent, |known| known.0) {
            Ok(at) => self.0[at].1 = self.0[at].1.max(turns),
            Err(at) => self.0.insert(at, (agent, turns)),
        }
    }

    fn has(&self, operation: Operation) -> bool {
        let known = self.0.binary_search_by_key(&operation.agent, |known| known.0);
        known.is_ok_and(|at| operation.turn < self.0[at].1)
    }

    fn join(&mut self, other: &Self) {
        let mut at = 0;
        for &(agent, turns) in &other.0 {
            // Both are sorted, and mostly of the same agents.
            at += self.0[at..].iter().take_while(|known| known.0 < agent).count();
            match self.0.get_mut(at) {
                Some(known) if known.0 == agent => known.1 = known.1.max(turns),
                _ => self.0.insert(at, (agent, turns)),
            }
        }
    }
}

/// Knowledge of several blocks, and knowledge that does not depend on the floor of a block.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    blocks: Blocks,
    /// Knowledge that was published only for the block itself. It is kept apart, since other blocks cannot
    /// rely on it.
    narrow: Blocks,
    /// Accesses that a proxy fence has followed.
    fenced: Blocks,
    /// For each agent, sorted, how many of its turns are known to be over.
    completed: Turns,
    /// The same of turns that a proxy fence has followed.
    completed_fenced: Turns,
    /// How many launches are known to have ended.
    ended: u32,
}

impl History {
    /// The knowledge of a block that all blocks may rely on.
    pub fn get(&self, block: u64) -> Option<&Seen> {
        self.blocks.get(block)
    }

    /// Whether an access of another block is known to have happened. Of a tracked one it is enough that its
    /// block has been heard from: whoever has is not accused.
    pub fn covers(&self, access: Stamp) -> bool {
        let seen = self.get(access.block.into());
        seen.is_some_and(|seen| access.is_tracked() || seen.covers(access.rank(), access.time))
    }

    /// The knowledge of a block that its own threads may rely on.
    pub fn of_own(&self, block: u64) -> impl Iterator<Item = &Seen> {
        [&self.blocks, &self.narrow].into_iter().filter_map(move |seen| seen.get(block))
    }

    pub fn add(&mut self, block: u64, seen: Seen) {
        let blocks = if seen.wide { &mut self.blocks } else { &mut self.narrow };
        blocks.add(block, &seen);
    }

    /// Whether a proxy fence has followed an access of thread `rank` of `block` at `time`.
    pub fn is_fenced(&self, block: u64, rank: u32, time: u32) -> bool {
        self.fenced.get(block).is_some_and(|seen| seen.covers(rank, time))
    }

    /// Records a proxy fence after everything known of other blocks and of agents, and after `own` of
    /// `block`.
    pub fn fence(&mut self, block: u64, own: &Seen) {
        self.fenced.join(&self.blocks);
        self.fenced.join(&self.narrow);
        self.fenced.add(block, own);
        self.completed_fenced.join(&self.completed);
    }

    /// How many launches are known to have ended.
    pub fn ended(&self) -> u32 {
        self.ended
    }

    /// Forgets the blocks that are over: whoever knows that their launches have ended needs no more.
    pub fn forget(&mut self, is_over: impl Fn(u64) -> bool) {
        for known in [&mut self.blocks, &mut self.narrow, &mut self.fenced] {
            known.forget(&is_over);
        }
    }

    /// Records that so many launches have ended.
    pub fn end(&mut self, launches: u32) {
        self.ended = self.ended.max(launches);
    }

    /// Records that the first `turns` turns of an agent are over.
    pub fn complete(&mut self, agent: Agent, turns: u32) {
        self.completed.raise(agent, turns);
    }

    pub fn has_completed(&self, operation: Operation) -> bool {
        self.completed.has(operation)
    }

    /// Whether a proxy fence has followed an operation.
    pub fn is_fenced_behind(&self, operation: Operation) -> bool {
        self.completed_fenced.has(operation)
    }

    /// Its knowledge of the blocks that count, if there is any. Turns of agents are left out: only their own
    /// blocks ask for them.
    pub fn about(&self, counts: impl Fn(u64) -> bool) -> Option<Self> {
        let [blocks, narrow, fenced] =
            [&self.blocks, &self.narrow, &self.fenced].map(|blocks| blocks.about(&counts));
        let is_nothing = [&blocks, &narrow, &fenced].iter().all(|blocks| blocks.0.is_empty());
        let ended = self.ended;
        (!is_nothing).then_some(Self { blocks, narrow, fenced, ended, ..Self::default() })
    }

    pub fn join(&mut self, other: &Self) {
        self.blocks.join(&other.blocks);
        self.narrow.join(&other.narrow);
        self.fenced.join(&other.fenced);
        self.join_completed(other);
        self.completed_fenced.join(&other.completed_fenced);
        self.end(other.ended);
    }

    /// As [`join`](Self::join), but only for what `other` holds about agents.
    pub fn join_completed(&mut self, other: &Self) {
        self.completed.join(&other.completed);
    }
}

/// `mine` becomes the union of both. Shares instead of copying where possible.
pub(crate) fn join_clocks(mine: &mut Option<Arc<VectorClock>>, other: Option<&Arc<VectorClock>>) {
    match (mine.as_mut(), other) {
        (_, None) => {}
        (None, Some(other)) => *mine = Some(Arc::clone(other)),
        (Some(mine), Some(other)) if Arc::ptr_eq(mine, other) => {}
        (Some(mine), Some(other)) => Arc::make_mut(mine).join(other),
    }
}

/// `mine` becomes the union of both. Shares instead of copying where possible.
pub(crate) fn join_histories(mine: &mut Option<Arc<History>>, other: Option<&Arc<History>>) {
    match (mine.as_mut(), other) {
        (_, None) => {}
        (None, Some(other)) => *mine = Some(Arc::clone(other)),
        (Some(mine), Some(other)) if Arc::ptr_eq(mine, other) => {}
        (Some(mine), Some(other)) => Arc::make_mut(mine).join(other),
    }
}

/// Where the knowledge lies that was joined last.
pub(crate) struct Previous<T>(*const T);

impl<T> Default for Previous<T> {
    fn default() -> Self {
        Self(std::ptr::null())
    }
}

impl<T> Previous<T> {
    /// Knowledge to join, unless it is what was joined last. All of it was there before the first call, so
    /// that none lies where other knowledge has been.
    pub fn unless_same<'k>(&mut self, knowledge: Option<&'k Arc<T>>) -> Option<&'k Arc<T>> {
        let next = knowledge?;
        let is_same = std::mem::replace(&mut self.0, Arc::as_ptr(next)) == Arc::as_ptr(next);
        (!is_same).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_keep_the_later_tick() {
        let mut a = VectorClock::default();
        a.raise(40, 7);
        a.raise(3, 2);
        a.raise(40, 5);
        let mut b = VectorClock::default();
        b.raise(3, 9);
        a.join(&b);
        assert_eq!([a.get(3), a.get(40), a.get(41), a.get(900)], [9, 7, 0, 0]);
    }

    #[test]
    fn turns_of_agents_are_counted() {
        let agent = |index| Agent::of_thread(3, index);
        let operation = |index, turn| Operation { agent: agent(index), turn };
        let mut a = History::default();
        a.complete(agent(9), 2);
        a.complete(agent(4), 1);
        let mut b = History::default();
        b.complete(agent(9), 1);
        b.join(&a);
        assert!(b.has_completed(operation(9, 1)) && b.has_completed(operation(4, 0)));
        assert!(!b.has_completed(operation(9, 2)) && !b.has_completed(operation(5, 0)));
        assert!(!b.has_completed(operation(9, Operation::UNKNOWN)));
    }

    #[test]
    fn agents_are_merged_in_order() {
        let of = |known: &[(u32, u32)]| {
            let mut history = History::default();
            known.iter().for_each(|&(index, turns)| history.complete(Agent::of_thread(3, index), turns));
            history
        };
        let mut a = of(&[(2, 5), (4, 1), (8, 7)]);
        a.join_completed(&of(&[(1, 1), (4, 3), (5, 2), (8, 6), (9, 4)]));
        assert_eq!(a.completed.0, of(&[(1, 1), (2, 5), (4, 3), (5, 2), (8, 7), (9, 4)]).completed.0);
    }

    #[test]
    fn blocks_are_merged_in_order() {
        let seen = |floor| Seen { floor, clock: None, wide: true };
        let of = |known: &[(u64, u32)]| {
            let mut history = History::default();
            known.iter().for_each(|&(block, floor)| history.add(block, seen(floor)));
            history
        };
        let mut a = of(&[(8, 7), (2, 5), (4, 1)]);
        a.join(&of(&[(9, 4), (1, 1), (4, 3), (5, 2), (8, 6)]));
        let floors =
            |history: &History| history.blocks.0.iter().map(|of| (of.0, of.1.floor)).collect::<Vec<_>>();
        assert_eq!(floors(&a), [(1, 1), (2, 5), (4, 3), (5, 2), (8, 7), (9, 4)]);
        a.fence(2, &seen(6));
        a.forget(|block| block % 2 == 0);
        assert_eq!(floors(&a), [(1, 1), (5, 2), (9, 4)]);
        assert!(a.is_fenced(5, 0, 1) && !a.is_fenced(8, 0, 1));
    }

    #[test]
    fn only_blocks_that_count_are_told_of() {
        let mut history = History::default();
        let seen = |wide| Seen { floor: 5, clock: None, wide };
        history.add(1, seen(true));
        history.fence(2, &seen(true));
        history.complete(Agent::of_thread(3, 0), 1);
        history.end(4);
        assert!(history.about(|block| block == 3).is_none());
        let told = history.about(|block| block == 1).expect("a block that counts");
        assert!(told.get(1).is_some() && told.is_fenced(1, 0, 4) && !told.is_fenced(2, 0, 4));
        assert_eq!((told.completed.0.len(), told.ended()), (0, 4));
    }

    #[test]
    fn a_higher_floor_replaces_the_clock() {
        let mut clock = VectorClock::default();
        clock.raise(1, 6);
        let mut seen = Seen { floor: 5, clock: Some(Arc::new(clock)), wide: true };
        assert!(seen.covers(1, 5) && !seen.covers(2, 5) && seen.covers(2, 4));
        seen.join(&Seen { floor: 8, clock: None, wide: true });
        assert!(seen.covers(2, 7) && !seen.covers(1, 8));
    }
}
