//! The store's mind with a clock that the tests turn.

use testkit::Random;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A job in which all ranks have joined, and the time.
struct Job {
    hub: Hub,
    now: Instant,
}

impl Job {
    fn new(size: u32) -> Self {
        let (mut hub, now) = (Hub::new(size, 0, 10 * SECOND), Instant::now());
        for rank in 0..size {
            hub.join(Hello { rank, size, generation: 0 }, now).unwrap();
        }
        Self { hub, now }
    }

    fn say(&mut self, rank: u32, request: Request) -> Vec<(u32, Reply)> {
        self.hub.request(rank, request, self.now);
        self.replies()
    }

    /// The replies that are due, as ranks read them.
    fn replies(&mut self) -> Vec<(u32, Reply)> {
        let sent = |Due { rank, reply, last }: Due| {
            let mut frame = last.map_or_else(
                || wire::encode(&reply),
                |last| [&*wire::encode_ahead_of(&last, &reply), &last].concat(),
            );
            (rank, wire::take(&mut frame, wire::MAX_FRAME).unwrap().expect("a whole frame"))
        };
        self.hub.take_replies().into_iter().map(sent).collect()
    }

    fn barrier(&mut self, rank: u32, sequence: u64, name: &str) -> Vec<(u32, Reply)> {
        let meeting = Meeting { kind: Kind::Barrier, name: name.to_owned() };
        self.say(rank, Request::Meet { id: sequence, sequence, meeting, blob: Vec::new(), wait: 5_000 })
    }

    fn pass(&mut self, time: Duration) -> Vec<(u32, Reply)> {
        self.now += time;
        self.hub.tick(self.now);
        self.replies()
    }

    fn ping(&mut self, rank: u32) {
        self.say(rank, Request::Ping { operation: format!("#{rank} f") });
    }

    fn failure(&self) -> (Cause, Vec<u32>) {
        let failure = self.hub.failure().expect("the job has failed");
        (failure.cause, failure.culprits().collect())
    }
}

/// Waiting for too many is no bad message: the job goes on.
#[test]
fn a_rank_that_waits_for_many_keys_is_refused_one_more() {
    let mut job = Job::new(2);
    let get = |id| Request::Get { id, key: format!("{id}"), wait: 1000 };
    for id in 0..MAX_WAITS as u64 {
        assert_eq!(job.say(0, get(id)), []);
    }
    let why = Denial::Waits { limit: MAX_WAITS as u64 };
    assert_eq!(job.say(0, get(1000)), [(0, Reply::Denied { id: 1000, why })]);
    assert_eq!(job.say(1, get(1)), []);
    assert!(job.hub.failure().is_none());
}

/// Else the store would keep whatever it sends for meetings to come.
#[test]
fn a_rank_is_in_one_meeting_at_a_time() {
    let mut job = Job::new(2);
    job.barrier(1, 1, "a");
    job.barrier(1, 2, "b");
    assert_eq!(job.failure(), (Cause::Garbled, vec![1]));
}

#[test]
fn a_barrier_ends_when_all_are_there() {
    let mut job = Job::new(3);
    assert_eq!(job.barrier(2, 1, "a"), []);
    assert_eq!(job.barrier(0, 1, "a"), []);
    let done = |rank| (rank, Reply::Done { id: 1 });
    assert_eq!(job.barrier(1, 1, "a"), [done(0), done(1), done(2)]);
    // The next one is open for those who are fast.
    assert_eq!(job.barrier(1, 2, "b"), []);
    assert!(job.hub.failure().is_none());
}

#[test]
fn a_gather_gives_every_rank_all_blobs_in_order() {
    let mut job = Job::new(3);
    let meeting = Meeting { kind: Kind::Gather, name: "x".to_owned() };
    let mut last = Vec::new();
    for rank in [1, 2, 0] {
        let blob = vec![rank as u8; rank as usize];
        let meeting = meeting.clone();
        last = job.say(rank, Request::Meet { id: 9, sequence: 1, meeting, blob, wait: 1 });
    }
    let blobs = vec![vec![], vec![1], vec![2, 2]];
    let all: Vec<_> = (0..3).map(|rank| (rank, Reply::Gathered { id: 9, blobs: blobs.clone() })).collect();
    assert_eq!(last, all);
}

