//! The environment variables that are set, and those of them that the book's list does not have.

use std::env;

use crate::doctor::{Finding, Level};
use crate::term;

const PREFIX: &str = concat!("IRONWARP", "_");

/// Names behind the prefix, of every variable on the book's page `Environment variables`.
const KNOWN: &str = "ADDRESS ALLOCATOR ALLOCATOR_DEBUG CHECK CHECKED DEVICE_RUSTC DRIVER FAULT GEMM GEMM_RECORD GENERATION
JOIN_TIMEOUT LAUNCH_BLOCKING LIBCUDA LOCAL_RANK LOCAL_SIZE NCCL NODE PTXAS PTX_DIR RANK RECORDS SEED SIZE SOFT_ARCH
SOFT_DEVICES SOFT_MEMORY TIMEOUT TOKEN TUNER_RECORDS TUNING WORKERS";

/// Which variables are set, and whether they are on the page. Tests and tools of Ironwarp read others too.
pub fn look() -> Finding {
    let names =
        env::vars_os().filter_map(|(name, value)| name.into_string().ok().filter(|_| !value.is_empty()));
    let mut names: Vec<String> = names.filter(|name| name.starts_with(PREFIX)).collect();
    names.sort_unstable();
    finding(&names)
}

/// The names alone: a value may be a secret.
fn finding(set: &[String]) -> Finding {
    let is_known =
        |name: &&String| KNOWN.split_whitespace().any(|known| name.strip_prefix(PREFIX) == Some(known));
    let unlisted = set.iter().filter(|name| !is_known(name)).map(|name| {
        let nearest = term::nearest(name.trim_start_matches(PREFIX), KNOWN.split_whitespace());
        let meant = nearest.map(|nearest| format!("; did you mean {PREFIX}{nearest}?")).unwrap_or_default();
        format!("{name} is not in the book's list{meant}")
    });
    let unlisted: Vec<String> = unlisted.collect();
    if unlisted.is_empty() {
        let set = if set.is_empty() { "none is set".to_owned() } else { set.join(", ") };
        return Finding::ok("variables", set);
    }
    let fix =
        "unset it, or give it the name that was meant; the list is the book's page `Environment variables`";
    Finding::bad("variables", Level::Warn, unlisted.join(", "), fix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;

    #[test]
    fn the_books_variables_are_known() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/book/src/environment.md");
        let page = fs::read_to_string(page).expect("the page");
        let named: BTreeSet<&str> = page
            .split('`')
            .filter_map(|name| name.strip_prefix(PREFIX))
            .filter(|name| !name.contains('='))
            .collect();
        assert_eq!(KNOWN.split_whitespace().collect::<BTreeSet<_>>(), named);
    }

    #[test]
    fn a_variable_that_is_not_listed_is_told() {
        let told = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| format!("{PREFIX}{name}")).collect();
            format!("{:?}", finding(&names))
        };
        assert!(told(&[]).contains("none is set"));
        assert!(told(&["SEED", "TOKEN"]).contains("level: Ok"), "all are listed");
        let text = told(&["SEED", "SOFT_DEVICE", "ELSE_WHERE"]);
        let meant = format!(
            "{PREFIX}SOFT_DEVICE is not in the book's list; did you mean {PREFIX}SOFT_DEVICES?, {PREFIX}ELSE_WHERE is not in the \
             book's list\""
        );
        assert!(text.contains("level: Warn") && text.contains(&meant), "{text}");
    }
}
