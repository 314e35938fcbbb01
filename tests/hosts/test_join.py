"""Ranks on hosts with networks of their own find the addresses that lead to each other."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import pytest

from tests import needs

pytestmark = [
    needs.root,
    needs.program("ip"),
]

# A rank that joins by hand, then greets every rank of another host through a socket of its own.
RANK = """if True:
    import os, socket
    from concurrent.futures import ThreadPoolExecutor
    from sirtaki.core.config import Config
    from sirtaki.rendezvous.world.join import JoinSettings, join_world
    from sirtaki.rendezvous.world.start import MeetingPlace, meet
    config = Config.from_env()
    place = MeetingPlace(config.start, config.rendezvous, config.secret_file, config.interfaces,
                  timeout=config.start_timeout)
    met = meet(place)
    settings = JoinSettings(config.membership, config.topology, config.hostname,
                        config.start_timeout, met.secret, config.interfaces, config.host_id)
    linked = lambda hosts, host: [near for near in (host - 1, host + 1) if 0 <= near < hosts]
    world = join_world(settings, met.store, "world/1", lambda n: 4096 * n, linked)
    me = world.topology.rank
    others = [r for r, host in enumerate(world.host_of) if host != world.host_of[me]]
    def greet(peer):
        with socket.socket(fileno=world.connect(peer, 0, lambda: False).descriptor) as sock:
            sock.setblocking(True)
            sock.sendall(b"%4d" % me)
            assert int(sock.recv(4, socket.MSG_WAITALL)) == peer
            return sock.getsockname()[0]
    with ThreadPoolExecutor(len(others)) as pool:
        print(world.host_of, sorted(set(pool.map(greet, others))), flush=True)
    met.close()
"""

# The same, then it prints on which addresses something listens on its host.
LISTENERS = f"""{RANK}
    import subprocess, time
    time.sleep(1)  # until the others have had their turn
    found = subprocess.run(["ss", "-lntH"], capture_output=True, text=True, check=True).stdout
    print(sorted({{line.split()[3].rpartition(":")[0] for line in found.splitlines()}}))
