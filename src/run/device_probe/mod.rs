//! Loads the GPU libraries of this machine and queries their versions and devices.
//!
//! A crashing library ends the process, so the queries should run in a child process. Communication is up to the NCCL backend, which has
//! its own function tables.

mod counters;
mod nccl_files;

pub(crate) use counters::DeviceCounters;
pub use counters::{Fabric, MAX_NVLINKS, NVML_LIBRARY, RankFabric};
#[cfg(feature = "mpi")]
pub(crate) use nccl_files::cause;
pub use nccl_files::{FOR_AMD, NcclAnswer, NcclFile, Version, is_rccl, nccl_files};

use commgauge_base::embedded::pairs;
use commgauge_model::config::machine::{CounterKind, known_counter};
use libloading::Library;
use nccl_files::{function, load, missing};
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor, TemperatureThreshold};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device as NvmlHandle, Nvml};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, OsStr, OsString, c_char, c_int, c_uint};
use std::path::Path;

/// A library that can be queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::Display, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Probe {
    /// The CUDA driver.
    Cuda,
    Nccl,
    Cublas,
    /// NVML, on which `nvidia-smi` is based.
    Nvml,
}

impl Probe {
    /// Name on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Answer of the CUDA driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CudaAnswer {
    pub file: String,
    /// True if the devices identify themselves as test doubles.
    pub is_double: bool,
    /// The newest CUDA version that the driver supports, such as `12.8`.
    pub cuda: String,
    /// Devices that this process may use.
    pub devices: Vec<Device>,
    /// Whether a device (row) can read and write the memory of another (column).
    pub peers: Vec<Vec<bool>>,
    /// The error that ended the query early, if any.
    pub problem: Option<String>,
}

/// A CUDA device that this process may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    pub name: String,
    /// PCI address, as `0000:3b:00.0`.
    pub pci: String,
    pub memory_bytes: u64,
}

/// The cuBLAS that matrix products would load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CublasAnswer {
    /// The file that was loaded.
    pub file: String,
    /// Its version, such as `13.1.0`.
    pub version: String,
    /// Required functions that are missing.
    pub lacks: Vec<String>,
    /// The error that ended the query early, if any.
    pub problem: Option<String>,
}

/// The report of the NVIDIA management library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvmlAnswer {
    pub version: String,
    pub driver: String,
    /// Every device of this machine, including those that this process may not use.
    pub devices: Vec<NvmlDevice>,
    /// The error that ended the query early, if any.
    pub problem: Option<String>,
}

/// Current state of a device; fields that it does not report are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvmlDevice {
    /// Why the device cannot be queried; all other fields are then absent.
    pub problem: Option<String>,
    pub name: String,
    /// PCI address.
    pub pci: String,
    pub multiprocessor_clock_mhz: Option<u32>,
    /// Maximum clock of the multiprocessors.
    pub highest_multiprocessor_clock_mhz: Option<u32>,
    pub memory_clock_mhz: Option<u32>,
    /// Maximum clock of the memory.
    pub highest_memory_clock_mhz: Option<u32>,
    /// Power drawn.
    pub power_watts: Option<u32>,
    /// Current power limit.
    pub power_limit_watts: Option<u32>,
    /// Default power limit of the device.
    pub usual_power_limit_watts: Option<u32>,
    pub temperature_celsius: Option<u32>,
    /// Temperature at which it slows down.
    pub slowdown_celsius: Option<u32>,
    /// Names of the reasons why its clocks are throttled.
    pub throttled_by: Vec<String>,
    /// True if it is idle, so that its clocks may be low.
    pub is_idle: bool,
    /// Number of NVLinks.
    pub nvlinks: u32,
    /// Number of active NVLinks.
    pub nvlinks_active: u32,
    /// ECC mode: now, and after a restart.
    pub ecc: Option<(bool, bool)>,
    /// Uncorrected memory errors since the driver was loaded.
    pub uncorrected_errors: Option<u64>,
    /// MIG mode: now, and after a reset.
    pub mig: Option<(bool, bool)>,
    /// What is wrong with it, such as `row_remap_pending`, by the names of counters.
    pub states: Vec<String>,
    /// The NVLink fabric that it belongs to.
    pub fabric: Option<Fabric>,
    /// Whether persistence mode is on, which keeps the driver loaded while no process uses the device.
    pub is_persistent: Option<bool>,
}

