//! Checks limits of the host: locked memory, open files, shared memory, cores.

use super::document::{Finding, Part, Section};
use crate::launch::{self, Allocation, Flavor, LauncherContext, find};
use commgauge_base::units::Bytes;
use commgauge_base::visible::ShownPath;
use commgauge_model::record::header::{self, Variable};
use commgauge_run::device_probe::Probe;
use rustix::process::{Resource, getrlimit};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// The default size in containers, too small for several ranks.
const SMALL_SHARED_MEMORY: u64 = 64 << 20;

/// MPI and NCCL use a part of this for eight ranks.
const SUFFICIENT_SHARED_MEMORY: u64 = 1 << 30;

/// RDMA transports lock the memory of their buffers.
const SUFFICIENT_LOCKED_BYTES: u64 = 1 << 30;

/// Open files that a rank with some hundred TCP connections needs.
const SUFFICIENT_FILES: u64 = 1024;

pub(super) fn check(system: &dyn System) -> Section {
    let (locked, files) = system.limits();
    let has_rdma = system.list("/sys/class/infiniband").is_some_and(|list| !list.is_empty());
    let mut findings = vec![memory_lock(locked, has_rdma), open_files(files), shared_memory(system)];
    let numa = system.list("/sys/devices/system/node").unwrap_or_default();
    let nodes =
        numa.iter().filter(|name| name.strip_prefix("node").is_some_and(|rest| rest.parse::<u32>().is_ok())).count();
    let nodes = if nodes > 1 { format!(" on {nodes} NUMA nodes") } else { String::new() };
    findings.push(Finding::note("cores", format!("{}{nodes}; more ranks than cores take turns", system.cores())));
    Section::new("Host", findings)
}

fn memory_lock(limit: Option<u64>, has_rdma: bool) -> Finding {
    let item = "memory lock limit";
    match limit {
        None => Finding::fine(item, "unlimited"),
        Some(bytes) if has_rdma && bytes < SUFFICIENT_LOCKED_BYTES => Finding::warning(
            item,
            format!("{}, too little for RDMA adapters", Bytes(bytes)),
        )
        .with_fix(
            "ulimit -l unlimited (limits.conf, LimitMEMLOCK of slurmd or containerd, docker run --ulimit memlock=-1)",
        ),
        Some(bytes) => Finding::note(item, format!("{}, enough without RDMA adapters", Bytes(bytes))),
    }
}

fn open_files(limit: Option<u64>) -> Finding {
    let item = "open files";
    match limit {
        None => Finding::fine(item, "unlimited"),
        Some(files) if files < SUFFICIENT_FILES => {
            Finding::warning(item, format!("{files}, fewer than a rank with many peers needs over TCP"))
                .with_fix("ulimit -n 65536")
        }
        Some(files) => Finding::fine(item, files.to_string()),
    }
}

fn shared_memory(system: &dyn System) -> Finding {
    let item = "/dev/shm";
    let fix = "make it larger: docker run --shm-size=8g, a Kubernetes emptyDir with medium Memory, or mount -o remount,size=8g /dev/shm";
    let Some(volume) = system.volume("/dev/shm") else {
        return Finding::warning(item, "missing: ranks of this host cannot share memory").with_fix(fix);
    };
    let found = format!("{}, {} free", Bytes(volume.bytes), Bytes(volume.free_bytes));
    match (volume.bytes, volume.free_bytes) {
        (all, _) if all <= SMALL_SHARED_MEMORY => {
            Finding::warning(item, format!("{found}: the default of containers, too little for several ranks"))
                .with_fix(fix)
        }
        (_, free) if free < SMALL_SHARED_MEMORY => {
            Finding::warning(item, format!("{found}: did a killed run leave files in it?"))
                .with_fix("remove vader_segment.*, sm_segment.*, nccl-* and mpich_shm* files that belong to no process")
        }
        (all, _) if all < SUFFICIENT_SHARED_MEMORY => Finding::note(item, found),
        _ => Finding::fine(item, found),
    }
}

// Checks the interconnects of GPUs and hosts: RDMA adapters, and the kernel modules for GPUDirect RDMA.

const INFINIBAND: &str = "/sys/class/infiniband";

pub(super) fn check_network(system: &dyn System, gpus: usize) -> Section {
    let adapters = system.list(INFINIBAND).unwrap_or_default();
    let mut findings = Vec::new();
    for adapter in &adapters {
        for port in system.list(&format!("{INFINIBAND}/{adapter}/ports")).unwrap_or_default() {
            findings.push(port_of(system, adapter, &port));
        }
    }
    if adapters.is_empty() {
        findings
            .push(Finding::note("RDMA adapters", "none (/sys/class/infiniband is empty): hosts connect only over TCP"));
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
        return Finding::fine(&item, found);
    }
    Finding::warning(&item, found)
        .with_fix("check cable and switch port (`ibstat`), or exclude the adapter with NCCL_IB_HCA and UCX_NET_DEVICES")
}

