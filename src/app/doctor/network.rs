//! Checks the interconnects of GPUs and hosts: RDMA adapters, and the kernel modules for GPUDirect RDMA.

use super::document::{Finding, Section, State};
use super::system::System;

const INFINIBAND: &str = "/sys/class/infiniband";

pub(super) fn check(system: &dyn System, gpus: usize) -> Section {
    let adapters = system.list(INFINIBAND).unwrap_or_default();
    let mut findings = Vec::new();
    for adapter in &adapters {
        for port in system.list(&format!("{INFINIBAND}/{adapter}/ports")).unwrap_or_default() {
            findings.push(port_of(system, adapter, &port));
        }
    }
    if adapters.is_empty() {
        findings.push(Finding::new(
            "RDMA adapters",
            State::Note,
            "none (/sys/class/infiniband is empty): between hosts there is TCP only",
        ));
    }
    // Without adapters or without GPUs these modules are not used.
    if !adapters.is_empty() && gpus > 0 {
        findings.push(peer_memory(system));
        findings.push(gdrcopy(system));
    }
    Section::new("Network", findings)
}

fn port_of(system: &dyn System, adapter: &str, port: &str) -> Finding {
    let read = |file: &str| {
        system.read(&format!("{INFINIBAND}/{adapter}/ports/{port}/{file}")).unwrap_or_default().trim().to_owned()
    };
    // For example `4: ACTIVE` and `400 Gb/sec (4X NDR)`.
    let state = read("state").split(": ").last().unwrap_or_default().to_owned();
    let found = format!("{}, {}, {}", state.to_lowercase(), read("rate"), read("link_layer"));
    let item = format!("{adapter}, port {port}");
    if state == "ACTIVE" {
        return Finding::new(&item, State::Fine, found);
    }
    Finding::new(&item, State::Warning, found).with_fix(
        "look at cable and switch port (`ibstat`), or leave the adapter out with NCCL_IB_HCA and UCX_NET_DEVICES",
    )
}

fn peer_memory(system: &dyn System) -> Finding {
    let loaded =
        ["nvidia_peermem", "nv_peer_mem"].into_iter().find(|module| system.exists(&format!("/sys/module/{module}")));
    match loaded {
        Some(module) => Finding::new("GPUDirect RDMA", State::Fine, format!("module {module} is loaded")),
        None => Finding::new("GPUDirect RDMA", State::Warning, "module nvidia_peermem is not loaded: adapters may have to go through host memory")
            .with_fix("modprobe nvidia-peermem; not needed where NCCL uses DMA-BUF (open kernel modules, Linux 5.12 or newer): NCCL_DEBUG=INFO shows it"),
    }
}

fn gdrcopy(system: &dyn System) -> Finding {
    match (system.exists("/sys/module/gdrdrv"), system.exists("/dev/gdrdrv")) {
        (true, true) => Finding::new("GDRCopy", State::Fine, "module gdrdrv is loaded"),
        (true, false) => {
            Finding::new("GDRCopy", State::Warning, "module gdrdrv is loaded, but there is no /dev/gdrdrv")
                .with_fix("let the container see /dev/gdrdrv")
        }
        _ => Finding::new("GDRCopy", State::Note, "not installed; it only shortens the latency of small messages"),
    }
}
