//! Writes a project with a kernel: a package of kernels, a build script that compiles them, and a program.
//!
//! The template is the package `kernels-gpu/hello` of Ironwarp's repository, so whatever is written has been
//! compiled, tested and linted under that name.

use std::path::{Component, Path, PathBuf};

use crate::around;
use crate::commands::Program;
use crate::error::Error;
use crate::ironwarp::{BUILDER, HOST, Ironwarp, PRIMITIVES, STD};
use crate::new_folder;
use crate::term::{Style, style};

/// The help of `new`.
pub const HELP: &str = "
Writes a project with a kernel, its test, oracle and benchmark, ready to run: y = a x + y, to be made into something
else. It has a package of kernels, a build script that compiles them to PTX, and a program; tests of the kernels run
under the checker.

Usage: {program} new NAME [FOLDER] [--ironwarp PATH]

FOLDER (by default NAME) must not exist yet; the folder around it must.

Options:
  --ironwarp PATH   depend on the packages in PATH, a checkout of Ironwarp or a folder with its packages unpacked;
                    by default the checkout that this program was built in, as crates.io does not have them yet

Examples:
  {program} new blur
  {program} new blur ../my-blur --ironwarp ~/ironwarp
";

/// Name of the kernel that is the template.
const TEMPLATE: &str = "hello";
/// Stands for the name in files that are no Rust of this workspace.
const NAME: &str = "__NAME__";

macro_rules! template {
    ($path:literal) => {
        include_str!(concat!(env!("OUT_DIR"), "/template/", $path))
    };
}

/// The packages that Ironwarp depends on.
const LOCK: &str = template!("Cargo.lock");
const KERNEL: &str = template!("kernels-gpu/hello/src/lib.rs");
const COMMON: &str = template!("kernels-gpu/hello/tests/common/mod.rs");
const TEST: &str = template!("kernels-gpu/hello/tests/hello.rs");
const BENCH: &str = template!("kernels-gpu/hello/benches/hello.rs");
/// The script that turns the checker on.
pub(crate) const CHECKED: &str = template!("tools/rustc-checked");

const PROJECT_MANIFEST: &str = include_str!("../templates/project.Cargo.toml");
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
        "core std alloc test proc_macro main kernels common bench ironwarp criterion cuda_std cuda_builder primitives",
        "a crate or module that every kernel or its tests use has taken it",
    ),
    (
        "memcpy memmove memset memcmp bcmp strlen malloc free printf vprintf abort",
        "compilers call a function of that name, which the kernel would replace",
    ),
    ("build deps examples incremental", "cargo has folders of that name where it would put the program"),
];

/// A file to write: path and text.
pub type File = (PathBuf, String);

/// Writes a project and says what to do next.
///
/// # Errors
/// When the name or the folder cannot be, or something cannot be written.
pub fn run(program: Program, mut args: lexopt::Parser) -> Result<(), Error> {
    use lexopt::ValueExt as _;
    let (mut name, mut folder, mut ironwarp) = (None, None, None);
    while let Some(arg) = args.next()? {
        match arg {
            lexopt::Arg::Long("ironwarp") => ironwarp = Some(PathBuf::from(args.value()?)),
            lexopt::Arg::Value(value) if name.is_none() => name = Some(value.string()?),
            lexopt::Arg::Value(value) if folder.is_none() => folder = Some(PathBuf::from(value)),
            other => return Err(other.unexpected().into()),
        }
    }
    let Some(name) = name else {
        return Err(Error::Usage(format!("the kernel wants a name: `{} new NAME`", program.name)));
    };
    check_name(&name)?;
    let folder = folder.unwrap_or_else(|| PathBuf::from(&name));
    let ironwarp = ironwarp.map_or_else(Ironwarp::by_default, |path| Ironwarp::local(&path))?;
    write_project(&name, &folder, &ironwarp)?;
    println!("  {} inspect  # what the kernel became: registers, spills, instructions", program.name);
    Ok(())
}

