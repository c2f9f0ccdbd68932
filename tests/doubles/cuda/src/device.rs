//! The simulated devices and their attributes.

use crate::answer::{
    Answer, INVALID_DEVICE, INVALID_VALUE, MPS_CONNECTION_FAILED, NO_DEVICE, PEER_ACCESS_UNSUPPORTED, answer,
    set_initialized,
};
use settings::{SETTINGS, bus, uuid, uuid_text};
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::sync::LazyLock;
use std::time::Duration;

/// A name that makes clear that nothing was measured.
pub const NAME: &str = "commgauge double (no GPU)";

const DRIVER_VERSION: c_int = 12080;
/// SMs of a device.
pub const MULTIPROCESSORS: c_int = 8;

/// Numbers on the host of the devices that this process sees, in its order.
static VISIBLE: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let all = 0..SETTINGS.devices;
    let Ok(list) = std::env::var("CUDA_VISIBLE_DEVICES") else { return all.collect() };
    let mut visible = Vec::new();
    for word in list.split(',').map(str::trim) {
        let by_number = word.parse::<u32>().ok().filter(|number| *number < SETTINGS.devices);
        let by_uuid = || all.clone().find(|number| word.starts_with("GPU-") && uuid_text(*number).starts_with(word));
        // As the driver does: the first that is not there ends the list.
        let Some(number) = by_number.or_else(by_uuid).filter(|number| !visible.contains(number)) else { break };
        visible.push(number);
    }
    visible
});

/// The number on the host of a device of this process.
pub fn number_on_host(device: c_int) -> Result<u32, c_int> {
    usize::try_from(device).ok().and_then(|device| VISIBLE.get(device).copied()).ok_or(INVALID_DEVICE)
}

/// From the call of the host to the work on the device: 2 to 4 us, different for each device.
pub fn submission_delay(device: c_int) -> Duration {
    Duration::from_nanos(2_000 + u64::from(number_on_host(device).unwrap_or(0)) * 700 % 2_001)
}

/// For the stand-in for NCCL: the name of the whole GPU that a device is, or is a part of. Not a function of the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn commgauge_double_gpu_uuid(bytes: *mut [u8; 16], device: c_int) -> c_int {
    answer(|| {
        let number = number_on_host(device)?;
        *bytes = uuid(number - number % SETTINGS.parts);
        Ok(())
    })
}

fn copy_text(text: &str, to: *mut c_char, length: c_int) -> Answer {
    let room = usize::try_from(length).ok().filter(|room| *room > 0).ok_or(INVALID_VALUE)?;
    let bytes = &text.as_bytes()[..text.len().min(room - 1)];
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        to.add(bytes.len()).write(0);
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: c_uint) -> c_int {
    if flags != 0 {
        return INVALID_VALUE;
    }
    if VISIBLE.is_empty() {
        return NO_DEVICE;
    }
    if let Some(code) = std::env::var("COMMGAUGE_DOUBLE_INIT").ok().and_then(|code| code.parse().ok()) {
        return code;
    }
    // Real ones connect when they are initialised.
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if is_set("COMMGAUGE_DOUBLE_MPS_REFUSES") && is_set("CUDA_MPS_PIPE_DIRECTORY") {
        return MPS_CONNECTION_FAILED;
    }
    set_initialized();
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    *version = DRIVER_VERSION;
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    answer(|| {
        *count = VISIBLE.len() as c_int;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    answer(|| {
        number_on_host(ordinal)?;
        *device = ordinal;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> c_int {
    answer(|| {
        let model = SETTINGS.model_of(number_on_host(device)?);
        let part = if SETTINGS.parts > 1 { " MIG 1g.10gb" } else { "" };
        copy_text(&format!("{}{part}", format!("{NAME} {model}").trim_end()), name, length)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid(bytes: *mut [u8; 16], device: c_int) -> c_int {
    answer(|| {
        *bytes = uuid(number_on_host(device)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(bytes: *mut [u8; 16], device: c_int) -> c_int {
    cuDeviceGetUuid(bytes, device)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetPCIBusId(text: *mut c_char, length: c_int, device: c_int) -> c_int {
    answer(|| copy_text(&format!("0000:{:02X}:00.0", bus(number_on_host(device)?)), text, length))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetByPCIBusId(device: *mut c_int, text: *const c_char) -> c_int {
    answer(|| {
        let text = CStr::from_ptr(text).to_str().map_err(|_| INVALID_VALUE)?.to_ascii_uppercase();
        let found = VISIBLE.iter().position(|number| format!("0000:{:02X}:00.0", bus(*number)).ends_with(&text));
        *device = found.ok_or(INVALID_DEVICE)? as c_int;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> c_int {
    answer(|| {
        *bytes = SETTINGS.memory_of(number_on_host(device)?) as usize;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> c_int {
    answer(|| {
        *value = attribute_of(number_on_host(device)?, attribute)?;
        Ok(())
    })
}

/// By the numbers of CUdevice_attribute.
fn attribute_of(number: u32, attribute: c_int) -> Result<c_int, c_int> {
    Ok(match attribute {
        // Threads of a block, in all and by dimension; of a multiprocessor.
        1..=3 => 1024,
        4 => 64,
        39 => 2048,
        // Blocks of a grid, by dimension; of a multiprocessor.
        5 => i32::MAX,
        6 | 7 => 65535,
        106 => 32,
        // Shared memory of a block; of a multiprocessor; of a block that requests more.
        8 => 48 << 10,
        81 => 228 << 10,
        97 => 227 << 10,
        10 => 32,
        // Clocks in kHz: of the SMs, of the memory; its bits.
        13 => 1_000_000,
        36 => 1_000_000,
        37 => 1024,
        16 => MULTIPROCESSORS,
        // The L2 cache: small, so that tests need not flush much.
        38 => 1 << 20,
        33 => bus(number) as c_int,
        40 => 1,
        // Maps host memory, one address space, streams with priorities, pools, registers host memory, cooperative launch.
        19 | 41 | 31 | 78 | 115 | 99 | 95 | 91 => 1,
        75 => (SETTINGS.capability / 10) as c_int,
        76 => (SETTINGS.capability % 10) as c_int,
        // Everything else is not there: no managed memory, no virtual memory, no multicast, no GPUDirect.
        _ => 0,
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> c_int {
    answer(|| {
        *can = c_int::from(number_on_host(device)? != number_on_host(peer)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetP2PAttribute(
    value: *mut c_int,
    attribute: c_int,
    device: c_int,
    peer: c_int,
) -> c_int {
    answer(|| {
        if number_on_host(device)? == number_on_host(peer)? {
            return Err(INVALID_DEVICE);
        }
        *value = match attribute {
            // Rank of performance, lower is better; access; atomics; arrays.
            1 => 0,
            2..=4 => 1,
            _ => return Err(INVALID_VALUE),
        };
        Ok(())
    })
}

/// Between the devices of one process everything is reachable already.
pub fn check_peers(device: c_int, peer: c_int) -> Answer {
    if device == peer { Err(PEER_ACCESS_UNSUPPORTED) } else { Ok(()) }
}
