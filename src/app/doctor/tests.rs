//! Tests of the doctor on synthetic machines: one with nothing, one with everything, and some with single problems.

use super::*;
use crate::launch::Flavor;
use commgauge_model::record::header::Variable;
use commgauge_run::device_probe::{CublasAnswer, CudaAnswer, Device, NcclAnswer, NvmlAnswer, NvmlDevice, Probe};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A machine with exactly the facts that a test adds.
#[derive(Clone, Default)]
struct FakeMachine {
    files: BTreeMap<String, String>,
    variables: BTreeMap<String, String>,
    programs: BTreeMap<String, String>,
    libraries: Option<String>,
    cuda: Option<Response>,
    nccl: Option<Response>,
    cublas: Option<Response>,
    nvml: Option<Response>,
    limits: (Option<u64>, Option<u64>),
    shared_memory: Option<Volume>,
    flavor: Option<Flavor>,
}

impl System for FakeMachine {
    fn host(&self) -> String {
        "node-a".to_owned()
    }
    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }
    fn variables(&self) -> Vec<Variable> {
        self.variables.clone().into_iter().map(|(name, value)| Variable { name, value }).collect()
    }
    fn read(&self, path: &str) -> Option<String> {
        self.files.get(path).cloned()
    }
    fn list(&self, path: &str) -> Option<Vec<String>> {
        let inside = self.files.keys().filter_map(|file| file.strip_prefix(&format!("{path}/")));
        let mut names: Vec<String> = inside.filter_map(|rest| rest.split('/').next()).map(str::to_owned).collect();
        names.dedup();
        (!names.is_empty()).then_some(names)
    }
    fn exists(&self, path: &str) -> bool {
        self.files.keys().any(|file| file == path || file.starts_with(&format!("{path}/")))
    }
    fn query(&self, question: Query) -> Response {
        let absent = || Response::Absent("No such file or directory (os error 2)".to_owned());
        match question {
            Query::Version(name) => self.programs.get(name).map_or_else(absent, |text| Response::Text(text.clone())),
            Query::Libraries(_) => self.libraries.clone().map_or_else(absent, Response::Text),
            Query::Library(Probe::Cuda) => self
                .cuda
                .clone()
                .unwrap_or_else(|| Response::Failed("libcuda.so.1: cannot open shared object file".to_owned())),
            Query::Library(Probe::Nccl) => self
                .nccl
                .clone()
                .unwrap_or_else(|| Response::Failed("libnccl.so.2: cannot open shared object file".to_owned())),
            Query::Library(probe) => {
                let set = if probe == Probe::Nvml { &self.nvml } else { &self.cublas };
                set.clone().unwrap_or_else(|| Response::Failed(format!("{} does not exist", probe.name())))
            }
        }
    }
    fn limits(&self) -> (Option<u64>, Option<u64>) {
        self.limits
    }
    fn volume(&self, _: &str) -> Option<Volume> {
        self.shared_memory
    }
    fn cores(&self) -> u32 {
        16
    }
    fn is_root(&self) -> bool {
        false
    }
    fn programs(&self) -> PathBuf {
        "/opt/commgauge/bin".into()
    }
    fn flavor(&self) -> Option<Flavor> {
        self.flavor
    }
}

fn cuda(devices: usize, peer: bool) -> CudaAnswer {
    let device =
        |n| Device { name: "NVIDIA H100 80GB HBM3".into(), pci: format!("0000:{n:02x}:00.0"), memory_bytes: 80 << 30 };
    CudaAnswer {
        file: "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05".into(),
        cuda: "13.0".into(),
        devices: (0..devices).map(device).collect(),
        peers: (0..devices).map(|a| (0..devices).map(|b| a == b || peer).collect()).collect(),
        ..CudaAnswer::default()
    }
}

