//! Tells of kernels whose plain loads and stores the checker cannot see.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::registry::KernelEntry;

/// Shipped kernels come from a registry. Nobody compiles them with callbacks there; their tests do.
const SHIPPED: &str = "ironwarp_";

/// The families that were told of.
static TOLD: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());

/// Says once for a family that it was compiled without callbacks.
pub(crate) fn tell(entry: &KernelEntry) {
    if let Some(text) = note(entry) {
        crate::note(format_args!("{text}"));
    }
}

fn note(entry: &KernelEntry) -> Option<String> {
    let family = entry.family;
    if entry.checked || family.starts_with(SHIPPED) {
        return None;
    }
    TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(family).then(|| {
        format!(
            "ironwarp: the checker does not see the plain loads and stores of kernels of `{family}`, which was \
             compiled without its callbacks\nhint: run `ironwarp test`, or set Cargo's rustc-workspace-wrapper to \
             the script that `ironwarp new` writes and `checked = true` under [package.metadata.ironwarp]; \
             IRONWARP_CHECK=0 turns the checker off"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(family: &'static str, checked: bool) -> KernelEntry {
        let bounds = crate::LaunchBounds::default();
        KernelEntry { name: "k", family, file: "", line: 0, params: &[], bounds, checked, invoke: |_| {} }
    }

    #[test]
    fn a_family_without_callbacks_is_told_of_once() {
        assert_eq!(note(&entry("seen", true)), None);
        assert_eq!(note(&entry("ironwarp_gemm", false)), None);
        let text = note(&entry("unseen", false)).expect("told");
        assert!(text.contains("`unseen`") && text.contains("checked = true"), "{text}");
        assert_eq!(note(&entry("unseen", false)), None, "once is enough");
    }
}
