"""Collectives on MPI, through mpi4py.

The engine decides what the ranks do and in which order; MPI only moves the data.  MPI reduces
where its result equals that of the core's kernels.  Otherwise it moves slices to the member that
reduces them: 16-bit floats (rounded once), bools, short integers (which wrap around), averages
of integers (whose sum might overflow), the minimum and maximum of floats (where any NaN gives
NaN), and products of complex numbers.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sirtaki import _core
from sirtaki.backends import MPI, adasum, memory
from sirtaki.backends.memory import Stream
from sirtaki.core.operations import codes, reduce_ops

_TYPES = {
    # Unsigned integers, and other types by size, which MPI only moves.
    **{
        code: {1: "UINT8_T", 2: "UINT16_T", 4: "UINT32_T"}[codes.DTYPE_BYTES[code]]
        for code in codes.DTYPES.values()
        if codes.DTYPE_BYTES[code] < 8
    },
    codes.I8: "INT8_T",
    codes.I16: "INT16_T",
    codes.I32: "INT32_T",
    codes.I64: "INT64_T",
    codes.F32: "FLOAT",
    codes.F64: "DOUBLE",
    codes.U64: "UINT64_T",
    codes.C64: "C_FLOAT_COMPLEX",
    codes.C128: "C_DOUBLE_COMPLEX",
}
# Open MPI's vector code saturates sums of shorter ones instead of wrapping around.
_LONG_INTEGERS = frozenset((codes.I32, codes.I64, codes.U32, codes.U64))
_FULL_FLOATS = frozenset((codes.F32, codes.F64))
_FULL_COMPLEX = frozenset((codes.C64, codes.C128))
_SUMS = {reduce_ops.Average: "SUM", reduce_ops.Sum: "SUM", reduce_ops.Product: "PROD"}
_ORDERS = {reduce_ops.Min: "MIN", reduce_ops.Max: "MAX"}

# Most bytes per call where all members can cut alike; bounds the scratch memory.
_RUN_BYTES = 16 << 20
_GROUP_TAG = 5172

# Communicators by their members' ranks in MPI's world. MPI libraries limit their number and worlds
# come and go, so communicators are kept until the process ends.
_communicators: dict[tuple[int, ...], Any] = {}


def built() -> bool:
    """Return whether mpi4py and an MPI for it are installed, without importing or loading them."""
    if importlib.util.find_spec("mpi4py") is None:
        return False
    # Both are slow to import, and few processes need them.
    import ctypes.util
    import shutil

    # A pip-installed MPI is in Python's folder, which need not be on the PATH.
    found = shutil.which("mpirun") or shutil.which("mpirun", path=str(Path(sys.executable).parent))
    return found is not None or ctypes.util.find_library("mpi") is not None


def library(multiple_threads: bool = True) -> Any:
    """Start MPI in this process, unless it is running, and return ``mpi4py.MPI``.

    Args:
        multiple_threads: Whether the script may call MPI concurrently with the engine.

    Raises:
        ValueError: mpi4py or the MPI library is missing, MPI has been finalised, or it was started
            without the thread level that is needed.
    """
    level = "multiple" if multiple_threads else "serialized"
    try:
        import mpi4py

        mpi4py.rc.thread_level = level
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ValueError(
            f"the collectives are to run on MPI but mpi4py cannot be used ({error}); install "
            "mpi4py for the MPI library of your mpirun, or choose SIRTAKI_BACKEND=native"
        ) from error
    if MPI.Is_finalized():
        raise ValueError("MPI has been finalised in this process and cannot be started again")
    if not MPI.Is_initialized():
        MPI.Init_thread(getattr(MPI, f"THREAD_{level.upper()}"))
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise ValueError(
            "MPI runs without support for threads, but the engine calls it from a thread of its "
            "own: leave mpi4py.rc.threads on, or ask MPI_Init_thread for MPI_THREAD_MULTIPLE"
        )
    return MPI


def threads_supported() -> bool:
    """Return whether the running MPI supports calls from several threads."""
    from mpi4py import MPI

    return bool(MPI.Query_thread() == MPI.THREAD_MULTIPLE)


def ranks_of(comm: Any, rank: int, size: int, or_none: bool = False) -> list[int]:
    """Return the launcher ranks of a communicator's processes, in its order.

    Args:
        comm: An mpi4py intracommunicator that includes this process.
        rank: This process's launcher rank.
        size: The number of processes that the launcher started.
        or_none: Whether `comm` may be COMM_NULL, which has no ranks.

    Raises:
        ValueError: `comm` is null, has two groups or processes that the launcher has not started,
            or MPI counts the ranks differently.
    """
    mpi = library()
    require_same_world(mpi, rank, size)
    if comm == mpi.COMM_NULL and or_none:
        return []
    if comm == mpi.COMM_NULL or comm.Is_inter():
        raise ValueError("a communicator must be an intracommunicator that this process is in")
    group = comm.Get_group()
    members = list(range(group.Get_size()))
    ranks: list[int] = group.Translate_ranks(members, mpi.COMM_WORLD.Get_group())
    if min(ranks) < 0:
        raise ValueError("the communicator has processes of another MPI world")
    return ranks


def require_same_world(mpi: Any, rank: int, size: int) -> None:
    """Raise ValueError unless MPI's world is the launcher's."""
    world = mpi.COMM_WORLD
    if (world.Get_rank(), world.Get_size()) != (rank, size):
        raise ValueError(
            f"this process is rank {rank} of {size}, but for MPI rank {world.Get_rank()} of "
            f"{world.Get_size()}: start the job with mpirun or horovodrun --mpi, and use mpi4py "
            "with the MPI library of that mpirun"
        )


def _communicator(mpi: Any, ranks: Sequence[int]) -> Any:
    key = tuple(ranks)
    if key not in _communicators:
        group = mpi.COMM_WORLD.Get_group().Incl(ranks)
        _communicators[key] = mpi.COMM_WORLD.Create_group(group, _GROUP_TAG)
        group.Free()
    return _communicators[key]


@dataclass(frozen=True)
class _Operation:
    """The requested operation; root is a member of the communicator."""

    comm: Any
    dtype: int
    op: int
    pre: float
    post: float
    root: int

    @property
    def is_root(self) -> bool:
        return int(self.comm.Get_rank()) == self.root


class MpiBackend:
    """Moves the data of one world; see callback_backend.h for the engine's calls.

    Args:
        mpi: What `library` returned.
        ranks: The rank in MPI's world of each rank of ours.
    """

    name = MPI

    def __init__(self, mpi: Any, ranks: Sequence[int]) -> None:
        self._mpi = mpi
        self._ranks = list(ranks)
        self._scratch = memory.Scratch()
        self._sets = {0: _communicator(mpi, self._ranks)}
        self._types = {dtype: getattr(mpi, name) for dtype, name in _TYPES.items()}
        self._kinds = {
            codes.ALLREDUCE: self._allreduce,
            codes.ALLGATHER: self._allgather,
            codes.BROADCAST: self._broadcast,
            codes.ALLTOALL: self._alltoall,
            codes.REDUCESCATTER: self._reducescatter,
            codes.BARRIER: self._barrier,
            codes.REDUCE: self._reduce,
            codes.GATHER: self._gather,
            codes.SCATTER: self._scatter,
        }

    def add_set(self, number: int, ranks: Sequence[int]) -> None:
        """Make a process set usable; every rank calls it."""
        if self._sets[0].Get_rank() in ranks:
            self._sets[number] = _communicator(self._mpi, [self._ranks[rank] for rank in ranks])

    def remove_set(self, number: int) -> None:
        """Remove a process set."""
        self._sets.pop(number, None)

    def run(
        self,
        kind: int,
        dtype: int,
        op: int,
        pre: float,
        post: float,
        root: int,
        set_id: int,
        inputs: list[Stream],
        outputs: list[Stream],
    ) -> None:
        """Run one operation; the numbers follow the core's definitions."""
        operation = _Operation(self._sets[set_id], dtype, op, pre, post, root)
        try:
            self._kinds[kind](operation, inputs, outputs)
        finally:
            self._scratch.trim()

    # ---- Reductions ----

    def _allreduce(self, ask: _Operation, inputs: list[Stream], outputs: list[Stream]) -> None:
        if ask.op == reduce_ops.Adasum:
            return self._adasum(ask, inputs[0], outputs[0])
        for run in memory.runs(inputs[0], _RUN_BYTES):
            self._reduce_run(ask, run.of(inputs[0]), run.of(outputs[0]))

    def _reduce(self, ask: _Operation, inputs: list[Stream], outputs: list[Stream]) -> None:
        for run in memory.runs(inputs[0], _RUN_BYTES):
            target = run.of(outputs[0]) if ask.is_root else None
            self._reduce_run(ask, run.of(inputs[0]), target, everyone=False)

    def _reduce_run(
        self, ask: _Operation, source: Stream, target: Stream | None, everyone: bool = True
    ) -> None:
        """Reduce a run into `target`, or None where the result is not needed."""
        size = memory.total(source)
        begin = end = self._contiguous(source, "source")
        direct = target is None or len(target) == 1
        if target is not None:
            end = target[0][0] if direct else self._scratch.address("target", size)
        reducer = self._mpi_op(ask)
        if reducer is not None:
            self._reduce_by_mpi(ask, reducer, (begin, end, size), everyone)
        else:
            self._reduce_by_slices(ask, (begin, end, size), everyone)
        if target is not None and not direct:
            memory.unpack(end, target)

    def _mpi_op(self, ask: _Operation) -> Any:
        if ask.dtype in _LONG_INTEGERS and ask.op != reduce_ops.Average:
            return getattr(self._mpi, {**_SUMS, **_ORDERS}[ask.op])
        if ask.dtype in _FULL_FLOATS and ask.op in _SUMS:
            return getattr(self._mpi, _SUMS[ask.op])
        if ask.dtype in _FULL_COMPLEX and ask.op != reduce_ops.Product:
            return self._mpi.SUM
        return None

    def _reduce_by_mpi(
        self, ask: _Operation, reducer: Any, where: tuple[int, int, int], everyone: bool
    ) -> None:
        begin, end, size = where
        if ask.pre != 1.0:
            begin = self._scaled(ask, ask.pre, begin, self._scratch.address("source", size), size)
        source = self._mpi.IN_PLACE if begin == end else self._data(begin, size, ask.dtype)
        if everyone:
            ask.comm.Allreduce(source, self._data(end, size, ask.dtype), reducer)
        elif ask.is_root:
            ask.comm.Reduce(source, self._data(end, size, ask.dtype), reducer, ask.root)
        else:
            ask.comm.Reduce(self._data(begin, size, ask.dtype), None, reducer, ask.root)
        if ask.post != 1.0 and (everyone or ask.is_root):
            self._scaled(ask, ask.post, end, end, size)

    def _scaled(self, ask: _Operation, factor: float, source: int, target: int, size: int) -> int:
        count = size // codes.DTYPE_BYTES[ask.dtype]
        _core.reduce(target, [source], ask.dtype, reduce_ops.Sum, count, factor)
        return target

    def _reduce_by_slices(
        self, ask: _Operation, where: tuple[int, int, int], everyone: bool
    ) -> None:
        """Reduce one slice per member, in the members' order, so that all get the same bits."""
        begin, end, size = where
        parts, counts = self._exchange_slices(ask, begin, size)
        own = counts[ask.comm.Get_rank()]
        reduced = self._scratch.address("slice", own)
        self._fold(ask, parts, own, reduced)
        mine = self._data(reduced, own, ask.dtype)
        offsets = [sum(counts[:member]) for member in range(len(counts))]
        whole = self._parts(end, counts, offsets, ask.dtype)
        if everyone:
            ask.comm.Allgatherv(mine, whole)
        else:
            ask.comm.Gatherv(mine, whole if ask.is_root else None, ask.root)

    def _exchange_slices(
        self, ask: _Operation, begin: int, size: int
    ) -> tuple[list[int], list[int]]:
        """Return all members' data for this member's slice, as addresses, and the slice sizes."""
        members, unit = ask.comm.Get_size(), codes.DTYPE_BYTES[ask.dtype]
        counts = [count * unit for count in memory.slices(size // unit, members)]
        own = counts[ask.comm.Get_rank()]
        received = self._scratch.address("received", own * members)
        offsets = [sum(counts[:member]) for member in range(members)]
        places = [own * member for member in range(members)]
        ask.comm.Alltoallv(
            self._parts(begin, counts, offsets, ask.dtype),
            self._parts(received, [own] * members, places, ask.dtype),
        )
        return [received + place for place in places], counts

    def _fold(self, ask: _Operation, sources: list[int], size: int, target: int) -> None:
        count = size // codes.DTYPE_BYTES[ask.dtype]
        _core.reduce(target, sources, ask.dtype, ask.op, count, ask.pre, ask.post)

    def _reducescatter(self, ask: _Operation, inputs: list[Stream], outputs: list[Stream]) -> None:
        members = len(inputs)
        sent = memory.block(inputs, self._scratch, "source")
        memory.fill(sent, inputs)
        own = sent.counts[ask.comm.Get_rank()]
        received = self._scratch.address("received", own * members)
        places = [own * member for member in range(members)]
        ask.comm.Alltoallv(
            self._parts(sent.address, sent.counts, sent.offsets, ask.dtype),
            self._parts(received, [own] * members, places, ask.dtype),
        )
        reduced = self._scratch.address("slice", own)
        self._fold(ask, [received + place for place in places], own, reduced)
        memory.unpack(reduced, outputs[0])

    def _adasum(self, ask: _Operation, source: Stream, target: Stream) -> None:
        grams = self._products(ask, source)
        rank, unit = ask.comm.Get_rank(), codes.DTYPE_BYTES[ask.dtype]
        scale = ask.pre * ask.post
        for (begin, size), (end, _), gram in zip(source, target, grams, strict=True):
            own = float(adasum.coefficients(gram)[rank])
            _core.reduce(end, [begin], ask.dtype, reduce_ops.Sum, size // unit, own * scale)
        total = _Operation(ask.comm, ask.dtype, reduce_ops.Sum, 1.0, 1.0, 0)
        self._allreduce(total, [target], [target])

    def _products(self, ask: _Operation, source: Stream) -> Any:
        """Return the inner products of the members' vectors, for each segment."""
        members, rank = ask.comm.Get_size(), ask.comm.Get_rank()
        grams = np.zeros((len(source), members, members))
        for run in memory.runs(source, _RUN_BYTES):
            pieces = run.of(source)
            begin = self._contiguous(pieces, "source")
            parts, counts = self._exchange_slices(ask, begin, memory.total(pieces))
            first = sum(counts[:rank])
            for index, start, end in _overlaps(pieces, first, first + counts[rank]):
                data = [memory.view(part + start - first, end - start) for part in parts]
                vectors = np.stack([adasum.to_double(each, ask.dtype) for each in data])
                grams[run.first + index] += vectors @ vectors.T
        ask.comm.Allreduce(self._mpi.IN_PLACE, grams)
        return grams

    # ---- The others ----

    def _allgather(self, ask: _Operation, inputs: list[Stream], outputs: list[Stream]) -> None:
        size = memory.total(inputs[0])
        mine = self._data(self._contiguous(inputs[0], "source"), size, ask.dtype)
        received = memory.block(outputs, self._scratch, "received")
        ask.comm.Allgatherv(mine, self._block(received, ask.dtype))
        memory.empty(received, outputs)

    def _gather(self, ask: _Operation, inputs: list[Stream], outputs: list[Stream]) -> None:
        size = memory.total(inputs[0])
        mine = self._data(self._contiguous(inputs[0], "source"), size, ask.dtype)
        if not ask.is_root:
            ask.comm.Gatherv(mine, None, ask.root)
            return
        received = memory.block(outputs, self._scratch, "received")
        ask.comm.Gatherv(mine, self._block(received, ask.dtype), ask.root)
        memory.empty(received, outputs)

    def _scatter(self, ask: _Operation, inputs: list[Stream], outputs: list[Stream]) -> None:
        size = memory.total(outputs[0])
        target = self._scratch.address("received", size)
        mine = self._data(target, size, ask.dtype)
        if ask.is_root:
            sent = memory.block(inputs, self._scratch, "source")
            memory.fill(sent, inputs)
            ask.comm.Scatterv(self._block(sent, ask.dtype), mine, ask.root)
        else:
            ask.comm.Scatterv(None, mine, ask.root)
        memory.unpack(target, outputs[0])

    def _alltoall(self, ask: _Operation, inputs: list[Stream], outputs: list[Stream]) -> None:
        sent = memory.block(inputs, self._scratch, "source")
        memory.fill(sent, inputs)
        received = memory.block(outputs, self._scratch, "received")
        ask.comm.Alltoallv(self._block(sent, ask.dtype), self._block(received, ask.dtype))
        memory.empty(received, outputs)

    def _broadcast(self, ask: _Operation, inputs: list[Stream], outputs: list[Stream]) -> None:
        for run in memory.runs(outputs[0], _RUN_BYTES):
            target = run.of(outputs[0])
            if ask.is_root:
                source = run.of(inputs[0])
                place = self._contiguous(source, "source")
                ask.comm.Bcast(self._data(place, run.bytes, ask.dtype), ask.root)
                if source != target:
                    memory.unpack(place, target)
                continue
            with_copy = len(target) > 1
            place = self._scratch.address("received", run.bytes) if with_copy else target[0][0]
            ask.comm.Bcast(self._data(place, run.bytes, ask.dtype), ask.root)
            if with_copy:
                memory.unpack(place, target)

    def _barrier(self, ask: _Operation, _inputs: list[Stream], _outputs: list[Stream]) -> None:
        ask.comm.Barrier()

    # ---- mpi4py arguments ----

    def _contiguous(self, stream: Stream, purpose: str) -> int:
        """Return the address of the stream in contiguous memory, copied if necessary."""
        made = memory.block([stream], self._scratch, purpose)
        memory.fill(made, [stream])
        return made.address

    def _data(self, address: int, size: int, dtype: int) -> list[Any]:
        data = self._mpi.buffer.fromaddress(address, size)
        return [data, size // codes.DTYPE_BYTES[dtype], self._types[dtype]]

    def _parts(
        self, address: int, counts: Sequence[int], offsets: Sequence[int], dtype: int
    ) -> list[Any]:
        """Describe a block, with counts and offsets in bytes."""
        unit = codes.DTYPE_BYTES[dtype]
        ends = [offset + count for offset, count in zip(offsets, counts, strict=True)]
        return [
            self._mpi.buffer.fromaddress(address, max(ends)),
            [count // unit for count in counts],
            [offset // unit for offset in offsets],
            self._types[dtype],
        ]

    def _block(self, made: memory.Block, dtype: int) -> list[Any]:
        return self._parts(made.address, made.counts, made.offsets, dtype)


def _overlaps(stream: Stream, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Yield (segment, begin, end) for each segment's share of bytes `first` to `last`."""
    at = 0
    for index, (_, size) in enumerate(stream):
        begin, end = max(at, first), min(at + size, last)
        if begin < end:
            yield index, begin, end
        at += size
