//! All launched programs in one binary for packages, which would be four times as large otherwise. `COMMGAUGE_PROGRAM`
//! selects one; the wrapper scripts in packages set it.

use commgauge::cli::launched;
use commgauge::cli::work::{PairsRun, StepRun, SuiteRun, Sweep};
use commgauge::writing::eprintln;
use std::process::exit;

fn main() {
    commgauge::name_commit();
    let program = std::env::var("COMMGAUGE_PROGRAM").unwrap_or_default();
    exit(match program.as_str() {
        "commgauge-suite" => launched::run::<SuiteRun>("commgauge-suite"),
        "commgauge-step" => launched::run::<StepRun>("commgauge-step"),
        "commgauge-sweep" => launched::run::<Sweep>("commgauge-sweep"),
        "commgauge-pairs" => launched::run::<PairsRun>("commgauge-pairs"),
        _ => {
            eprintln!(
                "commgauge-ranks: COMMGAUGE_PROGRAM is \"{program}\"; it must name commgauge-suite, commgauge-step, \
                 commgauge-sweep or commgauge-pairs, which are started as programs of their own"
            );
            2
        }
    })
}
