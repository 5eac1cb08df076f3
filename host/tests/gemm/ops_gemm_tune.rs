//! Choosing and tuning: the same problem gets the same configuration, the tuner keeps what it measures, and
//! its file survives abuse.

use crate::gemm_case::{Case, Lie, Outcome, PLAIN, Setup, TRANSPOSED};
use ironwarp::ops::gemm::{Choice, Config, Kernel, Precision, Repack, candidates};
use ironwarp::ops::tuning::{Source, Tuner, Tuning, Unusable};
use ironwarp::{Device, Error, Stream};
use std::fs;
use std::path::PathBuf;
use testkit::compare;

const CASE: Case = Case { m: 70, n: 36, k: 20, ..PLAIN };

/// A file of this test alone, removed at its end.
struct File(PathBuf);

impl File {
    fn new(test: &str) -> Self {
        File(std::env::temp_dir().join(format!("ironwarp-{test}-{}.json", std::process::id())))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The tuner's word on the setup's product.
fn told(tuner: &Tuner, stream: &Stream, setup: &Setup<f32, f32, f32>) -> Outcome<Choice> {
    Ok(tuner.explain(stream, setup.product(&mut setup.c(stream)?)?)?)
}

fn is_measured(choice: &Choice) -> bool {
    matches!(choice.source, Source::Record { .. })
}

#[test]
fn the_choice_is_explained() -> Outcome {
    let device = Device::open(0)?;
    let stream = device.stream()?;
    let setup = Setup::<f32, f32, f32>::new(&CASE, &stream)?;
    let mut c = setup.c(&stream)?;
    let choice = setup.product(&mut c)?.explain(&stream)?;
    let text = choice.to_string();
    assert!(text.contains("f32[70, 20 /20] * f32[20, 36 /36] -> f32[70, 36 /36]"), "{text}");
    assert!(text.contains(&format!("by {}", choice.config)) && text.contains("  can: gemm_"), "{text}");
    assert!(choice.source == Source::Estimate && text.contains("nothing was measured"), "{text}");
    assert!(choice.candidates.iter().any(|candidate| candidate.config.kernel == Kernel::Any), "{text}");
    // Where rows cannot be addressed, it says that they are copied.
    let odd = Case { a: TRANSPOSED, k: 21, precision: Precision::Tf32, ..CASE };
    let setup = Setup::<f32, f32, f32>::new(&odd, &stream)?;
    let offers = candidates(&setup.product(&mut c)?.problem()?, &device);
    let is_copy = |config: &Config| config.kernel == Kernel::MmaSmall && config.repack != [Repack::No; 2];
    let copying = offers.iter().find(|offer| is_copy(&offer.config)).expect("copies for tensor cores");
    assert!(copying.config.to_string().ends_with("A to columns"), "{}", copying.config);
    Ok(())
}

#[test]
fn configurations_have_texts_of_their_own() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let setup = Setup::<f32, f32, f32>::new(&CASE, &stream)?;
    let problem = setup.product(&mut setup.c(&stream)?)?.problem()?;
    let mut texts: Vec<String> =
        candidates(&problem, stream.device()).iter().map(|offer| offer.config.to_string()).collect();
    let count = texts.len();
    texts.sort();
    texts.dedup();
    assert!(count >= 3 && texts.len() == count, "{texts:?}");
    Ok(())
}

#[test]
fn the_tuner_measures_once_and_keeps_it() -> Outcome {
    let (file, device) = (File::new("keeps"), Device::open(0)?);
    let stream = device.stream()?;
    let setup = Setup::<f32, f32, f32>::new(&Case { beta: 1.0, ..CASE }, &stream)?;
    let tuner = Tuner::with_file(&device, Tuning::Measure, &file.0);
    assert!(tuner.is_empty() && tuner.unusable().is_none());
    assert!(!is_measured(&told(&tuner, &stream, &setup)?));
    let mut tuned = Vec::new();
    for _ in 0..2 {
        // C is added to: had it been measured with, it would show.
        let mut c = setup.c(&stream)?;
        tuner.run(&stream, setup.product(&mut c)?)?;
        tuned.push(c.to_vec(&stream)?);
        assert_eq!(tuner.len(), 1);
    }
    // Any of the f32 kernels may have won.
    setup.compare(&tuned[0], Kernel::F32Small)?;
    compare::bitwise_equal("tuned again", &tuned[1], &tuned[0])?;
    let found = told(&tuner, &stream, &setup)?;
    let Source::Record { microseconds } = found.source else { panic!("no record: {found}") };
    assert!(microseconds > 0.0 || device.is_software(), "{found}");
    assert!(found.to_string().contains("from a tuner's record: measured, "), "{found}");
    // Another tuner, such as the next process's, has it from the file.
    let next = Tuner::with_file(&device, Tuning::Recorded, &file.0);
    assert_eq!(told(&next, &stream, &setup)?, found);
    Ok(())
}

#[test]
fn recorded_tuning_measures_nothing() -> Outcome {
    let (file, device) = (File::new("recorded"), Device::open(0)?);
    let stream = device.stream()?;
    let setup = Setup::<f32, f32, f32>::new(&CASE, &stream)?;
    let tuner = Tuner::with_file(&device, Tuning::Recorded, &file.0);
    let mut c = setup.c(&stream)?;
    tuner.run(&stream, setup.product(&mut c)?)?;
    assert!(tuner.is_empty() && !file.0.exists());
    Ok(())
}

#[test]
fn files_that_are_no_records_are_replaced() -> Outcome {
    let (file, device) = (File::new("abuse"), Device::open(0)?);
    let stream = device.stream()?;
    let setup = Setup::<f32, f32, f32>::new(&CASE, &stream)?;
    let run = |tuner: &Tuner| -> Outcome {
        let mut c = setup.c(&stream)?;
        Ok(tuner.run(&stream, setup.product(&mut c)?)?)
    };
    run(&Tuner::with_file(&device, Tuning::Measure, &file.0))?;
    let good = fs::read_to_string(&file.0)?;
    let here = format!("\"device\": \"{}\"", device.name());
    assert!(good.contains(&here), "{good}");
    for bad in [
        String::from("{"),
        good.replace(&here, "\"device\": \"Another\""),
        good.replace("\"version\": 1", "\"version\": 0"),
        good[..good.len() - 20].to_owned(),
    ] {
        fs::write(&file.0, &bad)?;
        let tuner = Tuner::with_file(&device, Tuning::Measure, &file.0);
        assert!(tuner.is_empty());
        let is_foreign = matches!(tuner.unusable(), Some(Unusable::Foreign { .. }));
        assert!(is_foreign || matches!(tuner.unusable(), Some(Unusable::Corrupt(_))), "{bad}");
        assert_eq!(is_foreign, bad.contains("Another") || bad.contains("\"version\": 0"));
        run(&tuner)?;
        assert_eq!(Tuner::with_file(&device, Tuning::Recorded, &file.0).len(), 1, "{bad}");
    }
    // A record of a configuration that is not offered counts as none.
    fs::write(&file.0, good.replace("gemm_", "gone_"))?;
    let tuner = Tuner::with_file(&device, Tuning::Measure, &file.0);
    assert!(tuner.len() == 1 && !is_measured(&told(&tuner, &stream, &setup)?));
    run(&tuner)?;
    assert!(is_measured(&told(&tuner, &stream, &setup)?));
    Ok(())
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_after_the_product() -> Outcome {
    let device = Device::open(0)?;
    let stream = device.stream()?;
    let setup = Setup::<f32, f32, f32>::new(&CASE, &stream)?;
    let nowhere = File::new("nowhere").0.join("below").join("records.json");
    let tuner = Tuner::with_file(&device, Tuning::Measure, &nowhere);
    let mut c = setup.c(&stream)?;
    match tuner.run(&stream, setup.product(&mut c)?) {
        Err(Error::FileWrite { path, .. }) => assert_eq!(path, nowhere),
        other => panic!("{other:?}"),
    }
    setup.compare(&c.to_vec(&stream)?, Kernel::F32Small)
}

#[test]
fn unaligned_results_are_measured_as_they_lie() -> Outcome {
    let device = Device::open(0)?;
    let stream = device.stream()?;
    let case = Case { c: Lie { skip: 1, gap: 1, ..Lie::default() }, ..CASE };
    let setup = Setup::<f32, f32, f32>::new(&case, &stream)?;
    let tuner = Tuner::new(&device, Tuning::Measure);
    let mut c = setup.c(&stream)?;
    tuner.run(&stream, setup.product(&mut c)?)?;
    assert_eq!(tuner.len(), 1);
    Ok(())
}

#[test]
fn a_batch_that_shares_b_is_recorded_as_it_is_solved() -> Outcome {
    let device = Device::open(0)?;
    let stream = device.stream()?;
    let case = Case { m: 6, n: 5, k: 4, batch: 3, b: Lie { shared: true, ..Lie::default() }, ..PLAIN };
    let setup = Setup::<f32, f32, f32>::new(&case, &stream)?;
    let tuner = Tuner::new(&device, Tuning::Measure);
    let mut c = setup.c(&stream)?;
    let problem = setup.product(&mut c)?.problem()?;
    assert_eq!((problem.m, problem.batch), (18, 1));
    tuner.run(&stream, setup.product(&mut c)?)?;
    let choice = told(&tuner, &stream, &setup)?;
    assert!(is_measured(&choice) && choice.problem == problem, "{choice}");
    let config = choice.config;
    // And the product can be run by it.
    setup.product(&mut c)?.run_with(&stream, &config)?;
    setup.compare(&c.to_vec(&stream)?, config.kernel)
}
