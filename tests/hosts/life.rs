//! Virtual hosts leave nothing behind: after failures, after signals, next to each other; and their script validates its arguments. Needs
//! the right to create namespaces; skipped without.

use crate::common;

use common::hosts::{VirtualCluster, script};
use common::{Ran, signal, start, wait_until};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Says in the environment of every process which cluster it is of.
const INHERITED: &str = "COMMGAUGE_TEST_CLUSTER";

/// Runs a cluster of two hosts around a shell script, which finds in `$0` a file with the current network namespaces.
struct Around {
    name: &'static str,
    folder: tempfile::TempDir,
}

impl Around {
    fn new(name: &'static str) -> Around {
        Around { name, folder: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    fn namespaces_file(&self) -> std::path::PathBuf {
        self.folder.path().join("namespaces")
    }

    fn command(&self, body: &str) -> Command {
        let text = format!(
            "cd /proc; for process in [0-9]*; do readlink $process/ns/net; done >\"$0.new\"; mv \"$0.new\" \"$0\"; {body}"
        );
        let mut command = script(&["with", "--name", self.name, "--hosts", "2", "--", "sh", "-c", &text]);
        command.arg(self.namespaces_file()).env(INHERITED, self.folder.path());
        command
    }

    /// As stored in the environment of a process.
    fn inherited(&self) -> String {
        format!("{INHERITED}={}", self.folder.path().display())
    }

    /// No process of the cluster, none that names its state, no mount, no cable. Processes are known by a variable that all of
    /// them inherit: the number of a namespace that is gone may be that of another cluster's by now.
    fn left(&self) -> Vec<String> {
        let namespaces = fs::read_to_string(self.namespaces_file()).expect("the command ran");
        let namespaces: std::collections::BTreeSet<&str> = namespaces.lines().collect();
        assert_eq!(namespaces.len(), 4, "login, the switch and two hosts");
        let inherited = self.inherited();
        let state = format!("virtual-clusters/{}/", self.name);
        let mut left = Vec::new();
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let words = fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
            let environment = fs::read(process.path().join("environ")).unwrap_or_default();
            if words.contains(&state) || environment.split(|byte| *byte == 0).any(|each| each == inherited.as_bytes()) {
                left.push(format!("process {}: {words}", process.path().display()));
            }
        }
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        left.extend(mounts.lines().filter(|line| line.contains(&state)).map(str::to_owned));
        let cables = fs::read_to_string("/proc/net/dev").unwrap();
        left.extend(
            cables.lines().filter(|line| line.contains("port0") || line.contains("bridge:")).map(str::to_owned),
        );
        left
    }

    fn state(&self) -> std::path::PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("virtual-clusters").join(self.name)
    }
}

/// Whether hosts can be created here at all; if not, prints the reason.
fn possible(name: &str) -> bool {
    VirtualCluster::up(name, 1, "1gbit", &[]).is_some()
}

#[test]
fn nothing_is_left_of_a_cluster_whose_command_failed() {
    if !possible("failing-probe") {
        return;
    }
    let around = Around::new("failing");
    let ran = Ran::of(&mut around.command("sleep 1000 & exit 9"), 30).ended_with(9);
    assert_eq!(around.left(), Vec::<String>::new(), "{}", ran.stderr);
    assert!(!around.state().exists());
}

#[test]
fn nothing_keeps_running_of_a_cluster_that_was_stopped_or_killed() {
    if !possible("killed-probe") {
        return;
    }
    for (name, code) in [("TERM", Some(143)), ("INT", Some(130)), ("KILL", None)] {
        let around = Around::new("killed");
        let started = start(&mut around.command("sleep 1000"));
        wait_until(20, "the command runs", || around.namespaces_file().exists());
        signal(started.id(), name);
        assert_eq!(common::ending(started, 30).code, code, "{name}");
        wait_until(20, "the kernel removes everything", || around.left().is_empty());
        // Killed, it could not remove its folder of notes; the next one of that name does.
        assert!(code.is_none() || !around.state().exists(), "{name}");
    }
    Ran::of(&mut script(&["down", "--name", "killed"]), 30).ended_with(0);
}

