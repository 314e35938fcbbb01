"""The operations, as numbered by the core."""

from __future__ import annotations

from typing import Final

from sirtaki._core import KINDS

ALLREDUCE: Final = KINDS["allreduce"]
ALLGATHER: Final = KINDS["allgather"]
BROADCAST: Final = KINDS["broadcast"]
ALLTOALL: Final = KINDS["alltoall"]
REDUCESCATTER: Final = KINDS["reducescatter"]
BARRIER: Final = KINDS["barrier"]
REDUCE: Final = KINDS["reduce"]
GATHER: Final = KINDS["gather"]
SCATTER: Final = KINDS["scatter"]
JOIN: Final = KINDS["join"]
ADD_SET: Final = KINDS["add_process_set"]
REMOVE_SET: Final = KINDS["remove_process_set"]
NAMES: Final = {number: name for name, number in KINDS.items()}
