//! Measures the communication of a model's training or serving step, op by op. Started by mpirun or srun, or by `commgauge run`.

use commgauge::cli::launched;
use commgauge::cli::work::StepRun;
use std::process::exit;

fn main() {
    commgauge::name_commit();
    exit(launched::run::<StepRun>("commgauge-step"))
}
