"""The devices of nets: the flag `gpu`, and the solver's mode."""

from __future__ import annotations

import os
from typing import Any

import torch

import sirtaki.torch as hvd
from sirtaki_caffe.commands.flags import Flags
from sirtaki_caffe.commands.log import Log
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.parallel import Processes

_GPU = 1


def chosen(flags: Flags) -> list[int]:
    """Return the GPUs that the flag names.

    Raises:
        CaffeError: It is neither numbers nor `all`, or a GPU does not exist.
    """
    if not flags.gpu:
        return []
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if flags.gpu == "all":
        return list(range(there))
    try:
        numbers = [int(word) for word in flags.gpu.split(",")]
    except ValueError:
        raise CaffeError(f"--gpu={flags.gpu}: give numbers separated by commas, or all") from None
    wrong = [number for number in numbers if number < 0 or (there and number >= there)]
    if wrong:
        raise CaffeError(f"--gpu={flags.gpu}: there is no GPU {wrong[0]}, but {there} of them")
    return numbers


def device(flags: Flags, processes: Processes, log: Log, solver: Any = None) -> str:
    """Return the device of this process, and log it.

    Args:
        flags: The command line.
        processes: The training processes.
        log: The log.
        solver: A SolverParameter, whose mode applies without the flag.

    Raises:
        CaffeError: The flag is invalid.
    """
    wanted = chosen(flags)
    by_solver = solver is not None and solver.HasField("solver_mode") and solver.solver_mode == _GPU
    if not (flags.gpu or by_solver) or not torch.cuda.is_available():
        if flags.gpu or by_solver:
            asked = f"--gpu={flags.gpu}" if flags.gpu else "solver_mode: GPU"
            log.warning("caffe.cpp", f"{asked}: there is no GPU that PyTorch can use here")
        log.info("caffe.cpp", "Use CPU.")
        _share_cores(processes)
        return "cpu"
    if processes.size == 1 and len(wanted) > 1:
        raise CaffeError(
            f"--gpu={flags.gpu}: a process trains on one GPU; start one for each: "
            f"sirtaki run -np {len(wanted)} caffe … --gpu={flags.gpu}"
        )
    number = _of_process(wanted, solver, processes)
    log.info("caffe.cpp", f"Using GPUs {', '.join(map(str, wanted or [number]))}")
    log.info("caffe.cpp", f"GPU {number}: {torch.cuda.get_device_name(number)}")
    torch.cuda.set_device(number)
    return f"cuda:{number}"


def _share_cores(processes: Processes) -> None:
    """Divide a host's cores among its processes, unless the user has specified the number."""
    if processes.size == 1 or "OMP_NUM_THREADS" in os.environ:
        return
    share = max(1, (os.cpu_count() or 1) // hvd.local_size())
    torch.set_num_threads(min(share, len(os.sched_getaffinity(0))))


def _of_process(wanted: list[int], solver: Any, processes: Processes) -> int:
    """Return the GPU of this process: the processes of a host use them in turn."""
    place = hvd.local_rank() if processes.size > 1 else 0
    if wanted:
        return wanted[place % len(wanted)]
    return int((solver.device_id + place) % torch.cuda.device_count())
