//! Two launchers as on two machines, over loopback.

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::place::{Place, end, signal, wait_for};

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Seconds after which launchers give up where they are not to: the end of a job has to come long before.
const PATIENT: Duration = Duration::from_secs(24);

/// Launchers that wait for each other for long, and start again.
fn patient_launchers(place: &Place, program: &dyn Fn(&[&str]) -> Command) -> [Command; 2] {
    let timeout = PATIENT.as_secs().to_string();
    launchers(place, free_port(), &["--restarts", "3", "--timeout", &timeout], program)
}

/// The launchers of both nodes; node 0 has one rank, node 1 two. The last of equal options counts.
fn launchers(place: &Place, port: u16, more: &[&str], program: &dyn Fn(&[&str]) -> Command) -> [Command; 2] {
    let address = format!("127.0.0.1:{port}");
    let own: [&[&str]; 2] = [&["-n", "1", "--node-rank", "0"], &["-n", "2", "--node-rank", "1"]];
    own.map(|own| {
        let common = [
            "--nodes",
            "2",
            "--address",
            &address,
            "--timeout",
            "2",
            "--join-timeout",
            "10",
            "--grace",
            "0.5",
            "--json",
        ];
        let mut command = program(&[own, &common, more].concat());
        command.env("IRONWARP_TOKEN", "of two").current_dir(place.path());
        command
    })
}

#[test]
fn two_nodes_make_one_job_and_start_again_together() {
    let place = Place::new();
    let script = "echo $IRONWARP_GENERATION: $RANK of $WORLD_SIZE, $LOCAL_RANK on $GROUP_RANK; \
        [ $IRONWARP_GENERATION = 1 ] && exit 0; [ $RANK = 2 ] && { sleep 0.2; exit 6; }; exec sleep 30";
    let both = launchers(&place, free_port(), &["--restarts", "1"], &|options| {
        place.command(options, &["sh", "-c", script])
    });
    let both = both.map(|mut launcher| launcher.spawn().unwrap()).map(end);
    for (node, ended) in both.iter().enumerate() {
        assert_eq!(ended.code(), Some(0), "node {node}: {}", ended.errors);
        let json = ended.json();
        assert_eq!((&json["ranks"], &json["restarts"]), (&3.into(), &1.into()), "{json:#}");
    }
    let said = format!("{}{}", both[0].errors, both[1].errors);
    for line in ["0: 0 of 3, 0 on 0", "1: 0 of 3, 0 on 0", "1: 1 of 3, 0 on 1", "1: 2 of 3, 1 on 1"] {
        assert_eq!(said.matches(line).count(), 1, "{said}");
    }
    assert!(both[0].errors.contains("rank 2: exit code 6"), "{}", both[0].errors);
    assert!(both[1].errors.contains("rank 2 failed first"), "{}", both[1].errors);
    place.check_empty();
}

#[test]
fn ranks_of_two_nodes_meet() {
    let place = Place::new();
    let both = launchers(&place, free_port(), &[], &|options| place.worker(options, "train 8"));
    let both = both.map(|mut launcher| launcher.spawn().unwrap()).map(end);
    assert!(both.iter().all(|ended| ended.code() == Some(0)), "{}{}", both[0].errors, both[1].errors);
    assert_eq!(std::fs::read(place.path().join("final")).unwrap().len(), 8000);
}

/// The other node's rank has heard of it, and ends badly too. Both launchers name the one that was first.
#[test]
fn both_nodes_name_the_rank_that_was_killed() {
    for victim in [0, 2] {
        let place = Place::new();
        let both = launchers(&place, free_port(), &[], &|options| place.worker(options, "wait"));
        let both = both.map(|mut launcher| launcher.spawn().unwrap());
        signal(wait_for(&place.path().join(format!("pid-0-{victim}"))).parse().unwrap(), "KILL");
        for (node, ended) in both.map(end).iter().enumerate() {
            let first = &ended.json()["generations"][0]["first_failure"];
            assert_eq!(first["rank"], victim, "node {node}: {}", ended.output);
            let own = (node == 0) == (victim == 0);
            assert_eq!(ended.code(), Some(if own { 137 } else { 1 }), "node {node}: {}", ended.errors);
        }
        place.check_empty();
    }
}

