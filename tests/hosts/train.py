"""A rank of the tests of training over hosts: collectives whose results are known exactly."""

from __future__ import annotations

import sys

import numpy as np

import sirtaki as hvd


def check_collectives() -> None:
    """Try each collective once, with sizes from one element to several chunks."""
    rank, size = hvd.rank(), hvd.size()
    for count in (1, 1000, 1 << 20):
        total = hvd.allreduce(np.full(count, rank + 1, np.float32), op=hvd.Sum, name=f"a{count}")
        np.testing.assert_array_equal(total, np.full(count, size * (size + 1) / 2, np.float32))
        told = hvd.broadcast(np.full(count, rank, np.int64), root_rank=size - 1, name=f"b{count}")
        np.testing.assert_array_equal(told, np.full(count, size - 1, np.int64))
    gathered = hvd.allgather(np.full(rank + 1, rank, np.int32), name="g")
    expected = np.concatenate([np.full(r + 1, r, np.int32) for r in range(size)])
    np.testing.assert_array_equal(gathered, expected)


def work_for_ever() -> None:
    """Reduce until something goes wrong, and say what."""
    step = 0
    try:
        while True:
            hvd.allreduce(np.ones(1 << 18, np.float32), name="gradient")
            step += 1
            if step == 3:
                print("ready", flush=True)
    except hvd.HorovodInternalError as error:
        print(f"lost: {error}", flush=True)
        sys.exit(1)


def main() -> None:
    hvd.init()
    check_collectives()
    even = int(hvd.is_homogeneous())
    print(
        "done", hvd.rank(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), even, flush=True
    )
    if "--for-ever" in sys.argv:
        work_for_ever()
    hvd.shutdown()


if __name__ == "__main__":
    main()
