//! Checkpoints whole and torn, with a fault at every call.

use testkit::Random;

use super::*;
use crate::disk::faults;
use crate::{Part, Report, share};

/// Three tensors of a state, which a number determines.
fn state(seed: u64) -> Vec<(&'static str, DType, Vec<u64>, Vec<u8>)> {
    let mut random = Random::new(seed);
    let shapes =
        [("a.weight", DType::F32, vec![7, 5]), ("b", DType::BF16, vec![13]), ("c", DType::U8, vec![])];
    let tensors = shapes.into_iter().map(|(name, dtype, shape)| {
        let bytes = elements(&shape).unwrap() * dtype.bytes();
        (name, dtype, shape, (0..bytes).map(|_| random.bits() as u8).collect())
    });
    tensors.collect()
}

fn reports(checkpoints: &Checkpoints, step: u64, ranks: u32) -> Result<Vec<Report>, Error> {
    let state = state(step);
    let of_rank = |rank| {
        let parts = state.iter().map(|(name, dtype, shape, bytes)| {
            let range = share(elements(shape).unwrap(), rank, ranks);
            let size = dtype.bytes();
            let bytes = &bytes[(range.start * size) as usize..(range.end * size) as usize];
            Part::new(name, *dtype, shape, range, bytes)
        });
        let report = checkpoints.write(step, rank, ranks, &parts.collect::<Vec<_>>())?;
        Report::from_bytes(&report.to_bytes())
    };
    (0..ranks).map(of_rank).collect()
}

fn save(checkpoints: &Checkpoints, step: u64, ranks: u32) -> Result<(), Error> {
    let notes = BTreeMap::from([("cursor".to_owned(), step.to_string())]);
    checkpoints.commit(step, &reports(checkpoints, step, ranks)?, &notes)
}

fn check(checkpoint: &Checkpoint, ranks: u32) {
    assert_eq!(checkpoint.notes()["cursor"], checkpoint.step().to_string());
    for (name, dtype, shape, bytes) in state(checkpoint.step()) {
        let info = checkpoint.tensor(name).unwrap();
        assert_eq!((info.dtype, info.shape), (dtype, &*shape));
        let shares =
            (0..ranks).map(|rank| checkpoint.read(name, share(info.elements(), rank, ranks)).unwrap());
        assert_eq!(shares.collect::<Vec<_>>().concat(), bytes, "{name} by {ranks}");
    }
}

fn new() -> (tempfile::TempDir, Checkpoints) {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path().join("of a job"));
    (folder, checkpoints)
}

/// Systems let a process have some 1,000 files.
#[test]
fn wide_checkpoints_do_not_keep_all_shards_open() {
    let ranks = MOST_OPEN as u32 + 20;
    let (_folder, checkpoints) = new();
    save(&checkpoints, 1, ranks).unwrap();
    let checkpoint = checkpoints.newest_whole().unwrap().unwrap();
    let open = |checkpoint: &Checkpoint| checkpoint.shards.lock().unwrap().open.len();
    assert_eq!(open(&checkpoint), MOST_OPEN);
    for _ in 0..2 {
        check(&checkpoint, 5);
        assert!(open(&checkpoint) <= MOST_OPEN);
    }
    // Shards that were closed are hashed again where they are no longer the same file.
    let parts = &checkpoint.manifest.tensors["a.weight"].parts;
    let part = parts.iter().find(|part| part.begin < part.end).unwrap();
    let first = checkpoint.path().join(&checkpoint.manifest.shards[part.shard as usize].file);
    let mut bytes = fs::read(&first).unwrap();
    bytes[part.offset as usize] ^= 1;
    fs::write(&first, bytes).unwrap();
    checkpoint.shards.lock().unwrap().open.clear();
    let read = checkpoint.read("a.weight", part.begin..part.end);
    assert!(matches!(read, Err(Error::Damaged { .. })), "{read:?}");
}

