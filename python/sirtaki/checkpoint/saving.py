"""Saves on all ranks in the background, and loads on any number of ranks."""

from __future__ import annotations

import functools
import os
import secrets
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from sirtaki.checkpoint import files
from sirtaki.checkpoint.framework import Array, Framework
from sirtaki.checkpoint.packing import pack, shares, unpack
from sirtaki.core import elastic
from sirtaki.core.errors import CheckpointError
from sirtaki.core.operations.objects import allgather_object, broadcast_object
from sirtaki.core.world import state as world

_Path = str | os.PathLike[str]


class Loaded(NamedTuple):
    """The result of loading a checkpoint."""

    step: int
    state: Any
    path: Path


class _Writing:
    """A file that is being written in the background; at most one at a time."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._problem: str | None = None

    def start(self, write: Callable[[], None]) -> None:
        # Not a daemon thread: a process that exits normally finishes writing.
        thread = threading.Thread(target=self._run, args=(write,), name="checkpoint")
        try:
            thread.start()
        except RuntimeError:  # no thread could be started
            self._run(write)
        else:
            self._thread = thread

    def _run(self, write: Callable[[], None]) -> None:
        try:
            write()
        except Exception as error:
            self._problem = f"{error} ({type(error).__name__})"
            print(f"sirtaki: a checkpoint could not be written: {error}", file=sys.stderr)

    def finish(self) -> str | None:
        """Wait until it is written; return its error."""
        if self._thread is not None:
            self._thread.join()
        self._thread, problem, self._problem = None, self._problem, None
        return problem


class Checkpoints:
    """Checkpoints of a framework.

    Args:
        framework: Knows its arrays.
    """

    def __init__(self, framework: Framework) -> None:
        self._framework = framework
        self._writing = _Writing()
        # The folder and step of the last one; complete once all ranks have written their parts.
        self._last: tuple[str, int] | None = None

    def save(
        self,
        path: _Path,
        state: Any,
        step: int,
        async_: bool = True,
        keep: int = 3,
        sharded: bool = False,
    ) -> None:
        """Write a checkpoint; all ranks call it together.

        The data is copied before the call returns. The random states of all ranks are written, too.
        A crash at any moment leaves the last checkpoint intact.

        Args:
            path: The folder for this training's checkpoints; it is created if necessary.
            state: An elastic state, or a dict of values to save: models, optimizers, other
                objects with `state_dict()` and `load_state_dict()`, arrays and plain objects.
            step: The training step.
            async_: Whether to write in the background; the next `save` or `wait` raises any
                error from that write.
            keep: The number of checkpoints to keep.
            sharded: Whether each rank writes a share of the arrays, to a folder that all ranks
                share; otherwise rank 0 writes all of them.

        Raises:
            CheckpointError: This or the last checkpoint could not be written; raised on all ranks.
            ValueError: `step` is negative, or `keep` not positive.
            HorovodInternalError: A rank was lost.
        """
        if step < 0 or keep < 1:
            raise ValueError(f"save(step={step}, keep={keep}): step >= 0 and keep >= 1 are needed")
        root, parts = Path(path), _size() if sharded else 1
        problem = self._writing.finish()
        meta: dict[str, Any] = {}
        arrays: dict[int, Array] = {}
        leaves: list[Any] = []
        if problem is None:
            try:
                meta, arrays = self._snapshot(state, leaves, _rank(), parts)
            except Exception as error:
                problem = str(error)
        token = secrets.token_hex(4)
        told = _allgather((problem, token, self._framework.random()), "checkpoint.save")
        last, self._last = self._last, None
        _raise([each[0] for each in told], root)
        _note(last)
        folder = files.folder_of(root, step, told[0][1])
        self._last = (str(folder.absolute()), step)
        if _rank() < parts:
            if _rank() == 0:
                count = len(leaves)
                meta["random"] = pack([each[2] for each in told], self._framework, leaves)
                for index, leaf in enumerate(leaves[count:], count):
                    arrays[index] = self._framework.to_host(leaf)
            self._start(folder, parts, keep, {**meta, "step": step}, arrays)
        if not async_:
            self.wait()

    def _start(
        self, folder: Path, parts: int, keep: int, meta: dict[str, Any], arrays: dict[int, Array]
    ) -> None:
        part = _rank()

        def write() -> None:
            files.write_part(folder, part, parts, meta, arrays)
            if part == 0:
                files.prune(folder.parent, keep, folder)
                if parts == 1:
                    _note(self._last)

        self._writing.start(write)

    def _snapshot(
        self, state: Any, leaves: list[Any], part: int, parts: int
    ) -> tuple[dict[str, Any], dict[int, Array]]:
        """Add all arrays to `leaves`; return copies of this rank's share."""
        tree = pack(self._capture(state), self._framework, leaves)
        chosen = shares([leaf.nbytes for leaf in leaves], parts)
        mine: dict[int, Array] = {}
        for index, leaf in enumerate(leaves):
            if chosen[index] == part:
                array = self._framework.to_host(leaf)
                mine[index] = array._replace(data=array.data.copy())
        return {"framework": self._framework.name, "tree": tree if part == 0 else None}, mine

    def _capture(self, state: Any) -> Any:
        if type(state) is dict:
            return {name: self._framework.capture(value) for name, value in state.items()}
        return self._framework.capture(state)

    def wait(self) -> None:
        """Wait until the last checkpoint is written; all ranks call it together.

        Raises:
            CheckpointError: It could not be written; raised on all ranks.
        """
        told = _allgather(self._writing.finish(), "checkpoint.wait")
        last, self._last = self._last, None
        _raise(told, None)
        self._last = last
        _note(last)

    def latest(self, path: _Path) -> Path | None:
        """Return the newest complete checkpoint in a folder, or None; any rank may call it.

        A warning names each newer one that is incomplete.

        Args:
            path: The path passed to `save`.
        """
        return files.latest(Path(path))

    def load(self, path: _Path, state: Any = None, trusted: bool = False) -> Loaded | None:
        """Load the newest complete checkpoint; all ranks call it together.

        The number of ranks may differ from when it was saved. Ranks that existed then restore
        their random states. If rank 0 wrote the checkpoint alone, only rank 0 needs access to the
        file. In an elastic job only rank 0 loads, because processes that join later do not call
        this together with others; `run` sends its state to all ranks, and random states to those
        that existed then.

        Args:
            path: The path passed to `save`, or the result of `latest`.
            state: Like the one that was saved; restored in place where possible. None: the
                saved tree is returned unchanged.
            trusted: Whether to unpickle objects, which runs code that the file names.

        Returns:
            The loaded data; None if there is no checkpoint, or on other ranks of an elastic job.

        Raises:
            CheckpointError: A file is damaged, or not a checkpoint; raised on all ranks.
            HorovodInternalError: A rank was lost.
        """
        alone = elastic.is_elastic() or not world.is_initialized()
        if alone and _rank() != 0:
            later = functools.partial(self.load, path, state, trusted)
            elastic.leave_to_first(later, self._framework.set_random)
            return None
        exchange: Callable[[Any, int], Any] = _keep if alone else _broadcast
        found, parts = _tried(lambda: _find(Path(path)), 0, exchange)
        if found is None:
            return None
        meta: dict[str, Any] = {}
        arrays: dict[int, Array] = {}
        for part, file in enumerate(parts):
            reader = part % _size() if len(parts) > 1 and not alone else 0
            content = _tried(functools.partial(files.read_part, file), reader, exchange)
            meta = meta or content[0]
            arrays |= content[1]
        return self._restored(found, meta, arrays, state, trusted)

    def _restored(
        self, found: Path, meta: Any, arrays: dict[int, Array], state: Any, trusted: bool
    ) -> Loaded:
        if meta["framework"] != self._framework.name:
            raise CheckpointError(
                f"{found} was written with {meta['framework']}, and is loaded with "
                f"{self._framework.name}: use the hvd.checkpoint of {meta['framework']}"
            )
        try:
            leaves = [self._framework.from_host(arrays[i]) for i in range(len(arrays))]
            tree = unpack(meta["tree"], leaves, trusted)
            state = tree if state is None else self._put(state, tree)
        except CheckpointError as error:
            raise CheckpointError(f"{found}: {error}") from error
        except Exception as error:
            raise CheckpointError(
                f"{found} does not fit the state that is to be loaded: {error!r}; load it into a "
                "state like the one that was saved, or give another folder to a new training"
            ) from error
        self._continue_random(meta["random"], leaves)
        return Loaded(meta["step"], state, found)

    def _continue_random(self, packed: Any, leaves: list[Any]) -> None:
        states = unpack(packed, leaves, trusted=False)
        if _rank() < len(states):
            self._framework.set_random(states[_rank()])
        if elastic.is_elastic():
            elastic.note_loaded(states)

    def _put(self, state: Any, tree: Any) -> Any:
        if type(state) is not dict:
            return self._framework.restore(state, tree)
        if state.keys() != tree.keys():
            different = sorted(map(str, state.keys() ^ tree.keys()))
            raise ValueError(f"only one of both has {', '.join(different)}")
        return {name: self._framework.restore(state[name], tree[name]) for name in state}


