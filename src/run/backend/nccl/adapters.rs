//! Which network adapter is nearest to a GPU, by the tree of PCI that Linux shows: NCCL takes such ones for a GPU's messages to other hosts
//! unless its own topology or `NCCL_IB_HCA` says otherwise. Nothing is asked of NCCL.

use std::path::{Path, PathBuf};

/// How near an adapter is, in the words of `nvidia-smi topo`, the nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Nearness {
    /// Below the same bridge of PCI, or the same few.
    SameSwitch,
    /// Below the same root of PCI.
    SameRoot,
    /// On the same NUMA node.
    SameNode,
    /// On another one.
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

/// An adapter.
struct Adapter {
    name: String,
    place: PathBuf,
    /// Of its first active port; none where no port is.
    rate: Option<String>,
}

/// The adapters nearest to a GPU, each as `mlx5_0 (same PCIe switch, 400 Gb/sec (4X NDR))`: all with an active port that are equally near;
/// and behind them those that would be at least as near and have none, as `mlx5_1 (same PCIe switch) is down`. Empty where there are
/// none, or the system does not say. `filter` is the value of `NCCL_IB_HCA`.
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

/// Whether `NCCL_IB_HCA` lets NCCL take an adapter: a list of beginnings of names, of whole names behind `=`, of those not to take behind `^`;
/// what follows a colon is a port (NCCL user guide, "NCCL_IB_HCA").
fn is_chosen(name: &str, filter: &str) -> bool {
    let (is_excluding, list) = filter.strip_prefix('^').map_or((false, filter), |rest| (true, rest));
    let (is_exact, list) = list.strip_prefix('=').map_or((false, list), |rest| (true, rest));
    let mut names =
        list.split(',').map(|entry| entry.split(':').next().unwrap_or_default()).filter(|entry| !entry.is_empty());
    let is_listed = names.any(|entry| if is_exact { name == entry } else { name.starts_with(entry) });
    is_listed != is_excluding
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
}