"""


class Network:
    """Namespaces that stand for hosts, joined by a bridge in one more."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._tag = f"sj{os.getpid()}"
        self._hub = f"{self._tag}hub"
        self.hosts: list[str] = []
        self.secret = folder / "secret"
        self.secret.write_bytes(os.urandom(32))
        self.secret.chmod(0o600)
        ip("netns", "add", self._hub)
        ip("-n", self._hub, "link", "add", "br0", "type", "bridge")
        ip("-n", self._hub, "link", "set", "br0", "up")

    def add(self, interface: str, *addresses: str) -> str:
        """Make a host whose interface to the others has this name and these addresses."""
        number = len(self.hosts)
        name = f"{self._tag}n{number}"
        ip("netns", "add", name)
        self.hosts.append(name)
        port = f"port{number}"
        ip("-n", self._hub, "link", "add", port, "type", "veth",
           "peer", "name", interface, "netns", name)  # fmt: skip
        ip("-n", self._hub, "link", "set", port, "master", "br0", "up")
        ip("-n", name, "link", "set", "lo", "up")
        self.address(name, interface, *addresses)
        return name

    def address(self, host: str, interface: str, *addresses: str) -> None:
        """Give an interface addresses and bring it up."""
        for address in addresses:
            rest = ["nodad"] if ":" in address else []
            ip("-n", host, "address", "add", address, "dev", interface, *rest)
        ip("-n", host, "link", "set", interface, "up")

    def dead_end(self, host: str, name: str, address: str) -> None:
        """Add an interface that leads nowhere, as those of container engines do."""
        ip("-n", host, "link", "add", name, "type", "veth", "peer", "name", f"{name}x")
        ip("-n", host, "link", "set", f"{name}x", "up")
        self.address(host, name, address)

    def close(self) -> None:
        for name in [*self.hosts, self._hub]:
            ip("netns", "del", name)

    def run(
        self,
        hosts: Sequence[str],
        master: str,
        timeout: float = 20,
        code: str = RANK,
        **more: str,
    ) -> list[tuple[int, str, str]]:
        """Run one rank on each of `hosts`; return exit code, output and errors of each."""
        base = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "OMPI", "PMI"))}
        base |= {
            "WORLD_SIZE": str(len(hosts)),
            "MASTER_ADDR": master,
            "MASTER_PORT": "29500",
            "SIRTAKI_SECRET_FILE": str(self.secret),
            "HOROVOD_START_TIMEOUT": str(timeout),
            **more,
        }
        ranks = [
            subprocess.Popen(
                ["ip", "netns", "exec", host, sys.executable, "-c", code],
                env={**base, "RANK": str(rank)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank, host in enumerate(hosts)
        ]
        found = []
        for process in ranks:
            out, errors = process.communicate(timeout=90)
            found.append((process.returncode, out, errors))
        return found


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=30)


@pytest.fixture
def network(tmp_path: pathlib.Path) -> Iterator[Network]:
    made = Network(tmp_path)
    with contextlib.closing(made):
        yield made


def test_interfaces_may_have_different_names_and_dead_ends_beside_them(network: Network) -> None:
    hosts = [
        network.add("eth0", "10.88.0.1/24"),
        network.add("enp3s0", "10.88.0.2/24"),
        network.add("ib0", "10.88.0.3/24"),
    ]
    for host in hosts:
        network.dead_end(host, "docker0", "172.17.0.1/16")
    for rank, (code, out, errors) in enumerate(network.run(hosts, "10.88.0.1")):
        assert (code, out) == (0, f"[0, 1, 2] ['10.88.0.{rank + 1}']\n"), errors


def test_nothing_listens_where_no_other_host_is(network: Network) -> None:
    hosts = [network.add("eth0", f"10.88.0.{n}/24", f"fd88::{n}/64") for n in (1, 2)]
    for host, number in zip(hosts, (1, 2), strict=True):
        network.dead_end(host, "eth1", f"198.51.100.{number}/24")
    for interfaces in ({}, {"SIRTAKI_IFACE": "eth0"}):  # that network is used where it is forced
        outcomes = network.run(hosts, "10.88.0.1", code=LISTENERS, **interfaces)
        for number, (code, out, errors) in enumerate(outcomes, 1):
            assert code == 0, errors
            assert out.splitlines()[1] == f"['10.88.0.{number}']"


def test_hosts_on_two_networks_of_the_first_reach_each_other_through_it(network: Network) -> None:
    first = network.add("eth0", "10.88.1.1/24", "10.88.2.1/24")
    second, third = network.add("eth0", "10.88.1.2/24"), network.add("eth0", "10.88.2.2/24")
    ip("netns", "exec", first, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
    ip("-n", second, "route", "add", "default", "via", "10.88.1.1")
    ip("-n", third, "route", "add", "default", "via", "10.88.2.1")
    for code, out, errors in network.run([first, second, third], "10.88.1.1"):
        assert (code, out[:9]) == (0, "[0, 1, 2]"), errors


def test_where_the_first_host_knows_its_name_as_loopback_it_listens_for_the_others(
    network: Network,
) -> None:
    hosts = [network.add("eth0", f"10.88.0.{number}/24") for number in (1, 2)]
    for host, address in zip(hosts, ("127.0.1.1", "10.88.0.1"), strict=True):
        # "ip netns exec" shows each host its own.
        folder = pathlib.Path("/etc/netns") / host
        folder.mkdir(parents=True)
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{address} first\n")
    try:
        for rank, (code, out, errors) in enumerate(network.run(hosts, "first")):
            assert (code, out) == (0, f"[0, 1] ['10.88.0.{rank + 1}']\n"), errors
    finally:
        for host in hosts:
            shutil.rmtree(pathlib.Path("/etc/netns") / host)


def test_two_ranks_of_a_host_share_it(network: Network) -> None:
    first, second = network.add("eth0", "10.88.0.1/24"), network.add("eth0", "10.88.0.2/24")
    for code, out, errors in network.run([first, second, first], "10.88.0.1"):
        assert (code, out[:9]) == (0, "[0, 1, 0]"), errors


def test_a_network_of_ipv6_alone_is_enough(network: Network) -> None:
    hosts = [network.add("eth0", f"fd88::{number}/64") for number in (1, 2)]
    for rank, (code, out, errors) in enumerate(network.run(hosts, "fd88::1")):
        assert (code, out) == (0, f"[0, 1] ['fd88::{rank + 1}']\n"), errors


def test_a_network_that_is_forced_but_not_there_is_named(network: Network) -> None:
    hosts = [network.add("eth0", f"10.88.0.{number}/24") for number in (1, 2)]
    for code, _, errors in network.run(hosts, "10.88.0.1", timeout=3, SIRTAKI_IFACE="eth7"):
        assert code == 1
        assert "there is no network interface 'eth7' that is up" in errors or "Tried" in errors


@pytest.mark.slow
def test_hosts_without_a_way_between_them_say_what_was_offered_and_tried(network: Network) -> None:
    hosts = [network.add("eth0", "10.88.0.1/24"), network.add("eth0", "10.88.0.2/24")]
    for host, number in zip(hosts, (1, 2), strict=True):
        network.dead_end(host, "eth1", f"10.7{number}.0.1/24")
    # The store is reached through eth0, but the ranks may only use what leads nowhere.
    outcomes = network.run(hosts, "10.88.0.1", timeout=6, SIRTAKI_IFACE="eth1")
    assert [code for code, _, _ in outcomes] == [1, 1]
    _, _, errors = outcomes[1]
    assert "cannot reach the rendezvous store" in errors
    assert "10.88.0.1:29501: " in errors


def test_a_host_that_does_not_come_is_named_in_time(network: Network) -> None:
    hosts = [network.add("eth0", "10.88.0.1/24")]
    start = time.monotonic()
    ((code, _, errors),) = network.run(hosts, "10.88.0.1", timeout=3, WORLD_SIZE="2")
    assert code == 1
    assert "ranks [1] of 2 did not come within 3 s" in errors
    assert time.monotonic() - start < 60
