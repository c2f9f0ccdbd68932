//! Detects whether this process runs in a container, and reports the consequences.

use super::document::{Finding, Section, State};
use super::system::System;

pub(super) fn check(system: &dyn System) -> Section {
    let mut findings = vec![kind(system)];
    if let Some(scope) =
        system.read("/proc/sys/kernel/yama/ptrace_scope").and_then(|text| text.trim().parse::<u32>().ok())
        && scope > 1
    {
        let found = format!(
            "ptrace_scope is {scope}: MPI cannot copy straight between processes, so large messages on a host are slower"
        );
        findings.push(
            Finding::new("copying between ranks", State::Warning, found).with_fix("sysctl kernel.yama.ptrace_scope=1"),
        );
    }
    Section::new("Container", findings)
}

fn kind(system: &dyn System) -> Finding {
    let item = "container";
    let set_value = |name: &str| system.variable(name).filter(|value| !value.is_empty());
    let kind = if set_value("KUBERNETES_SERVICE_HOST").is_some() {
        "a pod of Kubernetes".to_owned()
    } else if let Some(name) = set_value("APPTAINER_NAME").or_else(|| set_value("SINGULARITY_NAME")) {
        format!("Apptainer or Singularity ({name})")
    } else if system.exists("/run/.containerenv") {
        "Podman".to_owned()
    } else if system.exists("/.dockerenv") {
        "Docker".to_owned()
    } else if let Some(name) = set_value("container") {
        name
    } else {
        return Finding::new(item, State::Note, "none that can be seen");
    };
    Finding::new(
        item,
        State::Note,
        format!("{kind}: limits, /dev/shm and devices are those that it was given, not those of the host"),
    )
}
