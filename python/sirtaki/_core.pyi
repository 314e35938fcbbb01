"""The compiled core; see cpp/python."""

from collections.abc import Callable, Sequence
from typing import Any

from numpy import uint8
from numpy.typing import NDArray

from sirtaki.questions.messages import Totals

KINDS: dict[str, int]
DTYPES: dict[str, int]
DTYPE_BYTES: tuple[int, ...]
REDUCIBLE_DTYPES: int
REDUCTIONS: dict[str, int]
CODECS: dict[str, str]

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
    stall_shutdown_seconds: float
    caller_spin_ns: int
    engine_spin_ns: int
    log_level: int
    log_time: bool
    autotune: AutotuneOptions
    single_copy: bool
    hosts: list[str]
    heartbeat: int
    data_timeout_seconds: float
    host_timeout_seconds: float
    deadlock_seconds: float
    has_whole_job: bool
    silent_seconds: float
    direct_hosts: int
    def __init__(self) -> None: ...

class Handle:
    received_splits: list[int]
    value: int
    source: int
    bytes: int
    def done(self) -> bool: ...
    def check(self) -> None: ...
    def outputs(self) -> list[tuple[NDArray[uint8], tuple[int, ...]]]: ...

class Completions:
    def __init__(self) -> None: ...
    def take(self) -> list[int]: ...
    def close(self) -> None: ...

class Launch:
    number: int
    ranks: list[int]
    name: str
    set: int
    kind: int
    dtype: int
    reduce: int
    prescale: float
    postscale: float
    root: int
    shapes: list[tuple[int, ...]]
    sizes: list[int]

class Launches:
    def take(self) -> list[Launch]: ...
    def await_end(self) -> None: ...

class Request:
    @property
    def waits(self) -> bool: ...
    @property
    def key(self) -> tuple[str, int] | None: ...
    def launch_as(self, number: int) -> None: ...
    def __init__(
        self,
        kind: int,
        *,
        name: str = "",
        dtype: int = ...,
        reduce: int = ...,
        root: int = 0,
        set: int = 0,
        prescale: float = 1.0,
        postscale: float = 1.0,
        codec: int = ...,
        shapes: Sequence[Sequence[int]] = ...,
        splits: Sequence[int] = ...,
        inputs: Sequence[int] = ...,
        outputs: Sequence[int] = ...,
        results: Sequence[tuple[int, int]] = ...,
        waits: bool = False,
        completions: Completions | None = None,
        number: int = 0,
    ) -> None: ...

class Places:
    def __init__(
        self,
        classes: tuple[type, ...],
        negated: Callable[[Any], bool],
        conjugated: Callable[[Any], bool],
    ) -> None: ...

class Known:
    def __init__(self, first: Request, places: Places, tensors: Sequence[Any]) -> None: ...
    def submit(self, engine: Engine, tensors: Sequence[Any], waits: bool) -> Handle | None: ...

class Arrivals:
    def __init__(
        self,
        gradient: str,
        version: str,
        complete: Callable[[int], None],
        extra: Callable[[int, int], None],
    ) -> None: ...
    @property
    def busy(self) -> bool: ...
    def add(self, parameters: int, passes: int) -> None: ...
    def hook(self, bucket: int, index: int) -> Callable[[Any], None]: ...
    def close(self, bucket: int) -> None: ...
    def gradients(self, bucket: int) -> list[Any]: ...
    def changed(self, bucket: int, parameters: list[Any]) -> list[int]: ...
    def reset(self, passes: int) -> None: ...

class Recorded:
    number: int
    sequence: int
    operation: str
    tensor: str
    dtype: str
    stage: str
    set: int
    bytes: int
    submitted_ns: int
    agreed_ns: int
    begun_ns: int
    ended_ns: int
    phase: str
    peer: int
    chunk: int
    waits_since_ns: int

class RankState:
    known: bool
    gone: bool
    stage: str
    operation: str
    tensor: str
    phase: str
    peer: int
    chunk: int
    seconds: float
    open: int
    completed: int
    blocked_seconds: float
    exposed_seconds: float
    calls: int

