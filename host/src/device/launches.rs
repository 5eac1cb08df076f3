//! The launches that may still be running: an asynchronous error was caused by one of them.
//!
//! The driver reports that a kernel died at some later call. It does not say which kernel. So each stream
//! keeps its last launches and forgets those that were waited for. When an error comes, the suspects are the
//! launches left on all streams of the device. If only one is left, it caused the error.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{LaunchSite, Suspects};

/// The number of launches that a stream remembers. Older ones that were not waited for are only counted.
const KEPT: usize = 32;

/// The launches of one stream. Those not waited for are the last `launched - done`.
#[derive(Default)]
pub(crate) struct Recent {
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    /// Launch number `n` is at index `n % KEPT`, with its number in the order of the whole device.
    kept: [Option<(u64, LaunchSite)>; KEPT],
    launched: u64,
    done: u64,
}

impl Ring {
    /// Adds a launch; `None` stands for one without details.
    fn push(&mut self, launch: Option<(u64, LaunchSite)>) {
        self.kept[self.launched as usize % KEPT] = launch;
        self.launched += 1;
    }

    fn pending(&self) -> impl Iterator<Item = &(u64, LaunchSite)> {
        let first = self.done.max(self.launched.saturating_sub(KEPT as u64));
        (first..self.launched).filter_map(|n| self.kept[n as usize % KEPT].as_ref())
    }
}

impl Recent {
    /// Remembers a launch that was queued, as number `order` of the device.
    fn add(&self, order: u64, site: LaunchSite) {
        self.ring().push(Some((order, site)));
    }

    /// The number of launches queued so far. A wait that begins now waits for these.
    pub(crate) fn launched(&self) -> u64 {
        self.ring().launched
    }

    /// The first `launched` launches are done.
    pub(crate) fn done(&self, launched: u64) {
        let mut ring = self.ring();
        ring.done = ring.done.max(launched);
    }

    /// Takes over the launches of `other` that were not waited for: a wait for this list waits for them too.
    pub(crate) fn absorb(&self, other: &Recent) {
        let (forgotten, pending) = other.take();
        let mut ring = self.ring();
        for _ in 0..forgotten.min(KEPT as u64) {
            ring.push(None);
        }
        ring.launched += forgotten.saturating_sub(KEPT as u64);
        pending.into_iter().for_each(|launch| ring.push(Some(launch)));
    }

