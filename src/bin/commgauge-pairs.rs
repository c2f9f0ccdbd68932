//! Measures latency and bandwidth between every two ranks. Started by mpirun or srun, or by `commgauge run`.

use commgauge::cli::launched;
use commgauge::cli::work::PairsRun;
use std::process::exit;

fn main() {
    commgauge::name_commit();
    exit(launched::run::<PairsRun>("commgauge-pairs"))
}
