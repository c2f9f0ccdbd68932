//! Backends that execute ops: MPI on host memory, a simulated fleet, and NCCL on GPU streams behind one contract.

mod contract;
mod counted;
mod device_reader;
mod local_work;
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
    AxisBytes, AxisTimes, Backend, BackendFacts, Binding, Call, HiddenCall, Marks, RankTimes, ReplayBinding, Replayer,
};
pub use device_reader::{DeviceIdentity, DeviceReader, DeviceState};
pub use local_work::LocalWork;
pub use mismatch::Mismatch;
pub use product::product_bytes;
