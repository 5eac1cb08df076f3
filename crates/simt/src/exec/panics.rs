//! Panics of kernels become faults, without a message on standard error.

use std::any::Any;
use std::sync::Once;

use super::context::{self, Panicked};
use crate::Site;

/// Puts a hook in front of the program's panic hook. It prints nothing inside simulated threads.
pub(super) fn install_hook() {
    static ONCE: Once = Once::new();
    // A thread that unwinds may not change the hook. A later launch does.
    if std::thread::panicking() {
        return;
    }
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| match context::try_current() {
            Some(thread) => {
                let site = info.location().map(Site::from).unwrap_or_default();
                thread.panicked.replace(Some(Panicked { message: text(info.payload()), site }));
            }
            None => previous(info),
        }));
    });
}

fn text(payload: &(dyn Any + Send)) -> String {
    let text =
        payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a value that is no text").to_string()
}
