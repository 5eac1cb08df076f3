//! Loaded PTX modules, and the kernel families that a device has loaded.

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::sys::{CUcontext, CUmodule};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::ptx::{self, PtxSource};
use crate::raw;

/// Loaded code. Cheap to clone.
#[derive(Clone)]
pub struct Module {
    inner: Arc<ModuleInner>,
    device: Device,
}

pub(crate) struct ModuleInner {
    handle: CUmodule,
    label: String,
    /// The context of the device that loaded it. It outlives this module: the device drops its own modules
    /// before its context, and every other owner holds the device.
    context: CUcontext,
}

// SAFETY: a module handle may be used from any thread.
unsafe impl Send for ModuleInner {}
// SAFETY: as above.
unsafe impl Sync for ModuleInner {}

impl ModuleInner {
    pub(crate) fn handle(&self) -> CUmodule {
        self.handle
    }

    pub(crate) fn label(&self) -> &str {
        &self.label
    }
}

impl Drop for ModuleInner {
    fn drop(&mut self) {
        // A drop cannot return an error; the context frees the module at its end.
        // SAFETY: the context is alive (see the field), and this is the module's last handle.
        unsafe {
            let _ = raw::ctx_set_current(self.context);
            let _ = raw::module_unload(self.handle);
        }
    }
}

impl Module {
    /// Loads PTX text.
    ///
    /// # Errors
    /// [`Error::InvalidModule`] with the compiler's log, [`Error::PtxText`], or the driver's error.
    pub fn from_ptx(device: &Device, ptx: &str) -> Result<Module> {
        Self::load_ptx(device, ptx, ptx::label(ptx))
    }

    /// Loads a PTX file.
    ///
    /// # Errors
    /// [`Error::File`], or as [`Module::from_ptx`].
    pub fn from_file(device: &Device, path: impl AsRef<Path>) -> Result<Module> {
        let path = path.as_ref();
        Self::load_ptx(device, &ptx::read(path)?, path.display().to_string())
    }

    /// Loads the PTX of `family` that fits `device` best. Its kernels are found by name, with
    /// [`Module::function`].
    ///
    /// On the software driver, where kernels are linked into the program, `source` is not read.
    ///
    /// # Errors
    /// [`Error::KernelNotBuilt`], [`Error::BadName`], or as [`Module::from_ptx`].
    pub fn from_source(device: &Device, family: &str, source: PtxSource) -> Result<Module> {
        let code = ptx::find(device, family, &[source])?;
        Self::load_ptx(device, &code.ptx()?, family.to_owned())
    }

    /// A module with the kernel `name` of a family: the family's own module if [`Module::load_family`] has
    /// loaded it, else a module of that kernel alone, from `IRONWARP_PTX_DIR`, the workspace or this program.
    /// The driver compiles every kernel that it loads, and a whole family takes seconds. Machine code it
    /// loads as it is; one that refuses it, because it is older than the assembler, gets the PTX.
    pub(crate) fn of_kernel(device: &Device, family: &str, name: &str) -> Result<Module> {
        if let Some(inner) = device.families().get(family) {
            return Ok(Module { inner, device: device.clone() });
        }
        let code = ptx::find(device, family, &ptx::default_sources())?;
        if let Some(machine_code) = code.machine_code_of(name)? {
            match Self::load(device, &machine_code, family.to_owned()) {
                Err(Error::InvalidModule { source, .. }) if source.is_refused_image() => {}
                loaded => return loaded,
            }
        }
        Self::load_ptx(device, &code.ptx_of(name)?, family.to_owned())
    }

    fn load_ptx(device: &Device, ptx: &str, label: String) -> Result<Module> {
        match CString::new(ptx) {
            Ok(image) => Self::load(device, image.as_bytes_with_nul(), label),
            Err(nul) => Err(Error::PtxText { module: label, position: nul.nul_position() }),
        }
    }

    /// Loads an image: PTX that ends with NUL, or machine code, whose header says how long it is.
    fn load(device: &Device, image: &[u8], label: String) -> Result<Module> {
        let mut log = CompilerLog::new();
        let (mut keys, mut values) = log.options();
        let mut handle = std::ptr::null_mut();
        let loaded = device.call(|| {
            let (count, keys, values) = (keys.len() as u32, keys.as_mut_ptr(), values.as_mut_ptr());
            // SAFETY: a place to write to, an image that says where it ends, and a log buffer of the given
            // size.
            unsafe { raw::module_load_data_ex(&mut handle, image.as_ptr().cast(), count, keys, values) }
        });
        match loaded {
            Ok(()) => {}
            Err(Error::Driver(source)) if !source.is_out_of_memory() => {
                return Err(Error::InvalidModule { module: label, log: log.text(), source });
            }
            Err(other) => return Err(other),
        }
        let inner = Arc::new(ModuleInner { handle, label, context: device.context() });
        Ok(Module { inner, device: device.clone() })
    }

    /// Its origin: a file, a family, or the PTX's own first line.
    pub fn label(&self) -> &str {
        self.inner.label()
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn inner(&self) -> &Arc<ModuleInner> {
        &self.inner
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({} on device {})", self.inner.label, self.device.ordinal())
    }
}

/// The families that were loaded whole, by name.
#[derive(Default)]
pub(crate) struct FamilyCache {
    modules: Mutex<HashMap<String, Arc<ModuleInner>>>,
}

impl Device {
    pub(crate) fn families(&self) -> &FamilyCache {
        self.extension(FamilyCache::default)
    }
}

impl FamilyCache {
    fn get(&self, family: &str) -> Option<Arc<ModuleInner>> {
        self.modules.lock().unwrap_or_else(PoisonError::into_inner).get(family).cloned()
    }

    pub(crate) fn insert(&self, family: &str, module: &Arc<ModuleInner>) {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        modules.insert(family.to_owned(), module.clone());
    }
}

/// The buffer for the messages of the driver's compiler.
struct CompilerLog {
    buffer: Vec<u8>,
}

impl CompilerLog {
    /// Enough for the first dozens of messages; later ones matter little.
    const BYTES: usize = 16 * 1024;
    /// `CU_JIT_ERROR_LOG_BUFFER` and `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`.
    const KEYS: [c_int; 2] = [5, 6];

    fn new() -> Self {
        CompilerLog { buffer: vec![0; Self::BYTES] }
    }

    /// Options that name the buffer, which must outlive the load.
    fn options(&mut self) -> ([c_int; 2], [*mut c_void; 2]) {
        // The driver takes a size by value, in the place of a pointer.
        (Self::KEYS, [self.buffer.as_mut_ptr().cast(), std::ptr::without_provenance_mut(Self::BYTES)])
    }

    fn text(&self) -> String {
        let end = self.buffer.iter().position(|&byte| byte == 0).unwrap_or(self.buffer.len());
        match String::from_utf8_lossy(&self.buffer[..end]).trim() {
            "" => "(the driver's compiler wrote no log)".to_owned(),
            log => log.to_owned(),
        }
    }
}
