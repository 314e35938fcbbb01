"""User functions in processes that another framework has started, such as Ray or Dask."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from sirtaki import keras_2
from sirtaki.core.world import lifecycle
from sirtaki.rendezvous.world.placement import Placement

T = TypeVar("T")


def take(placement: Placement, hostname: str) -> None:
    """Assign this process a place: `init()` uses it, and child programs read it in the environment.

    Args:
        placement: The place.
        hostname: The host's name in messages.
    """
    place = {
        "RANK": placement.rank,
        "SIZE": placement.size,
        "LOCAL_RANK": placement.local_rank,
        "LOCAL_SIZE": placement.local_size,
        "CROSS_RANK": placement.cross_rank,
        "CROSS_SIZE": placement.cross_size,
    }
    os.environ.update({f"HOROVOD_{name}": str(value) for name, value in place.items()})
    os.environ["HOROVOD_HOSTNAME"] = hostname
    lifecycle.assign(placement)


def call(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call a user's function; if it raises, leave the world, so that the other ranks fail too."""
    try:
        return function(*args, **kwargs)
    except BaseException as error:
        keras_2.add_cure(error)
        lifecycle.shutdown()
        raise
