//! The doctor on a host with stand-ins for a driver, NCCL and cuBLAS.

use crate::common::doubles;
use crate::doctor_document::{backend, doctor, found};

#[test]
fn devices_and_nccl_are_queried_and_stand_ins_are_marked() {
    let document = doctor(
        |command| {
            doubles::with_cublas(doubles::with_doubles(command, 2));
        },
        0,
    );
    let cublas = found(&document, "cuBLAS", "library");
    assert!(cublas.starts_with("fine: cuBLAS 12.8.4, ") && cublas.contains("libcublas.so"), "{cublas}");
    // The stand-ins have no NVML; a host with GPUs has its own.
    let nvml = found(&document, "Devices now (NVML)", "NVML");
    assert!(nvml.starts_with("fine: ") || nvml.starts_with("warning: it cannot be used: libnvidia-ml.so.1"), "{nvml}");
    let library = found(&document, "NCCL", "library");
    assert!(library.starts_with(&format!("fine: NCCL {}", doubles::NCCL_VERSION)), "{library}");
    assert!(found(&document, "CUDA", "device 1").starts_with("fine: "));
    assert!(found(&document, "CUDA", "libcuda").contains("a test double"));
    let nccl = backend(&document, "nccl");
    assert!(nccl["reason"].as_str().unwrap().contains("synthetic"), "{nccl}");
}
