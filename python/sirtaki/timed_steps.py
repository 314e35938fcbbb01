"""Records the steps of PyTorch's optimizers, and the data backend, for `sirtaki bench compare`.

Like `sirtaki.autoload`, this module is imported with PyTorch itself, if `FOLDER` is set.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = "SIRTAKI_BENCH_FOLDER"
SIRTAKI, GLOO = "sirtaki", "gloo"
# Bytes of the padded backend name at the start of a process's file; times follow.
HEAD_BYTES = 16
TIME = struct.Struct("<d")


class Steps:
    """Writes the end time of each step of one process."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._depth = 0
        self._file: int | None = None

    def begin(self, *_: object) -> None:
        """Called before an optimizer steps; a wrapping optimizer steps inside."""
        self._depth += 1

    def end(self, *_: object) -> None:
        """Called after an optimizer has stepped."""
        self._depth -= 1
        if self._depth == 0:
            if self._file is None:
                self._file = self._open()
            os.write(self._file, TIME.pack(time.monotonic()))

    def _open(self) -> int:
        name = self._folder / f"steps-{os.getpid()}"
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.write(file, _mover().encode().ljust(HEAD_BYTES))
        return file


def _mover() -> str:
    """Return the backend of CPU tensors in this process, "" for none."""
    layer = sys.modules.get("sirtaki.torch.device.layer")
    state: Any = sys.modules.get("sirtaki.core.world.state")
    if layer is not None and state.is_initialized():
        return SIRTAKI if layer.devices["cpu"] is None else GLOO
    import torch
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        return ""
    world: Any = dist.group.WORLD
    backend = world._get_backend(torch.device("cpu"))
    return GLOO if type(backend).__name__ == "ProcessGroupGloo" else SIRTAKI


def note_steps(folder: str) -> None:
    """Record the step times of this process's optimizers in a file in a folder."""
    from torch.optim import optimizer

    steps = Steps(folder)
    optimizer.register_optimizer_step_pre_hook(steps.begin)
    optimizer.register_optimizer_step_post_hook(steps.end)
