//! Kernels compiled natively into this program, by name.

use std::ffi::c_void;
use std::sync::{PoisonError, RwLock};

use thiserror::Error;

/// Name, size and alignment of one kernel parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamLayout {
    /// Its name in the source; both parts of a slice have the slice's. Empty if it has none.
    pub name: &'static str,
    /// Bytes.
    pub size: usize,
    /// Bytes, a power of two.
    pub align: usize,
}

impl ParamLayout {
    /// Layout of `T`, without a name.
    pub const fn of<T>() -> Self {
        assert!(size_of::<T>() > 0, "a kernel's parameter has a size: devices leave out those without one");
        Self { name: "", size: size_of::<T>(), align: align_of::<T>() }
    }

    /// The same under a name.
    #[must_use]
    pub const fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }
}

/// Launch limits that a kernel was compiled with; 0 means not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchBounds {
    /// Most threads a block.
    pub max_threads: u32,
    /// Fewest blocks an SM should hold.
    pub min_blocks: u32,
}

/// A kernel in its native form.
#[derive(Clone, Copy, Debug)]
pub struct KernelEntry {
    /// Name of the function.
    pub name: &'static str,
    /// Crate that holds it.
    pub family: &'static str,
    /// Source file of the function.
    pub file: &'static str,
    /// Line of the function.
    pub line: u32,
    /// Parameters in order, slices already split into pointer and length.
    pub params: &'static [ParamLayout],
    /// Launch limits.
    pub bounds: LaunchBounds,
    /// Whether its package was compiled with the checker's callbacks.
    pub checked: bool,
    /// Reads the parameters and calls the body once, for the current simulated thread.
    ///
    /// # Safety
    /// The argument points to `params.len()` pointers, each to a value of that parameter's type.
    pub invoke: unsafe fn(*const *const c_void),
}

/// A package's word on one of its kernels. `#[kernel]` submits one with [`inventory`].
#[derive(Clone, Copy, Debug)]
pub enum Registration {
    /// The kernel is part of every program that links the package.
    Linked(&'static KernelEntry),
    /// The kernel's code is part of the programs alone that name its type, which then call [`link`].
    WhenUsed {
        /// Name of the function.
        name: &'static str,
        /// Crate that holds it.
        family: &'static str,
    },
}

inventory::collect!(Registration);

/// The kernels that [`link`] has added.
static USED: RwLock<Vec<&'static KernelEntry>> = RwLock::new(Vec::new());

/// Adds a kernel that is [`Registration::WhenUsed`]. Others, and those that were added before, stay as they
/// are.
pub fn link(entry: &'static KernelEntry) {
    let is_it = |family: &str, name: &str| (family, name) == (entry.family, entry.name);
    let waits = registrations().any(|registration| match *registration {
        Registration::Linked(_) => false,
        Registration::WhenUsed { name, family } => is_it(family, name),
    });
    let mut used = USED.write().unwrap_or_else(PoisonError::into_inner);
    if waits && !used.iter().any(|other| is_it(other.family, other.name)) {
        used.push(entry);
    }
}

/// The reason why no kernel was found.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FindError {
    /// No linked package has a kernel of that name.
    #[error(
        "no kernel `{name}`{} is linked into this program (linked: {}); \
         add the package that defines it as a dependency and name something of it, so that the linker keeps it",
        in_family(.family), list(.known)
    )]
    NotFound {
        /// Family that was asked for.
        family: Option<String>,
        /// Name that was asked for.
        name: String,
        /// Kernels of the program, as `family::name`.
        known: Vec<String>,
    },
    /// A package has a kernel of that name, but the program does not use it.
    #[error(
        "kernel `{name}` of family `{family}` is linked into the programs alone that name its type: launch it by \
         its type, or call `Device::kernel::<{name}>()` first"
    )]
    Unused {
        /// Its family.
        family: &'static str,
        /// Its name.
        name: String,
    },
    /// Several packages have a kernel of that name.
    #[error("kernel `{name}` exists in several families ({}); say which one is meant", .families.join(", "))]
    Ambiguous {
        /// Name that was asked for.
        name: String,
        /// Families that have it.
        families: Vec<String>,
    },
    /// One package has several kernels of that name.
    #[error("{} kernels of `{family}` are called `{name}`: {}; rename all but one", .sites.len(), .sites.join(", "))]
    Twice {
        /// The package's library.
        family: &'static str,
        /// Name that was asked for.
        name: String,
        /// Their files and lines.
        sites: Vec<String>,
    },
}

fn in_family(family: &Option<String>) -> String {
    family.as_ref().map(|family| format!(" in family `{family}`")).unwrap_or_default()
}

fn list(known: &[String]) -> String {
    const SHOWN: usize = 12;
    match known.len() {
        0 => "none".into(),
        n if n <= SHOWN => known.join(", "),
        n => format!("{} and {} more", known[..SHOWN].join(", "), n - SHOWN),
    }
}

/// All kernels whose code can run in this program.
pub fn kernels() -> impl Iterator<Item = &'static KernelEntry> {
    let linked = registrations().filter_map(|registration| match registration {
        Registration::Linked(entry) => Some(*entry),
        Registration::WhenUsed { .. } => None,
    });
    linked.chain(USED.read().unwrap_or_else(PoisonError::into_inner).clone())
}

/// Family and name of the kernels of all packages of this program, in use or not.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    registrations().map(|registration| match *registration {
        Registration::Linked(entry) => (entry.family, entry.name),
        Registration::WhenUsed { name, family } => (family, name),
    })
}

fn registrations() -> impl Iterator<Item = &'static Registration> {
    inventory::iter::<Registration>.into_iter()
}

/// The kernel `name`, of `family` when given.
///
/// # Errors
/// When there is no such kernel, when several families have one and `family` is `None`, or when one family
/// has several.
pub fn find(family: Option<&str>, name: &str) -> Result<&'static KernelEntry, FindError> {
    let mut found: Vec<_> = kernels()
        .filter(|kernel| kernel.name == name && family.is_none_or(|family| family == kernel.family))
        .collect();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => {
            let meant = |(_, kernel): &(&str, &str)| *kernel == name;
            let unused = names().filter(meant).find(|(of, _)| family.is_none_or(|family| family == *of));
            if let Some((family, _)) = unused {
                return Err(FindError::Unused { family, name: name.into() });
            }
            let mut known: Vec<_> =
                kernels().map(|kernel| format!("{}::{}", kernel.family, kernel.name)).collect();
            known.sort();
            Err(FindError::NotFound { family: family.map(Into::into), name: name.into(), known })
        }
        _ if found.iter().all(|kernel| kernel.family == found[0].family) => {
            let mut sites: Vec<_> =
                found.iter().map(|kernel| format!("{}:{}", kernel.file, kernel.line)).collect();
            sites.sort();
            Err(FindError::Twice { family: found[0].family, name: name.into(), sites })
        }
        _ => {
            let mut families: Vec<_> = found.iter().map(|kernel| kernel.family.to_string()).collect();
            families.sort();
            Err(FindError::Ambiguous { name: name.into(), families })
        }
    }
}
