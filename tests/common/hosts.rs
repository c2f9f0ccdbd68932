//! Hosts made of network namespaces, with links of a known rate between them, for tests of traffic between hosts.
//! `scripts/virtual-cluster` creates them; if this machine cannot, tests are skipped with a message.

use super::{FAMILY, skipped};
use std::path::Path;
use std::process::{Command, Stdio};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/virtual-cluster");
/// Exit code of the script where privileges or tools lack.
const SKIPPED: i32 = 77;

/// The script with a verb. Its state is stored with the results of the build, so that clusters of users are not
/// affected.
pub fn script(words: &[&str]) -> Command {
    // Processes that a script starts in the background ignore SIGINT, and a shell cannot catch a signal that it was
    // started to ignore.
    let mut command = Command::new("env");
    command
        .args(["--default-signal=INT", SCRIPT])
        .args(words)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null());
    command.env("VIRTUAL_CLUSTER_FOLDER", Path::new(env!("CARGO_TARGET_TMPDIR")).join("virtual-clusters"));
    command.env("NO_COLOR", "1").env_remove("VIRTUAL_CLUSTER_INSIDE").env_remove("VIRTUAL_CLUSTER_NAME");
    command
}

/// The process of a rank as this machine numbers it, of which the virtual hosts see another number.
pub fn process_of(record: &Path, rank: u32) -> u32 {
    let (record, rank) = (record.to_string_lossy(), format!("PMIX_RANK={rank}"));
    let mut processes =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has = |pid: u32, file: &str, wanted: &str| {
        let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        bytes.split(|byte| *byte == 0).any(|word| word == wanted.as_bytes())
    };
    // A collector has no arguments.
    processes.find(|pid| has(*pid, "cmdline", &record) && has(*pid, "environ", &rank)).expect("a rank")
}

/// Hosts that are up as long as the value lives.
pub struct VirtualCluster {
    name: String,
}

impl VirtualCluster {
    /// Makes `hosts` hosts whose links have the given rate, except those named as in `1-3=250mbit`. None where this machine
    /// cannot; the reason is printed. The name is the cluster's own among all tests that may run at a time.
    pub fn up(name: &str, hosts: u32, rate: &str, links: &[&str]) -> Option<VirtualCluster> {
        VirtualCluster::up_with(name, hosts, rate, links, &[])
    }

    fn up_with(name: &str, hosts: u32, rate: &str, links: &[&str], flags: &[&str]) -> Option<VirtualCluster> {
        let hosts = hosts.to_string();
        // A test that was killed may have left its own behind.
        let left = script(&["down", "--name", name]).output().expect("bash is there");
        assert!(left.status.success(), "{}", String::from_utf8_lossy(&left.stderr));
        let mut command = script(&["up", "--name", name, "--hosts", &hosts, "--rate", rate]);
        command.args(links.iter().flat_map(|link| ["--link", link])).args(flags);
        let output = command.output().expect("bash is there");
        let output_text = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => Some(VirtualCluster { name: name.to_owned() }),
            Some(SKIPPED) => {
                skipped(
                    name,
                    output_text.trim_start_matches("virtual-cluster: skipped: ").trim_end().trim_end_matches(" ()"),
                );
                None
            }
            code => panic!("virtual-cluster up ended with {code:?}: {output_text}"),
        }
    }

    /// The same, for ranks that are to be launched on the hosts, which look like machines of their own. None also where the MPI cannot be relied on there.
    pub fn up_for_ranks(name: &str, hosts: u32, rate: &str, links: &[&str]) -> Option<VirtualCluster> {
        if FAMILY != "open-mpi" {
            // Seen with MPICH 4.0.2 over UCX: MPI_Finalize does not return, now and then, when the ranks are on several hosts.
            skipped(name, &format!("{FAMILY} does not end reliably across virtual hosts"));
            return None;
        }
        VirtualCluster::up_with(name, hosts, rate, links, &["--as-machines"])
    }

    /// The launch of a program on `ranks` ranks, the hosts filled one after the other, to which arguments are added.
    pub fn command(&self, ranks: u32, ranks_per_host: u32, program: &str) -> Command {
        let (ranks, each) = (ranks.to_string(), ranks_per_host.to_string());
        let mut command = self.verb("run", &["-n", &ranks, "--ranks-per-host", &each, "--mpi", FAMILY]);
        command.args(["--", program]);
        command
    }

    /// The launch of a program on one rank of each host in the list, such as `host0,host2`, to which arguments are added.
    pub fn one_rank_on_each(&self, hosts: &str, program: &str) -> Command {
        let ranks = hosts.split(',').count().to_string();
        let mut command = self.verb("run", &["-n", &ranks, "--ranks-per-host", "1", "--on", hosts, "--mpi", FAMILY]);
        command.args(["--", program]);
        command
    }

    /// A command on one host, or on `login`, from which launchers reach all hosts.
    pub fn on(&self, host: &str, program: &str) -> Command {
        let mut command = self.verb("exec", &[host]);
        command.args(["--", program]);
        command
    }

    /// Changes a link: a pair such as `0-1`, or a host, and a rate, `down` or `up`.
    #[track_caller]
    pub fn link(&self, which: &str, what: &str) {
        let output = self.verb("link", &[which, what]).output().expect("bash is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn verb(&self, verb: &str, words: &[&str]) -> Command {
        let mut command = script(&[verb, "--name", &self.name]);
        command.args(words);
        command
    }
}

impl Drop for VirtualCluster {
    fn drop(&mut self) {
        let done = script(&["down", "--name", &self.name]).output();
        if !done.as_ref().is_ok_and(|output| output.status.success()) {
            eprintln!("the virtual hosts of {} are still there: {done:?}", self.name);
        }
    }
}
