//! PTX text in parts: its kernels, and what they share.

/// A PTX module in parts.
#[derive(Debug, PartialEq, Eq)]
pub struct Parts<'a> {
    /// Everything but the kernels: version, target, constants, functions.
    pub common: String,
    /// Name and text of each kernel, in order.
    pub entries: Vec<(&'a str, &'a str)>,
}

impl Parts<'_> {
    /// A module with one of the kernels; with none if it has no such kernel.
    ///
    /// Dynamic shared memory is declared only where the module uses it: the compiler would round the kernel's
    /// static shared memory up to its alignment.
    pub fn with_entry(self, kernel: &str) -> String {
        let Some((_, text)) = self.entries.iter().find(|(name, _)| *name == kernel) else {
            return self.common;
        };
        let is_unused = |line: &str| {
            dynamic_memory(line)
                .is_some_and(|name| !text.contains(name) && self.common.matches(name).count() == 1)
        };
        let mut module: String = self.common.split_inclusive('\n').filter(|line| !is_unused(line)).collect();
        module.push_str(text);
        module
    }
}

/// The name of the dynamic shared memory that this line declares.
fn dynamic_memory(line: &str) -> Option<&str> {
    let rest = line.strip_prefix(".extern .shared ")?.split_once(" .b8 ")?.1;
    Some(rest.split_once("[];")?.0)
}

/// Takes a PTX module apart.
pub fn split(ptx: &str) -> Parts<'_> {
    let mut parts = Parts { common: String::new(), entries: Vec::new() };
    let mut rest = ptx;
    let mut position = 0;
    while let Some(line) = rest.split_inclusive('\n').next() {
        let length = match entry_name(line) {
            Some(name) => {
                let length = entry_length(rest);
                parts.entries.push((name, &ptx[position..position + length]));
                length
            }
            None => {
                parts.common.push_str(line);
                line.len()
            }
        };
        position += length;
        rest = &ptx[position..];
    }
    parts
}

/// The name of the kernel that begins in this line.
fn entry_name(line: &str) -> Option<&str> {
    let rest = line.strip_prefix(".visible ").unwrap_or(line).strip_prefix(".entry ")?;
    rest.split(|c: char| c == '(' || c.is_whitespace()).find(|name| !name.is_empty())
}

/// Bytes of the kernel that the text begins with, to the end of the line that closes its body. Inline
/// assembly has braces of its own, also at the start of lines.
fn entry_length(text: &str) -> usize {
    let (mut depth, mut length) = (0_usize, 0);
    for line in text.split_inclusive('\n') {
        length += line.len();
        let code = line.split("//").next().unwrap_or_default();
        for bracket in code.bytes().filter(|byte| matches!(byte, b'{' | b'}')) {
            depth = if bracket == b'{' { depth + 1 } else { depth.saturating_sub(1) };
            if depth == 0 {
                return length;
            }
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(name: &str) -> String {
        format!(
            ".visible .entry {name}(\n\t.param .u32 {name}_param_0\n)\n.maxntid 32, 1, 1\n{{\n\t{{ .reg .pred p; }}\n{{\n.reg .pred q; // }}\n}}\n\tret;\n}}\n"
        )
    }

    #[test]
    fn one_entry_is_kept_whole() {
        let shared =
            "// ironwarp family=f arch=sm_80\n.version 7.0\n.global .u32 x;\n.func g()\n{\n\tret;\n}\n";
        let text = format!(
            "{shared}{}{}// end of ab\n{}",
            body("a"),
            body("ab"),
            body("b").replace(".visible ", "")
        );
        let parts = split(&text);
        assert_eq!(parts.common, format!("{shared}// end of ab\n"));
        assert_eq!(parts.entries.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["a", "ab", "b"]);
        assert_eq!(parts.entries[1].1, body("ab"));
        assert_eq!(split(&text).with_entry("ab"), format!("{shared}// end of ab\n{}", body("ab")));
        assert_eq!(split(&text).with_entry("c").matches(".entry").count(), 0);
    }

    #[test]
    fn dynamic_shared_memory_is_declared_where_it_is_used() {
        let declared = ".version 7.0\n.extern .shared .align 1024 .b8 dynamic[];\n";
        let uses = body("b").replace("ret;", "mov.u64 %rd1, dynamic;");
        let text = format!("{declared}{}{uses}", body("a"));
        assert_eq!(split(&text).with_entry("a"), format!(".version 7.0\n{}", body("a")));
        assert_eq!(split(&text).with_entry("b"), format!("{declared}{uses}"));
        let function = ".func g()\n{\n\tmov.u64 %rd1, dynamic;\n}\n";
        let text = format!("{declared}{function}{}", body("a"));
        assert_eq!(split(&text).with_entry("a"), text);
    }

    #[test]
    fn text_without_kernels_is_common() {
        for text in ["", "// ironwarp family=f arch=sm_90a\n", "no newline"] {
            assert_eq!(split(text), Parts { common: text.to_owned(), entries: Vec::new() });
        }
    }

    #[test]
    fn an_unfinished_kernel_ends_with_the_text() {
        let text = ".entry a(\n)\n{\n\tret;\n";
        assert_eq!(split(text).entries, [("a", text)]);
    }
}
