"""What Sirtaki costs beside the reduction itself: Adasum, a step, joining, the C interface.

python benchmarks/overheads.py
"""

from __future__ import annotations

import argparse
import ctypes
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from models import Convolutions
from output import RESULTS, write_result
from train_rank import training_step

import sirtaki.torch as hvd
from sirtaki import ffi
from sirtaki.core.world.state import current_world
from sirtaki.launch.api import run
from sirtaki.observe.contenders import Run, timed
from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import Quantiles, interleave, show_seconds
from sirtaki.rendezvous.words import aligned

_MIB = 1 << 20
_REJOINED = 105
_SUBMITTED = 2000


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=64, help="of the array summed (64)")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender (7)")
    parser.add_argument("--output", default=str(RESULTS), help="folder of overheads.json")
    args = parser.parse_args(arguments)
    facts = machine_facts()
    tables = {
        f"{args.mib} MiB of float32, 2 ranks": run(_adasum, (args.mib, args.rounds), num_proc=2)[0],
        "a step of 20 convolutions, batch 2, 1 rank": run(_step, (args.rounds,), num_proc=1)[0],
        f"{_REJOINED} times init() and shutdown(), 2 ranks": run(_rejoin, num_proc=2)[0],
        "init() on the links of the last world, 4 ranks": run(_renew, num_proc=4)[0],
        "one number submitted and waited for, 1 rank": run(_submit, (args.rounds,), num_proc=1)[0],
    }
    for title, table in tables.items():
        rows = [[name, show_seconds(taken["median"])] for name, taken in table.items()]
        print(title, *aligned(rows), sep="\n", end="\n\n")
    result = {
        "benchmark": "overheads",
        "command": shlex.join(["python", "benchmarks/overheads.py", *arguments]),
        "machine": facts,
        "tables": tables,
    }
    write_result(Path(args.output) / "overheads.json", result)
    return 0


def _adasum(mib: int, rounds: int) -> dict[str, Quantiles]:
    """Measure Adasum beside a sum of the same array."""
    torch.set_num_threads(1)
    hvd.init()
    data = torch.zeros(mib * _MIB // 4)
    runs = {
        "Sum": timed(lambda: hvd.allreduce_(data, op=hvd.Sum)),
        "Adasum": timed(lambda: hvd.allreduce_(data, op=hvd.Adasum)),
    }
    result = interleave(runs, dict.fromkeys(runs, 5), rounds)
    hvd.shutdown()
    return result


def _step(rounds: int) -> dict[str, Quantiles]:
    """Measure a wrapped optimizer beside the plain one in a world of one."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    hvd.init()
    task = Convolutions(2)
    runs = {}
    for name in ("plain optimizer", "wrapped optimizer"):
        model = task.model()
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        if name == "wrapped optimizer":
            optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        runs[name] = training_step(model, optimizer, task.data())
    # Short turns: the difference is small beside what other load does to a long one.
    result = interleave(runs, dict.fromkeys(runs, 4), 10 * rounds)
    hvd.shutdown()
    return result


def _rejoin() -> dict[str, Quantiles]:
    """Measure joining a world and leaving it, many times in one process."""
    start = time.perf_counter()
    for _ in range(_REJOINED):
        hvd.init()
        hvd.shutdown()
    seconds = time.perf_counter() - start
    return {"all": dict.fromkeys(("median", "p10", "p90"), seconds)}


def _renew() -> dict[str, Quantiles]:
    """Measure joining a world when the last one's links are still there."""
    seconds = []
    for _ in range(_REJOINED):
        hvd.init()
        hvd.barrier()
        hvd.shutdown()
        start = time.perf_counter()
        hvd.init()
        seconds.append(time.perf_counter() - start)
        hvd.shutdown()
    tenths = statistics.quantiles(seconds, n=10)
    return {"one": {"median": tenths[4], "p10": tenths[0], "p90": tenths[8]}}


def _submit(rounds: int) -> dict[str, Quantiles]:
    """Measure operations through the C interface, each with a callback, beside the core's own."""
    hvd.init()
    value = np.zeros(1, np.float32)
    engine = current_world().engine
    with tempfile.TemporaryDirectory() as folder:
        runs: dict[str, Run] = {
            "inside the core": lambda repeats: engine.time_submit(value.ctypes.data, 1, repeats),
            "C interface, with a callback": _through_c(Path(folder), value),
        }
        result = interleave(runs, dict.fromkeys(runs, _SUBMITTED), rounds)
    hvd.shutdown()
    return result


def _through_c(folder: Path, value: np.ndarray) -> Run:
    """Build the library that calls the engine, and return its loop."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("the C interface is measured by a library that needs a C compiler")
    source, target = Path(__file__).with_name("submit.c"), folder / "libsubmit.so"
    flags = ["-std=gnu11", "-O2", "-shared", "-fPIC", f"-I{ffi.include_folder()}"]
    subprocess.run([compiler, *flags, source, "-o", target], check=True)
    library = ctypes.CDLL(str(target))

    def run(repeats: int) -> list[float]:
        seconds = (ctypes.c_double * repeats)()
        pointers = ctypes.c_void_p(ffi.address()), ctypes.c_void_p(value.ctypes.data)
        called = library.time_submit(*pointers, seconds, ctypes.c_long(repeats))
        if called != repeats:
            raise RuntimeError(f"{called} callbacks were made for {repeats} operations")
        return list(seconds)

    return run


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