fn peer_memory(system: &dyn System) -> Finding {
    let loaded =
        ["nvidia_peermem", "nv_peer_mem"].into_iter().find(|module| system.exists(&format!("/sys/module/{module}")));
    match loaded {
        Some(module) => Finding::fine("GPUDirect RDMA", format!("module {module} is loaded")),
        None => Finding::warning("GPUDirect RDMA", "module nvidia_peermem is not loaded: adapters may have to go through host memory")
            .with_fix("modprobe nvidia-peermem; not needed if NCCL uses DMA-BUF (open kernel modules, Linux 5.12 or newer): NCCL_DEBUG=INFO shows it"),
    }
}

fn gdrcopy(system: &dyn System) -> Finding {
    match (system.exists("/sys/module/gdrdrv"), system.exists("/dev/gdrdrv")) {
        (true, true) => Finding::fine("GDRCopy", "module gdrdrv is loaded"),
        (true, false) => Finding::warning("GDRCopy", "module gdrdrv is loaded, but /dev/gdrdrv is missing")
            .with_fix("make /dev/gdrdrv visible in the container"),
        _ => Finding::note("GDRCopy", "not installed; it only shortens the latency of small messages"),
    }
}

// Checks MPI: the MPI of the build, whether the programs are installed and find their libraries, and which launcher is found.

/// Programs that a launcher starts.
const PROGRAMS: [&str; 4] = ["commgauge-suite", "commgauge-sweep", "commgauge-step", "commgauge-pairs"];

const BUILD: &str =
    "build commgauge on a machine with MPI: ./scripts/setup, or `cargo build --release` with mpicc on PATH";

pub(super) fn check_launching(system: &dyn System) -> Part<String> {
    let (mut findings, mut offered) = (Vec::new(), Vec::new());
    match system.flavor() {
        Some(flavor) => findings.push(Finding::fine("built against", flavor.name())),
        None => findings.push(
            Finding::missing("built against", "this commgauge was built without MPI, so it launches nothing")
                .with_fix(BUILD),
        ),
    }
    findings.push(programs(system));
    findings.extend(library(system));
    let surroundings = LauncherContext { in_slurm: system.variable("SLURM_JOB_ID").is_some(), flavor: system.flavor() };
    let probe = |name: &str| match system.query(Query::Version(name)) {
        Response::Text(text) | Response::Failed(text) => Some(text),
        Response::Absent(_) | Response::Died(_) => None,
    };
    match launch::find("auto", surroundings, &probe) {
        Ok(launcher) => {
            let text = format!("{} of {} {}", launcher.program, launcher.family.name(), launcher.version);
            offered.push(text.clone());
            findings.push(Finding::fine("launcher", text));
        }
        // The message of the error names what was searched for, then the fix.
        Err(error) => {
            let text = error.to_string();
            let (found, fix) = text
                .split_once("; install")
                .map_or((text.as_str(), None), |(found, rest)| (found, Some(format!("install{rest}"))));
            let finding = Finding::missing("launcher", found);
            findings.push(match fix {
                Some(fix) => finding.with_fix(fix),
                None => finding,
            });
        }
    }
    findings.push(variables(system));
    if system.is_root() {
        findings.push(Finding::note("user", "root: Open MPI requires confirmation, which `commgauge run` gives"));
    }
    let section = Section::new("MPI", findings);
    let ready = section.first_fault().map_or_else(|| Ok(offered.concat()), Err);
    Part { section, ready }
}

fn programs(system: &dyn System) -> Finding {
    let folder = system.programs();
    let missing: Vec<&str> =
        PROGRAMS.into_iter().filter(|name| !system.exists(&folder.join(name).to_string_lossy())).collect();
    let place = folder.shown();
    match missing[..] {
        [] => Finding::fine("programs", format!("all four launched programs are in {place}")),
        _ => Finding::missing("programs", format!("{} not next to commgauge in {place}", missing.join(", ")))
            .with_fix(BUILD),
    }
}

