"""The core of a world of one, for systems that the compiled core does not know.

Wheels for macOS and Windows have this file in the compiled core's place: a script that is to run on
many ranks can be written and tried there. What needs a second rank, or an engine, is refused.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from fractions import Fraction
from math import isinf, prod
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_KINDS = (
    "allreduce allgather broadcast alltoall reducescatter barrier reduce gather scatter join "
    "add_process_set remove_process_set"
)
_DTYPES = (
    "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 uint16 uint32 uint64 "
    "complex32 complex64 complex128 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz "
    "float8_e8m0fnu float4_e2m1fn_x2 float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float6_e2m3fn "
    "float6_e3m2fn float4_e2m1fn int1 int2 int4 uint1 uint2 uint4 bcomplex32"
)
_REDUCTIONS = "Average Sum Adasum Min Max Product BitAnd BitOr BitXor"

KINDS: Final = {name: number for number, name in enumerate(_KINDS.split())}
DTYPES: Final = {name: number for number, name in enumerate(_DTYPES.split())}
DTYPE_BYTES: Final = (1, 1, 1, 2, 4, 8, 2, 2, 4, 8, 2, 4, 8, 4, 8, 16, *[1] * 18, 4)
REDUCIBLE_DTYPES: Final = 16
REDUCTIONS: Final = {name: number for number, name in enumerate(_REDUCTIONS.split())}
CODECS: Final = {
    "none": "",
    "float16": "float16",
    "bfloat16": "bfloat16: the range of float32 with 8 bits of precision",
    "int8": "integers up to 127, with a scale for every 60 of them",
    "int4": "integers from -8 to 7, with a scale for every 60 of them",
}

_ROWS = {KINDS[name]: name for name in ("allgather", "alltoall", "reducescatter", "gather")}
_SCALED = {KINDS[name] for name in ("allreduce", "reducescatter", "reduce")}
_WHERE = "sirtaki on " + {"darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)


def refuse_ranks(ranks: int) -> None:
    """Raise ValueError for more ranks than one."""
    if ranks > 1:
        raise ValueError(
            f"{_WHERE} runs a world of one rank, and {ranks} are asked for: start the script "
            "without a launcher, or run it on Linux (WSL2 is Linux)"
        )


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"{_WHERE} runs a world of one rank by Python alone, which has no {name}: use Linux"
    )


class EngineOptions(SimpleNamespace):
    """Settings; an engine of one rank needs none of them."""

    def __init__(self) -> None:
        super().__init__(autotune=SimpleNamespace())


class Arrivals:
    """The gradients of a training step, of which one rank exchanges none."""

    busy = False

    def __init__(self, *_: object) -> None:
        pass

    def reset(self, passes: int) -> None:
        """Do nothing."""


class Links:
    """What connects one rank: nothing."""

    def __init__(self, rank: int, host_of: Sequence[int], **_: object) -> None:
        refuse_ranks(len(host_of))
        self._generation = 1

    def renew(self, timeout: float) -> tuple[int, list[int]]:
        """Return the number of the next engine, and the ranks that did not come."""
        self._generation += 1
        return self._generation, []

    def close(self) -> None:
        """Do nothing."""


class Request:
    """What is to be done, as the compiled core takes it."""

    def __init__(
        self,
        kind: int,
        *,
        name: str = "",
        set: int = 0,
        waits: bool = False,
        **details: Any,
    ) -> None:
        self.kind = kind
        self.set = set
        self.waits = waits
        self.key = (name, set) if name else None
        self.details = {"dtype": 1, "reduce": 1, "prescale": 1.0, "postscale": 1.0, **details}


class Handle:
    """An operation, which is done; messages: as soon as one has come."""

    def __init__(self) -> None:
        self.received_splits: list[int] = []
        self.value = 0
        self.source = 0
        self.bytes = 0
        self.ended = True
        self._outputs: list[tuple[NDArray[np.uint8], tuple[int, ...]]] = []

    def add_output(self, data: NDArray[np.uint8], shape: tuple[int, ...]) -> None:
        """Keep a result that the caller gave no memory for."""
        self._outputs.append((data, shape))

    def done(self) -> bool:
        """Tell whether it is done."""
        return self.ended

    def check(self) -> None:
        """Do nothing: what can fail has failed when it was submitted."""

    def outputs(self) -> list[tuple[NDArray[np.uint8], tuple[int, ...]]]:
        """Return the results that the caller gave no memory for."""
        return self._outputs


class Engine:
    """Does every operation of one rank at once."""

    def __init__(self, links: Links, options: EngineOptions, backend: object = None) -> None:
        if backend is not None:
            raise ValueError(f"{_WHERE} has no backend but its own")
        self._open = True
        self._sets = {0: [0]}
        self._sent: list[tuple[int, int, bytes]] = []
        self._receives: list[tuple[int, int, int, int, Handle]] = []

    def submit(self, request: Request, keep: object) -> Handle:
        """Do what is asked for. ValueError where it has no meaning."""
        self._require_world()
        if request.set not in self._sets:
            raise ValueError(f"there is no process set {request.set}")
        handle = Handle()
        if request.kind == KINDS["add_process_set"]:
            handle.value = self._add_set(request.details["splits"])
        elif request.kind == KINDS["remove_process_set"]:
            del self._sets[request.details["root"]]
        else:
            self._move(request, handle)
        return handle

    def _add_set(self, ranks: list[int]) -> int:
        if ranks != [0]:
            raise ValueError(f"a process set of ranks {ranks} in a world of one rank, 0")
        number = max(self._sets) + 1
        self._sets[number] = ranks
        return number

    def _move(self, request: Request, handle: Handle) -> None:
        """Copy each input to its output, of the caller's or new."""
        given = request.details
        factor = (given["prescale"], given["postscale"])
        outputs = given.get("outputs", ())
        for number, (address, shape) in enumerate(
            zip(given.get("inputs", ()), given.get("shapes", ()), strict=True)
        ):
            shape = tuple(shape)
            if request.kind in _ROWS and not shape:
                raise ValueError(
                    f"{_ROWS[request.kind]} needs rows, but got a rank-zero tensor (a scalar)"
                )
            data = _memory(address, DTYPE_BYTES[given["dtype"]] * prod(shape))
            if request.kind in _SCALED:
                data = _scaled(data, given["dtype"], given["reduce"], *factor)
            if request.kind == KINDS["alltoall"]:
                handle.received_splits = list(given["splits"])
                rows = sum(handle.received_splits)
                data = data[: len(data) // max(shape[0], 1) * rows]
                shape = (rows, *shape[1:])
            if outputs:
                _memory(outputs[number], len(data))[:] = data
            else:
                handle.add_output(data.copy(), shape)

    def send(self, address: int, bytes: int, rank: int, tag: int, set: int, keep: object) -> Handle:
        """Keep a message of this rank to itself until it is received."""
        self._require_world()
        self._sent.append((set, tag, _memory(address, bytes).tobytes()))
        self._match()
        return Handle()

    send_and_wait = send

    def receive(
        self, address: int, bytes: int, rank: int, tag: int, set: int, keep: object
    ) -> Handle:
        """Take the next message of this rank to itself that has the tag."""
        self._require_world()
        handle = Handle()
        handle.ended = False
        self._receives.append((set, tag, address, bytes, handle))
        self._match()
        return handle

    def receive_and_wait(
        self, address: int, bytes: int, rank: int, tag: int, set: int, keep: object
    ) -> tuple[int, int]:
        """Return the sender and the bytes of the next message that has the tag."""
        handle = self.receive(address, bytes, rank, tag, set, keep)
        try:
            self.wait(handle)
        finally:
            self.withdraw(handle)
        return handle.source, handle.bytes

    def _match(self) -> None:
        for asked in list(self._receives):
            set, tag, address, room, handle = asked
            message = next((one for one in self._sent if one[:2] == (set, tag)), None)
            if message is None:
                continue
            data = message[2]
            if len(data) > room:
                raise _errors().MismatchError(
                    f"the message of rank 0 with tag {tag} has {len(data)} bytes, more than the "
                    f"{room} of the tensor"
                )
            self._sent.remove(message)
            self._receives.remove(asked)
            _memory(address, len(data))[:] = np.frombuffer(data, np.uint8)
            handle.bytes, handle.ended = len(data), True

    def withdraw(self, handle: Handle) -> None:
        """Take back a receive that no message has come for."""
        self._receives = [one for one in self._receives if one[4] is not handle]

    def wait(self, handle: Handle, timeout: float | None = None, for_ever: bool = True) -> bool:
        """Return True; HorovodInternalError for a receive that nothing was sent for."""
        if not handle.ended:
            raise _errors().HorovodInternalError(
                "rank 0 waits for a message of its own that it has not sent"
            )
        return True

    def require_own_process(self) -> None:
        """Do nothing: there is no thread that a forked process would lack."""

    def _require_world(self) -> None:
        if not self._open:
            raise _errors().HorovodInternalError("Horovod has been shut down.")

    def finish(self) -> None:
        """Do nothing: there are no others to tell."""

    def shutdown(self) -> bool:
        """End; what is submitted later fails."""
        self._open = False
        return True

    def abort(self, why: str) -> None:
        """End as `shutdown` does."""
        self._open = False

    def start_timeline(self, path: str, mark_cycles: bool) -> None:
        """Raise ValueError: there is no engine to write one."""
        raise ValueError(f"{_WHERE} writes no timeline: use Linux")

    def stop_timeline(self) -> None:
        """Do nothing."""

    def snapshot(self, most: int, patience: float) -> list[Any]:
        """Return nothing: no operation is ever under way."""
        return []

    def process_sets(self) -> dict[int, list[int]]:
        """Return the ranks of each set."""
        return dict(self._sets)

    def backend_name(self) -> str:
        """Return what moves the data."""
        return "python"

    def direct(self) -> tuple[int, int]:
        """Return how many operations moved bytes of shared arrays, and how many bytes."""
        return 0, 0


def _errors() -> Any:
    from sirtaki.core import errors

    return errors


def _memory(address: int, size: int) -> NDArray[np.uint8]:
    """Return the bytes at an address; they stay the caller's."""
    if size == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer(memoryview((ctypes.c_uint8 * size).from_address(address)), np.uint8)


def _scaled(
    data: NDArray[np.uint8], dtype: int, op: int, pre: float, post: float
) -> NDArray[np.uint8]:
    """Return what a reduction of one rank gives, rounded as the compiled core does."""
    name = _DTYPES.split()[dtype]
    if name == "bool":
        return np.not_equal(data, 0).astype(np.uint8)
    if pre == post == 1.0:
        return data
    with np.errstate(all="ignore"):
        if name == "bfloat16":
            wide = (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
            return _to_bfloat16(wide * np.float32(pre) * np.float32(post)).view(np.uint8)
        if "int" in name:
            averages = op == REDUCTIONS["Average"]
            within = ("uint64" if name == "uint64" else "int64") if averages else name
            return _whole(_whole(data.view(name), pre, within), post, name).view(np.uint8)
        kind = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
        parts = data.view(kind.get(name, name))
        wide = parts.astype(np.float32) if parts.dtype == np.float16 else parts
        factors = [wide.dtype.type(factor) for factor in (pre, post)]
        scaled: NDArray[Any] = wide * factors[0] * factors[1]
        return scaled.astype(parts.dtype).view(np.uint8)


def _whole(numbers: NDArray[Any], factor: float, dtype: Any) -> NDArray[Any]:
    """Scale, cut towards zero and keep within a type's range: in float64 where that is exact."""
    if factor == 1.0 and numbers.dtype == dtype:
        return numbers
    wide = numbers.astype(np.float64)
    near = wide * factor
    exact = (np.abs(near) < 2.0**53) & (np.abs(wide) <= 2.0**53)
    range_ = np.iinfo(dtype)
    scaled = np.zeros(numbers.shape, dtype)
    scaled[exact] = np.clip(near[exact], float(range_.min), min(float(range_.max), 2.0**53))
    for i in np.flatnonzero(~exact & ~np.isnan(near)):
        if isinf(factor):
            scaled[i] = range_.max if near[i] > 0 else range_.min
            continue
        product = int(Fraction(int(numbers[i])) * Fraction(factor))
        scaled[i] = min(max(product, int(range_.min)), int(range_.max))
    return scaled


def _to_bfloat16(numbers: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round to nearest even; NaN stays NaN."""
    bits = numbers.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(numbers), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def set_current_engine(engine: Engine | None) -> None:
    """Do nothing: no library asks for it."""


def address(array: NDArray[Any]) -> int:
    """Return where an array's elements are."""
    return int(array.ctypes.data)


def heap_allocate(bytes: int) -> None:
    """Return None: one rank has nobody to share memory with."""


def heap_holds(address: int, bytes: int) -> bool:
    """Tell that no shared memory holds it."""
    return False


def heap_memory() -> tuple[int, int]:
    """Return the descriptor and the size of no shared memory."""
    return -1, 0


slot_bytes: Final = 0


def region_bytes(ranks: int) -> int:
    """Return the memory that so many ranks share. ValueError for more than one."""
    refuse_ranks(ranks)
    return 0


def linked_hosts(hosts: int, host: int) -> list[int]:
    """Return the hosts to link with: none."""
    return []


def has_coded_reduction(codec: int, op: int) -> bool:
    """Tell whether numbers that travel so can be reduced so; the same ones as everywhere."""
    if codec > [*CODECS].index("bfloat16"):
        return op in (REDUCTIONS["Average"], REDUCTIONS["Sum"])
    return op <= REDUCTIONS["Product"] and (codec == 0 or op != REDUCTIONS["Adasum"])


def feed_back(codec: int, numbers: int, residual: int, count: int) -> None:
    """Raise ValueError: nothing is encoded, so nothing is lost that could be fed back."""
    raise ValueError(f"{_WHERE} encodes nothing and has no error feedback: use Linux")


def add_fixed(
    sums: int, values: int, dtype: int, count: int, exponent: int, mode: int
) -> tuple[int, bool]:
    """Raise ValueError: there are no sums in fixed point."""
    raise ValueError(f"{_WHERE} has no reproducible sums: use Linux")


def round_fixed(
    values: int, sums: int, dtype: int, count: int, exponent: int, divisor: int
) -> None:
    """Raise ValueError, as `add_fixed`."""
    raise ValueError(f"{_WHERE} has no reproducible sums: use Linux")


def kernel_level() -> str:
    """Return what reductions use."""
    return "NumPy"
