//! A run of a bench program.

use crate::options::Seen;
use crate::rows::{COPY, OURS, csv, head, lines, summary, table};
use crate::spread::{Reason, spread};
use crate::{
    Drawn, Facts, Options, OptionsError, Outcome, Peer, PeerError, Peers, Row, Work, facts, program, random,
};
use criterion::{BenchmarkId, Criterion, SamplingMode};
use ironwarp::{Device, Event, Stream};
use serde_json::Value;
use std::cell::RefCell;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The program that has products to draw or to name.
const OF_PRODUCTS: &str = "gemm";
/// The programs that have other shapes to draw.
const DRAW: [&str; 3] = ["rows", "attention", "conv"];

/// Samples per row in a full run.
const SAMPLES: usize = 20;
/// Warm-up time per row in a full run, and then the measuring time.
const MEASURE: Duration = Duration::from_millis(400);
/// The same for a quick run. criterion takes at least ten samples.
const FEW_SAMPLES: usize = 10;
const QUICK_MEASURE: Duration = Duration::from_millis(1);
/// The same for a brief one, and milliseconds of the search of cuBLASLt's algorithms.
const BRIEF_MEASURE: Duration = Duration::from_millis(40);
const BRIEF_SEARCH_MS: u64 = 300;
/// criterion's own statistics are for nobody: the fewest resamples that it takes without a warning.
const RESAMPLES: usize = 1001;
/// For a glance: samples, their least milliseconds, and the most replays.
const GLANCES: usize = 5;
const GLANCE_MS: f64 = 2.0;
const GLANCE_GROUPS: f64 = 100.0;

/// The device, stream, options and rows measured so far.
pub struct Session {
    /// The device measured.
    pub device: Device,
    /// The stream on which everything runs.
    pub stream: Stream,
    /// The options on the command line.
    pub options: Options,
    name: &'static str,
    facts: Facts,
    criterion: Criterion,
    /// Started for the first row with peers.
    peers: Option<Result<Peers, Box<dyn Error>>>,
    rows: Vec<Row>,
    reasons: Vec<Reason>,
    seen: RefCell<Seen>,
    begun: Instant,
    /// Drawn or named products that failed.
    failed: usize,
}

/// Samples of a row: runs and milliseconds of each.
type Samples = Vec<(u64, f64)>;

impl Session {
    /// Runs a program: options, session, `body`, the files and the table. The body measures with
    /// [`Session::measure`]. Prints why it failed: wrong options, no device, a file that cannot be written,
    /// or an error of the body.
    pub fn run(name: &'static str, body: impl FnOnce(&mut Session) -> Outcome) -> ExitCode {
        program::run(|| {
            let mut session = Session::open(name)?;
            body(&mut session)?;
            session.finish()
        })
    }

    fn open(name: &'static str) -> Outcome<Self> {
        let options = Options::parse(std::env::args_os().skip(1))?;
        let draws = DRAW.contains(&name) && options.named.is_empty();
        if options.has_products() && name != OF_PRODUCTS && !draws {
            return Err(OptionsError::NoProducts.into());
        }
        if let Some(folder) = &options.out {
            // Known before the first row is measured.
            std::fs::create_dir_all(folder).map_err(|error| format!("cannot create {folder:?}: {error}"))?;
        }
        let device = Device::open(0)?;
        Ok(Session {
            stream: device.stream()?,
            facts: Facts::of(&device),
            criterion: criterion(&options),
            device,
            options,
            name,
            peers: None,
            rows: Vec::new(),
            reasons: Vec::new(),
            seen: RefCell::default(),
            begun: Instant::now(),
            failed: 0,
        })
    }

    /// The products that `--random` or `--shape` asks for, if one of them is there. Prints the seed, and the
    /// head of the table whose lines follow with each product.
    pub fn products(&self) -> Option<Vec<Drawn>> {
        if !self.options.has_products() {
            return None;
        }
        let products = match self.options.random {
            None => self.options.named.clone(),
            Some(count) => self.draw(count, "products", random::products),
        };
        if !self.options.every {
            print!("{}", head());
        }
        Some(products)
    }

    /// The shapes that `--random` asks for, by a draw of so many with a seed. Prints the seed and the head of
    /// the table, as [`Session::products`].
    pub fn drawn<T>(&self, what: &str, draw: fn(usize, u64) -> Vec<T>) -> Option<Vec<T>> {
        let shapes = self.draw(self.options.random?, what, draw);
        print!("{}", head());
        Some(shapes)
    }

