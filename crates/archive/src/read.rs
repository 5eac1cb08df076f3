//! Reading an archive.

use std::io::Read as _;
use std::str::{FromStr, SplitWhitespace};

use lzma_rust2::Lzma2Reader;

use crate::{ArchiveError, FIRST_LINE, Kind, Member, checksum};

/// A compressed block.
#[derive(Debug, Clone, Copy)]
struct Block<'a> {
    packed: &'a [u8],
    length: usize,
    check: u64,
}

/// A block's line of the index.
#[derive(Debug, Clone, Copy)]
struct Size {
    packed: usize,
    length: usize,
    check: u64,
}

/// The most bytes of a block, unpacked: memory is asked for before they are there.
const LARGEST_BLOCK: usize = 1 << 30;

/// An archive in memory. Nothing is unpacked before [`Archive::read`].
#[derive(Debug, Clone)]
pub struct Archive<'a> {
    blocks: Vec<Block<'a>>,
    members: Vec<Member<'a>>,
}

impl<'a> Archive<'a> {
    /// Reads the index.
    ///
    /// # Errors
    /// [`ArchiveError::NotAnArchive`], [`ArchiveError::Index`], [`ArchiveError::Short`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ArchiveError> {
        let mut lines = Lines { rest: bytes, number: 0 };
        if lines.next_line().is_none_or(|line| line != FIRST_LINE) {
            return Err(ArchiveError::NotAnArchive);
        }
        let (block_count, member_count, check) =
            lines.fields(|words| Some((number(words)?, number(words)?, sum(words)?)))?;
        let index = lines.rest;
        let mut sizes: Vec<Size> = Vec::new();
        for _ in 0..block_count {
            sizes.push(lines.fields(size)?);
        }
        let mut members = Vec::new();
        for _ in 0..member_count {
            let member = lines.fields(member)?;
            let end = member.offset.checked_add(member.length);
            let fits = sizes.get(member.block).zip(end).is_some_and(|(block, end)| end <= block.length);
            if !fits {
                return Err(lines.damaged(&format!("a member outside of block {}", member.block)));
            }
            members.push(member);
        }
        if checksum(&index[..index.len() - lines.rest.len()]) != check {
            return Err(ArchiveError::Index { line: 2, got: "the checksum of other lines".to_owned() });
        }
        Ok(Archive { blocks: cut(bytes, lines.rest, &sizes)?, members })
    }

    /// All members, in the order of the index.
    pub fn members(&self) -> &[Member<'a>] {
        &self.members
    }

    /// The members of a family.
    pub fn of_family(&self, family: &str) -> impl Iterator<Item = &Member<'a>> {
        self.members.iter().filter(move |member| member.family == family)
    }

    /// The bytes of a member of this archive. Unpacks its block, at some 100 MB/s.
    ///
    /// # Errors
    /// [`ArchiveError::Block`].
    pub fn read(&self, member: &Member<'_>) -> Result<Vec<u8>, ArchiveError> {
        member.range(&self.unpack(member.block)?).map(<[u8]>::to_vec)
    }

    /// The bytes of members, in turn. A block is unpacked once for members of it that follow each other.
    pub fn read_all<'m, 'n: 'm>(
        &self,
        members: impl IntoIterator<Item = &'m Member<'n>>,
    ) -> impl Iterator<Item = Result<Vec<u8>, ArchiveError>> {
        let mut unpacked: Option<(usize, Vec<u8>)> = None;
        members.into_iter().map(move |member| {
            let block = match unpacked.take().filter(|(block, _)| *block == member.block) {
                Some((_, bytes)) => bytes,
                None => self.unpack(member.block)?,
            };
            let range = member.range(&block).map(<[u8]>::to_vec);
            unpacked = Some((member.block, block));
            range
        })
    }

    fn unpack(&self, block: usize) -> Result<Vec<u8>, ArchiveError> {
        let damaged = |reason: String| ArchiveError::Block { block, reason };
        let Some(&Block { packed, length, check }) = self.blocks.get(block) else {
            return Err(damaged("there is no such block".to_owned()));
        };
        if checksum(packed) != check {
            return Err(damaged("its checksum is another".to_owned()));
        }
        let mut bytes = Vec::with_capacity(length);
        // One byte more than there should be tells a block that is too long.
        let mut reader = Lzma2Reader::new(packed, dictionary(length), None).take(length as u64 + 1);
        reader.read_to_end(&mut bytes).map_err(|error| damaged(error.to_string()))?;
        if bytes.len() != length {
            return Err(damaged(format!("got {} bytes, wanted {length}", bytes.len())));
        }
        Ok(bytes)
    }
}

