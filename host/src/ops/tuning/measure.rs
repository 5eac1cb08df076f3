//! Which of several configurations is the fastest.

use crate::error::{Error, Result};
use crate::stream::{Event, Stream};

use super::call::{Call, Task};

/// Configurations that are estimated to take longer than so many times the best one are not measured.
const WORTH_A_TRY: f64 = 4.0;
/// Configurations measured at most, beside the choice.
const MOST_TRIES: usize = 24;
/// Rounds: in each every configuration takes one sample, so that all of them see the same clocks. The
/// shortest sample counts.
const ROUNDS: usize = 3;
/// Length of a sample, milliseconds, where a run is shorter.
const SAMPLE_MS: f32 = 1.0;
/// Runs of a sample at most.
const MOST_RUNS: f32 = 50.0;
/// How much less than the choice another has to take, of its time and in milliseconds, and in every round:
/// what samples differ by is no reason. Of launches that take less time than the host takes to queue them,
/// samples show little but that.
const GAIN: f32 = 0.99;
const LEAST_GAIN_MS: f32 = 0.5e-3;

/// The fastest configuration for a call, with its microseconds; `None` without memory to measure any. The
/// call's results are not touched: they go to other memory.
pub(super) fn measure<C: Call>(
    stream: &Stream,
    call: &mut C,
    task: &C::Task,
) -> Result<Option<(<C::Task as Task>::Config, f64)>> {
    let choice = task.choice(stream.device())?;
    let Some(mut spare) = if_memory(call.spare(stream))? else { return Ok(None) };
    let (start, end) = (Event::new(stream.device())?, Event::new(stream.device())?);
    let configs = worth_a_try(choice, task.candidates(stream.device()));
    let best = fastest(&configs, |config, runs| {
        stream.record(&start)?;
        for _ in 0..runs {
            call.elsewhere(&mut spare)?.queue(stream, task, config)?;
        }
        stream.record(&end)?;
        Event::elapsed_ms(&start, &end)
    })?;
    Ok(best.map(|(config, ms)| (config, f64::from(ms) * 1e3)))
}

/// None without the memory for it.
fn if_memory<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(Error::OutOfMemory(_)) => Ok(None),
        Err(other) => Err(other),
    }
}

/// The choice, then the others, best estimate first, without those that cannot be expected to win.
fn worth_a_try<C: Copy + PartialEq>(choice: C, candidates: Vec<(C, f64)>) -> Vec<C> {
    let least = candidates.first().map_or(0.0, |(_, estimate)| *estimate);
    let others = candidates
        .into_iter()
        .filter(|(config, estimate)| *config != choice && *estimate <= WORTH_A_TRY * least)
        .map(|(config, _)| config);
    [choice].into_iter().chain(others.take(MOST_TRIES)).collect()
}

/// The fastest of these, the first of which is the choice, by samples of so many runs, milliseconds. One
/// that there is no memory for does not count.
fn fastest<C: Copy>(
    configs: &[C],
    mut sample: impl FnMut(C, u32) -> Result<f32>,
) -> Result<Option<(C, f32)>> {
    let mut tries = Vec::with_capacity(configs.len());
    for (place, &config) in configs.iter().enumerate() {
        // The first run loads the kernel. It may take copies of operands, or room for parts.
        if if_memory(sample(config, 1))?.is_none() {
            continue;
        }
        let Some(once) = if_memory(sample(config, 1))? else { continue };
        let runs = (SAMPLE_MS / once.max(SAMPLE_MS / MOST_RUNS)).ceil() as u32;
        tries.push(Try { place, config, runs, rounds: [f32::INFINITY; ROUNDS] });
    }
    for round in 0..ROUNDS {
        for Try { config, runs, rounds, .. } in &mut tries {
            if let Some(ms) = if_memory(sample(*config, *runs))? {
                rounds[round] = ms / *runs as f32;
            }
        }
    }
    Ok(best_of(tries))
}

/// Samples of a configuration.
#[derive(Clone, Copy)]
struct Try<C> {
    /// 0 is the choice.
    place: usize,
    config: C,
    runs: u32,
    rounds: [f32; ROUNDS],
}

impl<C> Try<C> {
    fn least(&self) -> f32 {
        self.rounds.into_iter().fold(f32::INFINITY, f32::min)
    }

    /// Whether it is faster than the choice, and not by chance.
    fn beats(&self, choice: &Self) -> bool {
        let (ms, of_choice) = (self.least(), choice.least());
        let in_every_round = self.rounds.iter().zip(choice.rounds).all(|(&ms, of_choice)| ms < of_choice);
        in_every_round && ms < GAIN * of_choice && ms < of_choice - LEAST_GAIN_MS
    }
}

