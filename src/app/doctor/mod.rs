//! Determines which backends can run on this machine, what is missing, and how to fix it. Needs neither MPI nor a GPU.
//!
//! All facts are read through [`System`], so that tests can supply arbitrary machines.

mod document;
mod host;

#[cfg(test)]
mod tests;

pub use document::{
    BackendVerdict, DOCTOR_FORMAT, DOCTOR_VERSION, DoctorDocument, Finding, Section, State, doctor_text,
};
pub use host::{Machine, Query, Response, System, Volume};

use crate::report::nccl_faults::known_faults;
use crate::report::prose;
use commgauge_base::embedded::pairs;
use commgauge_base::nccl_conf::{NcclConf, nccl_conf};
use commgauge_base::units::{Bytes, counted};
use commgauge_base::writing::ascending;
use commgauge_run::device_probe::{CublasAnswer, CudaAnswer, FOR_AMD, NcclAnswer, NvmlAnswer, NvmlDevice, Probe};
use document::Part as DoctorPart;
use minijinja::context;
use minijinja::value::Serde;
use std::collections::BTreeMap;

/// Runs all checks.
pub fn examine(system: &dyn System) -> DoctorDocument {
    let launching = host::check_launching(system);
    let cuda = check_cuda(system);
    let gpus = cuda.ready.as_ref().map_or(0, |answer| answer.devices.len());
    let driver_cuda = cuda.ready.as_ref().ok().map(|answer| answer.cuda.as_str());
    let nccl = check_nccl(system, driver_cuda);
    let devices = check_devices(system, gpus);
    let cublas = check_cublas(system, driver_cuda);
    let sections = vec![
        launching.section,
        host::check_slurm(system),
        cuda.section,
        devices,
        nccl.section,
        cublas,
        host::check_network(system, gpus),
        host::check(system),
        host::check_container(system),
    ];
    DoctorDocument {
        format: DOCTOR_FORMAT.to_owned(),
        version: DOCTOR_VERSION,
        program_version: commgauge_model::record::header::program_version().to_owned(),
        host: system.host(),
        backends: verdicts(&launching.ready, &cuda.ready, &nccl.ready),
        sections,
    }
}

// Availability of each backend on this machine, as one sentence each.

type BackendsPart<T> = Result<T, (String, Option<String>)>;

fn verdicts(
    mpi: &BackendsPart<String>,
    cuda: &BackendsPart<CudaAnswer>,
    nccl: &BackendsPart<NcclAnswer>,
) -> Vec<BackendVerdict> {
    let verdict = |name: &str, ready: Result<String, (String, Option<String>)>| match ready {
        Ok(reason) => BackendVerdict { name: name.to_owned(), ready: true, reason, fix: None },
        Err((reason, fix)) => BackendVerdict { name: name.to_owned(), ready: false, reason, fix },
    };
    let simulated = "in this process, with any machine file; needs nothing else".to_owned();
    vec![
        verdict("mpi", mpi.clone().map(|launcher| format!("host memory, launched by {launcher}"))),
        verdict("nccl", nccl_verdict(mpi, cuda, nccl)),
        verdict("simulated", Ok(simulated)),
    ]
}

fn nccl_verdict(
    mpi: &BackendsPart<String>,
    cuda: &BackendsPart<CudaAnswer>,
    nccl: &BackendsPart<NcclAnswer>,
) -> BackendsPart<String> {
    let cuda = cuda.clone()?;
    let nccl = nccl.clone()?;
    mpi.clone().map_err(|(reason, fix)| (format!("MPI launches its ranks, but {reason}"), fix))?;
    let devices = counted(cuda.devices.len(), "device");
    let double = if cuda.is_double { ", test doubles: synthetic" } else { "" };
    Ok(format!("{devices}, CUDA {}, NCCL {}{double}", cuda.cuda, nccl.version))
}

// State of the devices according to NVML: reasons for reduced performance, with a fix for each.

const DEVICES_INSTALL: &str = "NVIDIA's driver provides libnvidia-ml.so.1; in a container it needs the capability `utility` (NVIDIA_DRIVER_CAPABILITIES=compute,utility). Without it records lack clocks, power and temperature";

