//! Real processes with a fault at a random moment: every other rank learns who it was, in time.
//!
//! A rank is this program again, with a variable that makes the test its worker. Every loop ends by itself.

mod worker;

use std::time::{Duration, Instant, SystemTime};

use ironwarp_rendezvous::{Address, Cause, Store, StoreOptions, Token};
use testkit::Random;
use testkit::job::{self, End, Job, noise};
use worker::{Plan, SAID_FAILURE, TOKEN, Trick, World};

const RANKS: u32 = 3;
/// Comes on top of a timeout before everybody knows.
const SLACK: Duration = Duration::from_secs(2);
/// Jobs that run at the same time.
const JOBS: usize = 4;
/// Moments, of which each kind of fault gets its share.
const MOMENTS: u64 = 100;
const MANY_MOMENTS: u64 = 1500;
/// The moment of a fault from outside, at the latest. Jobs take longer.
const LATEST: i64 = 250;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Killed,
    Stopped,
    /// A worker's own doing.
    Own(Trick),
    /// Not a fault: noise at the port, which must not matter.
    Noise,
    /// A second process of the same rank.
    Double,
    /// The rank is started when the others have given up.
    Late,
}

/// Kinds that cost a timeout are rarer.
const FAULTS: &[Fault] = &[
    Fault::Killed,
    Fault::Own(Trick::Exits),
    Fault::Own(Trick::Leaves),
    Fault::Killed,
    Fault::Own(Trick::WrongCount),
    Fault::Own(Trick::Panics),
    Fault::Noise,
    Fault::Stopped,
    Fault::Killed,
    Fault::Own(Trick::Exits),
    Fault::Own(Trick::Slow),
    Fault::Double,
    Fault::Killed,
    Fault::Own(Trick::WrongToken),
    Fault::Own(Trick::WrongCount),
    Fault::Late,
];

/// The test whose process becomes a rank.
const TEST: &str = "a_fault_at_a_random_moment_is_known_everywhere_in_time";

#[test]
fn a_fault_at_a_random_moment_is_known_everywhere_in_time() {
    worker::run_if_asked();
    run_all(MOMENTS);
}

#[test]
#[ignore = "minutes: the same with more moments"]
fn faults_at_many_moments() {
    run_all(MANY_MOMENTS);
}

fn run_all(moments: u64) {
    let slowest = job::moments(moments, JOBS, |moment| one(moment, FAULTS[moment as usize % FAULTS.len()]));
    println!("{moments} moments, the slowest news after {:.2} s", slowest.as_secs_f64());
}

