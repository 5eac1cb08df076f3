//! Packages that the checker sees into, as LLVM leaves them: every access to memory has its callback, but
//! those to stack slots and constants.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Accesses that LLVM has no callbacks for, by kernel: `fetch_max` and `fetch_min` of `core`'s atomics; a
/// launch's argument of six bytes.
const KNOWN: &[&str] = &[
    "6compat8counters12core_atomics",
    "15ironwarp_tensor5index9mark_last",
    "7checker18correct_programs_328labels_until_nothing_changes",
    "cuda_std6kernel9arguments10read_value",
    "conformance..hopper..im2col..tma_windows_5d",
];

/// Packages that take LLVM long: minutes together.
const LARGE: &[&str] = &["ironwarp-attention", "ironwarp-gemm", "ironwarp-rows", "ironwarp-tensor"];

#[test]
fn every_access_of_a_checked_package_has_its_callback() -> Result<(), Box<dyn Error>> {
    let packages = checked_packages()?;
    assert!(packages.len() >= 9, "{packages:?}");
    packages.iter().filter(|name| !LARGE.contains(&name.as_str())).try_for_each(|name| read_package(name))
}

#[test]
#[ignore = "compiles the largest packages once more, minutes"]
fn every_access_of_a_large_package_has_its_callback() -> Result<(), Box<dyn Error>> {
    LARGE.iter().try_for_each(|name| read_package(name))
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Compiles a package, and reads its instructions as LLVM leaves them.
fn read_package(package: &str) -> Result<(), Box<dyn Error>> {
    // A name of its own would make cargo compile the package again in each run.
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(package).with_extension("ll");
    let output = Command::new("cargo")
        .current_dir(root())
        .args(["rustc", "--quiet", "--lib", "--package", package, "--"])
        .arg(format!("--emit=llvm-ir={}", file.display()))
        .output()?;
    assert!(output.status.success(), "{package}: {}", String::from_utf8_lossy(&output.stderr));
    let module = Module::read(&fs::read_to_string(&file)?);
    let is_known = |line: &str| KNOWN.iter().any(|known| line.contains(known));
    let unseen: Vec<String> = module.unseen.into_iter().filter(|line| !is_known(line)).collect();
    println!("{package}: {} accesses with a callback, {} without", module.seen, unseen.len());
    assert!(module.seen > 0, "{package} has no callbacks");
    assert!(unseen.is_empty(), "{package}, without a callback:\n{}", unseen.join("\n"));
    Ok(())
}

/// Names of the packages whose manifests say `checked = true`.
fn checked_packages() -> Result<Vec<String>, Box<dyn Error>> {
    let mut packages = Vec::new();
    for folder in ["crates", "kernels-gpu"] {
        for entry in fs::read_dir(root().join(folder))? {
            let Ok(manifest) = fs::read_to_string(entry?.path().join("Cargo.toml")) else { continue };
            let name = manifest.lines().find_map(|line| line.strip_prefix("name = "));
            if manifest.lines().any(|line| line.starts_with("checked = true")) {
                packages.push(name.ok_or("a package has a name")?.trim_matches('"').to_owned());
            }
        }
    }
    packages.sort_unstable();
    Ok(packages)
}

/// The accesses of a module in LLVM's textual form.
#[derive(Default)]
struct Module {
    /// Accesses with a callback.
    seen: usize,
    /// Accesses without one: function and instruction.
    unseen: Vec<String>,
}

impl Module {
    fn read(text: &str) -> Self {
        let constants: HashSet<&str> = text.lines().filter_map(constant).collect();
        let mut module = Self::default();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let Some(signature) = line.strip_prefix("define ") else { continue };
            let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "}").collect();
            let name = name_in(signature);
            // They register kernels, before the program's `main`.
            if !name.contains("__ctor") {
                module.add(&name, &body, &constants);
            }
        }
        module
    }

    fn add(&mut self, name: &str, body: &[&str], constants: &HashSet<&str>) {
        let mut function = Function { private: private_pointers(body, constants), ..Function::default() };
        for line in body {
            if !line.starts_with("  ") {
                // Another basic block.
                function.announced.clear();
                continue;
            }
            match function.step(line.trim(), constants) {
                Seen::Callback => self.seen += 1,
                Seen::Nothing => {}
                Seen::Unseen => self.unseen.push(format!("  {name}: {}", line.trim())),
            }
        }
    }
}

/// The values of a function that point into stack slots and constants: slots, and pointers made of such
/// pointers alone.
fn private_pointers<'t>(body: &[&'t str], constants: &HashSet<&str>) -> HashSet<&'t str> {
    let definitions = body.iter().filter_map(|line| line.trim().split_once(" = "));
    let sources: HashMap<&str, Vec<&str>> =
        definitions.filter_map(|(result, instruction)| Some((result, sources_of(instruction)?))).collect();
    let mut private: HashSet<&str> = sources.keys().copied().collect();
    loop {
        let is_private = |pointer: &&str| match pointer.strip_prefix('@') {
            Some(name) => constants.contains(name),
            None => private.contains(pointer),
        };
        let wrong: Vec<&str> =
            private.iter().filter(|name| !sources[*name].iter().all(is_private)).copied().collect();
        if wrong.is_empty() {
            return private;
        }
        wrong.iter().for_each(|name| {
            private.remove(name);
        });
    }
}