/// Loads the library in this process, queries it, and returns the answer as JSON.
///
/// # Errors
/// Why the library cannot be loaded.
pub fn answer(probe: Probe, named: Option<&Path>) -> Result<String, String> {
    let text = match probe {
        Probe::Cuda => serde_json::to_string(&query_cuda()?),
        Probe::Nccl => serde_json::to_string(&nccl_files::query(named)?),
        Probe::Cublas => serde_json::to_string(&query_cublas(named)?),
        Probe::Nvml => serde_json::to_string(&query_nvml()?),
    };
    text.map_err(|cause| cause.to_string())
}

// Queries the CUDA driver. Section numbers are those of the CUDA driver API.

/// Device name of the test doubles, so that their results never pass for real ones.
const DOUBLE: &str = "commgauge double";

/// `CUresult`: any number, as newer drivers have newer ones.
type Code = c_int;

/// `CU_DEVICE_ATTRIBUTE_PCI_BUS_ID`, `..._PCI_DEVICE_ID`, `..._PCI_DOMAIN_ID`.
const PCI: [c_int; 3] = [33, 34, 50];

/// More devices than any host has; a larger count is taken as a driver error.
const MAX_DEVICES: c_int = 64;

/// Loads the driver and queries it.
fn query_cuda() -> Result<CudaAnswer, String> {
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
        let get_version = function::<unsafe extern "C" fn(*mut c_int) -> Code>(library, "cuDriverGetVersion")?;
        check(library, get_version(&mut version), "cuDriverGetVersion")?;
        answer.cuda = format!("{}.{}", version / 1000, version % 1000 / 10);
        check(library, function::<unsafe extern "C" fn(c_uint) -> Code>(library, "cuInit")?(0), "cuInit")?;
    }
    let mut devices = 0;
    // SAFETY: `CUresult cuDeviceGetCount(int *)` (6.5), and the int is ours.
    unsafe {
        let count = function::<unsafe extern "C" fn(*mut c_int) -> Code>(library, "cuDeviceGetCount")?;
        check(library, count(&mut devices), "cuDeviceGetCount")?;
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
    // SAFETY: types as in section 6.5; the buffers are ours, and the length is that of the name.
    unsafe {
        let get_name = function::<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Code>(library, "cuDeviceGetName")?;
        check(library, get_name(name.as_mut_ptr(), name.len() as c_int - 1, number), "cuDeviceGetName")?;
        if let Ok(total) = function::<unsafe extern "C" fn(*mut usize, c_int) -> Code>(library, "cuDeviceTotalMem_v2") {
            check(library, total(&mut bytes, number), "cuDeviceTotalMem")?;
        }
        type Attribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> Code;
        if let Ok(attribute) = function::<Attribute>(library, "cuDeviceGetAttribute") {
            for (value, which) in pci.iter_mut().zip(PCI) {
                check(library, attribute(value, which, number), "cuDeviceGetAttribute")?;
            }
        }
    }
    // SAFETY: the last byte of the name was never written to, so it is zero.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    Ok(Device { name, pci: format!("{:04x}:{:02x}:{:02x}.0", pci[2], pci[0], pci[1]), memory_bytes: bytes as u64 })
}

fn peers(library: &Library, devices: c_int) -> Result<Vec<Vec<bool>>, String> {
    type CanAccess = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> Code;
    // SAFETY: `CUresult cuDeviceCanAccessPeer(int *, CUdevice, CUdevice)` (6.22); the int is ours.
    let Ok(can) = (unsafe { function::<CanAccess>(library, "cuDeviceCanAccessPeer") }) else { return Ok(Vec::new()) };
    let reaches = |from, to| {
        let mut yes = c_int::from(from == to);
        if from != to {
            // SAFETY: as above.
            check(library, unsafe { can(&mut yes, from, to) }, "cuDeviceCanAccessPeer")?;
        }
        Ok(yes != 0)
    };
    (0..devices).map(|from| (0..devices).map(|to| reaches(from, to)).collect()).collect()
}