#[test]
fn keys_are_waited_for_and_counted() {
    let mut job = Job::new(2);
    let get = |id, wait| Request::Get { id, key: "k".to_owned(), wait };
    assert_eq!(job.say(0, get(1, 500)), []);
    assert_eq!(job.pass(SECOND), [(0, Reply::Denied { id: 1, why: Denial::Timeout })]);
    assert_eq!(job.say(0, get(2, 500)), []);
    let set = Request::Set { id: 3, key: "k".to_owned(), value: vec![5] };
    assert_eq!(job.say(1, set), [(0, Reply::Value { id: 2, value: vec![5] }), (1, Reply::Done { id: 3 })]);
    assert_eq!(job.say(0, get(4, 0)), [(0, Reply::Value { id: 4, value: vec![5] })]);
    let add = |key: &str| Request::Add { id: 5, key: key.to_owned(), delta: -2 };
    assert_eq!(job.say(0, add("k")), [(0, Reply::Denied { id: 5, why: Denial::NoNumber { bytes: 1 } })]);
    assert_eq!(job.say(0, add("n")), [(0, Reply::Number { id: 5, number: -2 })]);
    assert_eq!(job.say(1, add("n")), [(1, Reply::Number { id: 5, number: -4 })]);
}

#[test]
fn the_store_does_not_grow_without_end() {
    let mut job = Job::new(1);
    let mut set = |key: String, bytes| {
        let replies = job.say(0, Request::Set { id: 1, key, value: vec![0; bytes] });
        matches!(replies[..], [(0, Reply::Done { .. })])
    };
    let stored = (0..40).filter(|number| set(format!("key {number}"), MAX_VALUE)).count();
    assert!((15..=MAX_HELD / MAX_VALUE).contains(&stored), "{stored}");
    // A new value takes the room of the old one.
    assert!(set("key 0".to_owned(), MAX_VALUE));
    assert!(set("key 0".to_owned(), 0) && set("another".to_owned(), MAX_VALUE / 2));
    assert!(set("one more".to_owned(), MAX_VALUE) && !set("too many".to_owned(), MAX_VALUE));
}

#[test]
fn joiners_are_checked() {
    let (mut hub, now) = (Hub::new(2, 3, SECOND), Instant::now());
    let hello = Hello { rank: 1, size: 2, generation: 3 };
    let mut join = |hello| hub.join(hello, now);
    assert_eq!(join(Hello { size: 4, ..hello }), Err(Refusal::Size { got: 4, wanted: 2 }));
    assert_eq!(join(Hello { rank: 2, ..hello }), Err(Refusal::Rank { rank: 2, size: 2 }));
    assert_eq!(join(Hello { generation: 2, ..hello }), Err(Refusal::Generation { got: 2, wanted: 3 }));
    assert_eq!(join(hello), Ok(()));
    assert_eq!(join(hello), Err(Refusal::Taken { rank: 1 }));
    hub.request(1, Request::Leave, now);
    assert_eq!(hub.join(hello, now), Err(Refusal::Gone { rank: 1 }));
    hub.abort(None, "enough", now);
    assert!(matches!(hub.join(Hello { rank: 0, ..hello }, now), Err(Refusal::Over(_))));
}

#[test]
fn a_closed_connection_fails_the_job_everywhere() {
    let mut job = Job::new(3);
    job.ping(1);
    job.barrier(0, 1, "a");
    job.now += SECOND;
    job.hub.closed(1, job.now);
    assert_eq!(job.failure(), (Cause::Died, vec![1]));
    let failure = job.hub.failure().unwrap().clone();
    assert_eq!(failure.ranks[0], RankReport { rank: 1, silent_ms: Some(1000), operation: "#1 f".to_owned() });
    let told: Vec<u32> = job.replies().into_iter().map(|(rank, _)| rank).collect();
    assert_eq!(told, [0, 1, 2]);
    // Whoever asks later is told too; a later failure is no news.
    assert_eq!(job.barrier(2, 1, "a"), [(2, Reply::Failed(failure.clone()))]);
    job.hub.closed(2, job.now);
    assert_eq!(job.hub.failure(), Some(&failure));
}

#[test]
fn silence_is_noticed() {
    let mut job = Job::new(3);
    for _ in 0..4 {
        job.pass(3 * SECOND);
        [0, 2].into_iter().for_each(|rank| job.ping(rank));
    }
    assert_eq!(job.failure(), (Cause::Silent, vec![1]));
    assert_eq!(job.hub.failure().unwrap().ranks[0].silent_ms, Some(12_000));
}

#[test]
fn who_lives_and_does_not_come_is_late() {
    let mut job = Job::new(4);
    [1, 3].into_iter().for_each(|rank| _ = job.barrier(rank, 1, "step"));
    job.pass(4 * SECOND);
    assert!(job.hub.failure().is_none());
    job.pass(2 * SECOND);
    assert_eq!(job.failure(), (Cause::Late, vec![0, 2]));
    assert!(job.hub.failure().unwrap().to_string().contains("in barrier \"step\""));
}

