//! Asynchronous operations under way. Each one waits in the queue of ready threads until it is its turn to
//! arrive, so the seed decides the moment.

use std::cell::RefCell;

use super::group::Group;

/// The action of an operation when it arrives. It runs outside every simulated thread.
pub(crate) type Landing = Box<dyn FnOnce(&Group<'_>)>;

/// Operations under way, by number.
#[derive(Default)]
pub(crate) struct Flights {
    landings: RefCell<Vec<Option<Landing>>>,
    free: RefCell<Vec<u32>>,
}

impl Flights {
    pub fn clear(&self) {
        self.landings.borrow_mut().clear();
        self.free.borrow_mut().clear();
    }

    pub fn add(&self, landing: Landing) -> u32 {
        let mut landings = self.landings.borrow_mut();
        match self.free.borrow_mut().pop() {
            Some(number) => {
                landings[number as usize] = Some(landing);
                number
            }
            None => {
                landings.push(Some(landing));
                (landings.len() - 1) as u32
            }
        }
    }

    pub fn take(&self, number: u32) -> Option<Landing> {
        let landing = self.landings.borrow_mut()[number as usize].take();
        self.free.borrow_mut().push(number);
        landing
    }
}
