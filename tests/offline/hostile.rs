//! Names from files, hosts and flags that would act on a terminal, given to every command. Needs nothing.

use crate::offline::commgauge;
use crate::records::{Made, machine, write};
use commgauge::cli::show::ProgramName;
use commgauge::record::Line;
use commgauge::record::line::CaseLine;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Sets the title of a terminal, clears it, forges a line, reorders what is read.
const HOSTILE: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\r\u{202e}\u{8}x";

/// A record in which every free text of the header and of a case is hostile.
fn hostile_record(run_id: &str, seed: u64) -> Vec<Line> {
    let text = || format!("a{HOSTILE}");
    let mut lines = Made::steady(&format!("{run_id}{HOSTILE}"), 3, 6, seed).lines();
    if let Line::Header(header) = &mut lines[0] {
        header.backend.library = text();
        header.backend.transport = Some(text());
        (header.suite.name, header.suite.path, header.suite.model) = (text(), Some(text()), Some(text()));
        header.command_line = vec![text()];
        header.environment = [(format!("NCCL_{HOSTILE}"), text())].into();
        (header.warnings, header.notes) = (vec![text()], vec![text()]);
        for rank in &mut header.ranks {
            (rank.host, rank.processor, rank.kernel) = (text(), text(), text());
            (rank.cores, rank.device) = (text(), Some(text()));
        }
    }
    if let Line::Plan(plan) = &mut lines[1] {
        plan.cases.iter_mut().for_each(|case| {
            case.name += HOSTILE;
            case.labels.insert(format!("tool{HOSTILE}"), text());
        });
    }
    for line in &mut lines {
        if let Line::Case(case) = line {
            let CaseLine { name, warnings, .. } = &mut **case;
            *name = format!("{name}{HOSTILE}").into();
            warnings.push(text());
        }
    }
    lines
}

fn fill(folder: &Path) {
    let put = |name: &str, text: &str| fs::write(folder.join(name), text).expect("written");
    write(&folder.join("a.jsonl"), &hostile_record("a", 1));
    write(&folder.join("b.jsonl"), &hostile_record("b", 2));
    write(&folder.join(format!("{HOSTILE}.jsonl")), &hostile_record("c", 3));
    put(&format!("{HOSTILE}.txt"), "no record\n");
    put("broken.jsonl", &format!("{{\"format\":\"commgauge-record\",\"version\":1,\"line\":\"{HOSTILE}\"}}\n"));
    put("machine.toml", &machine("1GB/s"));
    put(
        "hostile.toml",
        &format!("name = \"h{}\"\n\"{}\" = 1\n", HOSTILE.escape_unicode_toml(), HOSTILE.escape_unicode_toml()),
    );
    put("raw.toml", &format!("name = '{HOSTILE}'\n"));
    put("suite.toml", &format!("name = \"{0}\"\n[[sweep]]\naxis = \"{0}\"\n", HOSTILE.escape_unicode_toml()));
    put(
        "config.json",
        &format!("{{\"model_type\": \"llama\", \"hidden_size\": \"{}\"}}", "\\u001b[2J\\u009b31m\\u202e"),
    );
    put("family.json", &format!("{{\"model_type\": \"{}\"}}", "\\u001b[2J\\u009b31m\\u202e"));
    put("twice.json", "{\"\\u001b[2J\": 1, \"\\u001b[2J\": 2}");
    let call = |name: &str| {
        format!(
            "{{\"record_id\": 0, \"process_group\": [\"{escaped}\", \"\"], \"profiling_name\": \"{name}\", \"input_sizes\": [[4]], \
             \"input_dtypes\": [\"Float\"], \"output_sizes\": [[4]], \"output_dtypes\": [\"Float\"]}}",
            escaped = "\\u001b[2J\\u202e"
        )
    };
    put(
        "rank0.json",
        &format!("{{\"version\": \"2\", \"entries\": [{}, {}]}}", call("nccl:all_reduce"), call("\\u001b[2Jx")),
    );
    put("fit.json", &format!("{{\"format\": \"{}\"}}", "\\u001b[2J"));
    put(
        "log.txt",
        &format!(
            "# nThread 1 nGpus 2 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 1 iters: 1 agg iters: 1 validation: 1 graph: 0\n\
             # Collective test starting: all_reduce_perf\n\
             #  Rank  0 Group  0 Pid 1 on h{HOSTILE} device  0 [0x07] {HOSTILE}\n#  Rank  1 Group  0 Pid 1 on h{HOSTILE} device  1 [0x08] {HOSTILE}\n\
             #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n\
             1048576 262144 float sum -1 10.0 104.9 104.9 0 10.0 104.9 104.9 0\n {HOSTILE} 262144 float sum -1 10.0 0.1 0.1 0 10.0 0.1 0.1 0\n"
        ),
    );
    put(
        "times.csv",
        &format!("collective,dtype,ranks,bytes_total,latency_us,{HOSTILE}\n{HOSTILE},half,2,8,1,{HOSTILE}\n"),
    );
}

