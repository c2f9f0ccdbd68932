//! The counters of a host and of the devices of its ranks, read between blocks of cases and never in the timed loop: an error that a port
//! counts while cases are measured is evidence of why they are slow.
//!
//! The first process of each host reads those of the host, and every process those of its device. A block ends with the first case after
//! which reading took at most [`SHARE_OF_TIME`] of it.

use crate::backend::DeviceReader;
use commgauge_model::config::machine::{CounterKind, KnownCounter, known_counter, known_counters};
use commgauge_model::record::counters::{CounterBlock, CountersLine};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Share of the time that reading counters may take.
const SHARE_OF_TIME: f64 = 0.005;

/// Blocks of a host between two lines of the record; later ones are merged with the last.
const MOST_BLOCKS: usize = 8;

/// Counters by their names, as `symbol_error of mlx5_4 port 1`.
type Readings = BTreeMap<String, u64>;

/// The device of this rank, if it can be asked.
type Device<'a> = Option<&'a mut dyn DeviceReader>;

/// The counters that this process reads.
pub(super) struct HostCounters {
    files: Vec<CounterFile>,
    before: Readings,
    read_at: Instant,
    /// How long the last reading took.
    cost: Duration,
    /// Cases since then, each as its index in the plan and its replicate.
    since: Vec<(u32, u32)>,
    blocks: Vec<CounterBlock>,
}

struct CounterFile {
    path: PathBuf,
    counter: &'static KnownCounter,
    /// With its device and port, or its protocol.
    full_name: String,
}

/// What a process has read.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct HostReport {
    names: BTreeSet<String>,
    /// The device, such as `GPU 5`; ranks that share it report the same.
    device: Option<String>,
    blocks: Vec<CounterBlock>,
}

impl HostCounters {
    /// The counters of a device, and those of the host below a root folder, which is `/` except in tests.
    pub(super) fn of(root: Option<&Path>, device: Device) -> HostCounters {
        let files_of = |root| known_counters().flat_map(move |counter| CounterFile::all(root, counter));
        let files = root.map_or_else(Vec::new, |root| files_of(root).collect());
        let read_at = Instant::now();
        let before = read(&files, device);
        let full = before.iter().filter(|(name, value)| is_full(name, **value));
        let lost: Vec<String> = full.map(|(name, value)| format!("{name} is full, at {value}: clear it")).collect();
        let first = CounterBlock { lost, ..CounterBlock::default() };
        let blocks = if first.is_quiet() { Vec::new() } else { vec![first] };
        HostCounters { files, before, read_at, cost: read_at.elapsed(), since: Vec::new(), blocks }
    }

    /// Notes that work was measured, cases by their index in the plan and their replicate, and reads the counters if the block is long
    /// enough.
    pub(super) fn measured(&mut self, cases: impl Iterator<Item = (u32, u32)>, device: Device) {
        self.since.extend(cases);
        if self.cost.as_secs_f64() <= SHARE_OF_TIME * self.read_at.elapsed().as_secs_f64() {
            self.end_block(device);
        }
    }

    fn end_block(&mut self, device: Device) {
        let begun = Instant::now();
        let now = read(&self.files, device);
        let mut block = CounterBlock { during: std::mem::take(&mut self.since), ..CounterBlock::default() };
        for (name, value) in &now {
            self.note(&mut block, name, *value, begun - self.read_at);
        }
        let vanished = self.before.keys().filter(|name| !now.contains_key(*name));
        block.lost.extend(vanished.map(|name| format!("{name} vanished")));
        if !block.is_quiet() {
            let is_full = self.blocks.len() >= MOST_BLOCKS;
            match self.blocks.last_mut().filter(|_| is_full) {
                Some(last) => last.merge(block),
                None => self.blocks.push(block),
            }
        }
        (self.before, self.read_at, self.cost) = (now, begun, begun.elapsed());
    }