/// `devices` is the number of devices according to the driver: without any, NVML is not needed.
fn check_devices(system: &dyn System, devices: usize) -> Section {
    let missing = if devices > 0 { State::Warning } else { State::Note };
    let findings = match system.query(Query::Library(Probe::Nvml)) {
        Response::Absent(why) | Response::Failed(why) => {
            let finding = Finding::new("NVML", missing, format!("it cannot be used: {why}"));
            vec![if devices > 0 { finding.with_fix(DEVICES_INSTALL) } else { finding }]
        }
        Response::Died(how) => {
            let found = format!("querying NVML failed: {how}");
            vec![
                Finding::warning("NVML", found)
                    .with_fix("does `nvidia-smi` answer? If not, check dmesg for XID errors, and restart the host"),
            ]
        }
        Response::Text(text) => match serde_json::from_str::<NvmlAnswer>(&text) {
            Ok(answer) => nvml_findings(&answer),
            Err(cause) => vec![Finding::warning("NVML", format!("its answer cannot be parsed: {cause}"))],
        },
    };
    Section::new("Devices now (NVML)", findings)
}

/// What the devices are and what is wrong with them, then how they differ.
fn nvml_findings(answer: &NvmlAnswer) -> Vec<Finding> {
    let throttle_fixes: BTreeMap<&str, &str> = pairs(include_str!("throttle_fixes.txt")).collect();
    let rows = prose("nvml.txt", include_str!("nvml.txt"), context! { throttle_fixes, ..Serde(answer) });
    rows.lines().map(Finding::of_row).chain(differing(&answer.devices)).collect()
}

/// Reports different devices on one host: the slowest determines the speed.
fn differing(devices: &[NvmlDevice]) -> Option<Finding> {
    let readable: Vec<&NvmlDevice> = devices.iter().filter(|device| device.problem.is_none()).collect();
    let models: Vec<&str> = ascending(readable.iter().map(|device| device.name.as_str()));
    let limits: Vec<u32> = ascending(readable.iter().filter_map(|device| device.power_limit_watts));
    let found = match (&models[..], &limits[..]) {
        ([_, _, ..], _) => format!("the devices differ: {}", models.join("; ")),
        (_, [least, .., most]) => format!("the devices have different power limits, {least} to {most} W"),
        _ => return None,
    };
    Some(
        Finding::warning("all devices", found)
            .with_fix("the slowest sets the pace of every collective; choose equal ones with --device-map"),
    )
}

// Checks the GPU driver: its kernel module, its library, the devices, and their peer access.

const NVIDIA: &str = "0x10de";

const CUDA_INSTALL: &str = "install NVIDIA's driver; inside a container start it with GPUs (docker run --gpus all, enroot, or a Kubernetes limit nvidia.com/gpu)";

fn check_cuda(system: &dyn System) -> DoctorPart<CudaAnswer> {
    let mut findings = vec![kernel_module(system), device_files(system)];
    // The file of AMD's compute driver (Linux, drivers/gpu/drm/amd/amdkfd).
    findings.extend(system.exists("/dev/kfd").then(|| Finding::note("AMD GPUs", FOR_AMD)));
    let (of_library, answer) = cuda_library(system);
    findings.extend(of_library);
    let section = Section::new("CUDA", findings);
    // An error of the library is a consequence, one of the module the cause.
    let ready = answer.ok_or_else(|| section.first_fault().unwrap_or_default());
    DoctorPart { section, ready }
}

/// Reports a library built with this CUDA: with `state` and a fix if its major version is newer than the driver supports. Within a major
/// version any driver runs any library (NVIDIA, CUDA Compatibility, minor versions). `package` is the Python package without the driver's
/// major version.
fn fitting(found: String, built_with: &str, driver_cuda: Option<&str>, state: State, package: &str) -> Finding {
    let major = |text: &str| text.split('.').next().and_then(|part| part.parse::<u32>().ok());
    match (major(built_with), driver_cuda, driver_cuda.and_then(major)) {
        (Some(library), Some(served), Some(driver)) if library > driver => {
            let found = format!("{found}; too new for the driver, which supports CUDA {served}");
            Finding::new("library", state, found)
                .with_fix(format!("install a newer driver, or the Python package {package}{driver}"))
        }
        _ => Finding::fine("library", found),
    }
}

