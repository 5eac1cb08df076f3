//! Reads a folder of text and cuts it into passages.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::folder::{self, FolderError};

/// A passage ends at the first blank line after this many characters...
const SOFT_LIMIT: usize = 400;
/// ...and at the next line end after this many, blank or not.
const HARD_LIMIT: usize = 1_000;
/// A single line longer than this is cut (minified files, data).
const LINE_LIMIT: usize = 2_000;
/// Files above this size are data rather than prose or code; they are skipped and counted.
const FILE_LIMIT: u64 = 4 << 20;
/// Text above this size in all is left out and counted: a passage takes many times its size in memory.
const TOTAL_LIMIT: u64 = 32 << 20;
/// Files that are listed, at most.
const MOST_FILES: usize = 200_000;
/// How many leading bytes decide whether a file is text: a NUL among them says binary.
const SNIFF: usize = 8 << 10;

/// A piece of a file: what one row of the corpus matrix stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    /// Relative to the corpus folder.
    pub file: PathBuf,
    /// First line, counted from 1.
    pub line: usize,
    pub text: String,
}

/// Files that were left out, by reason.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Skipped {
    pub binary: usize,
    pub unreadable: usize,
    pub too_large: usize,
    /// Files after the limit on all of them.
    pub too_many: usize,
}

impl Skipped {
    /// "2 binary, 1 unreadable", or `None` when nothing was skipped.
    pub fn describe(&self) -> Option<String> {
        let counts = [
            (self.binary, "binary"),
            (self.unreadable, "unreadable"),
            (self.too_large, "larger than 4 MiB"),
            (self.too_many, "past the first 32 MiB or 200000 files"),
        ];
        let parts: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, reason)| format!("{count} {reason}"))
            .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Everything that was read.
#[derive(Debug)]
pub struct Corpus {
    pub passages: Vec<Passage>,
    pub files: usize,
    pub skipped: Skipped,
}

/// Why a corpus could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("the corpus folder {folder:?} holds no text to search{}. Give a folder with text files: --corpus DIR",
        .skipped.describe().map(|s| format!(" (skipped: {s})")).unwrap_or_default())]
    Empty { folder: PathBuf, skipped: Skipped },
}

/// Which files of the folder count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Select {
    /// Every file that holds UTF-8 text.
    AnyText,
    /// Markdown and Rust: what the project's own repository is made of.
    MarkdownAndRust,
}

/// Reads all text files below `folder`, in path order, and cuts them into passages. Hidden folders, `target`,
/// links and the system's folders are not entered.
pub fn read(folder: &Path, select: Select) -> Result<Corpus, CorpusError> {
    read_at_most(folder, select, TOTAL_LIMIT)
}

fn read_at_most(folder: &Path, select: Select, total: u64) -> Result<Corpus, CorpusError> {
    let whole = folder::check(folder)?;
    let mut files = Vec::new();
    let mut skipped = Skipped::default();
    list(&whole, select, &mut files, &mut skipped)
        .map_err(|error| FolderError::Unreadable(folder.into(), error))?;
    files.sort();

    let mut passages = Vec::new();
    let mut read = 0;
    let mut left = total;
    for path in &files {
        match read_text(path, left) {
            Ok(text) => {
                read += 1;
                left -= text.len() as u64;
                cut(path.strip_prefix(&whole).unwrap_or(path), &text, &mut passages);
            }
            Err(Skip::Binary) => skipped.binary += 1,
            Err(Skip::Unreadable) => skipped.unreadable += 1,
            Err(Skip::TooLarge) => skipped.too_large += 1,
            Err(Skip::NothingLeft) => skipped.too_many += 1,
        }
    }
    if passages.is_empty() {
        return Err(CorpusError::Empty { folder: folder.into(), skipped });
    }
    Ok(Corpus { passages, files: read, skipped })
}

/// Fails only for the top folder; what cannot be read further down is counted.
fn list(
    folder: &Path,
    select: Select,
    files: &mut Vec<PathBuf>,
    skipped: &mut Skipped,
) -> std::io::Result<()> {
    // Folders within folders may be deeper than the stack.
    let mut below = Vec::new();
    list_one(folder, select, files, &mut below, skipped)?;
    while let Some(folder) = below.pop() {
        if list_one(&folder, select, files, &mut below, skipped).is_err() {
            skipped.unreadable += 1;
        }
    }
    Ok(())
}

/// Lists a folder's files, and the folders in it.
fn list_one(
    folder: &Path,
    select: Select,
    files: &mut Vec<PathBuf>,
    folders: &mut Vec<PathBuf>,
    skipped: &mut Skipped,
) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let Ok((entry, kind)) = entry.and_then(|entry| entry.file_type().map(|kind| (entry, kind))) else {
            skipped.unreadable += 1;
            continue;
        };
        let (path, name) = (entry.path(), entry.file_name());
        if name.to_string_lossy().starts_with('.') {
            continue;
        }
        if kind.is_dir() && name != "target" && !folder::is_system(&path) {
            folders.push(path);
        } else if kind.is_file() && wanted(&path, select) {
            if files.len() < MOST_FILES {
                files.push(path);
            } else {
                skipped.too_many += 1;
            }
        }
    }
    Ok(())
}

