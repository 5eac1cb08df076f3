//! One start of the job, from its first process to its last.

use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rendezvous::{Cause, Failure};
use rustix::process::Signal;

use super::cluster::{Cluster, Place, Word};
use super::options::Job;
use super::output::{self, ReaderGone};
use super::ranks::{self, Orphans, Rank};
use super::report::{Ended, First, Generation, Outcome};
use super::signals::Signals;
use crate::error::Error;

/// How often processes and signals are looked at.
const TICK: Duration = Duration::from_millis(10);
/// How long ranks may take to hear of a failure and end by themselves, before they are asked to.
const NEWS: Duration = Duration::from_secs(2);
/// The exit code of a program that its reader left, as a shell shows it.
const READER_GONE: u8 = 141;

/// Why a start is over before all ranks are done.
#[derive(Debug)]
enum Over {
    /// A rank of this node ended badly.
    Rank { rank: u32, status: ExitStatus },
    /// The store noticed something: a rank that is silent, late, or left.
    Store(Failure),
    /// Another node says so.
    Elsewhere(String),
    /// A signal, or a reader who left. The job is not started again.
    Asked { code: u8, what: String },
}

struct Run<'a> {
    job: &'a Job,
    cluster: &'a Cluster,
    orphans: &'a Orphans,
    place: Place,
    ranks: Vec<Rank>,
    begun: Instant,
    over: Option<(Over, Instant)>,
    /// When the next, harder signal is due, and which.
    next: Option<(Instant, Signal)>,
    gone: ReaderGone,
    /// The first failure, as node 0 knows it.
    told: Option<(u32, String)>,
}

/// Starts the ranks and waits for all of them.
pub fn generation(
    job: &Job,
    cluster: &Cluster,
    signals: &Signals,
    orphans: &Orphans,
    generation: u32,
) -> Result<Generation, Error> {
    let place = cluster.place(job, generation)?;
    let watch = cluster.watch(generation);
    let (gone, begun) = (ReaderGone::default(), Instant::now());
    let (ranks, over, next, told) = (Vec::new(), None, None, None);
    let mut run = Run { job, cluster, orphans, place, ranks, begun, over, next, gone, told };
    let started = run.start();
    if let Err(error) = started {
        cluster.give_up(job, generation, &error);
        return Err(error);
    }
    while !run.is_done()? {
        // The store's news are better than those of ranks that have heard them.
        run.look(signals)?;
        match watch.over.try_recv() {
            Ok(Word::Asked { code, what }) => run.end(Over::Asked { code, what }, Duration::ZERO),
            Ok(Word::Failed { why, .. }) => run.end(Over::Elsewhere(why), NEWS),
            Err(_) => {}
        }
        std::thread::sleep(TICK);
    }
    run.drain(signals);
    Ok(run.finish())
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        // Only after an error are there any left.
        self.ranks.iter().for_each(|rank| rank.signal(Signal::KILL));
        for rank in &mut self.ranks {
            let begun = Instant::now();
            while rank.status.is_none() && matches!(rank.reap(), Ok(None)) && begun.elapsed() < NEWS {
                std::thread::sleep(TICK);
            }
        }
        self.orphans.end();
    }
}

