//! Processes that train over peer memory, with a fault at a random moment: every other rank gets a typed
//! error in time and ends, and the job that is started again has the bits of one without a fault.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use ironwarp::Result;
use testkit::Random;
use testkit::job::{self, End, Job, noise};

use crate::devices;
use crate::moments_rank::{self as worker, Plan, SAID_ERROR, TIMEOUT, Trick};
use crate::ranks::{free_port, is_rank, rank_of};

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
struct Ranks {
    folder: PathBuf,
    port: u16,
    job: Job,
    /// The number of each rank's process in the job.
    processes: [Option<usize>; RANKS as usize],
}

impl Ranks {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("moment-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder can be made");
        Ranks { folder, port: free_port(), job: Job::default(), processes: [None; RANKS as usize] }
    }

    fn start(&mut self, rank: u32, trick: Trick, step: u64, token: &str) {
        let mut command = rank_of(TEST, rank as usize, RANKS as usize, self.port);
        Plan { trick, step, folder: self.folder.clone() }.tell(&mut command);
        self.processes[rank as usize] = Some(self.job.start(command.env("IRONWARP_TOKEN", token)));
    }

    fn start_well(&mut self) {
        (0..RANKS).for_each(|rank| self.start(rank, Trick::None, 0, "a token"));
    }

    fn signal(&self, rank: u32, name: &str) {
        self.job.signal(self.processes[rank as usize].expect("it was started"), name);
    }

    /// Waits until all ranks have ended that were started, but for one; how those that were not waited for
    /// before have ended.
    fn ends(&mut self, but: Option<u32>, what: &str) -> Vec<Option<End>> {
        let but = but.and_then(|rank| self.processes[rank as usize]);
        let mut ends = self.job.ends(but, PATIENCE, what);
        self.processes.iter().map(|number| number.and_then(|number| ends[number].take())).collect()
    }

    /// The bits that all ranks have at the end.
    fn bits(&self, what: &str) -> Vec<u8> {
        let read = |rank| fs::read(worker::end_of(&self.folder, rank)).expect("a rank that has ended well");
        let bits = read(0);
        (1..RANKS).for_each(|rank| assert!(read(rank) == bits, "{what}: rank {rank} has other bits"));
        bits
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        // Processes that still run end, and write there no more.
        self.job = Job::default();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// When a rank has misbehaved.
fn time_of(path: &Path, what: &str) -> SystemTime {
    let time = fs::metadata(path).and_then(|file| file.modified());
    time.unwrap_or_else(|error| panic!("{what}: it did not misbehave: {error}"))
}

/// Runs a job with a fault, and then again without; how long after the fault the last other rank had ended.
fn one(seed: u64, fault: Fault, wanted: &[u8]) -> Duration {
    let mut random = Random::new(seed);
    let culprit = random.integer(0, i64::from(RANKS) - 1) as u32;
    let step = Plan::step(&mut random);
    let moment = Duration::from_millis(random.integer(0, LATEST) as u64);
    let what = format!("{fault:?} of rank {culprit} at {moment:?} or step {step}, seed {seed}");
    let mut job = Ranks::new(&seed.to_string());
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
        Fault::Killed => job.signal(culprit, "KILL"),
        Fault::Stopped => job.signal(culprit, "STOP"),
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
            assert_eq!(end.code, 0, "{what}");
        } else if rank == culprit && fault != Fault::PortInUse {
            check_culprit(fault, end, &what);
        } else if end.code != 0 || !is_sudden {
            // A fault from outside may have come when all was done.
            let after = end.at.duration_since(struck).unwrap_or_default();
            assert!(end.code == SAID_ERROR && after < TIMEOUT + SLACK, "{what} after {after:?}");
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
        assert!(end.code == SAID_ERROR && begun.elapsed() < TIMEOUT + SLACK, "{what}: {end:?}");
    }
    drop(holder);
    if fault == Fault::Stopped {
        job.signal(culprit, "KILL");
    }
    if fault != Fault::Noise {
        job.port = free_port();
        job.start_well();
        let ends = job.ends(None, &what);
        assert!(ends.iter().flatten().all(|end| end.code == 0), "{what}, again: {ends:?}");
    }
    assert!(job.bits(&what) == wanted, "{what}: other bits");
    last
}

fn check_culprit(fault: Fault, end: &End, what: &str) {
    match fault {
        Fault::Killed => assert!([-9, 0].contains(&end.code), "{what}"),
        Fault::Own(Trick::Panics) => assert_eq!(end.code, 101, "{what}"),
        Fault::Own(Trick::Leaves) => assert_eq!(end.code, 0, "{what}"),
        _ => assert_eq!(end.code, SAID_ERROR, "{what}"),
    }
}

fn moments(count: u64, jobs: usize) {
    let mut job = Ranks::new("none");
    job.start_well();
    let begun = Instant::now();
    let ends = job.ends(None, "no fault");
    assert!(ends.iter().flatten().all(|end| end.code == 0), "no fault: {ends:?}");
    println!("a job without a fault takes {:.2} s", begun.elapsed().as_secs_f64());
    let wanted = job.bits("no fault");
    let slowest =
        job::moments(count, jobs, |moment| one(moment, FAULTS[moment as usize % FAULTS.len()], &wanted));
    println!("{count} moments, the slowest end after {:.2} s", slowest.as_secs_f64());
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
