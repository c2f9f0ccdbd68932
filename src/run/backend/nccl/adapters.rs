//! Which network adapter is nearest to a GPU, by the PCI tree in sysfs: NCCL uses these for a GPU's messages to other hosts unless its own
//! topology or `NCCL_IB_HCA` says otherwise. NCCL is not queried.

use crate::backend::{DeviceReader, DeviceState};
use crate::device_probe::{DeviceCounters, Fabric, MAX_NVLINKS, NVML_LIBRARY as LIBRARY, THROTTLE_REASONS};
use commgauge_base::error::{Error, Result};
use commgauge_base::host::processors;
use commgauge_model::record::header::DeviceFacts;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::{Device, Nvml};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// How near an adapter is, in the words of `nvidia-smi topo`, the nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Nearness {
    /// Below the same PCI bridge, or the same few.
    SameSwitch,
    /// Below the same PCI root complex.
    SameRoot,
    /// On the same NUMA node.
    SameNode,
    /// On another NUMA node.
    OtherNode,
}

impl Nearness {
    fn words(self) -> &'static str {
        match self {
            Nearness::SameSwitch => "same PCIe switch",
            Nearness::SameRoot => "same PCIe root",
            Nearness::SameNode => "same NUMA node",
            Nearness::OtherNode => "another NUMA node",
        }
    }
}

struct Adapter {
    name: String,
    place: PathBuf,
    /// Rate of the first active port; none if no port is active.
    rate: Option<String>,
}

/// The adapters nearest to a GPU, each as `mlx5_0 (same PCIe switch, 400 Gb/sec (4X NDR))`: all equally near ones with an active port, then
/// those at least as near without one, as `mlx5_1 (same PCIe switch) is down`. Empty if there are none or the system does not report them.
/// `filter` is the value of `NCCL_IB_HCA`.
pub(super) fn nearest(sysfs: &Path, pci: &str, filter: Option<&str>) -> Vec<String> {
    let Ok(gpu) = sysfs.join("bus/pci/devices").join(pci).canonicalize() else { return Vec::new() };
    let node = numa_node(&gpu);
    let mut all: Vec<(Nearness, Adapter)> = adapters(sysfs)
        .into_iter()
        .filter(|adapter| filter.is_none_or(|filter| is_chosen(&adapter.name, filter)))
        .map(|adapter| (nearness(&gpu, node, &adapter.place), adapter))
        .collect();
    all.sort_by(|a, b| (a.0, &a.1.name).cmp(&(b.0, &b.1.name)));
    let best = all.iter().find(|(_, adapter)| adapter.rate.is_some()).map(|(nearness, _)| *nearness);
    let near = || all.iter().filter(|(nearness, _)| best.is_none_or(|best| *nearness <= best));
    let active = near().filter_map(|(nearness, Adapter { name, rate, .. })| {
        Some(format!("{name} ({}, {})", nearness.words(), rate.as_ref()?))
    });
    let down = near().filter(|(_, adapter)| adapter.rate.is_none());
    active.chain(down.map(|(nearness, adapter)| format!("{} ({}) is down", adapter.name, nearness.words()))).collect()
}

fn adapters(sysfs: &Path) -> Vec<Adapter> {
    let entries = std::fs::read_dir(sysfs.join("class/infiniband")).into_iter().flatten().flatten();
    let adapter = |folder: PathBuf| {
        let ports = std::fs::read_dir(folder.join("ports")).ok()?.flatten().map(|port| port.path());
        let read =
            |port: &Path, file: &str| std::fs::read_to_string(port.join(file)).unwrap_or_default().trim().to_owned();
        let mut active = ports.filter(|port| read(port, "state").ends_with("ACTIVE"));
        let rate = active.next().map(|port| read(&port, "rate"));
        let name = folder.file_name()?.to_string_lossy().into_owned();
        Some(Adapter { name, place: folder.join("device").canonicalize().ok()?, rate })
    };
    entries.filter_map(|entry| adapter(entry.path())).collect()
}

fn nearness(gpu: &Path, node: Option<i64>, adapter: &Path) -> Nearness {
    // /sys/devices/pci0000:00/BRIDGE/.../DEVICE: the root, the bridges, the device itself.
    let shared = gpu.components().zip(adapter.components()).take_while(|(one, other)| one == other);
    let shared = shared.filter(|(part, _)| part.as_os_str().to_string_lossy().contains(':')).count();
    match shared {
        0 if node.is_some() && node == numa_node(adapter) => Nearness::SameNode,
        0 => Nearness::OtherNode,
        // The root alone.
        1 => Nearness::SameRoot,
        _ => Nearness::SameSwitch,
    }
}

