//! How many ranks `commgauge run --backend nccl` starts, and where, unless that is said: one for each GPU of this host, of a job, or of
//! the hosts of a file. Launches nothing.

use crate::common;

use common::doubles::with_doubles;
use common::programs::write_program;
use common::{COMMGAUGE, Ran};
use std::process::Command;

/// The launch command of a dry run on a host with eight fake device files.
fn shown(flags: &[&str], set: &[(&str, &str)], path: Option<&std::path::Path>) -> Ran {
    let mut command = Command::new(COMMGAUGE);
    command.args(["run", "smoke", "--backend", "nccl", "--dry-run"]).args(flags);
    if let Some(folder) = path {
        let mut paths = vec![folder.to_owned()];
        paths.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        command.env("PATH", std::env::join_paths(paths).unwrap());
    }
    Ran::of(with_doubles(&mut command, 8).envs(set.iter().copied()), 60)
}

#[test]
fn every_gpu_of_this_host_has_a_rank() {
    let none: [(&str, &str); 0] = [];
    let visible = [("CUDA_VISIBLE_DEVICES", "0,1,2")];
    let one = [("CUDA_VISIBLE_DEVICES", "5")];
    for (set, wanted) in [(&none[..], " -n 8 "), (&visible, " -n 3 "), (&one, " -n 1 ")] {
        let ran = shown(&[], set, None).ended_with(0);
        assert!(ran.stdout.lines().next().is_some_and(|line| line.contains(wanted)), "{wanted}: {}", ran.stdout);
        let alone = ran.stderr.contains("one GPU, so one rank, which communicates with no other");
        assert_eq!(alone, wanted == " -n 1 ", "{}", ran.stderr);
    }
}

#[test]
fn a_dry_run_lists_each_variant_that_the_flags_ask_for() {
    let flags = ["-n", "2", "--", "--buffers", "symmetric,plain", "--submit", "stream,graph"];
    let [usual, varied] = [&flags[..2], &flags].map(|flags| shown(flags, &[], None).ended_with(0).stdout);
    let cases = |text: &str| text.lines().filter(|line| line.contains(" groups x ranks ")).count();
    assert_eq!(cases(&varied), 4 * cases(&usual), "{varied}");
    assert!(varied.contains("/symmetric, graph") || varied.contains("/symmetric"), "{varied}");
}

#[test]
fn hosts_of_a_file_have_as_many_ranks_as_slots() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts");
    let flags = ["--hostfile", file.to_str().unwrap()];
    std::fs::write(&file, "node0 slots=8\nnode1 slots=8\n").unwrap();
    let ran = shown(&flags, &[], None).ended_with(0);
    assert!(ran.stdout.lines().next().is_some_and(|line| line.contains(" -n 16 ")), "{}", ran.stdout);
    std::fs::write(&file, "node0\nnode1\n").unwrap();
    shown(&flags, &[], None)
        .ended_with(2)
        .printed_error("it gives no slots, and the GPUs of other hosts are not known here");
}

#[test]
fn a_job_of_slurm_has_its_tasks_or_a_rank_for_each_gpu_that_it_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let text = "#!/bin/sh\ncase \"$1\" in --mpi=list) printf 'MPI plugin types are...\\n\\tpmix\\n\\tpmi2\\n' ;; *) echo slurm 23.11.4 ;; esac\n";
    write_program(&folder.path().join("srun"), text);
    let job = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "node[0-1]"), ("SLURM_JOB_CPUS_PER_NODE", "128(x2)")];
    for (set, wanted) in [
        (
            &[("SLURM_TASKS_PER_NODE", "8(x2)"), ("SLURM_NTASKS", "16")][..],
            "srun --ntasks=16 --kill-on-bad-exit=0 --wait=30 --mpi=",
        ),
        (&[("SLURM_TASKS_PER_NODE", "128(x2)"), ("SLURM_GPUS_PER_NODE", "h100:8")], " --ntasks-per-node=8 "),
        (&[("SLURM_TASKS_PER_NODE", "1(x2)"), ("SLURM_GPUS_ON_NODE", "8")], " --ntasks-per-node=8 "),
    ] {
        let ran = shown(&[], &[&job[..], set].concat(), Some(folder.path())).ended_with(0);
        let ran = ran.printed_error("Slurm job 7: 16 ranks on 2 hosts (node[0-1])");
        let line = ran.stdout.lines().next().unwrap_or_default();
        assert!(line.starts_with("srun --ntasks=16 ") && line.contains(wanted), "{wanted}: {line}");
    }
}