/// Runs a job with a fault; how long after the fault the last rank had ended.
fn one(seed: u64, fault: Fault) -> Duration {
    let mut random = Random::new(seed);
    let token = Token::from_text(TOKEN);
    let address = Address { host: "127.0.0.1".to_owned(), port: 0 };
    let options = StoreOptions { size: RANKS, generation: 0, token, timeout: worker::TIMEOUT };
    let store = Store::serve(&address, options).unwrap();
    let culprit = random.integer(0, i64::from(RANKS) - 1) as u32;
    let step = random.integer(0, i64::from(worker::STEPS) - 20) as u32;
    let moment = Duration::from_millis(random.integer(0, LATEST) as u64);
    let what = format!("{fault:?} of rank {culprit} at {moment:?} or step {step}, seed {seed}");
    let command = |rank: u32| {
        let trick = match fault {
            Fault::Own(trick) if rank == culprit => Some(trick),
            _ => None,
        };
        worker::command(&World { rank, size: RANKS, port: store.address().port() }, &Plan { trick, step })
    };
    let mut job = Job::default();
    for rank in (0..RANKS).filter(|&rank| fault != Fault::Late || rank != culprit) {
        job.start(&mut command(rank));
    }
    if fault == Fault::Late {
        let begun = Instant::now();
        while store.failure().is_none() {
            assert!(begun.elapsed() < worker::TIMEOUT + worker::LONGEST, "{what}: nobody misses it");
            std::thread::sleep(Duration::from_millis(2));
        }
    } else {
        std::thread::sleep(moment);
    }
    let struck = SystemTime::now();
    match fault {
        Fault::Killed => job.signal(culprit as usize, "KILL"),
        Fault::Stopped => job.signal(culprit as usize, "STOP"),
        Fault::Noise => noise(store.address().port(), &mut random),
        Fault::Double | Fault::Late => _ = job.start(&mut command(culprit)),
        Fault::Own(_) => {}
    }
    let guilty = match fault {
        Fault::Double | Fault::Late => Some(job.len() - 1),
        Fault::Noise => None,
        _ => Some(culprit as usize),
    };
    // A worker's own fault comes at some step, so its time counts from the start.
    let patience = worker::LONGEST + worker::TIMEOUT + SLACK;
    let ends = job.ends(guilty.filter(|_| fault == Fault::Stopped), patience, &what);
    let mut last = Duration::ZERO;
    for (number, end) in ends.iter().enumerate() {
        let Some(End { at, code, said }) = end else { continue };
        let after = at.duration_since(struck).unwrap_or_default();
        let what = format!("{what}: process {number} ended with {code} after {after:?}: {said}");
        if guilty == Some(number) {
            check_guilty(fault, *code, said, &what);
        } else if matches!(fault, Fault::Noise | Fault::Double) {
            assert_eq!(*code, 0, "{what}");
        } else if *code == 0 {
            // The fault came when all was done.
            assert!(matches!(fault, Fault::Killed | Fault::Stopped), "{what}");
        } else {
            assert_eq!(*code, SAID_FAILURE, "{what}");
            check_news(fault, culprit, said, &what);
            if !matches!(fault, Fault::Own(_)) {
                assert!(after < worker::TIMEOUT + SLACK, "{what}");
                last = last.max(after);
            }
        }
    }
    last
}

/// The others' last words: `Died [1]`.
fn check_news(fault: Fault, culprit: u32, said: &str, what: &str) {
    let causes: &[Cause] = match fault {
        // It may not have joined yet.
        Fault::Killed => &[Cause::Died, Cause::Missing],
        Fault::Stopped => &[Cause::Silent, Cause::Late, Cause::Missing],
        Fault::Own(Trick::Exits) => &[Cause::Died],
        Fault::Own(Trick::Leaves) => &[Cause::Left],
        Fault::Own(Trick::WrongCount) => &[Cause::Mismatch],
        Fault::Own(Trick::Panics) => &[Cause::Aborted],
        Fault::Own(Trick::Slow) => &[Cause::Late],
        Fault::Own(Trick::WrongToken) | Fault::Late => &[Cause::Missing],
        Fault::Noise | Fault::Double => unreachable!("nobody is to notice"),
    };
    let (cause, ranks) = said.trim().split_once(' ').unwrap_or_else(|| panic!("{what}"));
    assert!(causes.iter().any(|known| format!("{known:?}") == cause), "{what}");
    // Of two ranks that do different things nobody knows who is right.
    let named = ranks.contains(&culprit.to_string());
    assert!(ranks == format!("[{culprit}]") || cause == "Mismatch" && named, "{what}");
}

fn check_guilty(fault: Fault, code: i32, said: &str, what: &str) {
    match fault {
        Fault::Killed => assert!(code == -9 || code == 0, "{what}"),
        Fault::Own(Trick::Exits) => assert_eq!(code, worker::EXITED, "{what}"),
        Fault::Own(Trick::Panics) => assert_eq!(code, worker::PANICKED, "{what}"),
        Fault::Own(Trick::Leaves) => assert_eq!(code, 0, "{what}"),
        Fault::Own(Trick::WrongCount) => assert_eq!(code, SAID_FAILURE, "{what}"),
        // It hears that it was too late.
        Fault::Own(Trick::Slow) => assert!(code == SAID_FAILURE && said.starts_with("Late"), "{what}"),
        Fault::Own(Trick::WrongToken) => assert!(said.contains("the tokens differ"), "{what}"),
        // The first one may have finished, or not begun: then the second one is refused or takes its place.
        Fault::Double => assert!(said.contains("has joined") || code == 0, "{what}"),
        Fault::Late => assert_eq!(said.split(' ').next(), Some("Missing"), "{what}"),
        Fault::Stopped | Fault::Noise => {}
    }
}
