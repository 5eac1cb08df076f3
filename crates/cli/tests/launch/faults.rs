//! Ranks and launchers that are killed and stopped: who it was is said, and nothing is left.

use std::fs;
use std::time::{Duration, Instant};

use testkit::Random;

use crate::place::{Ended, Place, end, signal, wait_for};

/// Long enough for a busy machine.
const TIMEOUT: &str = "1.5";
const GRACE: &str = "0.5";

/// Starts a job of three that waits, and does something to the process of a rank at a random moment.
fn strike(seed: u64, name: &str) -> (Ended, u32, Duration, Place) {
    let (place, mut random) = (Place::new(), Random::new(seed));
    let records = place.path().join("records");
    let options =
        ["-n", "3", "--json", "--timeout", TIMEOUT, "--grace", GRACE, "--records", records.to_str().unwrap()];
    let launcher = place.worker(&options, "wait").spawn().unwrap();
    let victim = random.integer(0, 2) as u32;
    // All have joined when one has.
    let process = wait_for(&place.path().join(format!("pid-0-{victim}")));
    std::thread::sleep(Duration::from_millis(random.integer(0, 100) as u64));
    let struck = Instant::now();
    signal(process.parse().unwrap(), name);
    let ended = end(launcher);
    (ended, victim, struck.elapsed(), place)
}

#[test]
fn the_rank_that_is_killed_is_named_and_the_others_end() {
    for seed in 0..6 {
        let (ended, victim, took, place) = strike(seed, "KILL");
        let json = ended.json();
        let generation = &json["generations"][0];
        assert_eq!(generation["first_failure"]["rank"], victim, "{json:#}");
        assert_eq!(generation["first_failure"]["why"], "killed by signal 9 (SIGKILL)", "{json:#}");
        assert_eq!((ended.code(), &json["outcome"]), (Some(137), &"failed".into()));
        // The others have heard of it and ended by themselves.
        for rank in generation["ranks"].as_array().unwrap().iter().filter(|rank| rank["rank"] != victim) {
            assert_eq!(rank["exit_code"], 3, "{json:#}");
        }
        assert!(
            ended.errors.contains(&format!("worker: the job has failed: rank {victim}")),
            "{}",
            ended.errors
        );
        assert!(took < Duration::from_secs(3), "{took:?}");
        // They have written what they did last.
        let records = fs::read_dir(place.path().join("records")).unwrap().count();
        assert_eq!(records, 2);
        assert!(ended.errors.contains("2 flight records in "), "{}", ended.errors);
        place.check_empty();
    }
}

#[test]
fn the_rank_that_is_stopped_is_named_and_killed() {
    for seed in 0..2 {
        let (ended, victim, took, place) = strike(seed, "STOP");
        let json = ended.json();
        let generation = &json["generations"][0];
        assert_eq!(generation["first_failure"]["rank"], victim, "{json:#}");
        let cause = generation["store"]["cause"].as_str().unwrap();
        assert!(["late", "silent"].contains(&cause), "{json:#}");
        assert_eq!(ended.code(), Some(1));
        // The timeout and two seconds until all others know, and the time to end what does not.
        assert!(took < Duration::from_secs(7), "{took:?}");
        place.check_empty();
    }
}

#[test]
fn a_record_that_cannot_be_read_is_said() {
    let place = Place::new();
    let script = "mkdir -p $IRONWARP_RECORDS; echo { > $IRONWARP_RECORDS/flight-g0-r0.json; exit 7";
    let ended = place.shell(&["-n", "1", "--records", "records"], script);
    assert_eq!(ended.code(), Some(7), "{}", ended.errors);
    let said = |line: &str| line.contains("cannot read") && line.contains("flight-g0-r0.json");
    assert!(ended.errors.lines().any(said), "{}", ended.errors);
}

/// These ranks know no store, whose end they could notice.
#[test]
fn ranks_end_with_their_launcher() {
    let place = Place::new();
    let script = "echo here > here-$RANK; exec sleep 60";
    let mut launcher = place.command(&["-n", "3"], &["sh", "-c", script]).spawn().unwrap();
    (0..3).for_each(|rank| _ = wait_for(&place.path().join(format!("here-{rank}"))));
    place.wait_for_living(4);
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    place.check_empty();
}

#[test]
fn processes_that_ranks_start_end_with_the_job() {
    let place = Place::new();
    // In a session of its own, and with another parent.
    let leaves_one = "(setsid sleep 60 &); sleep 60 & echo $! > started; ";
    // They hold the ranks' pipes open, which must not cost a wait for each rank.
    let ended = place.shell(&["-n", "12"], leaves_one);
    assert_eq!(ended.code(), Some(0), "{}", ended.errors);
    assert!(ended.took < Duration::from_secs(8), "{:?}", ended.took);
    place.check_empty();
    let ended = place.shell(
        &["-n", "2", "--grace", "0.3"],
        &format!("{leaves_one} [ $RANK = 1 ] && exit 9; trap '' TERM; sleep 60; sleep 60"),
    );
    assert_eq!(ended.code(), Some(9), "{}", ended.errors);
    place.check_empty();
}
