//! One GPU: its properties, and its primary context.

use super::driver::{self, check};
use super::driver_calls as calls;
use commgauge_base::error::{Error, Result};
use cudarc::driver::sys;
use std::ffi::{c_char, c_int};
use std::fmt;
use std::ptr::null_mut;

/// An opened device.
pub struct Device {
    /// Its number among those that the process sees.
    pub number: u32,
    /// Product name.
    pub name: String,
    /// Its unique name, as `GPU-xxxxxxxx-...`.
    pub uuid: String,
    /// PCI address, such as `0000:3b:00.0`.
    pub pci: String,
    /// Compute capability.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of its last-level cache.
    pub cache_bytes: u64,
    /// Most shared memory that a block may request.
    pub shared_bytes_per_block: u32,
    context: sys::CUcontext,
}

// SAFETY: the context is a handle that any thread may make current; nothing else in here is not plain data.
unsafe impl Send for Device {}
// SAFETY: as above, and nothing changes after `open`.
unsafe impl Sync for Device {}

impl Device {
    /// Opens a device and makes its primary context, which NCCL uses too, current in this thread. It stays open until the
    /// process ends.
    ///
    /// # Errors
    /// Those of the driver, with the device.
    pub fn open(number: u32) -> Result<Device> {
        Device::opened(number)
            .map_err(|error| Error::from_exit_code(error.exit_code(), format!("{}: {error}", named(number))))
    }

    /// Whether it is a part of a GPU (MIG).
    pub fn is_part(&self) -> bool {
        self.uuid.starts_with("MIG-")
    }

    fn opened(number: u32) -> Result<Device> {
        let (mut device, mut context) = (0, null_mut());
        // SAFETY: both handles are ours; the driver was started.
        unsafe {
            check(calls::cuDeviceGet(&mut device, number as c_int), "cuDeviceGet")?;
            check(calls::cuDevicePrimaryCtxRetain(&mut context, device), "cuDevicePrimaryCtxRetain")?;
        }
        use sys::CUdevice_attribute as Attribute;
        let attribute = |which| attribute(device, which);
        let name = name(device)?;
        let opened = Device {
            number,
            uuid: uuid(device, &name)?,
            name,
            pci: pci(device)?,
            capability: (
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1),
            cache_bytes: u64::from(attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?),
            shared_bytes_per_block: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            context,
        };
        opened.make_current()?;
        Ok(opened)
    }

    /// Makes its context current in this thread.
    pub fn make_current(&self) -> Result<()> {
        // SAFETY: the context was retained, and is released only by who opened it for a while and uses it no more.
        check(unsafe { calls::cuCtxSetCurrent(self.context) }, "cuCtxSetCurrent")
    }

    /// Its context, while it is open.
    pub fn context(&self) -> sys::CUcontext {
        self.context
    }

    /// Gives its context back; nothing may be called in it afterwards.
    pub fn close(&self) {
        // This fails only if the device is lost.
        // SAFETY: retained in `open`, and not used again.
        let _ = unsafe { calls::cuDevicePrimaryCtxRelease_v2(self.number as sys::CUdevice) };
    }

    /// Bytes that are free on it.
    pub fn free_bytes(&self) -> u64 {
        driver::memory().map_or(0, |(free, _)| free)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {} ({}, {})", self.number, self.name, self.pci)
    }
}

/// A device in words before it is opened, as far as the driver tells them.
fn named(number: u32) -> String {
    let mut device = 0;
    // SAFETY: the handle is ours; the driver was started.
    let found = check(unsafe { calls::cuDeviceGet(&mut device, number as c_int) }, "cuDeviceGet");
    let facts: Vec<String> = found.into_iter().flat_map(|()| [name(device), pci(device)]).flatten().collect();
    if facts.is_empty() { format!("device {number}") } else { format!("device {number} ({})", facts.join(", ")) }
}

/// PCI address.
fn pci(device: sys::CUdevice) -> Result<String> {
    use sys::CUdevice_attribute as Attribute;
    Ok(format!(
        "{:04x}:{:02x}:{:02x}.0",
        attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
        attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
        attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?
    ))
}

fn attribute(device: sys::CUdevice, which: sys::CUdevice_attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: the int is ours.
    check(unsafe { calls::cuDeviceGetAttribute(&mut value, which, device) }, "cuDeviceGetAttribute")?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// Whether a device can read and write the memory of another, by their numbers.
pub(super) fn reaches(number: u32, other: u32) -> Result<bool> {
    let (mut one, mut peer, mut can) = (0, 0, 0);
    // SAFETY: all three are ours; the driver was started.
    unsafe {
        check(calls::cuDeviceGet(&mut one, number as c_int), "cuDeviceGet")?;
        check(calls::cuDeviceGet(&mut peer, other as c_int), "cuDeviceGet")?;
        check(calls::cuDeviceCanAccessPeer(&mut can, one, peer), "cuDeviceCanAccessPeer")?;
    }
    Ok(can != 0)
}

/// Product name.
pub(super) fn name(device: sys::CUdevice) -> Result<String> {
    let mut text = [0u8; 256];
    // SAFETY: the text has room for 256 characters with the zero.
    check(unsafe { calls::cuDeviceGetName(text.as_mut_ptr().cast::<c_char>(), 256, device) }, "cuDeviceGetName")?;
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    Ok(String::from_utf8_lossy(&text[..end]).into_owned())
}

/// Unique name, as NVML writes it.
pub(super) fn uuid(device: sys::CUdevice, name: &str) -> Result<String> {
    // SAFETY: all zeroes are a valid name; the call writes its 16 bytes.
    let uuid = unsafe {
        let mut uuid: sys::CUuuid = std::mem::zeroed();
        check(calls::cuDeviceGetUuid_v2(&mut uuid, device), "cuDeviceGetUuid")?;
        uuid
    };
    let digits: String = uuid.bytes.iter().map(|byte| format!("{:02x}", *byte as u8)).collect();
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    Ok(format!("{}-{}", kind(name), parts.join("-")))
}

/// Prefix of the UUID as NVML and `CUDA_VISIBLE_DEVICES` write it. A partition of a device (MIG) has another prefix,
/// and only its name shows that it is one, such as `NVIDIA H100 80GB HBM3 MIG 1g.10gb`.
fn kind(name: &str) -> &'static str {
    if name.contains(" MIG ") { "MIG" } else { "GPU" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_divided_device_is_named_as_one() {
        for (name, expected) in
            [("NVIDIA H100 80GB HBM3", "GPU"), ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "MIG"), ("MIGHTY", "GPU")]
        {
            assert_eq!(kind(name), expected, "{name}");
        }
    }
}
