"""Goes on from a checkpoint in FOLDER, or writes it; prints what its generators give next.

With LOSE_FIRST process 0 is lost after it has loaded the checkpoint, before the others have it.
"""

from __future__ import annotations

import os
import random
import signal
import sys

import numpy as np

import sirtaki as hvd
from sirtaki import elastic
from sirtaki.checkpoint import Checkpoints, Framework
from sirtaki.core.operations.objects import broadcast_object


def next_numbers() -> str:
    return f"{random.random():.9f} {np.random.random():.9f}"


@elastic.run
def train(state: elastic.ObjectState) -> None:
    if state.step == 0:
        state.step = 7
        checkpoints.save(os.environ["FOLDER"], state, state.step, async_=False)
    print("step", state.step, "rank", hvd.rank(), next_numbers(), file=sys.stdout, flush=True)


hvd.init()
checkpoints = Checkpoints(Framework())
state = elastic.ObjectState(broadcast_object, hvd.rank, step=0)
checkpoints.load(os.environ["FOLDER"], state)
if "LOSE_FIRST" in os.environ and os.environ["SIRTAKI_PROCESS"] == "0":
    os.kill(os.getpid(), signal.SIGKILL)
train(state)
