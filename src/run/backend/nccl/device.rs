//! One GPU: which one a rank uses, its properties, and its primary context.

use super::driver::{self, check};
use commgauge_base::error::{Error, Result};
use cudarc::driver::sys;
use std::ffi::{c_char, c_int};
use std::fmt;
use std::ptr::null_mut;

/// Place of a rank on its host, and the devices that it was assigned.
#[derive(Clone, Debug, Default)]
pub struct Placing {
    /// Rank among those of this host.
    pub local_rank: u32,
    /// Ranks of this host.
    pub ranks_on_host: u32,
    /// Name of the host.
    pub host: String,
    /// Device of each rank of a host, in order.
    pub device_map: Option<Vec<u32>>,
    /// Whether ranks may share a device.
    pub share_gpu: bool,
}

impl Placing {
    /// The number of this rank's device among `devices`.
    ///
    /// # Errors
    /// Where there are too few, or the map names one that is not there.
    pub fn device(&self, devices: u32) -> Result<u32> {
        self.device_among(devices, std::env::var("CUDA_VISIBLE_DEVICES").ok())
    }

    fn device_among(&self, devices: u32, shown: Option<String>) -> Result<u32> {
        let Placing { local_rank, ranks_on_host, host, .. } = self;
        let visible = shown.as_ref().map(|list| format!(" (CUDA_VISIBLE_DEVICES={list})")).unwrap_or_default();
        let there = match devices {
            1 => "there is one device, number 0".to_owned(),
            many => format!("there are {many} devices, 0 to {}", many - 1),
        };
        if let Some(map) = &self.device_map {
            let Some(device) = map.get(*local_rank as usize) else {
                return Err(Error::usage(format!(
                    "--device-map names devices for {} ranks; host {host} has {ranks_on_host} ranks",
                    map.len()
                )));
            };
            if *device >= devices {
                return Err(Error::usage(format!(
                    "--device-map: device {device} is not on host {host}{visible}; {there}"
                )));
            }
            return Ok(*device);
        }
        if self.share_gpu {
            return Ok(local_rank % devices);
        }
        // Slurm (--gpus-per-task) and wrapper scripts show each rank only its own device. Whether two ranks share one
        // is found by comparing the device UUIDs of all ranks.
        if devices == 1 && shown.is_some() {
            return Ok(0);
        }
        if *ranks_on_host > devices {
            let plural = if devices == 1 { "" } else { "s" };
            return Err(Error::usage(format!(
                "host {host} has {ranks_on_host} ranks and {devices} CUDA device{plural}{visible}; start one rank for each device, or \
                 let ranks share them with --share-gpu (NCCL 2.30 or newer), which is marked in the record"
            )));
        }
        Ok(*local_rank)
    }
}

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
    pub fn open(number: u32) -> Result<Device> {
        let (mut device, mut context) = (0, null_mut());
        // SAFETY: both handles are ours; the driver was started.
        unsafe {
            check(sys::cuDeviceGet(&mut device, number as c_int), "cuDeviceGet")?;
            check(sys::cuDevicePrimaryCtxRetain(&mut context, device), "cuDevicePrimaryCtxRetain")?;
        }
        use sys::CUdevice_attribute as Attribute;
        let attribute = |which| attribute(device, which);
        let name = name(device)?;
        let opened = Device {
            number,
            uuid: uuid(device, &name)?,
            name,
            pci: format!(
                "{:04x}:{:02x}:{:02x}.0",
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?
            ),
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
        // SAFETY: the context was retained and is never released.
        check(unsafe { sys::cuCtxSetCurrent(self.context) }, "cuCtxSetCurrent")
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

fn attribute(device: sys::CUdevice, which: sys::CUdevice_attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: the int is ours.
    check(unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) }, "cuDeviceGetAttribute")?;
    Ok(u32::try_from(value).unwrap_or(0))
}

fn name(device: sys::CUdevice) -> Result<String> {
    let mut text = [0u8; 256];
    // SAFETY: the text has room for 256 characters with the zero.
    check(unsafe { sys::cuDeviceGetName(text.as_mut_ptr().cast::<c_char>(), 256, device) }, "cuDeviceGetName")?;
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    Ok(String::from_utf8_lossy(&text[..end]).into_owned())
}

fn uuid(device: sys::CUdevice, name: &str) -> Result<String> {
    // SAFETY: all zeroes are a valid name; the call writes its 16 bytes.
    let uuid = unsafe {
        let mut uuid: sys::CUuuid = std::mem::zeroed();
        check(sys::cuDeviceGetUuid_v2(&mut uuid, device), "cuDeviceGetUuid")?;
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

    fn placing(local_rank: u32, ranks_on_host: u32) -> Placing {
        Placing { local_rank, ranks_on_host, host: "a".into(), ..Placing::default() }
    }

    #[test]
    fn more_ranks_than_devices_and_maps_that_do_not_fit_say_what_is_there() {
        let map = |map: &[u32], local_rank| Placing { device_map: Some(map.to_vec()), ..placing(local_rank, 2) };
        for (placing, devices, words) in [
            (placing(0, 4), 2, "host a has 4 ranks and 2 CUDA devices"),
            (placing(1, 2), 1, "--share-gpu"),
            (map(&[0], 1), 4, "--device-map names devices for 1 ranks; host a has 2 ranks"),
            (map(&[0, 4], 1), 4, "--device-map: device 4 is not on host a; there are 4 devices, 0 to 3"),
            (map(&[0, 1], 1), 1, "there is one device, number 0"),
        ] {
            let error = placing.device_among(devices, None).expect_err(words);
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn ranks_take_the_device_of_their_place_on_the_host_or_of_the_map() {
        assert_eq!(placing(1, 2).device_among(2, None).unwrap(), 1);
        assert_eq!(Placing { device_map: Some(vec![3, 1]), ..placing(0, 2) }.device_among(4, None).unwrap(), 3);
        assert_eq!(Placing { share_gpu: true, ..placing(5, 6) }.device_among(4, None).unwrap(), 1);
        assert_eq!(placing(3, 8).device_among(1, Some("3".into())).unwrap(), 0, "the one that it was shown");
    }
}
