//! One GPU: its properties, and its primary context.

use super::driver::{self, check};
use commgauge_base::error::{Error, Result};
use cudarc::driver::sys;
use std::collections::{HashMap, HashSet};
use std::ffi::{c_char, c_int};
use std::fmt;
use std::ptr::null_mut;

/// An opened device.
pub struct Device {
    /// Its number among the devices visible to the process.
    pub number: u32,
    /// Product name.
    pub name: String,
    /// Its UUID, as `GPU-xxxxxxxx-...`.
    pub uuid: String,
    /// PCI address, such as `0000:3b:00.0`.
    pub pci: String,
    pub capability: (u32, u32),
    pub multiprocessors: u32,
    /// Size of its last-level cache.
    pub cache_bytes: u64,
    /// Maximum shared memory per block.
    pub shared_bytes_per_block: u32,
    /// Its context, while it is open.
    pub(super) context: sys::CUcontext,
}

// SAFETY: the context is a handle that any thread may make current; everything else is plain data.
unsafe impl Send for Device {}

// SAFETY: as above, and nothing changes after `open`.
unsafe impl Sync for Device {}

impl Device {
    /// Opens a device and makes its primary context current in this thread; NCCL uses the same one. It stays open until the process ends.
    ///
    /// # Errors
    /// Errors of the driver, with the device.
    pub fn open(number: u32) -> Result<Device> {
        Device::opened(number)
            .map_err(|error| Error::from_exit_code(error.exit_code(), format!("{}: {error}", named(number))))
    }

    /// Whether it is a partition of a GPU (MIG).
    pub fn is_part(&self) -> bool {
        self.uuid.starts_with("MIG-")
    }

