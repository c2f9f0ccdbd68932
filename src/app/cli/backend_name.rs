//! The backends as flags name them.

/// The backends that can be requested by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Backend {
    /// Host memory over MPI.
    Mpi,
    /// No data, a virtual clock; runs in this process.
    Simulated,
    /// Device memory over NCCL, on GPUs.
    Nccl,
}

impl Backend {
    /// The name in flags.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Mpi => "mpi",
            Backend::Simulated => "simulated",
            Backend::Nccl => "nccl",
        }
    }
}
