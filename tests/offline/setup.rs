//! scripts/setup decides correctly what is missing, what to install and what to print, on machines that are folders of
//! empty files and small scripts. scripts/test-fresh tests real installations.

mod machine;

use machine::{MPICH_COMPILER, MPICH_LAUNCHER, Machine, OPEN_MPI_COMPILER, OPEN_MPI_LAUNCHER};

/// Changes a machine, then expects an exit code, words, and as last line of apt-get's calls (empty: none).
type Row<'a> = (&'a str, &'a dyn Fn(&mut Machine), i32, &'a [&'a str], &'a str);

fn check(rows: &[Row<'_>], made: fn() -> Machine) {
    for (name, change, exit_code, words, installed) in rows {
        let mut machine = made();
        change(&mut machine);
        let (code, said) = machine.set_up(&[]);
        assert_eq!(code, *exit_code, "{name}: {said}");
        for word in *words {
            assert!(said.contains(word), "{name}: `{word}` is not in: {said}");
        }
        let calls = machine.apt_calls();
        let last = calls.lines().last().unwrap_or_default().replace("install -y --no-install-recommends ", "");
        assert_eq!(&last, installed, "{name}: {said}");
        if code != 0 {
            let is_complaint = |line: &&str| {
                line.starts_with("setup: ") && !line.ends_with(':') && !line.starts_with("setup: fetching")
            };
            let sentences = said.lines().filter(is_complaint).count();
            assert_eq!(sentences, 1, "{name}: {said}");
        }
    }
}

#[test]
fn libclang_is_what_the_loader_of_bindgen_takes_and_nothing_else() {
    let only = |path: &'static str| {
        move |machine: &mut Machine| {
            machine.remove("/usr/lib/llvm-14/lib/libclang.so.1");
            machine.file(path);
        }
    };
    for (path, is_it) in [
        ("/usr/lib/x86_64-linux-gnu/libclang-cpp.so.14", false),
        ("/usr/lib/llvm-14/lib/libclang-cpp.so", false),
        ("/usr/lib/x86_64-linux-gnu/libclang.so.1/file", false),
        ("/usr/lib/a/b/c/libclang.so", false),
        ("/usr/lib/libclangd.so", false),
        ("/usr/lib/x86_64-linux-gnu/libclang-14.so.14.0.6", true),
        ("/usr/lib/x86_64-linux-gnu/libclang-14.so.1", true),
        ("/usr/lib/llvm-18/lib/libclang.so.1", true),
        ("/usr/lib64/libclang.so", true),
        ("/usr/local/lib/libclang-19.so", true),
    ] {
        let installed = if is_it { "" } else { "libclang-dev" };
        check(&[(path, &only(path), 0, &[], installed)], Machine::complete);
    }
}

#[test]
fn a_libclang_without_its_headers_is_not_enough() {
    let without = |machine: &mut Machine| machine.remove("/usr/lib/llvm-14/lib/clang");
    check(&[("no headers", &without, 0, &["the headers of libclang"], "libclang-dev")], Machine::complete);
}

#[test]
fn variables_that_lead_to_libclang_are_followed_as_the_loader_follows_them() {
    let elsewhere = |path: &'static str, name: &'static str, value: &'static str| {
        move |machine: &mut Machine| {
            machine.remove("/usr/lib/llvm-14/lib/libclang.so.1");
            machine.file(path);
            machine.variable(name, value);
        }
    };
    check(
        &[
            ("folder", &elsewhere("/opt/l/libclang.so.1", "LIBCLANG_PATH", "/opt/l"), 0, &[], ""),
            ("file", &elsewhere("/opt/l/libclang-14.so.1", "LIBCLANG_PATH", "/opt/l/libclang-14.so.1"), 0, &[], ""),
            (
                "cpp",
                &elsewhere("/opt/l/libclang-cpp.so.14", "LIBCLANG_PATH", "/opt/l"),
                2,
                &["LIBCLANG_PATH is /opt/l"],
                "",
            ),
            ("nowhere", &elsewhere("/opt/l/libclang.so", "LIBCLANG_PATH", "/opt/x"), 2, &["or unset it"], ""),
            ("second", &elsewhere("/opt/b/libclang.so", "LD_LIBRARY_PATH", "/opt/a:/opt/b"), 0, &[], ""),
            ("space", &elsewhere("/opt/a b/libclang.so", "LD_LIBRARY_PATH", "::/opt/a b:"), 0, &[], ""),
            ("linker", &elsewhere("/opt/b/libclang.so.1", "LIBRARY_PATH", "/opt/b"), 0, &[], ""),
            ("other", &elsewhere("/opt/b/libclang.so.1", "LD_LIBRARY_PATH", "/opt/c"), 0, &[], "libclang-dev"),
        ],
        Machine::complete,
    );
}