fn numa_node(device: &Path) -> Option<i64> {
    std::fs::read_to_string(device.join("numa_node")).ok()?.trim().parse().ok().filter(|node| *node >= 0)
}

/// Whether `NCCL_IB_HCA` lets NCCL take an adapter: a list of name prefixes, exact names after `=`, exclusions after `^`; a port follows a
/// colon (NCCL user guide, "NCCL_IB_HCA").
fn is_chosen(name: &str, filter: &str) -> bool {
    let (is_excluding, list) = filter.strip_prefix('^').map_or((false, filter), |rest| (true, rest));
    let (is_exact, list) = list.strip_prefix('=').map_or((false, list), |rest| (true, rest));
    let mut names =
        list.split(',').map(|entry| entry.split(':').next().unwrap_or_default()).filter(|entry| !entry.is_empty());
    let is_listed = names.any(|entry| if is_exact { name == entry } else { name.starts_with(entry) });
    is_listed != is_excluding
}

// Keeps a rank on the processors that are nearest to its GPU, so that its memory and NCCL's threads are local too. A tighter binding by the
// launcher stays.

/// The sysfs folder of the host's devices.
pub(super) const SYSFS: &str = "/sys";

/// Binds this thread, and the threads that it starts, to the processors of a device's NUMA node. Returns them as a list of ranges; none if
/// the binding is unchanged: the system does not report the processors, the rank is already bound to some of them or to others, or they are
/// fewer than the ranks of the host.
pub(super) fn bind_near(sysfs: &Path, pci: &str, ranks_on_host: u32) -> Option<String> {
    let list = std::fs::read_to_string(sysfs.join("bus/pci/devices").join(pci).join("local_cpulist")).ok()?;
    let allowed = sched_getaffinity(None).ok()?;
    let near = nearest_cores(&processors_of(&allowed), &processors(&list), ranks_on_host as usize)?;
    sched_setaffinity(None, &set_of(near)).ok()?;
    Some(list.trim().to_owned())
}

/// The allowed processors that are near; none if that is not narrower, empty, or too few for the ranks.
fn nearest_cores(allowed: &[usize], local: &BTreeSet<usize>, ranks: usize) -> Option<Vec<usize>> {
    let near: Vec<usize> = allowed.iter().copied().filter(|processor| local.contains(processor)).collect();
    (near.len() < allowed.len() && near.len() >= ranks.max(1)).then_some(near)
}

fn processors_of(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect()
}

fn set_of(processors: impl IntoIterator<Item = usize>) -> CpuSet {
    let mut set = CpuSet::new();
    processors.into_iter().filter(|processor| *processor < CpuSet::MAX_CPU).for_each(|processor| set.set(processor));
    set
}

// Memory on the NUMA node farthest from a GPU: allocated by a thread that runs there. Not by `set_mempolicy`, which containers refuse, and to which
// the driver prefers the caller's node (`nv_alloc_system_pages`, nv-vm.c).

/// A text of the folder of NUMA nodes.
fn of_nodes(sysfs: &Path, file: &str) -> String {
    let text = std::fs::read_to_string(sysfs.join("devices/system/node").join(file)).unwrap_or_default();
    text.trim().to_owned()
}

/// The NUMA node with memory and processors that is farthest from a GPU; of several, the first.
///
/// # Errors
/// If there is none, or the GPU's own is unknown.
pub(super) fn far_node(sysfs: &Path, pci: &str) -> Result<usize> {
    let [with_memory, with_processors, online] =
        ["has_memory", "has_cpu", "online"].map(|file| processors(&of_nodes(sysfs, file)));
    let nodes = with_memory.intersection(&with_processors);
    if nodes.clone().count() < 2 {
        return Err(Error::environment("the host has one NUMA node, so none is far"));
    }
    let unknown = || format!("the system does not say which NUMA node is near to {pci} (numa_node)");
    let own = numa_node(&sysfs.join("bus/pci/devices").join(pci)).ok_or_else(|| Error::environment(unknown()))?;
    // A number for each node that is online, in their order.
    let distances = of_nodes(sysfs, &format!("node{own}/distance"));
    let distances = distances.split_whitespace().map(|distance| distance.parse().unwrap_or(0));
    let distance_of: BTreeMap<usize, u64> = online.into_iter().zip(distances).collect();
    let others = nodes.copied().filter(|node| *node as i64 != own);
    Ok(others.max_by_key(|node| (distance_of.get(node), Reverse(*node))).unwrap_or(own as usize))
}