#[test]
fn any_number_of_ranks_reads_what_any_number_wrote() {
    let (_folder, checkpoints) = new();
    assert!(checkpoints.newest_whole().unwrap().is_none() && checkpoints.newest().unwrap().is_none());
    for (step, writers) in [(1, 1), (2, 2), (3, 3), (4, 4), (5, 16), (6, 60)] {
        save(&checkpoints, step, writers).unwrap();
        let checkpoint = checkpoints.newest().unwrap().unwrap();
        assert_eq!((checkpoint.step(), checkpoint.ranks()), (step, writers as usize));
        [1, 2, 3, 5, 40].into_iter().for_each(|readers| check(&checkpoint, readers));
        check(&checkpoints.newest_whole().unwrap().unwrap(), 1);
    }
    assert_eq!(checkpoints.steps().unwrap(), [1, 2, 3, 4, 5, 6]);
    check(&checkpoints.open(3).unwrap(), 2);
    assert!(matches!(checkpoints.open(7), Err(Error::NoStep { step: 7, .. })));
}

#[test]
fn shards_are_safetensors_files() {
    let (_folder, checkpoints) = new();
    save(&checkpoints, 9, 1).unwrap();
    save(&checkpoints, 10, 2).unwrap();
    let bytes =
        fs::read(checkpoints.open(9).unwrap().path().join("shard-00000-of-00001.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    for (name, _, shape, data) in state(9) {
        let tensor = file.tensor(name).unwrap();
        let sides: Vec<u64> = tensor.shape().iter().map(|&side| side as u64).collect();
        assert_eq!((sides, tensor.data()), (shape, &*data));
    }
    let bytes =
        fs::read(checkpoints.open(10).unwrap().path().join("shard-00001-of-00002.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.tensor("a.weight").unwrap().shape(), [18]);
}

/// The format has this name for itself, and what is there is a map: no other tool would open the shard.
#[test]
fn the_formats_own_name_is_refused() {
    let (_folder, checkpoints) = new();
    let shape = [4];
    let part = Part::whole("__metadata__", DType::U8, &shape, &[0; 4]);
    let error = checkpoints.write(1, 0, 1, &[part]).unwrap_err();
    assert!(matches!(error, Error::Name(_)) && error.to_string().contains("__metadata__"), "{error}");
}

/// Every call that changes the disk fails, once or from then on: the newest checkpoint is the old one or the
/// new one, and the next trial succeeds.
#[test]
fn a_fault_at_any_call_leaves_the_old_or_the_new_checkpoint() {
    for for_ever in [false, true] {
        let mut swept = 0;
        for nth in 1.. {
            let (_folder, checkpoints) = new();
            save(&checkpoints, 1, 2).unwrap();
            save(&checkpoints, 2, 3).unwrap();
            let run = || save(&checkpoints, 3, 2).and_then(|()| checkpoints.keep_last(1));
            let (outcome, reached) = faults::with(nth, for_ever, run);
            if !reached {
                outcome.unwrap();
                break;
            }
            swept = nth;
            // Removing may have failed after all was written.
            let newest = checkpoints.newest_whole().unwrap().unwrap();
            assert!(outcome.is_err() && [2, 3].contains(&newest.step()), "call {nth}: {outcome:?}");
            check(&newest, 4);
            save(&checkpoints, 3, 4).unwrap();
            checkpoints.keep_last(1).unwrap();
            let newest = checkpoints.newest_whole().unwrap().unwrap();
            assert_eq!((newest.step(), newest.ranks()), (3, 4));
            check(&newest, 3);
            let left: Vec<_> = fs::read_dir(checkpoints.folder()).unwrap().collect();
            assert_eq!(left.len(), 1, "call {nth}: {left:?}");
        }
        assert!(swept > 20, "{swept} calls");
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let (_folder, checkpoints) = new();
    save(&checkpoints, 1, 2).unwrap();
    save(&checkpoints, 2, 2).unwrap();
    let newest = checkpoints.open(2).unwrap().path().to_owned();
    let files: Vec<_> = fs::read_dir(&newest).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 3);
    let mut random = Random::new(5);
    for round in 0..1000 {
        let path = &files[round % 3];
        let before = fs::read(path).unwrap();
        let mut bytes = before.clone();
        let at = random.integer(0, bytes.len() as i64 - 1) as usize;
        bytes[at] ^= 1 << (round / 3 % 8);
        fs::write(path, &bytes).unwrap();
        let found = checkpoints.newest_whole().unwrap().unwrap();
        assert_eq!(found.step(), 1, "byte {at} of {}", path.display());
        let error = checkpoints.open(2).and_then(|open| open.verify()).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        fs::write(path, before).unwrap();
    }
    check(&checkpoints.newest_whole().unwrap().unwrap(), 1);
}

/// A checkpoint that cannot be read now may be whole: a job must not go on from an older step beside it.
#[test]
fn what_cannot_be_read_is_not_damaged() {
    let (_folder, checkpoints) = new();
    (1..=3).for_each(|step| save(&checkpoints, step, 1).unwrap());
    let path = checkpoints.open(3).unwrap().path().to_owned();
    for file in fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>() {
        // A link to itself is no file, and is there.
        let aside = path.with_extension("aside");
        fs::rename(&file, &aside).unwrap();
        std::os::unix::fs::symlink(&file, &file).unwrap();
        let error = checkpoints.newest_whole().unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
        let error = checkpoints.keep_last(1).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
        fs::remove_file(&file).unwrap();
        fs::rename(&aside, &file).unwrap();
        assert_eq!(checkpoints.steps().unwrap(), [1, 2, 3]);
    }
    assert_eq!(checkpoints.newest_whole().unwrap().unwrap().step(), 3);
}

#[test]
fn torn_and_missing_files_are_found() {
    let (_folder, checkpoints) = new();
    save(&checkpoints, 1, 2).unwrap();
    let path = checkpoints.open(1).unwrap().path().to_owned();
    let files: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
    for file in &files {
        let before = fs::read(file).unwrap();
        for length in [0, 1, before.len() / 2, before.len() - 1] {
            fs::write(file, &before[..length]).unwrap();
            let error = checkpoints.newest_whole().unwrap_err();
            assert!(
                matches!(&error, Error::NoneWhole(all) if matches!(all[0], Error::Damaged { .. })),
                "{error}"
            );
        }
        fs::remove_file(file).unwrap();
        let error = checkpoints.newest_whole().unwrap_err().to_string();
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(error.contains(&format!("{name} is missing")), "{error}");
        fs::write(file, before).unwrap();
    }
    // A step that turned out damaged is written again, and the damaged one goes.
    fs::write(&files[0], "x").unwrap();
    save(&checkpoints, 1, 3).unwrap();
    let newest = checkpoints.newest_whole().unwrap().unwrap();
    assert!(newest.path().ends_with("step-000000000001.1") && newest.ranks() == 3);
    checkpoints.keep_last(5).unwrap();
    assert!(!path.exists());
    check(&checkpoints.newest_whole().unwrap().unwrap(), 2);
}

#[test]
fn the_last_ones_are_kept_and_damaged_ones_do_not_count() {
    let (_folder, checkpoints) = new();
    (1..=6).for_each(|step| save(&checkpoints, step, 2).unwrap());
    let newest = checkpoints.open(6).unwrap().path().join("shard-00001-of-00002.safetensors");
    fs::write(newest, "short").unwrap();
    reports(&checkpoints, 4, 1).unwrap();
    reports(&checkpoints, 9, 1).unwrap();
    checkpoints.keep_last(2).unwrap();
    assert_eq!(checkpoints.steps().unwrap(), [4, 5, 6]);
    assert!(!checkpoints.partial(4).exists() && checkpoints.partial(9).exists());
    assert_eq!(checkpoints.newest_whole().unwrap().unwrap().step(), 5);
    assert!(matches!(checkpoints.keep_last(0), Err(Error::KeepNone)));
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let (_folder, checkpoints) = new();
    let bytes = [0; 64];
    let write = |parts: &[Part<'_>]| checkpoints.write(1, 0, 1, parts).unwrap_err();
    for (shape, range, length) in [
        (&[4_u64, 2][..], 0..9, 36),
        (&[8], 0..8, 31),
        (&[8], Range { start: 3, end: 2 }, 0),
        (&[u64::MAX, 2], 0..1, 4),
        (&[8], 9..9, 0),
    ] {
        let error = write(&[Part::new("x", DType::F32, shape, range, &bytes[..length])]);
        assert!(matches!(error, Error::Part { .. }), "{error}");
    }
    let whole = || Part::whole("x", DType::U8, &[64], &bytes);
    assert!(matches!(write(&[whole(), whole()]), Error::Twice(_)));
    assert!(matches!(write(&[Part::whole("x", DType::F32, &[u64::MAX, 3], &bytes)]), Error::Part { .. }));
}

#[test]
fn parts_that_make_up_no_tensor_are_refused() {
    let (_folder, checkpoints) = new();
    let bytes = [0; 64];
    let try_commit = |ranges: &[Range<u64>]| {
        let ranks = ranges.len() as u32;
        let write = |(rank, range): (u32, &Range<u64>)| {
            let bytes = &bytes[..(range.end - range.start) as usize];
            checkpoints
                .write(1, rank, ranks, &[Part::new("x", DType::U8, &[10], range.clone(), bytes)])
                .unwrap()
        };
        let reports: Vec<_> = (0..).zip(ranges).map(write).collect();
        checkpoints.commit(1, &reports, &BTreeMap::new()).map(|()| reports)
    };
    for (ranges, why) in [
        (&[0..5, 6..10][..], "leave out elements 5..6"),
        (&[0..6, 5..10], "overlap at element 5"),
        (&[0..5, 5..9], "end at element 9 of 10"),
        (&[1..5, 5..10], "leave out elements 0..1"),
    ] {
        let error = try_commit(ranges).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    // Shares may be empty, and come in any order.
    let reports = try_commit(&[4..10, 0..0, 0..4]).unwrap();
    let commit = |reports: &[Report]| checkpoints.commit(1, reports, &BTreeMap::new()).unwrap_err();
    assert!(matches!(commit(&reports[..2]), Error::Reports { got: 2, ranks: 3, .. }));
    assert!(matches!(commit(&[]), Error::Reports { .. }));
    assert!(matches!(
        commit(&[reports[0].clone(), reports[1].clone(), reports[1].clone()]),
        Error::Reports { .. }
    ));
    // The shards have gone with the first commit.
    assert!(matches!(commit(&reports), Error::Damaged { damage: Damage::Missing(_), .. }));
    assert!(Report::from_bytes(b"{}").unwrap_err().to_string().contains("missing field"));
    let other = checkpoints.write(2, 0, 1, &[Part::whole("x", DType::I8, &[10], &bytes[..10])]).unwrap();
    assert!(matches!(checkpoints.commit(3, &[other], &BTreeMap::new()), Err(Error::Reports { .. })));
}

#[test]
fn what_is_not_there_cannot_be_read() {
    let (_folder, checkpoints) = new();
    save(&checkpoints, 1, 2).unwrap();
    let checkpoint = checkpoints.open(1).unwrap();
    assert!(
        checkpoint.read("d", 0..1).unwrap_err().to_string().contains("it has 3, for example \"a.weight\"")
    );
    for range in [0..14, 14..14, Range { start: 3, end: 2 }] {
        assert!(matches!(checkpoint.read("b", range), Err(Error::Range { elements: 13, .. })));
    }
    assert!(checkpoint.read("b", 13..13).unwrap().is_empty());
    assert_eq!(checkpoint.tensors().map(|tensor| tensor.name).collect::<Vec<_>>(), ["a.weight", "b", "c"]);
}

#[test]
fn shares_follow_each_other() {
    for elements in [0, 1, 7, 1000, u64::MAX] {
        for ranks in [1, 2, 3, 64] {
            let shares: Vec<_> = (0..ranks).map(|rank| share(elements, rank, ranks)).collect();
            assert!(shares[0].start == 0 && shares.last().unwrap().end == elements);
            assert!(shares.windows(2).all(|pair| pair[0].end == pair[1].start));
            let sizes = || shares.iter().map(|share| share.end - share.start);
            assert!(sizes().max().unwrap() - sizes().min().unwrap() <= 1);
        }
    }
}

/// A crash while a checkpoint is removed leaves a folder, whose name another one may come to need.
#[test]
fn what_a_removal_has_left_is_in_nobodys_way() {
    let (_folder, checkpoints) = new();
    let left = checkpoints.folder().join("removed-step-000000000001");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("shard-00000-of-00001.safetensors"), "left").unwrap();
    save(&checkpoints, 1, 1).unwrap();
    save(&checkpoints, 2, 1).unwrap();
    checkpoints.keep_last(1).unwrap();
    let left: Vec<_> =
        fs::read_dir(checkpoints.folder()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["step-000000000002"]);
}

/// The newest one has a wrong bit, so the job has gone back: what it writes then is not taken for old.
#[test]
fn a_checkpoint_with_wrong_bytes_does_not_cost_the_whole_ones() {
    let (_folder, checkpoints) = new();
    (1..4).for_each(|step| save(&checkpoints, step, 2).unwrap());
    let shard = checkpoints.open(3).unwrap().path().join("shard-00001-of-00002.safetensors");
    let mut bytes = fs::read(&shard).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&shard, bytes).unwrap();
    let whole = checkpoints.newest_whole().unwrap().unwrap();
    assert_eq!((whole.step(), whole.passed_over().len()), (2, 1));
    assert!(whole.passed_over()[0].to_string().contains("step-000000000003"));
    save(&checkpoints, 2, 2).unwrap();
    checkpoints.keep_last(1).unwrap();
    let whole = checkpoints.newest_whole().unwrap().unwrap();
    assert_eq!(whole.step(), 2);
    check(&whole, 3);
    assert_eq!(checkpoints.steps().unwrap(), [2, 3]);
}

/// The job has gone back although later ones are whole.
#[test]
fn the_checkpoint_that_was_written_last_is_kept() {
    let (_folder, checkpoints) = new();
    [1, 5, 6, 2].into_iter().for_each(|step| save(&checkpoints, step, 1).unwrap());
    // Another rank is ahead.
    let next = reports(&checkpoints, 3, 1).unwrap();
    checkpoints.keep_last(1).unwrap();
    assert_eq!(checkpoints.steps().unwrap(), [2, 6]);
    checkpoints.commit(3, &next, &BTreeMap::new()).unwrap();
}

#[test]
fn nothing_is_committed_that_cannot_be_opened() {
    let (_folder, checkpoints) = new();
    save(&checkpoints, 1, 1).unwrap();
    let reports = reports(&checkpoints, 2, 1).unwrap();
    let wrong = String::from_utf8(reports[0].to_bytes()).unwrap().replace("\"offset\":", "\"offset\":9");
    let reports = [Report::from_bytes(wrong.as_bytes()).unwrap()];
    let error = checkpoints.commit(2, &reports, &BTreeMap::new()).unwrap_err();
    assert!(error.to_string().contains("is in no shard"), "{error}");
    assert_eq!(checkpoints.newest().unwrap().unwrap().step(), 1);
}

#[test]
fn the_names_of_all_new_folders_are_brought_to_disk() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("a/b");
    save(&Checkpoints::new(&folder), 1, 1).unwrap();
    for path in [outer.path(), &outer.path().join("a"), &folder] {
        assert!(faults::synced().iter().any(|synced| synced == path), "{}", path.display());
    }
}
