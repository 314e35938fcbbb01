"""Groups for ranks started without PyTorch's variables."""

from __future__ import annotations

import itertools
import json
import os
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlencode, urlparse

import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, Store, TCPStore
from torch.distributed.constants import default_pg_timeout

from sirtaki.core.config import Config
from sirtaki.core.world import lifecycle, state
from sirtaki.rendezvous.network import interfaces as network
from sirtaki.rendezvous.world.membership import Topology
from sirtaki.schedulers.start import Start
from sirtaki.schedulers.table import find_start
from sirtaki.stand_in import NAME
from sirtaki.torch.functions import broadcast_object

Met = tuple[Store, int, int]
Theirs = Callable[..., Iterator[Met]]

_MASTER = ("MASTER_ADDR", "MASTER_PORT")
_NEEDED = (*_MASTER, "RANK", "WORLD_SIZE")

_PROBE_SECONDS = 2.0
_HERE = "127.0.0.1"
# Numbers of the stores that rank 0 has created.
_numbers = itertools.count(1)


def rendezvous(url: str, theirs: Theirs, **options: Any) -> Iterator[Met]:
    """Let ranks meet as their starter specifies, if PyTorch's variables are not set.

    Args:
        url: "env://", with the rank and the number of ranks if the program gives them.
        theirs: PyTorch's own function, which needs its variables.
        **options: For `theirs`; `timeout` limits the wait for the others.

    Raises:
        ValueError: The program contradicts the starter, or neither specifies a meeting place.
        TimeoutError: Rank 0 did not arrive.
    """
    given = {name: values[0] for name, values in parse_qs(urlparse(url).query).items()}
    if given.get("world_size") == "0":
        # Programs written for MPI, which numbers the ranks itself, pass these.
        given = {name: given[name] for name in given.keys() - {"rank", "world_size"}}
    told = {**os.environ, **{name.upper(): value for name, value in given.items()}}
    start = None if all(map(told.get, _NEEDED)) else find_start(os.environ)
    if start is not None:
        place = {"rank": str(start.topology.rank), "world_size": str(start.topology.size)}
        _require_same(given, place, start.by)
        # Scripts choose a GPU by it, and some starters do not set it.
        os.environ.setdefault("LOCAL_RANK", str(start.topology.local_rank))
        if not all(map(told.get, _MASTER)):
            timeout = options.get("timeout", default_pg_timeout)
            yield _store(start, timeout), start.topology.rank, start.topology.size
            return
        given |= place
    yield from theirs(f"env://?{urlencode(given)}", **options)


def init(timeout: timedelta = default_pg_timeout) -> None:
    """Make a default group of all ranks on our engine, whichever launcher started them.

    It is for libraries that use an existing group, such as Accelerate and Transformers' Trainer.
    It calls `hvd.init()` if necessary, and does nothing if there is a default group.

    Args:
        timeout: The time that an operation of the group waits for other ranks.

    Raises:
        ConnectionError: Rank 0 cannot be reached.
    """
    if dist.is_initialized():
        return
    lifecycle.init()
    world = state.current_world()
    rank, size = world.topology.rank, world.topology.size
    store = HashStore() if size == 1 else _store_of_world(world.topology, timeout)
    dist.init_process_group(NAME, store=store, rank=rank, world_size=size, timeout=timeout)


def _store_of_world(place: Topology, timeout: timedelta) -> Store:
    """Return a store of rank 0, which broadcasts its address to the others."""
    size = place.size
    if place.rank == 0:
        hosts = _own_addresses(state.current_world().config, place)
        store = _served(hosts, size, timeout)
        broadcast_object((hosts, store.port), 0)
        return store
    hosts, port = broadcast_object(None, 0)
    return TCPStore(_reachable(hosts, port), port, size, False, timeout, wait_for_workers=False)


def _require_same(given: dict[str, str], place: dict[str, str], starter: str) -> None:
    if any(given.get(name, value) != value for name, value in place.items()):
        raise ValueError(
            f"init_process_group was given {given}, but {starter} has started this process as "
            f"{place}: give it neither, or set MASTER_ADDR and MASTER_PORT, too"
        )


def _store(start: Start, timeout: timedelta) -> Store:
    """Return a store of rank 0, whose address the others read at the meeting place."""
    if start.topology.size == 1:
        return HashStore()
    key = f"torch/{next(_numbers)}"
    config = lifecycle.own_config()
    meeting = lifecycle.meeting_of_start(config)
    size = start.topology.size
    if start.topology.rank == 0:
        hosts = _own_addresses(config, start.topology)
        store = _served(hosts, size, timeout)
        meeting.store.set(key, json.dumps([hosts, store.port]).encode())
        return store
    hosts, port = json.loads(meeting.store.get(key, timeout.total_seconds()))
    host = _reachable(hosts, port)
    return TCPStore(host, port, size, False, timeout, wait_for_workers=False)


def _own_addresses(config: Config, place: Topology) -> list[str]:
    """Return addresses for other ranks to reach this host: loopback if all are on it."""
    if place.local_size == place.size:
        return [_HERE]
    return network.candidates((), config.interfaces) or [_HERE]


def _served(hosts: list[str], size: int, timeout: timedelta) -> TCPStore:
    """Return a store served here, at the first of the addresses if it is this host's.

    Groups use this address to find the network to the others.
    """
    if hosts[0] != _HERE:
        return TCPStore(hosts[0], 0, size, True, timeout, wait_for_workers=False)
    listener = socket.create_server((_HERE, 0))
    port = listener.getsockname()[1]
    options: Any = {"wait_for_workers": False, "master_listen_fd": listener.detach()}
    return TCPStore(_HERE, port, size, True, timeout, **options)


def _reachable(hosts: list[str], port: int) -> str:
    """Return the first of rank 0's addresses that answers."""
    for host in hosts:
        try:
            socket.create_connection((host, port), _PROBE_SECONDS).close()
        except OSError:
            continue
        return host
    raise ConnectionError(
        f"rank 0 cannot be reached at port {port} of any of {', '.join(hosts)}: name the network "
        "interface that leads to it in SIRTAKI_IFACE"
    )
