//! One module of those that several compilers have made of the same package, each with some of its kernels.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{ANNOTATION, Module, PtxError, demangle};

/// How the lines begin that every module has for itself.
const OF_THE_MODULE: [&str; 3] = [".version ", ".target ", ".address_size "];

/// Joins modules. What all of them have is there once.
///
/// # Errors
/// When a text is no PTX, or two modules mean something else by the same name.
pub fn join(texts: &[String]) -> Result<Cow<'_, str>, PtxError> {
    let Some((first, others)) = texts.split_first() else { return Ok(Cow::default()) };
    if others.is_empty() {
        return Ok(first.into());
    }
    let mut joined = Joined::default();
    joined.add(first)?;
    for other in others {
        joined.add(other)?;
    }
    Ok(joined.text.into())
}

#[derive(Default)]
struct Joined<'a> {
    text: String,
    /// Variables, and functions with a body or without one, by name.
    known: BTreeMap<(&'a str, Kind), &'a str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Variable,
    Declaration,
    Function,
}

impl<'a> Joined<'a> {
    fn add(&mut self, text: &'a str) -> Result<(), PtxError> {
        let module = Module::parse(text)?;
        let mut copied = 0;
        for function in &module.functions {
            // The compiler's comments on a function stand in front of it.
            let comments = self.outside(&text[copied..function.head.start])?;
            copied = function.body.as_ref().map_or(function.head.end, |body| body.end);
            let kind = if function.body.is_some() { Kind::Function } else { Kind::Declaration };
            let whole = &text[function.head.start..copied];
            // The numbers of labels are those of functions in a module.
            let is_same = |known: &str| unnumbered(known).eq(unnumbered(whole));
            if self.is_new((function.name, kind), whole, is_same)? {
                self.text.extend([&comments, whole, "\n\n"]);
            }
        }
        let comments = self.outside(&text[copied..])?;
        self.text.push_str(&comments);
        Ok(())
    }

    /// Takes the variables and annotations of what lies between functions, and returns the comments behind
    /// the last one.
    fn outside(&mut self, text: &'a str) -> Result<String, PtxError> {
        let mut comments = String::new();
        for line in text.split_inclusive('\n').filter(|line| !line.trim().is_empty()) {
            let is_directive = line.starts_with('.');
            let is_repeated = !self.text.is_empty()
                && OF_THE_MODULE.iter().any(|start| line.starts_with(start) && self.text.contains(start));
            if is_repeated {
                continue;
            }
            let is_new = match variable(line) {
                Some(name) if is_directive => {
                    self.is_new((name, Kind::Variable), line, |known| known == line)?
                }
                _ => true,
            };
            if line.starts_with(ANNOTATION) {
                self.text.push_str(line);
            } else if is_directive && is_new {
                self.text.extend([&*std::mem::take(&mut comments), line]);
            } else if is_new {
                comments.push_str(line);
            }
        }
        Ok(comments)
    }

