//! What a ranking looks like at 80 and 140 columns and as CSV; the words that must not be missed.

use super::*;
use commgauge_analysis::planner::rank::RankOptions;
use commgauge_analysis::planner::rates::Published;
use commgauge_model::config::{LayoutTable, Machine, Suite};
use commgauge_model::workload::step::Step;
use std::path::Path;

fn document() -> RankDocument {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = "[model]\npreset = 'llama-3-8b'\n[training]\nsequence = 8192\nglobal_batch = 16\n\
                [layout]\ntp = 2\npp = 2\ndp = 4\n";
    let table: LayoutTable = Suite::parse(&root.join("suites/test.toml"), text).unwrap().layouts.remove(0);
    let steps = Step::all_of(&table, 16).unwrap();
    let machine = Machine::load(&root.join("suites/machines/h100-nvswitch-ndr.toml")).unwrap();
    RankDocument::new(&steps[0], 8, &Published::new(&machine), RankOptions::default()).unwrap()
}

#[test]
fn synthetic_or_uncalibrated_results_are_marked_first() {
    let document = document();
    assert!(text(&document, 100).starts_with("NOT CALIBRATED"));
    assert!(text(&RankDocument { synthetic: true, calibrated: true, ..document }, 100).starts_with("SYNTHETIC"));
}

#[test]
fn a_ranking_reads_well_at_80_and_140_columns_and_as_csv() {
    let document = document();
    for width in [80, 140] {
        insta::assert_snapshot!(format!("rank_{width}"), text(&document, width));
    }
    insta::assert_snapshot!("rank_csv", csv(&document).unwrap());
}