    /// Draws, by the seed on the command line or one of the clock.
    fn draw<T>(&self, count: usize, what: &str, draw: fn(usize, u64) -> Vec<T>) -> Vec<T> {
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let seed = self.options.seed.unwrap_or_else(clock);
        println!("{count} {what} drawn with the seed {seed}");
        draw(count, seed)
    }

    /// Keeps what the program says of its choice for a row, for the rows that turn out to be the slowest.
    pub fn explain(&mut self, name: &str, shape: &str, reason: String) {
        self.reasons.push((name.to_owned(), shape.to_owned(), reason));
    }

    /// Whether the seconds of `--within` are over: then `left` drawn shapes are left out, which is said.
    pub fn is_over(&self, left: usize) -> bool {
        let is_over = self.options.within.is_some_and(|within| self.begun.elapsed().as_secs() >= within);
        if is_over {
            println!("{left} shapes are left out: the time of `--within` is over");
        }
        is_over
    }

    /// Reports a drawn or named product that failed. Others can be measured; the program ends as failed.
    pub fn fail(&mut self, product: &str, error: &dyn Error) {
        println!("{product} failed: {error}");
        self.failed += 1;
    }

    /// Milliseconds of the search of a peer's algorithms, where it is limited.
    pub fn search_ms(&self) -> Option<u64> {
        self.options.brief.then_some(BRIEF_SEARCH_MS)
    }

    /// Whether inputs must be small: on request, or because the software device is slow.
    pub fn small(&self) -> bool {
        self.options.quick || self.device.is_software()
    }

    /// Whether the row is wanted. Ask before its inputs are made. Unwanted rows are left out of the table.
    pub fn wants(&self, name: &str) -> bool {
        self.seen.borrow_mut().note(name);
        self.options.wants(name)
    }

    /// Whether any of these rows is wanted. For inputs that the rows share.
    pub fn wants_any(&self, names: &[&str]) -> bool {
        names.iter().for_each(|name| self.seen.borrow_mut().note(name));
        names.iter().any(|name| self.options.wants_some(name))
    }

    /// The number of operand sets of `bytes` bytes each that a row must rotate through, so that none stays in
    /// the L2 cache.
    pub fn rotation(&self, bytes: u64) -> usize {
        const SETS: u64 = 16;
        if self.small() {
            return 1;
        }
        let cache = self.device.properties().l2_bytes as u64;
        (4 * cache).div_ceil(bytes.max(1)).clamp(1, SETS) as usize
    }

    /// Measures a row: `run(i)` queues the `i`-th run on the session's stream.
    ///
    /// # Errors
    /// The first error of a run or an event.
    pub fn measure(
        &mut self,
        name: &str,
        shape: &str,
        work: Work,
        run: impl FnMut(usize) -> ironwarp::Result<()>,
    ) -> Outcome {
        self.measure_beside(name, shape, work, &[], run)
    }

    /// As [`Session::measure`], with a sample of each peer after each of ours. `peers` are requests such as
    /// `json!({"prepare": "basic.exp", "shape": [1024, 1024], "dtype": "bf16", "sets": 4})`; see
    /// `baselines/serve.py`. An unavailable peer is reported and left out. Without a GPU all are left out.
    ///
    /// # Errors
    /// The first error of a run or an event.
    pub fn measure_beside(
        &mut self,
        name: &str,
        shape: &str,
        work: Work,
        peers: &[Value],
        run: impl FnMut(usize) -> ironwarp::Result<()>,
    ) -> Outcome {
        self.measure_groups(name, shape, work, peers, 1, run)
    }

    /// As [`Session::measure_beside`] for a `run(i)` that queues `group` runs, such as the replay of a graph.
    ///
    /// # Errors
    /// The first error of a run or an event.
    pub fn measure_groups(
        &mut self,
        name: &str,
        shape: &str,
        work: Work,
        peers: &[Value],
        group: u64,
        run: impl FnMut(usize) -> ironwarp::Result<()>,
    ) -> Outcome {
        let sample = in_groups(&self.stream, group, run)?;
        self.sample_beside(name, shape, work, peers, None, sample)
    }

    /// As [`Session::measure_groups`]. A sample of `other`, which queues as many runs, follows each sample:
    /// it is the row's peer in this process.
    ///
    /// # Errors
    /// The first error of a run or an event.
    pub fn measure_groups_beside(
        &mut self,
        (name, shape, work): (&str, &str, Work),
        peers: &[Value],
        group: u64,
        run: impl FnMut(usize) -> ironwarp::Result<()>,
        (label, other): (&str, impl FnMut(usize) -> ironwarp::Result<()>),
    ) -> Outcome {
        let sample = in_groups(&self.stream, group, run)?;
        let mut other = in_groups(&self.stream, group, other)?;
        self.sample_beside(name, shape, work, peers, Some((label, &mut other)), sample)
    }