#[test]
fn compiler_header_and_launcher_belong_to_one_mpi_or_setup_says_so_and_installs_it() {
    let mpich = |machine: &mut Machine| {
        for path in ["/usr/bin/mpicc", "/usr/bin/mpirun", "/usr/include/openmpi"] {
            machine.remove(path);
        }
        machine.install("libmpich-dev");
        machine.program("/usr/bin/mpicc", MPICH_COMPILER);
    };
    check(
        &[
            ("Open MPI", &|_| (), 0, &["mpicc of Open MPI, starts ranks with mpirun\n"], ""),
            (
                "MPICH alone",
                &|machine| {
                    mpich(machine);
                    machine.program("/usr/bin/mpiexec", MPICH_LAUNCHER);
                },
                0,
                &["mpicc of MPICH, starts ranks with mpiexec\n"],
                "",
            ),
            (
                "MPICH without launcher",
                &|machine| mpich(machine),
                0,
                &["starts ranks of MPICH", "with mpiexec.mpich"],
                "mpich",
            ),
            (
                "MPICH with the launcher of Open MPI",
                &|machine| {
                    mpich(machine);
                    machine.program("/usr/bin/mpirun", OPEN_MPI_LAUNCHER);
                },
                0,
                &["to which mpicc belongs, as mpirun here is of Open MPI", "mpicc of MPICH"],
                "mpich",
            ),
            (
                "Open MPI, and first on PATH the launcher of MPICH",
                &|machine| {
                    machine.program("/usr/bin/mpirun", MPICH_LAUNCHER);
                    machine.program("/usr/bin/mpirun.openmpi", OPEN_MPI_LAUNCHER);
                },
                0,
                &["mpicc of Open MPI, starts ranks with mpirun.openmpi, as mpirun here is of MPICH"],
                "",
            ),
            (
                "Open MPI without header",
                &|machine| machine.remove("/usr/include/openmpi"),
                0,
                &["Open MPI's header mpi.h, which mpicc does not find", "there now: libopenmpi-dev"],
                "libopenmpi-dev",
            ),
            (
                "MPICH without header",
                &|machine| {
                    mpich(machine);
                    machine.program("/usr/bin/mpiexec", MPICH_LAUNCHER);
                    machine.remove("/usr/include/mpich");
                },
                0,
                &["MPICH's header mpi.h"],
                "libmpich-dev",
            ),
            (
                "Open MPI without library",
                &|machine| machine.remove("/usr/lib/libmpi.so"),
                0,
                &["Open MPI's library, which mpicc does not find", "there now: libopenmpi-dev"],
                "libopenmpi-dev",
            ),
            (
                "a package that lost a file",
                &|machine| {
                    machine.remove("/usr/lib/libmpi.so");
                    machine.remove("/archive/libopenmpi-dev/usr/lib/libmpi.so");
                },
                6,
                &["still missing (Open MPI's library", "apt-get install --reinstall libopenmpi-dev"],
                "libopenmpi-dev",
            ),
            (
                "a compiler of no package without header",
                &|machine| {
                    machine.program("/opt/mpi/mpicc", OPEN_MPI_COMPILER);
                    machine.remove("/usr/include/openmpi");
                    let path = machine.at("/opt/mpi/mpicc");
                    machine.variable("MPICC", &path.to_string_lossy());
                },
                6,
                &["does not find the header mpi.h", "installed by half", "MPICC"],
                "",
            ),
            (
                "a compiler whose launcher is not on PATH",
                &|machine| {
                    machine.install("libmpich-dev");
                    machine.program("/opt/mpi/mpicc", MPICH_COMPILER);
                    machine.program("/opt/mpi/mpiexec", MPICH_LAUNCHER);
                    let path = machine.at("/opt/mpi/mpicc");
                    machine.variable("MPICC", &path.to_string_lossy());
                },
                2,
                &["belongs to MPICH, whose launcher is", "not on PATH", "export PATH="],
                "",
            ),
            (
                "a compiler of nothing",
                &|machine| machine.program("/usr/bin/mpicc", "exit 1"),
                2,
                &["neither of Open MPI nor"],
                "",
            ),
            ("MPICC wrong", &|machine| machine.variable("MPICC", "mpicc.x"), 2, &["MPICC is mpicc.x", "unset it"], ""),
            (
                "Open MPI 5 without HOME",
                &|machine| machine.program("/usr/bin/mpirun", "echo 'Error: Unable to get the user home directory'"),
                2,
                &["set HOME"],
                "",
            ),
        ],
        Machine::complete,
    );
}

#[test]
fn a_bare_machine_gets_everything_and_is_looked_at_again() {
    let all = "gcc g++ libc6-dev libopenmpi-dev openmpi-bin libclang-dev";
    let words = ["there now: gcc g++", "mpicc of Open MPI, starts ranks with mpirun"];
    check(
        &[
            ("bare", &|_| (), 0, &words, all),
            // The header is looked for once there is a C compiler.
            (
                "an MPI by half",
                &|machine| machine.program("/usr/bin/mpicc", OPEN_MPI_COMPILER),
                0,
                &["there now: gcc g++ libc6-dev openmpi-bin libclang-dev libopenmpi-dev"],
                "libopenmpi-dev",
            ),
            (
                "a package that brings nothing",
                &|machine| {
                    machine.remove("/archive/libclang-dev/usr");
                    machine.file("/archive/libclang-dev/usr/lib/x86_64-linux-gnu/libclang-cpp.so.14");
                },
                6,
                &["libclang-dev was installed, and what it provides is still missing"],
                all,
            ),
        ],
        Machine::bare,
    );
    let machine = Machine::bare();
    machine.set_up(&[]);
    let (code, said) = machine.set_up(&[]);
    assert!(code == 0 && said.contains("everything is there, nothing to install"), "{said}");
}