/// Runs work on the processors of a NUMA node.
///
/// # Errors
/// If this thread may not run there.
pub(super) fn on_node<T>(sysfs: &Path, node: usize, work: impl FnOnce() -> T) -> Result<T> {
    let list = of_nodes(sysfs, &format!("node{node}/cpulist"));
    let refused = |cause| Error::environment(format!("cannot run on NUMA node {node} (processors {list}): {cause}"));
    let before = sched_getaffinity(None).map_err(refused)?;
    sched_setaffinity(None, &set_of(processors(&list))).map_err(refused)?;
    let done = work();
    sched_setaffinity(None, &before).map_err(refused)?;
    Ok(done)
}

/// The bytes that the mapping with an address has on a NUMA node, by `/proc/self/numa_maps`; none if that lists no pages of it.
pub(super) fn bytes_on(node: usize, maps: &str, address: u64) -> Option<u64> {
    let start = |line: &str| u64::from_str_radix(line.split(' ').next()?, 16).ok();
    let line = maps.lines().take_while(|line| start(line).is_some_and(|start| start <= address)).last()?;
    let value = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name)?.parse::<u64>().ok());
    let kib_of_page = value("kernelpagesize_kB=")?;
    Some(value(&format!("N{node}=")).unwrap_or(0).saturating_mul(kib_of_page.saturating_mul(1024)))
}

/// Reads one device through NVML.
pub(super) struct NvmlReader {
    nvml: std::result::Result<&'static Nvml, String>,
    counters: Option<DeviceCounters<'static>>,
    uuid: String,
    pci: String,
}

impl NvmlReader {
    /// Reader of the device with this UUID, at this PCI address.
    pub fn new(uuid: &str, pci: &str) -> NvmlReader {
        let nvml = Nvml::builder().lib_path(OsStr::new(LIBRARY)).init();
        // It stays open until the process ends, as its threads and events do.
        let nvml = nvml.map(|nvml| &*Box::leak(Box::new(nvml)));
        let nvml = nvml.map_err(|error| format!("NVML ({LIBRARY}) cannot be used: {error}"));
        // A partition of a device (MIG) has no clocks and no power readings; its address is that of the whole device, which has them.
        let find = |nvml: &'static Nvml| match uuid.starts_with("GPU-").then(|| nvml.device_by_uuid(uuid)) {
            Some(Ok(device)) => Some(device),
            _ => nvml.device_by_pci_bus_id(pci).ok(),
        };
        let counters = nvml.as_ref().ok().and_then(|nvml| find(nvml)).map(DeviceCounters::of);
        NvmlReader { nvml, counters, uuid: uuid.to_owned(), pci: pci.to_owned() }
    }

    /// The NVLink fabric that the device belongs to.
    pub fn fabric(&self) -> Option<Fabric> {
        self.counters.as_ref()?.fabric()
    }

    fn device(&self) -> Option<&Device<'static>> {
        self.counters.as_ref().map(|counters| &counters.device)
    }
}

impl DeviceReader for NvmlReader {
    fn source(&self) -> std::result::Result<String, String> {
        let nvml = self.nvml.as_ref().map_err(String::clone)?;
        if self.device().is_none() {
            return Err(format!("NVML does not know device {} ({})", self.uuid, self.pci));
        }
        Ok(format!("NVML {}", nvml.sys_nvml_version().unwrap_or_else(|_| "of unknown version".to_owned())))
    }