    fn opened(number: u32) -> Result<Device> {
        let (mut device, mut context) = (0, null_mut());
        // SAFETY: both handles are ours; the driver was started.
        unsafe {
            check(driver::cuDeviceGet(&mut device, number as c_int), "cuDeviceGet")?;
            check(driver::cuDevicePrimaryCtxRetain(&mut context, device), "cuDevicePrimaryCtxRetain")?;
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
        // SAFETY: the context was retained, and whoever opened it for a while releases it and stops using it.
        check(unsafe { driver::cuCtxSetCurrent(self.context) }, "cuCtxSetCurrent")
    }

    /// Releases its context; nothing may be called in it afterwards.
    pub fn close(&self) {
        // This fails only if the device is lost.
        // SAFETY: retained in `open`, and not used again.
        let _ = unsafe { driver::cuDevicePrimaryCtxRelease_v2(self.number as sys::CUdevice) };
    }

    pub fn free_bytes(&self) -> u64 {
        driver::memory().map_or(0, |(free, _)| free)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {} ({}, {})", self.number, self.name, self.pci)
    }
}

/// A device in words before it is opened, as far as the driver describes it.
fn named(number: u32) -> String {
    let mut device = 0;
    // SAFETY: the handle is ours; the driver was started.
    let found = check(unsafe { driver::cuDeviceGet(&mut device, number as c_int) }, "cuDeviceGet");
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
    check(unsafe { driver::cuDeviceGetAttribute(&mut value, which, device) }, "cuDeviceGetAttribute")?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// Whether a device can read and write the memory of another, by their numbers.
pub(super) fn reaches(number: u32, other: u32) -> Result<bool> {
    let (mut one, mut peer, mut can) = (0, 0, 0);
    // SAFETY: all three are ours; the driver was started.
    unsafe {
        check(driver::cuDeviceGet(&mut one, number as c_int), "cuDeviceGet")?;
        check(driver::cuDeviceGet(&mut peer, other as c_int), "cuDeviceGet")?;
        check(driver::cuDeviceCanAccessPeer(&mut can, one, peer), "cuDeviceCanAccessPeer")?;
    }
    Ok(can != 0)
}

/// Product name.
pub(super) fn name(device: sys::CUdevice) -> Result<String> {
    let mut text = [0u8; 256];
    // SAFETY: the text has room for 256 characters with the zero.
    check(unsafe { driver::cuDeviceGetName(text.as_mut_ptr().cast::<c_char>(), 256, device) }, "cuDeviceGetName")?;
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    Ok(String::from_utf8_lossy(&text[..end]).into_owned())
}

/// Unique name, as NVML writes it.
pub(super) fn uuid(device: sys::CUdevice, name: &str) -> Result<String> {
    // SAFETY: all zeroes are a valid name; the call writes its 16 bytes.
    let uuid = unsafe {
        let mut uuid: sys::CUuuid = std::mem::zeroed();
        check(driver::cuDeviceGetUuid_v2(&mut uuid, device), "cuDeviceGetUuid")?;
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

// Assigns a GPU to each rank, from those visible to it.

/// Place of a rank on its host, and the devices assigned to it.
#[derive(Clone, Debug, Default)]
pub struct Placing {
    /// Rank among those of this host.
    pub local_rank: u32,
    pub ranks_on_host: u32,
    /// Name of the host.
    pub host: String,
    /// Device of each rank of a host, in order.
    pub device_map: Option<Vec<u32>>,
    pub share_gpu: bool,
    /// UUIDs of the devices visible to each rank of the host, in rank order; empty if unknown.
    pub visible: Vec<Vec<String>>,
}

impl Placing {
    /// The number of this rank's device among `devices`.
    ///
    /// # Errors
    /// If there are too few devices, or the map names a missing one.
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
        // Slurm (--gpus-per-task) and wrapper scripts make only its own device visible to each rank. Comparing the UUIDs of all ranks shows
        // whether two share one.
        if devices == 1 && shown.is_some() {
            return Ok(0);
        }
        if let Some(device) = self.device_of_differing(devices) {
            return Ok(device);
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

impl Placing {
    /// The number of this rank's device if ranks of the host see different ones, as with Slurm's `--gpu-bind=closest`: every rank gets a
    /// visible device, and no two share one. `None` if all see the same, or no such assignment exists.
    fn device_of_differing(&self, devices: u32) -> Option<u32> {
        let mine = self.visible.get(self.local_rank as usize)?;
        if mine.len() != devices as usize || self.visible.iter().all(|theirs| theirs == mine) {
            return None;
        }
        assign(&self.visible)?.get(self.local_rank as usize).map(|number| *number as u32)
    }
}

/// A distinct choice for each, as numbers in their lists. Earlier ranks choose first and yield to later ones if they have another choice
/// (augmenting paths; Kuhn 1955).
fn assign(choices: &[Vec<String>]) -> Option<Vec<usize>> {
    let mut owners: HashMap<&str, usize> = HashMap::new();
    for rank in 0..choices.len() {
        if !find_choice(choices, rank, &mut owners, &mut HashSet::new()) {
            return None;
        }
    }
    let number = |rank: usize| choices[rank].iter().position(|choice| owners.get(choice.as_str()) == Some(&rank));
    (0..choices.len()).map(number).collect()
}

fn find_choice<'a>(
    choices: &'a [Vec<String>],
    rank: usize,
    owners: &mut HashMap<&'a str, usize>,
    tried: &mut HashSet<&'a str>,
) -> bool {
    // Free devices first, so that ranks keep the order of their devices where possible.
    if let Some(free) = choices[rank].iter().find(|choice| !owners.contains_key(choice.as_str())) {
        owners.insert(free, rank);
        return true;
    }
    choices[rank].iter().any(|choice| {
        let gives_way = |owner: usize, owners: &mut _, tried: &mut _| find_choice(choices, owner, owners, tried);
        let is_free = tried.insert(choice)
            && owners.get(choice.as_str()).copied().is_some_and(|owner| gives_way(owner, owners, tried));
        if is_free {
            owners.insert(choice, rank);
        }
        is_free
    })
}

/// UUIDs of the visible devices, by number; empty without a driver.
pub fn visible_devices() -> Vec<String> {
    let of = |number: u32| {
        let mut device = 0;
        // SAFETY: the handle is ours; the driver was started.
        check(unsafe { driver::cuDeviceGet(&mut device, number as c_int) }, "cuDeviceGet")?;
        uuid(device, &name(device)?)
    };
    let found = driver::start().and_then(|devices| (0..devices).map(of).collect::<Result<Vec<_>>>());
    // A missing device is reported where it is opened.
    found.unwrap_or_default()
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
    fn ranks_that_see_different_devices_each_get_one_and_no_two_the_same() {
        let lists = |lists: &[&str]| -> Vec<Vec<String>> {
            lists.iter().map(|list| list.split_whitespace().map(str::to_owned).collect()).collect()
        };
        for (visible, expected) in [
            // Slurm's --gpu-bind=closest on two sockets.
            (&["a b", "a b", "c d", "c d"][..], Some(vec![0, 1, 0, 1])),
            (&["a b", "c d", "a b", "c d"], Some(vec![0, 0, 1, 1])),
            // The first one yields.
            (&["a b", "a", "b c"], Some(vec![1, 0, 1])),
            (&["a b", "a b", "a b c", "d"], Some(vec![0, 1, 2, 0])),
            (&["a b", "a b", "a b", "c"], None),
            (&["a", ""], None),
        ] {
            assert_eq!(assign(&lists(visible)), expected, "{visible:?}");
        }
        let among = |visible: &[&str], local_rank, devices| {
            let ranks_on_host = visible.len() as u32;
            Placing { visible: lists(visible), ..placing(local_rank, ranks_on_host) }.device_among(devices, None)
        };
        assert_eq!(among(&["a b", "a b", "c d", "c d"], 3, 2).unwrap(), 1);
        assert_eq!(among(&["a b", "a b"], 1, 2).unwrap(), 1, "all see the same");
        assert!(
            among(&["a b", "a b", "a b", "c b"], 0, 2).unwrap_err().to_string().contains("4 ranks and 2 CUDA devices")
        );
    }

    #[test]
    fn ranks_take_the_device_of_their_place_on_the_host_or_of_the_map() {
        assert_eq!(placing(1, 2).device_among(2, None).unwrap(), 1);
        assert_eq!(Placing { device_map: Some(vec![3, 1]), ..placing(0, 2) }.device_among(4, None).unwrap(), 3);
        assert_eq!(Placing { share_gpu: true, ..placing(5, 6) }.device_among(4, None).unwrap(), 1);
        assert_eq!(placing(3, 8).device_among(1, Some("3".into())).unwrap(), 0, "the only visible one");
    }
}