/// A healthy, idle device of a cluster.
fn healthy() -> NvmlDevice {
    NvmlDevice {
        problem: None,
        name: "NVIDIA H100 80GB HBM3".into(),
        pci: "00000000:3b:00.0".into(),
        multiprocessor_clock_mhz: Some(345),
        highest_multiprocessor_clock_mhz: Some(1980),
        memory_clock_mhz: Some(2619),
        highest_memory_clock_mhz: Some(2619),
        power_watts: Some(71),
        power_limit_watts: Some(700),
        usual_power_limit_watts: Some(700),
        temperature_celsius: Some(31),
        slowdown_celsius: Some(89),
        throttled_by: Vec::new(),
        is_idle: true,
        nvlinks: 18,
        nvlinks_active: 18,
        ecc: Some((true, true)),
        uncorrected_errors: Some(0),
        mig: Some((false, false)),
        states: Vec::new(),
        fabric: None,
        is_persistent: Some(true),
    }
}

fn nvml(devices: Vec<NvmlDevice>) -> Option<Response> {
    text(&NvmlAnswer { version: "12.580.95.05".into(), driver: "580.95.05".into(), devices, problem: None })
}

fn text(answer: &impl serde::Serialize) -> Option<Response> {
    Some(Response::Text(serde_json::to_string(answer).unwrap()))
}

/// A node with eight GPUs and two adapters, where nothing is missing.
fn complete_node() -> FakeMachine {
    let mut made = FakeMachine {
        libraries: Some("\tlibmpi.so.40 => /usr/lib/x86_64-linux-gnu/libmpi.so.40 (0x00007f)\n".into()),
        cuda: text(&cuda(8, true)),
        nccl: text(&NcclAnswer {
            file: "/usr/lib/libnccl.so.2.30.7".into(),
            version: "2.30.7".into(),
            cuda: Some("13.3".into()),
            ..NcclAnswer::default()
        }),
        cublas: text(&CublasAnswer {
            file: "/usr/lib/libcublas.so.13.1.0.3".into(),
            version: "13.1.0".into(),
            ..CublasAnswer::default()
        }),
        nvml: nvml(vec![healthy(); 8]),
        limits: (None, Some(1 << 20)),
        shared_memory: Some(Volume { bytes: 64 << 30, free_bytes: 63 << 30 }),
        flavor: Some(Flavor::OpenMpi),
        ..FakeMachine::default()
    };
    made.programs.insert("mpirun".into(), "mpirun (Open MPI) 4.1.4\n".into());
    let mut file = |path: &str, text: &str| drop(made.files.insert(path.to_owned(), text.to_owned()));
    for name in ["suite", "sweep", "step", "pairs"] {
        file(&format!("/opt/commgauge/bin/commgauge-{name}"), "");
    }
    file(
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05\nGCC version\n",
    );
    (0..8).for_each(|n| file(&format!("/dev/nvidia{n}"), ""));
    ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/gdrdrv", "/sys/module/gdrdrv", "/sys/module/nvidia_peermem"]
        .iter()
        .for_each(|path| file(path, ""));
    for adapter in ["mlx5_0", "mlx5_1"] {
        let port = format!("/sys/class/infiniband/{adapter}/ports/1");
        file(&format!("{port}/state"), "4: ACTIVE\n");
        file(&format!("{port}/rate"), "400 Gb/sec (4X NDR)\n");
        file(&format!("{port}/link_layer"), "InfiniBand\n");
    }
    made
}

fn finding<'a>(document: &'a DoctorDocument, item: &str) -> &'a Finding {
    let all = document.sections.iter().flat_map(|section| &section.findings);
    all.into_iter().find(|one| one.item == item).unwrap_or_else(|| panic!("no {item} in {document:?}"))
}

fn ready(document: &DoctorDocument) -> Vec<(&str, bool)> {
    document.backends.iter().map(|backend| (backend.name.as_str(), backend.ready)).collect()
}