class Links:
    def __init__(
        self,
        rank: int,
        host_of: list[int],
        memfd: int,
        event_descriptors: list[int],
        local_links: list[tuple[int, int]],
        host_links: Sequence[tuple[int, int, bytes, bytes]],
        connect: Callable[[int, int, Callable[[], bool]], tuple[int, bytes, bytes]] | None,
        why_broken: Callable[[int], str] | None,
        heaps: Sequence[tuple[int, int]] = (),
    ) -> None: ...
    def renew(self, timeout: float) -> tuple[int, list[int]]: ...
    def close(self) -> None: ...

class Engine:
    launches: Launches
    def __init__(
        self, links: Links, options: EngineOptions, backend: object | None = None
    ) -> None: ...
    def submit(self, request: Request, keep: object) -> Handle: ...
    def send(
        self,
        address: int,
        bytes: int,
        rank: int,
        tag: int,
        set: int,
        keep: object,
        completions: Completions | None = None,
        number: int = 0,
    ) -> Handle: ...
    def send_and_wait(
        self, address: int, bytes: int, rank: int, tag: int, set: int, keep: object
    ) -> None: ...
    def receive(
        self,
        address: int,
        bytes: int,
        rank: int,
        tag: int,
        set: int,
        keep: object,
        completions: Completions | None = None,
        number: int = 0,
    ) -> Handle: ...
    def receive_and_wait(
        self, address: int, bytes: int, rank: int, tag: int, set: int, keep: object
    ) -> tuple[int, int]: ...
    def withdraw(self, handle: Handle) -> None: ...
    def wait(self, handle: Handle, timeout: float | None = None, for_ever: bool = True) -> bool: ...
    def require_own_process(self) -> None: ...
    def finish(self) -> None: ...
    def shutdown(self) -> bool: ...
    def abort(self, why: str) -> None: ...
    def start_timeline(self, path: str, mark_cycles: bool) -> None: ...
    def stop_timeline(self) -> None: ...
    def snapshot(
        self, most: int, patience: float
    ) -> list[tuple[int, RankState, list[Recorded]]]: ...
    def totals(self, rank: int) -> Totals | None: ...
    def waits(self) -> tuple[float, int, int]: ...
    def drain(self, next: int, open: list[int]) -> tuple[bytes, list[int], int, int]: ...
    def be_precise(self, wanted: bool) -> None: ...
    def process_sets(self) -> dict[int, list[int]]: ...
    def backend_name(self) -> str: ...
    def direct(self) -> tuple[int, int]: ...
    def time_allreduce(self, address: int, count: int, repeats: int) -> list[float]: ...
    def time_submit(self, address: int, count: int, repeats: int) -> list[float]: ...
    def time_round_trip(self, rank: int, address: int, bytes: int, repeats: int) -> list[float]: ...

def set_current_engine(engine: Engine | None) -> None: ...
def ffi_address() -> int: ...
def ffi_capsule() -> object: ...
def address(array: NDArray[Any]) -> int: ...
def heap_allocate(bytes: int) -> NDArray[uint8] | None: ...
def heap_holds(address: int, bytes: int) -> bool: ...
def heap_memory() -> tuple[int, int]: ...
def region_bytes(ranks: int) -> int: ...

slot_bytes: int

def linked_hosts(hosts: int, host: int) -> list[int]: ...
def reduce(
    target: int,
    sources: Sequence[int],
    dtype: int,
    op: int,
    count: int,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> None: ...
def has_coded_reduction(codec: int, op: int) -> bool: ...
def feed_back(codec: int, numbers: int, residual: int, count: int) -> None: ...
def add_fixed(
    sums: int, values: int, dtype: int, count: int, exponent: int, mode: int
) -> tuple[int, bool]: ...
def round_fixed(
    values: int, sums: int, dtype: int, count: int, exponent: int, divisor: int
) -> None: ...
def kernel_level() -> str: ...
def decode_records(drained: bytes, ranks: int) -> list[Recorded]: ...
