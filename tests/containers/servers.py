"""Containers by podman, alone or on three servers with a network of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.containers.image import IMAGE, run
from tests.hosts.bed import Namespaces

# With crun, podman's default, containers do not start where control groups are of both versions.
_PODMAN = ("podman", "--runtime", "runc", "--cgroup-manager=cgroupfs")
_LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000")
_NUMBERS = (3, 5, 6)
LIMIT = 300.0


def in_container(
    *command: str, folder: Path, flags: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in a container without a network.

    folder: where podman starts; its monitor leaves a file there when memory runs out.
    """
    words = ("run", "--rm", "--init", "--network=none", *_LIMITS, *flags, IMAGE)
    return subprocess.run(
        [*_PODMAN, *words, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


@dataclass(frozen=True)
class Container:
    """A container that serves ssh at an address."""

    name: str
    address: str

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in it, as `docker exec` does."""
        words = [*_PODMAN, "exec", self.name, *command]
        return subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=False)


@contextmanager
def servers(prefix: str, *command: str, flags: Sequence[str] = ()) -> Iterator[list[Container]]:
    """Three containers, each on a server of its own; a command replaces the image's own."""
    with ExitStack() as stack:
        switch = stack.enter_context(_space())
        switch.do("ip", "link", "add", "bridge", "type", "bridge")
        switch.do("ip", "link", "set", "bridge", "up")
        containers = []
        for number in _NUMBERS:
            address = f"192.168.11.{number}"
            space = stack.enter_context(_space())
            _connect(switch, space, number, address)
            container = Container(f"{prefix}-{number}", address)
            network = f"--network=ns:/proc/{space.pid}/ns/net"
            words = ("run", "--detach", "--init", "--name", container.name, network)
            stack.callback(run, [*_PODMAN, "rm", "--force", "--time", "1", container.name])
            run([*_PODMAN, *words, *_LIMITS, *flags, IMAGE, *command])
            containers.append(container)
        yield containers


@contextmanager
def _space() -> Iterator[Namespaces]:
    space = Namespaces("net")
    try:
        yield space
    finally:
        space.close()


def _connect(switch: Namespaces, space: Namespaces, number: int, address: str) -> None:
    port = f"port{number}"
    veth = ("type", "veth", "peer", "name", "eth0", "netns", str(space.pid))
    switch.do("ip", "link", "add", port, *veth)
    switch.do("ip", "link", "set", port, "master", "bridge", "up")
    space.do("ip", "link", "set", "lo", "up")
    space.do("ip", "address", "add", f"{address}/24", "dev", "eth0")
    space.do("ip", "link", "set", "eth0", "up")
