//! A host that is cut off ends the run: in mid-run, and at its start. Its name is said, and the record has its end.
//! Needs the launcher of the MPI that was built with, and the right to make namespaces; skipped without.

use crate::common;

use common::hosts::{VirtualCluster, process_of};
use common::{COMMGAUGE, Started, child_of, count_so_far, ending, lines, of_kind, start, wait_until};
use std::path::Path;
use std::time::Duration;

/// A suite that would run for minutes.
const LONG: &str = "name = 'long'\n[measure]\nprecision = 1e-6\nminimum_samples = 10\nmaximum_samples = 1_000_000\n\
                    case_budget = '200ms'\nreplicates = 400\n[[sweep]]\ncollectives = 'all_reduce'\nbytes = '64B'\n";

/// `commgauge run` on `login`, with two ranks on each of two hosts.
fn run(cluster: &VirtualCluster, folder: &Path, record: &Path) -> Started {
    let suite = folder.join("long.toml");
    std::fs::write(&suite, LONG).expect("written");
    let mut command = cluster.on("login", COMMGAUGE);
    command.arg("run").arg(&suite).args(["-n", "4", "--hosts", "host0:2,host1:2", "--timeout", "5", "--record"]);
    command.arg(record).env("OMPI_MCA_mpi_yield_when_idle", "1");
    start(&mut command)
}

/// Whether a process is there, and not only its exit code.
fn is_running(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| !words.is_empty())
}

#[test]
fn a_host_that_is_cut_off_in_mid_run_is_named_and_ends_it() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    // First only the link between the hosts, so that the launcher reaches both; then the host's only cable. Each on hosts of
    // its own: a network that comes up again takes a while.
    for link in ["0-1", "1"] {
        let Some(cluster) = VirtualCluster::up_for_ranks("cut-off", 2, "1gbit", &[]) else { return };
        let record = folder.path().join(format!("cut-{link}.jsonl"));
        let mut started = run(&cluster, folder.path(), &record);
        started.wait_until(60, "two cases are measured", || count_so_far(&record, "case") >= 2);
        let cut_off = [2, 3].map(|rank| process_of(&record, rank));
        cluster.link(link, "down");
        let ran = ending(started, 30);
        let ran = ran.ended_with(5).printed_error("host1 cannot be reached (the host or its link)");
        let read = lines(&record);
        let hang = of_kind(&read, "hang").pop().unwrap_or_else(|| panic!("no hang line: {}", ran.stderr));
        assert_eq!(hang["unreachable_hosts"], serde_json::json!(["host1"]), "{link}");
        let end = read.last().expect("lines");
        assert_eq!((&end["line"], &end["exit_code"]), (&"end".into(), &5.into()), "{link}: {end}");
        wait_until(10, "the ranks of host1 have ended", || !cut_off.iter().any(|pid| is_running(*pid)));
        let lone = record.with_extension("hang.host-1.txt");
        match link {
            // The launcher reaches host1 still, and may end its ranks before the watchdog there acts.
            "0-1" if !lone.exists() => {}
            // No other process can end them.
            _ => {
                let text = std::fs::read_to_string(lone).expect("host1 has decided alone");
                assert!(text.contains("host0 cannot be reached (the host or its link)"), "{text}");
            }
        }
    }
}

#[test]
fn a_run_continues_where_the_watchdogs_of_hosts_are_stopped_and_says_so() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    for hosts in [[1, 0], [0, 1]] {
        let Some(cluster) = VirtualCluster::up_for_ranks("stopped", 2, "1gbit", &[]) else { return };
        let record = folder.path().join(format!("host{}.jsonl", hosts[0]));
        let mut started = run(&cluster, folder.path(), &record);
        started.wait_until(60, "two cases are measured", || count_so_far(&record, "case") >= 2);
        for (count, host) in (1..).zip(hosts) {
            let ranks = [2 * host, 2 * host + 1].map(|rank| process_of(&record, rank));
            common::signal(child_of(&ranks).expect("a rank of each host has started its watchdog"), "STOP");
            started.wait_until(60, "the record says so", || count_so_far(&record, "unwatched") == count);
            // Longer than nothing may be heard of a host.
            std::thread::sleep(Duration::from_secs(10));
            let measured = count_so_far(&record, "case");
            started.wait_until(30, "the run continues", || count_so_far(&record, "case") > measured);
        }
        common::signal(started.id(), "TERM");
        let ran = ending(started, 60);
        assert!(!ran.stderr.contains("cannot be reached"), "{}", ran.stderr);
        let read = lines(&record);
        let named: Vec<_> = of_kind(&read, "unwatched").iter().map(|line| line["host"].clone()).collect();
        assert_eq!(named, hosts.map(|host| format!("host{host}")), "{}", ran.stderr);
        let end = read.last().expect("lines");
        assert_eq!(end["exit_code"], 143, "{end}: {}", ran.stderr);
    }
}

#[test]
fn a_host_that_is_not_reached_at_the_start_is_named_at_the_deadline() {
    let Some(cluster) = VirtualCluster::up_for_ranks("cut-start", 2, "1gbit", &[]) else { return };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let record = folder.path().join("run.jsonl");
    cluster.link("1", "down");
    let ran = ending(run(&cluster, folder.path(), &record), 60).ended_with(5);
    let ran = ran.printed_error("the ranks did not come together within 30.1 s; it was terminated");
    ran.printed_error("host1 cannot be reached from here: the host or the link to it");
    assert!(!record.exists());
}