#[test]
fn a_lost_node_ends_the_job() {
    let place = Place::new();
    let both = launchers(&place, free_port(), &[], &|options| place.worker(options, "wait"));
    let [one, mut other] = both.map(|mut launcher| launcher.spawn().unwrap());
    wait_for(&place.path().join("pid-0-2"));
    let killed = Instant::now();
    other.kill().unwrap();
    other.wait().unwrap();
    let ended = end(one);
    assert_ne!(ended.code(), Some(0));
    assert!(killed.elapsed() < Duration::from_secs(8), "{:?}", killed.elapsed());
    assert!(ended.errors.contains("rank 1") || ended.errors.contains("rank 2"), "{}", ended.errors);
    place.check_empty();
}

/// Whoever is asked, all end soon, say why, and do not start again.
#[test]
fn a_signal_to_one_launcher_ends_the_job_on_all_nodes() {
    for asked in [0, 1] {
        let place = Place::new();
        let both = patient_launchers(&place, &|options| {
            place.command(options, &["sh", "-c", "echo x > here-$RANK; exec sleep 60"])
        });
        let both = both.map(|mut launcher| launcher.spawn().unwrap());
        (0..3).for_each(|rank| _ = wait_for(&place.path().join(format!("here-{rank}"))));
        let begun = Instant::now();
        signal(both[asked].id() as i32, "INT");
        for (node, ended) in both.map(end).iter().enumerate() {
            assert_eq!(ended.code(), Some(130), "node {node} of asked {asked}: {}", ended.errors);
            let said = format!("ended, since SIGINT on node {asked}");
            assert!(ended.errors.contains(&said), "node {node}: {}", ended.errors);
            let json = ended.json();
            assert_eq!((&json["outcome"], &json["restarts"]), (&"interrupted".into(), &0.into()));
        }
        assert!(begun.elapsed() < PATIENT / 2, "{:?}", begun.elapsed());
        place.check_empty();
    }
}

#[test]
fn a_program_that_one_node_does_not_have_is_said_on_all() {
    let place = Place::new();
    let both = patient_launchers(&place, &|options| {
        let program = if options[3] == "1" { "/no/such/program" } else { "sleep" };
        place.command(options, &[program, "60"])
    });
    let begun = Instant::now();
    let both = both.map(|mut launcher| launcher.spawn().unwrap()).map(end);
    assert!(both.iter().all(|ended| ended.code() == Some(1)), "{}{}", both[0].errors, both[1].errors);
    assert!(both[0].errors.contains("node 1 cannot go on: cannot run"), "{}", both[0].errors);
    assert!(begun.elapsed() < PATIENT / 2, "{:?}", begun.elapsed());
    place.check_empty();
}

#[test]
fn a_launcher_that_has_lost_the_others_leaves_nothing_behind() {
    let place = Place::new();
    let script = "(setsid sleep 60 >/dev/null 2>&1 &); echo x > here-$RANK; exec sleep 60";
    let both = launchers(&place, free_port(), &[], &|options| place.command(options, &["sh", "-c", script]));
    let [mut one, other] = both.map(|mut launcher| launcher.spawn().unwrap());
    (0..3).for_each(|rank| _ = wait_for(&place.path().join(format!("here-{rank}"))));
    one.kill().unwrap();
    one.wait().unwrap();
    let ended = end(other);
    assert_eq!(ended.code(), Some(1), "{}", ended.errors);
    // The launcher that was killed could not see to what its rank had left behind.
    place.check_living(1);
}

#[test]
fn a_node_that_does_not_come_and_a_wrong_secret_are_said() {
    let place = Place::new();
    let [mut one, mut other] = launchers(&place, free_port(), &["--join-timeout", "1"], &|options| {
        place.command(options, &["true"])
    });
    other.env("IRONWARP_TOKEN", "another");
    let both = [one.spawn().unwrap(), other.spawn().unwrap()].map(end);
    assert!(both[0].errors.contains("rank 1 never joined"), "{}", both[0].errors);
    assert!(both[1].errors.contains("the tokens differ"), "{}", both[1].errors);
    assert!(both.iter().all(|ended| ended.code() == Some(1)));
    // A port that something else has.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let [mut one, _] = launchers(&place, port, &[], &|options| place.command(options, &["true"]));
    let ended = end(one.spawn().unwrap());
    assert!(ended.errors.contains("the port is in use") && ended.code() == Some(1), "{}", ended.errors);
}
