"""Several ranks on one GPU: how many GPUs there are, and NVIDIA's MPS, in a folder of its own, for as long as the check runs."""

import ctypes
import os
import shutil
import subprocess
import tempfile

CONTROL = "nvidia-cuda-mps-control"


class Sharing:
    """Where there are fewer GPUs than ranks, ranks are processes that would take turns; through MPS they run together."""

    def __init__(self, check, most_ranks):
        self.check, self.most_ranks, self.folder = check, most_ranks, None

    def __enter__(self):
        check = self.check
        check.devices = devices()
        if check.devices == 0 or self.most_ranks <= check.devices:
            return
        if "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
            check.note("MPS was running already, by CUDA_MPS_PIPE_DIRECTORY")
        elif shutil.which(CONTROL) is None:
            check.note(f"doubt: there is no {CONTROL}; ranks that share a GPU take turns")
        else:
            self.start()

    def start(self):
        self.folder = tempfile.mkdtemp(prefix="gpu-check-mps-")
        mine = {"CUDA_MPS_PIPE_DIRECTORY": self.folder, "CUDA_MPS_LOG_DIRECTORY": self.folder}
        self.check.environment.update(mine)
        ran = subprocess.run([CONTROL, "-d"], env=self.check.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
        if ran.returncode == 0:
            self.check.note("ranks that share a GPU run through MPS")
            return
        for name in mine:
            self.check.environment.pop(name)
        self.check.note(f"doubt: MPS does not start ({ran.stderr.strip() or ran.returncode}); ranks that share a GPU take turns")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder = None

    def __exit__(self, *_):
        if self.folder is None:
            return
        try:
            subprocess.run([CONTROL], input="quit\n", env=self.check.environment, capture_output=True, text=True, timeout=20)
        except subprocess.TimeoutExpired:
            self.check.note("doubt: MPS did not end within 20 s")
        shutil.rmtree(self.folder, ignore_errors=True)


def devices():
    """GPUs that this process may see; 0 also where there is no driver."""
    count = ctypes.c_int()
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value