/// Writes a project into a new folder, and lists its files. The name has been checked.
///
/// # Errors
/// When the folder cannot be, or something cannot be written.
pub fn write_project(name: &str, folder: &Path, ironwarp: &Ironwarp) -> Result<(), Error> {
    let whole = new_folder::check(folder)?;
    let files = project_files(name, ironwarp);
    check_surroundings(&whole)?;
    new_folder::write(&whole, &files)?;
    let shown = report(folder, &files);
    println!("  cd {}", shown.display());
    println!(
        "  cargo test     # on a GPU, or under the checker where there is none; the first build takes minutes"
    );
    println!("  cargo run\n  cargo bench");
    Ok(())
}

/// Writes a new folder of files.
///
/// # Errors
/// When the folder cannot be, or something cannot be written.
pub fn write_package(folder: &Path, files: &[File]) -> Result<(), Error> {
    new_folder::write(&new_folder::check(folder)?, files)?;
    report(folder, files);
    Ok(())
}

/// A project is a workspace of its own. Cargo refuses one among another's members, and then both are broken.
fn check_surroundings(project: &Path) -> Result<(), Error> {
    for around in around::workspaces(project) {
        if let Some(pattern) = around.member(project) {
            return Err(Error::Refused(format!(
                "{} cannot hold a project: it lies in the workspace of {}, whose `members` list {pattern:?}; choose a \
                 folder elsewhere, or one that `exclude` in that manifest names",
                project.parent().unwrap_or(project).display(),
                around.manifest.display()
            )));
        }
    }
    Ok(())
}

/// A package name, a function name and a part of file names at once, which is free.
///
/// # Errors
/// When it is not all of these.
pub fn check_name(name: &str) -> Result<(), Error> {
    const LONGEST: usize = 50;
    let mut chars = name.chars();
    let is_plain = chars.next().is_some_and(|c| c.is_ascii_lowercase())
        && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let refuse = |why: String| Err(Error::Refused(format!("{name:?} is no name for a kernel: {why}")));
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
        None if is_dependency(name) => Err(taken(name)),
        None => Ok(()),
    }
}

/// A package of Ironwarp's, or one that it depends on: cargo's `--package NAME` would not know which is
/// meant, neither in the repository nor in a project, which depends on them all.
fn is_dependency(name: &str) -> bool {
    let mut packages = LOCK.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    packages.any(|package| package.replace('-', "_") == name)
}

/// The error of a name that a package has.
pub fn taken(name: &str) -> Error {
    Error::Refused(format!("Ironwarp has a package `{name}` already, or depends on one: choose another name"))
}

/// The template under another name. Its name stands in it as a word and inside no other word.
pub fn renamed(text: &str, name: &str) -> String {
    text.replace(TEMPLATE, name)
}

/// The files of a package besides its manifest.
pub fn package_files(name: &str) -> Vec<File> {
    let file = |path: String, text: &str| (PathBuf::from(path), renamed(text, name));
    vec![
        file("src/lib.rs".to_owned(), KERNEL),
        file("tests/common/mod.rs".to_owned(), COMMON),
        file(format!("tests/{name}.rs"), TEST),
        file(format!("benches/{name}.rs"), BENCH),
    ]
}

/// A manifest of the project.
fn manifest(template: &str, name: &str, ironwarp: &Ironwarp) -> String {
    let sources =
        [("__HOST__", HOST), ("__STD__", STD), ("__PRIMITIVES__", PRIMITIVES), ("__BUILDER__", BUILDER)];
    let text = sources.iter().fold(template.replace(NAME, name), |text, (place, package)| {
        text.replace(place, &ironwarp.source(package))
    });
    // As one writes a dependency that is a version and nothing else.
    let version = ironwarp.source(HOST);
    match version.strip_prefix("version = ") {
        Some(number) => text.replace(&format!("{{ {version} }}"), number),
        None => text,
    }
}