fn wanted(path: &Path, select: Select) -> bool {
    match select {
        Select::AnyText => true,
        Select::MarkdownAndRust => path.extension().is_some_and(|e| e == "md" || e == "rs"),
    }
}

enum Skip {
    Binary,
    Unreadable,
    TooLarge,
    NothingLeft,
}

/// Reads a file of at most [`FILE_LIMIT`] and `left` bytes. Its own word on its size is not trusted: some
/// file systems say 0 and give without end.
fn read_text(path: &Path, left: u64) -> Result<String, Skip> {
    let file = fs::File::open(path).map_err(|_| Skip::Unreadable)?;
    let mut bytes = Vec::new();
    let limit = FILE_LIMIT.min(left);
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|_| Skip::Unreadable)?;
    if bytes[..bytes.len().min(SNIFF)].contains(&0) {
        return Err(Skip::Binary);
    }
    if bytes.len() as u64 > limit {
        return Err(if limit == FILE_LIMIT { Skip::TooLarge } else { Skip::NothingLeft });
    }
    String::from_utf8(bytes).map_err(|_| Skip::Binary)
}

fn cut(file: &Path, text: &str, out: &mut Vec<Passage>) {
    let mut current = String::new();
    let mut first = 1;
    for (index, line) in text.lines().enumerate() {
        let blank = line.trim().is_empty();
        if current.is_empty() {
            if blank {
                continue;
            }
            first = index + 1;
        }
        let end = line.char_indices().nth(LINE_LIMIT).map_or(line.len(), |(at, _)| at);
        current.push_str(&line[..end]);
        current.push('\n');
        if current.len() >= HARD_LIMIT || (blank && current.len() >= SOFT_LIMIT) {
            out.push(Passage { file: file.into(), line: first, text: std::mem::take(&mut current) });
        }
    }
    if !current.trim().is_empty() {
        out.push(Passage { file: file.into(), line: first, text: current });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("ironwarp-corpus-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary folder can be made");
        path
    }

    #[test]
    fn passages_keep_their_first_line_and_end_at_blank_lines() {
        let long = "word ".repeat(90);
        let mut out = Vec::new();
        cut(Path::new("a.md"), &format!("\n\n{long}\n\nsecond\n"), &mut out);
        assert_eq!(out.len(), 2);
        assert_eq!((out[0].line, out[1].line), (3, 5));
        assert_eq!(out[1].text, "second\n");
    }

    #[test]
    fn an_endless_line_is_cut_between_characters() {
        let mut out = Vec::new();
        cut(Path::new("a.md"), &"é".repeat(5_000), &mut out);
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].text.chars().count(), LINE_LIMIT + 1);
    }

    #[test]
    fn binary_files_are_counted_and_an_empty_corpus_says_so() {
        let folder = folder("binary");
        fs::write(folder.join("a.bin"), [0u8, 1, 2]).expect("writable");
        fs::write(folder.join("b.txt"), [0xffu8, 0xfe, 0x41]).expect("writable");
        let error = read(&folder, Select::AnyText).expect_err("nothing to search");
        assert!(error.to_string().contains("2 binary"), "{error}");
        fs::write(folder.join("c.txt"), "hello\n").expect("writable");
        let corpus = read(&folder, Select::AnyText).expect("one text file");
        assert_eq!((corpus.files, corpus.skipped.binary, corpus.passages.len()), (1, 2, 1));
        fs::remove_dir_all(folder).expect("removable");
    }

    #[test]
    fn missing_folders_and_files_in_their_place_are_named() {
        let missing = std::env::temp_dir().join("ironwarp-no-such-folder");
        let error = read(&missing, Select::AnyText).expect_err("not there");
        assert!(matches!(error, CorpusError::Folder(FolderError::Missing(p)) if p == missing));
        let folder = folder("file");
        let file = folder.join("f.txt");
        fs::write(&file, "x").expect("writable");
        let error = read(&file, Select::AnyText).expect_err("no folder");
        assert!(matches!(error, CorpusError::Folder(FolderError::NotAFolder(_))));
        fs::remove_dir_all(folder).expect("removable");
    }

    #[test]
    fn reading_ends_at_the_limits() {
        let folder = folder("limits");
        fs::write(folder.join("large.txt"), vec![b'a'; FILE_LIMIT as usize + 1]).expect("writable");
        for name in ["a.txt", "b.txt", "c.txt"] {
            fs::write(folder.join(name), "words\n".repeat(10)).expect("writable");
        }
        let corpus = read_at_most(&folder, Select::AnyText, 130).expect("two files fit");
        let left_out = Skipped { too_many: 2, ..Skipped::default() };
        assert_eq!((corpus.files, corpus.skipped), (2, left_out));
        let corpus = read(&folder, Select::AnyText).expect("text");
        assert_eq!((corpus.files, corpus.skipped.too_large), (3, 1));
        fs::remove_dir_all(folder).expect("removable");
    }
}
