//! The backend on NCCL, through the stand-ins for libcuda and libnccl.

#![cfg(feature = "mpi")]

#[path = "../common/mod.rs"]
mod common;

mod cases;
mod doubles_in_use;
mod expected_of_tools;
mod faults;
mod gpu_check;
mod products;
mod unkind;
mod variants;