#[test]
fn an_empty_machine_gets_the_first_fix() {
    let document = examine(&FakeMachine::default());
    assert_eq!(ready(&document), [("mpi", false), ("nccl", false), ("simulated", true)]);
    assert!(document.backends[0].fix.as_ref().unwrap().contains("build commgauge on a machine with MPI"));
    assert!(document.backends[1].reason.contains("no NVIDIA driver is loaded"));
    assert_eq!(finding(&document, "launcher").state, State::Missing);
    assert!(finding(&document, "launcher").fix.as_ref().unwrap().contains("openmpi-bin"));
}

#[test]
fn a_complete_machine_needs_no_fix() {
    let document = examine(&complete_node());
    assert_eq!(ready(&document), [("mpi", true), ("nccl", true), ("simulated", true)]);
    let findings_with_fix: Vec<&Finding> =
        document.sections.iter().flat_map(|section| &section.findings).filter(|one| one.fix.is_some()).collect();
    assert!(findings_with_fix.is_empty(), "{findings_with_fix:?}");
    assert_eq!(document.backends[1].reason, "8 devices, CUDA 13.0, NCCL 2.30.7");
    assert_eq!(finding(&document, "mlx5_0, port 1").found, "active, 400 Gb/sec (4X NDR), InfiniBand");
    assert!(finding(&document, "peer access").found.contains("all 8 devices"));
}

