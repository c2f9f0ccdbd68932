//! Reads the size of the launch from the launcher's environment variables: ranks and hosts, the ranks on this host,
//! this rank's number; and whether the launcher has joined its copies at all.
//!
//! Nested launchers inherit each other's variables, so several may be set. MPI is not queried here.

use commgauge_base::error::{Error, Result};

/// A number found in the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberVariable {
    /// The name of its variable.
    pub name: &'static str,
    /// The number.
    pub number: u32,
}

/// Numbers found in the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LauncherEnv {
    /// Ranks of the launch.
    pub ranks: Vec<NumberVariable>,
    /// Ranks on this host.
    pub ranks_here: Vec<NumberVariable>,
    /// Hosts of the launch.
    pub hosts: Vec<NumberVariable>,
    /// This rank.
    pub rank: Vec<NumberVariable>,
}

/// Reads the variables of all known launchers.
pub fn launcher_env(environment: &dyn Fn(&str) -> Option<String>) -> LauncherEnv {
    let number =
        |name: &'static str| Some(NumberVariable { name, number: environment(name)?.trim().parse::<u32>().ok()? });
    let all = |names: &[&'static str]| names.iter().filter_map(|name| number(name)).collect::<Vec<_>>();
    let mut found = LauncherEnv {
        ranks: all(&["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "PALS_SIZE"]),
        ranks_here: all(&["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE"]),
        hosts: Vec::new(),
        rank: all(&["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"]),
    };
    // Under another launcher Slurm's numbers describe the allocation, or the daemons that this launcher started through
    // srun.
    if found.ranks.is_empty() && found.ranks_here.is_empty() {
        found.ranks = all(&["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"]).into_iter().take(1).collect();
        let here = |number: u32| NumberVariable { name: "SLURM_STEP_TASKS_PER_NODE", number };
        found.ranks_here = slurm_ranks_here(environment).map(here).into_iter().collect();
        found.hosts = all(&["SLURM_STEP_NUM_NODES"]);
        if found.rank.is_empty() {
            found.rank = all(&["SLURM_PROCID"]);
        }
    }
    found
}

/// This node's entry in Slurm's counts, such as `2(x2),1`.
fn slurm_ranks_here(environment: &dyn Fn(&str) -> Option<String>) -> Option<u32> {
    let node: usize = environment("SLURM_NODEID")?.parse().ok()?;
    let text = environment("SLURM_STEP_TASKS_PER_NODE")?;
    let mut before = 0usize;
    for part in text.split(',') {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')')?.parse::<usize>().ok()?),
            None => (part, 1),
        };
        before = before.checked_add(times)?;
        if node < before {
            return count.trim().parse().ok();
        }
    }
    None
}

/// Detects copies that srun started without connecting them, before MPI starts: some MPIs let each continue alone,
/// others end with a page of advice and code 1.
///
/// # Errors
/// A usage error on every copy.
pub fn ensure_joined(environment: &dyn Fn(&str) -> Option<String>) -> Result<()> {
    let tasks = environment("SLURM_STEP_NUM_TASKS").and_then(|text| text.parse::<u32>().ok()).unwrap_or(1);
    // Variables that PMIx, PMI-1 and PMI-2, mpirun and mpiexec set for ranks that they connect.
    let joined = ["PMIX_RANK", "PMIX_NAMESPACE", "PMI_RANK", "PMI_FD", "PMI_PORT", "OMPI_COMM_WORLD_SIZE"];
    if tasks < 2 || joined.iter().any(|name| environment(name).is_some()) {
        return Ok(());
    }
    let kind = environment("SLURM_MPI_TYPE").unwrap_or_else(|| "none".to_owned());
    Err(Error::usage(format!(
        "srun started {tasks} copies with nothing to join them by (--mpi={kind}): each would believe that it is alone; start \
         them with srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH), or through `commgauge run`, which asks for the right one"
    )))
}

impl LauncherEnv {
    /// The variable that contradicts a count of ranks: none if any variable agrees, or if none is set.
    pub fn contradiction(&self, ranks: u32) -> Option<NumberVariable> {
        contradiction(&self.ranks, ranks)
    }

