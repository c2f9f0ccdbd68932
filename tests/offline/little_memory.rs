//! Readers in an address space that is too small: whichever allocation or thread fails, a command ends with a documented code or says what
//! it could not allocate, and an output is whole, not there, or a record that is cut off and says so.

use crate::common::COMMGAUGE;
use crate::offline::{commgauge, text};
use crate::records::{Made, machine};
use commgauge::record::Record;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

/// Limits between the one at which the program starts and the one at which it has enough.
const BRIEF_LIMITS: u64 = 7;
const LONG_LIMITS: u64 = 100;
const SIGABRT: i32 = 6;

/// Commands that read a format each, and write `@`.
const READERS: [(&str, &str); 9] = [
    ("report good.jsonl -o @", "html"),
    ("compare good.jsonl new.jsonl -o @", "json"),
    ("judge good.jsonl --machine m.toml -o @", "json"),
    ("history good.jsonl new.jsonl -o @", "csv"),
    ("calibrate h100.jsonl --resamples 0 -o @", "json"),
    ("import --from csv h100.csv -o @", "jsonl"),
    ("import --from imb imb-2021.txt --ranks-per-node 8 -o @", "jsonl"),
    ("trace kineto-rank0.json.gz kineto-rank1.json.gz kineto-rank2.json.gz kineto-rank3.json.gz --ops", "txt"),
    ("rank --machine h100-nvswitch-ndr --model gpt2 --tp 2 --dp 4 --sequence 1024 --global-batch 32 -o @", "json"),
];

fn with_memory(folder: &Path, kibibytes: u64, line: &str) -> Output {
    let script = format!("ulimit -v {kibibytes}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, COMMGAUGE]).args(line.split(' ')).current_dir(folder).env("RUST_BACKTRACE", "0");
    command.output().expect("sh starts")
}

/// The least memory between two limits with which a command does what is wanted, to within 64 KiB.
fn least_memory(mut low: u64, mut high: u64, is_enough: impl Fn(u64) -> bool) -> u64 {
    while high - low > 64 {
        let middle = low.midpoint(high);
        *(if is_enough(middle) { &mut high } else { &mut low }) = middle;
    }
    high
}

fn read_with_little_memory(limits: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    Made::steady("good", 3, 7, 1).write(&at("good.jsonl"));
    Made::steady("new", 3, 7, 2).write(&at("new.jsonl"));
    fs::write(at("m.toml"), machine("1GB/s")).expect("written");
    let mut samples = vec!["nccl/h100_sxm-nccl-2.29.2.csv".to_owned(), "foreign/imb-2021.txt".to_owned()];
    samples.extend((0..4).map(|rank| format!("traces/kineto-rank{rank}.json.gz")));
    for sample in &samples {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(sample);
        let name = from.file_name().expect("a name").to_string_lossy().replace("h100_sxm-nccl-2.29.2", "h100");
        fs::copy(&from, at(&name)).expect("the sample is there");
    }
    assert_eq!(
        commgauge(folder.path(), &["import", "--from", "csv", "h100.csv", "-o", "h100.jsonl"]).status.code(),
        Some(0)
    );
    let starts =
        least_memory(1 << 13, 1 << 20, |limit| with_memory(folder.path(), limit, "--version").status.success());
    let (mut codes, mut out_of_memory) = (0, 0);
    for (line, ending) in READERS {
        let out = at(&format!("out.{ending}"));
        let line = line.replace('@', &format!("out.{ending}"));
        let whole = commgauge(folder.path(), &line.split(' ').collect::<Vec<_>>());
        let reference = fs::read(&out).ok();
        let enough = least_memory(starts, 1 << 21, |limit| {
            let _ = fs::remove_file(&out);
            with_memory(folder.path(), limit, &line).status.code() == whole.status.code()
        });
        for limit in (0..limits).map(|step| starts + (enough - starts) * step / limits) {
            let _ = fs::remove_file(&out);
            let ran = with_memory(folder.path(), limit, &line);
            let said = text(&ran.stderr);
            let which = format!("{line}, with {limit} of {enough} KiB, {}: {said}", ran.status);
            match ran.status.code() {
                Some(code) => {
                    assert!((0..=7).contains(&code), "{which}");
                    codes += 1;
                }
                None => {
                    // Rust's words, and those of the C library.
                    let has_said_so =
                        ["memory allocation of", "out of memory"].iter().any(|words| said.contains(words));
                    assert!(has_said_so && ran.status.signal() == Some(SIGABRT), "{which}");
                    out_of_memory += 1;
                }
            }
            let written = fs::read(&out).ok();
            // Ids and times of a moment are in some.
            let bytes = |content: &Option<Vec<u8>>| content.as_ref().map_or(0, Vec::len);
            let is_whole = bytes(&written).abs_diff(bytes(&reference)) < 100;
            // A record is written line by line, and one without its end is read as what it is.
            let is_cut_off = ending == "jsonl" && !Record::read(&out).is_ok_and(|record| record.is_finished());
            let sizes = format!("{} of {} bytes", bytes(&written), bytes(&reference));
            assert!(written.is_none() || is_whole || is_cut_off, "{which}: {sizes}");
        }
    }
    eprintln!(
        "{} readers from {starts} KiB on: {codes} ended with a code, {out_of_memory} out of memory",
        READERS.len()
    );
    assert!(codes + out_of_memory > READERS.len());
}

#[test]
fn a_reader_without_memory_ends_with_a_code_or_says_so_and_leaves_no_part_of_an_output() {
    read_with_little_memory(BRIEF_LIMITS);
}

#[test]
#[ignore = "minutes: scripts/soak --power"]
fn a_reader_with_any_of_a_hundred_limits_of_memory_leaves_no_part_of_an_output() {
    read_with_little_memory(LONG_LIMITS);
}
