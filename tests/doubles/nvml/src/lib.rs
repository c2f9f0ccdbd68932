//! A stand-in for libnvidia-ml: the devices of the stand-in for libcuda, whose errors and states are those of `COMMGAUGE_DOUBLE_NVML`. Only
//! what commgauge calls. For tests only.

use settings::{SETTINGS, bus, uuid_text};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_longlong, c_uint, c_ulonglong, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// `nvmlReturn_t`.
type Code = c_uint;

const INVALID_ARGUMENT: Code = 2;
const NOT_SUPPORTED: Code = 3;
const NOT_FOUND: Code = 6;
const TIMEOUT: Code = 10;

/// Calls of this process.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// How often each thing was read on each device.
static READINGS: Mutex<BTreeMap<(String, u32), u64>> = Mutex::new(BTreeMap::new());

/// Every call counts, and takes as long as the settings say.
fn answer(work: impl FnOnce() -> Result<(), Code>) -> Code {
    let begun = Instant::now();
    if CALLS.fetch_add(1, Ordering::Relaxed) == 0 {
        unsafe { libc::atexit(write_calls) };
    }
    let code = work().err().unwrap_or(0);
    while begun.elapsed() < Duration::from_micros(SETTINGS.nvml_microseconds) {
        std::hint::spin_loop();
    }
    code
}

/// Adds a line with the calls of this process to the file of `COMMGAUGE_DOUBLE_NVML_CALLS`.
extern "C" fn write_calls() {
    use std::io::Write;
    let Some(path) = std::env::var_os("COMMGAUGE_DOUBLE_NVML_CALLS") else { return };
    if let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path) {
        let _ = writeln!(file, "{}", CALLS.load(Ordering::Relaxed));
    }
}

/// A device by its handle, which is its number and one.
fn number(device: *mut c_void) -> Result<u32, Code> {
    let number = (device as usize).wrapping_sub(1);
    (number < SETTINGS.devices as usize).then_some(number as u32).ok_or(INVALID_ARGUMENT)
}

/// What the settings say of a device; a rise counts from the second reading on.
fn told(what: &str, device: u32) -> Option<u64> {
    let is_of = |answer: &&settings::NvmlAnswer| answer.what == what && answer.device.is_none_or(|one| one == device);
    let answer = SETTINGS.nvml.iter().find(is_of)?;
    let mut readings = READINGS.lock().unwrap();
    let before = readings.entry((what.to_owned(), device)).or_default();
    *before += 1;
    Some(answer.first + answer.rise * (*before - 1))
}

fn readings(what: &str, device: u32) -> u64 {
    READINGS.lock().unwrap().get(&(what.to_owned(), device)).copied().unwrap_or(0)
}

