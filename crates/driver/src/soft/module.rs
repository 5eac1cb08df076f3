//! Modules and functions: names in an image, bound to the kernels that are compiled natively into the
//! program.
//!
//! An image is PTX text. Its first line may be `// ironwarp family=FAMILY arch=sm_NN`. Then that line is
//! enough, and names are looked up in the family. Otherwise the text must be PTX, and the names are those of
//! its `.entry` lines.

use super::{
    abi::DevicePtr,
    api,
    device::{MAX_THREADS_PER_BLOCK, SHARED_DEFAULT, arch},
    handle::Handle,
    put, put_some,
    state::{Driver, Outcome},
};
use crate::code;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use simt::{KernelEntry, registry::FindError};
use std::{cell::RefCell, collections::BTreeSet, ffi::CString};

/// The prefix of the line that says where an image comes from.
const HEADER: &str = "// ironwarp ";
const ELF: &[u8] = b"\x7fELF";
const FAT_BINARY: &[u8] = &0xba55_ed50_u32.to_le_bytes();
/// The register count reported for every kernel. The real count depends on the GPU's compiler.
const REGISTERS: c_int = 32;

thread_local! {
    static AMBIGUOUS: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Says that the kernel which this thread has asked for in vain is there twice, if so, and forgets it.
pub fn take_ambiguous() -> Option<String> {
    AMBIGUOUS.take()
}

/// `CU_FUNC_ATTRIBUTE_*`.
mod attribute {
    pub(crate) const MAX_THREADS_PER_BLOCK: u32 = 0;
    pub(crate) const SHARED_SIZE_BYTES: u32 = 1;
    pub(crate) const CONST_SIZE_BYTES: u32 = 2;
    pub(crate) const LOCAL_SIZE_BYTES: u32 = 3;
    pub(crate) const NUM_REGS: u32 = 4;
    pub(crate) const PTX_VERSION: u32 = 5;
    pub(crate) const BINARY_VERSION: u32 = 6;
    pub(crate) const CACHE_MODE_CA: u32 = 7;
    pub(crate) const MAX_DYNAMIC_SHARED_SIZE_BYTES: u32 = 8;
    pub(crate) const PREFERRED_SHARED_MEMORY_CARVEOUT: u32 = 9;
    pub(crate) const CLUSTER_SIZE_MUST_BE_SET: u32 = 10;
    pub(crate) const CLUSTER_SCHEDULING_POLICY_PREFERENCE: u32 = 15;
    pub(crate) const NON_PORTABLE_CLUSTER_SIZE_ALLOWED: u32 = 14;
}

/// The `CU_JIT_*` options for the compiler's messages.
const JIT_ERROR_LOG: u32 = 5;
const JIT_ERROR_LOG_BYTES: u32 = 6;

pub(super) struct Module {
    pub context: Handle,
    image: Image,
}

#[derive(Debug, PartialEq, Eq)]
struct Image {
    family: Option<String>,
    /// Names of the `.entry` lines. `None` for an image without code, which has every kernel of its family.
    entries: Option<BTreeSet<String>>,
}

pub(super) struct Function {
    pub module: Handle,
    pub entry: &'static KernelEntry,
    /// The most dynamic shared memory that a launch may request.
    pub max_dynamic_shared: u32,
    pub non_portable_cluster: bool,
    carveout: c_int,
    name: CString,
}

impl Function {
    /// The most threads per block that the kernel was compiled for.
    pub(super) fn max_threads(&self) -> u32 {
        match self.entry.bounds.max_threads {
            0 => MAX_THREADS_PER_BLOCK,
            threads => threads,
        }
    }
}

/// The reason why an image is refused: the code, and the text for the compiler's log.
#[derive(Debug, PartialEq, Eq)]
struct Refused(u32, String);

impl Image {
    fn read(text: &[u8]) -> Result<Image, Refused> {
        if text.starts_with(ELF) || text.starts_with(FAT_BINARY) {
            let log = "the software driver runs no machine code: load PTX".to_owned();
            return Err(Refused(code::NO_BINARY_FOR_GPU, log));
        }
        let text = core::str::from_utf8(text)
            .map_err(|_| Refused(code::INVALID_IMAGE, "the image is neither text nor a binary".to_owned()))?;
        let header = text.lines().next().and_then(|line| line.strip_prefix(HEADER));
        let field = |name: &str| {
            header?.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        };
        let is_ptx = text.lines().any(|line| line.trim_start().starts_with(".version"));
        if header.is_none() && !is_ptx {
            let log =
                "no .version directive, and no line `// ironwarp family=..`: this is not PTX".to_owned();
            return Err(Refused(code::INVALID_PTX, log));
        }
        let target = text.lines().find_map(|line| line.trim_start().strip_prefix(".target"));
        for arch in [field("arch"), target.map(str::trim)].into_iter().flatten() {
            check_arch(arch)?;
        }
        Ok(Image { family: field("family").map(str::to_owned), entries: is_ptx.then(|| entry_names(text)) })
    }
}

/// Checks that an image can be loaded.
pub(super) fn check_image(image: &[u8]) -> Outcome {
    Image::read(image).map(|_| ()).map_err(|Refused(code, _)| code)
}

/// Refuses an architecture newer than the simulated device.
fn check_arch(target: &str) -> Result<(), Refused> {
    let digits: String = target.trim_start_matches("sm_").chars().take_while(char::is_ascii_digit).collect();
    let (major, minor) = arch().capability;
    match digits.parse::<u32>() {
        Ok(number) if number <= 10 * major + minor => Ok(()),
        Ok(_) => {
            let log = format!("the image is for {target}, newer than the device's sm_{major}{minor}");
            Err(Refused(code::INVALID_PTX, log))
        }
        Err(_) => Err(Refused(
            code::INVALID_PTX,
            format!("{target:?} is not an architecture: write sm_80, sm_90a, .."),
        )),
    }
}

/// The names between `.entry` and the parameter list.
fn entry_names(ptx: &str) -> BTreeSet<String> {
    let code = ptx.lines().map(|line| line.split("//").next().unwrap_or_default());
    let after = code.filter_map(|line| line.split_once(".entry").map(|(_, rest)| rest.trim_start()));
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%');
    after.map(|rest| rest.chars().take_while(|&c| is_name(c)).collect()).collect()
}

impl Driver {
    fn load(&mut self, image: &[u8]) -> Result<Handle, Refused> {
        let context = self.enter().map_err(|code| Refused(code, String::new()))?;
        let image = Image::read(image)?;
        Ok(self.modules.insert(Module { context, image }))
    }

    fn find_function(&mut self, module: Handle, name: &CStr) -> Outcome<Handle> {
        let image = &self.modules.get(module)?.image;
        let text = name.to_str().map_err(|_| code::NOT_FOUND)?;
        if image.entries.as_ref().is_some_and(|entries| !entries.contains(text)) {
            return Err(code::NOT_FOUND);
        }
        let known = |(_, f): &(Handle, &Function)| f.module == module && f.entry.name == text;
        if let Some((handle, _)) = self.functions.iter().find(known) {
            return Ok(handle);
        }
        let entry = simt::registry::find(image.family.as_deref(), text).map_err(|error| {
            simt::note(format_args!("ironwarp: {error}"));
            AMBIGUOUS.set(matches!(error, FindError::Twice { .. }).then(|| format!("hint: {error}")));
            code::NOT_FOUND
        })?;
        Ok(self.functions.insert(Function {
            module,
            entry,
            max_dynamic_shared: SHARED_DEFAULT,
            non_portable_cluster: false,
            carveout: -1,
            name: name.to_owned(),
        }))
    }

    /// The function of a handle. Its module must still be loaded.
    pub(super) fn function(&self, handle: Handle) -> Outcome<&Function> {
        let function = self.functions.get(handle)?;
        self.modules.get(function.module)?;
        Ok(function)
    }

    fn function_attribute(&self, handle: Handle, number: u32) -> Outcome<c_int> {
        let f = self.function(handle)?;
        let (major, minor) = arch().capability;
        Ok(match number {
            attribute::MAX_THREADS_PER_BLOCK => f.max_threads() as c_int,
            attribute::SHARED_SIZE_BYTES
            | attribute::CONST_SIZE_BYTES
            | attribute::LOCAL_SIZE_BYTES
            | attribute::CACHE_MODE_CA => 0,
            attribute::NUM_REGS => REGISTERS,
            attribute::PTX_VERSION | attribute::BINARY_VERSION => (10 * major + minor) as c_int,
            attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES => f.max_dynamic_shared as c_int,
            attribute::PREFERRED_SHARED_MEMORY_CARVEOUT => f.carveout,
            attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED => c_int::from(f.non_portable_cluster),
            attribute::CLUSTER_SIZE_MUST_BE_SET..=attribute::CLUSTER_SCHEDULING_POLICY_PREFERENCE => 0,
            _ => return Err(code::INVALID_VALUE),
        })
    }

    fn set_function_attribute(&mut self, handle: Handle, number: u32, value: c_int) -> Outcome {
        self.function(handle)?;
        let f = self.functions.get_mut(handle)?;
        match (number, u32::try_from(value)) {
            (attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES, Ok(bytes)) if bytes <= arch().shared_opt_in() => {
                f.max_dynamic_shared = bytes
            }
            (attribute::PREFERRED_SHARED_MEMORY_CARVEOUT, _) if (-1..=100).contains(&value) => {
                f.carveout = value
            }
            (attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED, Ok(flag @ 0..=1)) => {
                f.non_portable_cluster = flag == 1
            }
            _ => return Err(code::INVALID_VALUE),
        }
        Ok(())
    }
}

/// Writes `log` into the buffer that the options of `cuModuleLoadDataEx` name, truncated to its size.
///
/// # Safety
/// `options` and `values` hold `count` elements as CUDA documents them.
unsafe fn write_error_log(log: &str, count: c_uint, options: *const u32, values: *mut *mut c_void) {
    if options.is_null() || values.is_null() {
        return;
    }
    let value_of = |wanted: u32| {
        // SAFETY: both arrays hold `count` elements, by this function's contract.
        (0..count as usize).find(|&i| unsafe { *options.add(i) } == wanted).map(|i| unsafe { values.add(i) })
    };
    let (Some(buffer), Some(bytes)) = (value_of(JIT_ERROR_LOG), value_of(JIT_ERROR_LOG_BYTES)) else {
        return;
    };
    // SAFETY: the values of the two options are a buffer and its size, the latter cast to a pointer.
    unsafe {
        let (buffer, room) = ((*buffer).cast::<u8>(), *bytes as usize as u32 as usize);
        let length = log.len().min(room.saturating_sub(1));
        if !buffer.is_null() && room > 0 {
            buffer.copy_from_nonoverlapping(log.as_ptr(), length);
            buffer.add(length).write(0);
        }
        *bytes = length as *mut c_void;
    }
}

/// The bytes of an image: text up to its NUL, or the magic number of a binary.
///
/// # Safety
/// `image` is null, or points to text with a NUL or to a binary image.
unsafe fn image_bytes<'a>(image: *const c_void) -> Outcome<&'a [u8]> {
    if image.is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: text ends in a NUL; binary images have a NUL in their header, so the read stays within them.
    Ok(unsafe { CStr::from_ptr(image.cast()) }.to_bytes())
}

api! {
    fn cuModuleLoadData(driver, out: *mut Handle, image: *const c_void) {
        driver.enter()?;
        let module = driver.load(image_bytes(image)?).map_err(|Refused(code, log)| {
            simt::note(format_args!("ironwarp: cuModuleLoadData: {log}"));
            code
        })?;
        put(out, module)
    }

    fn cuModuleLoadDataEx(
        driver, out: *mut Handle, image: *const c_void, count: c_uint, options: *const u32, values: *mut *mut c_void,
    ) {
        driver.enter()?;
        match driver.load(image_bytes(image)?) {
            Ok(module) => {
                write_error_log("", count, options, values);
                put(out, module)
            }
            Err(Refused(code, log)) => {
                write_error_log(&log, count, options, values);
                Err(code)
            }
        }
    }

    fn cuModuleLoad(driver, out: *mut Handle, path: *const c_char) {
        driver.enter()?;
        if path.is_null() {
            return Err(code::INVALID_VALUE);
        }
        let path = CStr::from_ptr(path).to_str().map_err(|_| code::FILE_NOT_FOUND)?;
        let image = std::fs::read(path).map_err(|_| code::FILE_NOT_FOUND)?;
        put(out, driver.load(&image).map_err(|Refused(code, _)| code)?)
    }

    fn cuModuleUnload(driver, module: Handle) {
        driver.enter()?;
        let context = driver.modules.get(module)?.context;
        driver.drain_context(context)?;
        driver.modules.remove(module)?;
        driver.functions.retain(|f| f.module != module);
        Ok(())
    }

    fn cuModuleGetFunction(driver, out: *mut Handle, module: Handle, name: *const c_char) {
        driver.enter()?;
        if name.is_null() || out.is_null() {
            return Err(code::INVALID_VALUE);
        }
        let function = driver.find_function(module, CStr::from_ptr(name))?;
        put(out, function)
    }

    fn cuModuleGetGlobal_v2(driver, _out: *mut DevicePtr, _bytes: *mut usize, module: Handle, name: *const c_char) {
        driver.enter()?;
        driver.modules.get(module)?;
        if name.is_null() {
            return Err(code::INVALID_VALUE);
        }
        // Native kernels have no module variables: statics of a kernel package are statics of the program.
        Err(code::NOT_FOUND)
    }

    fn cuModuleGetLoadingMode(_driver, out: *mut u32) { put(out, 1) /* eager */ }

    fn cuFuncGetAttribute(driver, out: *mut c_int, number: u32, function: Handle) {
        driver.enter()?;
        put(out, driver.function_attribute(function, number)?)
    }

    fn cuFuncSetAttribute(driver, function: Handle, number: u32, value: c_int) {
        driver.enter()?;
        driver.set_function_attribute(function, number, value)
    }

    fn cuFuncSetCacheConfig(driver, function: Handle, config: u32) {
        driver.enter()?;
        driver.function(function)?;
        if config <= 3 { Ok(()) } else { Err(code::INVALID_VALUE) }
    }

    fn cuFuncSetSharedMemConfig(driver, function: Handle, config: u32) {
        driver.enter()?;
        driver.function(function)?;
        if config <= 2 { Ok(()) } else { Err(code::INVALID_VALUE) }
    }

    fn cuFuncGetModule(driver, out: *mut Handle, function: Handle) {
        driver.enter()?;
        put(out, driver.function(function)?.module)
    }

    fn cuFuncGetName(driver, out: *mut *const c_char, function: Handle) {
        driver.enter()?;
        put(out, driver.function(function)?.name.as_ptr())
    }

    fn cuFuncGetParamInfo(driver, function: Handle, index: usize, offset: *mut usize, bytes: *mut usize) {
        driver.enter()?;
        let params = driver.function(function)?.entry.params;
        let layout = params.get(index).ok_or(code::INVALID_VALUE)?;
        put(offset, super::launch::offsets(params)[index])?;
        put_some(bytes, layout.size);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str =
        ".version 7.8\n.target sm_80\n.visible .entry add_one(\n// .entry no_kernel(\n.entry\tother$1 (";

    #[test]
    fn entries_of_ptx_are_found() {
        let image = Image::read(PTX.as_bytes()).unwrap();
        let names: Vec<&str> = image.entries.as_ref().unwrap().iter().map(String::as_str).collect();
        assert_eq!((image.family.as_deref(), names), (None, vec!["add_one", "other$1"]));
    }

    #[test]
    fn a_header_line_is_enough() {
        let image = Image::read(b"// ironwarp family=basic arch=sm_90a").unwrap();
        assert_eq!(image, Image { family: Some("basic".to_owned()), entries: None });
    }

    #[test]
    fn what_is_no_image_is_refused() {
        assert_eq!(Image::read(b"\x7fELF\x02").unwrap_err().0, code::NO_BINARY_FOR_GPU);
        assert_eq!(Image::read(b"").unwrap_err().0, code::INVALID_PTX);
        assert_eq!(Image::read(b"\xff\xfe").unwrap_err().0, code::INVALID_IMAGE);
        assert_eq!(Image::read(b"// ironwarp family=x arch=sm_100").unwrap_err().0, code::INVALID_PTX);
        assert_eq!(Image::read(b".version 7.8\n.target sm_120").unwrap_err().0, code::INVALID_PTX);
    }
}
