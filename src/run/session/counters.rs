//! The counters of a host, read between blocks of cases and never in the timed loop: an error that a port counts while cases are measured
//! is evidence of why they are slow.
//!
//! The first process of each host reads them. A block ends with the first case after which reading took at most [`SHARE_OF_TIME`] of it.

use commgauge_model::config::machine::{CounterKind, KnownCounter, known_counters};
use commgauge_model::record::counters::{CounterBlock, CountersLine};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Share of the time that reading counters may take.
const SHARE_OF_TIME: f64 = 0.005;

/// Blocks of a host between two lines of the record; later ones are merged with the last.
const MOST_BLOCKS: usize = 8;

/// The counters of this host.
pub(super) struct HostCounters {
    files: Vec<CounterFile>,
    before: Vec<Option<u64>>,
    read_at: Instant,
    /// How long the last reading took.
    cost: Duration,
    /// Cases since then, each as its index in the plan and its replicate.
    since: Vec<(u32, u32)>,
    blocks: Vec<CounterBlock>,
}

struct CounterFile {
    path: PathBuf,
    counter: KnownCounter,
    /// With its device and port, or its protocol.
    full_name: String,
}

/// What the first process of a host has read.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct HostReport {
    names: BTreeSet<String>,
    blocks: Vec<CounterBlock>,
}

impl HostCounters {
    /// The counters below a root folder, which is `/` except in tests.
    pub(super) fn below(root: &Path) -> HostCounters {
        let files: Vec<CounterFile> = known_counters().flat_map(|counter| CounterFile::all(root, counter)).collect();
        let begun = Instant::now();
        let before = files.iter().map(CounterFile::read).collect();
        HostCounters { files, before, read_at: begun, cost: begun.elapsed(), since: Vec::new(), blocks: Vec::new() }
    }

    /// Notes that work was measured, cases by their index in the plan and their replicate, and reads the counters if the block is long
    /// enough.
    pub(super) fn measured(&mut self, cases: impl Iterator<Item = (u32, u32)>) {
        self.since.extend(cases);
        if self.cost.as_secs_f64() <= SHARE_OF_TIME * self.read_at.elapsed().as_secs_f64() {
            self.end_block();
        }
    }

    fn end_block(&mut self) {
        let begun = Instant::now();
        let now: Vec<Option<u64>> = self.files.iter().map(CounterFile::read).collect();
        let mut block = CounterBlock { during: std::mem::take(&mut self.since), ..CounterBlock::default() };
        for ((file, before), now) in self.files.iter().zip(&self.before).zip(&now) {
            let name = || file.full_name.clone();
            match (before, now) {
                (Some(before), Some(now)) if now > before => {
                    let rises = match file.counter.kind {
                        CounterKind::Errors => &mut block.errors,
                        CounterKind::Retries => &mut block.retries,
                    };
                    rises.insert(name(), now - before);
                }
                (Some(before), Some(now)) if now < before => block.lost.push(name() + " went back"),
                (Some(_), None) => block.lost.push(name() + " vanished"),
                _ => {}
            }
        }
        if !block.is_quiet() {
            let is_full = self.blocks.len() >= MOST_BLOCKS;
            match self.blocks.last_mut().filter(|_| is_full) {
                Some(last) => last.merge(block),
                None => self.blocks.push(block),
            }
        }
        (self.before, self.read_at, self.cost) = (now, begun, begun.elapsed());
    }

    /// The blocks since the last report.
    pub(super) fn report(&mut self) -> HostReport {
        self.end_block();
        let has_value = self.files.iter().zip(&self.before).filter(|(_, value)| value.is_some());
        let names = has_value.map(|(file, _)| file.counter.name.to_owned()).collect();
        HostReport { names, blocks: std::mem::take(&mut self.blocks) }
    }
}

impl CounterFile {
    /// The files of a counter, one for each device and port.
    fn all(root: &Path, counter: KnownCounter) -> Vec<CounterFile> {
        let pattern = format!("{}/{}", glob::Pattern::escape(&root.to_string_lossy()), counter.path);
        let paths = glob::glob(&pattern).into_iter().flatten().flatten();
        let file = |path: PathBuf| {
            let full_name = format!("{} of {}", counter.name, owner(&path, root, counter));
            CounterFile { path, counter, full_name }
        };
        paths.map(file).collect()
    }

    /// Its value; none if it cannot be read or is no number.
    fn read(&self) -> Option<u64> {
        let text = fs::read_to_string(&self.path).ok()?;
        let Some(protocol) = self.counter.protocol else { return text.trim().parse().ok() };
        // A line of names, and one of values (proc_pid_net(5)).
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(':'));
        let (names, values) = (lines.next()?, lines.next()?);
        let place = names.split_whitespace().position(|name| name == self.counter.name)?;
        values.split_whitespace().nth(place)?.parse().ok()
    }
}

