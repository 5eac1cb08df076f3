//! `ironwarp launch` with real processes: faults, ends, restarts, and nothing left behind; and the devices
//! that `ironwarp topology` shows them.
//!
//! A rank is this program again, with a variable that says what to do. Every loop ends by itself.

mod faults;
mod life;
mod nodes;
mod place;
mod resume;
mod topology;
mod worker;
