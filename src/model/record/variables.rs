//! Which variables of the environment a record holds, by name.

/// A variable of an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name, without `=`.
    pub name: String,
    /// Its value, which may be secret.
    pub value: String,
}

impl Variable {
    /// A variable of this name and value.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Variable {
        Variable { name: name.into(), value: value.into() }
    }

    /// As a shell sets it: `NAME=value`, not quoted.
    pub fn assignment(&self) -> String {
        format!("{}={}", self.name, self.value)
    }
}

/// Prefixes of the environment variables that are recorded: those that control MPI, NCCL and the launcher. All others are
/// left out, since an environment may contain secrets.
const RECORDED_PREFIXES: [&str; 10] = [
    "NCCL_",
    "OMPI_MCA_",
    "PRTE_MCA_",
    "MPIR_CVAR_",
    "I_MPI_",
    "UCX_",
    "FI_",
    "SLURM_JOB_",
    "SLURM_NTASKS",
    "CUDA_VISIBLE_DEVICES",
];

/// Of those, variables that a launcher sets for its own processes, such as addresses and session folders; and the label that NVIDIA's
/// container images give the NCCL in them, which no NCCL reads and which need not be the one that is used.
const INTERNAL_PREFIXES: [&str; 16] = [
    "NCCL_VERSION",
    "OMPI_MCA_PREFIXES",
    "OMPI_MCA_cpu_type",
    "OMPI_MCA_num_procs",
    "OMPI_MCA_orte_",
    "OMPI_MCA_ess",
    "OMPI_MCA_pmix",
    "OMPI_MCA_shmem_RUNTIME",
    "OMPI_MCA_initial_wdir",
    "OMPI_MCA_mpi_oversubscribe",
    "I_MPI_INFO_",
    "I_MPI_INTERNAL_",
    "I_MPI_PIN_INFO",
    "I_MPI_PIN_MAPPING",
    "I_MPI_HYDRA_",
    "I_MPI_RETURN_",
];

/// Whether records hold the variable.
pub(super) fn is_recorded(name: &str) -> bool {
    RECORDED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !is_launcher_internal(name)
}

/// Whether a launcher sets the variable for its own processes only.
pub fn is_launcher_internal(name: &str) -> bool {
    INTERNAL_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allowed_variables_are_recorded() {
        for (name, recorded) in [
            ("NCCL_ALGO", true),
            ("OMPI_MCA_btl", true),
            ("OMPI_MCA_orte_hnp_uri", false),
            ("OMPI_MCA_PREFIXES", false),
            ("NCCL_VERSION", false),
            ("I_MPI_FABRICS", true),
            ("I_MPI_PIN_INFO", false),
            ("I_MPI_INFO_NP", false),
            ("SLURM_JOB_ID", true),
            ("AWS_SECRET_ACCESS_KEY", false),
            ("PATH", false),
        ] {
            assert_eq!(is_recorded(name), recorded, "{name}");
        }
    }
}