    /// Adds to a block what a counter did since the last reading.
    fn note(&self, block: &mut CounterBlock, name: &str, now: u64, since: Duration) {
        let Some(counter) = known_counter(name) else { return };
        let is_new_event = counter.part == Some("event");
        let Some(before) = self.before.get(name).copied().or(is_new_event.then_some(0)) else { return };
        let risen = now.saturating_sub(before);
        let (values, value) = match (counter.kind, counter.part) {
            // Microseconds in which a task waited.
            (CounterKind::Levels, Some("some")) => (&mut block.levels, risen / (since.as_micros() as u64 / 100).max(1)),
            (CounterKind::Levels | CounterKind::States, _) => (&mut block.levels, now),
            _ if now < before => return block.lost.push(format!("{name} went back from {before} to {now}")),
            (CounterKind::Errors, _) => (&mut block.errors, risen),
            (CounterKind::Retries, _) => (&mut block.retries, risen),
        };
        if value >= counter.least.max(1) {
            values.insert(name.to_owned(), value);
        }
    }

    /// The blocks since the last report.
    pub(super) fn report(&mut self, device: Device) -> HostReport {
        self.end_block(device);
        let counting = self.before.iter().filter(|(name, value)| !is_full(name, **value));
        let known = counting.filter_map(|(name, _)| Some((name, known_counter(name)?)));
        let names = known.clone().map(|(_, known)| known.name.to_owned()).collect();
        let of_device = known.clone().find(|(_, known)| known.is_of_device());
        let device = of_device.and_then(|(name, _)| Some(name.split_once(" of ")?.1.to_owned()));
        HostReport { names, device, blocks: std::mem::take(&mut self.blocks) }
    }
}

fn read(files: &[CounterFile], device: Device) -> Readings {
    let of_files = files.iter().filter_map(|file| Some((file.full_name.clone(), file.read()?)));
    device.map(DeviceReader::counters).unwrap_or_default().into_iter().chain(of_files).collect()
}

/// Whether a counter has reached the value at which it stays.
fn is_full(name: &str, value: u64) -> bool {
    known_counter(name).is_some_and(|known| value >= known.full)
}

impl CounterFile {
    /// The files of a counter, one for each device and port.
    fn all(root: &Path, counter: &'static KnownCounter) -> Vec<CounterFile> {
        let pattern = format!("{}/{}", glob::Pattern::escape(&root.to_string_lossy()), counter.path);
        let file = |path: PathBuf| {
            let full_name = format!("{} of {}", counter.name, owner(&path, root, counter));
            CounterFile { path, counter, full_name }
        };
        // Every reading fills in its processor.
        if counter.part == Some("own") {
            return vec![file(root.join(counter.path))];
        }
        glob::glob(&pattern).into_iter().flatten().flatten().map(file).collect()
    }

    /// Its value; none if it cannot be read or is no number.
    fn read(&self) -> Option<u64> {
        let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse().ok();
        match self.counter.part {
            None => number(&self.path),
            Some("own") => {
                let path = self.path.to_string_lossy().replace('*', &rustix::thread::sched_getcpu().to_string());
                let frequency = |file| number(&Path::new(&path).join(file));
                let (now, highest) = (frequency("scaling_cur_freq"), frequency("cpuinfo_max_freq"));
                Some(100u64.saturating_sub(100 * now? / highest?.max(1)))
            }
            Some(part) => self.read_part(&fs::read_to_string(&self.path).ok()?, part),
        }
    }

    fn read_part(&self, text: &str, part: &str) -> Option<u64> {
        // As `some avg10=0.00 total=12`, or a line of names and one of values (proc_pid_net(5)).
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(part));
        let first = lines.next()?;
        if let Some((_, total)) = first.split_once("total=") {
            return total.trim().parse().ok();
        }
        let place = first.split_whitespace().skip(1).position(|name| name == self.counter.name)?;
        lines.next()?.split_whitespace().skip(1).nth(place)?.parse().ok()
    }
}

