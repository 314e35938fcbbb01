"""Whose secret is believed, by owner, group and mode of its file."""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Iterator

import pytest

from sirtaki.rendezvous.trust.secret import read_secret
from tests import needs

USER, GROUP, OTHER_GROUP = 54321, 54322, 54323

needs_root = needs.root


@pytest.fixture
def mounted() -> Iterator[pathlib.Path]:
    """A root's file behind links, as Kubernetes mounts a secret, in a folder that all may enter."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        version = folder / "..2024"
        version.mkdir()
        version.chmod(0o755)
        (version / "secret").write_bytes(bytes(32))
        os.chown(version / "secret", 0, GROUP)
        (folder / "..data").symlink_to("..2024")
        (folder / "secret").symlink_to("..data/secret")
        yield folder / "secret"


def reading(path: pathlib.Path, groups: list[int]) -> str:
    """What comes of reading the secret as a user with these groups, the first its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups(groups[1:])
            os.setgid(groups[0])
            os.setuid(USER)
            outcome = f"{len(read_secret(str(path)))} bytes"
        except BaseException as error:
            outcome = type(error).__name__
        os.write(writer, outcome.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        outcome = pipe.read().decode()
    os.waitpid(child, 0)
    return outcome


@needs_root
@pytest.mark.parametrize("groups", [[GROUP], [OTHER_GROUP, GROUP]], ids=["own", "supplementary"])
def test_roots_secret_for_a_group_of_ours_is_read(mounted: pathlib.Path, groups: list[int]) -> None:
    mounted.chmod(0o440)
    assert reading(mounted, groups) == "32 bytes"


@needs_root
@pytest.mark.parametrize("mode", [0o444, 0o460, 0o640, 0o644])
def test_roots_secret_that_others_may_use_is_refused(mounted: pathlib.Path, mode: int) -> None:
    mounted.chmod(mode)
    assert reading(mounted, [GROUP]) == "PermissionError"


@needs_root
def test_a_secret_of_another_user_for_our_group_is_refused(mounted: pathlib.Path) -> None:
    os.chown(mounted, USER + 1, GROUP)
    mounted.chmod(0o440)
    assert reading(mounted, [GROUP]) == "PermissionError"


def test_our_own_secret_that_a_group_may_read_is_refused(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(bytes(32))
    os.chown(file, -1, os.getegid())
    file.chmod(0o640)
    with pytest.raises(PermissionError, match="mode 0440 and a group of yours"):
        read_secret(str(file))
