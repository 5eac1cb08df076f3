//! The book and the pages at the top: what links lead to, and that no chapter, no operation and no
//! environment variable is left out.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{Source, rules};
use crate::error::Error;

/// The book's pages, and where their list stands.
const BOOK: &str = "docs/book/src";
const SUMMARY: &str = "SUMMARY.md";
/// Where the code of the chapters is taken into the tests.
const CODE: &str = "host/src/book.rs";
/// Pages besides the book.
const PAGES: &[&str] = &["README.md", "ARCHITECTURE.md", "benches/MEASURED.md"];
/// The chapter with every environment variable.
const ENVIRONMENT: &str = "docs/book/src/environment.md";
/// The chapter with every operation, and the list of their modules.
const OPERATIONS: &str = "docs/book/src/ops.md";
const MODULES: &str = "host/src/ops/mod.rs";
/// How variables begin.
const PREFIX: &str = "IRONWARP_";
/// Passed by the host's build script to its own compilation.
const INTERNAL: &str = "IRONWARP_BUILD_PTX_DIR";

/// A page of text.
struct Page {
    /// Path from the workspace's folder, with `/`.
    path: String,
    text: String,
}

/// Reads the pages and checks them.
pub fn check(sources: &[Source], root: &Path) -> Result<Vec<String>, Error> {
    let mut paths: Vec<PathBuf> = PAGES.iter().map(PathBuf::from).collect();
    let folder = root.join(BOOK);
    for entry in fs::read_dir(&folder).map_err(Error::io("read", &folder))? {
        paths.push(Path::new(BOOK).join(entry.map_err(Error::io("read", &folder))?.file_name()));
    }
    let mut pages = Vec::new();
    for path in paths {
        let text = read(&root.join(&path))?;
        pages.push(Page { path: path.to_string_lossy().replace('\\', "/"), text });
    }
    let code = read(&root.join(CODE))?;
    let mut findings = check_pages(&pages, &code, |path| root.join(path).exists());
    findings.extend(check_variables(sources, &read(&root.join(ENVIRONMENT))?));
    findings.extend(check_operations(&read(&root.join(MODULES))?, &read(&root.join(OPERATIONS))?));
    Ok(findings)
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(Error::io("read", path))
}

fn check_pages(pages: &[Page], book: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut findings = Vec::new();
    for page in pages {
        for (line, target) in links(&page.text) {
            let place = format!("{}:{line}", page.path);
            match resolve(&page.path, target) {
                Some(path) if in_book(&page.path) && !in_book(&path) => {
                    findings.push(format!(
                        "{place}: `{target}` leaves the book, and leads nowhere once it is rendered"
                    ));
                }
                Some(path) if exists(&path) && has_heading(pages, &path, target) => {}
                _ => findings.push(format!("{place}: `{target}` leads to nothing")),
            }
        }
    }
    let code = pages.iter().map(|page| Source::new(&page.path, rust_of(&page.text)));
    findings.extend(code.flat_map(|source| rules::safety(&source)));
    findings.extend(left_out(pages, book));
    findings
}

/// The page without all that is no Rust code, line by line.
fn rust_of(text: &str) -> String {
    let mut code: Option<bool> = None; // whether it is Rust
    let mut keep = |line: &str| match (line.trim_start().strip_prefix("```"), code) {
        (Some(language), None) => {
            code = Some(language.starts_with("rust"));
            false
        }
        (Some(_), Some(_)) => {
            code = None;
            false
        }
        (None, code) => code == Some(true),
    };
    text.lines().map(|line| if keep(line) { line } else { "" }).collect::<Vec<_>>().join("\n")
}

/// Whether the page that a link leads to has the heading that the link names, if it names one.
fn has_heading(pages: &[Page], path: &str, target: &str) -> bool {
    let (Some((_, anchor)), Some(page)) =
        (target.split_once('#'), pages.iter().find(|page| page.path == path))
    else {
        return true;
    };
    let headings = lines(&page.text).filter(|(_, line)| line.starts_with('#'));
    let anchors: Vec<String> = headings.map(|(_, heading)| anchor_of(heading)).collect();
    // The second of equal headings is `name-1`.
    let is_anchor = |(index, name): (usize, &String)| {
        let before = anchors[..index].iter().filter(|other| *other == name).count();
        if before == 0 { anchor == name } else { anchor == format!("{name}-{before}") }
    };
    anchors.iter().enumerate().any(is_anchor)
}