#[test]
fn each_problem_is_named_with_its_fix_and_disables_its_backend() {
    type Change = fn(&mut FakeMachine);
    type Case = (&'static str, Change, &'static str, State, &'static str, [bool; 2]);
    let cases: [Case; 13] = [
        (
            "a library that crashes",
            |m| m.cuda = Some(Response::Died("killed by signal 11 (SIGSEGV)".into())),
            "libcuda",
            State::Broken,
            "SIGSEGV",
            [true, false],
        ),
        (
            "a driver without a device",
            |m| m.cuda = text(&cuda(0, false)),
            "devices",
            State::Missing,
            "finds no device",
            [true, false],
        ),
        (
            "a driver that does not start",
            |m| {
                m.cuda = text(&CudaAnswer {
                    problem: Some("cuInit failed with CUDA_ERROR_SYSTEM_DRIVER_MISMATCH".into()),
                    ..cuda(0, false)
                })
            },
            "devices",
            State::Broken,
            "DRIVER_MISMATCH",
            [true, false],
        ),
        (
            "no peer access",
            |m| m.cuda = text(&cuda(2, false)),
            "peer access",
            State::Warning,
            "0 of 2 ordered pairs",
            [true, true],
        ),
        (
            "no module for unified memory",
            |m| drop(m.files.remove("/dev/nvidia-uvm")),
            "device files",
            State::Broken,
            "nvidia-uvm",
            [true, true],
        ),
        (
            "an old NCCL",
            |m| {
                m.nccl = text(&NcclAnswer {
                    version: "2.8.4".into(),
                    lacks: vec!["ncclCommInitRankConfig".into()],
                    ..NcclAnswer::default()
                })
            },
            "library",
            State::Broken,
            "lacks ncclCommInitRankConfig",
            [true, false],
        ),
        (
            "an NCCL built for a later CUDA than the driver's",
            |m| m.cuda = text(&CudaAnswer { cuda: "12.8".into(), ..cuda(8, true) }),
            "library",
            State::Broken,
            "NCCL 2.30.7 for CUDA 13.3, /usr/lib/libnccl.so.2.30.7; too new for the driver, which supports CUDA 12.8",
            [true, false],
        ),
        ("no NCCL", |m| m.nccl = None, "library", State::Missing, "libnccl.so.2", [true, false]),
        (
            "a launcher of another MPI",
            |m| drop(m.programs.insert("mpirun".into(), "HYDRA build details:\n    Version: 4.0.2\n".into())),
            "launcher",
            State::Missing,
            "MPICH 4.0.2",
            [false, false],
        ),
        (
            "a missing MPI library",
            |m| m.libraries = Some("\tlibmpi.so.40 => not found\n".into()),
            "libraries",
            State::Broken,
            "libmpi.so.40 not found",
            [false, false],
        ),
        (
            "a low memory lock limit",
            |m| m.limits.0 = Some(64 << 10),
            "memory lock limit",
            State::Warning,
            "64 KiB, too little for RDMA",
            [true, true],
        ),
        (
            "the shared memory of a container",
            |m| m.shared_memory = Some(Volume { bytes: 64 << 20, free_bytes: 64 << 20 }),
            "/dev/shm",
            State::Warning,
            "64 MiB",
            [true, true],
        ),
        (
            "no peer memory module",
            |m| drop(m.files.remove("/sys/module/nvidia_peermem")),
            "GPUDirect RDMA",
            State::Warning,
            "not loaded",
            [true, true],
        ),
    ];
    for (what, change, item, state, words, [mpi, nccl]) in cases {
        let mut made = complete_node();
        change(&mut made);
        let document = examine(&made);
        let found = document
            .sections
            .iter()
            .flat_map(|section| &section.findings)
            .find(|one| one.item == item && one.found.contains(words))
            .unwrap_or_else(|| panic!("{what}: {document:?}"));
        assert_eq!((found.state, found.fix.is_some() || item == "launcher"), (state, true), "{what}: {found:?}");
        assert_eq!((document.backends[0].ready, document.backends[1].ready), (mpi, nccl), "{what}");
    }
}

#[test]
fn gpus_without_a_driver_are_seen_on_the_bus() {
    let mut made = FakeMachine::default();
    for (file, text) in [("vendor", "0x10de\n"), ("class", "0x030200\n")] {
        made.files.insert(format!("/sys/bus/pci/devices/0000:3b:00.0/{file}"), text.to_owned());
    }
    let document = examine(&made);
    assert!(finding(&document, "kernel module").found.contains("1 NVIDIA GPUs are on the PCI bus, but no driver"));
}

#[test]
fn a_pod_and_a_job_are_recognised() {
    let mut made = FakeMachine::default();
    let set = [
        ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
        ("SLURM_JOB_ID", "7"),
        ("SLURM_JOB_NODELIST", "n[1-2]"),
        ("SLURM_TASKS_PER_NODE", "4(x2)"),
    ];
    made.variables = set.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let document = examine(&made);
    assert!(finding(&document, "container").found.starts_with("a pod of Kubernetes"));
    assert_eq!(finding(&document, "job").found, "Slurm job 7: 8 ranks on 2 hosts (n[1-2])");
    assert!(finding(&document, "launcher").found.contains("SLURM_JOB_ID"));
}

#[test]
fn amd_gpus_configuration_files_of_nccl_and_faults_of_its_release_are_named() {
    let mut made = complete_node();
    made.files.insert("/dev/kfd".to_owned(), String::new());
    made.files.insert("/etc/nccl.conf".to_owned(), "NCCL_ALGO=Ring\nNCCL_PASSWORD=secret\n".to_owned());
    made.nccl = text(&NcclAnswer { version: "2.28.9".into(), ..NcclAnswer::default() });
    let document = examine(&made);
    assert!(finding(&document, "AMD GPUs").found.contains("reads logs of rccl-tests"));
    let found = &finding(&document, "configuration").found;
    assert!(
        found.starts_with("/etc/nccl.conf sets NCCL_ALGO, NCCL_PASSWORD; SHA-256 ") && !found.contains("secret"),
        "{found}"
    );
    let found = &finding(&document, "known fault").found;
    assert!(found.contains("with symmetric buffers, NCCL 2.28.9: kernels on symmetric buffers may read"), "{found}");
}

#[test]
fn results_from_stand_ins_are_labelled() {
    let mut made = complete_node();
    made.cuda = text(&CudaAnswer { is_double: true, ..cuda(2, true) });
    let document = examine(&made);
    assert!(document.backends[1].reason.contains("test doubles: synthetic"), "{:?}", document.backends[1]);
    assert!(finding(&document, "libcuda").found.contains("a test double"));
}

#[test]
fn throttling_is_reported_with_the_fix() {
    let document = examine(&complete_node());
    let device = &finding(&document, "device 0");
    assert_eq!(device.state, State::Fine);
    let now = document.sections.iter().find(|section| section.name == "Devices now (NVML)").unwrap();
    assert_eq!(
        now.findings[1].found,
        "NVIDIA H100 80GB HBM3, 00000000:3b:00.0, SM clock 345 of 1980 MHz (idle), memory clock 2619 of 2619 MHz, power 71 of \
         700 W, temperature 31 C, 18 of 18 NVLinks up, ECC on, MIG off, persistence on"
    );
    type Damage = fn(&mut NvmlDevice);
    let cases: [(Damage, &str, &str); 14] = [
        (|d| d.throttled_by = vec!["thermal slowdown (hardware)".into()], "throttled by thermal slowdown", "airflow"),
        (|d| d.throttled_by = vec!["power brake".into()], "throttled by power brake", "power supply"),
        (|d| d.power_limit_watts = Some(350), "limited to 350 W; the default is 700 W", "nvidia-smi -i 1 -pl 700"),
        (|d| d.temperature_celsius = Some(85), "85 C is near 89 C", "coolant"),
        (|d| d.states = vec!["row_remap_pending".into()], "row_remap_pending", "nvidia-smi -i 1 -r"),
        (|d| d.states = vec!["row_remap_failed".into()], "row_remap_failed", "replace it"),
        (|d| d.states = vec!["fabric_unhealthy".into()], "fabric_unhealthy", "under Fabric"),
        (|d| d.nvlinks_active = 17, "1 of its 18 NVLinks are down", "fabric manager"),
        (|d| d.uncorrected_errors = Some(3), "3 uncorrected memory errors", "replace it"),
        (|d| d.ecc = Some((false, false)), "ECC is off", "-e 1"),
        (|d| d.mig = Some((true, true)), "MIG is on", "-mig 0"),
        (|d| d.is_persistent = Some(false), "persistence is off", "nvidia-persistenced"),
        (|d| d.problem = Some("the GPU is lost".into()), "cannot be opened: the GPU is lost", "XID 79"),
        (
            |d| d.name = "NVIDIA H100 PCIe".into(),
            "the devices differ: NVIDIA H100 80GB HBM3; NVIDIA H100 PCIe",
            "--device-map",
        ),
    ];
    for (damage, words, fix) in cases {
        let mut devices = vec![healthy(), healthy()];
        damage(&mut devices[1]);
        let document = examine(&FakeMachine { nvml: nvml(devices), ..complete_node() });
        let all = document.sections.iter().flat_map(|section| &section.findings);
        let found =
            all.into_iter().find(|one| one.found.contains(words)).unwrap_or_else(|| panic!("{words}: {document:?}"));
        assert!(matches!(found.state, State::Warning | State::Broken), "{found:?}");
        assert!(found.fix.as_ref().is_some_and(|text| text.contains(fix)), "{found:?}");
        assert!(found.item == "device 1" || found.item == "all devices", "{found:?}");
        assert!(document.backends[1].ready, "{words}: it is slow, but works");
    }
}

#[test]
fn a_missing_or_too_new_cublas_is_a_warning_only_with_gpus() {
    let of = |made: &FakeMachine| {
        let document = examine(made);
        document.sections.into_iter().find(|section| section.name == "cuBLAS").unwrap().findings.remove(0)
    };
    assert_eq!(of(&complete_node()).found, "cuBLAS 13.1.0, /usr/lib/libcublas.so.13.1.0.3");
    assert_eq!((of(&FakeMachine::default()).state, of(&FakeMachine::default()).fix), (State::Note, None));
    let missing = of(&FakeMachine { cublas: None, ..complete_node() });
    assert!(missing.state == State::Warning && missing.fix.unwrap().contains("nvidia-cublas"));
    let mut old = cuda(8, true);
    old.cuda = "12.8".into();
    let too_new = of(&FakeMachine { cuda: text(&old), ..complete_node() });
    assert!(
        too_new.state == State::Warning && too_new.found.contains("too new for the driver, which supports CUDA 12.8"),
        "{too_new:?}"
    );
}