impl Run<'_> {
    fn start(&mut self) -> Result<(), Error> {
        for local in 0..self.job.ranks {
            self.ranks.push(Rank::start(self.job, &self.place, local, &self.gone)?);
        }
        Ok(())
    }

    /// Whether all ranks have ended, here and elsewhere.
    fn is_done(&mut self) -> Result<bool, Error> {
        if self.ranks.iter().any(|rank| rank.status.is_none()) {
            return Ok(false);
        }
        let Some(own) = self.word() else {
            return self.cluster.all_done(self.job, self.place.generation);
        };
        match self.cluster.meet(self.job, self.place.generation, own)? {
            Word::Asked { code, what } => self.over = Some((Over::Asked { code, what }, Instant::now())),
            Word::Failed { rank, why } => self.told = rank.map(|rank| (rank, why)),
        }
        Ok(true)
    }

    /// The reason that other nodes are told.
    fn word(&self) -> Option<Word> {
        match &self.over.as_ref()?.0 {
            Over::Asked { code, what } => Some(Word::Asked { code: *code, what: what.clone() }),
            _ => self.first().map(|First { rank, why, .. }| Word::Failed { rank, why }),
        }
    }

    /// Waits until what the ranks have printed is written. Who is left behind could hold that up; a reader
    /// who takes nothing does not hold up whoever has asked for the end.
    fn drain(&mut self, signals: &Signals) {
        self.orphans.end();
        let lines: Vec<_> = self.ranks.iter().map(|rank| &rank.lines).collect();
        let (mut asked, begun) = (None, Instant::now());
        let is_asked = matches!(self.over, Some((Over::Asked { .. }, _)));
        output::drain(&lines, || {
            asked = signals.take().find(|(_, ends)| *ends).map(|(signal, _)| self.asked(signal));
            asked.is_some() || is_asked && begun.elapsed() > self.job.grace
        });
        if let Some(asked) = asked {
            self.over = Some((asked, Instant::now()));
        }
    }

    fn asked(&self, signal: Signal) -> Over {
        let name = super::signals::name(signal.as_raw()).unwrap_or("a signal");
        let place = if self.job.nodes > 1 { format!(" on node {}", self.job.node) } else { String::new() };
        Over::Asked { code: 128 + signal.as_raw() as u8, what: format!("{name}{place}") }
    }

    fn look(&mut self, signals: &Signals) -> Result<(), Error> {
        for (signal, ends) in signals.take() {
            self.ranks.iter().for_each(|rank| rank.signal(signal));
            if ends {
                // The second time means now.
                let grace = if self.over.is_some() { Duration::ZERO } else { self.job.grace };
                self.end(self.asked(signal), grace);
                self.next = Some((Instant::now() + grace, Signal::KILL));
            }
        }
        if self.gone.load(Ordering::Relaxed) && self.over.is_none() {
            self.end(
                Over::Asked {
                    code: READER_GONE,
                    what: "its output cannot be written: its reader left, or there is no room".to_owned(),
                },
                Duration::ZERO,
            );
        }
        let mut failed = None;
        for rank in &mut self.ranks {
            let status = rank.reap()?.filter(|status| !status.success());
            failed = failed.or(status.map(|status| (rank.rank, status)));
        }
        // Only now: a rank may have ended because it has heard of the failure, which the store knew before.
        let news = self.place.served.as_ref().and_then(rendezvous::Store::failure);
        match (news, failed) {
            _ if self.over.is_some() => {}
            (Some(failure), _) => self.wait_for_culprit(failure)?,
            (None, Some((rank, status))) => self.end(Over::Rank { rank, status }, NEWS),
            (None, None) => {}
        }
        if let Some(failure) = self.cluster.lost().filter(|_| self.over.is_none()) {
            self.end(Over::Elsewhere(format!("launchers have lost each other: {failure}")), Duration::ZERO);
        }
        let Some((due, signal)) = self.next else { return Ok(()) };
        if due <= Instant::now() {
            self.ranks.iter().for_each(|rank| rank.signal(signal));
            let later = Instant::now() + self.job.grace;
            self.next = (signal != Signal::KILL).then_some((later, Signal::KILL));
        }
        Ok(())
    }

    /// A connection closes a moment before its process can be reaped, whose end says more.
    fn wait_for_culprit(&mut self, failure: Failure) -> Result<(), Error> {
        let culprits: Vec<u32> = failure.culprits().collect();
        let begun = Instant::now();
        let died = matches!(failure.cause, Cause::Died | Cause::Aborted | Cause::Left);
        while died && begun.elapsed() < 20 * TICK {
            let here = self.ranks.iter_mut().find(|rank| culprits.contains(&rank.rank));
            let Some(rank) = here else { break };
            if let Some(status) = rank.reap()?.or(rank.status) {
                if !status.success() {
                    let rank = rank.rank;
                    self.end(Over::Rank { rank, status }, NEWS);
                    return Ok(());
                }
                break;
            }
            std::thread::sleep(TICK);
        }
        self.end(Over::Store(failure), NEWS);
        Ok(())
    }

    /// The start is over: the others are told, asked to end after a while, and killed after another.
    fn end(&mut self, over: Over, patience: Duration) {
        if self.over.is_some() {
            return;
        }
        let rank = if let Over::Rank { rank, .. } = &over { Some(*rank) } else { None };
        self.over = Some((over, Instant::now()));
        let Some(mut word) = self.word() else { return };
        let (Word::Asked { what: why, .. } | Word::Failed { why, .. }) = &mut word;
        if let Some(store) = &self.place.served {
            store.abort(rank, why);
        }
        if let Some(rank) = rank {
            *why = format!("rank {rank}: {why}");
        }
        self.cluster.tell_over(self.place.generation, &word);
        self.next = Some((Instant::now() + patience, Signal::TERM));
    }

    /// Why this start failed, if it did.
    fn first(&self) -> Option<First> {
        let (over, at) = self.over.as_ref()?;
        let (rank, why, code) = match over {
            Over::Rank { rank, status } => (Some(*rank), ranks::shown(*status), ranks::code(*status)),
            Over::Store(failure) => (failure.culprits().next(), failure.to_string(), 1),
            Over::Elsewhere(why) => (None, why.clone(), 1),
            Over::Asked { .. } => return None,
        };
        Some(First { rank, why, code, after: at.duration_since(self.begun), lines: Vec::new() })
    }

    /// The same, where node 0 knows better.
    fn corrected(&self) -> Option<First> {
        let mut first = self.first()?;
        if let Some((rank, why)) = self.told.clone().filter(|(rank, _)| first.rank != Some(*rank)) {
            let here = self.ranks.iter().find(|here| here.rank == rank).and_then(|here| here.status);
            let status = here.filter(|status| !status.success());
            (first.rank, first.why) = (Some(rank), status.map_or(why, ranks::shown));
            first.code = status.map_or(1, ranks::code);
        }
        Some(first)
    }

    fn finish(mut self) -> Generation {
        let mut first = self.corrected();
        let outcome = match self.over.take() {
            None => Outcome::Ok,
            Some((Over::Asked { code, what }, _)) => Outcome::Asked { code, what },
            Some(_) => Outcome::Failed,
        };
        let store_failure = self.place.served.as_ref().and_then(rendezvous::Store::failure);
        let mut ended = Vec::new();
        for rank in std::mem::take(&mut self.ranks) {
            let lines = rank.lines.last();
            if let Some(first) = first.as_mut().filter(|first| first.rank == Some(rank.rank)) {
                first.lines = lines;
            }
            ended.push(Ended { rank: rank.rank, status: rank.status });
        }
        let generation = self.place.generation;
        Generation { generation, took: self.begun.elapsed(), outcome, first, store_failure, ended }
    }
}
