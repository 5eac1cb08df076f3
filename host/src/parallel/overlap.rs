//! When buckets were reduced, beside what the step computed: by events on the device.

use std::fmt;

use crate::error::Result;
use crate::stream::{Event, Stream};

/// The events of a step that is timed.
pub(super) struct Marks {
    /// The step's stream.
    stream: Stream,
    begin: Event,
    /// The end of the backward pass.
    computed: Event,
    /// Whether the step is under way: later ones are not timed.
    pub is_running: bool,
    /// Of each bucket: its bytes, and the begin and the end of its sum.
    pub buckets: Vec<(usize, Event, Event)>,
}

impl Marks {
    /// The step begins: from now on times count.
    pub fn begin(stream: &Stream) -> Result<Self> {
        stream.must_not_be_captured(
            "GradientBuckets::time",
            "an event in a graph has no time",
            "time a step that is not captured: its kernels are the same",
        )?;
        let event = || Event::new(stream.device());
        let marks = Marks {
            stream: stream.clone(),
            begin: event()?,
            computed: event()?,
            is_running: true,
            buckets: Vec::new(),
        };
        stream.record(&marks.begin)?;
        Ok(marks)
    }

    /// The step's stream has been given the backward pass.
    pub fn end(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_running) { self.stream.record(&self.computed) } else { Ok(()) }
    }

    /// Waits for the events.
    pub fn read(&self) -> Result<Overlap> {
        let at = |event: &Event| -> Result<f64> { Ok(Event::elapsed_ms(&self.begin, event)?.into()) };
        let span = |(bytes, begin, end): &(usize, Event, Event)| {
            Ok(BucketSpan { bytes: *bytes, begin_ms: at(begin)?, end_ms: at(end)? })
        };
        let buckets = self.buckets.iter().map(span).collect::<Result<_>>()?;
        Ok(Overlap { compute_ms: at(&self.computed)?, buckets })
    }
}

/// When the sums of a step ran beside its forward and backward pass. Milliseconds since the begin of the
/// step, by the device's clock. `Display` shows them as a table with a bar for each bucket.
#[derive(Debug, Clone, PartialEq)]
pub struct Overlap {
    /// The end of the backward pass.
    pub compute_ms: f64,
    /// The buckets, in their order.
    pub buckets: Vec<BucketSpan>,
}

/// When the sum of a bucket ran.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BucketSpan {
    /// Its bytes.
    pub bytes: usize,
    /// When its last gradient was there, and the buckets before were reduced.
    pub begin_ms: f64,
    /// When it was reduced. The wait for ranks that come later counts.
    pub end_ms: f64,
}

impl Overlap {
    /// How long sums ran.
    pub fn reduce_ms(&self) -> f64 {
        self.buckets.iter().map(|bucket| bucket.end_ms - bucket.begin_ms).sum()
    }

    /// How long sums ran when the backward pass had ended: what they add to the step.
    pub fn exposed_ms(&self) -> f64 {
        let exposed = |bucket: &BucketSpan| bucket.end_ms - bucket.begin_ms.max(self.compute_ms);
        self.buckets.iter().map(|bucket| exposed(bucket).max(0.0)).sum()
    }

    /// The part of the sums' time that ran beside the computation, from 0 to 1; 1 without sums.
    pub fn hidden_share(&self) -> f64 {
        let all = self.reduce_ms();
        if all > 0.0 { 1.0 - self.exposed_ms() / all } else { 1.0 }
    }
}

/// Characters of a bar for the whole step.
const BAR: usize = 48;

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.buckets.iter().map(|bucket| bucket.end_ms).fold(self.compute_ms, f64::max);
        let place = |ms: f64| if end > 0.0 { (ms / end * BAR as f64).round() as usize } else { 0 };
        let mut line = |name: &str, begin: f64, until: f64| {
            let (from, to) = (place(begin), place(until));
            let bar = format!("{}{}", " ".repeat(from), "#".repeat((to - from.min(to)).max(1)));
            writeln!(f, "{name:<24} {begin:>9.3} {until:>9.3} ms  |{bar}")
        };
        line("forward and backward", 0.0, self.compute_ms)?;
        for (number, bucket) in self.buckets.iter().enumerate() {
            let name = format!("bucket {number}, {:.1} MiB", bucket.bytes as f64 / f64::from(1 << 20));
            line(&name, bucket.begin_ms, bucket.end_ms)?;
        }
        let (all, exposed, share) = (self.reduce_ms(), self.exposed_ms(), self.hidden_share());
        write!(
            f,
            "sums took {all:.3} ms, {:.1} % of it beside the computation; {exposed:.3} ms behind it",
            share * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{BucketSpan, Overlap};

    #[test]
    fn what_is_behind_the_computation_is_exposed() {
        let span = |begin_ms, end_ms| BucketSpan { bytes: 1 << 20, begin_ms, end_ms };
        let overlap =
            Overlap { compute_ms: 10.0, buckets: vec![span(2.0, 4.0), span(8.0, 11.0), span(11.0, 14.0)] };
        assert_eq!((overlap.reduce_ms(), overlap.exposed_ms(), overlap.hidden_share()), (8.0, 4.0, 0.5));
        let text = overlap.to_string();
        assert!(text.contains("50.0 % of it beside") && text.contains("bucket 2, 1.0 MiB"), "{text}");
        let none = Overlap { compute_ms: 0.0, buckets: Vec::new() };
        assert_eq!((none.hidden_share(), none.exposed_ms()), (1.0, 0.0));
        assert!(none.to_string().contains("100.0 %"));
    }
}
