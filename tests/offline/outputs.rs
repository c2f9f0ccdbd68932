//! Where outputs go: every command that writes a file, at files, links, devices, pipes, full and read-only disks and folders of
//! others. Devices are copies in a folder of the test, never those of the machine.

use crate::common::{COMMGAUGE, skipped};
use crate::offline::{commgauge, text};
use crate::records::{Made, machine};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Commands that write an output, which is `@`, and the ending of its name.
const OUTPUTS: [(&str, &str); 16] = [
    ("report good.jsonl -o @", "csv"),
    ("report good.jsonl -o @", "html"),
    ("judge --part thresholds good.jsonl --machine m.toml -o @", "json"),
    ("judge --part thresholds good.jsonl --machine m.toml --format junit -o @", "any"),
    ("compare good.jsonl new.jsonl -o @", "md"),
    ("judge good.jsonl --machine m.toml --page @", "html"),
    ("judge --part suspects good.jsonl -o @", "json"),
    ("history good.jsonl new.jsonl -o @", "csv"),
    ("history good.jsonl new.jsonl -o @", "prom"),
    ("calibrate h100.jsonl --resamples 0 -o @", "json"),
    ("export --to csv --fit fit.json -o @", "csv"),
    ("rank call --fit fit.json --collective all_reduce --ranks 8 --bytes 1MiB -o @", "txt"),
    ("rank --machine h100-nvswitch-ndr --model gpt2 --tp 2 --dp 4 --sequence 1024 --global-batch 32 -o @", "json"),
    ("plan validate --template -o @", "csv"),
    ("trace fr_trace_rank_0 fr_trace_rank_1 fr_trace_rank_2 fr_trace_rank_3 --tp 2 --dp 2 -o @", "toml"),
    ("expect learn good.jsonl new.jsonl --name m --like h100-nvswitch-ndr --force -o @", "toml"),
];

/// Commands that write what is never replaced.
const NEW_FILES: [(&str, &str); 3] = [
    ("judge --part thresholds good.jsonl --template @", "toml"),
    ("import --from csv h100.csv -o @", "jsonl"),
    ("simulate quick --machine h100-nvswitch-ndr --nodes 1 -o @", "jsonl"),
];

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().expect("a folder"));
        // Another user looks into it below.
        fs::set_permissions(place.0.path(), fs::Permissions::from_mode(0o755)).expect("set");
        Made::steady("good", 3, 7, 1).write(&place.at("good.jsonl"));
        Made::steady("new", 3, 7, 2).write(&place.at("new.jsonl"));
        fs::write(place.at("m.toml"), machine("1GB/s")).expect("written");
        let data = |from: &str, to: &str| {
            let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(from);
            fs::copy(from, place.at(to)).expect("the sample is there");
        };
        data("nccl/h100_sxm-nccl-2.29.2.csv", "h100.csv");
        (0..4).map(|rank| format!("fr_trace_rank_{rank}")).for_each(|name| data(&format!("traces/{name}"), &name));
        for line in ["import --from csv h100.csv -o h100.jsonl", "calibrate h100.jsonl --resamples 0 -o fit.json"] {
            let output = place.run(line);
            assert_eq!(output.status.code(), Some(0), "{line}: {}", text(&output.stderr));
        }
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, line: &str) -> Output {
        commgauge(self.0.path(), &line.split(' ').collect::<Vec<_>>())
    }

    /// An empty folder for outputs, and the output in it.
    fn fresh(&self, ending: &str) -> (PathBuf, PathBuf) {
        let folder = self.at("out");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("made");
        fs::write(folder.join("other"), "other").expect("written");
        let target = folder.join(format!("t.{ending}"));
        (folder, target)
    }
}

/// Temporary files that are left in the folder.
fn left(folder: &Path) -> Vec<String> {
    let names =
        fs::read_dir(folder).expect("read").flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".tmp")).collect()
}

