//! Carries out the commands of a page in a folder of their own, with the programs as built on the path.

use crate::blocks::{Block, Mark};
use crate::common::{self, FAMILY};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

/// No command of a page takes longer on an idle machine, as it is swapped for tests.
const LONGEST_SECONDS: u64 = 60;

/// Runs the blocks of one page, one after the other in the same folder, and returns the differences to what the page
/// documents. `make` creates the files that a mark names behind `with`.
pub fn carry_out(blocks: &[Block], make: fn(&str, &Path)) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for shared in ["suites", "scripts", "docs"] {
        symlink(root.join(shared), folder.path().join(shared)).expect("a link");
    }
    let path = programs(folder.path());
    let (mut wrong, mut made) = (Vec::new(), std::collections::BTreeSet::new());
    for block in blocks {
        let mark = block.mark.as_ref().expect("blocks without a mark are found by another test");
        mark.with.iter().filter(|name| made.insert(name.as_str())).for_each(|name| make(name, folder.path()));
        for (index, printed) in block.commands.iter().enumerate() {
            let command = mark.command(printed);
            if command.contains("python3") && !is_installed("python3") {
                common::skipped(&format!("{}:{}", block.page, block.line), "there is no python3");
                continue;
            }
            let ran = common::Ran::of(&mut shell(&command, folder.path(), &path), LONGEST_SECONDS);
            let expected = mark.exit_of(index);
            if ran.code != Some(expected) {
                let (place, code) = (format!("{}:{}", block.page, block.line), ran.code);
                wrong.push(format!("{place}: `{command}`: exit {code:?}, documented {expected}\n{}", ran.stderr));
            }
        }
    }
    wrong
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// The blocks of each page that are tested in one way.
pub fn by_page(wanted: impl Fn(&Mark) -> bool) -> Vec<Vec<Block>> {
    let mut pages: std::collections::BTreeMap<String, Vec<Block>> = std::collections::BTreeMap::new();
    for block in crate::blocks::blocks() {
        if block.mark.as_ref().is_ok_and(&wanted) {
            pages.entry(block.page.clone()).or_default().push(block);
        }
    }
    pages.into_values().collect()
}

/// A command line in a shell, as a user types it.
pub fn shell(command: &str, folder: &Path, path: &str) -> Command {
    let mut shell = Command::new("bash");
    shell.args(["-c", command]).current_dir(folder).stdin(Stdio::null());
    shell.env("PATH", path).env("HOME", folder.join("home")).env("NO_COLOR", "1").env("COLUMNS", "100");
    shell.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    shell
}

/// A folder with the programs, to be searched before those of the machine. Its `mpirun` is that of the MPI used for
/// the build, and allows more ranks than cores on this host.
pub fn programs(folder: &Path) -> String {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).expect("a folder");
    fs::create_dir_all(folder.join("home")).expect("a folder");
    for program in [common::COMMGAUGE, common::SWEEP, common::SUITE, common::STEP, common::PAIRS] {
        let name = Path::new(program).file_name().expect("a program has a name");
        symlink(program, bin.join(name)).expect("a link");
    }
    let launcher = match FAMILY {
        "open-mpi" => format!("exec {} --oversubscribe --bind-to none \"$@\"", found("mpirun")),
        _ => format!("[ \"$1\" = -np ] && set -- -n \"${{@:2}}\"; exec {} \"$@\"", found("mpiexec.mpich")),
    };
    let mpirun = bin.join("mpirun");
    common::programs::write_program(&mpirun, format!("#!/bin/bash\n{launcher}\n"));
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default())
}

fn found(program: &str) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = std::env::split_paths(&path).map(|folder| folder.join(program));
    all.find(|file| file.is_file()).map_or_else(|| program.to_owned(), |file| file.display().to_string())
}
