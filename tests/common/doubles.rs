//! The stand-ins for libcuda, libnccl, libcublas and NVML (`tests/doubles/`): builds them once, and makes a program load them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// The simulated NCCL version unless a test requests another.
pub const NCCL_VERSION: &str = "2.30.7";

/// A folder with `libcuda.so`, `libcuda.so.1` and `libnccl.so.2`, for `LD_LIBRARY_PATH`.
pub fn folder() -> PathBuf {
    folder_with_nccl(NCCL_VERSION)
}

/// The same, with a libnccl of another version: later functions have no symbols in it.
pub fn folder_with_nccl(version: &str) -> PathBuf {
    let variant = if version == NCCL_VERSION { "" } else { version };
    let driver: Library = ("cuda", "", &["libcuda.so", "libcuda.so.1"]);
    linked(&format!("with-nccl-{version}"), &[driver, ("nccl", variant, &["libnccl.so.2"])])
}

/// Makes a program load the doubles: this host then has `devices` simulated devices.
pub fn with_doubles(command: &mut Command, devices: u32) -> &mut Command {
    with_nccl(command, devices, NCCL_VERSION)
}

/// The same with another version of NCCL.
pub fn with_nccl<'a>(command: &'a mut Command, devices: u32, version: &str) -> &'a mut Command {
    let mut paths = vec![folder_with_nccl(version)];
    paths.extend(std::env::split_paths(&std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default()));
    let paths = std::env::join_paths(paths).expect("no path has a colon");
    command.env("LD_LIBRARY_PATH", paths).env("COMMGAUGE_DOUBLE_DEVICES", devices.to_string())
}

/// Adds a stand-in for libcublas, which hosts have none of otherwise.
pub fn with_cublas(command: &mut Command) -> &mut Command {
    with_library(command, ("cublas", "", &["libcublas.so.12"]))
}

/// Adds a stand-in for NVML that answers as `COMMGAUGE_DOUBLE_NVML` says.
pub fn with_nvml<'a>(command: &'a mut Command, answers: &str) -> &'a mut Command {
    with_library(command, ("nvml", "", &["libnvidia-ml.so.1"])).env("COMMGAUGE_DOUBLE_NVML", answers)
}

/// The same for NVML of an old driver, without fields, fabric and events.
pub fn with_old_nvml(command: &mut Command) -> &mut Command {
    with_library(command, ("nvml", "old", &["libnvidia-ml.so.1"]))
}

/// Puts a stand-in first in the way of a command.
fn with_library<'a>(command: &'a mut Command, library: Library<'_>) -> &'a mut Command {
    let found = linked(&format!("with-{}{}", library.0, library.1), &[library]);
    let set = command.get_envs().find(|(name, _)| *name == "LD_LIBRARY_PATH").and_then(|(_, value)| value);
    let set = set.map(ToOwned::to_owned).or_else(|| std::env::var_os("LD_LIBRARY_PATH")).unwrap_or_default();
    let paths = std::env::join_paths(std::iter::once(found).chain(std::env::split_paths(&set)));
    command.env("LD_LIBRARY_PATH", paths.expect("no path has a colon"))
}

/// A stand-in: its name, its variant (a version of NCCL, or `old` for NVML; else empty), and the names by which it is loaded.
type Library<'a> = (&'a str, &'a str, &'a [&'a str]);

/// Files that communicators of the doubles left in shared memory.
pub fn left_in_shared_memory() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.path());
    let ours =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("commgauge-double-"));
    entries.filter(ours).collect()
}

/// A folder with links to stand-ins by the names by which they are loaded, each built once.
fn linked(folder: &str, libraries: &[Library<'_>]) -> PathBuf {
    static MADE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let path = base().join(folder);
    // Locked while building, so that the tests of one program wait for one another; cargo does so among programs.
    let mut made = MADE.lock().unwrap_or_else(|broken| broken.into_inner());
    if made.insert(folder.to_owned()) {
        std::fs::create_dir_all(&path).expect("the target folder is writable");
        for &(name, variant, loaded_as) in libraries {
            let library = built(name, variant);
            loaded_as.iter().for_each(|name| link(&library, &path.join(name)));
        }
    }
    path
}

fn base() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/doubles")
}

/// The library of a stand-in, built. A variant has a folder of its own, which starts as a copy of the common one: what all depend on takes
/// five times as long to compile as the stand-in.
fn built(name: &str, variant: &str) -> PathBuf {
    let common = base().join("common");
    build(name, "", &common);
    let mut folder = common.clone();
    if !variant.is_empty() {
        folder = base().join(format!("{name}-{variant}"));
        if !folder.exists() {
            let staged = base().join(format!("{name}-{variant}.new-{}", std::process::id()));
            let copied = Command::new("cp").arg("-a").args([&common, &staged]).status().expect("cp starts");
            assert!(copied.success(), "{} cannot be copied", common.display());
            // Another program of the tests may have been faster.
            if std::fs::rename(&staged, &folder).is_err() {
                std::fs::remove_dir_all(&staged).expect("the copy can be removed");
            }
        }
        build(name, variant, &folder);
    }
    folder.join(format!("debug/lib{name}.so"))
}

fn build(name: &str, variant: &str, target: &Path) {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["build", "--locked", "--quiet", "--package", &format!("{name}-double"), "--manifest-path"]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doubles/Cargo.toml"));
    command.arg("--target-dir").arg(target).env_remove("COMMGAUGE_DOUBLE_NCCL");
    match (name, variant) {
        (_, "") => &mut command,
        ("nccl", version) => command.env("COMMGAUGE_DOUBLE_NCCL", version),
        (_, feature) => command.args(["--features", feature]),
    };
    let output = command.output().expect("cargo starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {variant} cannot be built:\n{text}");
}

/// Makes a link, also where another program of the tests makes it at this moment.
fn link(to: &Path, at: &Path) {
    if std::fs::read_link(at).is_ok_and(|there| there == to) {
        return;
    }
    let staged = at.with_extension(format!("new-{}", std::process::id()));
    let _ = std::fs::remove_file(&staged);
    std::os::unix::fs::symlink(to, &staged).expect("the target folder is writable");
    std::fs::rename(&staged, at).expect("the target folder is writable");
}