/// Whose counter it is: `mlx5_4 port 1`, `eth0` or `Tcp`.
fn owner(path: &Path, root: &Path, counter: KnownCounter) -> String {
    if let Some(protocol) = counter.protocol {
        return protocol.to_owned();
    }
    let below = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
    let matched: Vec<&str> =
        below.split('/').zip(counter.path.split('/')).filter(|(_, part)| *part == "*").map(|(name, _)| name).collect();
    matched.join(" port ")
}

/// The line of all ranks' reports.
pub(super) fn line<'h>(all: Vec<Option<HostReport>>, hosts: impl Iterator<Item = &'h str>) -> CountersLine {
    let mut line = CountersLine::default();
    let mut on_all: Option<BTreeSet<String>> = None;
    for (report, host) in all.into_iter().zip(hosts) {
        let Some(HostReport { names, blocks }) = report else { continue };
        line.hosts_read += 1;
        on_all = Some(on_all.map_or_else(|| names.clone(), |known| &known & &names));
        line.blocks.extend(blocks.into_iter().map(|block| CounterBlock { host: host.to_owned(), ..block }));
    }
    line.on_all_hosts = on_all.into_iter().flatten().collect();
    line
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let counters = HostCounters::below(folder.path());
        (folder, counters)
    }

    #[test]
    fn what_rises_during_a_block_is_named_with_its_device_and_its_cases() {
        let (folder, mut counters) = host();
        counters.cost = Duration::from_secs(3600);
        counters.measured([(3, 0)].into_iter());
        write(folder.path(), ERRORS, "817");
        write(folder.path(), CONGESTION, "10");
        write(folder.path(), TCP, &tcp(4));
        counters.measured([(4, 0)].into_iter());
        assert!(counters.blocks.is_empty(), "reading would have taken too much of the time");
        let HostReport { names, blocks } = counters.report();
        let rises = |pairs: &[(&str, u64)]| pairs.iter().map(|(name, by)| ((*name).to_owned(), *by)).collect();
        let expected = CounterBlock {
            host: String::new(),
            during: vec![(3, 0), (4, 0)],
            errors: rises(&[("symbol_error of mlx5_4 port 1", 812)]),
            retries: rises(&[("RetransSegs of Tcp", 1), ("np_cnp_sent of mlx5_4 port 1", 1)]),
            lost: Vec::new(),
        };
        assert_eq!(blocks, [expected]);
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["RetransSegs", "np_cnp_sent", "symbol_error"]);
        assert!(counters.report().blocks.is_empty(), "nothing rose since");
    }

    #[test]
    fn counters_that_go_back_or_vanish_are_lost_and_never_a_rise() {
        let (folder, mut counters) = host();
        write(folder.path(), ERRORS, "4");
        fs::remove_file(folder.path().join(CONGESTION)).unwrap();
        write(folder.path(), TCP, "Tcp: something else");
        let HostReport { names, blocks } = counters.report();
        assert_eq!(
            blocks[0].lost,
            [
                "symbol_error of mlx5_4 port 1 went back",
                "np_cnp_sent of mlx5_4 port 1 vanished",
                "RetransSegs of Tcp vanished"
            ]
        );
        assert!(blocks[0].errors.is_empty() && blocks[0].retries.is_empty());
        assert!(!names.contains("RetransSegs"), "{names:?}");
    }

    #[test]
    fn many_blocks_of_a_host_become_one_at_the_end() {
        let (folder, mut counters) = host();
        for block in 0..20 {
            write(folder.path(), ERRORS, &(10 + block).to_string());
            counters.since.push((block as u32, 0));
            counters.end_block();
        }
        let blocks = counters.report().blocks;
        assert_eq!(blocks.len(), MOST_BLOCKS);
        assert_eq!(blocks.iter().flat_map(|block| block.errors.values()).sum::<u64>(), 24);
        assert_eq!(blocks.iter().map(|block| block.during.len()).sum::<usize>(), 20);
    }

    #[test]
    fn a_line_has_the_blocks_of_all_hosts_and_the_counters_that_all_have() {
        let report = |names: &[&str], blocks| {
            Some(HostReport { names: names.iter().map(|name| (*name).to_owned()).collect(), blocks })
        };
        let all = vec![
            report(&["RetransSegs", "symbol_error"], vec![CounterBlock::default()]),
            None,
            report(&["RetransSegs"], Vec::new()),
        ];
        let line = line(all, ["a", "a", "b"].into_iter());
        assert_eq!((line.hosts_read, line.on_all_hosts), (2, vec!["RetransSegs".to_owned()]));
        assert_eq!(line.blocks.iter().map(|block| &*block.host).collect::<Vec<_>>(), ["a"]);
    }
}