/// Turns an error code into the driver's own message.
fn check(library: &Library, code: Code, call: &str) -> Result<(), String> {
    if code == 0 {
        return Ok(());
    }
    let mut text: *const c_char = std::ptr::null();
    // SAFETY: `CUresult cuGetErrorName(CUresult, const char **)` (6.1) sets the pointer to a text that lasts, or to null.
    unsafe {
        type ErrorName = unsafe extern "C" fn(Code, *mut *const c_char) -> Code;
        let _ = function::<ErrorName>(library, "cuGetErrorName").map(|name| name(code, &mut text));
        let message =
            if text.is_null() { format!("error {code}") } else { CStr::from_ptr(text).to_string_lossy().into_owned() };
        let fix = advice(code).map_or_else(String::new, |fix| format!(": {fix}"));
        Err(format!("{call} failed with {message}{fix}"))
    }
}

// Queries cuBLAS: its version, and whether it has the required function. No function that starts work is called.

/// Functions that the backend requires.
const NEEDED: [&str; 5] =
    ["cublasCreate_v2", "cublasDestroy_v2", "cublasSetStream_v2", "cublasSetMathMode", "cublasGemmEx"];

/// Loads the library and queries it.
fn query_cublas(named: Option<&Path>) -> Result<CublasAnswer, String> {
    let names: Vec<OsString> = match named {
        Some(path) => vec![path.into()],
        None => vec!["libcublas.so.13".into(), "libcublas.so.12".into()],
    };
    let (library, file) = load(&names)?;
    let mut answer = CublasAnswer { file, ..CublasAnswer::default() };
    // SAFETY: `cublasStatus_t cublasGetProperty(libraryPropertyType, int *)` in every version.
    match unsafe { library.get::<unsafe extern "C" fn(c_int, *mut c_int) -> c_int>(b"cublasGetProperty\0") } {
        Err(_) => answer.problem = Some("this is not cuBLAS: it has no cublasGetProperty".to_owned()),
        Ok(property) => {
            let mut version = [0; 3];
            for (which, part) in (0..).zip(&mut version) {
                // SAFETY: the int is ours; 0 to 2 are the parts of a version.
                let status = unsafe { property(which, part) };
                if status != 0 {
                    answer.problem = Some(format!("cublasGetProperty failed with status {status}"));
                }
            }
            answer.version = version.map(|part| part.to_string()).join(".");
        }
    }
    answer.lacks = missing(&library, &NEEDED);
    std::mem::forget(library);
    Ok(answer)
}

// Fixes for fatal error codes of the CUDA driver. The numbers are those of `CUresult` (cuda.h).

/// The fix for an error code, if known.
pub fn advice(code: i32) -> Option<&'static str> {
    let has_code = |codes: &str| codes.split(',').any(|one| one.parse() == Ok(code));
    pairs(include_str!("cuda_advice.txt")).find(|(codes, _)| has_code(codes)).map(|(_, advice)| advice)
}

// Queries NVML for the current state of each device. Nothing is changed.

