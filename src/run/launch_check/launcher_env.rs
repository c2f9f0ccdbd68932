//! Reads the size of the launch from the launcher's environment variables: ranks and hosts, the ranks on this host, this rank's number; and
//! whether the launcher connected its copies at all.
//!
//! Nested launchers inherit each other's variables, so several may be set. MPI is not queried here.

use crate::launcher::{Variable as Counted, is_connected, slurm_numbers, variables};
use commgauge_base::embedded::pairs;
use commgauge_base::error::{Error, Result};
use commgauge_model::record::header::{self, Variable};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A number found in the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberVariable {
    pub name: &'static str,
    pub number: u32,
}

/// Numbers found in the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LauncherEnv {
    pub ranks: Vec<NumberVariable>,
    /// Ranks on this host.
    pub ranks_here: Vec<NumberVariable>,
    pub hosts: Vec<NumberVariable>,
    pub rank: Vec<NumberVariable>,
}

/// Reads the variables of all known launchers.
pub fn launcher_env(environment: &dyn Fn(&str) -> Option<String>) -> LauncherEnv {
    let number =
        |name: &'static str| Some(NumberVariable { name, number: environment(name)?.trim().parse::<u32>().ok()? });
    let all = |counts: Counted| variables(counts, false).into_iter().filter_map(number).collect::<Vec<_>>();
    let of_allocation = |counts: Counted| variables(counts, true).into_iter().filter_map(number);
    let mut found = LauncherEnv {
        ranks: all(|of| of.ranks),
        ranks_here: all(|of| of.ranks_here),
        hosts: Vec::new(),
        rank: all(|of| of.rank),
    };
    // Under another launcher Slurm's numbers describe the allocation, or this launcher's daemons started through srun.
    if found.ranks.is_empty() && found.ranks_here.is_empty() {
        found.ranks = of_allocation(|of| of.ranks).chain(number("SLURM_NTASKS")).take(1).collect();
        let here = |name| Some(NumberVariable { name, number: slurm_ranks_here(name, environment)? });
        found.ranks_here = variables(|of| of.ranks_here, true).into_iter().filter_map(here).collect();
        found.hosts = of_allocation(|of| of.hosts).collect();
        if found.rank.is_empty() {
            found.rank = of_allocation(|of| of.rank).collect();
        }
    }
    found
}

/// This node's entry in Slurm's counts, such as `2(x2),1`.
fn slurm_ranks_here(counts: &str, environment: &dyn Fn(&str) -> Option<String>) -> Option<u32> {
    let node: usize = environment("SLURM_NODEID")?.parse().ok()?;
    slurm_numbers(&environment(counts)?)?.get(node).copied()
}

/// Detects copies that srun started without connecting them, before MPI starts: some MPIs let each continue alone,
/// others end with a page of advice and code 1.
///
/// # Errors
pub fn ensure_joined(environment: &dyn Fn(&str) -> Option<String>) -> Result<()> {
    let tasks = environment("SLURM_STEP_NUM_TASKS").and_then(|text| text.parse::<u32>().ok()).unwrap_or(1);
    if tasks < 2 || is_connected(|name| environment(name).is_some()) {
        return Ok(());
    }
    let kind = environment("SLURM_MPI_TYPE").unwrap_or_else(|| "none".to_owned());
    Err(Error::usage(format!(
        "srun started {tasks} copies without connecting them (--mpi={kind}): each would run alone; start \
         them with srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH), or through `commgauge run`, which asks for the right one"
    )))
}

impl LauncherEnv {
    /// The variable that contradicts a count of ranks: `None` if any variable agrees, or if none is set.
    pub fn contradiction(&self, ranks: u32) -> Option<NumberVariable> {
        contradiction(&self.ranks, ranks)
    }

    /// The variable that contradicts this rank's number.
    pub(super) fn wrong_rank(&self, rank: u32) -> Option<NumberVariable> {
        contradiction(&self.rank, rank)
    }

    /// The numbers of ranks with their variables, for display; empty if none is set.
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

// Selects the environment variables that must be equal on all ranks, without those that a launcher sets per process.

/// Variables by what follows from a difference between ranks.
const VARIABLES: &str = include_str!("variables.txt");

/// The variables, or their prefixes, of which the table says this.
fn listed(what: &str) -> impl Iterator<Item = &'static str> {
    pairs(VARIABLES).filter(move |(_, said)| *said == what).map(|(name, _)| name)
}

/// The lines `NAME=value` of the relevant variables, sorted by name.
pub(super) fn relevant(environment: impl Iterator<Item = Variable>) -> String {
    let mut lines: Vec<String> = environment
        .filter(|variable| is_relevant(&variable.name))
        .map(|Variable { name, value }| format!("{name}={}", value.replace('\n', "\\n")))
        .collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn is_relevant(name: &str) -> bool {
    let begins = |what: &str| listed(what).any(|prefix| name.starts_with(prefix));
    begins("compared") && !begins("launching") && !header::is_launcher_internal(name)
}

/// Severity of a difference between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// The difference is only displayed.
    Info,
    /// The run continues with a note in its record; no measurement is affected.
    Note,
    /// The run continues, and its record is marked as unreliable.
    Warning,
    /// The run is refused, unless mixed ranks are allowed; then a warning.
    Mixed,
    /// The run is refused in any case.
    Refusal,
}

