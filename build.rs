//! Compiles the few lines of C that MPI's macros need, and notes which MPI family the launched programs are built for.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // What is there is embedded; a file that changes is noticed by the compiler, a new one only here.
    println!("cargo:rerun-if-changed=suites");
    println!("cargo:rustc-check-cfg=cfg(commgauge_open_mpi)");
    note_commit();
    if env::var_os("CARGO_FEATURE_MPI").is_some() {
        build_mpi_shim();
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

fn build_mpi_shim() {
    println!("cargo:rerun-if-env-changed=MPICC");
    println!("cargo:rerun-if-changed=src/mpi_call/shim.c");
    let mpicc = env::var("MPICC").unwrap_or_else(|_| "mpicc".to_owned());
    let mut compiler = cc::Build::new();
    compiler.compiler(&mpicc).warnings(true);

    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let probe = format!("{out}/family.c");
    let text = "#include <mpi.h>\n#ifdef OPEN_MPI\ncommgauge_family_open_mpi\n#endif\n";
    std::fs::write(&probe, text).expect("OUT_DIR is writable");
    let expanded = compiler.clone().file(&probe).expand();
    let family =
        if String::from_utf8_lossy(&expanded).contains("commgauge_family_open_mpi") { "open-mpi" } else { "mpich" };
    println!("cargo:rustc-env=COMMGAUGE_MPI_FLAVOR={family}");
    if family == "open-mpi" {
        println!("cargo:rustc-cfg=commgauge_open_mpi");
    }
    compiler.file("src/mpi_call/shim.c");
    if family == "mpich" {
        println!("cargo:rerun-if-changed=src/mpi_call/yielding.c");
        compiler.file("src/mpi_call/yielding.c");
    }
    compiler.compile("commgauge_mpi_shim");

    if env::var_os("CARGO_FEATURE_RAW_LOOP").is_some() {
        println!("cargo:rerun-if-changed=benches/raw_loop.c");
        compiler.clone().file("benches/raw_loop.c").opt_level(3).compile("commgauge_raw_loop");
    }
}