    /// Takes out the launches that were not waited for, with the number of earlier ones that are only
    /// counted.
    fn take(&self) -> (u64, Vec<(u64, LaunchSite)>) {
        let mut ring = self.ring();
        let pending: Vec<_> = ring.pending().copied().collect();
        let forgotten = ring.launched - ring.done - pending.len() as u64;
        ring.done = ring.launched;
        (forgotten, pending)
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The launches of a device.
#[derive(Default)]
pub(crate) struct LaunchLog {
    launched: AtomicU64,
    streams: Mutex<Vec<Arc<Recent>>>,
    /// The launches of dropped streams that were not waited for.
    departed: Recent,
    unseen_work: AtomicBool,
}

impl LaunchLog {
    /// The list of a new stream.
    pub(crate) fn open(&self) -> Arc<Recent> {
        let list = Arc::new(Recent::default());
        self.streams().push(list.clone());
        list
    }

    /// Removes the list of a stream that is dropped.
    pub(crate) fn close(&self, list: &Arc<Recent>) {
        self.streams().retain(|other| !Arc::ptr_eq(other, list));
        self.departed.absorb(list);
    }

    /// Remembers a launch that was queued on the stream of `list`.
    pub(crate) fn add(&self, list: &Recent, site: LaunchSite) {
        list.add(self.launched.fetch_add(1, Ordering::Relaxed), site);
    }

    /// Runs a wait for the whole device, and forgets the launches that it waited for.
    pub(crate) fn wait_for_all<E>(&self, wait: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let streams = self.streams().clone();
        let seen: Vec<u64> = streams.iter().map(|list| list.launched()).collect();
        let departed = self.departed.launched();
        wait()?;
        self.departed.done(departed);
        streams.iter().zip(seen).for_each(|(list, launched)| list.done(launched));
        Ok(())
    }

    /// Work may be queued from now on that this log does not see.
    pub(crate) fn expect_unseen_work(&self) {
        self.unseen_work.store(true, Ordering::Relaxed);
    }

    /// All launches that were not waited for.
    pub(crate) fn suspects(&self) -> Suspects {
        let streams = self.streams();
        let mut found = Vec::new();
        let mut pending = 0;
        for list in streams.iter().map(|list| &**list).chain([&self.departed]) {
            let ring = list.ring();
            found.extend(ring.pending().copied());
            pending += ring.launched - ring.done;
        }
        found.sort_by_key(|(order, _)| *order);
        Suspects {
            forgotten: pending - found.len() as u64,
            launches: found.into_iter().map(|(_, site)| site).collect(),
            unseen_work: self.unseen_work.load(Ordering::Relaxed),
        }
    }

    fn streams(&self) -> MutexGuard<'_, Vec<Arc<Recent>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LaunchConfig;
    use std::panic::Location;

    fn site(name: &str) -> LaunchSite {
        let config = Some(LaunchConfig::linear(1, 1));
        LaunchSite { kernel: crate::launch::keep(name), config, location: Location::caller() }
    }

    fn names(log: &LaunchLog) -> Vec<String> {
        log.suspects().launches.iter().map(|site| site.kernel.to_owned()).collect()
    }

    #[test]
    fn what_was_waited_for_is_no_suspect() {
        let log = LaunchLog::default();
        let stream = log.open();
        log.add(&stream, site("a"));
        log.add(&stream, site("b"));
        let seen = stream.launched();
        log.add(&stream, site("c"));
        assert_eq!(names(&log), ["a", "b", "c"]);
        stream.done(seen);
        let left = log.suspects();
        assert_eq!(left.culprit().map(|site| site.kernel), Some("c"));
        assert!(left.to_string().starts_with("caused by the launch of `c` from "), "{left}");
        // A wait that began earlier and ends later changes nothing.
        stream.done(1);
        assert_eq!(names(&log), ["c"]);
        stream.done(stream.launched());
        assert_eq!(names(&log), [""; 0]);
    }

    #[test]
    fn streams_are_merged_in_the_order_of_launching() {
        let log = LaunchLog::default();
        let (one, two) = (log.open(), log.open());
        log.add(&one, site("a"));
        log.add(&two, site("b"));
        log.add(&one, site("c"));
        let all = log.suspects();
        assert_eq!(names(&log), ["a", "b", "c"]);
        assert!(all.culprit().is_none());
        assert!(
            all.to_string().starts_with("caused by one of these 3 launches, oldest first:\n  `a`"),
            "{all}"
        );
        // The launches of a dropped stream stay.
        log.close(&one);
        assert_eq!(names(&log), ["a", "b", "c"]);
        two.done(two.launched());
        assert_eq!(names(&log), ["a", "c"]);
        log.wait_for_all(|| {
            log.add(&two, site("d"));
            Ok::<(), ()>(())
        })
        .unwrap();
        assert_eq!(names(&log), ["d"]);
        assert!(log.wait_for_all(|| Err(())).is_err());
        assert_eq!(names(&log), ["d"]);
    }

    #[test]
    fn old_launches_are_counted() {
        let log = LaunchLog::default();
        let stream = log.open();
        for order in 0..KEPT + 5 {
            log.add(&stream, site(&order.to_string()));
        }
        let all = log.suspects();
        assert_eq!((all.launches.len(), all.forgotten), (KEPT, 5));
        assert_eq!(all.launches[0].kernel, "5");
        // They also stay when another list takes them over.
        let other = log.open();
        log.add(&other, site("other"));
        other.absorb(&stream);
        let all = log.suspects();
        assert_eq!((all.launches.len(), all.forgotten), (KEPT, 6));
        other.done(other.launched() - 1);
        let last = log.suspects();
        assert_eq!((last.launches.len(), last.forgotten), (1, 0));
        assert!(last.culprit().is_some());
        log.expect_unseen_work();
        let unsure = log.suspects();
        assert!(unsure.culprit().is_none());
        assert!(unsure.to_string().contains("or by work that was queued without ironwarp"), "{unsure}");
    }
}