    fn identity(&self) -> Option<DeviceFacts> {
        let nvml = self.nvml.as_ref().ok()?;
        let device = self.device()?;
        let cuda = nvml.sys_cuda_driver_version().ok();
        let links = || (0..MAX_NVLINKS).filter_map(|link| device.link_wrapper_for(link).is_active().ok());
        Some(DeviceFacts {
            name: device.name().unwrap_or_default(),
            uuid: self.uuid.clone(),
            pci: self.pci.clone(),
            numa_node: numa_node(&Path::new(SYSFS).join("bus/pci/devices").join(&self.pci)).map(|node| node as u32),
            far_numa_node: far_node(Path::new(SYSFS), &self.pci).ok().map(|node| node as u32),
            driver: nvml.sys_driver_version().ok(),
            cuda: cuda.map(|version| format!("{}.{}", version / 1000, version % 1000 / 10)),
            power_limit_watts: device.enforced_power_limit().ok().map(|milliwatts| f64::from(milliwatts) / 1000.0),
            nvlinks: Some(links().count() as u32),
            nvlinks_active: Some(links().filter(|active| *active).count() as u32),
            ..DeviceFacts::default()
        })
    }

    fn counters(&mut self) -> BTreeMap<String, u64> {
        self.counters.as_mut().map(DeviceCounters::read).unwrap_or_default()
    }

