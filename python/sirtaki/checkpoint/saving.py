"""Saving and loading, by all ranks together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import sirtaki
from sirtaki.checkpoint import folder as folders
from sirtaki.checkpoint.codec import Codec
from sirtaki.checkpoint.encoding import Encoded, decode, encode
from sirtaki.checkpoint.errors import CheckpointError
from sirtaki.checkpoint.folder import Checkpoint
from sirtaki.core import elastic
from sirtaki.core.operations.objects import allgather_object, broadcast_object
from sirtaki.core.world import state as world
from sirtaki.elastic import State

_STATE, _RANKS = "state", "ranks"


class Checkpoints:
    """Saves and loads checkpoints of a framework's objects. Each function is called by all ranks.

    Args:
        codec: What the framework contributes.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._writing: threading.Thread | None = None
        self._failure: Exception | None = None
        self._written: tuple[str, int] | None = None

    def save(
        self,
        path: str,
        state: Mapping[str, Any] | State,
        step: int,
        async_: bool = True,
        keep: int = 3,
        sharded: bool = False,
    ) -> None:
        """Write a checkpoint: a folder in `path` that appears when it is whole.

        Rank 0 writes, so other hosts need not reach `path`. The generators of random numbers of all
        ranks are saved, too.

        Args:
            path: The folder of the job's checkpoints; it is made if it is not there.
            state: Values by name: numbers, texts, arrays, containers of these, and the framework's
                objects; or an elastic state.
            step: The number of the last step that the state contains.
            async_: Whether the files are written while training goes on. The state is copied first.
                An error in writing is raised by the next `save` or `wait`.
            keep: How many of the newest checkpoints stay.
            sharded: Whether each rank writes a part of the arrays. All hosts need the same file
                system at `path`.

        Raises:
            CheckpointError: On all ranks: the state of one cannot be saved, or the last checkpoint
                could not be written.
            ValueError: `keep` is below 1.
        """
        if keep < 1:
            raise ValueError(f"keep={keep} must be >= 1")
        self._join()
        own = self._prepared(path, state, step, sharded)
        told = allgather_object((own.error, own.random, str(own.folder or ""), self._written))
        try:
            _raise_first([error for error, *_ in told])
        except CheckpointError:
            if own.folder is not None:
                own.folder.rmdir()
            raise
        assert own.encoded is not None
        _note(told[0][3])
        target, rank = Path(told[0][2]), world.rank()
        job = self._job(own, target, [random for _, random, *_ in told], step, keep)
        if rank == 0 or sharded:
            self._start(job)
        if not async_:
            self.wait()

    def wait(self) -> None:
        """Wait until the last checkpoint is written.

        Raises:
            CheckpointError: On all ranks: it could not be written.
        """
        self._join()
        failure, self._failure = self._failure, None
        error = None if failure is None else str(failure)
        told = allgather_object((error, self._written))
        _raise_first([error for error, _ in told])
        _note(told[0][1])

    def latest(self, path: str) -> Checkpoint | None:
        """Return the newest complete checkpoint in a folder, None without any.

        Args:
            path: As `save` was given it; rank 0 looks there.
        """
        found = folders.newest(Path(path)) if world.rank() == 0 else None
        answer: Checkpoint | None = broadcast_object(found, 0)
        return answer

    def load(
        self,
        path: str | Checkpoint,
        state: Mapping[str, Any] | State | None = None,
        random: bool = True,
    ) -> dict[str, Any]:
        """Load a checkpoint; the number of ranks may differ from that which saved it.

        Args:
            path: From `latest`, or a folder of checkpoints, of which the newest is loaded. Rank 0
                reads it.
            state: As for `save`: objects are brought to what was saved, in place where the
                framework can; default: nothing is changed.
            random: Whether generators of random numbers go on where those of the same rank were.

        Returns:
            The values by name: objects of `state`, what replaces them, and other values as saved;
            without `state` trees that stand for objects.

        Raises:
            CheckpointError: On all ranks: it is damaged, none, or of other values.
        """
        tree = self._read(Path(path))
        found: dict[str, Any] = tree[_STATE]
        if state is not None:
            found = self._restored(state, found)
        saved = tree[_RANKS]
        if random and world.rank() < len(saved):
            self._codec.set_random_state(saved[world.rank()])
        return found

    def _prepared(
        self, path: str, state: Mapping[str, Any] | State, step: int, sharded: bool
    ) -> _Own:
        """Copy what this rank is to write, and make the folder; note what is wrong."""
        own = _Own(random=self._codec.random_state())
        failure, self._failure = self._failure, None
        if failure is not None:
            own.error = f"the last checkpoint could not be written: {failure}"
            return own
        rank = world.rank()
        try:
            tree = {name: self._codec.capture(value) for name, value in self._members(state)}
            files = world.size() if sharded else 1
            own.encoded = encode({_STATE: tree}, self._codec.to_array, files, _STATE)
            for number, parts in enumerate(own.encoded.files):
                mine = parts if number == rank else []
                parts[:] = [(begin, bytes(data)) for begin, data in mine]
            if rank == 0:
                own.folder = folders.unfinished(Path(path).absolute(), step)
        except (CheckpointError, OSError) as error:
            own.error = str(error)
        return own

    def _members(self, state: Mapping[str, Any] | State) -> list[tuple[str, Any]]:
        found = self._codec.members(state) if isinstance(state, State) else dict(state)
        return list(found.items())

    def _job(
        self,
        own: _Own,
        target: Path,
        random: list[Any],
        step: int,
        keep: int,
    ) -> Callable[[], None]:
        """Return what writes this rank's part."""
        encoded, rank = own.encoded, world.rank()
        assert encoded is not None
        ranks = encode(random, self._codec.to_array, 1) if rank == 0 else None

        def write() -> None:
            folders.write_arrays(target, rank, encoded.files[rank])
            if ranks is None:
                return
            # Behind the files of arrays of the state.
            last = len(encoded.sizes)
            folders.write_arrays(target, last, ranks.files[0])
            content = {
                "framework": self._codec.framework,
                "sirtaki": sirtaki.__version__,
                _STATE: encoded.tree,
                _RANKS: ranks.tree,
            }
            sizes = [*encoded.sizes, *ranks.sizes]
            self._written = str(folders.finish(target, step, content, sizes, keep)), step
            _note(self._written)

        return write

    def _start(self, write: Callable[[], None]) -> None:
        def run() -> None:
            try:
                write()
            except Exception as error:
                self._failure = error

        # Not a daemon: a program that ends waits until its last checkpoint is whole.
        self._writing = threading.Thread(target=run, name="sirtaki-checkpoint")
        self._writing.start()

    def _join(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.join()

    def _read(self, path: Path) -> dict[str, Any]:
        """Read on rank 0, and give it to all."""
        answer: tuple[str | None, Any] = (None, None)
        if world.rank() == 0:
            try:
                answer = None, self._decoded(folders.resolved(path))
            except (CheckpointError, OSError) as error:
                answer = str(error), None
        failure, tree = broadcast_object(answer, 0)
        if failure is not None:
            raise CheckpointError(failure)
        found: dict[str, Any] = tree
        return found

    def _decoded(self, folder: Path) -> dict[str, Any]:
        content = folders.read_content(folder)
        if content["framework"] != self._codec.framework:
            raise CheckpointError(
                f"{folder} is a checkpoint of {content['framework']}, and this is "
                f"{self._codec.framework}"
            )
        files = content["files"]
        whole = folders.Files(folder, files)
        state = decode(content[_STATE], self._codec.from_array, whole.read)
        last = len(files) - 1
        ranks = decode(
            content[_RANKS],
            self._codec.from_array,
            lambda _, begin, length: whole.read(last, begin, length),
        )
        return {_STATE: state[_STATE], _RANKS: ranks}

    def _restored(
        self, state: Mapping[str, Any] | State, found: Mapping[str, Any]
    ) -> dict[str, Any]:
        values = dict(self._members(state))
        if values.keys() != found.keys():
            raise CheckpointError(
                f"the checkpoint has {sorted(found)}, and the state to load {sorted(values)}"
            )
        try:
            restored = {n: self._codec.restore(value, found[n]) for n, value in values.items()}
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(f"the checkpoint does not fit the state: {error}") from error
        if isinstance(state, State):
            self._codec.assign(state, restored)
        return restored


class _Own:
    """What one rank contributes to a checkpoint."""

    def __init__(self, random: dict[str, Any]) -> None:
        self.random = random
        self.error: str | None = None
        self.encoded: Encoded | None = None
        self.folder: Path | None = None


def _note(written: tuple[str, int] | None) -> None:
    """Let an elastic job's launcher and this host know where the last checkpoint is."""
    if written is not None and elastic.is_elastic():
        elastic.note_checkpoint(*written)


def _raise_first(errors: list[str | None]) -> None:
    for rank, error in enumerate(errors):
        if error is not None:
            raise CheckpointError(f"rank {rank}: {error}")
