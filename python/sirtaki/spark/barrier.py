"""The code in each task of the barrier stage: starts a rank and returns its result."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any

from sirtaki.launch.starters import bound
from sirtaki.rendezvous.stores.store import Store, open_store
from sirtaki.rendezvous.threads import Lasting, start_thread
from sirtaki.rendezvous.world.placement import Placement
from sirtaki.spark.failures import PYTHON_HINT
from sirtaki.spark.messages import (
    FAILED,
    OUTPUT,
    OVER,
    PLACED,
    STARTED,
    Call,
    Failed,
    read_part,
    write_part,
)
from sirtaki.spark.task import GPUS

_STORE_SECONDS = 60.0
_READ_BYTES = 1 << 16
# Spark's own secrets, with which a user's process could pose as one of its workers.
_SECRETS = ("PYTHON_WORKER_FACTORY_SECRET", "PYTHON_WORKER_FACTORY_SOCK_PATH")
# How long ranks may take to end by themselves when another has failed.
_GRACE_SECONDS = 1.0
_FOR_EVER = 1e9


def task(call: Call) -> Callable[[Any], Iterator[tuple[int, bytes]]]:
    """Return the function of a partition, which yields the rank and its process's answer."""

    def run(_: Any) -> Iterator[tuple[int, bytes]]:
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        number, size = context.partitionId(), len(call.places)
        place = call.places[number]
        store = open_store(place.store, _STORE_SECONDS, place.secret)
        # Ranks whose tasks share a container share a host, possibly with other containers.
        container = os.environ.get("CONTAINER_ID", "")
        store.set(f"{STARTED}/{number}", f"{_host()}:{container}".encode())
        # Spark's allGather would check only once a second whether all are there.
        hosts = [store.get(f"{STARTED}/{each}", _FOR_EVER).decode() for each in range(size)]
        rank = ranks_by_host(hosts)[number]
        store.set(f"{PLACED}/{number}", json.dumps([rank, _host()]).encode())
        gpus = context.resources().get("gpu")
        place = replace(call.places[rank], host_id=container)
        yield rank, _run(call, place, store, gpus.addresses if gpus is not None else [])

    return run


def ranks_by_host(hosts: Sequence[str]) -> list[int]:
    """Return the rank of each task: consecutive on each host, task 0's host first."""
    first = {host: number for number, host in reversed(list(enumerate(hosts)))}
    order = sorted(range(len(hosts)), key=lambda number: first[hosts[number]])
    ranks = [0] * len(hosts)
    for rank, number in enumerate(order):
        ranks[number] = rank
    return ranks


def _host() -> str:
    return socket.gethostname()


def _run(call: Call, place: Placement, store: Store, gpus: Sequence[str]) -> bytes:
    """Run the rank's process; return its pickled answer, or raise if it failed."""
    environ = environment(call.variables, gpus)
    answer_end, rank_end = os.pipe()
    rank = subprocess.Popen(
        [
            *(sys.executable, bound.__file__, str(os.getpid())),
            *(call.executable or sys.executable, "-m", "sirtaki.spark.rank", str(rank_end)),
        ],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(rank_end,),
    )
    os.close(rank_end)
    readers = [_relayed(rank.stdout, "stdout", place.rank, store)]
    readers += [_relayed(rank.stderr, "stderr", place.rank, store)]
    ended_by_others = _ended_with_others(rank, store)
    try:
        _hand_over(rank.stdin, call, place)
        with os.fdopen(answer_end, "rb") as stream:
            answer = read_part(stream)
        code = rank.wait()
    finally:
        rank.kill()
        for reader in readers:
            reader.join()
    if code == 0:
        return answer
    if ended_by_others.is_set():
        raise RuntimeError(f"rank {place.rank} ({_host()}) was ended: the job is over")
    failed = _failure(place.rank, code, answer)
    store.set(f"{FAILED}/{place.rank}", pickle.dumps(failed))
    store.set(OVER, b"")
    raise RuntimeError(failed.text)


def environment(given: Mapping[str, str] | None, gpus: Sequence[str]) -> dict[str, str]:
    """Return the environment of a rank: the given one, or the executor's."""
    base = os.environ if given is None else given
    environ = {name: value for name, value in base.items() if name not in _SECRETS}
    return {**environ, GPUS: ",".join(gpus)}


def _ended_with_others(rank: subprocess.Popen[bytes], store: Store) -> threading.Event:
    """Kill a rank soon after the job is over; return an event that is set when this happened.

    Spark itself takes longer to end the tasks of a failed stage.
    """
    killed = threading.Event()

    def wait() -> None:
        # A store that is gone was the driver's.
        with contextlib.suppress(OSError):
            store.get(OVER, _FOR_EVER)
        with contextlib.suppress(subprocess.TimeoutExpired):
            rank.wait(_GRACE_SECONDS)
        if rank.poll() is None:
            killed.set()
            rank.kill()

    threading.Thread(target=wait, name="sirtaki-over", daemon=True).start()
    return killed


def _hand_over(stream: IO[bytes] | None, call: Call, place: Placement) -> None:
    assert stream is not None
    said = {"version": call.version, "path": call.path, "host": _host()}
    try:
        with stream:
            write_part(stream, json.dumps(said).encode())
            write_part(stream, pickle.dumps(place))
            write_part(stream, call.function)
    except BrokenPipeError:
        pass  # it has ended already, as its exit code shows


def _failure(rank: int, code: int, answer: bytes) -> Failed:
    if not answer:
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        text = f"its process {how} before its function returned"
        return Failed(rank, _host(), f"{text}; if it never began, {PYTHON_HINT}")
    told = pickle.loads(answer)
    return Failed(rank, _host(), told["text"], told["error"], told["follows"])


def _relayed(stream: IO[bytes] | None, name: str, rank: int, store: Store) -> threading.Thread:
    """Send a rank's output to the driver, by whole lines."""
    assert isinstance(stream, io.BufferedReader)

    lasting = Lasting(f"sending what rank {rank} prints")

    def relay() -> None:
        rest, number = b"", 0
        while data := stream.read1(_READ_BYTES):
            lines, newline, rest = (rest + data).rpartition(b"\n")
            # A driver that is gone has made Spark end this task.
            with lasting:
                store.set(f"{OUTPUT}/{rank}/{name}/{number}", lines + newline)
            number += 1
        if rest:
            with lasting:
                store.set(f"{OUTPUT}/{rank}/{name}/{number}", rest + b"\n")

    return start_thread(relay, "sirtaki-output")
