//! Measures collectives over sizes; has the flags of nccl-tests. Started by mpirun or srun.

use commgauge::cli::launched;
use commgauge::cli::work::Sweep;
use std::process::exit;

fn main() {
    commgauge::name_commit();
    exit(launched::run::<Sweep>("commgauge-sweep"))
}