    fn read(&mut self) -> Option<DeviceState> {
        let device = self.device()?;
        let reasons = device.current_throttle_reasons().ok();
        let names = |reasons: ThrottleReasons| THROTTLE_REASONS.iter().filter(move |(one, _)| reasons.contains(*one));
        Some(DeviceState {
            multiprocessor_clock_mhz: device.clock_info(Clock::SM).ok().map(f64::from),
            memory_clock_mhz: device.clock_info(Clock::Memory).ok().map(f64::from),
            power_watts: device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1000.0),
            temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok().map(f64::from),
            throttle_reasons: reasons.into_iter().flat_map(names).map(|(_, name)| (*name).to_owned()).collect(),
            is_idle: reasons.is_some_and(|reasons| reasons.contains(ThrottleReasons::GPU_IDLE)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A host with two sockets: a GPU and an adapter below one switch, another adapter below the same root, one each on the other socket.
    fn host() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let device = |path: &str, node: &str| {
            let path = root.join("devices").join(path);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("numa_node"), node).unwrap();
            path
        };
        std::fs::create_dir_all(root.join("bus/pci/devices")).unwrap();
        for (name, path, node) in [
            ("0000:03:00.0", "pci0000:00/0000:00:01.0/0000:01:00.0/0000:03:00.0", "0"),
            ("0000:83:00.0", "pci0000:80/0000:80:01.0/0000:83:00.0", "1"),
            ("0000:c3:00.0", "pci0000:c0/0000:c0:01.0/0000:c3:00.0", "1"),
        ] {
            symlink(device(path, node), root.join("bus/pci/devices").join(name)).unwrap();
        }
        for (name, path, node, state) in [
            ("mlx5_0", "pci0000:00/0000:00:01.0/0000:01:00.0/0000:04:00.0", "0", "4: ACTIVE"),
            ("mlx5_1", "pci0000:00/0000:00:02.0/0000:05:00.0", "0", "4: ACTIVE"),
            ("mlx5_2", "pci0000:80/0000:80:02.0/0000:85:00.0", "1", "4: ACTIVE"),
            ("mlx5_3", "pci0000:80/0000:80:03.0/0000:86:00.0", "1", "4: ACTIVE"),
            ("mlx5_4", "pci0000:80/0000:80:01.0/0000:87:00.0", "1", "1: DOWN"),
        ] {
            let port = root.join("class/infiniband").join(name).join("ports/1");
            std::fs::create_dir_all(&port).unwrap();
            std::fs::write(port.join("state"), state).unwrap();
            std::fs::write(port.join("rate"), "400 Gb/sec (4X NDR)\n").unwrap();
            symlink(device(path, node), root.join("class/infiniband").join(name).join("device")).unwrap();
        }
        folder
    }

    #[test]
    fn the_adapters_that_share_most_of_the_way_to_the_processor_are_named_and_nearer_ones_that_are_down_too() {
        let host = host();
        let of = |pci: &str, filter: Option<&str>| nearest(host.path(), pci, filter);
        let rate = "400 Gb/sec (4X NDR)";
        assert_eq!(of("0000:03:00.0", None), [format!("mlx5_0 (same PCIe switch, {rate})")]);
        assert_eq!(of("0000:03:00.0", Some("^mlx5_0")), [format!("mlx5_1 (same PCIe root, {rate})")]);
        let both = ["mlx5_2", "mlx5_3"].map(|name| format!("{name} (same PCIe root, {rate})"));
        let nearest_of_all = "mlx5_4 (same PCIe switch) is down".to_owned();
        assert_eq!(of("0000:83:00.0", None), [&both[..], std::slice::from_ref(&nearest_of_all)].concat());
        assert_eq!(of("0000:83:00.0", Some("^mlx5_4")), both);
        assert_eq!(of("0000:83:00.0", Some("mlx5_4")), [nearest_of_all]);
        assert_eq!(of("0000:c3:00.0", Some("=mlx5_2")), [format!("mlx5_2 (same NUMA node, {rate})")]);
        assert_eq!(of("0000:c3:00.0", Some("mlx5_1:1")), [format!("mlx5_1 (another NUMA node, {rate})")]);
        assert_eq!(of("0000:99:00.0", None), [] as [String; 0], "no such device");
    }

    /// The far node, or why there is none, on a false tree of nodes with their distances from the GPU's own.
    fn far(files: &[(&str, &str)], near: &str) -> std::result::Result<usize, String> {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let file = folder.path().join("devices/system/node").join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, format!("{text}\n")).unwrap();
        }
        let device = folder.path().join("bus/pci/devices/0000:20:00.0");
        std::fs::create_dir_all(&device).unwrap();
        std::fs::write(device.join("numa_node"), near).unwrap();
        far_node(folder.path(), "0000:20:00.0").map_err(|error| error.to_string())
    }

    #[test]
    fn far_memory_is_on_the_first_of_the_farthest_nodes_with_memory_and_processors() {
        let nodes = |memory, processors, online| [("has_memory", memory), ("has_cpu", processors), ("online", online)];
        let with = |nodes: [(&'static str, &'static str); 3], own: &'static str, distances| {
            far(&[&nodes[..], &[(&format!("node{own}/distance")[..], distances)]].concat(), own)
        };
        assert_eq!(with(nodes("0-1", "0-1", "0-1"), "0", "10 21"), Ok(1));
        assert_eq!(with(nodes("0-1", "0-1", "0-1"), "1", "21 10"), Ok(0));
        // Four nodes for each of two sockets.
        assert_eq!(with(nodes("0-7", "0-7", "0-7"), "5", "32 32 32 32 12 10 12 12"), Ok(0));
        // Memory of GPUs on nodes without processors is farther.
        assert_eq!(with(nodes("0-1,4,12", "0-1", "0-1,4,12"), "0", "10 40 80 80"), Ok(1));
        // Node 1 is offline, so that the second number is that of node 2.
        assert_eq!(with(nodes("0,2-3", "0,2-3", "0,2-3"), "0", "10 31 20"), Ok(2));
        assert_eq!(far(&nodes("0-2", "0-2", "0-2"), "1"), Ok(0), "no distances");
        for (files, near, words) in [
            (nodes("0", "0", "0"), "0", "the host has one NUMA node"),
            (nodes("0-1", "0", "0-1"), "0", "the host has one NUMA node"),
            (nodes("", "", ""), "-1", "the host has one NUMA node"),
            (nodes("0-1", "0-1", "0-1"), "-1", "does not say which NUMA node is near to 0000:20:00.0"),
        ] {
            assert!(far(&files, near).unwrap_err().contains(words), "{files:?}");
        }
    }

    #[test]
    fn a_thread_is_back_on_its_processors_after_it_ran_on_a_node_and_is_told_where_it_may_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let before = processors_of(&sched_getaffinity(None).unwrap());
        let node = folder.path().join("devices/system/node/node1");
        std::fs::create_dir_all(&node).unwrap();
        std::fs::write(node.join("cpulist"), before[0].to_string()).unwrap();
        let inside = on_node(folder.path(), 1, || processors_of(&sched_getaffinity(None).unwrap()));
        assert_eq!(inside.unwrap(), [before[0]]);
        assert_eq!(processors_of(&sched_getaffinity(None).unwrap()), before);
        for list in ["1000", "5000", ""] {
            std::fs::write(node.join("cpulist"), list).unwrap();
            let refused = on_node(folder.path(), 1, || panic!("it is not called")).map(|(): ()| ()).unwrap_err();
            let words = format!("cannot run on NUMA node 1 (processors {list}): Invalid argument");
            assert!(refused.to_string().contains(&words), "{refused}");
        }
        assert_eq!(processors_of(&sched_getaffinity(None).unwrap()), before);
    }

    #[test]
    fn the_pages_of_a_mapping_are_those_of_the_line_that_its_address_belongs_to() {
        let maps = "\
            7f0000000000 default anon=4 dirty=4 N0=1 N1=3 kernelpagesize_kB=4\n\
            7f0000200000 default file=/dev/nvidiactl\n\
            7f0000400000 default file=/anon_hugepage dirty=2 N12=2 kernelpagesize_kB=2048\n\
            fffffffffffff000 default N0=18446744073709551615 kernelpagesize_kB=4\n";
        for (node, address, bytes) in [
            (1, 0x7f00_0000_1000, Some(3 << 12)),
            (0, 0x7f00_0000_0000, Some(1 << 12)),
            (2, 0x7f00_0000_0000, Some(0)),
            (0, 0x7f00_0020_0000, None),
            (12, 0x7f00_0040_0000, Some(4 << 20)),
            (1, 0x7f00_0040_0000, Some(0)),
            (0, 0x7e00_0000_0000, None),
            (0, u64::MAX, Some(u64::MAX)),
        ] {
            assert_eq!(bytes_on(node, maps, address), bytes, "{node} {address:x}");
        }
        assert_eq!((bytes_on(0, "", 1), bytes_on(0, "not a map\n", 1)), (None, None));
    }

    #[test]
    fn adapters_are_chosen_as_nccl_reads_its_variable() {
        for (filter, name, expected) in [
            ("mlx5", "mlx5_12", true),
            ("=mlx5_1", "mlx5_12", false),
            ("=mlx5_1,mlx5_12:1", "mlx5_12", true),
            ("^=mlx5_1", "mlx5_1", false),
            ("^=mlx5_1", "mlx5_12", true),
            ("^mlx5_1", "mlx5_12", false),
        ] {
            assert_eq!(is_chosen(name, filter), expected, "{filter} {name}");
        }
    }

    #[test]
    fn a_rank_keeps_to_the_processors_near_its_device_unless_it_was_bound_more_closely() {
        let all: Vec<usize> = (0..16).collect();
        let near: Vec<usize> = (8..16).collect();
        for (allowed, local, ranks, expected) in [
            (&all[..], &near[..], 2, Some(near.clone())),
            (&all[4..12], &near, 2, Some((8..12).collect())),
            // Already bound by the user, to some of them or to others.
            (&all[9..11], &near, 2, None),
            (&all[0..4], &near, 2, None),
            // The host has one node.
            (&all, &all, 2, None),
            // Fewer than ranks, which would take turns.
            (&all, &near[..1], 2, None),
        ] {
            assert_eq!(
                nearest_cores(allowed, &local.iter().copied().collect(), ranks),
                expected,
                "{allowed:?} {local:?} {ranks}"
            );
        }
    }

    #[test]
    fn the_processors_that_the_system_names_for_a_device_are_those_of_the_thread_afterwards() {
        let before = sched_getaffinity(None).unwrap();
        let allowed = processors_of(&before);
        let Some(last) = allowed.last().filter(|_| allowed.len() > 1) else { return };
        let folder = tempfile::tempdir().unwrap();
        let device = folder.path().join("bus/pci/devices/0000:20:00.0");
        std::fs::create_dir_all(&device).unwrap();
        std::fs::write(device.join("local_cpulist"), format!("{last}\n")).unwrap();
        // In a thread of its own, so that other tests keep their processors.
        let pinned = std::thread::scope(|scope| {
            let bound = scope.spawn(|| {
                assert_eq!(bind_near(folder.path(), "0000:21:00.0", 1), None, "another device");
                assert_eq!(bind_near(folder.path(), "0000:20:00.0", 1), Some(last.to_string()));
                processors_of(&sched_getaffinity(None).unwrap())
            });
            bound.join().unwrap()
        });
        assert_eq!(pinned, [*last]);
    }

    #[test]
    fn a_missing_nvml_is_reported_and_nothing_is_read() {
        let mut reader = NvmlReader::new("GPU-none", "0000:00:00.0");
        // On a host with a GPU the device is unknown, on others the library is.
        let reason = reader.source().unwrap_err();
        assert!(reason.contains("NVML"), "{reason}");
        assert_eq!((reader.identity(), reader.read()), (None, None));
    }
}
