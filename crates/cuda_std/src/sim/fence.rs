//! Fences between the proxies, and for the cluster.

#[track_caller]
pub fn proxy_async() {
    simt::trap("fence::proxy_async is not modelled yet")
}

#[track_caller]
pub fn proxy_async_shared() {
    simt::trap("fence::proxy_async_shared is not modelled yet")
}

#[track_caller]
pub fn cluster() {
    simt::trap("fence::cluster is not modelled yet")
}