impl Member<'_> {
    fn range<'b>(&self, block: &'b [u8]) -> Result<&'b [u8], ArchiveError> {
        let end = self.offset.checked_add(self.length);
        let range = end.and_then(|end| block.get(self.offset..end));
        range.ok_or_else(|| ArchiveError::Block { block: self.block, reason: "a member lies outside".into() })
    }
}

/// Bytes of the dictionary for a block: all of it.
pub(crate) fn dictionary(length: usize) -> u32 {
    const SMALLEST: u32 = 4096;
    u32::try_from(length).unwrap_or(u32::MAX).max(SMALLEST)
}

/// The blocks, which lie one behind the other.
fn cut<'a>(file: &[u8], mut rest: &'a [u8], sizes: &[Size]) -> Result<Vec<Block<'a>>, ArchiveError> {
    let index = file.len() - rest.len();
    let wanted = sizes.iter().fold(index, |sum, size| sum.saturating_add(size.packed));
    let mut blocks = Vec::with_capacity(sizes.len());
    for &Size { packed, length, check } in sizes {
        let Some((block, others)) = rest.split_at_checked(packed) else {
            return Err(ArchiveError::Short { got: file.len(), wanted });
        };
        blocks.push(Block { packed: block, length, check });
        rest = others;
    }
    Ok(blocks)
}

fn size(words: &mut SplitWhitespace<'_>) -> Option<Size> {
    let size = Size { packed: number(words)?, length: number(words)?, check: sum(words)? };
    (size.length <= LARGEST_BLOCK).then_some(size)
}

fn member<'a>(words: &mut SplitWhitespace<'a>) -> Option<Member<'a>> {
    Some(Member {
        family: words.next()?,
        arch: words.next()?,
        kind: Kind::from_str(words.next()?).ok()?,
        kernel: words.next()?,
        block: number(words)?,
        offset: number(words)?,
        length: number(words)?,
    })
}

fn number(words: &mut SplitWhitespace<'_>) -> Option<usize> {
    words.next()?.parse().ok()
}

fn sum(words: &mut SplitWhitespace<'_>) -> Option<u64> {
    u64::from_str_radix(words.next()?, 16).ok()
}

/// The lines of the index. Behind them come bytes that are no text.
struct Lines<'a> {
    rest: &'a [u8],
    number: usize,
}

impl<'a> Lines<'a> {
    fn next_line(&mut self) -> Option<&'a str> {
        let end = self.rest.iter().position(|&byte| byte == b'\n')?;
        let line = std::str::from_utf8(&self.rest[..end]).ok()?;
        self.rest = &self.rest[end + 1..];
        self.number += 1;
        Some(line)
    }

    /// The value that `read` makes of all words of the next line.
    fn fields<T>(
        &mut self,
        read: impl FnOnce(&mut SplitWhitespace<'a>) -> Option<T>,
    ) -> Result<T, ArchiveError> {
        let Some(line) = self.next_line() else {
            self.number += 1;
            return Err(self.damaged("no line of text"));
        };
        let mut words = line.split_whitespace();
        let fields = read(&mut words).filter(|_| words.next().is_none());
        fields.ok_or_else(|| self.damaged(line))
    }

    fn damaged(&self, got: &str) -> ArchiveError {
        ArchiveError::Index { line: self.number, got: got.chars().take(100).collect() }
    }
}
