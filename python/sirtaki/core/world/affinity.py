"""CPU binding of the engine's threads, if the user requests it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence


def own_cpus() -> set[int]:
    """Return the CPUs that this process may run on, or none if the system does not report them."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


@contextlib.contextmanager
def engine_bound(cpus: Sequence[int], local_rank: int) -> Iterator[None]:
    """Bind threads that start within the context to this local rank's CPU, if it has one.

    Args:
        cpus: One CPU for each local rank; the system places the engines of all further ones.
        local_rank: The local rank whose engine starts.

    Raises:
        ValueError: This process cannot run there.
    """
    if local_rank >= len(cpus):
        yield
        return
    # Threads inherit the affinity of the thread that starts them.
    own = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {cpus[local_rank]})
    except (OSError, OverflowError) as error:
        raise ValueError(
            f"HOROVOD_THREAD_AFFINITY={','.join(map(str, cpus))}: the engine of local rank "
            f"{local_rank} cannot run on CPU {cpus[local_rank]} ({error})"
        ) from None
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)
