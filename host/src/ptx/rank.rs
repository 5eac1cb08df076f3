//! Which architecture's code fits a device best.

use crate::arch::Arch;

/// How well code fits a device: ordered by compute capability, then by whether it was made for exactly this
/// one.
pub(super) type Rank = (Arch, bool);

/// The candidate of the highest rank on `device`. The others' architectures are noted in `rejected`.
pub(super) fn best_of<C>(
    device: Arch,
    candidates: impl IntoIterator<Item = (String, C)>,
    rejected: &mut Vec<String>,
) -> Option<C> {
    let mut best: Option<(Rank, C)> = None;
    for (name, candidate) in candidates {
        match rank(&name, device) {
            Some(rank) if best.as_ref().is_none_or(|(highest, _)| rank > *highest) => {
                best = Some((rank, candidate));
            }
            Some(_) => {}
            None => rejected.push(name),
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// The rank of PTX for `name` (`sm_80`, `sm_90a`, `sm_100f`) on `device`; `None` when it does not run there.
fn rank(name: &str, device: Arch) -> Option<Rank> {
    let (built, suffix) = parse(name)?;
    let runs = match suffix {
        Some('a') => built == device,
        Some(_) => built.major == device.major && built.minor <= device.minor,
        None => built <= device,
    };
    runs.then_some((built, suffix.is_some()))
}

/// Whether machine code for `name` runs on `device`: within a major version, from its minor version on.
pub(super) fn runs_machine_code(name: &str, device: Arch) -> bool {
    parse(name).is_some_and(|(built, suffix)| match suffix {
        Some('a') => built == device,
        _ => built.major == device.major && built.minor <= device.minor,
    })
}

/// Compute capability and suffix (`a`, `f`) of an architecture's name.
fn parse(name: &str) -> Option<(Arch, Option<char>)> {
    let digits = name.strip_prefix("sm_")?;
    let (digits, suffix) = match digits.strip_suffix(['a', 'f']) {
        Some(number) => (number, digits.chars().last()),
        None => (digits, None),
    };
    let number: u32 = digits.parse().ok()?;
    Some((Arch { major: number / 10, minor: number % 10 }, suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Arch = Arch { major: 9, minor: 0 };
    const B200: Arch = Arch { major: 10, minor: 0 };
    const A10: Arch = Arch { major: 8, minor: 6 };

    fn best(names: &[&str], arch: Arch) -> (Option<String>, Vec<String>) {
        let candidates = names.iter().map(|name| (name.to_string(), name.to_string()));
        let mut rejected = Vec::new();
        let best = best_of(arch, candidates, &mut rejected);
        (best, rejected)
    }

    #[test]
    fn the_highest_that_runs_wins() {
        assert_eq!(best(&["sm_80", "sm_90a"], H200).0.as_deref(), Some("sm_90a"));
        assert_eq!(best(&["sm_90a", "sm_80"], H200).0.as_deref(), Some("sm_90a"));
        assert_eq!(best(&["sm_90", "sm_90a", "sm_80"], H200).0.as_deref(), Some("sm_90a"));
        assert_eq!(best(&["sm_80", "sm_90"], A10), (Some("sm_80".to_owned()), vec!["sm_90".to_owned()]));
    }

    #[test]
    fn an_a_runs_nowhere_else() {
        assert_eq!(best(&["sm_90a", "sm_80"], B200).0.as_deref(), Some("sm_80"));
        assert_eq!(best(&["sm_90a"], A10), (None, vec!["sm_90a".to_owned()]));
    }

    #[test]
    fn an_f_runs_within_its_generation() {
        let b300 = Arch { major: 10, minor: 3 };
        assert_eq!(best(&["sm_100f"], b300).0.as_deref(), Some("sm_100f"));
        assert_eq!(best(&["sm_100f"], Arch { major: 12, minor: 0 }).0, None);
    }

    #[test]
    fn nonsense_is_passed_over() {
        assert_eq!(best(&["", "sm_", "sm_x", "80", "sm_9999999999999"], H200).0, None);
    }

    #[test]
    fn machine_code_runs_within_its_generation() {
        let runs = |name: &str, device| runs_machine_code(name, device);
        assert!(runs("sm_80", A10) && runs("sm_90a", H200) && runs("sm_90", H200));
        assert!(!runs("sm_80", H200), "PTX for sm_80 runs there, its machine code does not");
        assert!(!runs("sm_90a", B200) && !runs("sm_86", Arch { major: 8, minor: 0 }) && !runs("x", H200));
    }
}