fn kernel_module(system: &dyn System) -> Finding {
    let item = "kernel module";
    if let Some(text) = system.read("/proc/driver/nvidia/version") {
        let line = text.lines().next().unwrap_or_default();
        return Finding::fine(
            item,
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
        0 => Finding::missing(item, "no NVIDIA driver is loaded, and no NVIDIA GPU is on the PCI bus"),
        n => Finding::broken(item, format!("{n} NVIDIA GPUs are on the PCI bus, but no driver is loaded for them"))
            .with_fix(CUDA_INSTALL),
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
        0 => Finding::missing("device files", "/dev/nvidia0 is missing").with_fix(CUDA_INSTALL),
        n if !has("nvidia-uvm") => Finding::broken(
            "device files",
            format!("{n} devices, but no /dev/nvidia-uvm, without which CUDA does not start"),
        )
        .with_fix("load the module: nvidia-modprobe -u, or modprobe nvidia-uvm"),
        n => Finding::fine("device files", format!("/dev/nvidia0 to /dev/nvidia{}, /dev/nvidia-uvm", n - 1)),
    }
}

/// Findings about the driver's library, and its answer if it has devices.
fn cuda_library(system: &dyn System) -> (Vec<Finding>, Option<CudaAnswer>) {
    let failed = |finding: Finding| (vec![finding], None);
    let text = match system.query(Query::Library(Probe::Cuda)) {
        Response::Text(text) => text,
        Response::Absent(why) | Response::Failed(why) => {
            let found = format!("libcuda.so.1 cannot be loaded: {why}");
            return failed(Finding::missing("libcuda", found).with_fix(CUDA_INSTALL));
        }
        Response::Died(how) => {
            let found = format!("querying libcuda failed: {how}");
            return failed(
                Finding::broken("libcuda", found)
                    .with_fix("check `nvidia-smi` and `dmesg`; reinstall the driver or restart the host"),
            );
        }
    };
    let answer: CudaAnswer = match serde_json::from_str(&text) {
        Ok(answer) => answer,
        Err(cause) => {
            return failed(Finding::broken("libcuda", format!("its answer cannot be parsed: {cause}")));
        }
    };
    let double = if answer.is_double { ", a test double: nothing through it is real" } else { "" };
    let mut findings = vec![Finding::fine("libcuda", format!("{} (CUDA {}){double}", answer.file, answer.cuda))];
    let visible = system
        .variable("CUDA_VISIBLE_DEVICES")
        .map(|list| format!(" (CUDA_VISIBLE_DEVICES={list})"))
        .unwrap_or_default();
    let fault = match (&answer.problem, answer.devices.len()) {
        (Some(problem), _) => Some(
            Finding::broken("devices", format!("{problem}{visible}"))
                .with_fix("check `nvidia-smi`; do the driver and the kernel module have the same version?"),
        ),
        (None, 0) => Some(
            Finding::missing("devices", format!("the driver finds no device{visible}"))
                .with_fix("is CUDA_VISIBLE_DEVICES empty, or were no GPUs requested from the scheduler?"),
        ),
        (None, _) => None,
    };
    let has_devices = fault.is_none();
    findings.extend(fault);
    for (number, device) in answer.devices.iter().enumerate() {
        let text = format!("{}, {}, {}", device.name, Bytes(device.memory_bytes), device.pci);
        findings.push(Finding::fine(&format!("device {number}"), text));
    }
    findings.extend(peers(&answer));
    (findings, has_devices.then_some(answer))
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
        return vec![Finding::fine("peer access", format!("all {devices} devices can access each other's memory"))];
    }
    let found = format!("{reached} of {pairs} ordered pairs of devices have peer access");
    let fix = "other pairs go through host memory; check `nvidia-smi topo -p2p r` (IOMMU and PCIe ACS settings, virtual machines and MIG prevent it)";
    let mut findings = vec![Finding::warning("peer access", found).with_fix(fix)];
    for (number, row) in answer.peers.iter().enumerate() {
        let cell = |(to, yes): (usize, &bool)| match *yes {
            _ if to == number => ".",
            true => "x",
            false => "-",
        };
        let cells: Vec<&str> = row.iter().enumerate().map(cell).collect();
        findings.push(Finding::note(&format!("from {number}"), cells.join(" ")));
    }
    findings
}

// Finds cuBLAS, which is needed only for matrix products on GPUs: its file and version.

const CUBLAS_INSTALL: &str = "only [[compute]] needs it: install the CUDA toolkit, or the Python package nvidia-cublas (CUDA 13) or nvidia-cublas-cu12, and put its folder on LD_LIBRARY_PATH or name the file in COMMGAUGE_CUBLAS_LIBRARY";

/// `driver_cuda` is the newest CUDA that the driver supports, such as `12.8`, if there is a driver. Without GPUs cuBLAS
/// is not reported as missing.
fn check_cublas(system: &dyn System, driver_cuda: Option<&str>) -> Section {
    let missing = if driver_cuda.is_some() { State::Warning } else { State::Note };
    let finding = match system.query(Query::Library(Probe::Cublas)) {
        Response::Absent(why) | Response::Failed(why) => {
            let finding = Finding::new("library", missing, format!("cuBLAS cannot be loaded: {why}"));
            if driver_cuda.is_some() { finding.with_fix(CUBLAS_INSTALL) } else { finding }
        }
        Response::Died(how) => {
            Finding::warning("library", format!("querying cuBLAS failed: {how}")).with_fix(CUBLAS_INSTALL)
        }
        Response::Text(text) => match serde_json::from_str::<CublasAnswer>(&text) {
            Ok(answer) => cublas_library(&answer, driver_cuda),
            Err(cause) => Finding::warning("library", format!("its answer cannot be parsed: {cause}")),
        },
    };
    Section::new("cuBLAS", vec![finding])
}

