//! The commands of the program `ironwarp`, and of Ironwarp's repository where they are the same.
//!
//! A command is a function of the remaining arguments and of a [`workspace::Workspace`], or of the
//! [`commands::Program`] alone. It uses no path of the place where this library was compiled.
//!
//! The program writes copies of some files of the repository. `template.txt` lists them, one path a line. The
//! build script takes them from the folder `template/` of this package if there is one, as in a package from
//! crates.io, else from the repository. `cargo xtask package` copies each file to `template/PATH` while it
//! makes the package.

// First, since its macros count from here on.
#[macro_use]
pub mod print;

mod around;
pub mod build_kernels;
pub mod cargo;
pub mod commands;
pub mod doctor;
pub mod error;
pub mod inspect;
pub mod ironwarp;
pub mod launch;
mod new_folder;
pub mod new_project;
pub mod port;
pub mod process;
mod settings;
pub mod setup;
pub mod term;
pub mod topology;
mod variables;
pub mod workspace;