unsafe fn copy_text(text: &str, to: *mut c_char, length: c_uint) -> Result<(), Code> {
    let room = (length as usize).checked_sub(1).ok_or(INVALID_ARGUMENT)?.min(text.len());
    std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, room);
    *to.add(room) = 0;
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> Code {
    answer(|| Ok(()))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> Code {
    answer(|| Ok(()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(text: *mut c_char, length: c_uint) -> Code {
    answer(|| copy_text("570.0 (double)", text, length))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetNVMLVersion(text: *mut c_char, length: c_uint) -> Code {
    answer(|| copy_text("12.570.0 (double)", text, length))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetCudaDriverVersion(version: *mut c_int) -> Code {
    answer(|| {
        *version = 12080;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(devices: *mut c_uint) -> Code {
    answer(|| {
        *devices = SETTINGS.devices;
        Ok(())
    })
}

unsafe fn find(device: *mut *mut c_void, is_it: impl Fn(u32) -> bool) -> Code {
    answer(|| {
        let number = (0..SETTINGS.devices).find(|number| is_it(*number)).ok_or(NOT_FOUND)?;
        *device = (number as usize + 1) as *mut c_void;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut *mut c_void) -> Code {
    find(device, |number| number == index)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut *mut c_void) -> Code {
    let wanted = CStr::from_ptr(uuid).to_string_lossy();
    find(device, |number| uuid_text(number) == wanted)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(pci: *const c_char, device: *mut *mut c_void) -> Code {
    let wanted = CStr::from_ptr(pci).to_string_lossy().to_lowercase();
    find(device, |number| wanted.ends_with(&format!("{:02x}:00.0", bus(number))))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetIndex(device: *mut c_void, index: *mut c_uint) -> Code {
    answer(|| {
        *index = number(device)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(device: *mut c_void, text: *mut c_char, length: c_uint) -> Code {
    answer(|| number(device).and_then(|_| copy_text("commgauge double (no GPU)", text, length)))
}

/// `nvmlPciInfo_t`.
#[repr(C)]
pub struct PciInfo {
    legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    ids: [c_uint; 2],
    bus_id: [c_char; 32],
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(device: *mut c_void, info: *mut PciInfo) -> Code {
    answer(|| {
        let bus = bus(number(device)?);
        (*info).bus = bus;
        copy_text(&format!("00000000:{bus:02X}:00.0"), (*info).bus_id.as_mut_ptr(), 32)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetClockInfo(device: *mut c_void, _: c_uint, clock: *mut c_uint) -> Code {
    answer(|| {
        *clock = told("clock", number(device)?).unwrap_or(1980) as c_uint;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPowerUsage(device: *mut c_void, milliwatts: *mut c_uint) -> Code {
    answer(|| {
        *milliwatts = number(device).map(|_| 300_000)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperature(device: *mut c_void, _: c_uint, celsius: *mut c_uint) -> Code {
    answer(|| {
        *celsius = number(device).map(|_| 40)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(
    device: *mut c_void,
    reasons: *mut c_ulonglong,
) -> Code {
    answer(|| {
        *reasons = told("throttled", number(device)?).unwrap_or(0);
        Ok(())
    })
}

/// NVLinks of a device.
const LINKS: u32 = 18;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetNvLinkState(device: *mut c_void, link: c_uint, is_active: *mut c_uint) -> Code {
    answer(|| {
        let number = number(device)?;
        if link >= LINKS {
            return Err(INVALID_ARGUMENT);
        }
        // The last link alone may be down, from one of its readings on.
        let since = if link + 1 == LINKS { told("down", number) } else { None };
        *is_active = u32::from(since.is_none_or(|since| readings("down", number) < since));
        Ok(())
    })
}

/// `nvmlFieldValue_t`.
#[repr(C)]
pub struct FieldValue {
    field: c_uint,
    scope: c_uint,
    timestamp: c_longlong,
    latency: c_longlong,
    value_type: c_uint,
    code: Code,
    value: u64,
}

/// Fields that Hopper answers, where the settings say nothing of them.
#[cfg(not(feature = "old"))]
const FIELDS: [c_uint; 8] = [3, 4, 143, 144, 145, 161, 162, 163];

#[unsafe(no_mangle)]
#[cfg(not(feature = "old"))]
pub unsafe extern "C" fn nvmlDeviceGetFieldValues(device: *mut c_void, count: c_int, values: *mut FieldValue) -> Code {
    answer(|| {
        let number = number(device)?;
        for value in std::slice::from_raw_parts_mut(values, usize::try_from(count).map_err(|_| INVALID_ARGUMENT)?) {
            // What a field of 4 bytes leaves behind it is not to be read.
            let (told, kind) = (told(&value.field.to_string(), number), if value.field < 146 { 1 } else { 3 });
            let told = told.or(FIELDS.contains(&value.field).then_some(0));
            value.code = if told.is_some() { 0 } else { NOT_SUPPORTED };
            value.value_type = kind;
            value.value = told.unwrap_or(0) | if kind == 1 { 0xdead_0000_0000_0000 } else { 0 };
        }
        Ok(())
    })
}

/// `nvmlGpuFabricInfo_v2_t`.
#[repr(C)]
pub struct FabricInfo {
    version: c_uint,
    cluster: [u8; 16],
    status: Code,
    clique: c_uint,
    state: u8,
    health: c_uint,
}

#[unsafe(no_mangle)]
#[cfg(not(feature = "old"))]
pub unsafe extern "C" fn nvmlDeviceGetGpuFabricInfoV(device: *mut c_void, info: *mut FabricInfo) -> Code {
    answer(|| {
        let number = number(device)?;
        if (*info).version != 36 | 2 << 24 {
            return Err(INVALID_ARGUMENT);
        }
        // NVML_GPU_FABRIC_STATE_COMPLETED, and a health in which nothing is wrong.
        (*info).state = told("fabric", number).unwrap_or(3) as u8;
        (*info).health = told("health", number).unwrap_or(0b01_1010_1010) as c_uint;
        (*info).status = told("status", number).unwrap_or(0) as Code;
        (*info).clique = told("clique", number).unwrap_or(1) as c_uint;
        (*info).cluster = [7; 16];
        Ok(())
    })
}

/// The device whose events a set has: one, which is enough here.
static WATCHED: AtomicU64 = AtomicU64::new(u64::MAX);

#[unsafe(no_mangle)]
#[cfg(not(feature = "old"))]
pub unsafe extern "C" fn nvmlEventSetCreate(set: *mut *mut c_void) -> Code {
    answer(|| {
        *set = std::ptr::dangling_mut();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetFree(_: *mut c_void) -> Code {
    answer(|| Ok(()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceRegisterEvents(device: *mut c_void, kinds: c_ulonglong, _: *mut c_void) -> Code {
    answer(|| {
        let number = number(device)?;
        WATCHED.store(u64::from(number), Ordering::Relaxed);
        if kinds == 8 { Ok(()) } else { Err(NOT_SUPPORTED) }
    })
}

/// `nvmlEventData_t`.
#[repr(C)]
pub struct EventData {
    device: *mut c_void,
    kind: c_ulonglong,
    data: c_ulonglong,
    instances: [c_uint; 2],
}

/// Whoever waits for an event is held for as long as it asked: the caller is to ask for none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetWait_v2(_: *mut c_void, data: *mut EventData, milliseconds: c_uint) -> Code {
    answer(|| {
        let number = WATCHED.load(Ordering::Relaxed) as u32;
        // The first reading after the beginning has one event, the next none.
        match told("xid", number).filter(|_| readings("xid", number) == 2) {
            Some(xid) => {
                *data =
                    EventData { device: (number as usize + 1) as *mut c_void, kind: 8, data: xid, instances: [0; 2] };
                Ok(())
            }
            None => {
                std::thread::sleep(Duration::from_millis(u64::from(milliseconds)));
                Err(TIMEOUT)
            }
        }
    })
}