fn project_files(name: &str, ironwarp: &Ironwarp) -> Vec<File> {
    let file = |path: String, text: String| (PathBuf::from(path), text);
    let fill = |text: &str| text.replace(NAME, name);
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
    vec![
        file("Cargo.toml".to_owned(), manifest(PROJECT_MANIFEST, name, ironwarp) + &ironwarp.patch()),
        file(".cargo/config.toml".to_owned(), PROJECT_CONFIG.to_owned()),
        file(".cargo/rustc-checked".to_owned(), CHECKED.to_owned()),
        file(".gitignore".to_owned(), "/target\n".to_owned()),
        file("build.rs".to_owned(), PROJECT_BUILD.to_owned()),
        file("kernels/Cargo.toml".to_owned(), manifest(PROJECT_KERNELS, name, ironwarp)),
        file("kernels/src/lib.rs".to_owned(), renamed(KERNEL, name)),
        file("src/lib.rs".to_owned(), fill(&library)),
        file("src/main.rs".to_owned(), fill(PROJECT_MAIN)),
        file(format!("tests/{name}.rs"), use_library(TEST)),
        file(format!("benches/{name}.rs"), use_library(BENCH)),
    ]
}

/// Lists what was written, and returns the folder's name without the `.` of what was typed.
fn report(folder: &Path, files: &[File]) -> PathBuf {
    let shown: PathBuf = folder.components().filter(|part| !matches!(part, Component::CurDir)).collect();
    println!("{} {}", style(Style::Ok, "wrote"), shown.display());
    for (path, _) in files {
        println!("  {}", path.display());
    }
    println!("next:");
    shown
}

#[cfg(test)]
mod tests {
    use std::fs;

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
            assert!(
                matches!(&refused, Err(Error::Refused(why)) if why.contains(name)),
                "{name}: {refused:?}"
            );
        }
    }

    #[test]
    fn names_of_packages_are_taken() {
        for name in ["ironwarp_simt", "xtask", "tempfile", "hello"] {
            let refused = check_name(name);
            assert!(
                matches!(&refused, Err(Error::Refused(why)) if why.contains(name)),
                "{name}: {refused:?}"
            );
        }
    }

    fn checkout() -> Ironwarp {
        let folder = |name: &str| (name.to_owned(), Path::new("/iron warp").join(name));
        let folders = crate::ironwarp::NEEDED.map(folder).into();
        Ironwarp::Local { folders, unpacked: false }
    }

    #[test]
    fn nothing_of_the_template_is_left() {
        let projects = [checkout(), Ironwarp::Registry].map(|ironwarp| project_files("blur", &ironwarp));
        for (path, text) in projects.into_iter().flatten().chain(package_files("blur")) {
            for left in [TEMPLATE, NAME, "__HOST__", "__STD__", "__PRIMITIVES__", "__BUILDER__"] {
                assert!(!text.contains(left), "{left} in {}", path.display());
            }
        }
    }

    #[test]
    fn a_name_may_hold_the_templates() {
        let files = project_files("othello", &Ironwarp::Registry);
        let texts = || files.iter().map(|(_, text)| text.as_str());
        assert!(texts().any(|text| text.contains("launch::<othello_kernels::othello>")));
        assert!(texts().any(|text| text.contains("load_family(&device, \"othello_kernels\"")));
        assert!(texts().all(|text| text.matches(TEMPLATE).count() == text.matches("othello").count()));
    }

    #[test]
    fn a_project_uses_its_library_and_loads_its_kernels() {
        let files = project_files("blur", &checkout());
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
        assert!(text("Cargo.toml").contains("ironwarp = { path = \"/iron warp/ironwarp\" }\n"));
    }

    #[test]
    fn a_project_without_a_path_depends_on_a_release() {
        let files = project_files("blur", &Ironwarp::Registry);
        let text = |name: &str| &files.iter().find(|(path, _)| path == Path::new(name)).unwrap().1;
        let manifest = text("Cargo.toml");
        assert!(manifest.contains("\nironwarp = \"0."), "{manifest}");
        assert!(manifest.contains("{ package = \"ironwarp-builder\", version = \"0."), "{manifest}");
        assert!(text("kernels/Cargo.toml").contains("{ package = \"ironwarp-std\", version = \"0."));
        assert!(files.iter().all(|(_, text)| !text.contains("path = \"/")), "a path is left");
    }

    /// Cargo leaves folders with a manifest out of a package: they would be packages of their own.
    #[test]
    fn the_templates_get_into_a_package() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let listed = fs::read_to_string(package.join("template.txt")).unwrap();
        assert_eq!(listed.lines().filter(|path| path.ends_with("Cargo.toml")).count(), 0, "{listed}");
        assert!(package.join("templates").is_dir() && !package.join("templates/Cargo.toml").exists());
    }
}
