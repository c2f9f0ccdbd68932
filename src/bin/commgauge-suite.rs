//! Runs everything that a suite file names, in one launch. Started by mpirun or srun, or by `commgauge run`.

use commgauge::cli::launched;
use commgauge::cli::work::SuiteRun;
use std::process::exit;

fn main() {
    commgauge::name_commit();
    exit(launched::run::<SuiteRun>("commgauge-suite"))
}