def _note(whole: tuple[str, int] | None) -> None:
    """Report to an elastic job's launcher and to this host where the last checkpoint is."""
    if whole is not None and elastic.is_elastic():
        elastic.note_checkpoint(*whole)


def _find(path: Path) -> tuple[Path | None, list[Path]]:
    found = path if files.is_checkpoint(path) else files.latest(path)
    return found, files.parts_of(found) if found is not None else []


def _rank() -> int:
    return world.rank() if world.is_initialized() else 0


def _size() -> int:
    return world.size() if world.is_initialized() else 1


def _allgather(value: Any, name: str) -> list[Any]:
    return allgather_object(value, name=name) if world.is_initialized() else [value]


def _broadcast(value: Any, root: int) -> Any:
    return broadcast_object(value, root_rank=root, name="checkpoint.load")


def _keep(value: Any, root: int) -> Any:
    return value


def _tried(action: Callable[[], Any], root: int, exchange: Callable[[Any, int], Any]) -> Any:
    """Call a function on one rank; return its result, or raise its error, on all."""
    told: tuple[Any, str | None] = (None, None)
    if _rank() == root:
        try:
            told = action(), None
        except (CheckpointError, OSError) as error:
            told = None, str(error)
    result, problem = exchange(told, root)
    if problem is not None:
        raise CheckpointError(problem)
    return result


def _raise(problems: list[str | None], root: Path | None) -> None:
    named = [f"rank {rank}: {each}" for rank, each in enumerate(problems) if each is not None]
    if named:
        where = "" if root is None else f" to {root}"
        raise CheckpointError(
            f"a checkpoint could not be written{where}: {'; '.join(named)}; the last whole one is "
            "as it was"
        )
