"""The folder of a step that a rank of a reproducible training has kept, for `sirtaki replay`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from sirtaki.rendezvous.files.private_folder import make_private_folder, opened, write_whole
from sirtaki.rendezvous.words import parse_json

REPLAY = "SIRTAKI_REPLAY"
_FACTS = "step.json"
_VALUES = "values.pt"
_MOST_KEPT = 8
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class StepFacts(NamedTuple):
    """What is known of a kept step beside its tensors.

    Attributes:
        rank: The rank that kept it.
        why: What it found.
        mine: The numbers of its parts.
        samples: The samples of each of these parts.
        threads: How many threads it computes with.
        settings: What the step depends on, by name; the program that replays it needs the same.
        versions: What the bits may depend on, by name.
    """

    rank: int
    why: str
    mine: list[int]
    samples: list[list[int]]
    threads: int
    settings: dict[str, Any]
    versions: dict[str, str]


def keep(root: Path, facts: StepFacts, save: Callable[[IO[bytes]], None], forgets: bool) -> Path:
    """Write a step into a new private folder.

    Args:
        root: The folder in which to make it.
        facts: What is known of the step.
        save: Writes its tensors, as a zip file.
        forgets: Whether only the latest eight stay.

    Returns:
        The folder.

    Raises:
        OSError: It could not be written.
    """
    make_private_folder(root)
    folder = Path(tempfile.mkdtemp(prefix=f"rank{facts.rank}-", dir=root.absolute()))
    try:
        with opened(folder) as inside:
            file = os.open(_VALUES, _NEW_FILE, 0o600, dir_fd=inside)
            with os.fdopen(file, "wb") as stream:
                save(stream)
            write_whole(inside, _FACTS, json.dumps(facts._asdict()).encode())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # such as on a full disk
        raise
    if forgets:
        _forget_old(root)
    return folder


def _forget_old(root: Path) -> None:
    found = []
    for folder in root.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another rank has just removed it
            found.append((folder.stat().st_mtime, folder))
    for _, folder in sorted(found, reverse=True)[_MOST_KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def kept_step(folder: Path) -> Iterator[tuple[StepFacts, IO[bytes]]]:
    """Open a kept step.

    Args:
        folder: The folder that `keep` has returned.

    Yields:
        What is known of the step, and the file with its tensors.

    Raises:
        OSError: It does not exist, or is not private to this user.
        ValueError: It is not whole, or of another version.
    """
    with opened(folder) as inside:
        try:
            with _reading(_FACTS, inside) as file:
                facts = StepFacts(**parse_json(file.read()))
            values = _reading(_VALUES, inside)
        except (FileNotFoundError, TypeError, ValueError) as error:
            raise _not_whole(folder, error) from None
        with values:
            _require_whole(folder, values)
            yield facts, values


def _require_whole(folder: Path, values: IO[bytes]) -> None:
    """Check the sums of the file, which torch.load does not."""
    try:
        with zipfile.ZipFile(values) as found:
            damaged = found.testzip()
    except zipfile.BadZipFile as error:
        raise _not_whole(folder, error) from None
    if damaged is not None:
        raise _not_whole(folder, f"{damaged} in {_VALUES} is damaged")
    values.seek(0)


def _not_whole(folder: Path, why: object) -> ValueError:
    return ValueError(f"{folder} holds no whole step: {why}")


def _reading(name: str, folder: int) -> IO[bytes]:
    return os.fdopen(os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder), "rb")


def note_replay(folder: Path) -> None:
    """Note that a program has begun to replay the step."""
    os.utime(folder / _FACTS)


def last_replay(folder: Path) -> int:
    """Return a number that `note_replay` changes."""
    return (folder / _FACTS).stat().st_mtime_ns
