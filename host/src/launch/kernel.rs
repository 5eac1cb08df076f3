//! Kernels known by their Rust type.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use cuda_std::kernel::Kernel;

use super::function::{Function, FunctionAttributes, FunctionInner};
use super::tuples::LaunchArgs;
use crate::config::LaunchConfig;
use crate::device::Device;
use crate::error::{Error, OWN_FAMILIES, Result};
use crate::module::Module;
use crate::ptx::PtxSource;
use crate::stream::Stream;

/// A kernel's identity: address and length of its name and of its family's name. Equal keys mean equal names:
/// the lengths tell a name from one that begins at the same address. A name that the compiler stores twice
/// has two keys.
type KernelKey = [usize; 4];

/// A kernel without its type: what looks it up is compiled once, not for each kernel.
#[derive(Clone, Copy)]
struct Wanted {
    name: &'static str,
    family: &'static str,
    /// Has the linker keep the kernel, for the software device.
    link: fn(),
}

impl Wanted {
    fn of<K: Kernel>() -> Self {
        Self { name: K::NAME, family: K::FAMILY, link: cuda_std::kernel::link::<K> }
    }

    fn key(self) -> KernelKey {
        let Self { name, family, .. } = self;
        [name.as_ptr().addr(), name.len(), family.as_ptr().addr(), family.len()]
    }
}

