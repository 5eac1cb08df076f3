//! Lists of CPUs, and threads that stay on some of them.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::TopologyError;

/// Numbers of CPUs, as the system writes them: `0-3,8`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuList(BTreeSet<usize>);

impl CpuList {
    /// The list of these numbers. Those beyond what the system can count are left out.
    pub fn from_numbers(numbers: impl IntoIterator<Item = usize>) -> Self {
        Self(numbers.into_iter().filter(|&number| number < CpuSet::MAX_CPU).collect())
    }

    /// The numbers, ascending.
    pub fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().copied()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The CPUs that the calling thread may use.
    ///
    /// # Errors
    /// [`TopologyError::Pin`].
    pub fn allowed() -> Result<Self, TopologyError> {
        let failed =
            |source: rustix::io::Errno| TopologyError::Pin { cpus: Self::default(), source: source.into() };
        let set = sched_getaffinity(None).map_err(failed)?;
        Ok(Self::from_numbers((0..CpuSet::MAX_CPU).filter(|&number| set.is_set(number))))
    }
}

/// Lets the calling thread run on these CPUs alone, as far as it may use them. Returns those. Threads that it
/// starts afterwards do the same.
///
/// # Errors
/// [`TopologyError::NotAllowed`], [`TopologyError::Pin`].
pub fn pin_thread(cpus: &CpuList) -> Result<CpuList, TopologyError> {
    let allowed = CpuList::allowed()?;
    let chosen = CpuList(cpus.0.intersection(&allowed.0).copied().collect());
    if chosen.is_empty() {
        return Err(TopologyError::NotAllowed { wanted: cpus.clone(), allowed });
    }
    let mut set = CpuSet::new();
    chosen.numbers().for_each(|number| set.set(number));
    let pinned = sched_setaffinity(None, &set);
    pinned.map_err(|source| TopologyError::Pin { cpus: chosen.clone(), source: source.into() })?;
    Ok(chosen)
}

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut numbers = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number =
                |text: &str| text.parse::<usize>().map_err(|_| format!("{part:?} is no range of CPUs"));
            let (first, last) = (number(first)?, number(last)?);
            numbers.extend(first..last.saturating_add(1).min(CpuSet::MAX_CPU));
        }
        Ok(Self(numbers))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut numbers, mut comma) = (self.numbers().peekable(), "");
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if_eq(&(last + 1)) {
                last = next;
            }
            if first == last {
                write!(out, "{comma}{first}")?
            } else {
                write!(out, "{comma}{first}-{last}")?
            }
            comma = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        for (text, numbers, written) in [
            ("0-3,8\n", vec![0, 1, 2, 3, 8], "0-3,8"),
            ("", vec![], ""),
            ("5", vec![5], "5"),
            ("7,6,6-8,1", vec![1, 6, 7, 8], "1,6-8"),
            ("3-1", vec![], ""),
        ] {
            let list: CpuList = text.parse().unwrap();
            assert_eq!((list.numbers().collect::<Vec<_>>(), &*list.to_string()), (numbers, written));
        }
        assert!("a".parse::<CpuList>().is_err() && "1-x".parse::<CpuList>().is_err());
        assert_eq!("0-99999999999".parse::<CpuList>().unwrap().numbers().count(), CpuSet::MAX_CPU);
    }

    #[test]
    fn a_thread_stays_where_it_is_pinned() {
        std::thread::spawn(|| {
            let allowed = CpuList::allowed().unwrap();
            let last = CpuList::from_numbers(allowed.numbers().last());
            // A CPU that the machine does not have is left out.
            let wanted = CpuList::from_numbers(last.numbers().chain([CpuSet::MAX_CPU - 1]));
            assert_eq!(pin_thread(&wanted).unwrap(), last);
            assert_eq!(CpuList::allowed().unwrap(), last);
            assert_eq!(rustix::thread::sched_getcpu(), last.numbers().next().unwrap());
            let none = pin_thread(&CpuList::from_numbers([CpuSet::MAX_CPU - 1])).unwrap_err();
            assert!(matches!(none, TopologyError::NotAllowed { .. }), "{none}");
            assert_eq!(CpuList::allowed().unwrap(), last);
        })
        .join()
        .unwrap();
    }
}