    fn is_new(
        &mut self,
        key: (&'a str, Kind),
        text: &'a str,
        is_same: impl Fn(&str) -> bool,
    ) -> Result<bool, PtxError> {
        match self.known.insert(key, text) {
            None => Ok(true),
            Some(known) if is_same(known) => Ok(false),
            Some(_) => Err(PtxError::TwoMeanings { name: demangle(key.0) }),
        }
    }
}

/// The name that a line declares: `.global .align 4 .b8 NAME[16] = {..};`
fn variable(line: &str) -> Option<&str> {
    let declared = line.split(['[', '=', ';']).next()?.trim_end();
    let is_variable = [".global ", ".shared ", ".const "].iter().any(|space| line.contains(space));
    declared.rsplit(' ').next().filter(|_| is_variable)
}

/// The text without the numbers of functions in labels: `$L__BB7_2`.
fn unnumbered(text: &str) -> impl Iterator<Item = &str> {
    const LABEL: &str = "$L__BB";
    let mut parts = text.split(LABEL);
    let first = parts.next();
    first.into_iter().chain(parts.map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "//\n// By LLVM\n//\n\n.version 8.0\n.target sm_90a\n.address_size 64\n\n";

    fn entry(name: &str, number: usize) -> String {
        let body = format!("\tmov.b64 %rd1, table_{name};\n$L__BB{number}_1:\n\tbra $L__BB{number}_1;\n");
        format!(
            "\t// .globl\t{name}\n.visible .entry {name}(\n\t.param .b64 {name}_param_0\n)\n{{\n{body}}}\n"
        )
    }

    fn helper(number: usize, instruction: &str) -> String {
        format!("\t// .weak\thelper\n.weak .func helper()\n{{\n$L__BB{number}_1:\n\t{instruction};\n}}\n")
    }

    fn part(kernels: &[&str], from: usize, instruction: &str) -> String {
        let mut text = HEAD.to_owned();
        for name in kernels {
            text += &format!("// @ironwarp kernel={name} max_threads=32 min_blocks=1\n");
        }
        text += ".shared .align 16 .b8 tile[64];\n.func helper();\n.extern .func abort()\n;\n";
        for name in kernels {
            text += &format!(".global .align 4 .b8 table_{name}[4] = {{2, 0, 0, 1}};\n");
        }
        for (at, name) in kernels.iter().enumerate() {
            text += &entry(name, from + at);
        }
        text + &helper(from + kernels.len(), instruction)
    }

    #[test]
    fn every_part_s_kernels_are_there_and_what_is_common_once() {
        let parts = [part(&["a", "b"], 0, "ret"), part(&["c"], 0, "ret"), part(&["d"], 4, "ret")];
        let joined = join(&parts).unwrap();
        let module = Module::parse(&joined).unwrap();
        let names = |is_entry| {
            let with_body = module.functions.iter().filter(|it| it.body.is_some());
            with_body.filter(move |it| it.is_entry == is_entry).map(|it| it.name).collect::<Vec<_>>()
        };
        assert_eq!((names(true), names(false)), (vec!["a", "b", "c", "d"], vec!["helper"]));
        let annotated: Vec<_> = module.annotations.iter().map(|it| it.kernel.as_str()).collect();
        assert_eq!(annotated, ["a", "b", "c", "d"]);
        for once in
            [".version", ".target", ".address_size", "tile[64]", ".func helper();", "abort", ".weak\t"]
        {
            assert_eq!(joined.matches(once).count(), 1, "{once} in\n{joined}");
        }
        for name in ["a", "b", "c", "d"] {
            let table = joined.find(&format!("table_{name}[4]")).unwrap();
            assert!(table < joined.find(&format!("%rd1, table_{name};")).unwrap(), "{name}");
            assert!(joined.contains(&format!("\t// .globl\t{name}\n.visible .entry {name}(")), "{name}");
        }
    }

    #[test]
    fn a_single_module_stays_as_it_is() {
        let text = part(&["a"], 3, "ret");
        assert_eq!(join(std::slice::from_ref(&text)).unwrap(), text);
        assert_eq!(join(&[]).unwrap(), "");
    }

    #[test]
    fn a_name_with_two_meanings_is_refused() {
        let first = part(&["a"], 0, "ret");
        let others = [
            (part(&["c"], 0, "trap"), "helper"),
            (part(&["c"], 0, "ret").replace("tile[64]", "tile[32]"), "tile"),
            (part(&["c"], 0, "ret").replace(".func abort()", ".func abort(.param .b32 code)"), "abort"),
            (part(&["a"], 0, "ret").replace("{2, 0,", "{3, 0,"), "table_a"),
        ];
        for (other, name) in others {
            let told = join(&[first.clone(), other]).unwrap_err();
            assert_eq!(told, PtxError::TwoMeanings { name: name.to_owned() });
        }
        assert!(join(&[first, "gcc".to_owned()]).is_err());
    }
}
