//! Processes that train over peer memory, with a fault at a random moment: every other rank gets a typed
//! error in time and ends, and the job that is started again has the bits of one without a fault.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ironwarp::Result;
use testkit::Random;

use crate::devices;
use crate::moments_rank::{self as worker, Plan, SAID, SAID_ERROR, TIMEOUT, Trick};
use crate::ranks::{free_port, is_rank, rank_of, signal};

const TEST: &str = "moments::a_fault_at_a_random_moment_ends_all_ranks_in_time";
const RANKS: u32 = 3;
/// Comes on top of the timeout before all others have ended.
const SLACK: Duration = Duration::from_secs(2);
/// A job that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// The moment of a fault from outside, at the latest, in milliseconds: jobs take longer.
const LATEST: i64 = 1300;
const MOMENTS: u64 = 100;
/// Moments of the usual run: the first ones.
const FEW: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Killed,
    Stopped,
    /// A rank's own doing.
    Own(Trick),
    /// Not a fault: noise at the store's port, which must not matter.
    Noise,
    WrongToken,
    /// The rank is started when the others have given up.
    Late,
    /// Somebody else listens where rank 0 is to serve the store.
    PortInUse,
}

/// Those that cost a timeout come last, and are rarer.
const FAULTS: [Fault; 16] = [
    Fault::Killed,
    Fault::Own(Trick::WrongCount),
    Fault::Noise,
    Fault::Own(Trick::OutOfMemory),
    Fault::Killed,
    Fault::Own(Trick::Refused),
    Fault::Own(Trick::WrongType),
    Fault::Own(Trick::Panics),
    Fault::Killed,
    Fault::Own(Trick::Leaves),
    Fault::Stopped,
    Fault::Own(Trick::Slow),
    Fault::WrongToken,
    Fault::Late,
    Fault::PortInUse,
    Fault::Stopped,
];

/// A job's processes and its folder, which end with it whatever happens.
struct Job {
    folder: PathBuf,
    port: u16,
    ranks: Vec<Option<Child>>,
}

/// How a process has ended.
#[derive(Debug, Clone)]
struct End {
    at: SystemTime,
    code: Option<i32>,
    said: String,
}