/// The pointers that an instruction makes a pointer of; `None` if it makes one of anything else.
fn sources_of(instruction: &str) -> Option<Vec<&str>> {
    match instruction.split(' ').next()? {
        "alloca" => Some(Vec::new()),
        "getelementptr" => Some(vec![pointer(instruction)]),
        "select" => Some(instruction.split(", ptr ").skip(1).map(first_word).collect()),
        "phi" => {
            let incoming = instruction.strip_prefix("phi ptr ")?;
            Some(incoming.split("[ ").skip(1).map(first_word).collect())
        }
        _ => None,
    }
}

fn first_word(text: &str) -> &str {
    text.split([',', ' ', ')']).next().unwrap_or("")
}

/// The name of a global that is constant.
fn constant(line: &str) -> Option<&str> {
    let (name, rest) = line.strip_prefix('@')?.split_once(" = ")?;
    rest.contains(" constant ").then_some(name)
}

fn name_in(signature: &str) -> String {
    let name = signature.split_once('@').map_or(signature, |(_, rest)| rest);
    name.split('(').next().unwrap_or(name).to_owned()
}

/// How the checker sees an instruction.
enum Seen {
    /// A callback.
    Callback,
    /// No access, or one that a callback has announced, or one that needs none.
    Nothing,
    /// An access that it does not see.
    Unseen,
}

/// A function, as far as it has been read.
#[derive(Default)]
struct Function<'t> {
    /// Values that point into stack slots and constants.
    private: HashSet<&'t str>,
    /// Callbacks of this basic block whose access has not come yet, by operation and pointer.
    announced: HashMap<(char, &'t str), usize>,
}

impl<'t> Function<'t> {
    fn step(&mut self, line: &'t str, constants: &HashSet<&str>) -> Seen {
        let instruction = line.split_once(" = ").map_or(line, |(_, instruction)| instruction);
        if let Some((_, callback)) = instruction.split_once("@__tsan_") {
            return self.announce(callback);
        }
        let words: Vec<&str> = instruction.split(' ').collect();
        match words[0] {
            "load" | "store" => {
                let pointer = pointer(instruction);
                let operation = if words[0] == "load" { 'r' } else { 'w' };
                let is_atomic = words[1] == "atomic";
                let is_announced = self.take(operation, pointer);
                if is_atomic || !(is_announced || self.is_private(pointer, constants)) {
                    return Seen::Unseen;
                }
            }
            "atomicrmw" | "cmpxchg" | "fence" => return Seen::Unseen,
            "call" | "tail" | "musttail" | "notail" | "invoke" => {
                let moves = ["@llvm.mem", "@llvm.masked.", "@memcpy(", "@memmove(", "@memset("];
                if moves.iter().any(|name| instruction.contains(name)) {
                    return Seen::Unseen;
                }
            }
            _ => {}
        }
        Seen::Nothing
    }

    /// A callback: for a load or store that follows, or in place of another operation.
    fn announce(&mut self, callback: &'t str) -> Seen {
        let (name, rest) = callback.split_once('(').unwrap_or((callback, ""));
        let pointer = rest.trim_start_matches("ptr ").split([',', ')']).next().unwrap_or("");
        let operation = if name.contains("read") { 'r' } else { 'w' };
        if name.contains("read") || name.contains("write") {
            *self.announced.entry((operation, pointer)).or_default() += 1;
        }
        Seen::Callback
    }

    fn take(&mut self, operation: char, pointer: &'t str) -> bool {
        match self.announced.get_mut(&(operation, pointer)) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        }
    }

    fn is_private(&self, pointer: &str, constants: &HashSet<&str>) -> bool {
        let global = pointer.strip_prefix('@').is_some_and(|name| constants.contains(name));
        global || self.private.contains(pointer)
    }
}

/// The pointer that a load, a store or a `getelementptr` uses: the last operand of pointer type.
fn pointer(instruction: &str) -> &str {
    instruction.rsplit_once(", ptr ").map_or("", |(_, rest)| first_word(rest))
}

#[test]
fn accesses_without_a_callback_are_noticed() {
    let module = Module::read(
        "\
@data = private unnamed_addr constant [4 x i8] zeroinitializer, align 4
define void @kernel(ptr %p) {
start:
  %slot = alloca [16 x i8], align 4
  %0 = getelementptr inbounds i8, ptr %slot, i64 4
  store i32 1, ptr %0, align 4
  %1 = load i32, ptr @data, align 4
  call void @__tsan_read4(ptr %p)
  %2 = load i32, ptr %p, align 4
  %3 = load i32, ptr %p, align 4
  call void @__tsan_write4(ptr %p)
  br label %next

next:                                             ; preds = %start
  store i32 %2, ptr %p, align 4
  %4 = atomicrmw umax ptr %p, i32 3 monotonic, align 4
  call void @llvm.memcpy.p0.p0.i64(ptr %0, ptr %p, i64 12, i1 false)
  %5 = call i32 @__tsan_atomic32_load(ptr %p, i32 0)
  ret void
}
",
    );
    assert_eq!(module.seen, 3);
    let places = ["%3 = load", "store i32 %2", "atomicrmw", "@llvm.memcpy"];
    assert_eq!(module.unseen.len(), places.len(), "{:?}", module.unseen);
    for (line, place) in module.unseen.iter().zip(places) {
        assert!(line.contains("kernel: ") && line.contains(place), "{line}");
    }
}