fn cublas_library(answer: &CublasAnswer, driver_cuda: Option<&str>) -> Finding {
    let CublasAnswer { file, version, lacks, problem } = answer;
    if let Some(problem) = problem {
        return Finding::warning("library", format!("{file}: {problem}")).with_fix(CUBLAS_INSTALL);
    }
    if !lacks.is_empty() {
        let found = format!("{file} is cuBLAS {version}, which lacks {}", lacks.join(", "));
        return Finding::warning("library", found).with_fix("cuBLAS 12 or newer is needed");
    }
    let found = format!("cuBLAS {version}, {file}");
    fitting(found, version, driver_cuda, State::Warning, "nvidia-cublas-cu")
}

// Checks NCCL: its file and version, whether it fits the driver, and missing functions.

const NCCL_INSTALL: &str = "install libnccl2 (NVIDIA's package repository) or the Python package nvidia-nccl-cu13 (nvidia-nccl-cu12 if the driver supports CUDA 12), and put its folder on LD_LIBRARY_PATH or name the file in COMMGAUGE_NCCL_LIBRARY";

/// `driver_cuda` is the newest CUDA that the driver supports, such as `12.8`, if there is a driver.
fn check_nccl(system: &dyn System, driver_cuda: Option<&str>) -> DoctorPart<NcclAnswer> {
    let (finding, answer) = match system.query(Query::Library(Probe::Nccl)) {
        Response::Absent(why) | Response::Failed(why) => {
            (Finding::missing("library", format!("NCCL cannot be loaded: {why}")).with_fix(NCCL_INSTALL), None)
        }
        Response::Died(how) => {
            (Finding::broken("library", format!("querying NCCL failed: {how}")).with_fix(NCCL_INSTALL), None)
        }
        Response::Text(text) => match serde_json::from_str::<NcclAnswer>(&text) {
            Ok(answer) => (nccl_library(&answer, driver_cuda), Some(answer)),
            Err(cause) => (Finding::broken("library", format!("its answer cannot be parsed: {cause}")), None),
        },
    };
    let mut findings = vec![finding];
    if let Some(answer) = answer.as_ref().filter(|answer| !answer.lacks_newer.is_empty() && answer.problem.is_none()) {
        let found = format!(
            "not in this version: {}; other calls replace them, and records say so",
            answer.lacks_newer.join(", ")
        );
        findings.push(Finding::note("newer functions", found));
    }
    if let Some(answer) = &answer {
        let faults = known_faults(&format!("NCCL {}", answer.version));
        findings.extend(
            faults.iter().map(|fault| Finding::note("known fault", format!("{}, {}", fault.condition, fault.text))),
        );
    }
    let conf = nccl_conf(&|name| system.variable(name), &|path| system.read(path));
    findings.extend(conf.into_iter().map(configuration_file));
    let section = Section::new("NCCL", findings);
    let ready = match (section.first_fault(), answer) {
        (None, Some(answer)) => Ok(answer),
        (fault, _) => Err(fault.unwrap_or_default()),
    };
    DoctorPart { section, ready }
}

/// The names alone: values may be secret, and those that are not are among the variables.
fn configuration_file(file: NcclConf) -> Finding {
    let sets = if file.variables.is_empty() { "nothing that the environment does not".into() } else { file.names() };
    Finding::note("configuration", format!("{} sets {sets}; SHA-256 {}", file.path, &file.sha256[..12]))
}

fn nccl_library(answer: &NcclAnswer, driver_cuda: Option<&str>) -> Finding {
    let file = &answer.file;
    if let Some(problem) = &answer.problem {
        return Finding::broken("library", format!("{file}: {problem}")).with_fix(NCCL_INSTALL);
    }
    let version = &answer.version;
    if !answer.lacks.is_empty() {
        let found = format!("{file} is NCCL {version}, which lacks {}", answer.lacks.join(", "));
        return Finding::broken("library", found)
            .with_fix("NCCL 2.18 or newer is needed; 2.28 has native functions for all collectives");
    }
    let why = if answer.why.is_empty() { String::new() } else { format!(": {}", answer.why) };
    let Some(cuda) = &answer.cuda else {
        return Finding::fine("library", format!("NCCL {version}, {file}{why}"));
    };
    let found = format!("NCCL {version} for CUDA {cuda}, {file}{why}");
    fitting(found, cuda, driver_cuda, State::Broken, "nvidia-nccl-cu")
}
