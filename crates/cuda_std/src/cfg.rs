//! Which architecture the code is compiled for.

/// A compute capability, in the order of their generations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // The names are the documentation.
pub enum ComputeCapability {
    Compute35,
    Compute37,
    Compute50,
    Compute52,
    Compute53,
    Compute60,
    Compute61,
    Compute62,
    Compute70,
    Compute72,
    Compute75,
    Compute80,
    Compute86,
    Compute87,
    Compute88,
    Compute89,
    Compute90,
    Compute100,
    Compute101,
    Compute103,
    Compute110,
    Compute120,
    Compute121,
}

/// The first of the listed architectures that the compiler was given, under any of its spellings (`90`,
/// `90a`, ..).
macro_rules! compiled_for {
    ($($capability:ident: $($sm:literal)+;)*) => {{
        $(if $(cfg!(ironwarp_sm = $sm))||+ {
            return ComputeCapability::$capability;
        })*
    }};
}

impl ComputeCapability {
    /// The architecture that the device compiler builds for. It is a constant, so a branch on it costs
    /// nothing.
    ///
    /// `cuda_builder` passes the architecture as `--cfg ironwarp_sm="80"`, and as Rust-CUDA's `--cfg
    /// target_feature="compute_80"`, one for each architecture up to it. Code built by other means counts as
    /// [`Compute70`](Self::Compute70), the oldest that the device compiler supports. On the host it is
    /// [`Compute90`](Self::Compute90), which is what the executor models.
    ///
    /// The name is Rust-CUDA's, which takes the architecture from an environment variable.
    #[inline(always)]
    pub const fn from_cuda_arch_env() -> Self {
        compiled_for! {
            Compute121: "121" "121a" "121f";
            Compute120: "120" "120a" "120f";
            Compute110: "110" "110a" "110f";
            Compute103: "103" "103a" "103f";
            Compute101: "101" "101a" "101f";
            Compute100: "100" "100a" "100f";
            Compute90: "90" "90a";
            Compute89: "89";
            Compute88: "88";
            Compute87: "87";
            Compute86: "86";
            Compute80: "80";
            Compute75: "75";
            Compute72: "72";
            Compute70: "70";
            Compute62: "62";
            Compute61: "61";
            Compute60: "60";
            Compute53: "53";
            Compute52: "52";
            Compute50: "50";
            Compute37: "37";
            Compute35: "35";
        }
        if cfg!(target_arch = "nvptx64") { Self::Compute70 } else { Self::Compute90 }
    }
}