/// Mixes the words of a key; cheaper than hashing names at each launch.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_usize(usize::from(byte));
        }
    }

    fn write_usize(&mut self, word: usize) {
        // An odd constant near 2^64 / golden ratio spreads neighbouring addresses.
        self.0 = (self.0.rotate_left(26) ^ word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The kernels that a device has found so far.
///
/// Each thread remembers the addresses of the kernels that it launched last, so a launch takes no lock and
/// counts no references.
pub(crate) struct FunctionCache {
    found: RwLock<Found>,
    /// The number of the present contents, unique among all devices and times. A thread ignores entries that
    /// it remembered under another number.
    epoch: AtomicU64,
}

#[derive(Default)]
struct Found {
    functions: HashMap<KernelKey, Arc<FunctionInner>, BuildHasherDefault<AddressHasher>>,
    /// Kernels found before a family was loaded. They are kept as long as the device, since a thread may be
    /// launching one.
    outdated: Vec<Arc<FunctionInner>>,
}

/// A kernel that a thread remembers.
#[derive(Clone, Copy)]
struct Remembered {
    epoch: u64,
    key: KernelKey,
    function: *const FunctionInner,
}

/// The number of kernels that a thread remembers; a power of two. Two kernels in one place replace each
/// other.
const REMEMBERED: usize = 64;

thread_local! {
    static LAUNCHED: [Cell<Remembered>; REMEMBERED] = const {
        [const { Cell::new(Remembered { epoch: NO_EPOCH, key: [0; 4], function: std::ptr::null() }) }; REMEMBERED]
    };
}

/// No cache has this epoch.
const NO_EPOCH: u64 = 0;

fn next_epoch() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(NO_EPOCH + 1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Default for FunctionCache {
    fn default() -> Self {
        FunctionCache { found: RwLock::default(), epoch: AtomicU64::new(next_epoch()) }
    }
}

impl FunctionCache {
    /// The kernel; the first call looks it up.
    fn get(&self, device: &Device, kernel: Wanted) -> Result<&FunctionInner> {
        let (key, epoch) = (kernel.key(), self.epoch.load(Ordering::Acquire));
        let mut hasher = AddressHasher::default();
        key.iter().for_each(|&word| hasher.write_usize(word));
        // The upper half is better mixed.
        let place = (hasher.finish() >> 32) as usize % REMEMBERED;
        let remembered = LAUNCHED.with(|places| places[place].get());
        if remembered.epoch == epoch && remembered.key == key {
            // SAFETY: the epoch is this cache's, so the function was found in it, and a cache keeps its
            // functions.
            return Ok(unsafe { &*remembered.function });
        }
        let function = Arc::as_ptr(&self.get_shared(device, kernel)?);
        LAUNCHED.with(|places| places[place].set(Remembered { epoch, key, function }));
        // SAFETY: just found in this cache, which keeps it.
        Ok(unsafe { &*function })
    }

    /// The same, as a handle of its own.
    fn get_shared(&self, device: &Device, kernel: Wanted) -> Result<Arc<FunctionInner>> {
        loop {
            let found = self.found.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(function) = found.functions.get(&kernel.key()) {
                return Ok(function.clone());
            }
            let epoch = self.epoch.load(Ordering::Relaxed);
            drop(found);
            let Wanted { name, family, link } = kernel;
            if device.is_software() {
                link();
            }
            let module = Module::of_kernel(device, family, name)?;
            let function = Arc::new(FunctionInner::find(device, module.inner(), name)?.kept());
            let mut found = self.found.write().unwrap_or_else(PoisonError::into_inner);
            // If a family was loaded meanwhile, this may be the kernel of the one before it.
            if self.epoch.load(Ordering::Relaxed) == epoch {
                // Another thread may have been first: then its entry stays.
                return Ok(found.functions.entry(kernel.key()).or_insert(function).clone());
            }
        }
    }

    /// Forgets all kernels, so that the next look-ups find those of a newly loaded family.
    pub(crate) fn clear(&self) {
        let mut found = self.found.write().unwrap_or_else(PoisonError::into_inner);
        let Found { functions, outdated } = &mut *found;
        outdated.extend(functions.drain().map(|(_, function)| function));
        self.epoch.store(next_epoch(), Ordering::Release);
    }
}

/// The kernel `K`, found on a device: launches through it skip the look-up.
pub struct KernelHandle<K> {
    inner: Arc<FunctionInner>,
    device: Device,
    kernel: PhantomData<fn() -> K>,
}

impl<K> Clone for KernelHandle<K> {
    fn clone(&self) -> Self {
        KernelHandle { inner: self.inner.clone(), device: self.device.clone(), kernel: PhantomData }
    }
}

impl<K: Kernel> KernelHandle<K> {
    /// Its attributes, as the driver gives them.
    pub fn attributes(&self) -> FunctionAttributes {
        self.function().attributes()
    }

    /// The kernel without its type.
    pub fn function(&self) -> Function {
        Function::new(self.inner.clone(), &self.device)
    }

    pub(super) fn inner(&self) -> &Arc<FunctionInner> {
        &self.inner
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Queues the kernel on `stream`. [Prepare](KernelHandle::prepare) a kernel that is launched many times.
    ///
    /// # Safety
    /// As [`launch`].
    ///
    /// # Errors
    /// As [`launch`].
    #[track_caller]
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        args: impl LaunchArgs<K::Params>,
    ) -> Result<()> {
        stream.same_device("the kernel", &self.device)?;
        // SAFETY: the caller's promise.
        unsafe { self.inner.launch::<K::Params>(stream, config, args, Location::caller()) }
    }
}

impl Device {
    fn functions(&self) -> &FunctionCache {
        self.extension(FunctionCache::default)
    }

    /// Finds the kernel `K`, loading its PTX the first time.
    ///
    /// # Errors
    /// [`crate::Error::KernelNotBuilt`], [`crate::Error::NoSuchKernel`], [`crate::Error::InvalidModule`], or
    /// the driver's error.
    pub fn kernel<K: Kernel>(&self) -> Result<KernelHandle<K>> {
        Ok(KernelHandle {
            inner: self.functions().get_shared(self, Wanted::of::<K>())?,
            device: self.clone(),
            kernel: PhantomData,
        })
    }
}

/// Queues the kernel `K` on `stream`, with arguments that the compiler has checked against the kernel's
/// parameters.
///
/// The kernel is loaded at its first launch on a device. With `IRONWARP_LAUNCH_BLOCKING=1` every launch waits
/// for its kernel, so that an error names the launch that caused it.
///
/// # Safety
/// The kernel, so launched, stays within the memory that it is given, does not race, and leaves valid values
/// of the buffers' types. Its own `# Safety` section says what it needs.
///
/// # Errors
/// [`crate::Error::LaunchLimit`], [`crate::Error::DeviceMismatch`], [`crate::Error::KernelNotBuilt`], or the
/// driver's error. A later call returns the errors that happen while the kernel runs.
#[track_caller]
pub unsafe fn launch<K: Kernel>(
    stream: &Stream,
    config: LaunchConfig,
    args: impl LaunchArgs<K::Params>,
) -> Result<()> {
    let device = stream.device();
    let function = device.functions().get(device, Wanted::of::<K>())?;
    // SAFETY: the caller's promise.
    unsafe { function.launch::<K::Params>(stream, config, args, Location::caller()) }
}

/// Clusters of the kernel `K` that fit on the stream's device at once, in such a launch.
///
/// # Errors
/// As [`launch`].
pub(crate) fn resident_clusters<K: Kernel>(stream: &Stream, config: LaunchConfig) -> Result<u32> {
    let device = stream.device();
    device.functions().get(device, Wanted::of::<K>())?.resident_clusters(stream, &config)
}

impl Module {
    /// As [`Module::from_source`]. From now on [`launch`](crate::launch()) finds the family's kernels in this
    /// module, by their types. A program calls this once for each package of kernels that it brings along;
    /// ironwarp's own need no loading.
    ///
    /// # Safety
    /// The PTX was built from the Rust crate `family` that the program links: each of its kernels has the
    /// parameters that the kernel's type says, and does what its Rust source does. A launch checks its
    /// arguments against the type alone.
    ///
    /// # Errors
    /// [`Error::OwnFamily`] for a family of ironwarp's, or as [`Module::from_source`].
    pub unsafe fn load_family(device: &Device, family: &str, source: PtxSource) -> Result<Module> {
        if family.starts_with(OWN_FAMILIES) {
            return Err(Error::OwnFamily { family: family.to_owned() });
        }
        let module = Self::from_source(device, family, source)?;
        device.families().insert(family, module.inner());
        device.functions().clear();
        Ok(module)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::{FunctionCache, OWN_FAMILIES, Wanted};
    use crate::device::Device;

    static CACHE: LazyLock<FunctionCache> = LazyLock::new(FunctionCache::default);
    static LOOK_UPS: AtomicU32 = AtomicU32::new(0);

    /// Runs between the look at the cache and the entry in it: the first time a family is loaded there.
    fn load_a_family_meanwhile() {
        cuda_std::kernel::link::<basic::saxpy::saxpy>();
        if LOOK_UPS.fetch_add(1, Ordering::Relaxed) == 0 {
            CACHE.clear();
        }
    }

    #[test]
    fn what_was_found_before_a_family_was_loaded_is_not_kept() -> crate::Result<()> {
        let device = Device::open(0)?;
        if !device.is_software() {
            testkit::skip("kernels are linked for the software device alone");
            return Ok(());
        }
        let wanted = Wanted { link: load_a_family_meanwhile, ..Wanted::of::<basic::saxpy::saxpy>() };
        let found = CACHE.get_shared(&device, wanted)?;
        assert_eq!(LOOK_UPS.load(Ordering::Relaxed), 2, "it was not looked up again");
        assert!(std::sync::Arc::ptr_eq(&found, &CACHE.get_shared(&device, wanted)?));
        assert_eq!(LOOK_UPS.load(Ordering::Relaxed), 2);
        Ok(())
    }

    #[test]
    fn every_kernel_package_of_this_library_is_its_own() {
        use cuda_std::kernel::Kernel;
        let families = [
            <attention::sm90::instances::attention_bf16_64 as Kernel>::FAMILY,
            <basic::saxpy::saxpy as Kernel>::FAMILY,
            <gemm::any::gemm_any as Kernel>::FAMILY,
            <similarity::cosine_merge as Kernel>::FAMILY,
            <tensor::fill::fill_words as Kernel>::FAMILY,
        ];
        assert!(families.iter().all(|family| family.starts_with(OWN_FAMILIES)), "{families:?}");
    }
}