/// Throttle reasons that reduce performance, by the names that `nvidia-smi -q` uses.
pub const THROTTLE_REASONS: [(ThrottleReasons, &str); 6] = [
    (ThrottleReasons::SW_POWER_CAP, "power cap"),
    (ThrottleReasons::HW_SLOWDOWN, "hardware slowdown"),
    (ThrottleReasons::SYNC_BOOST, "sync boost"),
    (ThrottleReasons::SW_THERMAL_SLOWDOWN, "thermal slowdown (software)"),
    (ThrottleReasons::HW_THERMAL_SLOWDOWN, "thermal slowdown (hardware)"),
    (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power brake"),
];

/// Loads the library and queries it.
fn query_nvml() -> Result<NvmlAnswer, String> {
    let nvml = Nvml::builder()
        .lib_path(OsStr::new(NVML_LIBRARY))
        .init()
        .map_err(|error| format!("{NVML_LIBRARY}: {error}"))?;
    let mut answer = NvmlAnswer {
        version: nvml.sys_nvml_version().unwrap_or_else(|_| "of unknown version".to_owned()),
        driver: nvml.sys_driver_version().unwrap_or_else(|_| "of unknown version".to_owned()),
        ..NvmlAnswer::default()
    };
    match nvml.device_count() {
        Err(error) => answer.problem = Some(format!("the devices cannot be counted: {error}")),
        Ok(devices) => {
            // A device that fell off the bus is counted but cannot be opened.
            let lost = |error: NvmlError| NvmlDevice { problem: Some(error.to_string()), ..NvmlDevice::default() };
            let devices = (0..devices).map(|number| nvml.device_by_index(number));
            answer.devices = devices.map(|device| device.map_or_else(lost, describe)).collect();
        }
    }
    Ok(answer)
}

fn describe(device: NvmlHandle) -> NvmlDevice {
    let watts = |milliwatts: u32| milliwatts / 1000;
    let reasons = device.current_throttle_reasons().ok();
    let held = |reasons: ThrottleReasons| THROTTLE_REASONS.iter().filter(move |(one, _)| reasons.contains(*one));
    let links: Vec<bool> = (0..MAX_NVLINKS).filter_map(|link| device.link_wrapper_for(link).is_active().ok()).collect();
    let described = NvmlDevice {
        name: device.name().unwrap_or_default(),
        pci: device.pci_info().map(|info| info.bus_id.to_lowercase()).unwrap_or_default(),
        multiprocessor_clock_mhz: device.clock_info(Clock::SM).ok(),
        highest_multiprocessor_clock_mhz: device.max_clock_info(Clock::SM).ok(),
        memory_clock_mhz: device.clock_info(Clock::Memory).ok(),
        highest_memory_clock_mhz: device.max_clock_info(Clock::Memory).ok(),
        power_watts: device.power_usage().ok().map(watts),
        power_limit_watts: device.enforced_power_limit().ok().map(watts),
        usual_power_limit_watts: device.power_management_limit_default().ok().map(watts),
        temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok(),
        slowdown_celsius: device.temperature_threshold(TemperatureThreshold::Slowdown).ok(),
        throttled_by: reasons.into_iter().flat_map(held).map(|(_, name)| (*name).to_owned()).collect(),
        is_idle: reasons.is_some_and(|reasons| reasons.contains(ThrottleReasons::GPU_IDLE)),
        nvlinks: links.len() as u32,
        nvlinks_active: links.iter().filter(|active| **active).count() as u32,
        ecc: device.is_ecc_enabled().ok().map(|ecc| (ecc.currently_enabled, ecc.pending_enabled)),
        uncorrected_errors: device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).ok(),
        mig: device.mig_mode().ok().map(|mig| (mig.current != 0, mig.pending != 0)),
        is_persistent: device.is_in_persistent_mode().ok(),
        ..NvmlDevice::default()
    };
    let mut counters = DeviceCounters::of(device);
    let is_set = |name: &str| known_counter(name).filter(|known| known.kind == CounterKind::States);
    let states = counters.read().into_iter().filter(|(_, value)| *value > 0);
    let states = states.filter_map(|(name, _)| Some(is_set(&name)?.name.to_owned())).collect();
    NvmlDevice { states, fabric: counters.fabric(), ..described }
}

#[cfg(test)]
mod tests {
    use super::nccl_files::file_of;
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_a_reason_and_no_panic() {
        let reason = answer(Probe::Nccl, Some(Path::new("/nowhere/libnccl.so.2"))).expect_err("not there");
        assert!(reason.contains("/nowhere/libnccl.so.2"), "{reason}");
    }

    #[test]
    fn a_library_that_is_not_nccl_is_reported_with_its_file() {
        // Any library that is already mapped works for this test.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("libc.so"));
        let Some(libc) = libc else { return };
        assert_eq!(file_of("libc.so.6"), libc);
        let text = answer(Probe::Nccl, Some(Path::new(libc))).expect("loaded");
        let parsed: NcclAnswer = serde_json::from_str(&text).unwrap();
        assert!(parsed.problem.is_some_and(|problem| problem.contains("no ncclGetVersion")), "{text}");
    }

    #[test]
    fn errors_of_hosts_and_containers_have_a_fix_and_those_of_programs_none() {
        for (code, words) in [
            (34, "stubs"),
            (46, "compute mode"),
            (222, "too old"),
            (802, "fabric manager"),
            (804, "compat"),
            (807, "MPS"),
        ] {
            assert!(advice(code).is_some_and(|fix| fix.contains(words)), "{code}");
        }
        assert_eq!([0, 1, 2, 400, 700, 719].map(advice), [None; 6]);
    }

    #[test]
    fn a_missing_nvml_is_reported_with_its_file() {
        match query_nvml() {
            Err(reason) => assert!(reason.contains(NVML_LIBRARY), "{reason}"),
            // A host with GPUs has a driver version.
            Ok(answer) => assert!(!answer.driver.is_empty()),
        }
    }
}
