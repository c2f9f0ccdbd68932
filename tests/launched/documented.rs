//! The commands of README and docs that start ranks, on this host, with the numbers of ranks and the budgets that their marks name.
//! Needs the launcher of the MPI that was built with.

use crate::blocks::How;
use crate::common::skipped;
use crate::documented_run::{by_page, carry_out, shell};
use commgauge::launch::Flavor;
use std::fs;
use std::path::Path;

#[test]
fn every_documented_command_that_starts_ranks_ends_as_documented() {
    if Flavor::of_this_build() == Some(Flavor::Mpich) {
        return skipped("the documented commands", "they have flags of Open MPI's mpirun");
    }
    let pages = by_page(|mark| mark.how == How::Launch);
    assert!(pages.len() > 2, "the pages are found: {pages:?}");
    let wrong: Vec<String> = pages.iter().flat_map(|blocks| carry_out(blocks, make)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// What the commands need beforehand.
fn make(name: &str, folder: &Path) {
    match name {
        "small-suite" => {
            let suite = "name = 'small'\n[measure]\nreplicates = 1\ncase_budget = '20ms'\n[[sweep]]\ncollectives = ['all_reduce']\nbytes = '1KiB'\n";
            fs::write(folder.join("small.toml"), suite).expect("the folder is writable");
        }
        // That of a run that was killed before its last case was written.
        "cut-record" => {
            let record = folder.join("sweep.jsonl");
            let text = fs::read_to_string(&record).expect("a block before this one wrote it");
            let cut = text.rfind("{\"line\":\"case\"").expect("it has cases");
            fs::write(&record, &text[..cut]).expect("the folder is writable");
        }
        other => {
            let command = match other {
                "sweep-record" => "mpirun -np 2 commgauge-sweep all_reduce -b 8 -e 64 -n 3 --record sweep.jsonl",
                "small-record" => "commgauge run small.toml -n 2 --record run.jsonl",
                _ => panic!("no fixture is called `{other}`"),
            };
            let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap_or_default());
            let output = shell(command, folder, &path).output().expect("a shell starts");
            assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
