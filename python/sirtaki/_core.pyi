"""The compiled core; see cpp/python."""

from collections.abc import Callable, Sequence
from typing import Any

from numpy import uint8
from numpy.typing import NDArray

class AutotuneOptions:
    enabled: bool
    log: str
    warmup_samples: int
    steps_per_sample: int
    max_samples: int
    chunk_fixed: bool
    fusion_fixed: bool

class EngineOptions:
    fusion_bytes: int
    chunk_bytes: int
    cache_capacity: int
    stall_warning_seconds: float
    stall_shutdown_seconds: float
    caller_spin_ns: int
    engine_spin_ns: int
    log_level: int
    log_time: bool
    autotune: AutotuneOptions
    single_copy: bool
    hosts: list[str]
    host_timeout_seconds: float
    sockets_per_peer: int
    def __init__(self) -> None: ...

class Handle:
    received_splits: list[int]
    value: int
    source: int
    bytes: int
    def done(self) -> bool: ...
    def outputs(self) -> list[tuple[NDArray[uint8], tuple[int, ...]]]: ...

class Engine:
    def __init__(
        self,
        rank: int,
        host_of: list[int],
        memfd: int,
        local_links: list[tuple[int, int]],
        host_links: Sequence[tuple[int, int, bytes, bytes]],
        connect: Callable[[int, int, Callable[[], bool]], int] | None,
        why_broken: Callable[[int], str] | None,
        options: EngineOptions,
        backend: object | None = None,
    ) -> None: ...
    def submit(
        self,
        kind: int,
        name: str,
        dtype: int,
        reduce: int,
        root: int,
        set: int,
        prescale: float,
        postscale: float,
        shapes: Sequence[Sequence[int]],
        splits: list[int],
        inputs: list[int],
        outputs: list[int],
        waits: bool,
    ) -> Handle: ...
    def send(
        self, address: int, bytes: int, rank: int, tag: int, set: int, waits: bool
    ) -> Handle: ...
    def receive(
        self, address: int, bytes: int, rank: int, tag: int, set: int, waits: bool
    ) -> Handle: ...
    def wait(self, handle: Handle) -> None: ...
    def require_own_process(self) -> None: ...
    def shutdown(self) -> None: ...
    def start_timeline(self, path: str, mark_cycles: bool) -> None: ...
    def stop_timeline(self) -> None: ...
    def process_sets(self) -> dict[int, list[int]]: ...
    def backend_name(self) -> str: ...
    def time_allreduce(self, address: int, count: int, repeats: int) -> list[float]: ...
    def time_round_trip(self, rank: int, address: int, bytes: int, repeats: int) -> list[float]: ...

def set_current_engine(engine: Engine | None) -> None: ...
def ffi_address() -> int: ...
def ffi_capsule() -> object: ...
def address(array: NDArray[Any]) -> int: ...
def region_bytes(ranks: int) -> int: ...
def reduce(
    target: int,
    sources: Sequence[int],
    dtype: int,
    op: int,
    count: int,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> None: ...
