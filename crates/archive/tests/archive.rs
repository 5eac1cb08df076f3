//! Members that go into an archive come out, and damage is told.

use ironwarp_archive::{Archive, ArchiveError, COMMON, Kind, Writer};

/// Two modules, and machine code that does not compress and needs several blocks.
fn archive() -> (Vec<u8>, Vec<Vec<u8>>) {
    written(Writer::default())
}

/// The same by a writer.
fn written(mut writer: Writer) -> (Vec<u8>, Vec<Vec<u8>>) {
    let ptx =
        |name: &str| format!(".version 8.0\n.target {name}\n.entry one()\n{{\n}}\n.entry two()\n{{\n}}\n");
    writer.add_ptx("f", "sm_80", &ptx("sm_80"));
    writer.add_ptx("f", "sm_90a", &ptx("sm_90a"));
    let mut state = 1_u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let codes: Vec<Vec<u8>> = [900_000, 1_300_000, 0, 7].map(|n| (0..n).map(|_| noise()).collect()).into();
    for (number, code) in codes.iter().enumerate() {
        writer.add_machine_code("f", "sm_90a", &format!("k{number}"), code.clone());
    }
    (writer.finish().unwrap(), codes)
}

#[test]
fn members_come_back() {
    let (bytes, codes) = archive();
    let archive = Archive::parse(&bytes).unwrap();
    assert_eq!(archive.of_family("f").count(), archive.members().len());
    assert_eq!(archive.of_family("g").count(), 0);
    let read = |arch: &str, kind: Kind, kernel: &str| {
        let member = archive.members().iter().find(|m| (m.arch, m.kind, m.kernel) == (arch, kind, kernel));
        archive.read(member.unwrap()).unwrap()
    };
    assert_eq!(read("sm_80", Kind::Common, COMMON), b".version 8.0\n.target sm_80\n");
    assert_eq!(read("sm_90a", Kind::Ptx, "two"), b".entry two()\n{\n}\n");
    for (number, code) in codes.iter().enumerate() {
        assert_eq!(read("sm_90a", Kind::Machine, &format!("k{number}")), *code);
    }
}

#[test]
fn members_read_in_turn_are_those_read_alone() {
    let (bytes, _) = archive();
    let archive = Archive::parse(&bytes).unwrap();
    let in_turn: Vec<Vec<u8>> = archive.read_all(archive.members()).map(Result::unwrap).collect();
    let alone: Vec<Vec<u8>> = archive.members().iter().map(|member| archive.read(member).unwrap()).collect();
    assert_eq!(in_turn, alone);
}

#[test]
fn the_same_members_give_the_same_bytes() {
    assert_eq!(archive().0, archive().0);
}

#[test]
fn other_files_are_refused() {
    for bytes in [&b""[..], b"\n", b"ironwarp-kernels 1\n0 0\n", b"\x7fELF", b"ironwarp-kernels 2"] {
        assert!(matches!(Archive::parse(bytes), Err(ArchiveError::NotAnArchive)), "{bytes:?}");
    }
}

/// FNV-1a.
fn checksum(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// An archive's text with the right checksum of its index.
fn index(counts: &str, lines: &str) -> String {
    format!("ironwarp-kernels 2\n{counts} {:016x}\n{lines}", checksum(lines))
}

#[test]
fn damaged_indexes_are_told_by_their_line() {
    assert!(Archive::parse(index("1 1", "0 5 0\nf sm_80 ptx k 0 2 3\n").as_bytes()).is_ok());
    for (counts, lines, wrong) in [
        ("", "", 2),
        ("1", "", 2),
        ("0 0 0", "", 2),
        ("-1 0", "", 2),
        ("99999999999999999999 0", "", 2),
        ("1 0", "5\n", 3),
        ("1 0", "0 5\n", 3),
        ("1 0", "0 5 x\n", 3),
        ("1 0", "0 18446744073709551615 0\n", 3),
        ("1 0", "0 1073741825 0\n", 3),
        ("18446744073709551615 0", "", 3),
        ("0 18446744073709551615", "", 3),
        ("0 1", "f sm_80 ptx k 0 0 0\n", 3),
        ("1 1", "0 5 0\nf sm_80 ptx k 0 3 3\n", 4),
        ("1 1", "0 5 0\nf sm_80 text k 0 0 1\n", 4),
        ("1 1", "0 5 0\nf sm_80 ptx k 0 18446744073709551615 1\n", 4),
    ] {
        let file = index(counts, lines);
        match Archive::parse(file.as_bytes()) {
            Err(ArchiveError::Index { line, .. }) => assert_eq!(line, wrong, "{file:?}"),
            other => panic!("{file:?}: {other:?}"),
        }
    }
}

#[test]
fn every_cut_is_told() {
    let (bytes, _) = archive();
    let index = bytes.len() - 2_200_000;
    for end in (0..index).chain([bytes.len() - 1]) {
        assert!(Archive::parse(&bytes[..end]).is_err(), "{end} of {} bytes", bytes.len());
    }
}

#[test]
fn every_damaged_byte_is_told() {
    let (bytes, _) = archive();
    let index = bytes.len() - 2_200_000;
    for at in (0..index.min(2_000)).chain((0..bytes.len()).step_by(131_071)).chain([bytes.len() - 1]) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        let Ok(archive) = Archive::parse(&damaged) else { continue };
        let errors: Vec<_> = archive.members().iter().filter_map(|m| archive.read(m).err()).collect();
        assert!(!errors.is_empty(), "byte {at}");
        assert!(
            errors.iter().all(|error| error.to_string().contains("pack the kernels again")),
            "{errors:?}"
        );
    }
}

#[test]
fn quickly_packed_members_are_the_same() {
    let (small, _) = archive();
    let (quick, _) = written(Writer::quick());
    assert_ne!(small, quick, "another preset");
    let members = |bytes: &[u8]| -> Vec<Vec<u8>> {
        let archive = Archive::parse(bytes).unwrap();
        archive.members().iter().map(|member| archive.read(member).unwrap()).collect()
    };
    assert_eq!(members(&small), members(&quick));
}

#[test]
fn a_block_of_another_length_is_told() {
    let mut writer = Writer::default();
    writer.add_machine_code("f", "sm_80", "k", vec![1, 2, 3, 4, 5, 6, 7]);
    let bytes = writer.finish().unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let [first, second] = [text.lines().nth(2).unwrap(), text.lines().nth(3).unwrap()];
    let packed = bytes.len() - text.lines().take(4).map(|line| line.len() + 1).sum::<usize>();
    let with = |length: &str| {
        let lines = format!("{}\n{second}\n", first.replacen(" 7 ", length, 1));
        [index("1 1", &lines).as_bytes(), &bytes[bytes.len() - packed..]].concat()
    };
    let whole = with(" 7 ");
    assert_eq!(whole, bytes);
    let longer = with(" 8 ");
    let archive = Archive::parse(&longer).unwrap();
    let read = archive.read(&archive.members()[0]);
    assert!(matches!(&read, Err(ArchiveError::Block { block: 0, .. })), "{read:?}");
    assert!(matches!(Archive::parse(&with(" 6 ")), Err(ArchiveError::Index { line: 4, .. })));
}
