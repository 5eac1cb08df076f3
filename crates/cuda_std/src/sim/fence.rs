//! Fences between the proxies, and for the cluster.

use simt::memory::{self, Scope};

#[track_caller]
pub fn proxy_async() {
    memory::proxy_fence();
}

#[track_caller]
pub fn proxy_async_shared() {
    memory::proxy_fence();
}

#[track_caller]
pub fn cluster() {
    memory::fence(Scope::Cluster);
}
