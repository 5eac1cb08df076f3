//! Writes the beginnings of a kernel: in this workspace, or as a project of its own.
//!
//! The template is the package `kernels-gpu/hello` itself, so whatever is written has been compiled, tested
//! and linted under that name.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::error::Error;
use crate::new_folder;
use crate::term::{Style, style};
use crate::workspace;

pub const HELP: &str = "
Writes a kernel with its test, oracle and benchmark, ready to run: y = a x + y, to be made into something else.

In this workspace it becomes the package kernels-gpu/NAME, which `cargo xtask test` and `build-kernels` find by
themselves. With --crate it becomes a project of its own that depends on this workspace: a package of kernels,
compiled to PTX by a build script, and a program.

Usage: cargo xtask new-kernel NAME [--crate FOLDER]

Options:
  --crate FOLDER   write a project into FOLDER, which must not exist yet (the folder around it must)

Examples:
  cargo xtask new-kernel blur
  cargo xtask new-kernel blur --crate ../blur
";

/// Name of the kernel that is the template.
const TEMPLATE: &str = "hello";
/// Stands for the name in files that are no Rust of this workspace.
const NAME: &str = "__NAME__";
/// Stands for this workspace's folder.
const IRONWARP: &str = "__IRONWARP__";

const MANIFEST: &str = include_str!("../../kernels-gpu/hello/Cargo.toml");
const KERNEL: &str = include_str!("../../kernels-gpu/hello/src/lib.rs");
const COMMON: &str = include_str!("../../kernels-gpu/hello/tests/common/mod.rs");
const TEST: &str = include_str!("../../kernels-gpu/hello/tests/hello.rs");
const BENCH: &str = include_str!("../../kernels-gpu/hello/benches/hello.rs");

const PROJECT_MANIFEST: &str = include_str!("../templates/Cargo.toml");
const PROJECT_KERNELS: &str = include_str!("../templates/kernels.Cargo.toml");
const PROJECT_CONFIG: &str = include_str!("../templates/config.toml");
const PROJECT_BUILD: &str = include_str!("../templates/build.rs");
const PROJECT_MAIN: &str = include_str!("../templates/main.rs");

/// Names that a kernel and its package cannot have, each with the reason.
const RESERVED: &[(&str, &str)] = &[
    (
        "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move \
         mut pub ref return self static struct super trait true type unsafe use where while abstract become box do final \
         gen macro override priv try typeof unsized virtual yield",
        "it is a word of Rust's",
    ),
    (
        "bool char str i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize f16 f32 f64 f128 bf16 thread",
        "every kernel has a type of its own name, which would hide what kernels use by this one",
    ),
    (
        "core std alloc test proc_macro main kernels common bench ironwarp criterion cuda_std cuda_builder",
        "a crate or module that every kernel or its tests use has taken it",
    ),
    (
        "memcpy memmove memset memcmp bcmp strlen malloc free printf vprintf abort",
        "compilers call a function of that name, which the kernel would replace",
    ),
    ("build deps examples incremental", "cargo has folders of that name where it would put the program"),
];

/// A file to write: path and text.
type File = (PathBuf, String);