impl Job {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("moment-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder can be made");
        Job { folder, port: free_port(), ranks: (0..RANKS).map(|_| None).collect() }
    }

    fn start(&mut self, rank: u32, trick: Trick, step: u64, token: &str) {
        let mut command = rank_of(TEST, rank as usize, RANKS as usize, self.port);
        Plan { trick, step, folder: self.folder.clone() }.tell(&mut command);
        command.env("IRONWARP_TOKEN", token);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        self.ranks[rank as usize] = Some(command.spawn().expect("this program can be started"));
    }

    fn start_well(&mut self) {
        (0..RANKS).for_each(|rank| self.start(rank, Trick::None, 0, "a token"));
    }

    fn child(&self, rank: u32) -> &Child {
        self.ranks[rank as usize].as_ref().expect("it was started")
    }

    /// Waits until all ranks have ended that were started, but for one.
    fn ends(&mut self, but: Option<u32>, what: &str) -> Vec<Option<End>> {
        let begun = Instant::now();
        let mut ends: Vec<Option<End>> = vec![None; self.ranks.len()];
        loop {
            let mut is_over = true;
            for (rank, child) in self.ranks.iter_mut().enumerate() {
                let Some(process) = child.as_mut().filter(|_| but != Some(rank as u32)) else { continue };
                let Some(status) = process.try_wait().expect("a child") else {
                    is_over = false;
                    continue;
                };
                ends[rank] = Some(End { at: SystemTime::now(), code: status.code(), said: said(process) });
                *child = None;
            }
            if is_over {
                return ends;
            }
            assert!(begun.elapsed() < PATIENCE, "{what}: a rank hangs: {ends:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The bits that all ranks have at the end.
    fn bits(&self, what: &str) -> Vec<u8> {
        let read = |rank| fs::read(worker::end_of(&self.folder, rank)).expect("a rank that has ended well");
        let bits = read(0);
        (1..RANKS).for_each(|rank| assert!(read(rank) == bits, "{what}: rank {rank} has other bits"));
        bits
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for child in self.ranks.iter_mut().flatten() {
            // It may have ended; a drop cannot return an error.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The last words of a process that has ended.
fn said(process: &mut Child) -> String {
    let mut printed = String::new();
    let stdout = process.stdout.as_mut().expect("it is piped");
    stdout.read_to_string(&mut printed).expect("a rank prints text");
    printed.lines().find_map(|line| line.split_once(SAID)).map_or(String::new(), |(_, said)| said.to_owned())
}

/// When a rank has misbehaved.
fn time_of(path: &Path, what: &str) -> SystemTime {
    let time = fs::metadata(path).and_then(|file| file.modified());
    time.unwrap_or_else(|error| panic!("{what}: it did not misbehave: {error}"))
}

fn noise(port: u16, random: &mut Random) {
    for _ in 0..20 {
        // The store may not be there yet, or no more.
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return };
        let bytes: Vec<u8> = (0..random.integer(0, 300)).map(|_| random.bits() as u8).collect();
        let _ = stream.write_all(&bytes);
    }
}

/// Runs a job with a fault, and then again without; how long after the fault the last other rank had ended.
fn one(seed: u64, fault: Fault, wanted: &[u8]) -> Duration {
    let mut random = Random::new(seed);
    let culprit = random.integer(0, i64::from(RANKS) - 1) as u32;
    let step = Plan::step(&mut random);
    let moment = Duration::from_millis(random.integer(0, LATEST) as u64);
    let what = format!("{fault:?} of rank {culprit} at {moment:?} or step {step}, seed {seed}");
    let mut job = Job::new(&seed.to_string());
    let holder = (fault == Fault::PortInUse)
        .then(|| TcpListener::bind(("127.0.0.1", job.port)).expect("the port is free"));
    let begun = SystemTime::now();
    for rank in (0..RANKS).filter(|&rank| fault != Fault::Late || rank != culprit) {
        let (trick, token) = match fault {
            Fault::Own(trick) if rank == culprit => (trick, "a token"),
            Fault::WrongToken if rank == culprit => (Trick::None, "another"),
            _ => (Trick::None, "a token"),
        };
        job.start(rank, trick, step, token);
    }
    let is_sudden = matches!(fault, Fault::Killed | Fault::Stopped | Fault::Noise);
    if is_sudden {
        std::thread::sleep(moment);
    }
    let mut struck = if is_sudden { SystemTime::now() } else { begun };
    match fault {
        Fault::Killed => signal(job.child(culprit), "KILL"),
        Fault::Stopped => signal(job.child(culprit), "STOP"),
        Fault::Noise => noise(job.port, &mut random),
        _ => {}
    }
    let ends = job.ends((fault == Fault::Stopped).then_some(culprit), &what);
    if let Fault::Own(_) = fault {
        struck = time_of(&worker::struck(&job.folder), &what);
    }
    let mut last = Duration::ZERO;
    for (rank, end) in (0..RANKS).zip(&ends) {
        let Some(end) = end else { continue };
        let what = format!("{what}: rank {rank}: {end:?}");
        if fault == Fault::Noise {
            assert_eq!(end.code, Some(0), "{what}");
        } else if rank == culprit && fault != Fault::PortInUse {
            check_culprit(fault, end, &what);
        } else if end.code != Some(0) || !is_sudden {
            // A fault from outside may have come when all was done.
            let after = end.at.duration_since(struck).unwrap_or_default();
            assert!(end.code == Some(SAID_ERROR) && after < TIMEOUT + SLACK, "{what} after {after:?}");
            // Of rank 0, which serves the store, its end may be all that is known.
            let named = end.said.contains(&format!("rank {culprit}")) || culprit == 0;
            assert!(named || fault == Fault::PortInUse, "{what}");
            last = last.max(after);
        }
    }
    if fault == Fault::Late {
        let begun = Instant::now();
        job.start(culprit, Trick::None, step, "a token");
        let ends = job.ends(None, &what);
        let end = ends[culprit as usize].as_ref().expect("it was started");
        assert!(end.code == Some(SAID_ERROR) && begun.elapsed() < TIMEOUT + SLACK, "{what}: {end:?}");
    }
    drop(holder);
    if let Some(stopped) = &mut job.ranks[culprit as usize] {
        stopped.kill().expect("it was not waited for");
        stopped.wait().expect("a child");
    }
    if fault != Fault::Noise {
        job.port = free_port();
        job.start_well();
        let ends = job.ends(None, &what);
        assert!(ends.iter().flatten().all(|end| end.code == Some(0)), "{what}, again: {ends:?}");
    }
    assert!(job.bits(&what) == wanted, "{what}: other bits");
    last
}

fn check_culprit(fault: Fault, end: &End, what: &str) {
    match fault {
        Fault::Killed => assert!(end.code.is_none() || end.code == Some(0), "{what}"),
        Fault::Own(Trick::Panics) => assert_eq!(end.code, Some(101), "{what}"),
        Fault::Own(Trick::Leaves) => assert_eq!(end.code, Some(0), "{what}"),
        _ => assert_eq!(end.code, Some(SAID_ERROR), "{what}"),
    }
}

fn moments(count: u64, jobs: usize) {
    let mut job = Job::new("none");
    job.start_well();
    let begun = Instant::now();
    let ends = job.ends(None, "no fault");
    assert!(ends.iter().flatten().all(|end| end.code == Some(0)), "no fault: {ends:?}");
    println!("a job without a fault takes {:.2} s", begun.elapsed().as_secs_f64());
    let wanted = job.bits("no fault");
    let (next, slowest) = (AtomicU64::new(0), Mutex::new(Duration::ZERO));
    let work = || {
        loop {
            let moment = next.fetch_add(1, Ordering::Relaxed);
            if moment >= count {
                return;
            }
            let took = one(moment, FAULTS[moment as usize % FAULTS.len()], &wanted);
            let mut slowest = slowest.lock().expect("no panic");
            *slowest = took.max(*slowest);
        }
    };
    std::thread::scope(|threads| (0..jobs).for_each(|_| _ = threads.spawn(work)));
    println!(
        "{count} moments, the slowest end after {:.2} s",
        slowest.lock().expect("no panic").as_secs_f64()
    );
}

/// GPUs may take longer to compile the kernels than these ranks wait.
fn is_for_software() -> Result<bool> {
    let is_software = devices(RANKS)?.is_some_and(|devices| devices[0].is_software());
    if !is_software {
        testkit::skip("faults at random moments are for software devices");
    }
    Ok(is_software)
}

#[test]
fn a_fault_at_a_random_moment_ends_all_ranks_in_time() -> Result<()> {
    // The checker looks at the same kernels in the random sequences.
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "3", "IRONWARP_CHECK" = "0");
    if is_rank() {
        worker::run();
    }
    if is_for_software()? {
        moments(FEW, 2);
    }
    Ok(())
}

#[test]
#[ignore = "minutes: the same at a hundred moments"]
fn faults_at_a_hundred_moments() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "3", "IRONWARP_CHECK" = "0");
    if is_for_software()? {
        moments(MOMENTS, 3);
    }
    Ok(())
}
