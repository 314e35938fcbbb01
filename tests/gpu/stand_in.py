"""Runs a check where there is no GPU: `stand_in.py SCRIPT [ARGUMENT …]`.

What the check puts on a GPU stays in CPU memory, and Gloo stands for NCCL. Streams and events exist
in name only: tests/parallel/device has an accelerator that does nothing before it must.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from unittest.mock import MagicMock

# The engine passes CPU tensors to PyTorch's Gloo as it passes those of a GPU to NCCL.
os.environ["SIRTAKI_BENCH_GLOO"] = "1"

import torch
from torch.overrides import TorchFunctionMode

_NAMES = ("Stream", "stream", "current_stream", "synchronize", "_sleep", "set_sync_debug_mode")


class InCpuMemory(TorchFunctionMode):
    """Puts on the CPU what a script puts on "cuda"."""

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if function is torch.Tensor.cuda:
            return args[0]
        if function == torch.Tensor.is_cuda.__get__:
            return True
        return function(*args, **{name: _place(value) for name, value in (kwargs or {}).items()})


def _place(value: object) -> object:
    return "cpu" if str(value).startswith("cuda") else value


def install() -> None:
    """Replace what the checks use of `torch.cuda`."""
    for name in _NAMES:
        setattr(torch.cuda, name, MagicMock())
    values = {"device_count": 1, "memory_allocated": 0, "set_device": None}
    for name, value in values.items():
        setattr(torch.cuda, name, MagicMock(return_value=value))
    for module, name in ((torch, "autocast"), (torch.amp, "GradScaler")):
        on_cpu = partial(getattr(module, name), "cpu")
        setattr(module, name, lambda _, on_cpu=on_cpu, **more: on_cpu(**more))
    InCpuMemory().__enter__()


if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    install()
    runpy.run_path(sys.argv[0], run_name="__main__")
