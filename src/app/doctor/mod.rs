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

use commgauge_base::embedded::pairs;
use commgauge_base::units::{Bytes, counted};
use commgauge_base::writing::ascending;
use commgauge_run::device_probe::{CublasAnswer, CudaAnswer, NcclAnswer, NvmlAnswer, NvmlDevice, Probe};
use document::Part as DoctorPart;

/// Runs all checks.
pub fn examine(system: &dyn System) -> DoctorDocument {
    let launching = host::check_launching(system);
    let cuda = check_cuda(system);
    let gpus = cuda.devices;
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

fn nvml_findings(answer: &NvmlAnswer) -> Vec<Finding> {
    let mut findings = vec![Finding::fine("NVML", format!("{}, driver {}", answer.version, answer.driver))];
    if let Some(problem) = &answer.problem {
        findings.push(Finding::warning("devices", problem.clone()).with_fix("does `nvidia-smi` answer?"));
    }
    for (number, device) in answer.devices.iter().enumerate() {
        findings.extend(one(&format!("device {number}"), number, device));
    }
    findings.extend(differing(&answer.devices));
    findings
}

/// Findings about one device: a summary line, then its problems.
fn one(item: &str, number: usize, device: &NvmlDevice) -> Vec<Finding> {
    if let Some(problem) = &device.problem {
        let fix = "it may have fallen off the bus: check dmesg for XID 79, and restart the host";
        return vec![Finding::broken(item, format!("it cannot be opened: {problem}")).with_fix(fix)];
    }
    let problems = problems(item, number, device);
    let state = if problems.is_empty() { State::Fine } else { State::Note };
    std::iter::once(Finding::new(item, state, summary(device))).chain(problems).collect()
}

fn summary(device: &NvmlDevice) -> String {
    let mut parts = vec![format!("{}, {}", device.name, device.pci)];
    let of = |what: &str, now: Option<u32>, most: Option<u32>, unit: &str| match (now, most) {
        (Some(now), Some(most)) => Some(format!("{what} {now} of {most} {unit}")),
        (Some(now), None) => Some(format!("{what} {now} {unit}")),
        _ => None,
    };
    let idle = if device.is_idle { " (idle)" } else { "" };
    parts.extend(
        of("SM clock", device.multiprocessor_clock_mhz, device.highest_multiprocessor_clock_mhz, "MHz")
            .map(|text| text + idle),
    );
    parts.extend(of("memory clock", device.memory_clock_mhz, device.highest_memory_clock_mhz, "MHz"));
    parts.extend(of("power", device.power_watts, device.power_limit_watts, "W"));
    parts.extend(of("temperature", device.temperature_celsius, None, "C"));
    if device.nvlinks > 0 {
        parts.push(format!("{} of {} NVLinks up", device.nvlinks_active, device.nvlinks));
    }
    let switch = |name: &str, on: Option<bool>| on.map(|on| format!("{name} {}", if on { "on" } else { "off" }));
    parts.extend(switch("ECC", device.ecc.map(|ecc| ecc.0)));
    parts.extend(switch("MIG", device.mig.map(|mig| mig.0)));
    parts.extend(switch("persistence", device.is_persistent));
    parts.join(", ")
}

fn problems(item: &str, number: usize, device: &NvmlDevice) -> Vec<Finding> {
    let mut problems: Vec<Finding> = Vec::new();
    let mut add_problem = |found: String, fix: String| problems.push(Finding::warning(item, found).with_fix(fix));
    for reason in &device.throttled_by {
        add_problem(format!("its clocks are throttled by {reason}"), throttle_fix(reason, number));
    }
    if let (Some(limit), Some(usual)) = (device.power_limit_watts, device.usual_power_limit_watts)
        && limit < usual
    {
        let found = format!("its power is limited to {limit} W; the default is {usual} W");
        add_problem(found, format!("unless intended: nvidia-smi -i {number} -pl {usual}"));
    }
    if let (Some(now), Some(slow)) = (device.temperature_celsius, device.slowdown_celsius)
        && now + 5 >= slow
    {
        add_problem(
            format!("{now} C is near {slow} C, where it slows down"),
            "check the airflow or coolant of this host, and its neighbours".to_owned(),
        );
    }
    if device.nvlinks_active < device.nvlinks {
        let found = format!("{} of its {} NVLinks are down", device.nvlinks - device.nvlinks_active, device.nvlinks);
        add_problem(found, "check `nvidia-smi nvlink -s` and the fabric manager (systemctl status nvidia-fabricmanager), and reset the device".to_owned());
    }
    if let Some(errors) = device.uncorrected_errors.filter(|errors| *errors > 0) {
        let found = format!("{errors} uncorrected memory errors since the driver was loaded");
        add_problem(
            found,
            format!(
                "check `nvidia-smi -i {number} -q -d ECC,ROW_REMAPPER`; reset the device, and replace it if they return"
            ),
        );
    }
    match device.ecc {
        Some((true, true)) | None => {}
        Some((false, false)) => add_problem(
            "ECC is off: bit flips go unnoticed, and memory is slightly faster than with ECC".to_owned(),
            format!("unless intended: nvidia-smi -i {number} -e 1, and restart"),
        ),
        Some(_) => add_problem(
            "ECC changes with the next restart".to_owned(),
            "restart to apply the requested mode".to_owned(),
        ),
    }
    match device.mig {
        Some((true, _)) => add_problem(
            "MIG is on: a rank has a partition of the device, and NCCL has no NVLink".to_owned(),
            format!("for whole devices: nvidia-smi -i {number} -mig 0, and a reset"),
        ),
        Some((false, true)) => add_problem(
            "MIG will be on after a reset".to_owned(),
            format!("for whole devices: nvidia-smi -i {number} -mig 0"),
        ),
        _ => {}
    }
    if device.is_persistent == Some(false) {
        add_problem(
            "persistence is off: without other users the driver restarts with every run, and clocks too".to_owned(),
            "systemctl enable --now nvidia-persistenced, or nvidia-smi -pm 1".to_owned(),
        );
    }
    problems
}

fn throttle_fix(reason: &str, number: usize) -> String {
    let fix = pairs(include_str!("throttle_fixes.txt")).find(|(of, _)| *of == reason).map(|(_, fix)| fix);
    let fix = fix.unwrap_or("heat or power: check `nvidia-smi -i {device} -q -d PERFORMANCE`");
    fix.replace("{device}", &number.to_string())
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

/// Findings about CUDA, and the number of devices.
struct Cuda {
    pub section: Section,
    pub ready: Result<CudaAnswer, (String, Option<String>)>,
    pub devices: usize,
}

fn check_cuda(system: &dyn System) -> Cuda {
    let mut findings = vec![kernel_module(system), device_files(system)];
    let part = cuda_library(system);
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

fn cuda_library(system: &dyn System) -> DoctorPart<CudaAnswer> {
    let failed = |finding: Finding| {
        let section = Section::new("", vec![finding]);
        let fault = section.first_fault().unwrap_or_default();
        DoctorPart { section, ready: Err(fault) }
    };
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
    findings.extend(fault);
    for (number, device) in answer.devices.iter().enumerate() {
        let text = format!("{}, {}, {}", device.name, Bytes(device.memory_bytes), device.pci);
        findings.push(Finding::fine(&format!("device {number}"), text));
    }
    findings.extend(peers(&answer));
    let section = Section::new("", findings);
    let ready = section.first_fault().map_or(Ok(answer), Err);
    DoctorPart { section, ready }
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
    let section = Section::new("NCCL", findings);
    let ready = match (section.first_fault(), answer) {
        (None, Some(answer)) => Ok(answer),
        (fault, _) => Err(fault.unwrap_or_default()),
    };
    DoctorPart { section, ready }
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
