//! A job that is killed again and again ends with the same bits as one that is not.

use std::fs;
use std::time::Duration;

use testkit::Random;

use crate::place::{Place, end, run, signal, wait_for};

const STEPS: &str = "60";
/// Kills of one job.
const KILLS: u32 = 6;

fn uninterrupted(ranks: &str) -> Vec<u8> {
    let place = Place::new();
    let ended = run(&mut place.worker(&["-n", ranks], &format!("train {STEPS}")));
    assert_eq!(ended.code(), Some(0), "{}", ended.errors);
    assert!(ended.output.contains("[rank 0] begun at 0"), "{}", ended.output);
    fs::read(place.path().join("final")).unwrap()
}

#[test]
fn a_job_that_is_killed_again_and_again_ends_with_the_same_bits() {
    let wanted = uninterrupted("3");
    assert_eq!(wanted.len(), 8000);
    assert_eq!(wanted, uninterrupted("2"), "sums depend on the number of ranks");
    for seed in 0..2 {
        let (place, mut random) = (Place::new(), Random::new(seed));
        let restarts = KILLS.to_string();
        let launcher = place.worker(
            &["-n", "3", "--restarts", &restarts, "--json", "--timeout", "5"],
            &format!("train {STEPS} killed {KILLS}"),
        );
        let launcher = { launcher }.spawn().unwrap();
        for generation in 0..KILLS {
            let victim = place.path().join(format!("pid-{generation}-{}", random.integer(0, 2)));
            let victim = wait_for(&victim).parse().unwrap();
            std::thread::sleep(Duration::from_millis(random.integer(0, 60) as u64));
            signal(victim, "KILL");
        }
        let ended = end(launcher);
        assert_eq!(ended.code(), Some(0), "seed {seed}: {}", ended.errors);
        let json = ended.json();
        assert_eq!(json["restarts"], KILLS, "seed {seed}: {json:#}");
        assert_eq!(fs::read(place.path().join("final")).unwrap(), wanted, "seed {seed}: {json:#}");
        place.check_empty();
    }
}

#[test]
fn a_job_goes_on_with_another_number_of_ranks() {
    let wanted = uninterrupted("2");
    let place = Place::new();
    for (ranks, steps, begins) in [("2", "13", "0"), ("4", "30", "12"), ("1", "31", "28"), ("3", STEPS, "28")]
    {
        let ended = run(&mut place.worker(&["-n", ranks], &format!("train {steps}")));
        assert_eq!(ended.code(), Some(0), "{}", ended.errors);
        assert!(ended.output.contains(&format!("begun at {begins}\n")), "{ranks}: {}", ended.output);
    }
    assert_eq!(fs::read(place.path().join("final")).unwrap(), wanted);
    // The newest checkpoint is torn: the one before it is taken.
    let newest = checkpoint::Checkpoints::new(place.path().join("checkpoints")).newest().unwrap().unwrap();
    fs::write(newest.path().join("shard-00001-of-00003.safetensors"), "torn").unwrap();
    let ended = run(&mut place.worker(&["-n", "2"], &format!("train {STEPS}")));
    assert!(ended.output.contains("begun at 56\n"), "{}{}", ended.output, ended.errors);
    assert_eq!(fs::read(place.path().join("final")).unwrap(), wanted);
}
