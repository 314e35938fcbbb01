"""Loses process 1 of 4 while operations are pending, and goes on with the process sets left."""

from __future__ import annotations

import os
import signal
import time

import numpy as np

import sirtaki as hvd
from sirtaki import elastic
from sirtaki.core.operations.objects import broadcast_object

PROCESS = int(os.environ["SIRTAKI_PROCESS"])
torn, pair = hvd.ProcessSet([0, 1]), hvd.ProcessSet([2, 3])
worlds: list[int] = []


def lose() -> None:
    pending = [hvd.allreduce_async(np.ones(4), op=hvd.Sum, name=f"{i}") for i in range(3)]
    errors = []
    for handle in pending:
        try:
            hvd.synchronize(handle)
        except hvd.PeerLostError as error:
            errors.append(error)
    print("pending", len(errors), len({str(each) for each in errors}), flush=True)
    raise errors[0]


@elastic.run
def train(state: elastic.ObjectState) -> None:
    worlds.append(hvd.size())
    if state.step == 0:
        state.step = 1
        state.commit()
    if len(worlds) == 1 and PROCESS < 4:
        if PROCESS == 1:
            time.sleep(0.3)  # the others are to have operations pending
            os.kill(os.getpid(), signal.SIGKILL)
        lose()


hvd.init(process_sets=[torn, pair])
train(elastic.ObjectState(broadcast_object, hvd.rank, step=0))
if PROCESS in (2, 3):
    total = hvd.allreduce(np.full(2, float(PROCESS)), op=hvd.Sum, process_set=pair)
    print("pair", pair.ranks, total.tolist(), torn.process_set_id, flush=True)
if PROCESS == 0:
    try:
        hvd.allreduce(np.ones(1), process_set=torn)
    except ValueError as error:
        print("torn", error, flush=True)
hvd.barrier()
