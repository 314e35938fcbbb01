"""A job of two ranks: a signal handler of rank 1 raises at random moments of every operation.

    python interrupted.py BINDINGS ROUNDS SEED

BINDINGS: some of those below, with commas between them.

After each interrupted call its tensors are freed, and arrays of others take their place. Then rank
0 does its part, late. What reaches the arrays, or kills a rank, was written to memory that nobody
held. Exit 0: nothing was.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import sirtaki

BYTES = 1 << 20
PATIENCE = 0.3
CANARY = 5
Operation = Callable[[str], Any]


class Late(Exception):
    """What the handler raises; no error of any library."""


class Alarm:
    """Raises `Late` in the main thread after a random time."""

    def __init__(self) -> None:
        self._armed = False
        self.raised = 0
        signal.signal(signal.SIGALRM, self._ring)

    def _ring(self, *_: object) -> None:
        if self._armed:
            self._armed = False
            self.raised += 1
            raise Late

    def interrupt(self, call: Operation, name: str, seconds: float) -> None:
        """Call, and drop everything that the call has made."""
        try:
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, seconds)
            call(name)
        except Late:
            pass
        except SystemError as error:  # JAX's C++ code makes this of it in places
            if not isinstance(error.__cause__, Late):
                raise
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)


# ---- What each binding can do: functions of a name, called on both ranks ----


def of_numpy() -> Iterator[Operation]:
    """Yield NumPy's operations."""
    hvd = sirtaki
    peer = 1 - hvd.rank()

    def full() -> np.ndarray:
        return np.full(BYTES // 4, 7, np.float32)

    yield lambda name: hvd.allreduce(full(), name=name)
    yield lambda name: hvd.allreduce_(full(), name=name)
    yield lambda name: hvd.grouped_allreduce([full(), full()], name=name)
    yield lambda name: hvd.allgather(full(), name=name)
    yield lambda name: hvd.broadcast_(full(), 0, name=name)
    yield lambda name: hvd.alltoall(full(), name=name)
    yield lambda name: hvd.reducescatter(full(), name=name)
    yield lambda name: hvd.synchronize(hvd.allreduce_async_(full(), name=name))
    yield lambda name: hvd.broadcast_object(full(), 0, name=name)
    tag = iter(range(10**6))
    yield lambda _: hvd.recv(full(), 0, next(tag)) if peer == 0 else hvd.send(full(), 1, next(tag))
    back = iter(range(10**6, 2 * 10**6))
    yield (
        lambda _: hvd.send(full(), 0, next(back)) if peer == 0 else hvd.recv(full(), 1, next(back))
    )


def of_torch() -> Iterator[Operation]:
    """Yield those of `sirtaki.torch`."""
    import torch

    import sirtaki.torch as hvd

    def full(dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.full((BYTES // 4,), 7, dtype=dtype)

    yield lambda name: hvd.allreduce(full(), name=name)
    yield lambda name: hvd.allreduce_(full()[::2], name=name)
    yield lambda name: hvd.allreduce(full(), name=name, compression=hvd.Compression.fp16)
    yield lambda name: hvd.grouped_allreduce_([full(), full(torch.float64)], name=name)
    yield lambda name: hvd.allgather(full(), name=name)
    yield lambda name: hvd.broadcast_(full(), 0, name=name)
    yield lambda name: hvd.alltoall(full(), name=name)
    yield lambda name: hvd.reducescatter(full(), name=name)
    yield lambda name: hvd.synchronize(hvd.grouped_allgather_async([full(), full()], name=name))


def of_distributed() -> Iterator[Operation]:
    """Yield those of `torch.distributed`, each in a group of its own: they are not named."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("sirtaki")
    peer = 1 - dist.get_rank()

    def full(elements: int = BYTES // 4) -> torch.Tensor:
        return torch.full((elements,), 7, dtype=torch.float32)

    def pair() -> list[torch.Tensor]:
        return [full(), full()]

    def message(group: Any, sender: int) -> None:
        dist.send(full(), peer, group) if peer != sender else dist.recv(full(), peer, group)

    calls: list[Callable[[Any], Any]] = [
        lambda group: dist.all_reduce(full(), group=group),
        lambda group: dist.all_reduce(full()[::2], group=group, async_op=True).wait(),
        lambda group: dist.all_gather(pair(), full(), group),
        lambda group: dist.broadcast(full(), 0, group),
        lambda group: dist.reduce(full(), 1, group=group),
        lambda group: dist.reduce_scatter(full(), pair(), group=group),
        lambda group: dist.all_to_all_single(full(), full(), group=group),
        lambda group: dist.scatter(full(), pair() if peer == 1 else None, 0, group),
        lambda group: dist.gather(full(), pair() if peer == 0 else None, 1, group),
        lambda group: message(group, 0),
        lambda group: message(group, 1),
    ]
    for call in calls:
        yield InGroup(call)


class InGroup:
    """An operation of a new group, which `prepare` makes on both ranks."""

    def __init__(self, call: Callable[[Any], Any]) -> None:
        self._call = call
        self._group: Any = None

    def prepare(self) -> None:
        """Make the group of the next call."""
        import torch.distributed as dist

        self._group = dist.new_group()

    def __call__(self, _: str) -> Any:
        return self._call(self._group)


def of_tensorflow() -> Iterator[Operation]:
    """Yield those of `sirtaki.tensorflow`."""
    tf = importlib.import_module("tensorflow")
    hvd = importlib.import_module("sirtaki.tensorflow")

    def full() -> Any:
        return tf.fill((BYTES // 4,), 7.0)

    yield lambda name: hvd.allreduce(full(), name=name)
    yield lambda name: hvd.grouped_allreduce([full(), full()], name=name)
    yield lambda name: hvd.allgather(full(), name=name)
    yield lambda name: hvd.broadcast(full(), 0, name=name)
    yield lambda name: hvd.alltoall(full(), name=name)
    yield lambda name: hvd.reducescatter(full(), name=name)
    yield lambda name: hvd.broadcast_([tf.Variable(full())], 0, name=name)


def of_jax() -> Iterator[Operation]:
    """Yield those of `sirtaki.jax`."""
    jnp = importlib.import_module("jax.numpy")
    jax = importlib.import_module("jax")
    hvd = importlib.import_module("sirtaki.jax")

    def full() -> Any:
        return jnp.full((BYTES // 4,), 7, jnp.float32)

    yield lambda name: hvd.allreduce(full(), name=name)
    yield lambda name: hvd.grouped_allreduce([full(), full()], name=name)
    yield lambda name: hvd.allgather(full(), name=name)
    yield lambda name: hvd.broadcast(full(), 0, name=name)
    yield lambda name: hvd.alltoall(full(), name=name)
    yield lambda name: hvd.reducescatter(full(), name=name)
    yield lambda name: jax.jit(lambda x: hvd.allreduce(x, name=name))(full()).block_until_ready()


BINDINGS = {
    "numpy": of_numpy,
    "torch": of_torch,
    "distributed": of_distributed,
    "tensorflow": of_tensorflow,
    "jax": of_jax,
}

# ---- The two ranks ----

_GO, _DONE = 10**9, 10**9 + 1


def tell(tag: int) -> None:
    """Let the other rank go on."""
    sirtaki.send(np.zeros(1), 1 - sirtaki.rank(), tag)


def hear(tag: int) -> None:
    """Wait until the other rank tells."""
    sirtaki.recv(np.zeros(1), 1 - sirtaki.rank(), tag)


def come_late(call: Operation, name: str, seconds: float) -> None:
    """Do rank 0's part; it waits for ever where rank 1 was interrupted before its own."""
    hear(_GO)
    time.sleep(seconds)
    thread = threading.Thread(target=call, args=(name,), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    tell(_DONE)


def is_interrupted(alarm: Alarm, call: Operation, name: str, seconds: float) -> int:
    """Do rank 1's part; return how many arrays of others were overwritten."""
    tell(_GO)
    alarm.interrupt(call, name, seconds)
    gc.collect()
    others = [np.full(BYTES, CANARY, np.uint8) for _ in range(20)]
    hear(_DONE)
    return sum(bool((other != CANARY).any()) for other in others)


def interrupt_all(binding: str, rounds: int, moments: random.Random) -> int:
    """Interrupt every operation of a binding; return how many arrays of others were overwritten."""
    alarm, wrong = Alarm(), 0
    for number, call in enumerate(BINDINGS[binding]()):
        prepare = getattr(call, "prepare", lambda: None)
        prepare()
        call(f"{binding} {number}")  # the first call of a kind takes longer than a moment
        for turn in range(rounds):
            prepare()
            name = f"{binding} {number}.{turn}"
            late, interrupted = moments.random() * 0.02, moments.random() ** 2 * 0.02
            if sirtaki.rank() == 0:
                come_late(call, name, late)
            else:
                wrong += is_interrupted(alarm, call, name, interrupted)
    if sirtaki.rank() == 1:
        print(f"{binding}: {alarm.raised} calls; {wrong} arrays were overwritten;", flush=True)
    return wrong


def main() -> None:
    rounds, seed = int(sys.argv[2]), int(sys.argv[3])
    sirtaki.init()
    moments = random.Random(seed)  # the same on both ranks
    wrong = sum(interrupt_all(binding, rounds, moments) for binding in sys.argv[1].split(","))
    if sirtaki.rank() == 1:
        tell(_DONE)
    else:
        hear(_DONE)
    os._exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
