//! The layers of the host package: a module uses only modules to its left.

use std::collections::BTreeMap;

use super::Source;

/// The modules of `host/src` in their order: each may use those before it.
const LAYERS: &[&str] = &[
    "extensions",
    "arch",
    "config",
    "error",
    "sys",
    "raw",
    "environment",
    "replace",
    "device",
    "stream",
    "memory",
    "tma",
    "ptx",
    "module",
    "launch",
    "graph",
    "interop",
    "tensor",
    "ops",
    "methods",
    "parallel",
];
const FOLDER: &str = "host/src/";
/// Files without a layer: they name all of them.
const ROOT: &[&str] = &["host/src/lib.rs", "host/src/book.rs"];

/// Every use of a module to the right of its own, a sentence each.
pub fn check(sources: &[Source]) -> Vec<String> {
    let root = sources.iter().find(|source| source.path == "host/src/lib.rs");
    let names = root.map(|root| exported(&root.code)).unwrap_or_default();
    sources.iter().flat_map(|source| check_one(source, &names)).collect()
}

fn check_one(source: &Source, names: &BTreeMap<String, String>) -> Vec<String> {
    let Some(path) = source.path.strip_prefix(FOLDER).filter(|_| !ROOT.contains(&source.path.as_str()))
    else {
        return Vec::new();
    };
    let module = path.split(['/', '.']).next().unwrap_or_default();
    let Some(own) = place(module) else {
        return vec![format!(
            "{}: `{module}` has no layer; give it one in xtask/src/tidy/layers.rs",
            source.path
        )];
    };
    // Unit tests stand at the end of a file and use what they like.
    let code = source.code.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let mut findings = Vec::new();
    for (at, _) in code.match_indices("crate::").filter(|(at, _)| !is_inside_name(code, *at)) {
        let line = code[..at].matches('\n').count() + 1;
        for name in first_names(&code[at + "crate::".len()..]) {
            let used = names.get(&name).map_or(name.as_str(), String::as_str);
            match place(used) {
                Some(place) if place > own => findings.push(format!(
                    "{}:{line}: `{module}` uses `{used}`, which is to its right: {}",
                    source.path,
                    LAYERS.join(", ")
                )),
                Some(_) => {}
                None => findings.push(format!("{}:{line}: `crate::{name}` is in no layer", source.path)),
            }
        }
    }
    findings
}

fn place(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| *layer == module)
}

/// Is this the end of a longer word or path, such as `$crate::` or `my_crate::`?
fn is_inside_name(code: &str, at: usize) -> bool {
    code[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | ':'))
}

/// The names that follow `crate::`: one, or those of a list in braces.
fn first_names(rest: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let Some(list) = rest.strip_prefix('{') else { return vec![word(rest)] };
    let (mut names, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(word(&list[begin..at]));
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// The names that the root exports, each with the module that it is from.
fn exported(root: &str) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for statement in root.split(';').filter_map(|text| text.split("pub use ").nth(1)) {
        let path = statement.strip_prefix("crate::").unwrap_or(statement);
        let Some((module, items)) = path.split_once("::") else { continue };
        let items = items.trim_start_matches('{').trim_end_matches('}');
        let own = items.split(',').filter_map(|item| item.rsplit("::").next()).map(str::trim);
        names.extend(own.filter(|item| !item.is_empty()).map(|item| (item.to_owned(), module.to_owned())));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "pub use device::{Arch, Device};\npub use crate::tensor::{\n    DType, Tensor,\n};\npub use launch::launch;\n";

    fn findings(path: &str, text: &str) -> Vec<String> {
        check(&[Source::new("host/src/lib.rs", ROOT), Source::new(path, text)])
    }

    #[test]
    fn uses_of_modules_to_the_right_are_found() {
        for (path, text) in [
            ("host/src/memory/view.rs", "use crate::graph::Graph;\n"),
            ("host/src/stream/mod.rs", "fn f(x: crate::memory::Heap) {}\n"),
            ("host/src/error.rs", "struct E {\n    t: crate::Tensor,\n}\n"),
            ("host/src/device.rs", "use crate::{\n    error::{Error, Result},\n    launch::LaunchLog,\n};\n"),
            ("host/src/error/mod.rs", "pub use crate::{DType};\n"),
            ("host/src/tensor/mod.rs", "use crate::nowhere::X;\n"),
            ("host/src/novel.rs", ""),
        ] {
            assert_eq!(findings(path, text).len(), 1, "{path}: {text}");
        }
    }

    #[test]
    fn uses_of_modules_to_the_left_pass() {
        for (path, text) in [
            ("host/src/memory/view.rs", "use crate::stream::Stream;\nuse crate::memory::Use;\n"),
            ("host/src/ops/fill.rs", "use crate::{Device, tensor::{DType, Tensor}, launch};\n"),
            (
                "host/src/device.rs",
                "// crate::graph\nconst X: &str = \"crate::graph\";\nuse other_crate::graph;\n",
            ),
            ("host/src/memory/uses.rs", "#[cfg(test)]\nmod tests {\n    use crate::graph::Graph;\n}\n"),
            ("benches/src/lib.rs", "use crate::anything;\n"),
        ] {
            assert_eq!(findings(path, text), Vec::<String>::new(), "{path}");
        }
    }
}
