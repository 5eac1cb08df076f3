//! A run of a bench program.

use crate::rows::{csv, table};
use crate::{Facts, Options, Row, Work, facts};
use criterion::Criterion;
use ironwarp::{Device, Event, Stream};
use std::cell::RefCell;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the steps of a bench program return.
pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Samples of a row in a full run.
const SAMPLES: usize = 20;
/// Time that criterion warms up, and then measures, for a row of a full run.
const MEASURE: Duration = Duration::from_millis(600);
/// The same of a quick run. criterion takes ten samples at least.
const QUICK_SAMPLES: usize = 10;
const QUICK_MEASURE: Duration = Duration::from_millis(1);

/// Device, stream, options and the rows measured so far.
pub struct Session {
    /// The device measured.
    pub device: Device,
    /// The stream on which everything runs.
    pub stream: Stream,
    /// What the command line asked for.
    pub options: Options,
    name: &'static str,
    facts: Facts,
    criterion: Criterion,
    rows: Vec<Row>,
}

impl Session {
    /// Runs a program: options, session, `body`, the files and the table. The body measures with [`Session::measure`].
    ///
    /// # Errors
    /// Wrong options, no device, a file that cannot be written, or what the body returns.
    pub fn run(name: &'static str, body: impl FnOnce(&mut Session) -> Outcome) -> Outcome {
        let options = Options::parse(std::env::args().skip(1))?;
        let device = Device::open(0)?;
        let mut session = Session {
            stream: device.stream()?,
            facts: Facts::of(&device),
            criterion: criterion(&options),
            device,
            options,
            name,
            rows: Vec::new(),
        };
        body(&mut session)?;
        session.finish()
    }

    /// Whether inputs are to be small: asked for, or because the software device is slow.
    pub fn small(&self) -> bool {
        self.options.quick || self.device.is_software()
    }

    /// Whether the row is wanted; asked before its inputs are made.
    pub fn wants(&self, name: &str) -> bool {
        self.options.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    /// How many sets of operands of `bytes` in all a row should rotate through, so that none is found in the L2 cache.
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
        mut run: impl FnMut(usize) -> ironwarp::Result<()>,
    ) -> Outcome {
        let (start, end) = (Event::new(&self.device)?, Event::new(&self.device)?);
        let stream = &self.stream;
        let mut next = 0;
        let mut sample = |runs: u64| -> ironwarp::Result<f64> {
            stream.record(&start)?;
            for _ in 0..runs {
                run(next)?;
                next += 1;
            }
            stream.record(&end)?;
            end.synchronize()?;
            Ok(f64::from(Event::elapsed_ms(&start, &end)?))
        };
        // The first run loads the module; it belongs to no sample.
        sample(1)?;
        // criterion's routine cannot return an error: it is kept until afterwards.
        let failure = RefCell::new(None);
        let samples = RefCell::new(Vec::new());
        self.criterion.bench_function(&format!("{}/{name}/{shape}", self.name), |bencher| {
            bencher.iter_custom(|runs| match sample(runs) {
                Ok(ms) => {
                    samples.borrow_mut().push((runs, ms));
                    Duration::from_secs_f64(ms.max(MIN_MS) / 1e3)
                }
                Err(error) => {
                    failure.borrow_mut().get_or_insert(error);
                    Duration::from_millis(runs)
                }
            });
        });
        if let Some(error) = failure.into_inner() {
            return Err(error.into());
        }
        // What came before the last ones was warm-up.
        let mut samples = samples.into_inner();
        let samples = samples.split_off(samples.len().saturating_sub(sample_count(&self.options)));
        self.rows.push(Row { name: name.into(), shape: shape.into(), work, samples });
        Ok(())
    }

    fn finish(self) -> Outcome {
        let clocks = facts::clocks();
        if let Some(folder) = &self.options.out {
            let path = write_csv(folder, self.name, &format!("# {}\n# {clocks}\n", self.facts), &self.rows)?;
            println!("\nsamples: {}", path.display());
        }
        println!("\n{}\n{clocks}\n{}", self.facts, table(&self.rows));
        Ok(())
    }
}

/// Shortest time that criterion is told: the software device's clock may not see a run at all, and a rate must be finite.
const MIN_MS: f64 = 1e-6;

fn sample_count(options: &Options) -> usize {
    if options.quick { QUICK_SAMPLES } else { SAMPLES }
}

fn criterion(options: &Options) -> Criterion {
    let time = if options.quick { QUICK_MEASURE } else { MEASURE };
    let folder = match &options.out {
        Some(folder) => folder.join("criterion"),
        None => std::env::temp_dir().join("ironwarp-criterion"),
    };
    Criterion::default()
        .output_directory(&folder)
        .without_plots()
        .sample_size(sample_count(options))
        .warm_up_time(time)
        .measurement_time(time)
}

fn write_csv(folder: &Path, name: &str, head: &str, rows: &[Row]) -> std::io::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join(format!("{name}.csv"));
    std::fs::write(&path, format!("{head}{}", csv("ironwarp", rows)))?;
    Ok(path)
}