/// A heading's name in links, as mdBook and GitHub make it.
fn anchor_of(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Modules of operations that the chapter does not name.
fn check_operations(modules: &str, chapter: &str) -> Vec<String> {
    let named = modules.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let left_out = named.filter(|name| !chapter.contains(&format!("`{name}::")));
    left_out.map(|name| format!("{OPERATIONS}: no operation of `{name}` is there")).collect()
}

/// Chapters that the summary does not list, or whose code is not compiled.
fn left_out(pages: &[Page], code: &str) -> Vec<String> {
    let summary = format!("{BOOK}/{SUMMARY}");
    let listed: Vec<String> = pages
        .iter()
        .filter(|page| page.path == summary)
        .flat_map(|page| links(&page.text).into_iter().filter_map(|(_, target)| resolve(&page.path, target)))
        .collect();
    let chapters = pages.iter().map(|page| &page.path).filter(|path| in_book(path) && **path != summary);
    let mut findings = Vec::new();
    for chapter in chapters {
        if !listed.contains(chapter) {
            findings.push(format!("{chapter}: not in {summary}"));
        }
        if !code.contains(&format!("/{chapter}\"")) {
            findings.push(format!("{chapter}: not in {CODE}, so its code is not compiled"));
        }
    }
    findings
}

/// Variables that the libraries read and the chapter does not name, and the other way round.
fn check_variables(sources: &[Source], chapter: &str) -> Vec<String> {
    let in_library =
        |path: &str| path.starts_with("host/src/") || path.starts_with("crates/") && path.contains("/src/");
    let texts = sources.iter().filter(|source| in_library(&source.path)).map(|source| &*source.text);
    let mut read: BTreeSet<&str> = texts.flat_map(|text| variables(text, '"')).collect();
    read.remove(INTERNAL);
    let named: BTreeSet<&str> = variables(chapter, '`').collect();
    let unnamed = read.difference(&named).map(|name| format!("{ENVIRONMENT}: {name} is not there"));
    let unread = named.difference(&read).map(|name| format!("{ENVIRONMENT}: nothing reads {name}"));
    unnamed.chain(unread).collect()
}

/// The names of variables that stand between two of `quote`.
fn variables(text: &str, quote: char) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
    text.match_indices(PREFIX).filter_map(move |(at, _)| {
        let name = text[at..].split(|c| !is_part(c)).next()?;
        let quoted = text[..at].ends_with(quote) && text[at + name.len()..].starts_with(quote);
        quoted.then_some(name)
    })
}

fn in_book(path: &str) -> bool {
    path.strip_prefix(BOOK).is_some_and(|rest| rest.starts_with('/'))
}

/// Where a page's link leads, from the workspace's folder; `None` outside of it.
fn resolve(page: &str, target: &str) -> Option<String> {
    let file = target.split('#').next().unwrap_or_default();
    if file.is_empty() {
        return Some(page.to_owned());
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for component in Path::new(file).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                parts.pop()?;
            }
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts.join("/"))
}

/// The relative links outside of code, each with its line from 1.
fn links(text: &str) -> Vec<(usize, &str)> {
    lines(text).flat_map(|(number, line)| targets(line).map(move |target| (number, target))).collect()
}

