//! Mistakes that people make on the command line, each with what the first line of the answer says to put it right.

use crate::offline::{commgauge, text};
use std::path::Path;

/// Of a record that is not there, and the like, the line says what was found.
const MISTAKES: &[(&str, &str)] = &[
    ("sweep", "did you mean `commgauge run --sweep all_reduce`?"),
    ("pairs", "did you mean `commgauge run --pairs`?"),
    ("step --model llama-3-8b", "did you mean `commgauge run --step"),
    ("all_reduce", "did you mean `commgauge run --sweep all_reduce`?"),
    ("quick", "did you mean `commgauge run quick`?"),
    ("gate r.jsonl", "did you mean `commgauge judge --part thresholds`?"),
    ("locate r.jsonl", "did you mean `commgauge judge --part suspects`?"),
    ("ru quick", "exists: 'run'"),
    ("reprot r.jsonl", "'report'"),
    ("doctr", "exists: 'doctor'"),
    ("run quik --dry-run", "did you mean quick?"),
    ("run nosuch.toml", "`commgauge show suites` names all"),
    ("run bad-key.toml", "bad-key.toml:3: measure.precison: unknown key; did you mean `precision`?"),
    (
        "run bad-call.toml",
        "bad-call.toml:3: sweep[0].collectives[0]: found collective `all_redue`; accepted: all_reduce",
    ),
    ("run quick -n 0", "0 is not in 1.."),
    ("run quick --backend ncl", "a similar value exists: 'nccl'"),
    ("run quick --repliactes 3", "exists: '--replicates'"),
    ("run quick --format jsn", "a similar value exists: 'json'"),
    ("run --sweep all_redue -n 2", "accepted: all_reduce, all_gather"),
    ("run --sweep all_reduce -n 2 -b 64MB", "write 64MiB (or 64M) or 64000000"),
    ("run --sweep all_reduce -n 2 -b 1M -e 1K", "the smallest size, 1 MiB, is above the largest, 1 KiB"),
    ("run --sweep all_reduce -n 2 -b 1K -e 1M -f 1", "accepted: 2 and more"),
    ("run --sweep all_reduce -n 2 --within 3", "accepted: a time with its unit"),
    ("run --sweep all_reduce -n 2 --within 3sec", "such as 300ns, 20us, 2ms, 1.5s"),
    ("run --sweep all_reduce -n 2 --replicates 0", "0 is not in 1..=1000"),
    ("run --sweep all_reduce -n 2 -d fp33", "accepted: int8, uint8"),
    ("run --sweep all_reduce -n 2 --placement inside", "a similar value exists: 'in'"),
    ("run --sweep all_reduce -n 2 --cadence both,streaming", "possible values: streaming, isolated, both"),
    ("report nosuch.jsonl", "cannot read the record nosuch.jsonl: No such file"),
    ("report empty.jsonl", "holds no complete line of a record"),
    ("report broken.jsonl", "is not a commgauge record: its first line is not a header"),
    ("report bad-key.toml", "is not a commgauge record"),
    ("report r.jsonl -o x.pdf", "accepted: table (.txt, .text, .log), json (.json)"),
    ("report r.jsonl -o r.jsonl", "is one of the inputs; name another file"),
    ("report r.jsonl --format yaml", "possible values: table, json, csv"),
    ("report r.jsonl --machine h100", "is for the page (-o report.html)"),
    ("judge r.jsonl --machine h100", "did you mean h100-nvswitch-ndr?"),
    ("judge r.jsonl --machine h100-nvswitch-ndr --confidence 0.95", "accepted: a number from 75"),
    ("judge r.jsonl --machine h100-nvswitch-ndr --part threshold", "a similar value exists: 'thresholds'"),
    ("compare r.jsonl", "name the record of the new run, or check r.jsonl"),
    ("compare r.jsonl nosuch.jsonl", "cannot read the record nosuch.jsonl"),
    ("history nosuch", "nosuch is no folder and no file"),
    ("history r.jsonl --confidence 95%", "accepted: a number from 75"),
    ("plan", "were not provided: --model <MODEL>; --gpu-memory <SIZE>; --gpus <N>"),
    ("plan --model llama-3-8b --gpus 64 --gpu-memory 80", "accepted: with its unit, such as 80GB"),
    ("show model lama", "did you mean llama-2-7b or llama-3-8b"),
    ("show suite quik", "did you mean quick?"),
    ("show layout --ranks 8 --tp 3", "nearest: 6 or 9, or write tp = 2 or 4"),
    ("show schema rekord", "a similar value exists: 'record'"),
    ("simulate quick", "were not provided: --machine <FILE|NAME>; --nodes <N>"),
    ("simulate quik --machine h100-nvswitch-ndr --nodes 1", "did you mean quick?"),
    ("simulate quick --machine h200 --nodes 1", "did you mean h200-nvswitch-ndr?"),
    ("simulate quick --machine h100-nvswitch-ndr --nodes 0", "0 is not in 1.."),
    ("simulate quick --machine h100-nvswitch-ndr --nodes 2 --fault lnk:0-1:rate=0.5", "accepted: node:17:rate=0.6"),
    ("simulate quick --machine h100-nvswitch-ndr --nodes 2 --fault link:0-9:rate=0.5", "the last node is 1"),
    ("import --from nccltests log.txt", "a similar value exists: 'nccl-tests'"),
    ("expect learn", "were not provided: --output <FILE>; --name <NAME>"),
    ("run quick -n two", "invalid value 'two' for '--ranks <RANKS>': accepted: a whole number"),
    ("run --sweep all_reduce -n 2 -b -8", "found `-8`, a negative size; accepted: a size such as 8, 512B"),
    ("qualfy", "did you mean `commgauge run qualify`?"),
    ("run --resume nosuch.jsonl", "--resume nosuch.jsonl: No such file"),
    ("show quik", "unrecognized subcommand 'quik'"),
];

/// The answers without a fix: they say what is wrong, and no more.
const WITHOUT_FIX: usize = 2;

#[test]
fn the_first_line_of_the_answer_to_a_mistake_says_how_to_put_it_right() {
    assert!(MISTAKES.len() - WITHOUT_FIX >= 57, "{}", MISTAKES.len());
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample-record.jsonl");
    std::fs::copy(sample, at.join("r.jsonl")).expect("the sample");
    for (name, content) in [
        ("bad-key.toml", "name = 'x'\n[measure]\nprecison = 0.1\n"),
        ("bad-call.toml", "name = 'x'\n[[sweep]]\ncollectives = ['all_redue']\nbytes = ['1KiB']\n"),
        ("broken.jsonl", "{\n"),
        ("empty.jsonl", ""),
    ] {
        std::fs::write(at.join(name), content).expect("a file");
    }
    let mut silent = Vec::new();
    for (line, fix) in MISTAKES {
        let output = commgauge(at, &line.split(' ').collect::<Vec<_>>());
        let said = text(&output.stderr);
        // What a plan or a rehearsal was read from comes before.
        let first = said.lines().find(|line| line.starts_with("error: ") || line.starts_with("commgauge: "));
        if output.status.code() != Some(2) || !first.is_some_and(|first| first.contains(fix)) {
            silent.push(format!("{line}: {:?} instead of {fix}: {said}", output.status.code()));
        }
    }
    assert!(silent.is_empty(), "{}", silent.join("\n"));
}
