"""JAX on a GPU: through CPU memory the result is right; a compiled program says that it cannot."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    sys.exit("not tried: JAX is not installed")

import sirtaki.jax as hvd


def main() -> None:
    hvd.init()
    if jax.default_backend() != "gpu":
        sys.exit("not tried: JAX sees no GPU")
    array = jnp.full((1000,), hvd.rank() + 1.0)
    total = hvd.size() * (hvd.size() + 1) / 2
    result = hvd.allreduce(array, op=hvd.Sum, name="eager")
    assert bool((result == total).all()), result
    gathered = hvd.allgather(array[: hvd.rank() + 1], name="gather")
    assert gathered.shape == (sum(range(1, hvd.size() + 1)),), gathered.shape
    try:
        jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="compiled"))(array)
    except NotImplementedError as error:
        if "run on CPUs only" not in str(error):
            raise
    else:
        raise AssertionError("a compiled collective was not refused")


if __name__ == "__main__":
    main()
