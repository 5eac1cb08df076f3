//! GPU architectures by their PTX names.

use std::fmt;
use std::str::FromStr;

/// An architecture such as `sm_80` or `sm_90a`.
///
/// A suffix `a` stands for features that later architectures do not keep: `sm_90a` code runs on compute
/// capability 9.0 alone, `sm_80` code on 8.0 and everything after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arch {
    /// Compute capability as one number: 80, 90, 103.
    pub capability: u16,
    /// `a` (this architecture alone) or `f` (this family), if given.
    pub suffix: Option<char>,
}

/// Text that names no architecture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no GPU architecture: wanted sm_NN, sm_NNa or sm_NNf, such as sm_80 or sm_90a")]
pub struct ParseArchError(pub String);

/// The compute capabilities that have a name `compute_NN` in Rust-CUDA.
pub const COMPUTE: [u16; 23] =
    [35, 37, 50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121];

impl Arch {
    /// The names `compute_NN` of its own capability and of all before it, and its own name with the suffix.
    pub fn compute_features(self) -> impl Iterator<Item = String> {
        let before = COMPUTE.into_iter().filter(move |&capability| capability <= self.capability);
        let own = self.suffix.map(|suffix| format!("compute_{}{suffix}", self.capability));
        before.map(|capability| format!("compute_{capability}")).chain(own)
    }

    /// An architecture without suffix.
    pub const fn new(capability: u16) -> Self {
        Self { capability, suffix: None }
    }
}

/// `sm_75`, as in Rust-CUDA: PTX for it runs on Turing and everything after it. Kernels with `cp.async`, bf16
/// or tf32 name `sm_80`, and the builder says so.
impl Default for Arch {
    fn default() -> Self {
        Self::new(75)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.capability)?;
        self.suffix.map_or(Ok(()), |suffix| write!(f, "{suffix}"))
    }
}

impl FromStr for Arch {
    type Err = ParseArchError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let rest = text.trim().strip_prefix("sm_")?;
            let (digits, suffix) = match rest.strip_suffix(['a', 'f']) {
                Some(digits) => (digits, rest.chars().last()),
                None => (rest, None),
            };
            let plausible = (2..=3).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
            plausible.then(|| digits.parse().ok()).flatten().map(|capability| Self { capability, suffix })
        };
        parse().ok_or_else(|| ParseArchError(text.to_owned()))
    }
}

macro_rules! nvvm_archs {
    ($($variant:ident = $capability:literal $suffix:literal,)*) => {
        /// Architectures under the names that Rust-CUDA's build scripts use.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs)] // the names say it all
        pub enum NvvmArch { $($variant,)* }

        impl From<NvvmArch> for Arch {
            fn from(arch: NvvmArch) -> Self {
                match arch { $(NvvmArch::$variant => Arch { capability: $capability, suffix: $suffix.chars().next() },)* }
            }
        }
    };
}

nvvm_archs! {
    Compute35 = 35 "",
    Compute37 = 37 "",
    Compute50 = 50 "",
    Compute52 = 52 "",
    Compute53 = 53 "",
    Compute60 = 60 "",
    Compute61 = 61 "",
    Compute62 = 62 "",
    Compute70 = 70 "",
    Compute72 = 72 "",
    Compute75 = 75 "",
    Compute80 = 80 "",
    Compute86 = 86 "",
    Compute87 = 87 "",
    Compute88 = 88 "",
    Compute89 = 89 "",
    Compute90 = 90 "",
    Compute90a = 90 "a",
    Compute100 = 100 "",
    Compute100a = 100 "a",
    Compute100f = 100 "f",
    Compute101 = 101 "",
    Compute101a = 101 "a",
    Compute101f = 101 "f",
    Compute103 = 103 "",
    Compute103a = 103 "a",
    Compute103f = 103 "f",
    Compute110 = 110 "",
    Compute110a = 110 "a",
    Compute110f = 110 "f",
    Compute120 = 120 "",
    Compute120a = 120 "a",
    Compute120f = 120 "f",
    Compute121 = 121 "",
    Compute121a = 121 "a",
    Compute121f = 121 "f",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_round_trip() {
        for name in ["sm_80", "sm_90a", "sm_100f", "sm_103", "sm_120a"] {
            assert_eq!(name.parse::<Arch>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn other_text_is_refused() {
        for name in ["", "80", "sm80", "sm_", "sm_a", "sm_9", "sm_90b", "sm_9999", "compute_80", "sm_-8"] {
            assert_eq!(name.parse::<Arch>(), Err(ParseArchError(name.to_owned())));
        }
    }

    #[test]
    fn rust_cuda_names_map_to_ptx_names() {
        assert_eq!(Arch::from(NvvmArch::Compute75).to_string(), "sm_75");
        assert_eq!(Arch::from(NvvmArch::Compute90a).to_string(), "sm_90a");
    }
}