#[test]
fn two_clusters_coexist_and_end_independently() {
    let Some(one) = VirtualCluster::up("joint-one", 2, "1gbit", &[]) else { return };
    let other = VirtualCluster::up("joint-other", 3, "100mbit", &[]).expect("what went once goes twice");
    let name_and_neighbour =
        "hostname; getent hosts host1 | cut -d ' ' -f 1; mktemp -p /tmp only.XXX >/dev/null; ls /tmp/only.* | wc -l";
    for cluster in [&one, &other, &one] {
        let ran = Ran::of(cluster.on("host0", "sh").args(["-c", name_and_neighbour]), 20).ended_with(0);
        assert!(ran.stdout.starts_with("host0\n10.77.0.2\n"), "{}", ran.stdout);
    }
    drop(other);
    let ran = Ran::of(one.on("host1", "sh").args(["-c", "hostname; ls /tmp/only.* 2>&1"]), 20);
    assert!(ran.stdout.starts_with("host1\n") && ran.stdout.contains("No such file"), "{}", ran.stdout);
    let again = Ran::of(&mut script(&["up", "--name", "joint-one", "--hosts", "2"]), 20).ended_with(2);
    again.printed_error("joint-one is up already");
}

#[test]
fn a_link_that_is_down_carries_nothing_until_it_is_up() {
    let Some(cluster) = VirtualCluster::up("cut", 3, "1gbit", &[]) else { return };
    // No server listens there: a refusal arrived over the link, a timeout (124) did not.
    let answers = |from: &str, to: &str| {
        let dial = format!("timeout 1 bash -c '</dev/tcp/{to}/9' 2>/dev/null; [ $? -ne 124 ]");
        cluster.on(from, "sh").args(["-c", &dial]).status().unwrap().success()
    };
    for (which, reached) in [("0-1", [false, true]), ("2", [true, false])] {
        cluster.link(which, "down");
        assert_eq!([answers("host0", "host1"), answers("host0", "host2")], reached, "{which} down");
        cluster.link(which, "up");
        assert_eq!([answers("host0", "host1"), answers("host0", "host2")], [true, true], "{which} up");
    }
}

#[test]
fn invalid_arguments_end_with_2_and_list_the_valid_ones() {
    let table: [(&[&str], &str); 12] = [
        (&[], "a verb is missing; known are up, run"),
        (&["start"], "unknown verb start; known are up, run"),
        (&["up"], "--hosts is missing"),
        (&["up", "--hosts", "0"], "expected a whole number from 1 to 64"),
        (&["up", "--hosts", "2", "--rate", "1G"], "such as 1gbit"),
        (&["up", "--hosts", "2", "--rate", "1kbit"], "not between 100kbit and 100gbit"),
        (&["up", "--hosts", "2", "--link", "0-2=1gbit"], "there is no host `2`; the hosts are host0 to host1"),
        (&["up", "--hosts", "2", "--link", "1-1=1gbit"], "two different hosts"),
        (&["up", "--hosts", "2", "--host-rate", "1"], "such as 2=500mbit"),
        (&["up", "--hosts", "2", "--name", "../x"], "expected small letters"),
        (&["run", "--name", "nocluster", "-n", "2", "--", "true"], "no cluster nocluster is up"),
        (&["with", "--hosts", "2"], "the command is missing"),
    ];
    for (words, answer) in table {
        let ran = Ran::of(&mut script(words), 10).ended_with(2);
        ran.printed_error(answer).printed_error("--help");
    }
    let help = Ran::of(&mut script(&["--help"]), 10).ended_with(0);
    assert!(help.stdout.contains("usage: virtual-cluster up"));
}
