"""What on this host would spoil the check before anything is measured: a bundle for other GPUs, little shared memory, a GPU that is
another's."""

import shutil

import bundle

# Values of CUcomputemode.
PROHIBITED, EXCLUSIVE = 2, 3
# NCCL's shared memory between two ranks is some 10 MB for each channel where GPUs do not reach each other directly.
SHARED_MEMORY_BYTES_PER_RANK = 128 << 20


def look(check, folder, most_ranks):
    findings = [(7, misfit) for misfit in bundle.misfits(folder, check.environment, check.gpus)]
    if (folder / "bundle.json").exists():
        for nccl in bundle.other_nccls():
            check.note(f"another NCCL is here: where that of the bundle misbehaves, COMMGAUGE_NCCL_LIBRARY={nccl} gpu-check runs on it")
    modes = {gpu["compute_mode"] for gpu in check.gpus["devices"]}
    if PROHIBITED in modes or (EXCLUSIVE in modes and most_ranks > check.devices and "CUDA_MPS_PIPE_DIRECTORY" not in check.environment):
        findings.append((7, "a GPU is in a compute mode that lets no process, or one alone, have it: nvidia-smi -c DEFAULT, or choose others with "
                        "CUDA_VISIBLE_DEVICES"))
    try:
        free = shutil.disk_usage("/dev/shm").free
    except OSError as error:
        check.note(f"warning: /dev/shm cannot be used ({error}); NCCL and MPI pass data between processes through it")
    else:
        if free < most_ranks * SHARED_MEMORY_BYTES_PER_RANK:
            check.note(f"warning: {free >> 20} MiB are free in /dev/shm; NCCL may want {most_ranks * SHARED_MEMORY_BYTES_PER_RANK >> 20} MiB for "
                       f"{most_ranks} ranks (docker run --shm-size=8g)")
    return findings or [(0, "nothing speaks against it")]
