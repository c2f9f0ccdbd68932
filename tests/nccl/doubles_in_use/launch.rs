//! Starts this test program again as the ranks of a launch, without MPI: the ranks connect through the unique id
//! alone.

use crate::common::{Ran, ending, start};
use std::process::Command;

/// The rank of this process, where it was started as one.
pub struct Me {
    pub rank: usize,
    pub ranks: usize,
    /// A folder that all ranks of the launch share.
    pub folder: std::path::PathBuf,
}

/// The task of a launch.
pub struct Launch<'a> {
    pub task: &'a str,
    pub ranks: usize,
    pub nccl: &'a str,
    /// Further variables of the environment.
    pub set: &'a [(&'a str, &'a str)],
}

impl Launch<'_> {
    /// A task on this many ranks, with the faults of this text.
    pub fn with_faults<'a>(task: &'a str, ranks: usize, faults: &'a [(&'a str, &'a str)]) -> Launch<'a> {
        Launch { task, ranks, nccl: crate::common::doubles::NCCL_VERSION, set: faults }
    }

    /// Runs it to its end; what each rank printed and how it ended.
    pub fn run(&self) -> Vec<Ran> {
        let folder = tempfile::tempdir().expect("a folder");
        let started: Vec<_> = (0..self.ranks).map(|rank| start(&mut self.command(rank, folder.path()))).collect();
        started.into_iter().map(|rank| ending(rank, 40)).collect()
    }

    /// Runs it and expects every rank to end well.
    #[track_caller]
    pub fn succeeds(&self) {
        for ran in self.run() {
            ran.ended_with(0);
        }
    }

    fn command(&self, rank: usize, folder: &std::path::Path) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program has a file"));
        command.args(["--exact", "doubles_in_use::a_rank", "--nocapture"]);
        crate::common::doubles::with_nccl(&mut command, 4, self.nccl);
        for launcher in ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"] {
            command.env_remove(launcher);
        }
        command.env("PMI_RANK", rank.to_string()).env("COMMGAUGE_TEST_RANKS", self.ranks.to_string());
        command.env("COMMGAUGE_TEST_TASK", self.task).env("COMMGAUGE_TEST_FOLDER", folder);
        command.envs(self.set.iter().copied());
        command
    }
}

/// The task of this process, where it was started as a rank.
pub fn task() -> Option<(String, Me)> {
    let variable = |name: &str| std::env::var(name).ok();
    let me = Me {
        rank: variable("PMI_RANK")?.parse().ok()?,
        ranks: variable("COMMGAUGE_TEST_RANKS")?.parse().ok()?,
        folder: variable("COMMGAUGE_TEST_FOLDER")?.into(),
    };
    Some((variable("COMMGAUGE_TEST_TASK")?, me))
}
