//! Queries NVML for the current state of each device. Nothing is changed.

use super::answer::{NvmlAnswer, NvmlDevice};
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor, TemperatureThreshold};
use nvml_wrapper::{Device, Nvml};
use std::ffi::OsStr;

/// Library of the driver packages; the name without a version comes with development packages only.
pub const NVML_LIBRARY: &str = "libnvidia-ml.so.1";
/// Maximum number of links of any device.
pub const MAX_NVLINKS: u32 = 36;

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
pub(super) fn query() -> Result<NvmlAnswer, String> {
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
            for number in 0..devices {
                match nvml.device_by_index(number) {
                    Ok(device) => answer.devices.push(describe(&device)),
                    // A device that fell off the bus is counted but cannot be opened.
                    Err(error) => {
                        answer.devices.push(NvmlDevice { problem: Some(error.to_string()), ..NvmlDevice::default() })
                    }
                }
            }
        }
    }
    Ok(answer)
}

fn describe(device: &Device) -> NvmlDevice {
    let watts = |milliwatts: u32| milliwatts / 1000;
    let reasons = device.current_throttle_reasons().ok();
    let held = |reasons: ThrottleReasons| THROTTLE_REASONS.iter().filter(move |(one, _)| reasons.contains(*one));
    let links: Vec<bool> = (0..MAX_NVLINKS).filter_map(|link| device.link_wrapper_for(link).is_active().ok()).collect();
    NvmlDevice {
        problem: None,
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_nvml_is_reported_with_its_file() {
        match query() {
            Err(reason) => assert!(reason.contains(NVML_LIBRARY), "{reason}"),
            // A host with GPUs has a driver version.
            Ok(answer) => assert!(!answer.driver.is_empty()),
        }
    }
}