/// The fastest of those that beat the choice, else the choice, if there was memory for it.
fn best_of<C: Copy>(mut tries: Vec<Try<C>>) -> Option<(C, f32)> {
    tries.retain(|one| one.least().is_finite());
    let choice = tries.first().copied().filter(|first| first.place == 0);
    let better = tries.iter().filter(|one| choice.is_none_or(|choice| one.beats(&choice)));
    let best = better.min_by(|a, b| a.least().total_cmp(&b.least())).copied().or(choice);
    best.map(|one| (one.config, one.least()))
}

#[cfg(test)]
mod tests {
    use super::{MOST_TRIES, fastest, worth_a_try};
    use crate::error::{Error, OutOfMemory, Result};

    /// A clock: times of configurations in turn, of one run each.
    fn clock(times: &[f32]) -> impl FnMut(usize, u32) -> Result<f32> {
        move |config, runs| Ok(times[config] * runs as f32)
    }

    #[test]
    fn the_fastest_wins_if_it_is_faster_by_more_than_noise() {
        let best = |times: &[f32]| {
            let configs: Vec<usize> = (0..times.len()).collect();
            fastest(&configs, clock(times)).unwrap()
        };
        assert_eq!(best(&[3.0, 2.0, 4.0]), Some((1, 2.0)));
        assert_eq!(best(&[3.0, 3.5]), Some((0, 3.0)));
        // By less than a hundredth the choice stays.
        assert_eq!(best(&[3.0, 2.98]), Some((0, 3.0)));
        assert_eq!(best(&[3.0, 2.96]), Some((1, 2.96)));
        // A device without a clock.
        assert_eq!(best(&[0.0, 0.0]), Some((0, 0.0)));
        assert_eq!(best(&[]), None);
    }

    /// A device that gets slower favours nobody: rounds go through all.
    #[test]
    fn samples_are_in_turns() {
        let mut order = Vec::new();
        let best = fastest(&['a', 'b'], |config, runs| {
            order.push((config, runs));
            Ok(runs as f32 * (0.5 + order.len() as f32 / 100.0))
        });
        assert_eq!(best.unwrap().map(|(config, _)| config), Some('a'));
        let rounds: String = order[4..].iter().map(|(config, _)| config).collect();
        assert_eq!(rounds, "ababab");
        assert!(
            order[..4].iter().all(|(_, runs)| *runs == 1) && order[4..].iter().all(|(_, runs)| *runs == 2)
        );
    }

    #[test]
    fn one_slow_sample_is_no_reason() {
        let mut samples = 0;
        let best = fastest(&[0, 1], |config, _| {
            samples += 1;
            // A runs once as slow as B always does.
            Ok(if config == 1 || samples == 5 { 9.0 } else { 4.0 })
        });
        assert_eq!(best.unwrap(), Some((0, 4.0)));
    }

    /// It has to be faster each time, and by more than half a microsecond.
    #[test]
    fn what_may_be_chance_is_no_reason() {
        let mut samples = 0;
        let best = fastest(&[0, 1], |config, _| {
            samples += 1;
            // B wins two rounds of three.
            Ok(if config == 0 {
                4.0
            } else if samples == 6 {
                4.5
            } else {
                3.0
            })
        });
        assert_eq!(best.unwrap(), Some((0, 4.0)));
        assert_eq!(fastest(&[0, 1], clock(&[0.010, 0.0096])).unwrap().map(|(config, _)| config), Some(0));
        assert_eq!(fastest(&[0, 1], clock(&[0.010, 0.0090])).unwrap().map(|(config, _)| config), Some(1));
    }

    #[test]
    fn what_there_is_no_memory_for_does_not_count() {
        let site = std::panic::Location::caller();
        let full = || {
            let (device, requested, limit, holders) = (0, 1, None, Vec::new());
            let (free, total, reserved, live) = (0, 0, 0, 0);
            let report = OutOfMemory { device, requested, site, free, total, reserved, live, limit, holders };
            Error::OutOfMemory(Box::new(report))
        };
        let best = fastest(&[0, 1, 2], |config, _| if config == 1 { Ok(5.0) } else { Err(full()) });
        assert_eq!(best.unwrap(), Some((1, 5.0)));
        assert!(fastest(&[0], |_, _| Err(full())).unwrap().is_none());
        let broken = fastest(&[0], |_, _| Err(Error::EventNotRecorded { which: "start" }));
        assert!(matches!(broken, Err(Error::EventNotRecorded { .. })));
    }

    #[test]
    fn the_choice_is_tried_first_and_hopeless_ones_never() {
        let candidates = vec![('a', 1.0), ('b', 2.0), ('c', 4.0), ('d', 4.1)];
        assert_eq!(worth_a_try('b', candidates.clone()), ['b', 'a', 'c']);
        // It is no candidate by its estimate, or none at all.
        assert_eq!(worth_a_try('d', candidates.clone()), ['d', 'a', 'b', 'c']);
        assert_eq!(worth_a_try('x', candidates), ['x', 'a', 'b', 'c']);
        let many = (0..100).map(|config| (config, 1.0)).collect();
        assert_eq!(worth_a_try(99, many).len(), 1 + MOST_TRIES);
    }
}