/// Whose counter it is: `mlx5_4 port 1`, `eth0`, `Tcp` or `host`.
fn owner(path: &Path, root: &Path, counter: &KnownCounter) -> String {
    match counter.part {
        Some(_) if counter.kind == CounterKind::Levels => return "host".to_owned(),
        Some(protocol) => return protocol.to_owned(),
        None => (),
    }
    let below = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
    let matched = below.split('/').zip(counter.path.split('/')).filter(|(_, part)| *part == "*");
    matched.map(|(name, _)| name).collect::<Vec<_>>().join(" port ")
}

/// The line of all ranks' reports.
pub(super) fn line<'h>(all: Vec<Option<HostReport>>, hosts: impl Iterator<Item = &'h str>) -> CountersLine {
    let mut all_blocks = Vec::new();
    let (mut read, mut hosts_read) = (BTreeSet::new(), BTreeSet::new());
    let mut readers_of: BTreeMap<String, usize> = BTreeMap::new();
    for (report, host) in all.into_iter().zip(hosts) {
        let Some(HostReport { names, device, blocks }) = report else { continue };
        if read.insert((host, device)) {
            hosts_read.insert(host);
            names.into_iter().for_each(|name| *readers_of.entry(name).or_default() += 1);
            all_blocks.extend(blocks.into_iter().map(|block| CounterBlock { host: host.to_owned(), ..block }));
        }
    }
    let is_of_device = |name: &str| known_counter(name).is_some_and(KnownCounter::is_of_device);
    readers_of.retain(|name, readers| *readers == if is_of_device(name) { read.len() } else { hosts_read.len() });
    CountersLine {
        hosts_read: hosts_read.len() as u32,
        on_all_hosts: readers_of.into_keys().collect(),
        blocks: all_blocks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::DeviceState;
    use commgauge_model::record::header::DeviceFacts;

    const ERRORS: &str = "sys/class/infiniband/mlx5_4/ports/1/counters/symbol_error";
    const CONGESTION: &str = "sys/class/infiniband/mlx5_4/ports/1/hw_counters/np_cnp_sent";
    const TCP: &str = "proc/net/snmp";

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn tcp(retransmitted: u64) -> String {
        format!("Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm InSegs RetransSegs\nTcp: 1 77 {retransmitted}\n")
    }

    /// A host with one adapter.
    fn host() -> (tempfile::TempDir, HostCounters) {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in
            [(ERRORS, "5\n"), (CONGESTION, "9"), (TCP, &*tcp(3)), ("sys/class/net/lo/statistics/rx_dropped", "x")]
        {
            write(folder.path(), file, text);
        }
        let counters = HostCounters::of(Some(folder.path()), None);
        (folder, counters)
    }

    fn rises(pairs: &[(&str, u64)]) -> Readings {
        pairs.iter().map(|(name, by)| ((*name).to_owned(), *by)).collect()
    }

    /// A device that tells these counters.
    struct FalseDevice(Readings);

    impl DeviceReader for FalseDevice {
        fn source(&self) -> Result<String, String> {
            Err("no NVML".into())
        }

        fn identity(&self) -> Option<DeviceFacts> {
            None
        }

        fn counters(&mut self) -> Readings {
            self.0.clone()
        }

        fn read(&mut self) -> Option<DeviceState> {
            None
        }
    }

    #[test]
    fn what_rises_during_a_block_is_named_with_its_device_and_its_cases() {
        let (folder, mut counters) = host();
        counters.cost = Duration::from_secs(3600);
        counters.measured([(3, 0)].into_iter(), None);
        write(folder.path(), ERRORS, "817");
        write(folder.path(), CONGESTION, "10");
        write(folder.path(), TCP, &tcp(4));
        counters.measured([(4, 0)].into_iter(), None);
        assert!(counters.blocks.is_empty(), "reading would have taken too much of the time");
        let HostReport { names, device, blocks } = counters.report(None);
        let expected = CounterBlock {
            during: vec![(3, 0), (4, 0)],
            errors: rises(&[("symbol_error of mlx5_4 port 1", 812)]),
            retries: rises(&[("RetransSegs of Tcp", 1), ("np_cnp_sent of mlx5_4 port 1", 1)]),
            ..CounterBlock::default()
        };
        assert_eq!(blocks, [expected]);
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["RetransSegs", "np_cnp_sent", "symbol_error"]);
        assert_eq!(device, None);
        assert!(counters.report(None).blocks.is_empty(), "nothing rose since");
    }

    #[test]
    fn states_of_a_device_are_named_in_every_block_and_an_xid_that_never_came_before_rises_from_none() {
        let mut device = FalseDevice(rises(&[
            ("row_remap_pending of GPU 5", 1),
            ("fabric_unhealthy of GPU 5", 0),
            ("ecc_uncorrected of GPU 5", 7),
            ("nvlinks_down of GPU 5", 18),
            ("xid of GPU 5", 0),
        ]));
        let mut counters = HostCounters::of(None, Some(&mut device));
        let first = counters.report(Some(&mut device));
        assert_eq!(first.device.as_deref(), Some("GPU 5"));
        assert!(first.names.contains("xid") && first.names.contains("fabric_unhealthy"), "{:?}", first.names);
        let pending = rises(&[("row_remap_pending of GPU 5", 1)]);
        assert_eq!(first.blocks, [CounterBlock { levels: pending.clone(), ..CounterBlock::default() }]);
        device.0.extend(rises(&[("xid 79 of GPU 5", 2), ("ecc_uncorrected of GPU 5", 8)]));
        let [second] = &counters.report(Some(&mut device)).blocks[..] else { panic!("one block") };
        assert_eq!(second.errors, rises(&[("ecc_uncorrected of GPU 5", 1), ("xid 79 of GPU 5", 2)]));
        assert_eq!(second.levels, pending);
        // The device fell off the bus.
        device.0.clear();
        let [third] = &counters.report(Some(&mut device)).blocks[..] else { panic!("one block") };
        assert!(third.lost.contains(&"ecc_uncorrected of GPU 5 vanished".to_owned()), "{:?}", third.lost);
    }

    #[test]
    fn pressure_and_a_slow_processor_are_shares_and_small_ones_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let pressure =
            |total: u64| format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\nfull avg10=0.00 total=0\n");
        let frequency = |megahertz: u32| {
            // Those that this thread may be on.
            let allowed = rustix::thread::sched_getaffinity(None).unwrap();
            for processor in (0..rustix::thread::CpuSet::MAX_CPU).filter(|one| allowed.is_set(*one)) {
                let cpu = format!("sys/devices/system/cpu/cpu{processor}/cpufreq");
                write(folder.path(), &format!("{cpu}/cpuinfo_max_freq"), "3800000\n");
                write(folder.path(), &format!("{cpu}/scaling_cur_freq"), &format!("{megahertz}000\n"));
            }
        };
        write(folder.path(), "proc/pressure/cpu", &pressure(1_000_000));
        frequency(3000);
        let mut counters = HostCounters::of(Some(folder.path()), None);
        let mut levels_after = |seconds: u64, waited: u64| {
            write(folder.path(), "proc/pressure/cpu", &pressure(1_000_000 + waited));
            counters.before.insert("cpu_pressure of host".into(), 1_000_000);
            counters.read_at = Instant::now() - Duration::from_secs(seconds);
            let HostReport { names, mut blocks, .. } = counters.report(None);
            assert!(names.contains("cpu_pressure") && names.contains("cpu_slowdown"), "{names:?}");
            blocks.pop().unwrap_or_default().levels
        };
        assert_eq!(levels_after(100, 9_000_000), Readings::new());
        assert_eq!(levels_after(100, 41_500_000), rises(&[("cpu_pressure of host", 41)]));
        frequency(1900);
        assert_eq!(levels_after(100, 0), rises(&[("cpu_slowdown of host", 50)]));
        let absent = tempfile::tempdir().unwrap();
        assert!(HostCounters::of(Some(absent.path()), None).report(None).names.is_empty(), "a kernel without both");
    }

    #[test]
    fn counters_that_go_back_or_vanish_are_lost_and_never_a_rise() {
        let (folder, mut counters) = host();
        write(folder.path(), ERRORS, "4");
        fs::remove_file(folder.path().join(CONGESTION)).unwrap();
        write(folder.path(), TCP, "Tcp: something else");
        let HostReport { names, blocks, .. } = counters.report(None);
        assert_eq!(
            blocks[0].lost,
            [
                "symbol_error of mlx5_4 port 1 went back from 5 to 4",
                "RetransSegs of Tcp vanished",
                "np_cnp_sent of mlx5_4 port 1 vanished",
            ]
        );
        assert!(blocks[0].errors.is_empty() && blocks[0].retries.is_empty());
        assert!(!names.contains("RetransSegs"), "{names:?}");
    }

    #[test]
    fn a_counter_that_is_full_or_cannot_be_read_is_not_among_those_that_count() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), ERRORS, "65535\n");
        // Reading it fails, as without permission.
        fs::create_dir_all(folder.path().join(CONGESTION)).unwrap();
        let mut counters = HostCounters::of(Some(folder.path()), None);
        let HostReport { names, blocks, .. } = counters.report(None);
        assert_eq!(blocks[0].lost, ["symbol_error of mlx5_4 port 1 is full, at 65535: clear it"]);
        assert!(names.is_empty(), "{names:?}");
        assert!(counters.report(None).blocks.is_empty(), "said once");
    }

    #[test]
    fn many_blocks_of_a_host_become_one_at_the_end() {
        let (folder, mut counters) = host();
        for block in 0..20 {
            write(folder.path(), ERRORS, &(10 + block).to_string());
            counters.since.push((block as u32, 0));
            counters.end_block(None);
        }
        let blocks = counters.report(None).blocks;
        assert_eq!(blocks.len(), MOST_BLOCKS);
        assert_eq!(blocks.iter().flat_map(|block| block.errors.values()).sum::<u64>(), 24);
        assert_eq!(blocks.iter().map(|block| block.during.len()).sum::<usize>(), 20);
    }

    #[test]
    fn a_line_has_the_blocks_of_all_hosts_and_the_counters_that_all_have() {
        let of = |names: &[&str], device: Option<&str>, blocks| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            Some(HostReport { names, device: device.map(str::to_owned), blocks })
        };
        let all = vec![
            of(&["RetransSegs", "symbol_error", "xid"], Some("GPU 0"), vec![CounterBlock::default()]),
            of(&["xid"], Some("GPU 1"), Vec::new()),
            // Shares the device of the rank before.
            of(&["xid"], Some("GPU 1"), vec![CounterBlock::default()]),
            None,
            of(&["RetransSegs", "xid"], Some("GPU 0"), Vec::new()),
        ];
        let line = line(all, ["a", "a", "a", "a", "b"].into_iter());
        assert_eq!((line.hosts_read, line.on_all_hosts), (2, vec!["RetransSegs".to_owned(), "xid".to_owned()]));
        assert_eq!(line.blocks.iter().map(|block| &*block.host).collect::<Vec<_>>(), ["a"]);
        let blind = vec![of(&["RetransSegs", "xid"], Some("GPU 0"), Vec::new()), of(&[], None, Vec::new())];
        let line = super::line(blind, ["a", "a"].into_iter());
        assert_eq!(line.on_all_hosts, ["RetransSegs"], "one rank cannot ask its device");
    }
}
