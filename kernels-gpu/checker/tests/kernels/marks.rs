//! The lines of a kernel's source that are marked `// bug`.

use std::path::{Path, PathBuf};

use simt::KernelEntry;

/// The kernel's file and its marked lines. If it has none, they are those of the functions of its file that
/// it calls.
pub fn of(entry: &KernelEntry) -> (PathBuf, Vec<u32>) {
    let name = Path::new(entry.file).file_name().expect("a file name");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name);
    let source = std::fs::read_to_string(&file).expect("the kernel's source");
    let body = body_of(&source, entry.name);
    let mut marked = marked_lines(&body);
    if marked.is_empty() {
        let called = functions(&source).filter(|function| {
            body.iter().any(|(_, line)| line.contains(&format!("{function}(")) && !line.contains("fn "))
        });
        marked = called.flat_map(|function| marked_lines(&body_of(&source, function))).collect();
    }
    (file, marked)
}

/// The names of the functions that are no methods.
fn functions(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter(|line| !line.starts_with(' ')).filter_map(|line| {
        let (_, signature) = line.split_once("fn ")?;
        signature.split(['(', '<']).next()
    })
}

/// The numbered lines of a function.
fn body_of<'s>(source: &'s str, name: &str) -> Vec<(u32, &'s str)> {
    let starts = [format!("fn {name}("), format!("fn {name}<")];
    let numbered = (1u32..).zip(source.lines());
    let body = numbered.skip_while(|(_, line)| !starts.iter().any(|start| line.contains(start))).skip(1);
    body.take_while(|(_, line)| *line != "}").collect()
}

fn marked_lines(body: &[(u32, &str)]) -> Vec<u32> {
    body.iter().filter(|(_, line)| line.ends_with("// bug")).map(|(number, _)| *number).collect()
}
