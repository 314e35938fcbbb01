"""One rank that runs tests of PyTorch's own suite, one after another.

Says "ready" once, then reads lines of JSON, {"test": name, "folder": path, "port": of MASTER_PORT},
from standard input, and answers each with a line of JSON, {"outcome": "passed" | "skipped" |
"failed", "text": why}.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
import unittest
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.testing._internal import common_distributed, common_utils

BACKEND = os.environ["BACKEND"]
# The suite asks for names where it means abilities: those of this one ours has on CPUs.
os.environ["BACKEND"] = "gloo"
if int(os.environ["WORLD_SIZE"]) >= 3:
    # It asks for eight ranks where it makes a group of two of them.
    common_distributed.skip_if_small_worldsize = lambda test: test
from torch.testing._internal.distributed import distributed_test  # noqa: E402

_TIMEOUT = timedelta(seconds=60)


class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """The suite, as it is for Gloo, and with what it skips there."""


def _unwrap() -> None:
    """Run what is skipped for every backend but MPI, too."""
    few = int(os.environ["WORLD_SIZE"]) < 3
    for name in dir(Suite):
        # Of groups of two among three ranks or more.
        if few and name.endswith("_group") and "full_group" not in name:
            continue
        if "all_to_all" in name and name.startswith("test_") and "cuda" not in name:
            test = getattr(Suite, name)
            reason = getattr(test, "__unittest_skip_why__", "")
            wrapped = getattr(test, "__wrapped__", None)
            if wrapped is not None and (not reason or "MPI" in reason):
                setattr(Suite, name, wrapped)


@contextlib.contextmanager
def group(test: Any, folder: str) -> Iterator[None]:
    """The default group of one test."""
    distributed_test.Barrier.barrier_id = 0
    seconds = distributed_test.CUSTOM_PG_TIMEOUT.get(test._testMethodName)
    dist.init_process_group(
        BACKEND,
        init_method=f"file://{folder}/store",
        world_size=int(os.environ["WORLD_SIZE"]),
        rank=test.rank,
        timeout=timedelta(seconds=seconds) if seconds else _TIMEOUT,
    )
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def run(rank: int, asked: dict[str, Any]) -> dict[str, str]:
    """Run one test as this rank's part of it."""
    name, folder = asked["test"], asked["folder"]
    os.environ["TEMP_DIR"] = folder
    os.environ["MASTER_PORT"] = str(asked["port"])
    test = Suite(name)
    test.rank = rank
    test.file_name = f"{folder}/store"
    common_utils.set_rng_seed()
    try:
        with group(test, folder):
            test._barrier()
            getattr(test, name)()
            test._barrier()
    except unittest.SkipTest as skipped:
        return {"outcome": "skipped", "text": str(skipped)}
    except SystemExit as ended:
        reasons = {skip.exit_code: skip.message for skip in common_distributed.TEST_SKIPS.values()}
        if ended.code in reasons:
            return {"outcome": "skipped", "text": reasons[ended.code]}
        return {"outcome": "failed", "text": f"exit status {ended.code}"}
    except Exception:
        return {"outcome": "failed", "text": traceback.format_exc()}
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return {"outcome": "passed", "text": ""}


def main() -> None:
    """Serve until standard input ends."""
    rank = int(os.environ["RANK"])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # tests print
    if BACKEND != "gloo":
        _unwrap()
    if sys.argv[1:] == ["--list"]:
        names = [name for name in dir(Suite) if name.startswith("test_")]
        print(json.dumps(names), file=answers, flush=True)
        return
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(run(rank, asked)), file=answers, flush=True)


if __name__ == "__main__":
    main()
