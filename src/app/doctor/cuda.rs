//! Checks the GPU driver: its kernel module, its library, the devices, and their peer access.

use super::document::{Finding, Part, Section, State};
use super::system::{Query, Response, System};
use commgauge_base::units::Bytes;
use commgauge_run::device_probe::{CudaAnswer, Probe};

const NVIDIA: &str = "0x10de";
const INSTALL: &str = "install NVIDIA's driver; inside a container start it with GPUs (docker run --gpus all, enroot, or a Kubernetes limit nvidia.com/gpu)";

/// Findings about CUDA, and the number of devices.
pub(super) struct Cuda {
    pub section: Section,
    pub ready: Result<CudaAnswer, (String, Option<String>)>,
    pub devices: usize,
}

pub(super) fn check(system: &dyn System) -> Cuda {
    let mut findings = vec![kernel_module(system), device_files(system)];
    let part = library(system);
    findings.extend(part.section.findings);
    let section = Section::new("CUDA", findings);
    let devices = part.ready.as_ref().map_or(0, |answer| answer.devices.len());
    // An error of the library is a consequence, one of the module the cause.
    let ready = match (section.first_fault(), part.ready) {
        (Some(fault), Err(_)) => Err(fault),
        (_, ready) => ready,
    };
    Cuda { section, ready, devices }
}

/// Reports a library that was built with this CUDA: with `state` and a fix if its major version is newer than the
/// driver supports. Within a major version any driver runs any library (NVIDIA, CUDA Compatibility, minor versions).
/// `package` is the Python package without the driver's major version.
pub(super) fn fitting(
    found: String,
    built_with: &str,
    driver_cuda: Option<&str>,
    state: State,
    package: &str,
) -> Finding {
    let major = |text: &str| text.split('.').next().and_then(|part| part.parse::<u32>().ok());
    match (major(built_with), driver_cuda, driver_cuda.and_then(major)) {
        (Some(library), Some(served), Some(driver)) if library > driver => {
            let found = format!("{found}; the driver serves CUDA {served}, for which it is too new");
            Finding::new("library", state, found)
                .with_fix(format!("install a newer driver, or the Python package {package}{driver}"))
        }
        _ => Finding::new("library", State::Fine, found),
    }
}

fn kernel_module(system: &dyn System) -> Finding {
    let item = "kernel module";
    if let Some(text) = system.read("/proc/driver/nvidia/version") {
        let line = text.lines().next().unwrap_or_default();
        return Finding::new(
            item,
            State::Fine,
            line.trim_start_matches("NVRM version:").split_whitespace().collect::<Vec<_>>().join(" "),
        );
    }
    let folder = "/sys/bus/pci/devices";
    let is_gpu = |name: &String| {
        let read = |file: &str| system.read(&format!("{folder}/{name}/{file}")).unwrap_or_default();
        // Class 03 is display, which includes data-centre GPUs (as 3D controllers).
        read("vendor").trim() == NVIDIA && read("class").trim().starts_with("0x03")
    };
    let gpus = system.list(folder).unwrap_or_default().into_iter().filter(is_gpu).count();
    match gpus {
        0 => Finding::new(item, State::Missing, "no NVIDIA driver is loaded, and no NVIDIA GPU is on the PCI bus"),
        n => Finding::new(
            item,
            State::Broken,
            format!("{n} NVIDIA GPUs are on the PCI bus, but no driver is loaded for them"),
        )
        .with_fix(INSTALL),
    }
}

