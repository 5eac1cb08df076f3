//! Kernel families whose PTX is missing: who builds it.

/// The families of kernels that this library launches begin with this: no program may put other PTX in their
/// place.
pub(crate) const OWN_FAMILIES: &str = "ironwarp_";

/// How a family gets PTX for the device.
pub(super) fn hint(family: &str) -> &'static str {
    if family.starts_with(OWN_FAMILIES) {
        "run `cargo xtask build-kernels` in Ironwarp's repository; a program from elsewhere finds the PTX if \
         IRONWARP_PTX_DIR names the repository's `target/ptx`"
    } else {
        "in a project that `ironwarp new` wrote: `ironwarp setup`, then `cargo build`; for a folder that the program \
         names: `ironwarp build`, and `Module::load_family` before the first launch; for another architecture: `archs` \
         in the kernels' Cargo.toml"
    }
}

#[cfg(test)]
mod tests {
    use crate::arch::Arch;
    use crate::error::Error;

    #[test]
    fn each_family_has_the_cure_of_its_kind() {
        let text = |family: &str| {
            let arch = Arch { major: 9, minor: 0 };
            Error::KernelNotBuilt { family: family.to_owned(), arch, searched: vec![], found: vec![] }
                .to_string()
        };
        let (own, other) = (text("ironwarp_basic"), text("blur_kernels"));
        assert!(own.contains("`cargo xtask build-kernels`") && own.contains("IRONWARP_PTX_DIR"), "{own}");
        assert!(other.contains("`ironwarp setup`, then `cargo build`"), "{other}");
        assert!(!other.contains("IRONWARP_PTX_DIR") && !own.contains("load_family"), "{own}\n{other}");
    }
}
