"""This process's control groups, as both versions of them are in the kernel's files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sirtaki.records import dataclass


@dataclass(frozen=True)
class ControlGroup:
    """A group of ours. unified: of version 2. root: of its hierarchy. path: below that."""

    unified: bool
    root: Path
    path: str

    def upwards(self) -> Iterator[Path]:
        """Yield its folder and those above it; in a container only the root may be there."""
        folder = self.root / self.path.strip("/")
        # There the path may also be that of another namespace.
        while folder != self.root and ".." not in folder.parts:
            yield folder
            folder = folder.parent
        yield self.root


def groups_with(mount: Path, membership: str, controller: str) -> Iterator[ControlGroup]:
    """Yield our groups that have a controller.

    mount: where the control groups are. membership: ours, as in /proc/self/cgroup.
    """
    for line in membership.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            yield ControlGroup(True, mount, path)
        elif controller in controllers.split(","):
            yield ControlGroup(False, mount / controller, path)


def own_membership() -> str:
    """Return this process's control groups as the kernel writes them."""
    return text_of(Path("/proc/self/cgroup"))


def text_of(file: Path) -> str:
    """Return what is in a file of the kernel, nothing where it cannot be read."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
