//! Height of the answer on each kind of page and of the page, in pixels of a window of 1280 x 900.

use super::{browser, open, probed};
use crate::offline::{commgauge, text};
use std::path::Path;

/// Twelve samples in three replicates, so that a rehearsal is short.
const MEASURING: &str =
    "[measure]\nminimum_samples = 12\nmaximum_samples = 12\ncase_budget = \"1min\"\nreplicates = 3\n";

const SWEEP: &str = "[[sweep]]\ncollectives = [\"all_reduce\", \"all_gather\", \"reduce_scatter\"]\nelement_types = [\"float32\"]\n\
    placements = [\"out-of-place\", \"in-place\"]\nbytes = { from = \"1KiB\", to = \"1GiB\", factor = 2 }\n";

const PAIRS: &str = "[pairs]\nbetween = \"nodes\"\n";

/// A kind of page: the commands that make `page.html`, what on it answers, and how high the page may be.
struct Kind {
    name: &'static str,
    commands: &'static [&'static str],
    answer: &'static str,
    highest: u32,
}

const SIMULATED: &str = "--machine h100-nvswitch-ndr --nodes 2 -o run.jsonl";

const KINDS: [Kind; 6] = [
    Kind {
        name: "quick",
        commands: &["simulate quick SIMULATED", "report run.jsonl -o page.html"],
        answer: "#answer figure",
        highest: 4_500,
    },
    Kind {
        name: "sweep",
        commands: &["simulate sweep.toml SIMULATED", "report run.jsonl -o page.html"],
        answer: "#answer figure",
        highest: 6_000,
    },
    Kind {
        name: "pairs",
        commands: &["simulate pairs.toml SIMULATED", "report run.jsonl -o page.html"],
        answer: "#answer strong",
        highest: 6_000,
    },
    Kind {
        name: "qualification",
        commands: &[
            "simulate qualify-gpu SIMULATED --fault link:0-1:rate=0.5",
            "report run.jsonl --machine h100-nvswitch-ndr -o page.html",
        ],
        answer: "#answer table",
        highest: 8_000,
    },
    Kind {
        name: "plan",
        commands: &["plan --model llama-3-8b --gpus 64 --gpu-memory 80GB --global-batch 256 --sequence 4096 \
             --machine h100-nvswitch-ndr -o page.html"],
        answer: "#answer figure",
        highest: 4_500,
    },
    Kind { name: "history", commands: &["history runs -o page.html"], answer: "#answer .badge", highest: 6_000 },
];

/// The lower edge of the first such element, and the height of the page.
fn measured(browser: &str, folder: &Path, answer: &str) -> (u32, u32) {
    let page = std::fs::read_to_string(folder.join("page.html")).expect("the page");
    let script = format!(
        "<script>document.title='AT '+Math.round(document.querySelector('{answer}').getBoundingClientRect().bottom)+' OF '\
         +document.documentElement.scrollHeight+' END'</script></body>"
    );
    let probe = super::probe();
    std::fs::write(folder.join("measured.html"), probed(&page, false).replace(&probe, "").replace("</body>", &script))
        .expect("a copy");
    let (dom, log) = open(browser, &folder.join("measured.html"), folder, &["--window-size=1280,900"]);
    let found = dom.split_once("AT ").and_then(|(_, rest)| rest.split_once(" END"));
    let (found, _) = found.unwrap_or_else(|| panic!("nothing measured: {log}"));
    let (bottom, height) = found.split_once(" OF ").expect("two numbers");
    (bottom.parse().expect("a number"), height.parse().expect("a number"))
}

#[test]
fn the_answer_of_each_kind_of_page_is_on_the_first_screen() {
    let Some(browser) = browser() else { return };
    for Kind { name, commands, answer, highest } in KINDS {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        for (file, parts) in [("sweep.toml", SWEEP), ("pairs.toml", PAIRS)] {
            std::fs::write(at.join(file), format!("name = \"{name}\"\n{MEASURING}{parts}")).expect("a suite");
        }
        std::fs::create_dir(at.join("runs")).expect("a folder");
        for day in 1..=12 {
            let factor = if day > 7 { 1.2 } else { 1.0 };
            std::fs::write(at.join(format!("runs/{day}.jsonl")), crate::history::run(day, factor)).expect("a run");
        }
        for command in commands {
            let command = command.replace("SIMULATED", SIMULATED);
            let output = commgauge(at, &command.split_whitespace().collect::<Vec<_>>());
            assert!(
                output.status.code() < Some(2) || at.join("run.jsonl").exists(),
                "{name}: {}",
                text(&output.stderr)
            );
        }
        let (bottom, height) = measured(browser, at, answer);
        eprintln!("{name}: the answer ends at {bottom} px of {height}");
        assert!(bottom < 700, "{name}: the answer ends at {bottom} px");
        assert!(height < highest, "{name}: {height} px high");
    }
}
