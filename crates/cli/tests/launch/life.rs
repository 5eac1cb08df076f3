//! A job's life without faults of others: variables, output, exit codes, signals, restarts.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::process::Command;
use std::time::Duration;

use crate::place::{PATIENCE, PROGRAM, Place, end, run, signal, wait_for};

#[test]
fn a_rank_has_the_variables_of_two_launchers() {
    let place = Place::new();
    let mut command =
        place.command(&["-n", "2", "--timeout", "7.5", "--restarts", "3", "--records", "here"], &["env"]);
    let ended = run(command.env("CUDA_VISIBLE_DEVICES", "3,1").env("TORCHELASTIC_USE_AGENT_STORE", "True"));
    let of_rank = |rank: u32| -> BTreeMap<String, String> {
        let prefix = format!("[rank {rank}] ");
        let lines = ended.output.lines().filter_map(|line| line.strip_prefix(&prefix)?.split_once('='));
        lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    for rank in 0..2 {
        let variables = of_rank(rank);
        for (name, value) in [
            ("IRONWARP_RANK", &*rank.to_string()),
            ("IRONWARP_LOCAL_RANK", &rank.to_string()),
            ("RANK", &rank.to_string()),
            ("LOCAL_RANK", &rank.to_string()),
            ("WORLD_SIZE", "2"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("GROUP_RANK", "0"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("TORCHELASTIC_RESTART_COUNT", "0"),
            ("TORCHELASTIC_MAX_RESTARTS", "3"),
            ("IRONWARP_TIMEOUT", "7.5"),
            ("IRONWARP_RECORDS", place.path().join("here").to_str().unwrap()),
            ("CUDA_VISIBLE_DEVICES", "3,1"),
        ] {
            assert_eq!(variables.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(!variables.contains_key("TORCHELASTIC_USE_AGENT_STORE"));
        let world = rendezvous::World::from_variables(|name| variables.get(name).map(Into::into)).unwrap();
        assert_eq!((world.rank, world.size, world.rank_0_serves), (rank, 2, false));
    }
    assert_eq!(of_rank(0)["IRONWARP_TOKEN"], of_rank(1)["IRONWARP_TOKEN"]);
    assert_eq!(of_rank(0)["IRONWARP_TOKEN"].len(), 64);
}

#[test]
fn lines_are_whole_and_have_their_rank() {
    let place = Place::new();
    let script = "for i in 1 2 3 4 5 6 7 8 9; do echo $RANK says $i; done; printf 'no end' >&2";
    let ended = place.shell(&["-n", "4"], script);
    assert_eq!(ended.code(), Some(0));
    let mut lines: Vec<&str> = ended.output.lines().collect();
    lines.sort_unstable();
    let wanted: Vec<String> =
        (0..4).flat_map(|r| (1..10).map(move |i| format!("[rank {r}] {r} says {i}"))).collect();
    assert_eq!(lines, wanted);
    assert_eq!(ended.errors.matches("no end\n").count(), 4, "{}", ended.errors);
    // Nothing else: this is no terminal.
    assert_eq!(ended.errors.lines().count(), 4, "{}", ended.errors);
}

#[test]
fn the_first_failure_is_said_with_its_last_lines() {
    let place = Place::new();
    let script = "echo before; [ $RANK = 1 ] && { echo out of luck >&2; exit 42; }; exec sleep 30";
    let ended = place.shell(&["-n", "3"], script);
    assert_eq!(ended.code(), Some(42));
    assert!(ended.errors.contains("rank 1 failed first after "), "{}", ended.errors);
    assert!(ended.errors.contains(": exit code 42\n"), "{}", ended.errors);
    assert!(
        ended.errors.contains("its last lines:\n") && ended.errors.contains("\n  out of luck\n"),
        "{}",
        ended.errors
    );
    // Those that do not listen are asked to end, well before they would.
    assert!(ended.took < Duration::from_secs(8), "{:?}", ended.took);
    place.check_empty();
}

#[test]
fn a_job_is_started_again_as_often_as_allowed() {
    let place = Place::new();
    let script = "echo start $IRONWARP_GENERATION $TORCHELASTIC_RESTART_COUNT; [ $IRONWARP_GENERATION -ge 2 ] || { sleep 0.1; exit 5; }";
    let ended = place.shell(&["-n", "2", "--restarts", "3"], script);
    assert_eq!(ended.code(), Some(0), "{}", ended.errors);
    for generation in 0..3 {
        let line = format!("start {generation} {generation}\n");
        assert_eq!(ended.output.matches(&line).count(), 2, "{}", ended.output);
    }
    assert!(
        ended.errors.contains("restart 2 of 3") && !ended.errors.contains("restart 3 of 3"),
        "{}",
        ended.errors
    );
    let ended = place.shell(&["-n", "2", "--restarts", "1", "--json"], script);
    assert_eq!(ended.code(), Some(5));
    let json = ended.json();
    assert_eq!((&json["outcome"], &json["restarts"]), (&"failed".into(), &1.into()));
    assert_eq!(json["generations"][1]["generation"], 1);
    // Ranks' lines are not in the way of a reader of JSON.
    assert!(ended.errors.contains("start 1 1"), "{}", ended.errors);
}

#[test]
fn signals_go_to_all_ranks() {
    let place = Place::new();
    let script = "trap 'echo got USR1; echo x > told-$RANK' USR1; trap 'echo got TERM; exit 0' TERM; \
        turns=$(seq 400); echo x > ready-$RANK; for i in $turns; do sleep 0.05; done";
    let launcher = place.command(&["-n", "2"], &["sh", "-c", script]).spawn().unwrap();
    let process = launcher.id() as i32;
    (0..2).for_each(|rank| _ = wait_for(&place.path().join(format!("ready-{rank}"))));
    signal(process, "USR1");
    (0..2).for_each(|rank| _ = wait_for(&place.path().join(format!("told-{rank}"))));
    signal(process, "TERM");
    let ended = end(launcher);
    assert_eq!(ended.code(), Some(128 + 15), "{}", ended.errors);
    for text in ["got USR1\n", "got TERM\n"] {
        assert_eq!(ended.output.matches(text).count(), 2, "{}", ended.output);
    }
    assert!(ended.errors.contains("ended, since SIGTERM"), "{}", ended.errors);
    place.check_empty();
}

#[test]
fn who_ignores_signals_is_killed_and_a_second_signal_hurries() {
    for (seconds, twice) in [("0.3", false), ("60", true)] {
        let place = Place::new();
        let script = "trap 'echo x > told' INT; trap '' TERM; turns=$(seq 400); echo x > ready; \
            for i in $turns; do sleep 0.05; done";
        let launcher =
            place.command(&["-n", "2", "--grace", seconds], &["sh", "-c", script]).spawn().unwrap();
        let process = launcher.id() as i32;
        wait_for(&place.path().join("ready"));
        signal(process, "INT");
        // The launcher has seen the first one when it has handed it on.
        wait_for(&place.path().join("told"));
        if twice {
            signal(process, "INT");
        }
        let ended = end(launcher);
        assert_eq!(ended.code(), Some(130), "{}", ended.errors);
        assert!(ended.took < PATIENCE / 2, "{:?}", ended.took);
        place.check_empty();
    }
}

/// As under `nohup`.
#[test]
fn a_signal_that_the_parent_ignores_stays_ignored() {
    let place = Place::new();
    let script = "echo x > ready; sleep 0.5; echo survived";
    let launcher = place.ignoring("HUP", &["-n", "1"], &["sh", "-c", script]).spawn().unwrap();
    wait_for(&place.path().join("ready"));
    signal(launcher.id() as i32, "HUP");
    let ended = end(launcher);
    assert_eq!((ended.code(), &*ended.output), (Some(0), "[rank 0] survived\n"), "{}", ended.errors);
}

/// The system reaps such a parent's children, and a parent may hand that on.
#[test]
fn ranks_end_whatever_the_parent_does_about_its_children() {
    let place = Place::new();
    let ended = run(&mut place.ignoring("CHLD", &["-n", "2"], &["sh", "-c", "exit 4"]));
    assert_eq!(ended.code(), Some(4), "{}", ended.errors);
}

#[test]
fn a_slow_reader_gets_every_line() {
    let place = Place::new();
    let mut launcher = place.command(&["-n", "1"], &["seq", "7000"]).spawn().unwrap();
    let mut reader = Command::new("sh");
    // The pipes to the launcher and to the reader hold all of it, so the rank ends early.
    reader.args(["-c", "sleep 2.5; wc -l"]).stdin(launcher.stdout.take().unwrap());
    reader.stdout(std::process::Stdio::piped());
    launcher.stdout = reader.spawn().unwrap().stdout.take();
    let ended = end(launcher);
    assert_eq!((ended.code(), ended.output.trim()), (Some(0), "7000"), "{}", ended.errors);
}

#[test]
fn a_reader_who_takes_nothing_does_not_keep_a_launcher_that_is_asked_to_end() {
    let place = Place::new();
    let (_reader, writer) = std::io::pipe().unwrap();
    let script = "echo x > ready; exec yes";
    let mut command = place.command(&["-n", "1", "--grace", "0.3"], &["sh", "-c", script]);
    let mut launcher = command.stdout(writer).spawn().unwrap();
    wait_for(&place.path().join("ready"));
    std::thread::sleep(Duration::from_millis(200));
    signal(launcher.id() as i32, "TERM");
    let begun = std::time::Instant::now();
    let status = loop {
        if let Some(status) = launcher.try_wait().unwrap() {
            break status;
        }
        assert!(begun.elapsed() < PATIENCE, "it hangs");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(128 + 15));
    place.check_empty();
}

/// As of a terminal that another program has set so.
#[test]
fn an_output_that_does_not_wait_gets_every_line() {
    let place = Place::new();
    let (mut reader, writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    let mut command = place.command(&["-n", "1"], &["seq", "20000"]);
    let mut launcher = command.stdout(writer).spawn().unwrap();
    drop(command);
    std::thread::sleep(Duration::from_millis(300));
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!((launcher.wait().unwrap().code(), text.lines().count()), (Some(0), 20_000));
}

#[test]
fn a_reader_who_leaves_ends_the_job() {
    let place = Place::new();
    let mut launcher = place.command(&["-n", "2"], &["yes"]).spawn().unwrap();
    drop(launcher.stdout.take());
    launcher.stdout =
        Command::new("true").stdout(std::process::Stdio::piped()).spawn().unwrap().stdout.take();
    let ended = end(launcher);
    assert_eq!(ended.code(), Some(141), "{}", ended.errors);
    place.check_empty();
}

#[test]
fn wrong_calls_are_refused() {
    let place = Place::new();
    for (args, code, part) in [
        (&["launch"][..], 2, "how many processes"),
        (&["launch", "-n", "2"], 2, "no program"),
        (&["launch", "-n", "2", "--", ""], 2, "no program"),
        (&["launch", "-n", "2", "true"], 2, "\"true\": program and arguments go behind `--`"),
        (&["launch", "-n", "0", "--", "true"], 2, "--ranks is \"0\"; wanted a number from 1 to 4096"),
        (&["launch", "-n", "x", "--", "true"], 2, "--ranks is \"x\""),
        (&["launch", "-n", "2", "--restarts", "-1", "--", "true"], 2, "--restarts is \"-1\""),
        (&["launch", "-n", "2", "--timeout", "0", "--", "true"], 2, "--timeout is \"0\"; wanted seconds"),
        (&["launch", "-n", "2", "--grace", "nan", "--", "true"], 2, "--grace is \"nan\""),
        (&["launch", "-n", "2", "--timeout", "1e99", "--", "true"], 2, "--timeout"),
        (&["launch", "-n", "2", "--frobnicate", "--", "true"], 2, "--frobnicate"),
        (&["launch", "-n", "2", "--node-rank", "1", "--", "true"], 2, "for --nodes above 1"),
        (&["launch", "-n", "2", "--nodes", "2", "--", "true"], 2, "--nodes needs --address"),
        (
            &["launch", "-n", "2", "--nodes", "2", "--node-rank", "2", "--address", "a:1", "--", "true"],
            2,
            "--node-rank below",
        ),
        (
            &["launch", "-n", "2", "--nodes", "2", "--node-rank", "1", "--address", "a", "--", "true"],
            2,
            "host:port",
        ),
        (
            &["launch", "-n", "2", "--nodes", "2", "--node-rank", "1", "--address", "a:1", "--", "true"],
            2,
            "IRONWARP_TOKEN",
        ),
        (&["launch", "-n", "2", "--", "/no/such/program"], 1, "cannot run `program`"),
        (&["launch", "-n", "2", "--", "/"], 1, "cannot run"),
    ] {
        let output = Command::new(PROGRAM)
            .args(args)
            .current_dir(place.path())
            .env_remove("IRONWARP_TOKEN")
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
        assert!(errors.contains(part) && errors.contains("fix: "), "{args:?}: {errors}");
    }
}
