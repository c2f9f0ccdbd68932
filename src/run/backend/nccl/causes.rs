//! Fixes for errors of NCCL whose own words name a cause on the host: memory, drivers, adapters, shared memory. NCCL's codes do not tell these
//! apart: most are `ncclUnhandledCudaError` or `ncclSystemError`.

use crate::device_probe::advice;

/// `CUresult` numbers of causes that the driver and NCCL share.
const DEVICE_UNAVAILABLE: i32 = 46;
const ECC_UNCORRECTABLE: i32 = 214;

/// What the words of NCCL, or of the CUDA runtime inside it, contain, and the fix. The words are those of its warnings (NCCL 2.30:
/// `src/include/checks.h`, `src/init.cc`, `src/os/linux.cc`, `src/misc/ibvwrap.cc`, `src/transport/net_ib/p2p.cc`, `src/transport/nvls.cc`).
const CAUSES: [(&str, &str); 11] = [
    (
        "driver version is insufficient",
        "this NCCL was built for a later CUDA than the driver serves (commgauge doctor shows both): install a newer driver, or NCCL for the \
         driver's CUDA, such as the Python package nvidia-nccl-cu12",
    ),
    (
        "no kernel image is available",
        "this NCCL has no code for this device (commgauge doctor shows which NCCL it is): take a build with its compute capability, or one for \
         a later CUDA",
    ),
    // A shared memory segment that is out of space is not the device's memory.
    (
        "shared memory segment",
        "NCCL's shared memory between ranks has no room: look at `df /dev/shm`, and start containers with more (docker run --shm-size=8g)",
    ),
    (
        "Multicast memory",
        "NVSwitch gave no multicast memory: is the fabric manager running (systemctl status nvidia-fabricmanager)? --nvls off does without",
    ),
    (
        "out of memory",
        "NCCL found no memory on the device for its own buffers: end what else uses the device (`nvidia-smi`), measure smaller sizes, or give \
         NCCL less (NCCL_BUFFSIZE, --max-ctas)",
    ),
    (
        "Duplicate GPU",
        "to this NCCL the ranks are on one GPU, as parts of one (MIG) are before 2.30: give each rank a GPU of its own, or take NCCL 2.30",
    ),
    ("same GPU/Partition", "give each rank a GPU, or a part of one, of its own; or use --share-gpu"),
    (
        "no socket interface found",
        "the hosts have no network between them that NCCL may use: look at `ip link`, and name one by NCCL_SOCKET_IFNAME",
    ),
    (
        "ibv_",
        "an adapter does not answer: look at `ibstat` and `ulimit -l` (it wants unlimited), or leave the adapter out by NCCL_IB_HCA=^NAME",
    ),
    (
        "Got completion from peer",
        "an adapter lost a message: a port or cable that is down, or one side that cannot reach the other (`ibstat`, `ibdiagnet`); leave the \
         adapter out by NCCL_IB_HCA=^NAME",
    ),
    (
        "connect to ",
        "a host does not reach the other over the network that NCCL chose: look at `ip link` and the firewall, and name another by \
         NCCL_SOCKET_IFNAME",
    ),
];

/// The fix for an error in NCCL's words, where they name its cause.
pub(super) fn fix(text: &str) -> Option<&'static str> {
    let of_driver = [("uncorrectable ECC", ECC_UNCORRECTABLE), ("busy or unavailable", DEVICE_UNAVAILABLE)];
    let shared = of_driver.into_iter().find(|(words, _)| text.contains(words)).and_then(|(_, code)| advice(code));
    shared.or_else(|| CAUSES.iter().find(|(words, _)| text.contains(words)).map(|(_, fix)| *fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_of_nccl_that_name_a_cause_have_its_fix_and_others_none() {
        for (said, words) in [
            ("Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'", "nvidia-nccl-cu12"),
            ("Cuda failure 'no kernel image is available for execution on the device'", "compute capability"),
            ("Cuda failure 2 'out of memory'", "NCCL_BUFFSIZE"),
            ("Cuda failure 'uncorrectable ECC error encountered'", "ROW_REMAPPER"),
            ("Cuda failure 'CUDA-capable device(s) is/are busy or unavailable'", "compute mode"),
            ("Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1", "--share-gpu"),
            ("Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 3b000", "MIG"),
            (
                "Error while creating shared memory segment /dev/shm/nccl-a1b2c3 (size 9637888), error: No space left on device (28)",
                "--shm-size",
            ),
            ("Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1", "NCCL_IB_HCA"),
            ("NET/IB: Got completion from peer 10.0.0.2<41234> with status=12 opcode=0 len=0 vendor err 129", "cable"),
            ("Bootstrap : no socket interface found", "NCCL_SOCKET_IFNAME"),
            (
                "socketPollConnect: connect to 10.0.0.2<5000> returned No route to host, exceeded error retry count after 35 attempts",
                "firewall",
            ),
            (
                "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 1 'invalid argument'",
                "--nvls off",
            ),
        ] {
            assert!(fix(said).is_some_and(|fix| fix.contains(words)), "{said}: {:?}", fix(said));
        }
        assert_eq!(fix("unhandled system error (run with NCCL_DEBUG=INFO for details)"), None);
    }
}
