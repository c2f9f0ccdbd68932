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
    static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/doubles");
    let folder = base.join(format!("with-nccl-{version}"));
    // Locked while building, so that the tests of one program wait for one another; cargo does so among programs.
    let mut built = BUILT.lock().unwrap_or_else(|broken| broken.into_inner());
    if built.insert(version.to_owned()) {
        let driver = base.join("cuda");
        let nccl = base.join(format!("nccl-{version}"));
        build("cuda-double", &[], &driver, version);
        build("nccl-double", &[], &nccl, version);
        std::fs::create_dir_all(&folder).expect("the target folder is writable");
        link(&driver.join("debug/libcuda.so"), &folder.join("libcuda.so"));
        link(&driver.join("debug/libcuda.so"), &folder.join("libcuda.so.1"));
        link(&nccl.join("debug/libnccl.so"), &folder.join("libnccl.so.2"));
    }
    folder
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
    with_library(command, "cublas", &[], "libcublas.so", "libcublas.so.12")
}

/// Adds a stand-in for NVML that answers as `COMMGAUGE_DOUBLE_NVML` says.
pub fn with_nvml<'a>(command: &'a mut Command, answers: &str) -> &'a mut Command {
    with_library(command, "nvml", &[], "libnvml.so", "libnvidia-ml.so.1").env("COMMGAUGE_DOUBLE_NVML", answers)
}

/// The same for NVML of an old driver, without fields, fabric and events.
pub fn with_old_nvml(command: &mut Command) -> &mut Command {
    with_library(command, "nvml", &["old"], "libnvml.so", "libnvidia-ml.so.1")
}

/// Builds a stand-in once, and puts it first in the way of a command under the name by which it is loaded.
fn with_library<'a>(
    command: &'a mut Command,
    package: &str,
    features: &[&str],
    file: &str,
    name: &str,
) -> &'a mut Command {
    static BUILT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let folder = [&[package], features].concat().join("-");
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/doubles").join(folder);
    let found = target.join("found");
    let mut built = BUILT.lock().unwrap_or_else(|broken| broken.into_inner());
    if built.insert(target.clone()) {
        build(&format!("{package}-double"), features, &target, NCCL_VERSION);
        std::fs::create_dir_all(&found).expect("the target folder is writable");
        link(&target.join("debug").join(file), &found.join(name));
    }
    let set = command.get_envs().find(|(name, _)| *name == "LD_LIBRARY_PATH").and_then(|(_, value)| value);
    let set = set.map(ToOwned::to_owned).or_else(|| std::env::var_os("LD_LIBRARY_PATH")).unwrap_or_default();
    let paths = std::env::join_paths(std::iter::once(found).chain(std::env::split_paths(&set)));
    command.env("LD_LIBRARY_PATH", paths.expect("no path has a colon"))
}

/// Files that communicators of the doubles left in shared memory.
pub fn left_in_shared_memory() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.path());
    let ours =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("commgauge-double-"));
    entries.filter(ours).collect()
}

fn build(package: &str, features: &[&str], target: &Path, version: &str) {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["build", "--locked", "--quiet", "--package", package, "--manifest-path"]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doubles/Cargo.toml"));
    command.args(features.iter().flat_map(|feature| ["--features", feature]));
    command.arg("--target-dir").arg(target).env("COMMGAUGE_DOUBLE_NCCL", version);
    let output = command.output().expect("cargo starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{package} for NCCL {version} cannot be built:\n{text}");
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
