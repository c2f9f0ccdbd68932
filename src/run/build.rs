//! Compiles the few lines of C that MPI's macros need, and notes which MPI family the launched programs are built for.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(commgauge_open_mpi)");
    if env::var_os("CARGO_FEATURE_MPI").is_some() {
        build_mpi_shim();
    }
}

fn build_mpi_shim() {
    println!("cargo:rerun-if-env-changed=MPICC");
    println!("cargo:rerun-if-changed=mpi_call/shim.c");
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
    compiler.file("mpi_call/shim.c");
    if family == "mpich" {
        println!("cargo:rerun-if-changed=mpi_call/yielding.c");
        compiler.file("mpi_call/yielding.c");
    }
    compiler.compile("commgauge_mpi_shim");
}
