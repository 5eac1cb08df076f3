//! A module in pieces that are assembled by themselves.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

use super::Module;

/// Bytes of kernels in a piece, about: a second's work for the assembler.
const BYTES_A_PIECE: usize = 512 << 10;

/// Pieces of a module: each has some of the kernels, and all that is not a kernel. A kernel's piece is a
/// matter of its name, so the change of one changes one piece.
pub fn pieces(module: &Module<'_>) -> Vec<String> {
    let entries: Vec<_> =
        module.entries().filter_map(|it| Some((it.name, it.head.start..it.body.as_ref()?.end))).collect();
    let (mut common, mut copied) = (String::new(), 0);
    for (_, range) in &entries {
        common.push_str(&module.text[copied..range.start]);
        copied = range.end;
    }
    common.push_str(&module.text[copied..]);
    let bytes = entries.iter().map(|(_, range)| range.len()).sum();
    let count = count(bytes, common.len());
    let mut pieces = BTreeMap::new();
    for (name, range) in entries {
        let mut hasher = DefaultHasher::new();
        hasher.write(name.as_bytes());
        let piece = pieces.entry(hasher.finish() % count).or_insert_with(|| common.clone());
        piece.push_str(&module.text[range]);
        piece.push('\n');
    }
    pieces.into_values().collect()
}

/// The number of pieces. A power of two, so that it seldom changes. Repetitions stay less than half of the
/// work.
fn count(kernels: usize, common: usize) -> u64 {
    let most = kernels / (2 * common.max(1));
    let wanted = (kernels / BYTES_A_PIECE).max(1).next_power_of_two();
    wanted.min(most.max(1)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(kernels: usize, bytes: usize) -> String {
        let mut text = ".version 7.0\n.target sm_80\n.func helper()\n{\n\tret;\n}\n".to_owned();
        for number in 0..kernels {
            let body = format!("\tadd.s32 %r1, %r1, {number};\n").repeat(bytes / 20);
            text.push_str(&format!("\t// .globl\tk{number}\n.visible .entry k{number}()\n{{\n{body}}}\n"));
        }
        text.push_str(".global .b8 last[1];\n");
        text
    }

    #[test]
    fn every_kernel_is_in_one_piece_with_all_that_is_common() {
        let text = module(64, 64 << 10);
        let pieces = pieces(&Module::parse(&text).unwrap());
        assert!((4..=16).contains(&pieces.len()), "{}", pieces.len());
        let parsed: Vec<_> = pieces.iter().map(|piece| Module::parse(piece).unwrap()).collect();
        let mut names: Vec<&str> = parsed.iter().flat_map(Module::entries).map(|entry| entry.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!((names.len(), parsed.iter().flat_map(Module::entries).count()), (64, 64));
        for piece in &pieces {
            assert!(
                piece.contains(".version 7.0")
                    && piece.contains(".func helper()")
                    && piece.contains("last[1]")
            );
        }
    }

    #[test]
    fn the_change_of_a_kernel_changes_one_piece() {
        let text = module(64, 64 << 10);
        let changed = text.replacen("add.s32 %r1, %r1, 7;", "ret;", 1);
        let [before, after] = [text, changed].map(|text| pieces(&Module::parse(&text).unwrap()));
        assert_eq!(before.iter().zip(&after).filter(|(before, after)| before != after).count(), 1);
    }

    #[test]
    fn a_small_module_is_one_piece_and_so_is_one_with_much_in_common() {
        assert_eq!(pieces(&Module::parse(&module(9, 100)).unwrap()).len(), 1);
        assert_eq!(count(32 << 20, 1 << 10), 64);
        assert_eq!(count(32 << 20, 1 << 20), 16);
        assert_eq!(count(32 << 20, 32 << 20), 1);
    }
}
