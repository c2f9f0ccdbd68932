//! Job environments as Slurm 22.05 sets them, and invalid variants.

use super::*;
use crate::launch::Flavor;

/// Environment of a batch script after `sbatch -N 2 --ntasks-per-node=2`.
const BATCH: &[(&str, &str)] = &[
    ("SLURM_JOB_ID", "7"),
    ("SLURM_JOB_NODELIST", "host[0-1]"),
    ("SLURM_TASKS_PER_NODE", "2(x2)"),
    ("SLURM_NTASKS", "4"),
];

fn read(pairs: &[(&str, &str)], changes: &[(&str, &str)]) -> Result<Option<Allocation>> {
    let look = |name: &str| {
        let all = changes.iter().chain(pairs);
        all.clone().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned())
    };
    Allocation::of(&look)
}

fn batch() -> Allocation {
    read(BATCH, &[]).expect("readable").expect("a job")
}

#[test]
fn environments_that_contradict_themselves_are_refused() {
    for (changes, exit_code, words) in [
        (&[("SLURM_STEP_NUM_TASKS", "4")][..], 2, "srun started `commgauge run` 4 times"),
        (&[("SLURM_JOB_NODELIST", "")], 6, "SLURM_JOB_NODELIST is not set"),
        (&[("SLURM_TASKS_PER_NODE", "")], 6, "SLURM_TASKS_PER_NODE is not set"),
        (&[("SLURM_JOB_NODELIST", "host[0-")], 6, "SLURM_JOB_NODELIST=host[0-"),
        (&[("SLURM_TASKS_PER_NODE", "2(x")], 6, "SLURM_TASKS_PER_NODE=2(x"),
        (&[("SLURM_TASKS_PER_NODE", "1(x99999999999)")], 6, "SLURM_TASKS_PER_NODE"),
        (&[("SLURM_NTASKS", "0")], 6, "SLURM_NTASKS=0"),
        (&[("SLURM_NTASKS", "many")], 6, "SLURM_NTASKS=many"),
        (&[("SLURM_TASKS_PER_NODE", "2(x3)")], 7, "names 2 hosts, SLURM_TASKS_PER_NODE=2(x3) has 3"),
    ] {
        let error = read(BATCH, changes).expect_err(words);
        assert_eq!(error.exit_code(), exit_code, "{error}");
        assert!(error.to_string().contains(words), "{error} lacks {words}");
    }
}

#[test]
fn ranks_and_hosts_come_from_the_job() {
    assert_eq!(read(&[], &[]).expect("readable"), None);
    let job = batch();
    assert_eq!((job.ranks, job.host_of_rank(3)), (4, vec!["host0", "host0", "host1"]));
    assert_eq!(job.describe(4), "Slurm job 7: 4 ranks on 2 hosts (host[0-1])");
    assert_eq!(job.describe(2), "Slurm job 7: 2 of its 4 ranks on 2 hosts (host[0-1])");
    // Without --ntasks, SLURM_NTASKS is not set, and the slots on the hosts count. An interactive step has one task.
    for changes in [[("SLURM_NTASKS", ""), ("SLURM_TASKS_PER_NODE", "3,1")], [("SLURM_STEP_NUM_TASKS", "1"), ("", "")]]
    {
        assert_eq!(read(BATCH, &changes).expect("readable").expect("a job").ranks, 4);
    }
}

#[test]
fn requests_beyond_the_job_are_refused() {
    let job = batch();
    assert_eq!((job.ranks_for(None).ok(), job.ranks_for(Some(2)).ok()), (Some(4), Some(2)));
    let error = job.ranks_for(Some(8)).expect_err("too many").to_string();
    assert!(error.contains("-n 8: Slurm job 7 has 4 ranks on 2 hosts") && error.contains("--ntasks=8"), "{error}");
    assert!(job.check_hosts("host1:2,host0").is_ok());
    for (hosts, words) in [
        ("host0,host2", "host2 is not of Slurm job 7, which has host[0-1]; did you mean host"),
        ("host0:3", "has 2 ranks on host0, not 3"),
    ] {
        let error = job.check_hosts(hosts).expect_err(hosts);
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn srun_gets_the_plugin_of_the_mpi_unless_one_was_chosen() {
    let list = "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions available: pmix_v4\n";
    let unset = |_: &str| None;
    for (flavor, expected) in [(Some(Flavor::OpenMpi), Some("pmix")), (Some(Flavor::Mpich), Some("pmi2")), (None, None)]
    {
        assert_eq!(srun_mpi(flavor, list, &unset).expect("offered"), expected);
    }
    assert_eq!(srun_mpi(Some(Flavor::OpenMpi), "", &|_| Some("pmi2".into())).expect("chosen"), None);
    let error = srun_mpi(Some(Flavor::OpenMpi), "MPI plugin types are...\n\tnone\n\tpmi2\n", &unset).expect_err("none");
    assert_eq!(error.exit_code(), 6);
    assert!(error.to_string().contains("no --mpi=pmix (it has none, pmi2)"), "{error}");
}

#[test]
fn a_job_that_asked_for_gpus_alone_has_a_rank_for_each() {
    // sbatch --nodes=2 --gpus-per-node=8, on whole hosts of 128 processors, and on shared ones.
    let bare = |gpus: (&'static str, &'static str), tasks: &'static str| {
        let changes = [("SLURM_NTASKS", ""), ("SLURM_TASKS_PER_NODE", tasks), gpus];
        read(BATCH, &changes).expect("readable").expect("a job")
    };
    for (gpus, tasks) in [
        (("SLURM_GPUS_PER_NODE", "8"), "128(x2)"),
        (("SLURM_GPUS_PER_NODE", "h100:8"), "1(x2)"),
        (("SLURM_GPUS_PER_NODE", "a100:6,v100:2"), "1(x2)"),
        (("SLURM_GPUS_ON_NODE", "8"), "1(x2)"),
    ] {
        let job = bare(gpus, tasks).with_a_rank_for_each_gpu(None);
        assert_eq!((job.ranks, job.host_of_rank(16)[7..9].to_vec()), (16, vec!["host0", "host1"]), "{gpus:?}");
    }
    // What was asked for counts.
    let asked = read(BATCH, &[("SLURM_GPUS_PER_NODE", "8")]).expect("readable").expect("a job");
    assert_eq!(asked.clone().with_a_rank_for_each_gpu(Some(4)).ranks, 4);
    assert_eq!(bare(("SLURM_GPUS_PER_NODE", "many"), "1(x2)").with_a_rank_for_each_gpu(None).ranks, 2);
    // As in `srun --pty --gpus=8 bash`, which has one task: more are there if they are requested.
    assert_eq!(asked.with_a_rank_for_each_gpu(Some(5)).ranks_for(Some(5)).ok(), Some(5));
    assert!(batch().with_a_rank_for_each_gpu(Some(5)).ranks_for(Some(5)).is_err(), "no GPUs were asked for");
}
