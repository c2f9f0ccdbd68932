//! Backends that execute ops: MPI on host memory, a simulated fleet, and NCCL on GPU streams behind one contract.

mod contract;
mod counted;
mod device_reader;
mod mismatch;
#[cfg(feature = "mpi")]
pub mod mpi;
#[cfg(feature = "mpi")]
pub mod nccl;
mod product;
#[cfg(feature = "mpi")]
mod replay_place;
pub mod simulated;

pub use contract::{
    AxisBytes, AxisTimes, Backend, BackendFacts, Binding, Call, Marks, RankTimes, ReplayBinding, Replayer,
};
pub use device_reader::{DeviceIdentity, DeviceReader, DeviceState};
pub use mismatch::Mismatch;
pub use product::{Product, product_bytes};
