//! NVML readings of a rank's device: facts, clocks, power, temperature, throttle reasons, NVLinks.
//!
//! NVML is loaded when it is first requested. If it is missing, that is reported, and nothing is guessed.

use crate::backend::{DeviceIdentity, DeviceReader, DeviceState};
use crate::device_probe::{MAX_NVLINKS, NVML_LIBRARY as LIBRARY, THROTTLE_REASONS};
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::{Device, Nvml};
use std::ffi::OsStr;

/// Reads one device through NVML.
pub(super) struct NvmlReader {
    nvml: Result<Nvml, String>,
    uuid: String,
    pci: String,
}

impl NvmlReader {
    /// Reader of the device with this UUID, at this PCI address.
    pub fn new(uuid: &str, pci: &str) -> NvmlReader {
        let nvml = Nvml::builder().lib_path(OsStr::new(LIBRARY)).init();
        let nvml = nvml.map_err(|error| format!("NVML ({LIBRARY}) cannot be used: {error}"));
        NvmlReader { nvml, uuid: uuid.to_owned(), pci: pci.to_owned() }
    }

    fn device(&self) -> Option<Device<'_>> {
        let nvml = self.nvml.as_ref().ok()?;
        // A partition of a device (MIG) has no clocks and no power readings; its address is that of the whole device,
        // which has.
        match self.uuid.starts_with("GPU-").then(|| nvml.device_by_uuid(self.uuid.as_str())) {
            Some(Ok(device)) => Some(device),
            _ => nvml.device_by_pci_bus_id(self.pci.as_str()).ok(),
        }
    }
}

impl DeviceReader for NvmlReader {
    fn source(&self) -> Result<String, String> {
        let nvml = self.nvml.as_ref().map_err(String::clone)?;
        if self.device().is_none() {
            return Err(format!("NVML does not know device {} ({})", self.uuid, self.pci));
        }
        Ok(format!("NVML {}", nvml.sys_nvml_version().unwrap_or_else(|_| "of unknown version".to_owned())))
    }

    fn identity(&self) -> Option<DeviceIdentity> {
        let nvml = self.nvml.as_ref().ok()?;
        let device = self.device()?;
        let cuda = nvml.sys_cuda_driver_version().ok();
        let numa = std::fs::read_to_string(format!("/sys/bus/pci/devices/{}/numa_node", self.pci));
        let links = (0..MAX_NVLINKS).filter(|link| device.link_wrapper_for(*link).is_active().is_ok()).count() as u32;
        Some(DeviceIdentity {
            name: device.name().unwrap_or_default(),
            uuid: self.uuid.clone(),
            pci: self.pci.clone(),
            // -1 means none.
            numa_node: numa.ok().and_then(|text| text.trim().parse().ok()),
            driver: nvml.sys_driver_version().ok(),
            cuda: cuda.map(|version| format!("{}.{}", version / 1000, version % 1000 / 10)),
            power_limit_watts: device.enforced_power_limit().ok().map(|milliwatts| f64::from(milliwatts) / 1000.0),
            nvlinks: Some(links),
        })
    }

    fn read(&mut self) -> Option<DeviceState> {
        let device = self.device()?;
        let reasons = device.current_throttle_reasons().ok();
        let names = |reasons: ThrottleReasons| THROTTLE_REASONS.iter().filter(move |(one, _)| reasons.contains(*one));
        let active = |link: &u32| device.link_wrapper_for(*link).is_active().is_ok_and(|active| active);
        Some(DeviceState {
            multiprocessor_clock_mhz: device.clock_info(Clock::SM).ok().map(f64::from),
            memory_clock_mhz: device.clock_info(Clock::Memory).ok().map(f64::from),
            power_watts: device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1000.0),
            temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok().map(f64::from),
            throttle_reasons: reasons.into_iter().flat_map(names).map(|(_, name)| (*name).to_owned()).collect(),
            is_idle: reasons.is_some_and(|reasons| reasons.contains(ThrottleReasons::GPU_IDLE)),
            nvlinks_active: Some((0..MAX_NVLINKS).filter(active).count() as u32),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_nvml_is_reported_and_nothing_is_read() {
        let mut reader = NvmlReader::new("GPU-none", "0000:00:00.0");
        // On a host with a GPU the device is unknown, on others the library is.
        let reason = reader.source().unwrap_err();
        assert!(reason.contains("NVML"), "{reason}");
        assert_eq!((reader.identity(), reader.read()), (None, None));
    }
}