pub fn run(mut args: lexopt::Parser) -> Result<(), Error> {
    use lexopt::ValueExt as _;
    let (mut name, mut project) = (None, None);
    while let Some(arg) = args.next()? {
        match arg {
            lexopt::Arg::Long("crate") => project = Some(PathBuf::from(args.value()?)),
            lexopt::Arg::Value(value) if name.is_none() => name = Some(value.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let Some(name) = name else {
        return Err(Error::Usage("the kernel wants a name: `cargo xtask new-kernel NAME`".to_owned()));
    };
    check_name(&name)?;
    check_free(&name)?;
    let folder = project.clone().unwrap_or_else(|| workspace::root().join("kernels-gpu").join(&name));
    let whole = new_folder::check(&folder)?;
    let files = match &project {
        Some(_) => {
            check_settings(&whole)?;
            project_files(&name, workspace::root())?
        }
        None => package_files(&name),
    };
    new_folder::write(&whole, &files)?;
    report(&name, &folder, project.is_some(), &files);
    Ok(())
}

/// Cargo puts the settings of all folders above a project together, and fails where one of them has a table
/// and another a string. This workspace's own folder is such a place.
fn check_settings(project: &Path) -> Result<(), Error> {
    let files = project
        .ancestors()
        .skip(1)
        .flat_map(|folder| ["config.toml", "config"].map(|name| folder.join(".cargo").join(name)));
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let settings: toml::Table = text.parse().unwrap_or_default();
        let setting = |table: &str, key: &str| settings.get(table).and_then(|table| table.get(key));
        let ours = [("env", "CUDA_LIBRARY_PATH"), ("build", "rustc-workspace-wrapper")];
        if let Some((table, key)) =
            ours.into_iter().find(|(table, key)| setting(table, key).is_some_and(toml::Value::is_table))
        {
            return Err(Error::Usage(format!(
                "{} cannot hold a project: Cargo cannot join the project's setting {table}.{key} with the one \
                 in {}; choose a folder elsewhere, or leave out --crate for a package of Ironwarp's workspace",
                project.parent().unwrap_or(project).display(),
                file.display()
            )));
        }
    }
    Ok(())
}

/// A package name, a function name and a part of file names at once.
fn check_name(name: &str) -> Result<(), Error> {
    const LONGEST: usize = 50;
    let mut chars = name.chars();
    let is_plain = chars.next().is_some_and(|c| c.is_ascii_lowercase())
        && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let refuse = |why: String| Err(Error::Usage(format!("{name:?} is no name for a kernel: {why}")));
    if !is_plain || name.contains("__") || name.ends_with('_') {
        return refuse(
            "wanted a lower-case letter, then letters, digits and single underscores, as in `row_sum`"
                .to_owned(),
        );
    }
    if name.len() > LONGEST {
        return refuse(format!("{} characters, at most {LONGEST}", name.len()));
    }
    match RESERVED.iter().find(|(names, _)| names.split(' ').any(|reserved| reserved == name)) {
        Some((_, why)) => refuse((*why).to_owned()),
        None => Ok(()),
    }
}

/// No package of the workspace has the name, nor one that it depends on: cargo's `--package NAME` would not
/// know which is meant, neither here nor in a project, which depends on them all.
fn check_free(name: &str) -> Result<(), Error> {
    let lock = workspace::root().join("Cargo.lock");
    let packages = fs::read_to_string(&lock).map_err(Error::io("read", &lock))?;
    let mut packages = packages.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    let taken = packages.any(|package| package.replace('-', "_") == name)
        || workspace::families()?.iter().any(|family| family.library == name)
        || workspace::root().join("crates").join(name).exists();
    if taken {
        return Err(Error::Usage(format!(
            "Ironwarp has a package `{name}` already, or depends on one: choose another name"
        )));
    }
    Ok(())
}

/// The template under another name. Its name stands in it as a word and inside no other word.
fn renamed(text: &str, name: &str) -> String {
    text.replace(TEMPLATE, name)
}

fn package_files(name: &str) -> Vec<File> {
    let file = |path: String, text: &str| (PathBuf::from(path), renamed(text, name));
    vec![
        file("Cargo.toml".to_owned(), MANIFEST),
        file("src/lib.rs".to_owned(), KERNEL),
        file("tests/common/mod.rs".to_owned(), COMMON),
        file(format!("tests/{name}.rs"), TEST),
        file(format!("benches/{name}.rs"), BENCH),
    ]
}

fn project_files(name: &str, ironwarp: &Path) -> Result<Vec<File>, Error> {
    let Some(ironwarp) = ironwarp.to_str().filter(|path| !path.contains(['"', '\\'])) else {
        return Err(Error::Usage(format!(
            "the path of this workspace, {}, cannot be written into a TOML file: move it to a plainer one",
            ironwarp.display()
        )));
    };
    let file = |path: String, text: String| (PathBuf::from(path), text);
    let fill = |text: &str| text.replace(NAME, name).replace(IRONWARP, ironwarp);
    // Test and benchmark use the project's library where the template has a module of its own.
    let use_library = |text: &str| {
        let text = text.replace("#[path = \"../tests/common/mod.rs\"]\n", "");
        let text = text.replace("mod common;\nuse common::", &format!("use {name}::"));
        text.replace(&format!("\"{TEMPLATE}\""), &format!("\"{name}\""))
    };
    let library = COMMON
        .replace("use ironwarp::{Device, ", "use ironwarp::{Device, Module, PtxSource, ")
        .replace(
            "    Device::open(0)\n",
            "    let device = Device::open(0)?;\n    // SAFETY: the build script compiles this PTX from the package of that name.\n    unsafe {\n        Module::load_family(&device, \"__NAME___kernels\", PtxSource::Directory(env!(\"KERNELS_PTX\").into()))?;\n    }\n    Ok(device)\n",
        )
        // The name comes last, since the template's may stand in it.
        .replace("hello::", "__NAME___kernels::")
        .replace(TEMPLATE, NAME);
    Ok(vec![
        file("Cargo.toml".to_owned(), fill(PROJECT_MANIFEST)),
        file(".cargo/config.toml".to_owned(), fill(PROJECT_CONFIG)),
        file(".gitignore".to_owned(), "/target\n".to_owned()),
        file("build.rs".to_owned(), PROJECT_BUILD.to_owned()),
        file("kernels/Cargo.toml".to_owned(), fill(PROJECT_KERNELS)),
        file("kernels/src/lib.rs".to_owned(), renamed(KERNEL, name)),
        file("src/lib.rs".to_owned(), fill(&library)),
        file("src/main.rs".to_owned(), fill(PROJECT_MAIN)),
        file(format!("tests/{name}.rs"), use_library(TEST)),
        file(format!("benches/{name}.rs"), use_library(BENCH)),
    ])
}

fn report(name: &str, folder: &Path, is_project: bool, files: &[File]) {
    // Without the `..` of what was typed.
    let shown: PathBuf = folder.components().filter(|part| !matches!(part, Component::CurDir)).collect();
    println!("{} {}", style(Style::Ok, "wrote"), shown.display());
    for (path, _) in files {
        println!("  {}", path.display());
    }
    println!("next:");
    if is_project {
        println!("  cd {}", shown.display());
        println!("  cargo test     # on a GPU, or under the checker where there is none");
        println!("  cargo run\n  cargo bench");
    } else {
        println!("  cargo test -p {name}                          # under the checker where there is no GPU");
        println!("  cargo xtask build-kernels --family {name}     # PTX for a GPU");
        println!("  cargo xtask inspect {name}                    # registers, spills, instructions");
        println!("  cargo bench -p {name}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cannot_be_are_refused() {
        for name in ["blur", "row_sum", "a1"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        let long = "a".repeat(51);
        for name in [
            "", "Blur", "1st", "_a", "a_", "a__b", "a-b", "a b", "../a", "a/b", "fn", "core", "ironwarp",
            "ä", "thread", "f32", "usize", "deps", &long,
        ] {
            let refused = check_name(name);
            assert!(matches!(&refused, Err(Error::Usage(why)) if why.contains(name)), "{name}: {refused:?}");
        }
    }

    #[test]
    fn names_of_the_workspace_are_taken() {
        assert!(check_free("gemm").is_err());
        for name in ["simt", "xtask", "tempfile"] {
            assert!(check_free(name).is_err(), "{name}");
        }
        assert!(check_free("blur").is_ok());
    }

    #[test]
    fn nothing_of_the_template_is_left() {
        let project = project_files("blur", Path::new("/iron warp")).unwrap();
        for (path, text) in package_files("blur").into_iter().chain(project) {
            for left in [TEMPLATE, NAME, IRONWARP] {
                assert!(!text.contains(left), "{left} in {}", path.display());
            }
        }
    }

    #[test]
    fn a_name_may_hold_the_templates() {
        let files = project_files("othello", Path::new("/ironwarp")).unwrap();
        let texts = || files.iter().map(|(_, text)| text.as_str());
        assert!(texts().any(|text| text.contains("launch::<othello_kernels::othello>")));
        assert!(texts().any(|text| text.contains("load_family(&device, \"othello_kernels\"")));
        assert!(texts().all(|text| text.matches(TEMPLATE).count() == text.matches("othello").count()));
    }

    #[test]
    fn a_project_uses_its_library_and_loads_its_kernels() {
        let files = project_files("blur", Path::new("/ironwarp")).unwrap();
        let text = |name: &str| &files.iter().find(|(path, _)| path == Path::new(name)).unwrap().1;
        assert!(text("src/lib.rs").contains("Module::load_family(&device, \"blur_kernels\""));
        assert!(text("src/lib.rs").contains("launch::<blur_kernels::blur>"));
        assert!(text("kernels/src/lib.rs").contains("pub unsafe fn blur("));
        for program in ["tests/blur.rs", "benches/blur.rs"] {
            assert!(
                text(program).contains("use blur::{device, ") && !text(program).contains("common"),
                "{program}"
            );
        }
        assert!(text("Cargo.toml").contains("blur_kernels = { path = \"kernels\" }"));
    }
}