    /// Median milliseconds per run of a few short samples, where `run` queues `group` runs. It finds the
    /// fastest of several configurations, and adds no row to the table.
    ///
    /// # Errors
    /// The first error of a run or an event.
    pub fn glance(&self, group: u64, mut run: impl FnMut() -> ironwarp::Result<()>) -> ironwarp::Result<f64> {
        let (start, end) = (Event::new(&self.device)?, Event::new(&self.device)?);
        let mut sample = |groups: u64| -> ironwarp::Result<f64> {
            // As for a row of the table.
            run()?;
            self.stream.record(&start)?;
            (0..groups).try_for_each(|_| run())?;
            self.stream.record(&end)?;
            Ok(f64::from(Event::elapsed_ms(&start, &end)?) / (groups * group) as f64)
        };
        let once = sample(1)? * group as f64;
        let groups = (GLANCE_MS / once.max(GLANCE_MS / GLANCE_GROUPS)).ceil() as u64;
        let mut times = (0..GLANCES).map(|_| sample(groups)).collect::<ironwarp::Result<Vec<f64>>>()?;
        times.sort_by(f64::total_cmp);
        Ok(times[GLANCES / 2])
    }

    /// As [`Session::measure_beside`], by the host's clock: `run(runs)` does that many runs, and the device
    /// is idle before and after.
    ///
    /// # Errors
    /// The first error of a run.
    pub fn measure_host(
        &mut self,
        name: &str,
        shape: &str,
        work: Work,
        peers: &[Value],
        mut run: impl FnMut(u64) -> ironwarp::Result<()>,
    ) -> Outcome {
        let device = self.device.clone();
        self.sample_beside(name, shape, work, peers, None, |runs| {
            device.synchronize()?;
            let begun = Instant::now();
            run(runs)?;
            device.synchronize()?;
            Ok((runs, begun.elapsed().as_secs_f64() * 1e3))
        })
    }

    /// As [`Session::measure_host`], without the device's time. `run(runs)` queues that many runs, in bursts
    /// that fit into the device's queue, and only the queueing is timed.
    ///
    /// # Errors
    /// The first error of a run.
    pub fn measure_calls(
        &mut self,
        name: &str,
        shape: &str,
        work: Work,
        run: impl FnMut(u64) -> ironwarp::Result<()>,
    ) -> Outcome {
        let sample = in_bursts(self.device.clone(), run);
        self.sample_beside(name, shape, work, &[], None, sample)
    }

    /// As [`Session::measure_calls`]. A sample of `other`, with as many runs, follows each sample: it is the
    /// row's peer in this process.
    ///
    /// # Errors
    /// The first error of a run.
    pub fn measure_calls_beside(
        &mut self,
        name: &str,
        shape: &str,
        work: Work,
        run: impl FnMut(u64) -> ironwarp::Result<()>,
        (label, other): (&str, impl FnMut(u64) -> ironwarp::Result<()>),
    ) -> Outcome {
        let sample = in_bursts(self.device.clone(), run);
        let mut other = in_bursts(self.device.clone(), other);
        self.sample_beside(name, shape, work, &[], Some((label, &mut other)), sample)
    }