fn is_whole(content: &[u8], reference: &[u8]) -> bool {
    // Plans say how long they took, and dates differ by a second.
    content.len().abs_diff(reference.len()) < 100 && content[..10.min(content.len())] == reference[..10]
}

/// A special file, or why there can be none.
fn make_node(path: &Path, kind: FileType, minor: u32) -> Result<(), String> {
    mknodat(CWD, path, kind, Mode::from(0o666), makedev(1, minor)).map_err(|cause| cause.to_string())
}

#[test]
fn every_output_is_written_at_or_through_what_is_there_and_nothing_else_is_replaced() {
    let place = Place::new();
    let mut no_devices = None;
    for (line, ending) in OUTPUTS {
        let (folder, target) = place.fresh(ending);
        let line = line.replace('@', &format!("out/t.{ending}"));
        let first = place.run(&line);
        let reference = fs::read(&target).unwrap_or_else(|_| panic!("{line}: {}", text(&first.stderr)));
        let check = |what: &str, output: &Output, content: &[u8]| {
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), first.status.code(), "{line}, {what}: {said}");
            assert!(is_whole(content, &reference), "{line}, {what}: {} bytes of {}", content.len(), reference.len());
            assert!(left(&folder).is_empty(), "{line}, {what}: {:?}", left(&folder));
            assert_eq!(fs::read(folder.join("other")).expect("read"), b"other", "{line}, {what}");
        };
        check("a new file", &first, &reference);

        fs::write(&target, "old").expect("written");
        fs::write(folder.join(format!(".t.{ending}.tmp")), "of a killed writer").expect("written");
        fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).expect("set");
        let output = place.run(&line);
        check("a file", &output, &fs::read(&target).expect("read"));
        assert_eq!(fs::metadata(&target).expect("there").permissions().mode() & 0o777, 0o640, "{line}");

        for what in ["a link", "a dangling link"] {
            let (_, target) = place.fresh(ending);
            symlink("real", &target).expect("linked");
            let real = folder.join("real");
            if what == "a link" {
                fs::write(&real, "old").expect("written");
            }
            let output = place.run(&line);
            check(what, &output, &fs::read(&real).expect("through the link"));
            assert!(target.is_symlink(), "{line}, {what}");
        }

        let (_, target) = place.fresh(ending);
        symlink("/proc/self/fd/1", &target).expect("linked");
        let output = place.run(&line);
        assert!(target.is_symlink(), "{line}: a link to stdout");
        // What the command prints besides goes there too, before or behind.
        let written = String::from_utf8_lossy(&output.stdout).into_owned();
        let start = String::from_utf8_lossy(&reference[..10]).into_owned();
        assert!(written.contains(&start), "{line}: a link to stdout: {written}");

        let (_, target) = place.fresh(ending);
        make_node(&target, FileType::Fifo, 0).expect("a pipe");
        let reader = Command::new("cat").arg(&target).stdout(Stdio::piped()).spawn().expect("cat");
        let output = place.run(&line);
        check("a pipe", &output, &reader.wait_with_output().expect("read").stdout);
        assert!(fs::metadata(&target).expect("there").file_type().is_fifo(), "{line}");

        for (what, minor, code) in [("/dev/null", 3, first.status.code()), ("/dev/full", 7, Some(6))] {
            let (_, target) = place.fresh(ending);
            if let Err(why) = make_node(&target, FileType::CharacterDevice, minor) {
                no_devices = Some(why);
                continue;
            }
            let output = place.run(&line);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), code, "{line}, a copy of {what}: {said}");
            assert!(fs::metadata(&target).expect("there").file_type().is_char_device(), "{line}, {what}");
            assert!(left(&folder).is_empty(), "{line}, {what}");
        }
    }
    if let Some(why) = no_devices {
        skipped("outputs at devices", &format!("no device can be made here: {why}"));
    }
}

