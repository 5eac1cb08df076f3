//! Real processes with a fault at a random moment: every other rank learns who it was, in time.
//!
//! A rank is this program again, with a variable that makes the test its worker. Every loop ends by itself.

mod worker;

use std::io::Read as _;
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ironwarp_rendezvous::{Address, Cause, Store, StoreOptions, Token};
use testkit::Random;
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
    let (next, slowest) = (AtomicUsize::new(0), Mutex::new(Duration::ZERO));
    std::thread::scope(|threads| {
        for _ in 0..JOBS {
            threads.spawn(|| {
                loop {
                    let moment = next.fetch_add(1, Ordering::Relaxed) as u64;
                    if moment >= moments {
                        return;
                    }
                    let fault = FAULTS[moment as usize % FAULTS.len()];
                    let took = one(moment, fault);
                    let mut slowest = slowest.lock().unwrap();
                    *slowest = took.max(*slowest);
                }
            });
        }
    });
    println!("{moments} moments, the slowest news after {:.2} s", slowest.lock().unwrap().as_secs_f64());
}

/// A job with its processes, which end with it whatever happens.
struct Job {
    ranks: Vec<Child>,
}

impl Drop for Job {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
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
    let start = |rank: u32| {
        let trick = match fault {
            Fault::Own(trick) if rank == culprit => Some(trick),
            _ => None,
        };
        worker::start(&World { rank, size: RANKS, port: store.address().port() }, &Plan { trick, step })
    };
    let first = (0..RANKS).filter(|&rank| fault != Fault::Late || rank != culprit);
    let mut job = Job { ranks: first.map(start).collect() };
    let begun = Instant::now();
    if fault == Fault::Late {
        while store.failure().is_none() {
            assert!(begun.elapsed() < worker::TIMEOUT + worker::LONGEST, "{what}: nobody misses it");
            std::thread::sleep(Duration::from_millis(2));
        }
    } else {
        std::thread::sleep(moment);
    }
    let struck = Instant::now();
    match fault {
        Fault::Killed => signal(&job.ranks[culprit as usize], "KILL"),
        Fault::Stopped => signal(&job.ranks[culprit as usize], "STOP"),
        Fault::Noise => noise(store.address(), &mut random),
        Fault::Double | Fault::Late => job.ranks.push(start(culprit)),
        Fault::Own(_) => {}
    }
    let guilty = |at: usize| match fault {
        Fault::Double | Fault::Late => at == job_len(fault) - 1,
        Fault::Noise => false,
        _ => at as u32 == culprit,
    };
    // A worker's own fault comes at some step, so its time counts from the start.
    let patience = worker::LONGEST + worker::TIMEOUT + SLACK;
    let mut ended: Vec<Option<(Duration, i32, String)>> = vec![None; job.ranks.len()];
    while ended.iter().enumerate().any(|(at, end)| end.is_none() && !(fault == Fault::Stopped && guilty(at)))
    {
        assert!(begun.elapsed() < patience, "{what}: a rank hangs: {ended:?}");
        for (rank, end) in job.ranks.iter_mut().zip(&mut ended).filter(|(_, end)| end.is_none()) {
            let Some(status) = rank.try_wait().unwrap() else { continue };
            let mut printed = String::new();
            rank.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
            let said = printed
                .lines()
                .find_map(|line| line.strip_prefix(worker::SAID))
                .unwrap_or_default()
                .to_owned();
            let code = status.code().unwrap_or_else(|| -status.signal().unwrap_or(0));
            *end = Some((struck.elapsed(), code, said));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut last = Duration::ZERO;
    for (at, end) in ended.iter().enumerate() {
        let Some((after, code, said)) = end else { continue };
        let what = format!("{what}: process {at} ended with {code} after {after:?}: {said}");
        if guilty(at) {
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
                assert!(*after < worker::TIMEOUT + SLACK, "{what}");
                last = last.max(*after);
            }
        }
    }
    last
}

fn job_len(fault: Fault) -> usize {
    RANKS as usize + usize::from(fault == Fault::Double)
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

fn signal(process: &Child, signal: &str) {
    let id = process.id().to_string();
    // It may have ended already.
    let _ = Command::new("kill").args(["-s", signal, &id]).stderr(Stdio::null()).status().unwrap();
}

fn noise(address: std::net::SocketAddr, random: &mut Random) {
    use std::io::Write as _;
    for _ in 0..20 {
        let mut stream = TcpStream::connect(address).unwrap();
        let bytes: Vec<u8> = (0..random.integer(0, 300)).map(|_| random.bits() as u8).collect();
        let _ = stream.write_all(&bytes);
    }
}