#[test]
fn a_machine_that_cannot_install_gets_one_sentence_that_says_what_to_do() {
    let offline =
        "echo \"$*\" >>ROOT/apt.log; echo 'E: Failed to fetch http://x/y  Temporary failure resolving x'; exit 100";
    check(
        &[
            (
                "no apt-get",
                &|machine| machine.remove("/usr/bin/apt-get"),
                6,
                &["dnf install gcc gcc-c++ glibc-devel"],
                "",
            ),
            (
                "no network",
                &|machine| machine.program("/usr/bin/apt-get", offline),
                6,
                &["network or a mirror", "Temporary"],
                "update",
            ),
            (
                "unknown package",
                &|machine| machine.remove("/archive/g++"),
                6,
                &["Unable to locate package g++", "as root"],
                BARE,
            ),
            (
                "no sudo",
                &|machine| machine.program("/usr/bin/id", "echo 1000"),
                6,
                &["neither root nor", "apt-get install gcc"],
                "",
            ),
            (
                "sudo",
                &|machine| {
                    machine.program("/usr/bin/id", "echo 1000");
                    machine.program("/usr/bin/sudo", "exec \"$@\"");
                },
                0,
                &["installed, and there now"],
                BARE,
            ),
        ],
        Machine::bare,
    );
}

const BARE: &str = "gcc g++ libc6-dev libopenmpi-dev openmpi-bin libclang-dev";

#[test]
fn rust_that_is_missing_old_or_without_crates_is_named_with_what_to_do() {
    let fetches = |script: &'static str| move |machine: &mut Machine| machine.program("/usr/bin/cargo", script);
    let offline =
        "case \"$*\" in *--offline*) exit 101 ;; esac; echo 'error: failed' >&2; echo '  [6] no host' >&2; exit 101";
    let unwritable = |machine: &mut Machine| {
        machine.program("/usr/bin/cargo", offline);
        machine.variable("CARGO_HOME", "/proc/cargo");
    };
    let home_of_no_user = |machine: &mut Machine| {
        machine.program("/usr/bin/cargo", offline);
        machine.variable("HOME", "/dev/null");
    };
    check(
        &[
            ("no cargo", &|machine| machine.remove("/usr/bin/cargo"), 2, &["there is no Rust", "rustup"], ""),
            (
                "old",
                &|machine| machine.program("/usr/bin/rustc", "echo 'rustc 1.63.0 (x)'"),
                2,
                &["is Rust 1.63.0", "rustup update"],
                "",
            ),
            (
                "no toolchain",
                &|machine| machine.program("/usr/bin/rustc", "echo no toolchain; exit 1"),
                2,
                &["`no toolchain`"],
                "",
            ),
            ("no network", &fetches(offline), 6, &["cannot fetch the crates ([6] no host)", "https_proxy"], ""),
            ("read-only cargo", &unwritable, 2, &["/proc/cargo cannot be written to", "export CARGO_HOME="], ""),
            ("read-only home", &home_of_no_user, 2, &["/dev/null/.cargo cannot be written to"], ""),
            ("read-only home, crates there", &|machine| machine.variable("HOME", "/dev/null"), 0, &[], ""),
        ],
        Machine::complete,
    );
}

#[test]
fn a_dry_run_says_what_is_missing_and_changes_nothing() {
    let machine = Machine::bare();
    let (code, said) = machine.set_up(&["--dry-run"]);
    assert_eq!(code, 6, "{said}");
    for word in ["would be installed", "gcc  ", "libclang-dev  ", "openmpi-bin  "] {
        assert!(said.contains(word), "{said}");
    }
    assert_eq!(machine.apt_calls(), "");
    assert_eq!(Machine::complete().set_up(&["--dry-run"]).0, 0);
    let (_, said) = Machine::complete().set_up(&[
        "--dry-run",
        "--with-mpich",
        "--with-python",
        "--with-chromium",
        "--with-prometheus",
    ]);
    for word in ["libmpich-dev", "mpich ", "python3 ", "python3-pip", "chromium", "prometheus ", "libxml2-utils"] {
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn flags_that_are_wrong_and_locales_that_are_unknown_do_no_harm() {
    for (flags, words) in [(["--with-mpi"], "unknown flag --with-mpi; known are"), (["--root"], "needs a folder")] {
        let (code, said) = Machine::complete().set_up(&flags);
        assert!(code == 2 && said.contains(words), "{said}");
    }
    for locale in ["C", "xx_YY.UTF-8", "de_DE.ISO-8859-1"] {
        let mut machine = Machine::bare();
        machine.variable("LC_ALL", locale);
        machine.variable("LANG", locale);
        let (code, said) = machine.set_up(&[]);
        assert!(code == 0 && said.contains("there now"), "{locale}: {said}");
    }
}
