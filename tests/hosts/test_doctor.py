"""`sirtaki doctor --hosts` on virtual hosts: what is planted is found, and the others looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.hosts.bed import SSH_PORT, Bed, VirtualHost

DOCTOR = (sys.executable, "-m", "sirtaki.launch.cli", "doctor", "--quick", "-p", str(SSH_PORT))


def doctor(bed: Bed, *arguments: str, more: str = "") -> subprocess.CompletedProcess[str]:
    """Run the doctor on the first host, of all hosts and of `more`."""
    hosts = ",".join(f"{host.address}:2" for host in bed.hosts) + more
    return bed.hosts[0].run(*DOCTOR, "--hosts", hosts, "--seconds", "0.05", *arguments)


def report(bed: Bed, more: str = "") -> tuple[int, dict[str, Any]]:
    done = doctor(bed, "--json", more=more)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def wrong(told: dict[str, Any], *checks: str) -> dict[str, dict[str, str]]:
    """The findings of these checks that are not fine, by host; each has a fix."""
    found = [each for each in told["findings"] if each["check"] in checks and each["level"] != "ok"]
    assert all(each["fix"] for each in found)
    return {each["host"]: each for each in found}


@pytest.fixture
def middle(bed: Bed) -> Iterator[VirtualHost]:
    """The second host, whose interface a test may change."""
    host = bed.hosts[1]
    yield host
    host.run("ip", "link", "set", "eth0", "mtu", "1500")
    host.run("tc", "qdisc", "del", "dev", "eth0", "root")


def test_hosts_that_are_well_tell_so_with_the_figures_of_each_pair(bed: Bed) -> None:
    code, told = report(bed)
    addresses = [host.address for host in bed.hosts]
    assert code == 0, told["findings"]
    assert list(told["hosts"]) == addresses
    for address, own in told["hosts"].items():
        assert own["addresses"] == [address]
        assert own["versions"]["python"] == sys.version.split()[0]
        assert "eth0" in [each["name"] for each in own["interfaces"]]
        assert {"interface": "eth0", "network": "192.168.11.0/24", "gateway": ""} in own["routes"]
    first, second, third = addresses
    measured = {(one["from"], one["to"]): one for one in told["pairs"]}
    assert measured.keys() == {(first, second), (first, third), (second, third)}
    for (one, other), figures in measured.items():
        assert (figures["source"], figures["target"]) == (one, other)
        assert min(figures["latency"], figures["sends"], figures["receives"]) > 0
    judged = {(each["check"], each["host"]) for each in told["findings"]}
    assert ("bandwidth", f"{first},{third}") in judged
    assert {("clock", second), ("/dev/shm", third), ("versions", ",".join(addresses))} <= judged


def test_hosts_that_cannot_be_reached_are_named_and_the_others_looked_at(bed: Bed) -> None:
    last = bed.hosts[2]
    last.kill_sshd()
    try:
        code, told = report(bed, more=",nosuchhost.invalid:1")
        words = doctor(bed, more=",nosuchhost.invalid:1")
    finally:
        last.start_sshd()
    assert code == words.returncode == 1
    found = wrong(told, "reach")
    assert found.keys() == {last.address, "nosuchhost.invalid"}
    assert "Connection refused" in found[last.address]["what"]
    assert "start sshd there" in found[last.address]["fix"]
    assert "Could not resolve hostname" in found["nosuchhost.invalid"]["what"]
    assert [(one["from"], one["to"]) for one in told["pairs"]] == [
        (bed.hosts[0].address, bed.hosts[1].address)
    ]
    assert f"host {last.address}: ssh could not connect" in words.stdout
    assert f"Host {bed.hosts[1].address}" in words.stdout


def test_a_slow_link_and_small_packets_are_found(bed: Bed, middle: VirtualHost) -> None:
    shape = ("root", "tbf", "rate", "200mbit", "burst", "64kb", "latency", "50ms")
    assert middle.run("tc", "qdisc", "add", "dev", "eth0", *shape).returncode == 0
    assert middle.run("ip", "link", "set", "eth0", "mtu", "1400").returncode == 0
    code, told = report(bed)
    first, second, third = (host.address for host in bed.hosts)
    assert code == 0
    assert wrong(told, "bandwidth").keys() == {f"{first},{second}", f"{second},{third}"}
    assert wrong(told, "mtu").keys() == {f"{first},{second}", f"{second},{third}"}
    assert wrong(told, "mtu eth0").keys() == {second}


def test_hosts_that_do_not_reach_each_other_are_named(bed: Bed) -> None:
    bed.hosts[1].set_apart()
    bed.hosts[2].set_apart()
    code, told = report(bed)
    assert code == 1
    _, second, third = (host.address for host in bed.hosts)
    assert wrong(told, "connection").keys() == {f"{second},{third}"}
    assert "firewall" in wrong(told, "connection")[f"{second},{third}"]["fix"]
    assert wrong(told, "bandwidth", "reach") == {}
