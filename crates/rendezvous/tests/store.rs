//! Stores and clients over loopback, in one process.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ironwarp_rendezvous::{
    Address, Cause, Client, Error, Failure, MAX_KEY, MAX_VALUE, Options, Refusal, Store, StoreOptions, Token,
    World, read_records,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testkit::Random;

/// Long enough for a busy machine, short enough to wait for.
const TIMEOUT: Duration = Duration::from_millis(1500);
/// Comes on top of a timeout before everybody knows.
const SLACK: Duration = Duration::from_secs(2);

fn loopback(port: u16) -> Address {
    Address { host: "127.0.0.1".to_owned(), port }
}

fn store(size: u32) -> Store {
    let token = Token::from_text("secret");
    Store::serve(&loopback(0), StoreOptions { size, generation: 0, token, timeout: TIMEOUT }).unwrap()
}

fn world(store: &Store, rank: u32, size: u32) -> World {
    let token = Token::from_text("secret");
    let address = loopback(store.address().port());
    World { rank, size, local_rank: rank, address, token, rank_0_serves: false, ..World::alone() }
}

fn options() -> Options {
    Options { timeout: Some(TIMEOUT), join_timeout: Some(TIMEOUT), records: None }
}

/// Runs a function as each rank of a job, each in a thread.
fn job<T: Send>(store: &Store, size: u32, of_rank: impl Fn(Client) -> T + Sync) -> Vec<T> {
    thread::scope(|threads| {
        let ranks: Vec<_> = (0..size)
            .map(|rank| {
                let (world, of_rank) = (world(store, rank, size), &of_rank);
                threads.spawn(move || of_rank(Client::join(&world, &options()).unwrap()))
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn failure(error: &Error) -> Failure {
    error.failure().unwrap_or_else(|| panic!("no failure of the job: {error}")).clone()
}

/// Together they are more than the store keeps for a rank that does not read: this one does.
#[test]
fn many_threads_wait_for_a_long_value() {
    const THREADS: usize = 12;
    let store = store(2);
    let long = vec![7; MAX_VALUE];
    job(&store, 2, |client| {
        if client.world().rank == 1 {
            client.barrier("all wait").unwrap();
            thread::sleep(Duration::from_millis(200));
            return client.set("weights", &long).unwrap();
        }
        thread::scope(|threads| {
            let got: Vec<_> = (0..THREADS)
                .map(|_| threads.spawn(|| client.get("weights", 10 * TIMEOUT).unwrap() == long))
                .collect();
            client.barrier("all wait").unwrap();
            got.into_iter().for_each(|got| assert!(got.join().unwrap()));
        });
    });
    assert!(store.failure().is_none(), "{:?}", store.failure());
}

#[test]
fn ranks_share_values_counters_and_blobs() {
    let store = store(4);
    let sums = job(&store, 4, |client| {
        let rank = client.world().rank;
        client.set(&format!("of {rank}"), &[rank as u8; 3]).unwrap();
        let next = client.get(&format!("of {}", (rank + 1) % 4), TIMEOUT).unwrap();
        assert_eq!(next, [(rank as u8 + 1) % 4; 3]);
        let ticket = client.add("tickets", 1).unwrap();
        for round in 0..50 {
            let blobs = client.gather("round", &[rank as u8, round]).unwrap();
            assert_eq!(blobs, [[0, round], [1, round], [2, round], [3, round]]);
            client.barrier("round").unwrap();
            client.add("sum", i64::from(rank)).unwrap();
        }
        assert_eq!(client.recorder().entries().len(), 101);
        ticket
    });
    let mut tickets = sums;
    tickets.sort_unstable();
    assert_eq!(tickets, [1, 2, 3, 4]);
    assert!(store.failure().is_none());
}

#[test]
fn rank_0_serves_where_no_launcher_does() {
    let probe = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = loopback(probe.local_addr().unwrap().port());
    drop(probe);
    thread::scope(|threads| {
        for rank in [2, 1, 0] {
            let world = World { rank, size: 3, address: address.clone(), ..World::alone() };
            threads.spawn(move || {
                let client = Client::join(&world, &options()).unwrap();
                assert_eq!(client.gather("", &[rank as u8]).unwrap(), [[0], [1], [2]]);
                // Rank 0 is first at the end, and stays until the others have left, however long that takes.
                thread::sleep(u32::from(rank > 0) * (TIMEOUT + Duration::from_millis(300 * u64::from(rank))));
                client.set("last", b"").unwrap();
            });
        }
    });
    let alone = Client::join(&World::alone(), &Options::default()).unwrap();
    alone.barrier("alone").unwrap();
}

#[test]
fn a_missing_key_is_an_error_and_no_end() {
    let store = store(1);
    let client = Client::join(&world(&store, 0, 1), &options()).unwrap();
    let error = client.get("nothing", Duration::from_millis(50)).unwrap_err();
    assert!(
        matches!(&error, Error::Timeout { key, waited } if key == "nothing" && *waited < TIMEOUT),
        "{error}"
    );
    client.set("bytes", b"abc").unwrap();
    assert!(matches!(client.add("bytes", 1), Err(Error::NoNumber { bytes: 3, .. })));
    assert!(matches!(client.set(&"k".repeat(MAX_KEY + 1), b""), Err(Error::LongKey(_))));
    assert!(matches!(client.set("k", &vec![0; MAX_VALUE + 1]), Err(Error::LongValue(_))));
    client.set("k", &vec![7; MAX_VALUE]).unwrap();
    assert_eq!(client.get("k", TIMEOUT).unwrap(), vec![7; MAX_VALUE]);
    let full = (0..100).find_map(|n| client.set(&format!("k{n}"), &vec![0; MAX_VALUE]).err()).unwrap();
    assert!(matches!(full, Error::Full { .. }), "{full}");
    client.barrier("still here").unwrap();
}

#[test]
fn joiners_are_refused_with_a_reason() {
    let store = store(2);
    let refused = |world: World| match Client::join(&world, &options()).unwrap_err() {
        Error::Refused { refusal, .. } => refusal,
        other => panic!("{other}"),
    };
    let right = world(&store, 1, 2);
    assert_eq!(refused(World { token: Token::from_text("other"), ..right.clone() }), Refusal::Token);
    assert_eq!(refused(World { size: 3, ..right.clone() }), Refusal::Size { got: 3, wanted: 2 });
    assert_eq!(refused(World { rank: 9, ..right.clone() }), Refusal::Rank { rank: 9, size: 2 });
    let first = thread::spawn({
        let (zero, right) = (world(&store, 0, 2), right.clone());
        move || {
            let zero = thread::spawn(move || Client::join(&zero, &options()).unwrap());
            let one = Client::join(&right, &options()).unwrap();
            (zero.join().unwrap(), one)
        }
    });
    let (zero, one) = first.join().unwrap();
    assert_eq!(refused(right.clone()), Refusal::Taken { rank: 1 });
    zero.set("unharmed", b"").unwrap();
    drop(one);
    // The store may not have heard it yet.
    let begun = Instant::now();
    while refused(right.clone()) != (Refusal::Gone { rank: 1 }) {
        assert!(begun.elapsed() < SLACK);
    }
    // A process of a start to come waits for the store of that start.
    let late = World { generation: 1, ..right.clone() };
    let quick = Options { join_timeout: Some(Duration::from_millis(200)), ..options() };
    assert!(matches!(Client::join(&late, &quick).unwrap_err(), Error::Unreachable { .. }));
    // A job that has failed lets nobody in.
    assert_eq!(failure(&zero.barrier("end").unwrap_err()).cause, Cause::Left);
    assert!(matches!(refused(right), Refusal::Over(_)));
}

#[test]
fn who_does_not_join_is_named() {
    let store = store(3);
    let begun = Instant::now();
    thread::scope(|threads| {
        for rank in [0, 2] {
            let world = world(&store, rank, 3);
            threads.spawn(move || {
                let failure = failure(&Client::join(&world, &options()).unwrap_err());
                assert_eq!(
                    (failure.cause, failure.culprits().collect::<Vec<_>>()),
                    (Cause::Missing, vec![1])
                );
            });
        }
    });
    assert!(begun.elapsed() < TIMEOUT + SLACK, "{:?}", begun.elapsed());
    let late = Client::join(&world(&store, 1, 3), &options()).unwrap_err();
    assert!(late.to_string().contains("too late") && late.failure().is_some(), "{late}");
}

#[test]
fn an_abort_reaches_everybody_with_its_reason_and_leaves_records() {
    let (store, folder) = (store(3), tempfile::tempdir().unwrap());
    thread::scope(|threads| {
        for rank in 0..3 {
            let (world, records) = (world(&store, rank, 3), Some(folder.path().to_owned()));
            threads.spawn(move || {
                let client = Client::join(&world, &Options { records, ..options() }).unwrap();
                let (heard, hook) = mpsc::channel();
                client.on_failure(move |failure| heard.send(failure.clone()).unwrap());
                client.recorder().begin("all_reduce", "f32[1024]").done();
                client.barrier("all have noted that").unwrap();
                let failure = if rank == 1 {
                    client.abort("loss is not finite")
                } else {
                    failure(&client.barrier("step").unwrap_err())
                };
                assert_eq!((failure.cause, failure.ranks[0].rank), (Cause::Aborted, 1));
                assert!(failure.to_string().contains("rank 1 ended the job"), "{failure}");
                assert!(failure.to_string().contains("(loss is not finite)"), "{failure}");
                assert_eq!(hook.recv_timeout(SLACK).unwrap(), failure);
                assert!(client.record().unwrap().is_ok());
                // It stays so.
                assert_eq!(*client.set("k", b"").unwrap_err().failure().unwrap(), failure);
            });
        }
    });
    let (records, errors) = read_records(folder.path(), 0, 3);
    assert!(records.len() == 3 && errors.is_empty(), "{errors:?}");
    assert!(records.iter().all(|record| record.operations[1].shapes == "f32[1024]"));
    let barrier = "barrier \"all have noted that\"";
    assert!(records[2].operations.iter().any(|operation| operation.name == barrier));
    assert!(records[0].failure.as_ref().is_some_and(|failure| failure.cause == Cause::Aborted));
}

#[test]
fn the_reason_of_an_abort_may_have_any_length() {
    let store = store(1);
    let client = Client::join(&world(&store, 0, 1), &options()).unwrap();
    let failure = client.abort(&"very long ".repeat(1_000_000));
    assert!(failure.cause == Cause::Aborted && failure.detail.starts_with("very long very"), "{failure}");
}

#[test]
fn jobs_of_nobody_and_of_too_many_are_refused() {
    for size in [0, u32::MAX] {
        let world = World { size, ..World::alone() };
        assert!(matches!(Client::join(&world, &options()), Err(Error::Size(got)) if got == size));
        let options = StoreOptions { size, generation: 0, token: Token::from_text(""), timeout: TIMEOUT };
        let refused = Store::serve(&loopback(0), options).unwrap_err();
        assert!(refused.to_string().contains("wanted 1 to 1048576"), "{refused}");
    }
    assert!(Refusal::Rank { rank: 0, size: 0 }.to_string().contains("rank 0 of 0"));
}

#[test]
fn a_panic_ends_the_job() {
    let store = store(2);
    let other = thread::spawn({
        let world = world(&store, 1, 2);
        move || {
            let _client = Client::join(&world, &options()).unwrap();
            std::panic::resume_unwind(Box::new("out of luck"));
        }
    });
    let client = Client::join(&world(&store, 0, 2), &options()).unwrap();
    let failure = failure(&client.barrier("step").unwrap_err());
    assert!(
        failure.to_string().contains("rank 1 ended the job") && failure.detail == "it panicked",
        "{failure}"
    );
    assert!(other.join().is_err());
}

#[test]
fn a_launcher_can_end_the_job() {
    let store = store(2);
    let (sender, told) = mpsc::channel();
    thread::scope(|threads| {
        for rank in 0..2 {
            let (world, sender) = (world(&store, rank, 2), sender.clone());
            threads.spawn(move || {
                let client = Client::join(&world, &options()).unwrap();
                sender.send(None).unwrap();
                sender.send(Some(failure(&client.get("never", 10 * TIMEOUT).unwrap_err()))).unwrap();
            });
        }
        (0..2).for_each(|_| assert_eq!(told.recv().unwrap(), None));
        assert!(store.is_complete());
        let begun = Instant::now();
        store.abort(Some(1), "killed by signal 9 (SIGKILL)");
        for failure in (0..2).map(|_| told.recv().unwrap().unwrap()) {
            assert!(failure.to_string().ends_with("(killed by signal 9 (SIGKILL))"), "{failure}");
        }
        assert!(begun.elapsed() < SLACK);
    });
}

#[test]
fn a_store_that_ends_is_noticed() {
    let store = store(2);
    let (sender, joined) = mpsc::channel();
    let ranks: Vec<_> = (0..2)
        .map(|rank| {
            let (world, sender) = (world(&store, rank, 2), sender.clone());
            thread::spawn(move || {
                let client = Client::join(&world, &options()).unwrap();
                sender.send(()).unwrap();
                let result = client.get("never", 10 * TIMEOUT);
                failure(&result.unwrap_err())
            })
        })
        .collect();
    (0..2).for_each(|_| joined.recv().unwrap());
    drop(store);
    for rank in ranks {
        assert_eq!(rank.join().unwrap().cause, Cause::StoreLost);
    }
}

#[test]
fn a_port_in_use_is_said() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = loopback(taken.local_addr().unwrap().port());
    let world = World { size: 2, address: address.clone(), ..World::alone() };
    let error = Client::join(&world, &options()).unwrap_err();
    assert!(matches!(error, Error::PortInUse { .. }) && error.to_string().contains("in use"), "{error}");
    // The others reach whatever has the port: here something that says nothing.
    let begun = Instant::now();
    let other = World { rank: 1, ..world.clone() };
    let error = Client::join(&other, &options()).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(begun.elapsed() < TIMEOUT + SLACK, "{:?}", begun.elapsed());
    // And something that does.
    let server = thread::spawn(move || taken.accept().unwrap().0.write_all(b"SSH-2.0-OpenSSH\r\n"));
    // The backlog holds the earlier trials.
    let error = Client::join(&other, &options()).unwrap_err();
    assert!(matches!(error, Error::NoStore { .. } | Error::Unreachable { .. }), "{error}");
    server.join().unwrap().unwrap();
    // Nobody at all.
    let error = Client::join(&other, &options()).unwrap_err();
    assert!(
        matches!(error, Error::Unreachable { .. }) && error.to_string().contains("Check that rank 0"),
        "{error}"
    );
    let strange = Address { host: "no such host".to_owned(), port: 1 };
    let error = Client::join(&World { address: strange, ..other }, &options()).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
}

#[test]
fn something_else_at_the_port_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = loopback(taken.local_addr().unwrap().port());
    let server = thread::spawn(move || taken.accept().unwrap().0.write_all(b"SSH-2.0-OpenSSH\r\n"));
    let error = Client::join(&World { rank: 1, size: 2, address, ..World::alone() }, &options()).unwrap_err();
    assert!(matches!(error, Error::NoStore { .. }) && error.to_string().contains("SSH-2.0"), "{error}");
    server.join().unwrap().unwrap();
}

#[test]
fn strangers_do_no_harm() {
    let store = store(2);
    let address = store.address();
    let stop = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|threads| {
        let noise = threads.spawn(|| {
            let mut random = Random::new(7);
            let mut open: Vec<TcpStream> = Vec::new();
            for round in 0..400 {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                let Ok(mut stream) = TcpStream::connect(address) else { continue };
                let bytes: Vec<u8> = match round % 5 {
                    0 => b"GET / HTTP/1.1\r\n\r\n".to_vec(),
                    // A head that announces four gigabytes.
                    1 => b"IW\x01\0\xff\xff\xff\xff".to_vec(),
                    2 => (0..random.integer(0, 5000)).map(|_| random.bits() as u8).collect(),
                    // A beginning, and no more.
                    3 => b"IW\x01".to_vec(),
                    _ => Vec::new(),
                };
                let _ = stream.write_all(&bytes);
                open.push(stream);
                if open.len() > 40 {
                    open.remove(random.integer(0, 39) as usize);
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        job(&store, 2, |client| {
            for _ in 0..150 {
                client.barrier("through the noise").unwrap();
                thread::sleep(Duration::from_millis(1));
            }
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        noise.join().unwrap();
    });
    assert!(store.failure().is_none());
}

#[test]
fn strangers_who_say_nothing_keep_no_rank_out() {
    let store = store(2);
    let silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(store.address()).unwrap()).collect();
    let ranks = job(&store, 2, |client| client.world().rank);
    assert_eq!((ranks, silent.len()), (vec![0, 1], 300));
}

#[test]
fn strangers_are_cut_off() {
    let store = store(1);
    let mut slow = TcpStream::connect(store.address()).unwrap();
    let mut rude = TcpStream::connect(store.address()).unwrap();
    rude.write_all(b"hello").unwrap();
    let ended = |stream: &mut TcpStream, within: Duration| {
        stream.set_read_timeout(Some(within)).unwrap();
        // The challenge, and then the end.
        stream.read_to_end(&mut Vec::new()).map_err(|error| error.kind())
    };
    let quick = ended(&mut rude, SLACK);
    assert!(quick.is_ok() || quick == Err(std::io::ErrorKind::ConnectionReset), "{quick:?}");
    assert!(ended(&mut slow, Duration::from_secs(8)).is_ok());
}

#[test]
fn timeouts_of_nothing_are_refused() {
    let zero = Options { timeout: Some(Duration::ZERO), ..options() };
    let error = Client::join(&World::alone(), &zero).unwrap_err();
    assert!(
        matches!(error, Error::Option { .. }) && error.to_string().contains("more than nothing"),
        "{error}"
    );
    let forever = Options { join_timeout: Some(Duration::MAX), ..options() };
    assert!(matches!(Client::join(&World::alone(), &forever), Err(Error::Option { .. })));
}

/// A connection that the system has no descriptor for waits; the store does not spin meanwhile.
#[test]
fn a_store_without_descriptors_rests() -> std::io::Result<()> {
    testkit::own_process!();
    let store = store(1);
    let mut times = File::open("/proc/self/stat")?;
    // The lowest number that is free is the client's, and the last one.
    let free = File::open("/proc/self/stat")?.as_raw_fd() as u64;
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(free + 1), ..before })?;
    let mut client = TcpStream::connect(store.address())?;
    let began = ticks(&mut times)?;
    thread::sleep(Duration::from_secs(1));
    let taken = ticks(&mut times)? - began;
    assert!(taken < 10, "{taken} hundredths of a second of work in one");
    // As soon as there are some it is heard.
    setrlimit(Resource::Nofile, before)?;
    client.set_read_timeout(Some(TIMEOUT))?;
    client.read_exact(&mut [0])
}

/// How long this process has worked so far, in the system's ticks, of which a second has 100.
fn ticks(stat: &mut File) -> std::io::Result<u64> {
    let mut text = String::new();
    stat.rewind()?;
    stat.read_to_string(&mut text)?;
    let behind_the_name = text.rsplit(')').next().unwrap_or_default();
    // The 14th and 15th of all fields, in user mode and in the kernel.
    Ok(behind_the_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<u64>().ok())
        .sum())
}
