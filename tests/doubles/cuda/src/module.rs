//! Modules: PTX, of which only the names of its kernels matter. `kernel` implements them.

use crate::answer::{Answer, INVALID_PTX, NO_BINARY_FOR_GPU, NOT_FOUND, answer};
use crate::context::current_device;
use crate::handles::Handles;
use crate::kernel::{self, FUNCTIONS};
use crate::stream::wait_for_kernels;
use settings::{Kind, SETTINGS};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

static MODULES: Handles<Module> = Handles::new();

struct Module {
    entries: Vec<String>,
    device: c_int,
}

/// The newest PTX that the driver of this version reads.
const NEWEST_PTX: (u32, u32) = (8, 7);

/// What the driver would compile, checked as far as that can be done without compiling.
fn read(ptx: &str) -> Result<Module, c_int> {
    let word_after = |directive: &str| {
        let line = ptx.lines().map(str::trim).find_map(|line| line.strip_prefix(directive))?;
        line.split([' ', ',']).find(|word| !word.is_empty())
    };
    let version = word_after(".version").and_then(|word| word.split_once('.')).ok_or(INVALID_PTX)?;
    let number = |text: &str| text.parse::<u32>().map_err(|_| INVALID_PTX);
    let version = (number(version.0)?, number(version.1)?);
    let target = word_after(".target").and_then(|word| word.strip_prefix("sm_")).ok_or(INVALID_PTX)?;
    if version > NEWEST_PTX || number(target)? > SETTINGS.capability {
        return Err(if version > NEWEST_PTX { 222 } else { NO_BINARY_FOR_GPU });
    }
    let name = |text: &str| {
        text.split(|c: char| !c.is_alphanumeric() && c != '_').find(|word| !word.is_empty()).map(str::to_owned)
    };
    Ok(Module { device: current_device()?, entries: ptx.split(".entry").skip(1).filter_map(name).collect() })
}

fn load(module: *mut usize, image: *const c_void) -> Answer {
    wait_for_kernels(current_device()?)?;
    if let Some(fault) = SETTINGS.fault(Kind::Module, None, "", |_| 1) {
        return Err(fault.code);
    }
    let text = unsafe { CStr::from_ptr(image.cast()) }.to_str().map_err(|_| NO_BINARY_FOR_GPU)?;
    if text.starts_with('\u{7f}') {
        return Err(NO_BINARY_FOR_GPU);
    }
    unsafe { *module = MODULES.add(Arc::new(read(text)?)) };
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut usize, image: *const c_void) -> c_int {
    answer(|| load(module, image))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut usize,
    image: *const c_void,
    _count: c_uint,
    _options: *mut c_int,
    _values: *mut *mut c_void,
) -> c_int {
    answer(|| load(module, image))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char) -> c_int {
    answer(|| {
        let name = CStr::from_ptr(name).to_str().map_err(|_| NOT_FOUND)?;
        let module = MODULES.get(module)?;
        let entry = module.entries.iter().find(|entry| *entry == name).ok_or(NOT_FOUND)?;
        *function = FUNCTIONS.add(Arc::new(kernel::find(entry, module.device).ok_or(NOT_FOUND)?));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleGetGlobal_v2(
    _address: *mut usize,
    _bytes: *mut usize,
    _module: usize,
    _name: *const c_char,
) -> c_int {
    answer(|| Err(NOT_FOUND))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(module: usize) -> c_int {
    answer(|| MODULES.remove(module).map(|_| ()))
}