#[test]
fn what_is_never_replaced_is_not_replaced_by_any_command() {
    let place = Place::new();
    for (line, ending) in NEW_FILES {
        let (folder, target) = place.fresh(ending);
        let line = line.replace('@', &format!("out/t.{ending}"));
        let refuses = |what: &str| {
            let output = place.run(&line);
            assert_eq!(output.status.code(), Some(2), "{line}, {what}: {}", text(&output.stderr));
            assert!(left(&folder).is_empty(), "{line}, {what}");
        };
        fs::write(&target, "old").expect("written");
        refuses("a file");
        assert_eq!(fs::read(&target).expect("read"), b"old", "{line}");
        let (_, target) = place.fresh(ending);
        symlink("other", &target).expect("linked");
        refuses("a link");
        assert_eq!(fs::read(folder.join("other")).expect("read"), b"other", "{line}");
        let (_, target) = place.fresh(ending);
        make_node(&target, FileType::Fifo, 0).expect("a pipe");
        refuses("a pipe");
        assert!(fs::metadata(&target).expect("there").file_type().is_fifo(), "{line}");
        let (_, target) = place.fresh(ending);
        let output = place.run(&line);
        assert!(target.is_file(), "{line}: {}", text(&output.stderr));
    }
}

#[test]
fn a_full_or_read_only_disk_leaves_the_old_file_and_nothing_else() {
    let place = Place::new();
    // A file system of its own for each line, which goes with the process.
    let script = |options: &str| {
        format!(
            "mount -t tmpfs -o size=16k tmpfs out && printf old > out/t.$1 && {options} && shift && \"$@\"; code=$?; \
             cat out/t.*; ls -A out | grep -c tmp; exit $code"
        )
    };
    let full = script("{ head -c 64k /dev/zero > out/fill 2>/dev/null || :; }");
    let read_only = script("mount -o remount,ro out");
    for (line, ending) in OUTPUTS {
        place.fresh(ending);
        let line = line.replace('@', &format!("out/t.{ending}"));
        for (what, script, code) in [("full", &full, 6), ("read-only", &read_only, 2)] {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", script, "sh", ending, COMMGAUGE]).args(line.split(' '));
            command.current_dir(place.0.path()).env("NO_COLOR", "1").stdin(Stdio::null());
            let output = command.output().expect("unshare");
            let said = text(&output.stderr);
            if said.contains("unshare") || said.contains("mount:") {
                return skipped("outputs on full disks", &format!("no file system can be mounted here: {said}"));
            }
            assert_eq!(output.status.code(), Some(code), "{line}, a {what} disk: {said}");
            let printed = text(&output.stdout);
            assert!(printed.ends_with("old0\n"), "{line}, a {what} disk: {printed}");
            assert!(said.contains("cannot write"), "{line}, a {what} disk: {said}");
        }
    }
}

#[test]
fn a_read_only_file_and_a_folder_of_others_are_left_as_they_are() {
    let place = Place::new();
    let is_root = rustix::process::geteuid().is_root();
    for (line, ending) in OUTPUTS {
        let line = line.replace('@', &format!("out/t.{ending}"));
        for (what, file_mode, folder_mode) in [("a read-only file", 0o444, 0o777), ("a folder of others", 0o666, 0o555)]
        {
            let (folder, target) = place.fresh(ending);
            fs::write(&target, "old").expect("written");
            fs::set_permissions(&target, fs::Permissions::from_mode(file_mode)).expect("set");
            fs::set_permissions(&folder, fs::Permissions::from_mode(folder_mode)).expect("set");
            let mut command = Command::new(if is_root { "setpriv" } else { "env" });
            let drop_root = ["--reuid=65534", "--regid=65534", "--clear-groups", "env"];
            command.args(drop_root.iter().take(if is_root { 4 } else { 0 })).arg(COMMGAUGE).args(line.split(' '));
            command.current_dir(place.0.path()).env("NO_COLOR", "1").stdin(Stdio::null());
            let output = match command.output() {
                Ok(output) if !text(&output.stderr).contains("setpriv") => output,
                other => return skipped("outputs of others", &format!("no other user can be taken: {other:?}")),
            };
            let said = text(&output.stderr);
            if said.contains("env: ") {
                return skipped("outputs of others", &format!("another user cannot start the program: {said}"));
            }
            assert_eq!(output.status.code(), Some(2), "{line}, {what}: {said}");
            assert_eq!(fs::read(&target).expect("read"), b"old", "{line}, {what}");
            assert!(left(&folder).is_empty(), "{line}, {what}");
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("set");
        }
    }
}