fn device_files(system: &dyn System) -> Finding {
    let names = system.list("/dev").unwrap_or_default();
    let is_gpu = |name: &&String| {
        name.strip_prefix("nvidia").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    let gpus = names.iter().filter(is_gpu).count();
    let has = |name: &str| names.iter().any(|other| other == name);
    match gpus {
        0 => Finding::new("device files", State::Missing, "there is no /dev/nvidia0").with_fix(INSTALL),
        n if !has("nvidia-uvm") => Finding::new(
            "device files",
            State::Broken,
            format!("{n} devices, but no /dev/nvidia-uvm, without which CUDA does not start"),
        )
        .with_fix("load the module: nvidia-modprobe -u, or modprobe nvidia-uvm"),
        n => {
            Finding::new("device files", State::Fine, format!("/dev/nvidia0 to /dev/nvidia{}, /dev/nvidia-uvm", n - 1))
        }
    }
}

fn library(system: &dyn System) -> Part<CudaAnswer> {
    let failed = |finding: Finding| {
        let section = Section::new("", vec![finding]);
        let fault = section.first_fault().unwrap_or_default();
        Part { section, ready: Err(fault) }
    };
    let text = match system.query(Query::Library(Probe::Cuda)) {
        Response::Text(text) => text,
        Response::Absent(why) | Response::Failed(why) => {
            let found = format!("libcuda.so.1 cannot be loaded: {why}");
            return failed(Finding::new("libcuda", State::Missing, found).with_fix(INSTALL));
        }
        Response::Died(how) => {
            let found = format!("asking libcuda ended badly: {how}");
            return failed(
                Finding::new("libcuda", State::Broken, found)
                    .with_fix("look at `nvidia-smi` and `dmesg`; reinstall the driver or restart the host"),
            );
        }
    };
    let answer: CudaAnswer = match serde_json::from_str(&text) {
        Ok(answer) => answer,
        Err(cause) => {
            return failed(Finding::new("libcuda", State::Broken, format!("its answer does not read: {cause}")));
        }
    };
    let double = if answer.is_double { ", a stand-in for tests: nothing through it is real" } else { "" };
    let mut findings =
        vec![Finding::new("libcuda", State::Fine, format!("{} (CUDA {}){double}", answer.file, answer.cuda))];
    let visible = system
        .variable("CUDA_VISIBLE_DEVICES")
        .map(|list| format!(" (CUDA_VISIBLE_DEVICES={list})"))
        .unwrap_or_default();
    let fault = match (&answer.problem, answer.devices.len()) {
        (Some(problem), _) => Some(
            Finding::new("devices", State::Broken, format!("{problem}{visible}"))
                .with_fix("look at `nvidia-smi`; is the driver of the same version as the kernel module?"),
        ),
        (None, 0) => Some(
            Finding::new("devices", State::Missing, format!("the driver finds no device{visible}"))
                .with_fix("is CUDA_VISIBLE_DEVICES empty, or were no GPUs requested from the scheduler?"),
        ),
        (None, _) => None,
    };
    findings.extend(fault);
    for (number, device) in answer.devices.iter().enumerate() {
        let text = format!("{}, {}, {}", device.name, Bytes(device.memory_bytes), device.pci);
        findings.push(Finding::new(&format!("device {number}"), State::Fine, text));
    }
    findings.extend(peers(&answer));
    let section = Section::new("", findings);
    let ready = section.first_fault().map_or(Ok(answer), Err);
    Part { section, ready }
}

/// Checks peer access: prints a row for each device, with `x` if it can access the memory of the column's device.
fn peers(answer: &CudaAnswer) -> Vec<Finding> {
    let devices = answer.devices.len();
    if devices < 2 || answer.peers.len() != devices {
        return Vec::new();
    }
    let pairs = devices * (devices - 1);
    let reached = answer.peers.iter().flatten().filter(|yes| **yes).count().saturating_sub(devices);
    if reached == pairs {
        return vec![Finding::new(
            "peer access",
            State::Fine,
            format!("all {devices} devices reach each other's memory"),
        )];
    }
    let found = format!("{reached} of {pairs} ordered pairs of devices reach each other's memory");
    let fix = "other pairs go through host memory; look at `nvidia-smi topo -p2p r` (IOMMU and PCIe ACS settings, virtual machines and MIG forbid it)";
    let mut findings = vec![Finding::new("peer access", State::Warning, found).with_fix(fix)];
    for (number, row) in answer.peers.iter().enumerate() {
        let cells: Vec<&str> = row
            .iter()
            .enumerate()
            .map(|(to, yes)| {
                if to == number {
                    "."
                } else if *yes {
                    "x"
                } else {
                    "-"
                }
            })
            .collect();
        findings.push(Finding::new(&format!("from {number}"), State::Note, cells.join(" ")));
    }
    findings
}