/// The text as a basic string of TOML can hold it.
trait EscapeUnicodeToml {
    fn escape_unicode_toml(&self) -> String;
}

impl EscapeUnicodeToml for str {
    fn escape_unicode_toml(&self) -> String {
        self.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect()
    }
}

/// Words between blanks; `@` is the hostile text.
const COMMANDS: &[&str] = &[
    "run suite.toml -n 2 --dry-run",
    "run @ -n 2 --dry-run",
    "run --sweep all_reduce -b 8 -e 64 -n 2 --dry-run --backend simulated --machine @",
    "run --sweep all_reduce -b 8 -e 64 -n 2 --dry-run --launcher-arg=@ --record @.r",
    "run --resume broken.jsonl",
    "run --resume @.txt",
    "run --resume a.jsonl --dry-run",
    "run --@",
    "ops @ --tp 2",
    "ops config.json --tp 2",
    "trace rank0.json",
    "trace rank0.json --ops fit.json",
    "trace rank0.json -o @.toml",
    "trace rank0.json --format json",
    "trace rank0.json --format csv",
    "trace rank0.json --fit fit.json",
    "trace rank0.json --ops @ --fit @",
    "trace @.txt",
    "judge --part thresholds a.jsonl b.jsonl --machine machine.toml",
    "judge --part thresholds a.jsonl --machine @",
    "judge --part thresholds a.jsonl --machine hostile.toml",
    "judge --part thresholds a.jsonl --machine raw.toml",
    "judge --part thresholds @.jsonl --machine machine.toml --format markdown",
    "judge --part thresholds a.jsonl --machine machine.toml --format json",
    "judge --part thresholds a.jsonl --machine machine.toml --format junit",
    "judge --part thresholds a.jsonl --machine machine.toml --format prometheus",
    "judge --part thresholds @.txt",
    "judge a.jsonl --machine machine.toml",
    "judge @.jsonl --machine @",
    "compare a.jsonl b.jsonl",
    "compare a.jsonl",
    "compare a.jsonl @.jsonl --format markdown",
    "compare a.jsonl @.txt",
    "history .",
    "history . --all --format csv",
    "history . --all --format json",
    "history @",
    "history add a.jsonl b.jsonl @.jsonl --store fleet",
    "history add @.txt broken.jsonl --store fleet",
    "history add a.jsonl --store @",
    "history --store fleet --all",
    "history --store fleet --all --format json",
    "history --store fleet --all --format csv",
    "history --store fleet --all --format markdown",
    "history --store fleet --all --format junit",
    "history --store fleet --case @ --suite @",
    "history --store @",
    "history rebuild --store fleet",
    "history rebuild --store @",
    "expect check hostile.toml",
    "expect check raw.toml machine.toml @",
    "expect learn a.jsonl b.jsonl --name m -o learned.toml",
    "judge --part suspects a.jsonl",
    "judge --part suspects a.jsonl --format json",
    "judge --part suspects @.txt",
    "report a.jsonl --width 200",
    "report a.jsonl --format json",
    "report a.jsonl --format csv",
    "report a.jsonl --format markdown",
    "report a.jsonl --format nccl-tests",
    "report a.jsonl --format osu",
    "report a.jsonl --format imb",
    "report a.jsonl --format junit",
    "report a.jsonl --format prometheus",
    "report a.jsonl --format superbench",
    "report @.jsonl",
    "report broken.jsonl",
    "show model config.json",
    "show model family.json",
    "show model twice.json",
    "show model @",
    "show layout @",
    "show layout --tp 2 --dp 2 --ranks-per-node 2 --axis @",
    "import --from nccl-tests log.txt -o i1.jsonl",
    "import --from nccl-tests log.txt -o i2.jsonl --skip-bad-lines",
    "report i2.jsonl",
    "import --from csv times.csv -o i3.jsonl",
    "import --from commgauge @.jsonl -o i4.jsonl",
    "import --from osu @.txt -o @",
    "calibrate a.jsonl -o f.json",
    "calibrate @.txt -o f2.json",
    "export f.json --format @",
    "export @ --format astra-sim",
    "rank call fit.json --all-reduce 8",
    "rank call f.json --collective all_reduce --bytes 1MiB --ranks 4 --locality @",
    "rank @ --tp 2",
    "plan @ --gpus 8",
    "plan config.json --gpus 8 --machine @",
    "plan validate @",
    "expect selftest --history @",
    "selftest @",
    "simulate suite.toml --machine machine.toml --nodes 2",
    "simulate @ --machine @ --nodes 2",
    "calibrate measure --model @ --gpus 2 --ranks-per-node 2 --gpu-memory 8GB --global-batch 8 --sequence 64",
    "calibrate measure --model gpt2 --gpus 2 --ranks-per-node 2 --gpu-memory 8GB --global-batch 8 --sequence 64 -o @ --suite-only",
    "calibrate measure --model gpt2 --gpus 2 --ranks-per-node 2 --gpu-memory 8GB --global-batch 8 --sequence 64 -o x -- --@",
    "show schema @",
    "show @",
    "show @",
    "doctor --@",
    "completions @",
    "man @",
    "@",
    "help @",
];

