//! `commgauge doctor`: reports what can run on this machine, what is missing, and how to fix it.

use super::launched_arguments::Backend;
use super::output::{AnswerArguments, print};
use crate::doctor::{DoctorDocument, Machine, doctor_text, examine};
use commgauge_base::error::Result;
use commgauge_base::writing::eprintln;
use commgauge_run::device_probe::{self, Probe};
use std::path::PathBuf;

/// Show what of commgauge can run on this machine, what is missing, and how to fix it
#[derive(Clone, Debug, Default, clap::Args)]
#[command(
    after_long_help = "Examples:\n    commgauge doctor\n    commgauge doctor --backend nccl   (exit code 6 where it cannot run here)\n\nIt looks at this host only; `commgauge run --check-launch` compares all hosts of a launch."
)]
pub struct DoctorCommand {
    /// End with exit code 6 unless this backend can run here
    #[arg(long, value_enum)]
    pub backend: Option<Backend>,

    /// NCCL's file; without it libnccl.so.2, then libnccl.so, from where the system looks for libraries, then from the Python packages of
    /// the environment that commgauge is installed in
    #[arg(long, value_name = "FILE", env = "COMMGAUGE_NCCL_LIBRARY", hide_short_help = true)]
    pub nccl_library: Option<PathBuf>,

    /// The file of cuBLAS; without it libcublas.so.13, then .12, from where the system looks for libraries
    #[arg(long, value_name = "FILE", env = "COMMGAUGE_CUBLAS_LIBRARY", hide_short_help = true)]
    pub cublas_library: Option<PathBuf>,

    /// Load a library in this process and print what it says: for the doctor itself, which survives it
    #[arg(long, hide = true, value_parser = commgauge_base::error::named::<Probe>)]
    pub probe: Option<Probe>,

    /// How the answer is shown.
    #[command(flatten)]
    pub shown: AnswerArguments,
}

impl DoctorCommand {
    /// Runs the checks and prints the result. The exit code is 0 unless a backend was requested that cannot run here.
    pub fn execute(&self) -> Result<i32> {
        if let Some(probe) = self.probe {
            return self.probe(probe);
        }
        let machine = Machine { nccl_library: self.nccl_library.clone(), cublas_library: self.cublas_library.clone() };
        let document = examine(&machine);
        self.shown.show(&document, |width| doctor_text(&document, width))?;
        Ok(self.exit_code(&document))
    }

    fn probe(&self, probe: Probe) -> Result<i32> {
        let named = match probe {
            Probe::Nccl => self.nccl_library.as_deref(),
            Probe::Cublas => self.cublas_library.as_deref(),
            Probe::Cuda | Probe::Nvml => None,
        };
        match device_probe::answer(probe, named) {
            Ok(text) => print(&(text + "\n")).map(|()| 0),
            Err(reason) => {
                eprintln!("{reason}");
                Ok(6)
            }
        }
    }

    fn exit_code(&self, document: &DoctorDocument) -> i32 {
        use clap::ValueEnum;
        let Some(requested) = self.backend.and_then(|backend| backend.to_possible_value()) else { return 0 };
        let ready = document.backends.iter().any(|backend| backend.name == requested.get_name() && backend.ready);
        if ready { 0 } else { 6 }
    }
}
