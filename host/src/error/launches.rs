//! The launches that may have caused an asynchronous error.

use std::fmt;
use std::panic::Location;

use crate::config::LaunchConfig;

/// A launch: its kernel, configuration and source line.
#[derive(Debug, Clone, Copy)]
pub struct LaunchSite {
    /// The kernel, or a description of the graph.
    pub kernel: &'static str,
    /// The configuration; `None` for a graph.
    pub config: Option<LaunchConfig>,
    /// The line of the caller.
    pub location: &'static Location<'static>,
}

impl fmt::Display for LaunchSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` from {}", self.kernel, self.location)?;
        match &self.config {
            Some(config) => write!(f, " ({config})"),
            None => Ok(()),
        }
    }
}

/// Launches that may have caused an asynchronous error: all that had not been waited for when it was seen.
#[derive(Debug, Clone, Default)]
pub struct Suspects {
    /// The launches, of all streams of the device, oldest first.
    pub launches: Vec<LaunchSite>,
    /// The number of launches before those; nothing else is known of them.
    pub forgotten: u64,
    /// Whether work was queued through a raw handle, which ironwarp does not see.
    pub unseen_work: bool,
}

impl Suspects {
    /// Whether there is anything to suspect.
    pub(crate) fn is_any(&self) -> bool {
        !self.launches.is_empty() || self.forgotten > 0 || self.unseen_work
    }

    /// Keeps the launches of kernels that the checker's report names, if it names any of them.
    pub(crate) fn keep_named(&mut self, report: &str) {
        let is_named = |launch: &LaunchSite| report.contains(&format!("`{}`", launch.kernel));
        if self.launches.iter().any(is_named) {
            self.launches.retain(is_named);
        }
    }

    /// The failure in words: the kernel, where all suspects are of one, and the line of its launch, where all
    /// are of one line.
    pub(crate) fn cause(&self) -> String {
        match self.launches.as_slice() {
            [first, others @ ..]
                if others.iter().all(|other| other.kernel == first.kernel)
                    && self.forgotten == 0
                    && !self.unseen_work =>
            {
                let LaunchSite { kernel, location, .. } = first;
                let is_one_line = others.iter().all(|other| other.location == *location);
                let line =
                    is_one_line.then(|| format!(", launched at {}:{}", location.file(), location.line()));
                format!("kernel `{kernel}` failed{}", line.unwrap_or_default())
            }
            _ => "an earlier error".to_owned(),
        }
    }

    /// The launch that caused the error, when it can only be one.
    pub fn culprit(&self) -> Option<&LaunchSite> {
        match self.launches.as_slice() {
            [only] if self.forgotten == 0 && !self.unseen_work => Some(only),
            _ => None,
        }
    }
}

impl fmt::Display for Suspects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(culprit) = self.culprit() {
            return write!(f, "caused by the launch of {culprit}");
        }
        let total = self.launches.len() as u64 + self.forgotten;
        match (total, self.unseen_work) {
            (0, _) => f.write_str("caused by work that was queued without ironwarp")?,
            (1, _) => f.write_str("caused by this launch, or by work that was queued without ironwarp:")?,
            (_, false) => write!(f, "caused by one of these {total} launches, oldest first:")?,
            (_, true) => write!(
                f,
                "caused by one of these {total} launches, oldest first, or by work that was queued without ironwarp:"
            )?,
        }
        if self.forgotten > 0 {
            write!(f, "\n  ({} launches that are no longer remembered)", self.forgotten)?;
        }
        for launch in &self.launches {
            write!(f, "\n  {launch}")?;
        }
        if total > 1 {
            f.write_str("\n(run with IRONWARP_LAUNCH_BLOCKING=1, which names the one)")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_the_kernel() {
        let site = |kernel| LaunchSite { kernel, config: None, location: Location::caller() };
        let launches = ["fill", "gemm", "gemm_small", "fill"].map(site).to_vec();
        let all = Suspects { launches, ..Suspects::default() };
        let kept = |report: &str| {
            let mut suspects = all.clone();
            suspects.keep_named(report);
            suspects.launches.iter().map(|launch| launch.kernel).collect::<Vec<_>>()
        };
        assert_eq!(kept("read of uninitialised global memory in kernel `gemm`"), ["gemm"]);
        assert_eq!(kept("data race in kernel `fill`"), ["fill", "fill"]);
        assert_eq!(kept("trap in kernel `of_a_graph`").len(), 4);
    }

    #[test]
    fn the_line_is_told_where_it_can_only_be_one() {
        let site = |kernel, location| LaunchSite { kernel, config: None, location };
        let (one, other) = (Location::caller(), Location::caller());
        let cause =
            |launches: &[LaunchSite]| Suspects { launches: launches.to_vec(), ..Suspects::default() }.cause();
        let alike = cause(&[site("fill", one), site("fill", one)]);
        assert_eq!(alike, format!("kernel `fill` failed, launched at {}:{}", file!(), one.line()));
        assert_eq!(cause(&[site("fill", one), site("fill", other)]), "kernel `fill` failed");
        assert_eq!(cause(&[site("fill", one), site("gemm", one)]), "an earlier error");
    }
}