#[test]
fn the_ending_of_the_name_chooses_the_format_in_every_command() {
    let place = Place::new();
    for (line, ending, begin) in [
        ("report good.jsonl", "json", "{"),
        ("report good.jsonl", "csv", "case,"),
        ("report good.jsonl", "md", "#"),
        ("report good.jsonl", "prom", "# HELP"),
        ("report good.jsonl", "xml", "<?xml"),
        ("report good.jsonl", "HTML", "<!doctype html>"),
        ("judge --part thresholds good.jsonl --machine m.toml", "json", "{"),
        ("judge --part thresholds good.jsonl --machine m.toml", "xml", "<?xml"),
        ("judge --part thresholds good.jsonl --machine m.toml", "prom", "# HELP"),
        ("compare good.jsonl new.jsonl", "md", "#"),
        ("judge --part suspects good.jsonl", "json", "{"),
        ("history good.jsonl new.jsonl", "html", "<!doctype html>"),
        ("history good.jsonl new.jsonl", "csv", "run_id,"),
        ("rank call --fit fit.json --collective all_reduce --ranks 8 --bytes 1MiB", "csv", "collective,"),
    ] {
        let (_, target) = place.fresh(ending);
        let output = place.run(&format!("{line} -o out/t.{ending}"));
        let written = fs::read_to_string(&target).unwrap_or_else(|_| panic!("{line}: {}", text(&output.stderr)));
        let first = written.lines().next().unwrap_or_default();
        assert!(
            written.starts_with(begin) || begin.ends_with(',') && first.contains(begin),
            "{line} .{ending}: {first}"
        );
        let plain = place.run(&format!("{line} --format table -o out/t.{ending}"));
        let flag = fs::read_to_string(&target).expect("read");
        assert!(!flag.starts_with(begin) || begin == "#", "{line}: the flag wins: {}", text(&plain.stderr));
    }
    for (line, ending, words) in [
        ("report good.jsonl -o @", "pdf", "markdown (.md), junit (.xml), prometheus (.prom)"),
        ("judge --part thresholds good.jsonl --machine m.toml -o @", "csv", "table (.txt, .text, .log), json (.json)"),
        ("judge --part thresholds good.jsonl --template @", "json", "accepted: toml (.toml)"),
        ("judge --part suspects good.jsonl -o @", "html", "table (.txt, .text, .log), json (.json)"),
        (
            "judge --part suspects good.jsonl -o @",
            "prom",
            "suspects have no such format; accepted: table, json, markdown",
        ),
        ("judge good.jsonl -o @", "json", "choose one by --part"),
        ("calibrate h100.jsonl -o @", "csv", "accepted: json (.json)"),
        ("trace fr_trace_rank_0 -o @", "json", "accepted: toml (.toml)"),
        ("expect learn good.jsonl --name m --like h100-nvswitch-ndr -o @", "md", "accepted: toml (.toml)"),
        ("export --to csv --fit fit.json -o @", "json", "accepted: csv (.csv)"),
        ("import --from csv h100.csv -o @", "csv", "accepted: record (.jsonl)"),
    ] {
        let (_, target) = place.fresh(ending);
        let output = place.run(&line.replace('@', &format!("out/t.{ending}")));
        let said = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(output.status.code() == Some(2) && said.contains(words), "{line} .{ending}: {said}");
        assert!(!target.exists(), "{line} .{ending}");
    }
}
