//! Queries the CUDA driver. Section numbers are those of the CUDA driver API.

use super::advice;
use super::answer::{CudaAnswer, Device};
use super::load::load;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint};

/// Device name of the stand-ins for tests, so that their results are never mistaken for real ones.
const DOUBLE: &str = "commgauge double";

/// `CUresult`: any number, as newer drivers have newer ones.
type Code = c_int;
/// `CU_DEVICE_ATTRIBUTE_PCI_BUS_ID`, `..._PCI_DEVICE_ID`, `..._PCI_DOMAIN_ID`.
const PCI: [c_int; 3] = [33, 34, 50];
/// More devices than any host has; a larger count is taken as a driver error.
const MAX_DEVICES: c_int = 64;

/// Loads the driver and queries it.
pub(super) fn query() -> Result<CudaAnswer, String> {
    let (library, file) = load(&["libcuda.so.1".into(), "libcuda.so".into()])?;
    let mut answer = CudaAnswer { file, ..CudaAnswer::default() };
    if let Err(problem) = fill(&library, &mut answer) {
        answer.problem = Some(problem);
    }
    // Unloading a driver that has started threads is unsafe.
    std::mem::forget(library);
    Ok(answer)
}

fn fill(library: &Library, answer: &mut CudaAnswer) -> Result<(), String> {
    let mut version = 0;
    // SAFETY: `CUresult cuDriverGetVersion(int *)` (6.2), and the int is ours; `CUresult cuInit(unsigned)` (6.3) takes 0.
    unsafe {
        let get_version = library.get::<unsafe extern "C" fn(*mut c_int) -> Code>(b"cuDriverGetVersion\0");
        check(library, get_version.map_err(|_| lacks("cuDriverGetVersion"))?(&mut version), "cuDriverGetVersion")?;
        answer.cuda = format!("{}.{}", version / 1000, version % 1000 / 10);
        let init = library.get::<unsafe extern "C" fn(c_uint) -> Code>(b"cuInit\0").map_err(|_| lacks("cuInit"))?;
        check(library, init(0), "cuInit")?;
    }
    let mut devices = 0;
    // SAFETY: `CUresult cuDeviceGetCount(int *)` (6.5), and the int is ours.
    unsafe {
        let count = library.get::<unsafe extern "C" fn(*mut c_int) -> Code>(b"cuDeviceGetCount\0");
        check(library, count.map_err(|_| lacks("cuDeviceGetCount"))?(&mut devices), "cuDeviceGetCount")?;
    }
    for number in 0..devices.clamp(0, MAX_DEVICES) {
        answer.devices.push(device(library, number)?);
    }
    answer.is_double = answer.devices.iter().any(|device| device.name.contains(DOUBLE));
    answer.peers = peers(library, answer.devices.len() as c_int)?;
    Ok(())
}

fn device(library: &Library, number: c_int) -> Result<Device, String> {
    let mut name = [0 as c_char; 256];
    let mut bytes = 0usize;
    let mut pci = [0; 3];
    // SAFETY: types as in section 6.5; the buffers are ours, and the length given is that of the name's.
    unsafe {
        let get_name = library.get::<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Code>(b"cuDeviceGetName\0");
        let get_name = get_name.map_err(|_| lacks("cuDeviceGetName"))?;
        check(library, get_name(name.as_mut_ptr(), name.len() as c_int - 1, number), "cuDeviceGetName")?;
        let total = library.get::<unsafe extern "C" fn(*mut usize, c_int) -> Code>(b"cuDeviceTotalMem_v2\0");
        if let Ok(total) = total {
            check(library, total(&mut bytes, number), "cuDeviceTotalMem")?;
        }
        let attribute =
            library.get::<unsafe extern "C" fn(*mut c_int, c_int, c_int) -> Code>(b"cuDeviceGetAttribute\0");
        if let Ok(attribute) = attribute {
            for (value, which) in pci.iter_mut().zip(PCI) {
                check(library, attribute(value, which, number), "cuDeviceGetAttribute")?;
            }
        }
    }
    // SAFETY: the last byte of the name was never written to, so there is a zero.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    Ok(Device { name, pci: format!("{:04x}:{:02x}:{:02x}.0", pci[2], pci[0], pci[1]), memory_bytes: bytes as u64 })
}

fn peers(library: &Library, devices: c_int) -> Result<Vec<Vec<bool>>, String> {
    // SAFETY: `CUresult cuDeviceCanAccessPeer(int *, CUdevice, CUdevice)` (6.22); the int is ours.
    let can =
        unsafe { library.get::<unsafe extern "C" fn(*mut c_int, c_int, c_int) -> Code>(b"cuDeviceCanAccessPeer\0") };
    let Ok(can) = can else { return Ok(Vec::new()) };
    let mut rows = Vec::new();
    for from in 0..devices {
        let mut row = Vec::new();
        for to in 0..devices {
            let mut yes = c_int::from(from == to);
            if from != to {
                // SAFETY: as above.
                check(library, unsafe { can(&mut yes, from, to) }, "cuDeviceCanAccessPeer")?;
            }
            row.push(yes != 0);
        }
        rows.push(row);
    }
    Ok(rows)
}

fn lacks(symbol: &str) -> String {
    format!("the library has no {symbol}")
}

/// Turns an error code into the driver's own message.
fn check(library: &Library, code: Code, call: &str) -> Result<(), String> {
    if code == 0 {
        return Ok(());
    }
    let mut text: *const c_char = std::ptr::null();
    // SAFETY: `CUresult cuGetErrorName(CUresult, const char **)` (6.1) sets the pointer to a text that lasts, or to null.
    unsafe {
        if let Ok(name) = library.get::<unsafe extern "C" fn(Code, *mut *const c_char) -> Code>(b"cuGetErrorName\0") {
            let _ = name(code, &mut text);
        }
        let message =
            if text.is_null() { format!("error {code}") } else { CStr::from_ptr(text).to_string_lossy().into_owned() };
        let fix = advice(code).map_or_else(String::new, |fix| format!(": {fix}"));
        Err(format!("{call} failed with {message}{fix}"))
    }
}