    /// The variable that contradicts this rank's number.
    pub(super) fn wrong_rank(&self, rank: u32) -> Option<NumberVariable> {
        contradiction(&self.rank, rank)
    }

    /// The numbers of ranks with their variables, for display; empty where none is set.
    pub(super) fn describe_ranks(&self) -> String {
        let shown = |NumberVariable { name, number }: &NumberVariable| format!("{number} ({name})");
        let numbers: Vec<String> = self.ranks.iter().map(shown).collect();
        numbers.join(", ")
    }
}

/// A variable inherited from an outer launcher may be wrong as long as another one is right.
fn contradiction(variables: &[NumberVariable], known: u32) -> Option<NumberVariable> {
    if variables.iter().any(|variable| variable.number == known) { None } else { variables.first().copied() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &'static [(&str, &str)]) -> LauncherEnv {
        launcher_env(&|name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned()))
    }

    #[test]
    fn a_contradicting_launcher_variable_is_named_and_an_inherited_one_is_not() {
        for (pairs, ranks, expected) in [
            (&[][..], 1, None),
            (&[("OMPI_COMM_WORLD_SIZE", "4")][..], 1, Some(("OMPI_COMM_WORLD_SIZE", 4))),
            (&[("PMI_SIZE", "4")], 1, Some(("PMI_SIZE", 4))),
            (&[("PMI_SIZE", "four")], 1, None),
            // mpiexec started inside of one rank of mpirun.
            (&[("OMPI_COMM_WORLD_SIZE", "1"), ("PMI_SIZE", "4")], 4, None),
            // mpirun with 2 of the 8 tasks of an allocation; its daemons are a step of one task for each host.
            (&[("OMPI_COMM_WORLD_SIZE", "2"), ("SLURM_NTASKS", "8"), ("SLURM_STEP_NUM_TASKS", "1")], 2, None),
            (&[("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_NTASKS", "16")], 8, None),
            (&[("SLURM_NTASKS", "8")], 1, Some(("SLURM_NTASKS", 8))),
        ] {
            let expected = expected.map(|(name, number)| NumberVariable { name, number });
            assert_eq!(of(pairs).contradiction(ranks), expected, "{pairs:?}");
        }
    }

    #[test]
    fn slurm_says_how_many_ranks_are_on_this_node() {
        let node = |node: &'static str, counts: &'static str| {
            let environment = move |name: &str| match name {
                "SLURM_NODEID" => Some(node.to_owned()),
                "SLURM_STEP_TASKS_PER_NODE" => Some(counts.to_owned()),
                _ => None,
            };
            slurm_ranks_here(&environment)
        };
        assert_eq!(node("1", "2(x2),1"), Some(2));
        assert_eq!(node("2", "2(x2),1"), Some(1));
        for (number, counts) in
            [("3", "2(x2),1"), ("x", "2"), ("0", ""), ("0", "2(x"), ("1", "2(x99999999999999999999)")]
        {
            assert_eq!(node(number, counts), None, "{number} {counts}");
        }
    }

    #[test]
    fn copies_that_srun_did_not_join_are_caught_before_mpi_starts() {
        let step = |more: &'static [(&str, &str)]| {
            move |name: &str| {
                let all = [("SLURM_STEP_NUM_TASKS", "4")].into_iter().chain(more.iter().copied());
                all.clone().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned())
            }
        };
        let error = ensure_joined(&step(&[("SLURM_MPI_TYPE", "none")])).expect_err("alone");
        assert_eq!(error.exit_code(), 2);
        let text = error.to_string();
        assert!(text.contains("srun started 4 copies") && text.contains("(--mpi=none)"), "{text}");
        for joined in [&[("PMIX_RANK", "0")], &[("PMI_FD", "9")], &[("OMPI_COMM_WORLD_SIZE", "4")]] {
            assert!(ensure_joined(&step(joined)).is_ok(), "{joined:?}");
        }
        assert!(ensure_joined(&|_| None).is_ok());
    }
}