/// Severity of a difference in a variable.
pub(super) fn severity(name: &str) -> Severity {
    match name {
        _ if listed("device").any(|one| one == name) => Severity::Info,
        _ if listed("host").any(|one| one == name) => Severity::Note,
        _ => Severity::Mixed,
    }
}

// Results of a launch check, as data: for the table, for `--format json`, for the refusal and for the record.

/// Name of the format.
pub const LAUNCH_FORMAT: &str = "commgauge-launch";

/// Raised when a field is removed or changes its meaning.
pub const LAUNCH_VERSION: u32 = 1;

/// What the ranks of a launch have in common, and where they differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LaunchReport {
    /// Always `commgauge-launch`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// Ranks, as MPI counts them.
    pub ranks: u32,
    /// The number of ranks according to the launcher, with its variable; absent if the launcher does not give it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher_says: Option<String>,
    /// Every host, in the order of its first rank.
    pub hosts: Vec<HostRow>,
    /// Facts that are the same on all ranks.
    pub shared: Vec<Shared>,
    /// Facts that are not.
    pub differences: Vec<Difference>,
    /// Why the ranks may not measure together, as sentences; if there are any, the exit code is 7.
    pub refusals: Vec<String>,
    /// What makes the numbers unreliable, as sentences; recorded.
    pub warnings: Vec<String>,
    /// Information that does not affect the numbers, as sentences; recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A host and its limits, the lowest of its ranks.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostRow {
    /// Its name, with a number if several hosts have the same.
    pub host: String,
    /// Its ranks, as ranges.
    pub ranks: String,
    /// Number of its ranks.
    pub rank_count: u32,
    /// Processors that its ranks may run on.
    pub processors: u32,
    /// How the ranks are placed on them, in a few words.
    pub binding: String,
    /// Whether ranks share processors and have to take turns; absent if each has its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ranks_share_processors: bool,
    /// Locked memory limit of a rank; absent if unlimited.
    pub memory_lock_bytes: Option<u64>,
    /// Open files limit of a rank; absent if unlimited.
    pub open_files: Option<u64>,
}

/// A fact that all ranks share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shared {
    /// The fact.
    pub what: String,
    /// Its value.
    pub value: String,
}

/// A fact that differs between ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// The fact, variable or setting.
    pub what: String,
    /// Whether the launch is refused because of it.
    pub refused: bool,
    /// The values, in the order of their first rank.
    pub values: Vec<Value>,
}

/// A value, and the ranks that have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Value {
    /// The value.
    pub value: String,
    /// The ranks, as ranges.
    pub ranks: String,
    /// Number of ranks.
    pub rank_count: u32,
}

// Exceptions that the user allows although they are likely mistakes.

/// Exceptions that the user allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowances {
    /// Ranks may differ in environment, libraries and drivers.
    pub mixed: bool,
    /// Ranks may share a device.
    pub shared_devices: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_base::embedded::rows;

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
            slurm_ranks_here("SLURM_STEP_TASKS_PER_NODE", &environment)
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

    #[test]
    fn launcher_variables_are_left_out_and_library_settings_stay() {
        // As seen on ranks of Open MPI 4.1.4 and MPICH 4.0.2.
        let all = [
            ("OMPI_MCA_ess_base_vpid", false),
            ("OMPI_MCA_orte_ess_node_rank", false),
            ("OMPI_MCA_initial_wdir", false),
            ("OMPI_MCA_plm_rsh_agent", false),
            ("OMPI_MCA_rmaps_base_oversubscribe", false),
            ("OMPI_MCA_mpi_yield_when_idle", false),
            ("OMPI_COMM_WORLD_RANK", false),
            ("PMIX_RANK", false),
            ("PMI_FD", false),
            ("MPI_LOCALRANKID", false),
            ("SLURM_PROCID", false),
            ("AWS_SECRET_ACCESS_KEY", false),
            ("OMPI_MCA_btl", true),
            ("NCCL_ALGO", true),
            ("UCX_TLS", true),
            ("MPIR_CVAR_NOLOCAL", true),
            ("OMP_NUM_THREADS", true),
            ("CUDA_VISIBLE_DEVICES", true),
        ];
        for (name, expected) in all {
            assert_eq!(is_relevant(name), expected, "{name}");
        }
        let text = relevant(all.into_iter().map(|(name, _)| Variable::new(name, "a\nb")));
        assert_eq!(text.lines().next(), Some("CUDA_VISIBLE_DEVICES=a\\nb"));
        assert_eq!(text.lines().count(), 6);
    }

    #[test]
    fn every_variable_of_the_table_has_a_known_consequence() {
        let known = ["compared", "launching", "device", "host"];
        assert_eq!(pairs(VARIABLES).filter(|(_, what)| known.contains(what)).count(), rows(VARIABLES).count());
        assert!(known.into_iter().all(|what| listed(what).count() > 1));
    }

    #[test]
    fn device_and_adapter_bindings_are_no_reason_to_refuse() {
        for (name, expected) in [
            ("CUDA_VISIBLE_DEVICES", Severity::Info),
            ("UCX_NET_DEVICES", Severity::Note),
            ("NCCL_ALGO", Severity::Mixed),
            ("OMP_NUM_THREADS", Severity::Mixed),
        ] {
            assert_eq!(severity(name), expected, "{name}");
        }
    }
}