    /// Adds a row of samples (runs and milliseconds) that the program took itself, for each program that has
    /// any. The first one is ours.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn record(&mut self, name: &str, shape: &str, work: Work, programs: &[(&str, Samples)]) -> Outcome {
        let mut medians = Vec::new();
        for (program, samples) in programs.iter().filter(|(_, samples)| !samples.is_empty()) {
            let (program, samples) = ((*program).to_owned(), samples.clone());
            let row = Row { program, name: name.to_owned(), shape: shape.to_owned(), work, samples };
            medians.push(format!("{} {:.4} ms", row.program, row.quantile(0.5)));
            self.rows.push(row);
        }
        self.keep(name, shape, &medians)
    }

    /// An interrupted run keeps its results. The table is printed at the end, and a line shows the progress
    /// of a long run; of drawn or named products the table's lines are printed here.
    fn keep(&self, name: &str, shape: &str, medians: &[String]) -> Outcome {
        if self.options.has_products() {
            let is_its = |row: &&Row| row.name == name && row.shape == shape;
            print!("{}", lines(&self.rows.iter().filter(is_its).cloned().collect::<Vec<_>>()));
        } else {
            println!("{name} {shape}: {}", medians.join(", "));
        }
        if let Some(folder) = &self.options.out {
            write_csv(folder, self.name, "", &self.rows)?;
        }
        Ok(())
    }

    /// Lets criterion call `sample(runs)`. It returns the number of runs, which may be higher, and their
    /// milliseconds. After each call comes a sample of `local` with as many runs, and one of each peer with
    /// the same duration.
    fn sample_beside(
        &mut self,
        name: &str,
        shape: &str,
        work: Work,
        peers: &[Value],
        mut local: Option<(&str, &mut Sample<'_>)>,
        mut sample: impl FnMut(u64) -> ironwarp::Result<(u64, f64)>,
    ) -> Outcome {
        if !self.wants(&format!("{name}/{shape}")) && name != COPY {
            return Ok(());
        }
        let mut peers: Vec<(Peer, Samples)> =
            self.prepare(peers).into_iter().map(|peer| (peer, Samples::new())).collect();
        let mut local_samples = Samples::new();
        // The first run loads the module. It belongs to no sample.
        sample(1)?;
        // criterion's routine cannot return an error, so the error is kept until afterwards.
        let failure = RefCell::new(None);
        let mut samples = Samples::new();
        let mut group = self.criterion.benchmark_group(self.name);
        // Samples of equal length: the peers' samples are as long as ours.
        group.sampling_mode(SamplingMode::Flat);
        group.bench_function(BenchmarkId::new(name, shape), |bencher| {
            let mut both = |runs| -> ironwarp::Result<_> {
                let own = sample(runs)?;
                if let Some((_, sample)) = &mut local {
                    local_samples.push(sample(runs)?);
                }
                Ok(own)
            };
            bencher.iter_custom(|runs| match both(runs) {
                Ok((made, ms)) => {
                    samples.push((made, ms));
                    peers.retain_mut(|(peer, samples)| add_sample(peer, ms, samples));
                    Duration::from_secs_f64(ms.max(MIN_MS) / 1e3 * runs as f64 / made as f64)
                }
                Err(error) => {
                    // Warming up, criterion doubles the runs until the time is over: calls that fail at once
                    // would make it count beyond a `u64`.
                    let mut first = failure.borrow_mut();
                    if first.is_none() {
                        *first = Some(error);
                        std::thread::sleep(MEASURE);
                    }
                    Duration::from_millis(runs)
                }
            });
        });
        group.finish();
        if let Some(error) = failure.into_inner() {
            return Err(error.into());
        }
        // The samples before the last ones were warm-up.
        let count = sample_count(&self.options);
        let mut medians = Vec::new();
        let mut row = |program: &str, samples: &mut Samples| {
            let samples = samples.split_off(samples.len().saturating_sub(count));
            let (program, name, shape) = (program.to_owned(), name.to_owned(), shape.to_owned());
            let row = Row { program, name, shape, work, samples };
            medians.push(format!("{} {:.4} ms", row.program, row.quantile(0.5)));
            self.rows.push(row);
        };
        row(OURS, &mut samples);
        if let Some((label, _)) = local {
            row(label, &mut local_samples);
        }
        peers.iter_mut().for_each(|(peer, samples)| row(peer.label(), samples));
        self.keep(name, shape, &medians)
    }

    /// The available peers. Reports the others, with the reason.
    fn prepare(&mut self, requests: &[Value]) -> Vec<Peer> {
        if requests.is_empty() {
            return Vec::new();
        }
        let software = self.device.is_software();
        let peers = self.peers.get_or_insert_with(|| {
            let peers = if software { Err("the software device has none".into()) } else { start_peers() };
            if let Err(error) = &peers {
                println!("no peers: {error}");
            }
            peers
        });
        let Ok(peers) = peers else { return Vec::new() };
        let prepared = requests.iter().map(|request| peers.prepare(request));
        prepared.filter_map(|peer| peer.inspect_err(|error| println!("no peer: {error}")).ok()).collect()
    }

    fn finish(self) -> Outcome {
        let clocks = facts::clocks();
        let peers = match &self.peers {
            None => String::new(),
            Some(Ok(peers)) => format!("peers: {}\n", peers.facts()?),
            Some(Err(error)) => format!("no peers: {}\n", error.to_string().replace('\n', " ")),
        };
        if let Some(folder) = &self.options.out {
            let head = format!("{}\n{clocks}\n{peers}", self.facts);
            let head: String = head.lines().map(|line| format!("# {line}\n")).collect();
            let path = write_csv(folder, self.name, &head, &self.rows)?;
            println!("\nsamples: {}", path.display());
        }
        println!("\n{}\n{clocks}\n{peers}", self.facts);
        if self.options.has_products() {
            print!("{}{}", summary(&self.rows), spread(&self.rows, &self.reasons));
        } else {
            println!("{}\n{}", table(&self.rows), summary(&self.rows));
        }
        self.seen.borrow().check(&self.options)?;
        if self.failed > 0 { Err(format!("{} of the products failed", self.failed).into()) } else { Ok(()) }
    }
}