#[test]
fn who_never_joined_is_missing_and_the_refusal_is_told() {
    let (mut hub, now) = (Hub::new(3, 0, 10 * SECOND), Instant::now());
    for rank in 0..2 {
        hub.join(Hello { rank, size: 3, generation: 0 }, now).unwrap();
        let meeting = Meeting { kind: Kind::Join, name: String::new() };
        hub.request(rank, Request::Meet { id: 1, sequence: 1, meeting, blob: Vec::new(), wait: 2000 }, now);
    }
    hub.join(Hello { rank: 2, size: 5, generation: 0 }, now).unwrap_err();
    hub.tick(now + 3 * SECOND);
    let failure = hub.failure().unwrap();
    assert_eq!((failure.cause, failure.culprits().collect::<Vec<_>>()), (Cause::Missing, vec![2]));
    assert!(failure.to_string().contains("rank 2 was refused: this process counts 5 ranks"), "{failure}");
}

#[test]
fn leaving_is_good_unless_others_wait() {
    let mut job = Job::new(2);
    job.say(1, Request::Leave);
    job.pass(100 * SECOND / 11);
    assert!(job.hub.failure().is_none() && job.hub.has_members());
    job.barrier(0, 1, "end");
    assert_eq!(job.failure(), (Cause::Left, vec![1]));
    // The other way round.
    let mut job = Job::new(2);
    job.barrier(0, 1, "end");
    job.say(1, Request::Leave);
    assert_eq!(job.failure(), (Cause::Left, vec![1]));
}

#[test]
fn other_operations_are_noticed() {
    let mut job = Job::new(3);
    job.barrier(0, 1, "a");
    job.barrier(2, 1, "b");
    assert_eq!(job.failure(), (Cause::Mismatch, vec![0, 2]));
    let mut job = Job::new(3);
    [0, 1].into_iter().for_each(|rank| _ = job.barrier(rank, 1, "a"));
    job.barrier(2, 1, "b");
    assert_eq!(job.failure(), (Cause::Mismatch, vec![2]));
    let mut job = Job::new(3);
    job.barrier(0, 2, "a");
    assert_eq!(job.failure(), (Cause::Garbled, vec![0]));
}

/// Whatever members say, in whatever order: nothing panics, and once the job has failed nobody waits.
#[test]
fn members_may_say_anything() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut job = Job::new(3);
        let mut open: Vec<(u32, u64)> = Vec::new();
        for id in 0..60 {
            let rank = random.integer(0, 2) as u32;
            let key = format!("k{}", random.integer(0, 2));
            let meeting = Meeting { kind: Kind::Barrier, name: String::new() };
            let sequence = job.hub.members[rank as usize].met + u64::from(random.integer(0, 20) != 0);
            let said = match random.integer(0, 9) {
                0..4 => Request::Meet { id, sequence, meeting, blob: vec![0; 9], wait: 4000 },
                4 => Request::Set { id, key, value: vec![1; random.integer(0, 9) as usize] },
                5 => Request::Get { id, key, wait: random.bits() },
                6 => Request::Add { id, key, delta: random.bits() as i64 },
                7 if random.integer(0, 9) == 0 => Request::Leave,
                8 if random.integer(0, 9) == 0 => Request::Abort { reason: String::new() },
                _ => Request::Ping { operation: String::new() },
            };
            let answered = !matches!(said, Request::Ping { .. } | Request::Leave | Request::Abort { .. });
            if answered {
                open.push((rank, id));
            }
            let replies = job.say(rank, said);
            let later = job.pass(Duration::from_millis(random.integer(0, 200) as u64));
            for (rank, reply) in replies.into_iter().chain(later) {
                match reply {
                    Reply::Failed(_) => open.retain(|(of, _)| *of != rank),
                    Reply::Done { id }
                    | Reply::Value { id, .. }
                    | Reply::Number { id, .. }
                    | Reply::Denied { id, .. } => {
                        let at = open.iter().position(|known| *known == (rank, id));
                        open.remove(at.unwrap_or_else(|| panic!("an answer to nothing, seed {seed}")));
                    }
                    _ => {}
                }
            }
        }
        job.pass(100 * SECOND);
        assert!(job.hub.failure().is_some());
        assert!(job.hub.waits.is_empty() && job.hub.meetings.is_empty(), "seed {seed}");
    }
}
