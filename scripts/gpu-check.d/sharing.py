"""Several ranks on one GPU: NVIDIA's MPS, in a folder of its own, for as long as the check runs."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import device
from launch import Missing

CONTROL = "nvidia-cuda-mps-control"
LONGEST_SECONDS = 20


class Sharing:
    """Where there are fewer GPUs than ranks, ranks are processes that would take turns; through MPS they run together."""

    def __init__(self, check, most_ranks):
        self.check, self.most_ranks, self.folder = check, most_ranks, None

    def __enter__(self):
        check = self.check
        if check.devices == 0 or self.most_ranks <= check.devices:
            return
        if "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
            check.note("MPS was running already, by CUDA_MPS_PIPE_DIRECTORY")
        elif shutil.which(CONTROL) is None:
            check.note(f"warning: there is no {CONTROL}; ranks that share a GPU take turns")
        else:
            self.start()

    def start(self):
        self.folder = tempfile.mkdtemp(prefix="gpu-check-mps-")
        mine = {"CUDA_MPS_PIPE_DIRECTORY": self.folder, "CUDA_MPS_LOG_DIRECTORY": self.folder}
        self.check.environment.update(mine)
        refused = self.daemon_refused() or self.refused()
        if refused is None:
            self.check.note("ranks that share a GPU run through MPS")
            return
        self.end()
        for name in mine:
            self.check.environment.pop(name)
        self.check.note(f"warning: MPS does not start ({refused}); ranks that share a GPU take turns")

    def daemon_refused(self):
        # Into a file: the daemon keeps what it was given open, and the end of a pipe would never come.
        words = Path(self.folder) / "control.txt"
        with open(words, "w") as to:
            try:
                ran = subprocess.run([CONTROL, "-d"], env=self.check.environment, stdin=subprocess.DEVNULL, stdout=to, stderr=to, timeout=LONGEST_SECONDS)
            except (OSError, subprocess.TimeoutExpired) as error:
                return str(error)
        return None if ran.returncode == 0 else words.read_text().strip() or f"code {ran.returncode}"

    def refused(self):
        """Why no process gets a GPU through MPS: the daemon answers at once, and its server starts with the first process."""
        try:
            said, why = device.query(self.check, min(LONGEST_SECONDS, self.check.left()), "use")
        except Missing as missing:
            return str(missing)
        return None if said is not None else why

    def __exit__(self, *_):
        if self.folder is not None:
            self.end()

    def end(self):
        try:
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            subprocess.run([CONTROL], input="quit\n", env=self.check.environment, text=True, timeout=LONGEST_SECONDS, **quiet)
        except (OSError, subprocess.TimeoutExpired) as error:
            self.check.note(f"warning: MPS was not ended: {error}")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder = None
