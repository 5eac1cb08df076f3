//! The commands of the program `ironwarp`, and of Ironwarp's repository where they are the same.
//!
//! A command is a function of what it is about (a [`workspace::Workspace`], or the name of the
//! [`commands::Program`] alone) and the arguments that are left. Nothing is known from the place that this
//! library was compiled in.
//!
//! Some files of the repository are part of what the program writes. `template.txt` lists them, one path a
//! line; the build script takes them from the folder `template/` of this package where there is one, as in a
//! package from crates.io, and else from the repository. `cargo xtask package` copies each file to
//! `template/PATH` while it makes the package.

// First, since its macros count from here on.
#[macro_use]
pub mod print;

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
pub mod workspace;
