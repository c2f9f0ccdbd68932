//! A folder that represents the root of a machine: empty files instead of libraries, and small scripts instead of
//! programs. Its apt-get installs by copying from a folder of packages, and refuses missing ones.

use crate::common::programs::write_program;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

pub(super) const OPEN_MPI_COMPILER: &str = "case \"$*\" in\n--showme:version) echo 'mpicc: Open MPI 4.1.4 (Language: C)' ;;\n\
    *-E*) [ -e ROOT/usr/include/openmpi/mpi.h ] ;;\n*-o*) [ -e ROOT/usr/lib/libmpi.so ] ;;\nesac";
pub(super) const MPICH_COMPILER: &str = "case \"$*\" in\n-v) echo 'mpicc for MPICH version 4.0.2'; exit 1 ;;\n\
    *-E*) [ -e ROOT/usr/include/mpich/mpi.h ] ;;\n*-o*) [ -e ROOT/usr/lib/libmpich.so ] ;;\n*) echo \"gcc: error: unrecognized option $*\" >&2; exit 1 ;;\nesac";
pub(super) const OPEN_MPI_LAUNCHER: &str = "echo 'mpirun (Open MPI) 4.1.4'";
pub(super) const MPICH_LAUNCHER: &str = "echo 'HYDRA build details:'";
const APT: &str = "echo \"$*\" >>ROOT/apt.log\n[ \"$1\" = install ] || exit 0\nshift 3\nfor package in \"$@\"; do\n\
    [ -d ROOT/archive/$package ] || { echo \"E: Unable to locate package $package\" >&2; exit 100; }\n\
    cp -r ROOT/archive/$package/. ROOT/\ndone";

pub(super) struct Machine {
    root: TempDir,
    variables: Vec<(String, String)>,
}

impl Machine {
    /// Rust, an account that is root, and an archive of packages; nothing else.
    pub(super) fn bare() -> Machine {
        let machine = Machine { root: tempfile::tempdir().expect("a folder"), variables: Vec::new() };
        machine.program("/usr/bin/id", "echo 0");
        machine.program("/usr/bin/cargo", "exit 0");
        machine.program("/usr/bin/rustc", "echo 'rustc 1.99.0 (0123456789 2026-01-01)'");
        machine.program("/usr/bin/apt-get", APT);
        for (package, path, script) in [
            ("gcc", "/usr/bin/cc", ""),
            ("g++", "/usr/bin/c++", ""),
            ("libc6-dev", "/usr/include/stdio.h", ""),
            ("libopenmpi-dev", "/usr/bin/mpicc", OPEN_MPI_COMPILER),
            ("libopenmpi-dev", "/usr/include/openmpi/mpi.h", ""),
            ("openmpi-bin", "/usr/bin/mpirun", OPEN_MPI_LAUNCHER),
            ("libopenmpi-dev", "/usr/lib/libmpi.so", ""),
            ("libmpich-dev", "/usr/include/mpich/mpi.h", ""),
            ("libmpich-dev", "/usr/lib/libmpich.so", ""),
            ("mpich", "/usr/bin/mpiexec.mpich", MPICH_LAUNCHER),
            ("libclang-dev", "/usr/lib/llvm-14/lib/libclang.so.1", ""),
            ("libclang-dev", "/usr/lib/llvm-14/lib/clang/14.0.6/include/stddef.h", ""),
        ] {
            machine.program(&format!("/archive/{package}{path}"), script);
        }
        machine
    }

    /// All that the build needs, with Open MPI.
    pub(super) fn complete() -> Machine {
        let machine = Machine::bare();
        for package in ["gcc", "g++", "libc6-dev", "libopenmpi-dev", "openmpi-bin", "libclang-dev"] {
            machine.install(package);
        }
        machine
    }

    /// What the package has, as if it had been installed before.
    pub(super) fn install(&self, package: &str) {
        let copied =
            Command::new("cp").arg("-r").arg(self.at(&format!("/archive/{package}/."))).arg(self.root.path()).status();
        assert!(copied.expect("cp runs").success());
    }

    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    pub(super) fn program(&self, path: &str, script: &str) {
        let script = script.replace("ROOT", &self.root.path().to_string_lossy());
        write_program(&self.at(path), format!("#!/bin/sh\n{script}\n"));
    }

    pub(super) fn file(&self, path: &str) {
        self.program(path, "");
    }

    pub(super) fn remove(&self, path: &str) {
        let path = self.at(path);
        if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }.expect("removed");
    }

    pub(super) fn variable(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// The arguments of apt-get, line by line.
    pub(super) fn apt_calls(&self) -> String {
        fs::read_to_string(self.at("/apt.log")).unwrap_or_default()
    }

    /// Exit code, and the whole output.
    pub(super) fn set_up(&self, flags: &[&str]) -> (i32, String) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/setup");
        let mut command = Command::new("bash");
        command.arg(script).arg("--root").arg(self.root.path()).args(flags);
        for name in ["LIBCLANG_PATH", "LLVM_CONFIG_PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "MPICC", "CARGO_HOME"] {
            command.env_remove(name);
        }
        command.env("HOME", self.at("/home")).envs(self.variables.iter().map(|(name, value)| (name, value)));
        let output = command.output().expect("bash runs");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().expect("no signal"), String::from_utf8_lossy(&said).into_owned())
    }
}
