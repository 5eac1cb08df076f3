//! Slurm's lists of nodes: `gpu[01-03,7],login`.

/// The longest list. Slurm's own limit is of that order.
pub const MAX_NODES: usize = 65_536;

/// The names of a list, in order. Several brackets in a name vary like digits, the last fastest.
///
/// # Errors
/// With what is wrong with the list.
pub fn expand(list: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for word in split(list)? {
        if word.is_empty() {
            return Err("a name is empty".to_owned());
        }
        names.extend(expand_word(word)?);
        if names.len() > MAX_NODES {
            return Err(too_many());
        }
    }
    Ok(names)
}

fn too_many() -> String {
    format!("more than {MAX_NODES} nodes")
}

/// The words between commas that are in no brackets.
fn split(list: &str) -> Result<Vec<&str>, String> {
    let (mut words, mut begin, mut inside) = (Vec::new(), 0, false);
    for (at, letter) in list.char_indices() {
        match letter {
            '[' if inside => return Err("a bracket in a bracket".to_owned()),
            ']' if !inside => return Err("`]` without `[`".to_owned()),
            '[' | ']' => inside = letter == '[',
            ',' if !inside => {
                words.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err("`[` without `]`".to_owned());
    }
    words.push(&list[begin..]);
    Ok(words)
}

fn expand_word(word: &str) -> Result<Vec<String>, String> {
    let mut names = vec![String::new()];
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, behind) = after.split_once(']').unwrap_or((after, ""));
        let numbers = numbers(inside)?;
        if names.len().saturating_mul(numbers.len()) > MAX_NODES {
            return Err(too_many());
        }
        names =
            names.iter().flat_map(|name| numbers.iter().map(move |n| format!("{name}{before}{n}"))).collect();
        rest = behind;
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    Ok(names)
}

/// `01-03,7` is 01, 02, 03, 7: as many digits as the lower end has.
fn numbers(inside: &str) -> Result<Vec<String>, String> {
    let mut numbers = Vec::new();
    for part in inside.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let parse = |text: &str| match text.parse::<u64>() {
            Ok(number) if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(number),
            _ => Err(format!("{text:?} is no number")),
        };
        let (first, last) = (parse(low)?, parse(high)?);
        if first > last {
            return Err(format!("{part:?} goes backwards"));
        }
        if last - first >= MAX_NODES as u64 || numbers.len() > MAX_NODES {
            return Err(too_many());
        }
        numbers.extend((first..=last).map(|number| format!("{number:0width$}", width = low.len())));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_expanded() {
        for (list, names) in [
            ("node7", "node7"),
            ("a,b,c", "a b c"),
            ("gpu[01-03,7],login", "gpu01 gpu02 gpu03 gpu7 login"),
            ("r[1-2]n[08-10]-ib", "r1n08-ib r1n09-ib r1n10-ib r2n08-ib r2n09-ib r2n10-ib"),
            ("n[098-101]", "n098 n099 n100 n101"),
            ("a[5]", "a5"),
        ] {
            assert_eq!(expand(list).unwrap().join(" "), names);
        }
    }

    #[test]
    fn wrong_lists_are_refused() {
        for (list, why) in [
            ("", "empty"),
            ("a,,b", "empty"),
            ("a[1", "without `]`"),
            ("a1]", "without `[`"),
            ("a[[1]]", "in a bracket"),
            ("a[]", "no number"),
            ("a[1-]", "no number"),
            ("a[x-y]", "no number"),
            ("a[+1-2]", "no number"),
            ("a[3-1]", "backwards"),
            ("a[0-99999999]", "more than"),
            ("a[0-18446744073709551615]", "more than"),
            ("a[0-999]b[0-999]", "more than"),
            ("a[99999999999999999999]", "no number"),
        ] {
            let error = expand(list).unwrap_err();
            assert!(error.contains(why), "{list}: {error}");
        }
    }
}