/// Makes at least that many runs. Returns their number and milliseconds.
type Sample<'a> = dyn FnMut(u64) -> ironwarp::Result<(u64, f64)> + 'a;

/// Times the device's part of the runs, of which a call queues `group`.
fn in_groups<F: FnMut(usize) -> ironwarp::Result<()>>(
    stream: &Stream,
    group: u64,
    mut run: F,
) -> ironwarp::Result<impl FnMut(u64) -> ironwarp::Result<(u64, f64)> + use<F>> {
    let (start, end) = (Event::new(stream.device())?, Event::new(stream.device())?);
    let (stream, mut next) = (stream.clone(), 0);
    Ok(move |runs: u64| {
        let groups = runs.div_ceil(group);
        let mut queue = |groups: u64| -> ironwarp::Result<()> {
            (0..groups).try_for_each(|_| {
                next += 1;
                run(next - 1)
            })
        };
        // The first run refills the caches after a peer's kernels. It belongs to no sample.
        queue(1)?;
        stream.record(&start)?;
        queue(groups)?;
        stream.record(&end)?;
        end.synchronize()?;
        Ok((groups * group, f64::from(Event::elapsed_ms(&start, &end)?)))
    })
}

/// Times the host's part of the runs, in bursts that fit into the device's queue.
fn in_bursts(
    device: Device,
    mut run: impl FnMut(u64) -> ironwarp::Result<()>,
) -> impl FnMut(u64) -> ironwarp::Result<(u64, f64)> {
    /// A GPU queues about a thousand launches before the host has to wait.
    const BURST: u64 = 200;
    move |runs| {
        let (mut left, mut spent) = (runs, Duration::ZERO);
        while left > 0 {
            let burst = left.min(BURST);
            device.synchronize()?;
            let begun = Instant::now();
            run(burst)?;
            spent += begun.elapsed();
            left -= burst;
        }
        device.synchronize()?;
        Ok((runs, spent.as_secs_f64() * 1e3))
    }
}

fn start_peers() -> Result<Peers, Box<dyn Error>> {
    let peers = Peers::start()?;
    // Checks that Python has PyTorch and sees the device.
    peers.facts()?;
    Ok(peers)
}

/// Takes a peer's sample. A peer that fails is reported and dropped: a row with fewer samples would not be
/// comparable.
fn add_sample(peer: &Peer, milliseconds: f64, samples: &mut Samples) -> bool {
    let sample = peer.sample_for(milliseconds);
    let report = |error: &PeerError| println!("no peer `{}` any more: {error}", peer.label());
    sample.inspect_err(report).map(|sample| samples.push(sample)).is_ok()
}

/// The shortest time that criterion is told. The software device's clock may show 0 for a run, and a rate
/// must be finite.
const MIN_MS: f64 = 1e-6;

fn sample_count(options: &Options) -> usize {
    if options.quick || options.brief { FEW_SAMPLES } else { SAMPLES }
}

fn criterion(options: &Options) -> Criterion {
    let time = match options {
        Options { quick: true, .. } => QUICK_MEASURE,
        Options { brief: true, .. } => BRIEF_MEASURE,
        _ => MEASURE,
    };
    let folder = match &options.out {
        Some(folder) => folder.join("criterion"),
        None => std::env::temp_dir().join("ironwarp-criterion"),
    };
    Criterion::default()
        .output_directory(&folder)
        .without_plots()
        .nresamples(RESAMPLES)
        .sample_size(sample_count(options))
        .warm_up_time(time / 2)
        .measurement_time(time)
}

/// Writes all rows or leaves the file as it was: a run may end at any moment.
fn write_csv(folder: &Path, name: &str, head: &str, rows: &[Row]) -> Outcome<PathBuf> {
    let path = folder.join(format!("{name}.csv"));
    let beside = folder.join(format!("{name}.csv.{}", std::process::id()));
    let text = format!("{head}{}", csv(rows));
    let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, &path));
    written.map_err(|error| {
        // It may not be there; what matters is the first error.
        let _ = std::fs::remove_file(&beside);
        format!("cannot write {path:?}: {error}")
    })?;
    Ok(path)
}
