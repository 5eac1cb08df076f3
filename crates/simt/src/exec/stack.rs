//! Pool of coroutine stacks. Each fresh stack costs a system call and page faults; a pooled one costs
//! nothing.

use std::cell::RefCell;

use corosensei::stack::{DefaultStack, Stack};

/// The number of stacks that each OS thread keeps for later launches.
const KEPT: usize = 2048;

thread_local! {
    static POOL: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// A stack of at least `bytes`, with a guard page below.
pub(crate) fn take(bytes: usize) -> std::io::Result<DefaultStack> {
    let pooled = POOL.with_borrow_mut(|pool| {
        let stack = pool.pop()?;
        (size(&stack) >= bytes).then_some(stack)
    });
    match pooled {
        Some(stack) => Ok(stack),
        None => DefaultStack::new(bytes),
    }
}

/// Gives a stack back to the pool.
pub(crate) fn put(stack: DefaultStack) {
    POOL.with_borrow_mut(|pool| {
        if pool.len() < KEPT {
            pool.push(stack);
        }
    });
}

fn size(stack: &DefaultStack) -> usize {
    stack.base().get() - stack.limit().get()
}
