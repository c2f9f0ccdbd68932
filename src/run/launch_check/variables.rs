//! Selects the environment variables that must be equal on all ranks, without those that a launcher sets per process.

use super::severity::Severity;
use commgauge_model::record::provenance::{self, Variable};

/// Prefixes of variables that affect the measurements.
const RELEVANT: [&str; 24] = [
    "NCCL_",
    "UCX_",
    "UCC_",
    "FI_",
    "OMPI_MCA_",
    "PRTE_MCA_",
    "MPIR_CVAR_",
    "MPICH_",
    "MV2_",
    "I_MPI_",
    "PSM2_",
    "PSM3_",
    "HCOLL_",
    "SHARP_",
    "OMP_",
    "KMP_",
    "GOMP_",
    "MKL_",
    "OPENBLAS_",
    "CUDA_",
    "NVIDIA_VISIBLE_DEVICES",
    "MALLOC_",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
];

/// Prefixes among these that only affect launching: such variables are set on some hosts only and do not describe the
/// ranks.
const LAUNCH_ONLY: [&str; 17] = [
    "OMPI_MCA_plm",
    "OMPI_MCA_hwloc_base_binding",
    "OMPI_MCA_oob",
    "OMPI_MCA_routed",
    "OMPI_MCA_rml",
    "OMPI_MCA_ras",
    "OMPI_MCA_rmaps",
    "OMPI_MCA_odls",
    "OMPI_MCA_iof",
    "OMPI_MCA_state",
    "OMPI_MCA_errmgr",
    "OMPI_MCA_grpcomm",
    "OMPI_MCA_schizo",
    "OMPI_MCA_mpi_yield_when_idle",
    "PRTE_MCA_plm",
    "PRTE_MCA_prte",
    "MPIR_CVAR_CH3_INTERFACE_HOSTNAME",
];

/// Variables that assign each rank its own device.
const DEVICE_SELECTION: [&str; 2] = ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"];

/// Variables that name adapters, paths or cores, which may legitimately differ between hosts or ranks.
const HOST_SPECIFIC: [&str; 17] = [
    "NCCL_SOCKET_IFNAME",
    "NCCL_IB_HCA",
    "NCCL_TOPO_FILE",
    "NCCL_HOSTID",
    "NCCL_DEBUG",
    "NCCL_DEBUG_FILE",
    "UCX_NET_DEVICES",
    "UCX_TLS_DEVICES",
    "FI_OPX_HFI_SELECT",
    "FI_PROVIDER_PATH",
    "PSM2_MULTIRAIL_MAP",
    "PSM3_NIC",
    "OMPI_MCA_btl_tcp_if_include",
    "OMP_PLACES",
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
    "LD_LIBRARY_PATH",
];

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
    let begins = |list: &[&str]| list.iter().any(|prefix| name.starts_with(prefix));
    begins(&RELEVANT) && !begins(&LAUNCH_ONLY) && !provenance::is_launcher_internal(name)
}

/// Severity of a difference in a variable.
pub(super) fn severity(name: &str) -> Severity {
    match name {
        _ if DEVICE_SELECTION.contains(&name) => Severity::Info,
        _ if HOST_SPECIFIC.contains(&name) => Severity::Note,
        _ => Severity::Mixed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