/// The lines outside of code, from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The text in the brackets behind `]` in a line, unless it is an address.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    // Every second part is code.
    let code: Vec<_> = line.match_indices('`').map(|(at, _)| at).collect();
    line.match_indices("](").filter_map(move |(at, open)| {
        let is_code = code.iter().filter(|&&tick| tick < at).count() % 2 == 1;
        let (target, _) = line[at + open.len()..].split_once(')')?;
        (!is_code && !target.contains(':')).then_some(target)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(path: &str, text: &str) -> Page {
        Page { path: path.to_owned(), text: text.to_owned() }
    }

    fn findings(pages: &[Page]) -> Vec<String> {
        let code = "#[doc = include_str!(\"../../docs/book/src/a.md\")]";
        check_pages(pages, code, |path| ["README.md", "host", "docs/book/src/a.md"].contains(&path))
    }

    #[test]
    fn links_lead_somewhere() {
        let good = "[a](README.md) and [b](./host), [c](https://x.y/z), [`d`](README.md#a-part)\n`x[i](j)`\n```\n[e](none)\n```\n# A `part`, here\n## A part\n[f](#a-part-here)\n# A part\n[g](#a-part-1)";
        assert_eq!(findings(&[page("README.md", good)]), Vec::<String>::new());
        assert_eq!(
            findings(&[page("README.md", "\n`a` [b](host) [c](crates/none)")]),
            ["README.md:2: `crates/none` leads to nothing"]
        );
        assert_eq!(
            findings(&[page("README.md", "[a](../x) [b](/host)")]),
            ["README.md:1: `../x` leads to nothing", "README.md:1: `/host` leads to nothing"]
        );
        assert_eq!(
            findings(&[page(
                "README.md",
                "## There\n```\n# here\n```\n[a](#here) [b](README.md#their) [c](#there)"
            )]),
            ["README.md:5: `#here` leads to nothing", "README.md:5: `README.md#their` leads to nothing"]
        );
    }

    #[test]
    fn unsafe_blocks_of_the_code_need_a_reason() {
        let of = |code: &str| format!("unsafe {{ f() }}\n```{code}\n```\nunsafe {{ f() }}");
        let page = |code: &str| [page("README.md", &of(code))];
        for bad in ["rust\nunsafe { f() }", "rust,no_run\n#   unsafe { f() }"] {
            let at = "README.md:3: unsafe block without `// SAFETY:`";
            assert_eq!(findings(&page(bad)), [at], "{bad}");
        }
        for good in ["text\nunsafe { f() }", "rust\n# // SAFETY: it is\nunsafe { f() }", "\nunsafe { f() }"] {
            assert_eq!(findings(&page(good)), Vec::<String>::new(), "{good}");
        }
    }

    #[test]
    fn chapters_are_listed_and_compiled() {
        let summary = page("docs/book/src/SUMMARY.md", "- [A](a.md)");
        let a = || page("docs/book/src/a.md", "[itself](a.md)");
        assert_eq!(findings(&[summary, a()]), Vec::<String>::new());
        assert_eq!(
            findings(&[page("docs/book/src/SUMMARY.md", ""), a()]),
            ["docs/book/src/a.md: not in docs/book/src/SUMMARY.md"]
        );
        let b = page("docs/book/src/b.md", "");
        assert_eq!(
            findings(&[page("docs/book/src/SUMMARY.md", "[A](a.md)"), a(), b]),
            [
                "docs/book/src/b.md: not in docs/book/src/SUMMARY.md",
                "docs/book/src/b.md: not in host/src/book.rs, so its code is not compiled"
            ]
        );
    }

    #[test]
    fn operations_are_named() {
        let modules = "pub mod gemm;\nmod dispatch;\npub mod saxpy;\npub use gemm::x;";
        assert_eq!(check_operations(modules, "`gemm::Matmul`, `saxpy::saxpy`"), Vec::<String>::new());
        assert_eq!(
            check_operations(modules, "gemm, `saxpy::saxpy`"),
            ["docs/book/src/ops.md: no operation of `gemm` is there"]
        );
    }

    #[test]
    fn variables_are_named_and_read() {
        let sources = [
            Source::new(
                "host/src/a.rs",
                "// IRONWARP_C\nvar(\"IRONWARP_A\") + option_env!(\"IRONWARP_BUILD_PTX_DIR\")",
            ),
            Source::new("crates/b/src/c/d.rs", "\"IRONWARP_B_C=1\"; \"IRONWARP_B\""),
            Source::new("crates/b/tests/c.rs", "\"IRONWARP_D\""),
        ];
        assert_eq!(check_variables(&sources, "`IRONWARP_A`, `IRONWARP_B`, IRONWARP_D"), Vec::<String>::new());
        assert_eq!(
            check_variables(&sources, "`IRONWARP_A` and `IRONWARP_D`"),
            [
                "docs/book/src/environment.md: IRONWARP_B is not there",
                "docs/book/src/environment.md: nothing reads IRONWARP_D"
            ]
        );
    }

    #[test]
    fn the_book_links_to_itself_alone() {
        assert_eq!(
            findings(&[page("docs/book/src/SUMMARY.md", "[r](../../../README.md)")]),
            [
                "docs/book/src/SUMMARY.md:1: `../../../README.md` leaves the book, and leads nowhere once it is rendered"
            ]
        );
    }
}
