"""The code in each task of an elastic job: runs agents in turn until the job is over."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sirtaki.launch.starters import bound
from sirtaki.rendezvous.stores.store import Store, open_store
from sirtaki.spark.barrier import environment
from sirtaki.spark.messages import OVER, STARTED

_STORE_SECONDS = 60.0
_FOR_EVER = 1e9
_END_SECONDS = 2.0
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class Orders:
    """The data passed to each task of an elastic job.

    Attributes:
        store: The address of the job's store.
        agents: The addresses where the driver accepts agents.
        secret: The job's secret.
        variables: The environment of the ranks in place of the executor's; None for the executor's.
    """

    store: str
    agents: str
    secret: bytes = field(repr=False)
    variables: Mapping[str, str] | None


def task(orders: Orders) -> Callable[[Any], Iterator[int]]:
    """Return the function of a partition, which serves the job with its task."""

    def run(_: Any) -> Iterator[int]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        gpus = context.resources().get("gpu")
        environ = environment(orders.variables, gpus.addresses if gpus is not None else [])
        store = open_store(orders.store, _STORE_SECONDS, orders.secret)
        told = {"host": socket.gethostname(), "python": sys.executable, "folder": os.getcwd()}  # noqa: PTH109
        store.set(f"{STARTED}/{number}", json.dumps(told).encode())
        over = _over(store)
        while not over.is_set():
            agent = _start(orders, number, environ)
            while agent.poll() is None and not over.wait(_PAUSE_SECONDS):
                pass
            if over.is_set():
                _end(agent)
            elif agent.returncode != 0:
                raise RuntimeError(
                    f"the agent of task {number} ({socket.gethostname()}) exited with code "
                    f"{agent.returncode}; what it said is in the log of this executor"
                )
        yield number

    return run


def _start(orders: Orders, number: int, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    job = {
        "address": orders.agents,
        "secret": orders.secret.hex(),
        "task": number,
        "seconds": _STORE_SECONDS,
    }
    agent = subprocess.Popen(
        [
            *(sys.executable, bound.__file__, str(os.getpid())),
            *(sys.executable, "-m", "sirtaki.spark.elastic.agent"),
        ],
        env=environ,
        stdin=subprocess.PIPE,
    )
    assert agent.stdin is not None
    with agent.stdin as stream:
        stream.write(json.dumps(job).encode() + b"\n")
    return agent


def _end(agent: subprocess.Popen[bytes]) -> None:
    """Let an agent end by itself, with its ranks; kill it if this takes long."""
    try:
        agent.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        agent.kill()
        agent.wait()


def _over(store: Store) -> threading.Event:
    """Return an event that is set when the job is over or its driver is gone."""
    over = threading.Event()

    def wait() -> None:
        try:
            store.get(OVER, _FOR_EVER)
        except OSError:
            # Who called the driver in vain says so; a moment, lest we start another agent.
            time.sleep(_PAUSE_SECONDS)
        over.set()

    threading.Thread(target=wait, name="sirtaki-over", daemon=True).start()
    return over
