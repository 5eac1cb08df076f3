//! Writing an archive.

use std::collections::BTreeMap;
use std::io::{self, Write as _};

use lzma_rust2::{Lzma2Options, Lzma2Writer};

use crate::read::dictionary;
use crate::text::split;
use crate::{COMMON, FIRST_LINE, Kind, checksum};

/// The strongest preset that matters: 9 differs in the size of the dictionary alone, which is set here.
const PRESET: u32 = 6;
/// The fastest, for files that are thrown away.
const QUICK_PRESET: u32 = 0;

/// Bytes of a block, unpacked, from which the next member begins a new one. Machine code is what programs
/// load first, and a block of it unpacks in some 20 ms. PTX is what is left when there is none, and the
/// driver then compiles for longer than any block takes.
fn block_size(kind: Kind) -> usize {
    match kind {
        Kind::Machine => 2 << 20,
        Kind::Common | Kind::Ptx => 32 << 20,
    }
}

/// Members that go into blocks together: of one family and architecture, and text or machine code.
type Group = (String, String, bool);

/// Collects members and packs them.
#[derive(Debug, Default)]
pub struct Writer {
    is_quick: bool,
    groups: BTreeMap<Group, BTreeMap<(Kind, String), Vec<u8>>>,
}

impl Writer {
    /// A writer that takes less time for a larger file.
    pub fn quick() -> Self {
        Self { is_quick: true, ..Self::default() }
    }

    /// Adds the PTX of a family's module for an architecture, in parts.
    pub fn add_ptx(&mut self, family: &str, arch: &str, ptx: &str) {
        let parts = split(ptx);
        self.add(family, arch, Kind::Common, COMMON, parts.common.into_bytes());
        for (kernel, text) in parts.entries {
            self.add(family, arch, Kind::Ptx, kernel, text.as_bytes().to_vec());
        }
    }

    /// Adds the machine code of one kernel.
    pub fn add_machine_code(&mut self, family: &str, arch: &str, kernel: &str, code: Vec<u8>) {
        self.add(family, arch, Kind::Machine, kernel, code);
    }

    fn add(&mut self, family: &str, arch: &str, kind: Kind, kernel: &str, bytes: Vec<u8>) {
        let group = (family.to_owned(), arch.to_owned(), kind == Kind::Machine);
        self.groups.entry(group).or_default().insert((kind, kernel.to_owned()), bytes);
    }

    /// Packs everything: the same members give the same bytes.
    ///
    /// # Errors
    /// What the compressor says.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        let (mut blocks, mut index) = (Vec::new(), Vec::new());
        for ((family, arch, _), members) in &self.groups {
            let mut block = Vec::new();
            for ((kind, kernel), bytes) in members {
                if !block.is_empty() && block.len() + bytes.len() > block_size(*kind) {
                    blocks.push(std::mem::take(&mut block));
                }
                let place = format!("{} {} {}", blocks.len(), block.len(), bytes.len());
                index.push(format!("{family} {arch} {kind} {kernel} {place}\n"));
                block.extend_from_slice(bytes);
            }
            blocks.push(block);
        }
        let (mut lines, mut packed) = (Vec::new(), Vec::new());
        let preset = if self.is_quick { QUICK_PRESET } else { PRESET };
        for block in &blocks {
            let start = packed.len();
            packed = pack(block, packed, preset)?;
            let bytes = &packed[start..];
            writeln!(lines, "{} {} {:016x}", bytes.len(), block.len(), checksum(bytes))?;
        }
        lines.extend(index.concat().into_bytes());
        let counts = format!("{} {}", blocks.len(), index.len());
        let mut file = format!("{FIRST_LINE}\n{counts} {:016x}\n", checksum(&lines)).into_bytes();
        file.extend(lines);
        file.extend(packed);
        Ok(file)
    }
}

/// The block, compressed, behind what is in `onto`.
fn pack(block: &[u8], onto: Vec<u8>, preset: u32) -> io::Result<Vec<u8>> {
    let mut options = Lzma2Options::with_preset(preset);
    options.lzma_options.dict_size = dictionary(block.len());
    let mut writer = Lzma2Writer::new(onto, options);
    writer.write_all(block)?;
    writer.finish()
}
