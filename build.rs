//! Notes the commit that is built, and compiles the plain C loop that a bench compares with.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    note_commit();
    if env::var_os("CARGO_FEATURE_RAW_LOOP").is_some() {
        build_raw_loop();
    }
}

/// Records the commit that is built, where there is a git checkout and git.
fn note_commit() {
    // Asked for, as they lie elsewhere in a further worktree; a path that does not exist would have everything built again each time.
    for part in ["HEAD", "refs/heads"] {
        if let Some(path) = git(&["rev-parse", "--git-path", part]).filter(|path| std::path::Path::new(path).exists()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let version = env::var("CARGO_PKG_VERSION").expect("cargo sets the version");
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).map_or_else(String::new, |commit| format!(" ({commit})"));
    println!("cargo:rustc-env=COMMGAUGE_VERSION={version}{commit}");
}

fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn build_raw_loop() {
    println!("cargo:rerun-if-env-changed=MPICC");
    println!("cargo:rerun-if-changed=benches/raw_loop.c");
    let mpicc = env::var("MPICC").unwrap_or_else(|_| "mpicc".to_owned());
    let mut compiler = cc::Build::new();
    compiler.compiler(mpicc).warnings(true).file("benches/raw_loop.c").opt_level(3).compile("commgauge_raw_loop");
}