/// The MPI library that the loader would use, which may differ from that of the build.
fn library(system: &dyn System) -> Option<Finding> {
    // In packages the programs are scripts that start this binary.
    let in_one = system.programs().join("commgauge-ranks");
    let has_one = system.exists(&in_one.to_string_lossy());
    let program = if has_one { in_one } else { system.programs().join(PROGRAMS[0]) };
    if !system.exists(&program.to_string_lossy()) {
        return None;
    }
    let Response::Text(text) = system.query(Query::Libraries(&program)) else {
        return Some(Finding::note("libraries", "which libraries the programs load cannot be determined here"));
    };
    let missing: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("not found"))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    if !missing.is_empty() {
        let found = format!("{} not found, so the launched programs do not start", missing.join(", "));
        return Some(
            Finding::broken("libraries", found)
                .with_fix("install the MPI of the build, or put its lib folder on LD_LIBRARY_PATH"),
        );
    }
    let is_mpi = |line: &&str| line.trim_start().starts_with("libmpi");
    let found = text.lines().find(is_mpi).and_then(|line| line.split("=>").nth(1)?.split_whitespace().next());
    Some(match found {
        Some(path) => Finding::fine("library", path),
        None => Finding::note("library", "linked into the programs"),
    })
}

fn variables(system: &dyn System) -> Finding {
    let set: Vec<String> = system.variables().iter().map(Variable::assignment).collect();
    match set[..] {
        [] => Finding::note("variables", "no variable of MPI, NCCL or a launcher is set"),
        _ => Finding::note("variables", set.join(" ")),
    }
}

// Checks for Slurm's commands, and for a running job.

pub(super) fn check_slurm(system: &dyn System) -> Section {
    let mut findings = vec![match system.query(Query::Version("srun")) {
        Response::Text(text) => Finding::fine("srun", text.lines().next().unwrap_or_default().trim()),
        Response::Absent(_) => Finding::note("srun", "missing; only needed on Slurm clusters"),
        Response::Failed(output) => {
            let found = format!("there, but: {}", output.lines().last().unwrap_or("it failed"));
            Finding::note("srun", found).with_fix("it needs the cluster's slurm.conf")
        }
        Response::Died(how) => Finding::broken("srun", how),
    }];
    findings.push(match Allocation::of(&|name| system.variable(name)) {
        Ok(None) => Finding::note("job", "none: not inside an allocation"),
        Ok(Some(allocation)) => Finding::fine("job", allocation.describe(allocation.ranks)),
        Err(error) => Finding::warning("job", error.to_string()),
    });
    Section::new("Slurm", findings)
}

// The machine that this program runs on.

/// Time after which a program or library counts as hung. Initialising the driver on eight GPUs may take seconds.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Longer output is cut.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// NCCL's file, if one was named.
    pub nccl_library: Option<PathBuf>,
    pub cublas_library: Option<PathBuf>,
}

impl System for Machine {
    fn host(&self) -> String {
        find::name()
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn variables(&self) -> Vec<Variable> {
        header::environment().into_iter().map(|(name, value)| Variable { name, value }).collect()
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(path).ok()
    }

    fn list(&self, path: &str) -> Option<Vec<String>> {
        let entries = std::fs::read_dir(path).ok()?.flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        Some(names)
    }

    fn exists(&self, path: &str) -> bool {
        std::path::Path::new(path).exists()
    }

    fn query(&self, question: Query) -> Response {
        let mut command;
        match question {
            Query::Version(program) => {
                command = Command::new(program);
                command.arg("--version");
            }
            Query::Libraries(program) => {
                command = Command::new(program);
                command.env("LD_TRACE_LOADED_OBJECTS", "1");
            }
            Query::Library(probe) => {
                let Ok(own) = std::env::current_exe() else {
                    return Response::Died(
                        "commgauge's own file cannot be determined, so it cannot be started for the query".to_owned(),
                    );
                };
                command = Command::new(own);
                command.args(["doctor", "--probe", probe.name()]);
                let named = [("--nccl-library", &self.nccl_library), ("--cublas-library", &self.cublas_library)];
                for (flag, library) in named {
                    if let Some(library) = library {
                        command.arg(flag).arg(library);
                    }
                }
            }
        }
        run(command, TIMEOUT)
    }

    fn limits(&self) -> (Option<u64>, Option<u64>) {
        (getrlimit(Resource::Memlock).current, getrlimit(Resource::Nofile).current)
    }

    fn volume(&self, path: &str) -> Option<Volume> {
        let facts = rustix::fs::statvfs(path).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
        Some(Volume { bytes: bytes(facts.f_blocks), free_bytes: bytes(facts.f_bavail) })
    }

    fn cores(&self) -> u32 {
        find::cores()
    }

    fn is_root(&self) -> bool {
        find::is_root()
    }

    fn programs(&self) -> PathBuf {
        crate::launch::folder().unwrap_or_default()
    }

    fn flavor(&self) -> Option<Flavor> {
        crate::launch::flavor()
    }
}

/// Runs a command, with a time limit.
fn run(mut command: Command, timeout: Duration) -> Response {
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(cause) => return Response::Absent(cause.to_string()),
    };
    let (sender, receiver) = channel();
    let read = |stream: Option<Box<dyn Read + Send>>| {
        let sender = sender.clone();
        std::thread::spawn(move || {
            let mut text = Vec::new();
            // A stream that cannot be read counts as empty.
            let _ = stream.map(|stream| stream.take(MAX_ANSWER_BYTES).read_to_end(&mut text));
            let _ = sender.send(());
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let stdout = read(child.stdout.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>));
    let stderr = read(child.stderr.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>));
    let deadline = Instant::now() + timeout;
    // Both streams end with the process, unless it leaves children behind, which are not waited for.
    let ended = (0..2).all(|_| receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok());
    if !ended {
        let _ = child.kill();
        let _ = child.wait();
        return Response::Died(format!("no answer within {} s", timeout.as_secs()));
    }
    let status = child.wait();
    let (stdout, stderr) = (stdout.join().unwrap_or_default(), stderr.join().unwrap_or_default());
    match status {
        Ok(status) if status.success() => Response::Text(stdout + &stderr),
        Ok(status) => match status.signal() {
            Some(signal) => {
                Response::Died(format!("killed by signal {signal}{}", if signal == 11 { " (SIGSEGV)" } else { "" }))
            }
            None => Response::Failed((stdout + &stderr).trim().to_owned()),
        },
        Err(cause) => Response::Died(cause.to_string()),
    }
}

// Interface through which the doctor reads the state of a machine.

/// A query to a program or a library. It is run in another process, since any of them may hang or crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query<'a> {
    /// `PROGRAM --version`.
    Version(&'a str),
    /// The libraries that a program would load, as listed by `ldd`.
    Libraries(&'a Path),
    /// The description that a GPU library gives of itself, as JSON.
    Library(Probe),
}

/// Outcome of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// The standard output.
    Text(String),
    /// The program or library does not exist: why it cannot be started.
    Absent(String),
    /// It failed, with its error output.
    Failed(String),
    /// It crashed or timed out: how.
    Died(String),
}

/// Capacity of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Total bytes.
    pub bytes: u64,
    pub free_bytes: u64,
}

