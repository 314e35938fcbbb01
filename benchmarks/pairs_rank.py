"""One rank of pairs.py; rank 0 writes what was measured into the folder that both share.

python benchmarks/pairs_rank.py FOLDER host|hosts|alone SIZES ROUNDS
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from hosts_rank import connected_pair
from peers import GLOO, OPEN_MPI, join_gloo

import sirtaki
from sirtaki.core.world.state import current_world
from sirtaki.launch.hosts.environment import rank_environment
from sirtaki.launch.hosts.slots import Slot
from sirtaki.observe.contenders import Array, Run, timed
from sirtaki.observe.measure import interleave

STREAM = "stream"
_SECONDS = 0.04


def main() -> None:
    folder, where, sizes, rounds = (
        Path(sys.argv[1]),
        sys.argv[2],
        json.loads(sys.argv[3]),
        sys.argv[4],
    )
    torch.set_num_threads(1)
    peers: dict[str, Callable[[Array], Run]] = {}
    if where != "hosts":
        peers[OPEN_MPI] = start_mpi()
    sirtaki.init()
    if where == "hosts":
        os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
        peers[STREAM] = over(connected_pair(folder, sirtaki.rank()))
    contenders = {"core": core, "numpy": numpy}
    if where != "alone":
        join_gloo(folder / "gloo", sirtaki.rank(), 2)
        contenders |= {**peers, GLOO: gloo}
    timings = {str(size): measure(size, contenders, int(rounds)) for size in sizes}
    if sirtaki.rank() == 0:
        (folder / "result.json").write_text(json.dumps(timings))
    sirtaki.barrier()
    if where != "alone":
        dist.destroy_process_group()
    sirtaki.shutdown()


def measure(
    size: int, contenders: dict[str, Callable[[Array], Run]], rounds: int
) -> dict[str, dict[str, float]]:
    """Let the contenders take turns with messages of a size."""
    data = np.zeros(size // 4, np.float32)
    runs = {name: contender(data) for name, contender in contenders.items()}
    return interleave(runs, {name: repeats(run) for name, run in runs.items()}, rounds)


def repeats(run: Run) -> int:
    """Return how often to repeat in one turn, the same on both ranks."""
    sirtaki.barrier()
    estimate = np.median(run(4)[1:])
    slowest = sirtaki.allreduce(np.array([estimate]), op=sirtaki.Max)[0]
    return int(np.clip(_SECONDS / slowest, 2, 1000))


def start_mpi() -> Callable[[Array], Run]:
    """Start MPI; let this process be the rank of Sirtaki's that it is of MPI's."""
    import mpi4py

    mpi4py.rc.thread_level = "funneled"  # one thread calls MPI: let it leave out its locks
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    slot = Slot(world.rank, world.size, "localhost", world.rank, world.size, 0, 1)
    os.environ.update(rank_environment(slot, os.environ["SIRTAKI_RENDEZVOUS"]))
    peer = 1 - world.rank
    return lambda data: back_and_forth(
        world.rank, lambda: world.Send(data, peer), lambda: world.Recv(data, peer)
    )


def back_and_forth(rank: int, send: Callable[[], Any], receive: Callable[[], Any]) -> Run:
    """Time a message of rank 0 and the one back."""
    first, second = (send, receive) if rank == 0 else (receive, send)

    def call() -> None:
        first()
        second()

    return timed(call)


def core(data: Array) -> Run:
    """Measure the engine without Python."""
    engine, peer = current_world().engine, 1 - sirtaki.rank()
    return lambda count: engine.time_round_trip(peer, data.ctypes.data, data.nbytes, count)


def numpy(data: Array) -> Run:
    """Measure sirtaki.send and sirtaki.recv."""
    peer = 1 - sirtaki.rank()
    return back_and_forth(
        sirtaki.rank(), lambda: sirtaki.send(data, peer), lambda: sirtaki.recv(data, peer)
    )


def gloo(data: Array) -> Run:
    """Measure torch.distributed over Gloo."""
    tensor, peer = torch.from_numpy(data), 1 - sirtaki.rank()
    return back_and_forth(
        sirtaki.rank(), lambda: dist.send(tensor, peer), lambda: dist.recv(tensor, peer)
    )


def over(peer: socket.socket) -> Callable[[Array], Run]:
    """Measure one plain socket."""
    peer.setblocking(True)

    def contender(data: Array) -> Run:
        memory = memoryview(data).cast("B")

        def receive() -> None:
            got = 0
            while got < len(memory):
                got += peer.recv_into(memory[got:])

        return back_and_forth(sirtaki.rank(), lambda: peer.sendall(memory), receive)

    return contender


if __name__ == "__main__":
    main()
