//! The checker.
use crate::LaunchConfig;
use crate::exec::context::Thread;
use crate::exec::group::Group;
use crate::fault::AccessKind;
use crate::memory::Scope;
use crate::site::RawSite;
use std::sync::atomic::Ordering;

pub(crate) struct LaunchCheck;
impl LaunchCheck {
    pub fn new(_: &LaunchConfig) -> Self {
        Self
    }
}
#[derive(Default)]
pub(crate) struct BlockCheck;
impl BlockCheck {
    pub fn reset(&self) {}
    pub fn allocated(&self, _: usize, _: usize) {}
}
#[derive(Default)]
pub(crate) struct ThreadCheck;
#[derive(Default)]
pub(crate) struct Released;
impl ThreadCheck {
    pub fn reset(&self) {}
    pub fn release_into(&self, _: &Thread, r: Option<Released>) -> Released {
        r.unwrap_or_default()
    }
}
pub(crate) struct Access {
    pub address: usize,
    pub size: usize,
    pub align: usize,
    pub kind: AccessKind,
    pub site: RawSite,
}
pub(crate) struct Allocations;
impl Allocations {
    pub fn add(_: usize, _: usize, _: &str) {}
    pub fn remove(_: usize) {}
    pub fn forget(_: usize) {}
}
pub(crate) fn typed_access(_: &Thread, a: Access) {
    let _ = (a.address, a.size, a.align, a.kind, a.site);
}
pub(crate) fn atomic_order(_: &Thread, _: usize, _: Ordering, _: Scope) {}
pub(crate) fn fence(_: &Thread, _: Scope) {}
pub(crate) fn copy_arrived(_: &Thread, _: usize, _: usize, _: RawSite) {}
pub(crate) fn synchronise(_: &Thread, _: &[u32], _: Option<Released>) {}
pub(crate) fn synchronise_grid(_: &Group<'_>) {}
