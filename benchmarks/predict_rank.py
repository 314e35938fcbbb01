"""One rank of predict.py: trains a model, for ever to be traced, or with each exchange in turn.

python benchmarks/predict_rank.py MODEL [FOLDER SYNC_EVERY STEPS]
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from models import Batch, Mlp, Waiting
from torch import nn
from train_rank import sgd, training_step

import sirtaki.torch as hvd
from sirtaki.observe.contenders import Run
from sirtaki.observe.predict.forecast import DILOCO, FORMS

# Of those that wait: bytes of gradients, and seconds of a step.
WAITING = {
    "40 MB, 60 ms of waiting": (40_000_000, 0.06),
    "40 MB, 300 ms of waiting": (40_000_000, 0.3),
    "10 MB, 300 ms of waiting": (10_000_000, 0.3),
}
COMPUTING = "MLP of 10 M parameters"
_MLP = Mlp(layers=6, width=1300, batch=192)
_WARM_UP = 2


def made(name: str) -> tuple[nn.Module, Batch]:
    """Return a model, and what it is trained on."""
    torch.manual_seed(0)
    if name == COMPUTING:
        return _MLP.model(), _MLP.data()
    return Waiting(*WAITING[name]), (torch.ones(8, requires_grad=True), torch.zeros(8))


def run_of(name: str, exchange: str, sync_every: int) -> tuple[Run, Any]:
    """Return what takes steps, and the optimizer."""
    model, batch = made(name)
    optimizer = sgd(model)
    if exchange == DILOCO:
        optimizer = hvd.DiLoCo(optimizer, model, sync_every)
    else:
        compression = getattr(hvd.Compression, exchange, hvd.Compression.none)
        names = model.named_parameters()
        optimizer = hvd.DistributedOptimizer(optimizer, names, compression=compression)
    return training_step(model, optimizer, batch), optimizer


def measured(name: str, sync_every: int, steps: int) -> dict[str, float]:
    """Return the seconds of a step by exchange; of DiLoCo the mean, as few steps exchange."""
    found = {}
    for exchange in (*FORMS, DILOCO):
        run, optimizer = run_of(name, exchange, sync_every)
        hvd.barrier()
        if exchange == DILOCO:
            run(sync_every)
            found[exchange] = statistics.fmean(run(2 * sync_every))
            optimizer.finish()
        else:
            found[exchange] = statistics.median(run(_WARM_UP + steps)[_WARM_UP:])
    return found


def go_first() -> None:
    """Let other programs of this machine disturb less: their sessions come after this one."""
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text("-20")


def main() -> None:
    go_first()
    torch.set_num_threads(1)
    hvd.init()
    name, *more = sys.argv[1:]
    if not more:
        run, _ = run_of(name, "float32", 1)
        run(_WARM_UP)
        print("ready", flush=True)
        while True:
            run(1)
    result = measured(name, int(more[1]), int(more[2]))
    if hvd.rank() == 0:
        (Path(more[0]) / "result.json").write_text(json.dumps(result))
    hvd.shutdown()


if __name__ == "__main__":
    main()