pub trait System {
    /// Host name.
    fn host(&self) -> String;
    /// An environment variable.
    fn variable(&self, name: &str) -> Option<String>;
    /// Variables that configure MPI, NCCL and the launcher.
    fn variables(&self) -> Vec<Variable>;
    /// A file's text.
    fn read(&self, path: &str) -> Option<String>;
    /// The names in a folder, sorted; none if the folder does not exist.
    fn list(&self, path: &str) -> Option<Vec<String>>;
    /// Whether the path exists.
    fn exists(&self, path: &str) -> bool;
    /// Queries another program or library.
    fn query(&self, question: Query) -> Response;
    /// Limits of this process: locked memory and open files; absent if unlimited.
    fn limits(&self) -> (Option<u64>, Option<u64>);
    /// The file system at a path.
    fn volume(&self, path: &str) -> Option<Volume>;
    /// Cores that ranks started here may use.
    fn cores(&self) -> u32;
    /// Whether the user is root.
    fn is_root(&self) -> bool;
    /// Folder of this program.
    fn programs(&self) -> std::path::PathBuf;
    /// The MPI that the launched programs were built against.
    fn flavor(&self) -> Option<crate::launch::Flavor>;
}

// Detects whether this process runs in a container, and reports the consequences.

pub(super) fn check_container(system: &dyn System) -> Section {
    let mut findings = vec![kind(system)];
    if let Some(scope) =
        system.read("/proc/sys/kernel/yama/ptrace_scope").and_then(|text| text.trim().parse::<u32>().ok())
        && scope > 1
    {
        let found = format!(
            "ptrace_scope is {scope}: MPI cannot copy directly between processes, so large messages on a host are slower"
        );
        findings.push(Finding::warning("copying between ranks", found).with_fix("sysctl kernel.yama.ptrace_scope=1"));
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
        return Finding::note(item, "none detected");
    };
    Finding::note(item, format!("{kind}: limits, /dev/shm and devices are those of the container, not of the host"))
}

#[cfg(test)]
mod tests {

    use super::*;

    fn shell(script: &str, seconds: u64) -> Response {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(command, Duration::from_secs(seconds))
    }

    #[test]
    fn crashed_hung_or_missing_programs_give_an_answer_too() {
        assert_eq!(shell("kill -SEGV $$", 20), Response::Died("killed by signal 11 (SIGSEGV)".to_owned()));
        assert_eq!(shell("echo why >&2; exit 3", 20), Response::Failed("why".to_owned()));
        assert_eq!(shell("echo yes", 20), Response::Text("yes\n".to_owned()));
        assert_eq!(shell("exec sleep 100", 0), Response::Died("no answer within 0 s".to_owned()));
        assert!(matches!(run(Command::new("/nowhere/program"), TIMEOUT), Response::Absent(_)));
    }
}
