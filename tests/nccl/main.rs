//! The backend on NCCL, through the stand-ins for libcuda and libnccl.

#![cfg(feature = "mpi")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/doctor_document.rs"]
mod doctor_document;

mod bad_hosts;
mod cases;
mod copies;
mod doctor;
mod doubles_in_use;
mod evidence;
mod expected_of_tools;
mod faults;
mod gpu_check;
mod pairs;
mod perftest;
mod products;
mod ranks;
mod unkind;
mod uses;
mod variants;
