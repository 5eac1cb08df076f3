//! Names of launched work, kept for the life of the process: an error may name a kernel whose module is gone,
//! and noting a launch must not count references.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// Each name is kept once, and there are no more than kernels in the program's modules.
static KEPT: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);

/// The kept copy of a name.
pub(crate) fn keep(name: &str) -> &'static str {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = kept.get_or_insert_default();
    if let Some(known) = kept.get(name) {
        return known;
    }
    let new: &'static str = Box::leak(name.into());
    kept.insert(new);
    new
}

#[cfg(test)]
mod tests {
    use super::keep;

    #[test]
    fn a_name_is_kept_once() {
        let (first, again) = (keep("a kernel"), keep(&String::from("a kernel")));
        assert_eq!((first, first.as_ptr()), (again, again.as_ptr()));
        assert_ne!(keep("another"), first);
    }
}
