//! Knowledge that is published: at addresses, by atomics, and by launches that end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::Publication;
use crate::check::clock::{History, join_histories};
use crate::exec::context::{Block, Thread};
use crate::exec::group::Group;
use crate::memory::Scope;

/// The knowledge passed on through atomics, by address and publisher.
pub(super) type Boards = HashMap<usize, Vec<(Publisher, Arc<History>)>>;

/// Who may rely on published knowledge: its device, or all devices.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Publisher {
    device: u32,
    is_system_wide: bool,
}

impl Publisher {
    /// Whether a thread of a device learns from it by an acquire of a scope.
    fn reaches(self, device: u32, scope: Scope) -> bool {
        self.device == device || self.is_system_wide && scope == Scope::System
    }
}

/// The knowledge passed on through atomics in global memory.
#[derive(Default)]
pub(crate) struct GlobalAtomics {
    published: AtomicBool,
    by_address: Mutex<Boards>,
}

/// Publishes knowledge at `address`, and learns what is published there, by an acquire of a scope.
pub(super) fn tell(
    thread: &Thread,
    address: usize,
    publications: [Option<Publication>; 3],
    learns: Option<Scope>,
) {
    let block = thread.block();
    if block.arena.offset_of(address).is_some() {
        let mut atomics = block.check.sync.shared_atomics.borrow_mut();
        return exchange(thread, &mut atomics, address, publications, learns);
    }
    let Some(check) = &thread.group().launch.check else { return };
    let atomics = check.atomics();
    if publications.iter().flatten().next().is_some() {
        atomics.published.store(true, Ordering::Release);
    } else if learns.is_none() || !atomics.published.load(Ordering::Acquire) {
        return;
    }
    if learns == Some(Scope::System) {
        check.heard_from_others();
    }
    let mut by_address = atomics.by_address.lock().unwrap_or_else(PoisonError::into_inner);
    exchange(thread, &mut by_address, address, publications, learns);
}

fn exchange(
    thread: &Thread,
    boards: &mut Boards,
    address: usize,
    publications: [Option<Publication>; 3],
    learns: Option<Scope>,
) {
    let number = thread.block().number.get();
    let device = thread.group().launch.membership.device;
    for publication in publications.into_iter().flatten() {
        let publisher = Publisher { device, is_system_wide: publication.scope == Scope::System };
        let board = boards.entry(address).or_default();
        let at = board.iter().position(|(other, _)| *other == publisher).unwrap_or_else(|| {
            board.push((publisher, Arc::default()));
            board.len() - 1
        });
        let told = Arc::make_mut(&mut board[at].1);
        let ended = told.ended();
        // A floor of 0 says nothing of the block itself.
        if publication.own.floor > 0 {
            told.add(number, publication.own);
        }
        if let Some(history) = publication.history {
            told.join(&history);
        }
        if told.ended() > ended {
            // Flags are written for ever, by launches that each know that all before them have ended.
            let ended = told.ended();
            let membership = &thread.group().launch.membership;
            told.forget(|block| membership.ended(block as u32) < ended);
        }
    }
    let (Some(board), Some(scope)) = (boards.get(&address), learns) else { return };
    for (_, told) in board.iter().filter(|(publisher, _)| publisher.reaches(device, scope)) {
        thread.check.sync.learn_from(thread, told);
    }
}

/// Knowledge that launches pass on when they end.
#[derive(Default)]
pub(crate) struct Learnt(Mutex<Option<Arc<History>>>);

impl Learnt {
    fn history(&self) -> Option<Arc<History>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn copy(&self) -> Self {
        Self(Mutex::new(self.history()))
    }

    fn add(&self, history: Option<&Arc<History>>) {
        join_histories(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), history);
    }

    pub fn join(&self, other: &Self) {
        self.add(other.history().as_ref());
    }

    /// Gives the knowledge to a block that is about to begin.
    pub fn teach(&self, block: &Block) {
        let history = self.history();
        block.check.sync.taught.replace(history.clone());
        block.check.sync.history.replace(history);
    }
}

/// The threads of a group have ended: what they have learnt of other launches goes to their own. Later
/// launches come after this one and after all that have ended: they are told of those that still run.
pub(crate) fn group_ends(group: &Group<'_>) {
    let membership = &group.launch.membership;
    let of_blocks = group.blocks.iter().map(|block| &block.check.sync.history);
    let mut latest = None;
    let mut tell = |history: &Option<Arc<History>>| {
        // Threads of a warp often share the same knowledge.
        let address = history.as_ref().map(Arc::as_ptr);
        if std::mem::replace(&mut latest, address) != address
            && let Some(told) =
                history.as_ref().and_then(|told| told.about(|block| membership.runs_elsewhere(block as u32)))
        {
            membership.learnt.add(Some(&Arc::new(told)));
        }
    };
    of_blocks.for_each(|history| tell(&history.borrow()));
    group.threads.iter().for_each(|thread| tell(&thread.check.sync.known.borrow().history));
}
