//! Several threads of a rank find at the same time that the job has failed.

use std::net::TcpListener;
use std::thread;

use super::*;
use crate::flight::read_records;

#[test]
fn threads_that_fail_together_write_one_record() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let shared = Shared {
            world: World::alone(),
            records: Some(folder.path().to_owned()),
            recorder: Arc::default(),
            writer: Mutex::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap()),
            state: Mutex::default(),
            changed: Condvar::new(),
            failing: Mutex::default(),
        };
        (0..2000).for_each(|_| shared.recorder.begin("all_reduce", "f32[1024]").done());
        let all: Vec<Failure> = thread::scope(|threads| {
            let one = |thread: u32| shared.fail(store_lost(format!("thread {thread}")));
            let all: Vec<_> = (0..8).map(|thread| threads.spawn(move || one(thread))).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(all.iter().all(|failure| *failure == all[0]), "{all:?}");
        assert!(shared.state().record.as_ref().is_some_and(Result::is_ok), "{:?}", shared.state().record);
        let (records, errors) = read_records(folder.path(), 0, 1);
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(records[0].failure.as_ref(), Some(&all[0]));
    }
}
