"""One rank of hosts.py; rank 0 writes what was measured into the folder that all share.

python benchmarks/hosts_rank.py FOLDER allreduce|hierarchy|training ROUNDS
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from models import LAYERS, Waiting
from peers import GLOO, join_gloo
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from train_rank import ALONE, DDP, OURS, training_step

import sirtaki.torch as hvd
from sirtaki.observe.contenders import Run, own_contenders, timed
from sirtaki.observe.measure import Quantiles, interleave

STREAM = "stream"
BF16 = "Sirtaki, bf16"
DDP_BY_LAYER = "DDP, Gloo, a bucket a layer"
FLAT = "flat"
HIERARCHICAL = "hierarchical"
_MIB = 1 << 20
_SIZES = {4: 200, _MIB: 20, 64 * _MIB: 3}
_GRADIENT_BYTES = (10_000_000, 40_000_000)
_INTERFACE = "eth0"


def main() -> None:
    folder, what, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = _INTERFACE
    measure: dict[str, Callable[[Path, int], dict[str, Any]]]
    measure = {"allreduce": allreduce, "hierarchy": hierarchy, "training": training}
    rank = int(os.environ["HOROVOD_RANK"])
    result = measure[what](folder, rounds)
    if rank == 0:
        (folder / "result.json").write_text(json.dumps(result))


# ---- Sums ----


def allreduce(folder: Path, rounds: int) -> dict[str, Any]:
    """Measure sums over two hosts beside Gloo, and a stream in both directions at once."""
    hvd.init()
    join_gloo(folder / "gloo", hvd.rank(), hvd.size())
    peer = connected_pair(folder, hvd.rank())
    sums = {}
    for size, repeats in _SIZES.items():
        data = np.zeros(size // 4, np.float32)
        tensor = torch.from_numpy(data)
        runs = {name: contender(data) for name, contender in own_contenders().items()}
        runs[GLOO] = timed(lambda tensor=tensor: dist.all_reduce(tensor))
        runs[STREAM] = timed(lambda data=data: exchange(peer, data))
        sums[str(size)] = interleave(runs, dict.fromkeys(runs, repeats), rounds)
    dist.destroy_process_group()
    hvd.shutdown()
    return {"sums": sums}


def connected_pair(folder: Path, rank: int) -> socket.socket:
    """Connect rank 0 and rank 1 through the network, outside of everything measured."""
    place = folder / "stream"
    if rank == 0:
        with socket.create_server((own_address(), 0)) as listener:
            place.with_suffix(".new").write_text(json.dumps(listener.getsockname()))
            place.with_suffix(".new").rename(place)
            peer, _ = listener.accept()
    else:
        while not place.exists():
            time.sleep(0.01)
        peer = socket.create_connection(tuple(json.loads(place.read_text())))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def own_address() -> str:
    """Return the address of this virtual host on the common network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.168.11.1", 9))
        return str(probe.getsockname()[0])


def exchange(peer: socket.socket, data: np.ndarray) -> None:
    """Send all of `data` and receive as much, both at once: what a sum over two hosts must move."""
    import select

    out, received = memoryview(data).cast("B"), 0
    room = memoryview(bytearray(256 << 10))
    while out or received < data.nbytes:
        wanted = [peer] if received < data.nbytes else []
        readable, writable, _ = select.select(wanted, [peer] if out else [], [])
        if readable:
            received += peer.recv_into(room[: min(len(room), data.nbytes - received)])
        if writable:
            out = out[peer.send(out[: 256 << 10], socket.MSG_DONTWAIT) :]


def hierarchy(folder: Path, rounds: int) -> dict[str, Any]:
    """Measure 64 MiB over hosts of several ranks, and the same as if each rank had its own host."""
    seconds: dict[str, Quantiles] = {}
    for name in (HIERARCHICAL, FLAT) * 2:
        if name == FLAT:
            be_a_host_alone()
        hvd.init()
        data = np.zeros(64 * _MIB // 4, np.float32)
        run = own_contenders()["core"](data)
        taken = interleave({name: run}, {name: 3}, rounds)[name]
        if name not in seconds or taken["median"] < seconds[name]["median"]:
            seconds[name] = taken
        hvd.shutdown()
        restore_host()
    return {"sums": {str(64 * _MIB): seconds}}


_LAUNCHED = {
    name: os.environ.get(f"HOROVOD_{name}", "")
    for name in ("LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
}


def be_a_host_alone() -> None:
    """Let this rank share nothing with the others on its host."""
    rank, size = os.environ["HOROVOD_RANK"], os.environ["HOROVOD_SIZE"]
    places = {"LOCAL_RANK": "0", "LOCAL_SIZE": "1", "CROSS_RANK": rank, "CROSS_SIZE": size}
    os.environ.update({f"HOROVOD_{name}": value for name, value in places.items()})
    os.environ["SIRTAKI_HOST_ID"] = rank


def restore_host() -> None:
    """Undo `be_a_host_alone`."""
    os.environ.update({f"HOROVOD_{name}": value for name, value in _LAUNCHED.items()})
    os.environ.pop("SIRTAKI_HOST_ID", None)


# ---- Training ----


def training(folder: Path, rounds: int) -> dict[str, Any]:
    """Measure steps of 300 ms of waiting with 10 and 40 MB of gradients."""
    hvd.init()
    join_gloo(folder / "gloo", hvd.rank(), hvd.size())
    batch = (torch.ones(8, requires_grad=True), torch.zeros(8))
    steps = {}
    for size in _GRADIENT_BYTES:
        megabytes = f"{size // 1_000_000} MB: "
        runs: dict[str, Run] = {
            ALONE: training_step(*optimized(Waiting(size)), batch),
            DDP: training_step(*optimized(ddp(size)), batch),
            DDP_BY_LAYER: training_step(*optimized(ddp(size, by_layer=True)), batch),
            OURS: training_step(*distributed(Waiting(size), hvd.Compression.none), batch),
            BF16: training_step(*distributed(Waiting(size), hvd.Compression.bf16), batch),
        }
        taken = interleave(runs, dict.fromkeys(runs, 2), rounds)
        steps |= {megabytes + name: quantiles for name, quantiles in taken.items()}
    dist.destroy_process_group()
    hvd.shutdown()
    return {"steps": steps}


def ddp(size: int, *, by_layer: bool = False) -> DistributedDataParallel:
    # Buckets are counted in MiB; a little less than a layer, so that it does not wait for the next.
    buckets = {"bucket_cap_mb": 0.99 * size / LAYERS / _MIB} if by_layer else {}
    return DistributedDataParallel(Waiting(size), gradient_as_bucket_view=True, **buckets)


def optimized(model: nn.Module) -> tuple[nn.Module, torch.optim.Optimizer]:
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def distributed(model: nn.Module, compression: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    _, optimizer = optimized(model)
    names = model.named_parameters()
    return model, hvd.DistributedOptimizer(optimizer, names, compression=compression)


if __name__ == "__main__":
    main()