#[test]
fn no_command_passes_a_control_character_of_a_name_to_the_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    fill(folder.path());
    let mut shown_somewhere = BTreeSet::new();
    for line in COMMANDS {
        let owned: Vec<String> = line.split(' ').map(|word| word.replace('@', HOSTILE)).collect();
        let words: Vec<&str> = owned.iter().map(String::as_str).collect();
        let output = commgauge(folder.path(), &words);
        for (stream, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
            let text = std::str::from_utf8(bytes).expect("UTF-8");
            let acts = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || c == '\u{202e}';
            let bad = text.lines().find(|line| line.contains(acts));
            assert_eq!(bad.map(str::escape_debug).map(String::from_iter), None, "commgauge {line}: {stream}");
            if text.contains("1b}") || text.contains("202e") || text.contains("u001b") {
                shown_somewhere.insert(line.split(' ').next().unwrap_or_default());
            }
        }
        assert_ne!(output.status.code(), Some(101), "commgauge {line} panicked");
    }
    // The corpus reaches what commands print: hostile texts arrive, written out.
    for command in ["run", "judge", "compare", "history", "report", "show", "import"] {
        assert!(shown_somewhere.contains(command), "no hostile text arrives in what `{command}` prints");
    }
    let definition = ProgramName::Commgauge.definition();
    let commands = definition.get_subcommands().map(clap::Command::get_name);
    let missing: Vec<&str> =
        commands.filter(|name| !COMMANDS.iter().any(|line| line.split(' ').next() == Some(*name))).collect();
    assert_eq!(missing, Vec::<&str>::new(), "commands without a line in the corpus");
}

#[test]
fn a_line_feed_in_a_name_begins_no_line_of_what_any_command_prints() {
    const NAME: &str = "x\nFORGED";
    let folder = tempfile::tempdir().expect("a folder");
    fill(folder.path());
    write(&folder.path().join(format!("{NAME}.jsonl")), &hostile_record("d", 4));
    fs::write(folder.path().join(format!("{NAME}.txt")), "no record\n").expect("written");
    fs::create_dir(folder.path().join(NAME)).expect("a folder");
    let mut forged = Vec::new();
    let mut arrived = 0;
    for line in COMMANDS {
        let owned: Vec<String> = line.split(' ').map(|word| word.replace('@', NAME)).collect();
        let words: Vec<&str> = owned.iter().map(String::as_str).collect();
        let output = commgauge(folder.path(), &words);
        for (stream, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
            let text = String::from_utf8_lossy(bytes);
            arrived += usize::from(text.contains("x\\nFORGED") || text.contains("x\\012FORGED"));
            if text.lines().any(|line| line.starts_with("FORGED")) {
                forged.push(format!("commgauge {line}: {stream}: {text}"));
            }
        }
    }
    assert!(forged.is_empty(), "{}", forged.join("\n"));
    assert!(arrived > 10, "names arrive in what is printed, written out: {arrived}");
}

#[test]
fn text_is_not_written_under_the_name_of_a_page_unless_it_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    fill(folder.path());
    for line in [
        "judge --part thresholds a.jsonl --machine machine.toml -o x.html",
        "compare a.jsonl b.jsonl -o x.HTM",
        "judge --part suspects a.jsonl -o x.html",
    ] {
        let output = commgauge(folder.path(), &line.split(' ').collect::<Vec<_>>());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains("no format for files that end in"), "{line}: {said}");
        assert!(!folder.path().join("x.html").exists());
    }
}

#[test]
fn pipes_and_devices_are_refused_as_input_and_never_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status().expect("mkfifo");
    assert!(made.success());
    std::fs::copy(
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/sample-record.jsonl"),
        folder.path().join("a.jsonl"),
    )
    .expect("copied");
    for line in [
        "report pipe",
        "judge pipe",
        "compare pipe pipe",
        "show model pipe",
        "show model /dev/zero",
        "run --resume pipe",
        "run pipe -n 2 --dry-run",
        "judge --part thresholds a.jsonl --machine pipe",
        "import --from nccl-tests pipe -o r.jsonl",
        "import --from csv /dev/zero -o r.jsonl",
        "import --from commgauge pipe -o r.jsonl",
        "calibrate pipe -o f.json",
        "rank call --fit pipe --queries q.csv",
        "plan validate --runs pipe --fit pipe",
        "plan --fit pipe --model llama-3-8b --gpus 8 --ranks-per-node 8 --gpu-memory 80GB --global-batch 64 --sequence 8192",
        "export --to calculon --fit pipe --output o.json",
    ] {
        let output = commgauge(folder.path(), &line.split(' ').collect::<Vec<_>>());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        let words = ["it is a pipe; accepted: a file", "it is a device; accepted: a file", "this is not a file"];
        assert!(words.iter().any(|words| said.contains(words)), "{line}: {said}");
    }
}
