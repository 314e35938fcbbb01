"""What the doctor says of several hosts, from what these tell; and of those that tell nothing."""

from __future__ import annotations

import itertools
import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sirtaki
from sirtaki.doctor import doctor, network
from sirtaki.doctor.hosts import check, compare, link
from sirtaki.doctor.hosts.asked import AskedHost, Unreachable, fix_of
from sirtaki.doctor.hosts.helper import MARK
from sirtaki.launch.starters.ssh import Ssh

TOKEN = bytes(range(link.TOKEN_BYTES))
OTHER = "192.0.2.77"  # of the addresses for examples: no host has it


def pair(**changes: Any) -> dict[str, Any]:
    """What is measured between two hosts that are well."""
    usual = {"from": "a", "to": "b", "error": "", "back": "", "refused": [], "stalled": ""}
    ends = {"source": "10.0.0.1", "target": "10.0.0.2"}
    return {**usual, **ends, "latency": 5e-5, "sends": 1e9, "receives": 1.1e9, **changes}


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for ssh; a test writes what it does."""
    program = tmp_path / "ssh"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return program


def write_script(program: Path, *lines: str) -> None:
    program.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    program.chmod(0o755)


def greet(seconds: float = 20.0) -> str:
    """What is said of a host whose ssh is a script."""
    asked = AskedHost(OTHER, Ssh(), seconds)
    try:
        with pytest.raises(Unreachable) as refusal:
            asked.greet()
        return str(refusal.value)
    finally:
        asked.close()


@pytest.mark.job
@pytest.mark.parametrize(
    ("line", "said", "fix"),
    [
        (
            "echo 'ssh: connect to host b port 22: Connection refused' >&2; exit 255",
            "ssh could not connect: ssh: connect to host b port 22: Connection refused",
            "start sshd there, or name its port with -p",
        ),
        (
            "echo 'Permission denied (publickey).' >&2; exit 255",
            "ssh could not connect: Permission denied (publickey).",
            f"ssh-copy-id {OTHER}, or name your key with -i",
        ),
        (
            "echo '/usr/bin/python3: No module named sirtaki' >&2; exit 1",
            "Sirtaki is not installed for",
            f"install {sirtaki.__version__} there",
        ),
        (
            "echo 'python: No module named sirtaki.doctor.hosts' >&2; exit 1",
            "the Sirtaki there is older and has no doctor for hosts",
            f"install {sirtaki.__version__} there",
        ),
        ("exit 127", "there is no Python at", "give the path of Python there with --remote-python"),
        ("exit 3", "the agent ended with code 3 before it was ready", f"try `ssh {OTHER} true`"),
    ],
)
def test_a_host_that_does_not_answer_is_named_with_a_fix(
    ssh: Path, line: str, said: str, fix: str
) -> None:
    write_script(ssh, line)
    why = greet()
    assert why.startswith(said)
    assert fix_of(OTHER, why).startswith(fix)


@pytest.mark.job
def test_a_host_of_another_version_is_named(ssh: Path) -> None:
    mark = MARK.replace("\x1e", "\\036")
    write_script(ssh, "echo Welcome", f'printf \'{mark}{{"version": "0.0.7"}}\\n\'', "cat")
    why = greet()
    assert why == f"Sirtaki 0.0.7 is installed there, {sirtaki.__version__} runs here"
    assert "the same version on all hosts" in fix_of(OTHER, why)


@pytest.mark.job
def test_a_silent_host_is_given_up(ssh: Path) -> None:
    write_script(ssh, "exec cat")
    assert greet(0.2) == "no answer within 0.2 s"


def test_a_machine_without_ssh_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.main(["-H", OTHER]) == 1
    out = capsys.readouterr().out
    assert f"host {OTHER}: 'ssh' here: No such file or directory" in out
    assert "install ssh on this machine" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-H", "a:b"], "cannot read the host 'a:b'"),
        (["--hostfile", "/no/such/file"], "cannot read the hostfile '/no/such/file'"),
    ],
)
def test_a_list_of_hosts_that_cannot_be_read_is_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor.main(arguments) == 2
    assert f"sirtaki doctor: error: {words}" in capsys.readouterr().err


@pytest.mark.job
def test_one_host_is_looked_at_and_has_no_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--hosts", "localhost:4", "--quick", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report["hosts"]) == ["localhost"]
    assert report["pairs"] == []
    told = report["hosts"]["localhost"]
    assert told["versions"]["numpy"]
    assert "lo" in [each["name"] for each in told["interfaces"]]
    assert abs(told["clock"]["ahead"]) < 0.5
    assert {each["host"] for each in report["findings"]} == {"localhost"}


@pytest.mark.parametrize("count", range(9))
def test_each_pair_is_in_one_round_and_each_host_once_in_a_round(count: int) -> None:
    found = check.rounds(count)
    pairs = [each for together in found for each in together]
    assert sorted(pairs) == list(itertools.combinations(range(count), 2))
    for together in found:
        hosts = [host for each in together for host in each]
        assert len(set(hosts)) == len(hosts)


def test_versions_that_differ_are_named_with_their_hosts() -> None:
    told: Mapping[str, Mapping[str, str]] = {
        "a": {"python": "3.11.2", "torch": "2.4.0", "jax": ""},
        "b": {"python": "3.11.2", "torch": "2.4.0", "jax": ""},
        "c": {"python": "3.11.2", "torch": "2.3.1", "jax": "0.6.0"},
    }
    jax, torch = compare.versions(told)
    assert torch.what == "torch is 2.4.0 on a, b; 2.3.1 on c"
    assert (torch.level, torch.host) == ("warning", "c")
    assert torch.fix.endswith("pip install torch==2.4.0")
    assert jax.what == "jax is not installed on a, b; 0.6.0 on c"
    (same,) = compare.versions(dict.fromkeys("ab", told["a"]))
    assert (same.level, same.what) == ("ok", "all hosts have the same python, torch")


def test_clocks_that_are_surely_apart_are_named() -> None:
    near, unsure, far = compare.clocks({"a": (0.01, 0.001), "b": (0.7, 0.3), "c": (-3.0, 0.01)})
    assert (near.level, unsure.level, far.level) == ("ok", "ok", "warning")
    assert far.what.startswith("3000.0 ms behind this machine's, ± 10.0 ms")
    assert "chrony" in far.fix


def test_a_pair_that_is_well_tells_its_figures() -> None:
    (found,) = compare.pairs([pair()], {"10.0.0.1": 1500, "10.0.0.2": 1500})
    assert (found.level, found.host) == ("ok", "a,b")
    assert found.what == ("1000 MB/s, back 1100 MB/s, 50 us round trip, from 10.0.0.1 to 10.0.0.2")


@pytest.mark.parametrize(
    ("changes", "check_", "level", "words"),
    [
        ({"error": "timed out"}, "connection", "error", "a cannot connect to b: timed out"),
        ({"back": "refused"}, "connection", "error", "b cannot connect to a, only the other way"),
        ({"stalled": "nothing moved"}, "bandwidth", "error", "small messages pass from a to b"),
        ({"refused": ["10.1.0.2:5: timed out"]}, "addresses", "warning", "cost time at the start"),
        ({"target": "10.9.0.1"}, "mtu", "warning", "packets of 1500 bytes, 10.9.0.1 of 9000"),
    ],
)
def test_a_pair_that_is_not_well_is_named_with_a_fix(
    changes: dict[str, Any], check_: str, level: str, words: str
) -> None:
    mtus = {"10.0.0.1": 1500, "10.0.0.2": 1500, "10.9.0.1": 9000}
    found = next(each for each in compare.pairs([pair(**changes)], mtus) if each.level != "ok")
    assert (found.check, found.level, found.host) == (check_, level, "a,b")
    assert words in found.what
    assert found.fix


def test_a_pair_slower_than_the_others_is_named() -> None:
    names = [("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")]
    measured = [pair(**{"from": one, "to": other}) for one, other in names]
    slow = pair(**{"from": "c", "to": "d", "receives": 1e8})
    levels = {each.host: each.level for each in compare.pairs([*measured, slow], {})}
    assert levels.pop("c,d") == "warning"
    assert set(levels.values()) == {"ok"}
    # Of few pairs nobody can say.
    assert [each.level for each in compare.pairs([slow], {})] == ["ok"]
    broken = pair(error="timed out", sends=None, receives=None)
    few = compare.pairs([measured[0], slow, broken], {})
    assert [each.check for each in few if each.level != "ok"] == ["connection"]


def test_pairs_that_were_slow_are_looked_at_again_and_their_best_look_counts() -> None:
    looks: list[check.Pair] = []

    def look(together: Sequence[check.Pair]) -> list[dict[str, Any]]:
        looks.extend(together)
        return [seen(each) for each in together]

    def seen(each: check.Pair) -> dict[str, Any]:
        if each == (0, 1):
            return pair(sends=1e8)
        if each == (1, 2) and looks.count(each) == 1:
            return pair(receives=2e8, latency=9e-5)
        return pair()

    found = check.look_at_pairs(4, look)
    assert len(found) == 6
    assert (looks.count((0, 1)), looks.count((1, 2)), len(looks)) == (3, 2, 9)
    assert sum(compare.slow(found)) == 1
    assert min(each["receives"] for each in found) == 1.1e9
    assert max(each["latency"] for each in found) == 5e-5


def test_a_link_is_measured_both_ways() -> None:
    listener = link.LinkListener(["127.0.0.1"], TOKEN, 20.0)
    listener.start()
    closed = socket.create_server(("127.0.0.1", 0))
    nobody = closed.getsockname()
    closed.close()
    found = link.measure([nobody, *listener.endpoints], TOKEN, 0.02)
    assert found["refused"] == [f"127.0.0.1:{nobody[1]}: Connection refused"]
    assert (found["source"], found["target"], found["stalled"]) == ("127.0.0.1", "127.0.0.1", "")
    assert all(isinstance(found[name], float) for name in ("latency", "sends", "receives"))
    listener.join(20.0)
    assert not listener.is_alive()


def test_who_does_not_know_the_token_is_not_served() -> None:
    listener = link.LinkListener(["127.0.0.1"], TOKEN, 20.0)
    listener.start()
    with pytest.raises(OSError, match=r"the other side has left|reset"):
        link.measure(listener.endpoints, bytes(link.TOKEN_BYTES), 0.0)
    found = link.measure(listener.endpoints, TOKEN, 0.0)
    assert (found["sends"], found["receives"]) == (None, None)


def test_large_messages_that_do_not_pass_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def blocked(*_: object) -> float:
        raise TimeoutError

    monkeypatch.setattr(link, "_send_rate", blocked)
    listener = link.LinkListener(["127.0.0.1"], TOKEN, 20.0)
    listener.start()
    found = link.measure(listener.endpoints, TOKEN, 0.02)
    assert found["stalled"] == "nothing moved for 10 s"
    assert isinstance(found["latency"], float)


@given(st.ip_addresses(v=4), st.ip_addresses(v=4), st.integers(0, 32))
def test_routes_are_read_as_the_kernel_writes_them(net: Any, gateway: Any, bits: int) -> None:
    def word(packed: bytes) -> str:
        return f"{struct.unpack('=I', packed)[0]:08X}"

    mask = ((0xFFFFFFFF << (32 - bits)) & 0xFFFFFFFF).to_bytes(4, "big")
    words = ["eth0", word(net.packed), word(gateway.packed), "0003", "0", "0", "0", word(mask)]
    (found,) = network.routes_of("Iface\tDestination\n" + "\t".join([*words, "0", "0", "0"]))
    assert found["interface"] == "eth0"
    assert found["network"] == ("default" if bits == 0 else f"{net}/{bits}")
    assert found["gateway"] == ("" if int(gateway) == 0 else str(gateway))


@given(st.text(max_size=200))
def test_any_table_of_routes_is_read(text: str) -> None:
    assert isinstance(network.routes_of(text), list)
