"""Hosts that lack what most have: addresses of IPv4, or anybody who knows a name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.hosts.bed import SSH_PORT, Bed
from tests.hosts.jobs import RUN, python

SUM = (
    "import numpy, socket, sirtaki; sirtaki.init(); "
    "total = sirtaki.allreduce(numpy.ones(4) * sirtaki.rank(), op=sirtaki.Sum); "
    "print(socket.gethostname(), *total)"
)
# Prints nothing where the host has no such address.
ALONE = (
    "import subprocess; print(subprocess.getoutput('ip -4 -o address show dev eth0'), end='|'); "
)
NAMELESS = """if True:
    import socket
    for name in ('node3', 'node5', 'node6'):
        try:
            print(socket.getaddrinfo(name, 22), end='|')
        except OSError:
            pass
"""
SUMS = [f"[{rank}]<stdout>:node{host} 3.0 3.0 3.0 3.0" for rank, host in enumerate((3, 5, 6))]


@contextlib.contextmanager
def without_ipv4(bed: Bed) -> Iterator[None]:
    try:
        for host in bed.hosts:
            assert host.run("ip", "-4", "address", "flush", "dev", "eth0").returncode == 0
        yield
    finally:
        for host in bed.hosts:
            host.run("ip", "address", "add", f"{host.address}/24", "dev", "eth0")


@contextlib.contextmanager
def without_names(bed: Bed) -> Iterator[None]:
    """Nobody knows a host's name, not even the host, and no name server is reached."""
    files = [host.folder / "hosts" for host in bed.hosts]
    kept = [file.read_text() for file in files]
    try:
        for file in files:
            file.write_text("127.0.0.1 localhost\n")
        yield
    finally:
        for file, text in zip(files, kept, strict=True):
            file.write_text(text)


def job(bed: Bed, addresses: list[str], code: str) -> list[str]:
    hosts = ",".join(f"{address}:1" for address in addresses)
    done = bed.hosts[0].run(*RUN, "-np", "3", "-H", hosts, "-p", str(SSH_PORT), *python(code))
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def test_hosts_of_which_nobody_knows_a_name_work_together(bed: Bed) -> None:
    with without_names(bed):
        known = bed.hosts[0].run(*python(NAMELESS))
        assert (known.returncode, known.stdout) == (0, "")
        found = job(bed, [host.address for host in bed.hosts], SUM)
    assert found == SUMS


def test_nor_need_they_have_ipv4(bed: Bed) -> None:
    with without_ipv4(bed), without_names(bed):
        found = job(bed, [f"[{host.address6}]" for host in bed.hosts], ALONE + SUM)
    assert found == [line.replace(":node", ":|node") for line in SUMS]
