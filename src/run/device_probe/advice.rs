//! Fixes for fatal error codes of the CUDA driver. The numbers are those of `CUresult` (cuda.h).

/// The fix for an error code, where one is known.
pub fn advice(code: i32) -> Option<&'static str> {
    Some(match code {
        34 => {
            "the libcuda.so that was found is the toolkit's stub, made for linking: take its folder (.../stubs) off LD_LIBRARY_PATH"
        }
        // Also if the device is in exclusive mode and used by another process.
        46 => {
            "another process has the device for itself (`nvidia-smi -q -d COMPUTE` shows the compute mode): end it, choose another device, \
             or let ranks share it through MPS (nvidia-cuda-mps-control -d)"
        }
        100 => "start the container with GPUs, and look at CUDA_VISIBLE_DEVICES and `nvidia-smi`",
        209 | 218 => "commgauge's kernels run from compute capability 7.5 on",
        214 => "the device's memory has failed: look at `nvidia-smi -q -d ECC,ROW_REMAPPER`, and reset or replace it",
        221 => {
            "libnvidia-ptxjitcompiler.so.1 of the driver is not there: in a container it comes with the capability `compute` \
             (NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
        }
        222 => "the driver is too old for commgauge's kernels, which want one of CUDA 10.2 or newer",
        223 => "commgauge's kernels are compiled by the driver: unset CUDA_DISABLE_PTX_JIT and CUDA_DISABLE_JIT",
        802 | 919 => {
            "the system is not ready for CUDA: on hosts with NVSwitch the fabric manager must run, of the driver's own version \
             (systemctl status nvidia-fabricmanager)"
        }
        803 => {
            "the driver's library is of another version than its kernel module: restart the host after an update, and let the \
             container take the library from the host"
        }
        804 => "this device takes no library of a newer CUDA than its driver: take .../cuda/compat off LD_LIBRARY_PATH",
        805..=809 => {
            "MPS does not serve this process: is the daemon of CUDA_MPS_PIPE_DIRECTORY alive, and of the same user? Without MPS: unset it, \
             or end the daemon (echo quit | nvidia-cuda-mps-control)"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_hosts_and_containers_have_a_fix_and_those_of_programs_none() {
        for (code, words) in [
            (34, "stubs"),
            (46, "compute mode"),
            (222, "too old"),
            (802, "fabric manager"),
            (804, "compat"),
            (807, "MPS"),
        ] {
            assert!(advice(code).is_some_and(|fix| fix.contains(words)), "{code}");
        }
        assert_eq!([0, 1, 2, 400, 700, 719].map(advice), [None; 6]);
    }
}
