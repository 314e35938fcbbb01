"""Host lists, hostfiles and the places of ranks."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.flags import Flags
from sirtaki.launch.hosts.slots import (
    Host,
    allocate,
    is_local,
    join_local,
    parse_hosts,
    read_hostfile,
)
from tests import needs

names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True) | st.builds(
    str, st.ip_addresses(v=6)
)
ports = st.none() | st.integers(1, 65535)
host_lists = st.lists(
    st.builds(Host, names, st.integers(0, 12), ports),
    min_size=1,
    max_size=6,
    unique_by=lambda h: h.name,
)


def written(host: Host) -> str:
    return f"[{host.name}]" if ":" in host.name else host.name


def given_port(before: str, host: Host) -> str:
    return "" if host.port is None else f"{before}{host.port}"


def test_hosts_are_read_in_the_order_given() -> None:
    assert parse_hosts("b:2,a-1.example.org:4") == [Host("b", 2), Host("a-1.example.org", 4)]


def test_a_host_without_slots_has_one() -> None:
    assert parse_hosts("a,b:2") == [Host("a", 1), Host("b", 2)]


@pytest.mark.parametrize(
    ("text", "name"), [("[fe80::1]:2", "fe80::1"), ("[fe80::1%eth0]:2", "fe80::1%eth0")]
)
def test_an_ipv6_address_stands_in_brackets(text: str, name: str) -> None:
    assert parse_hosts(text) == [Host(name, 2)]


def test_a_host_named_twice_adds_its_slots() -> None:
    assert parse_hosts("a:1,b:1,a:2") == [Host("a", 3), Host("b", 1)]


@given(host_lists)
def test_any_host_list_can_be_written_and_read(hosts: list[Host]) -> None:
    text = ",".join(f"{written(host)}:{host.slots}{given_port('@', host)}" for host in hosts)
    assert parse_hosts(text) == hosts


@pytest.mark.parametrize(
    "text",
    [
        *("", "a:", ":2", "a:b", "a:-1", "a:1,,b:1", "a:1;b:1", "user@a:1", "a b:1"),
        *(
            "-oProxyCommand=x:1",
            "a:1:2",
            "-oProxyCommand=x",
            "::1:2",
            "[::1",
            "[::g]:2",
            "[1.2.3.4]:2",
            "[::1%;x]:2",
            "a$IFS:1",
            "`a`:1",
            "a:99999999999",
            "a:1@",
            "a:1@0",
            "a:1@65536",
            "a@1:1",
            "ä:1",
            "a:٣",
            "a:1\n"[:-1] + "x",
        ),
    ],
)
def test_a_host_list_of_another_form_is_refused_and_shown(text: str) -> None:
    with pytest.raises(LaunchError, match="name:slots"):
        parse_hosts(text)


@given(st.text(max_size=40))
def test_any_text_is_either_read_or_refused(text: str) -> None:
    try:
        hosts = parse_hosts(text)
    except LaunchError:
        return
    assert all(re.fullmatch(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]*", host.name) for host in hosts)


@given(hosts=host_lists)
def test_any_hostfile_can_be_written_and_read(
    hosts: list[Host], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("hosts") / "hostfile"
    for name in (written, lambda host: host.name):
        lines = [
            f"{name(host)}{given_port(' port = ', host)}  slots={host.slots}  # comment"
            for host in hosts
        ]
        path.write_text("# hosts\n\n" + "\n".join(lines) + "\n")
        assert read_hostfile(str(path)) == hosts


def test_a_hostfile_may_bound_slots_as_open_mpi_has_it(tmp_path: Path) -> None:
    path = tmp_path / "hostfile"
    path.write_text("a slots=4 max_slots=2\nb max-slots=3\nc:4 max_slots=8\nd:2@2201\n")
    assert read_hostfile(str(path)) == [
        Host("a", 2),
        Host("b", 3),
        Host("c", 4),
        Host("d", 2, 2201),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "a:2\nb:1\n",  # MPICH
        "a slots=2 max_slots=2\nb\n",  # Open MPI
        "a\na\nb\n",  # PBS
        "a 2 all.q@a UNDEFINED\nb 1 all.q@b <NULL>\n",  # Grid Engine
    ],
)
def test_lists_of_other_programs_are_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hostfile"
    path.write_text(text)
    assert read_hostfile(str(path)) == [Host("a", 2), Host("b", 1)]


def test_a_host_has_one_port() -> None:
    assert parse_hosts("a:1,a:2@2201") == [Host("a", 3, 2201)]
    with pytest.raises(LaunchError, match="host a is named with the ports 1 and 2"):
        parse_hosts("a@1,a@2")


@pytest.mark.parametrize(
    "line",
    [
        *("a:x", "a:2:3", "a slots=", "a slots=x", "a slots=2 b", "-x slots=1"),
        *("a slots=1 slots=2", "a:2 slots=3", "a port=0", "a port=70000", "a port=x"),
        *("a user=me", "[::1 slots=1", "a 2", "a:2 4 all.q@a UNDEFINED"),
    ],
)
def test_a_bad_line_of_a_hostfile_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "hostfile"
    path.write_text(f"good slots=1\n{line}\n")
    with pytest.raises(LaunchError, match=r"line 2 of the hostfile"):
        read_hostfile(str(path))


def test_hostfiles_that_are_missing_empty_or_binary_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="No such file"):
        read_hostfile(str(tmp_path / "none"))
    (tmp_path / "empty").write_text("# nothing\n")
    with pytest.raises(LaunchError, match="names no host"):
        read_hostfile(str(tmp_path / "empty"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LaunchError, match="not a text file"):
        read_hostfile(str(tmp_path / "binary"))


def test_ranks_fill_hosts_in_order_and_leave_extra_slots_free() -> None:
    slots = allocate([Host("a", 2), Host("b", 3)], 4)
    assert [(s.host, s.local_rank, s.local_size) for s in slots] == [
        ("a", 0, 2),
        ("a", 1, 2),
        ("b", 0, 2),
        ("b", 1, 2),
    ]


def test_cross_ranks_count_only_hosts_that_have_the_local_rank() -> None:
    slots = allocate([Host("a", 1), Host("b", 2), Host("c", 2)], 5)
    assert [(s.local_rank, s.cross_rank, s.cross_size) for s in slots] == [
        (0, 0, 3),
        (0, 1, 3),
        (1, 0, 2),
        (0, 2, 3),
        (1, 1, 2),
    ]


@given(host_lists, st.integers(1, 30))
def test_every_allocation_is_consistent(hosts: list[Host], size: int) -> None:
    available = sum(host.slots for host in hosts)
    if available < size:
        with pytest.raises(
            LaunchError,
            match=rf"Requested more processes \({size}\) than there are available slots "
            rf"\({available}\)",
        ):
            allocate(hosts, size)
        return
    slots = allocate(hosts, size)
    assert [slot.rank for slot in slots] == list(range(size))
    assert {slot.size for slot in slots} == {size}
    for host in hosts:
        here = [slot for slot in slots if slot.host == host.name]
        assert len(here) <= host.slots
        assert [slot.local_rank for slot in here] == list(range(len(here)))
        assert all(slot.local_size == len(here) for slot in here)
    for slot in slots:
        across = [other for other in slots if other.local_rank == slot.local_rank]
        assert slot.cross_size == len(across)
        assert across[slot.cross_rank] == slot


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "127.3.2.1", socket.gethostname()])
def test_this_machines_names_are_local(name: str) -> None:
    assert is_local(name)


@pytest.mark.parametrize("name", ["192.0.2.1", "no-such-host.invalid", "a..b"])
def test_other_names_are_not_local(name: str) -> None:
    assert not is_local(name)


ALLOWING = ("unshare", "-Urn", "sh", "-c")
ALLOW = "echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind"


@pytest.mark.skipif(
    subprocess.run([*ALLOWING, ALLOW], capture_output=True, check=False).returncode != 0,
    reason=needs.missing("user namespaces"),
)
def test_other_hosts_are_not_local_where_any_address_can_be_bound() -> None:
    code = (
        "from sirtaki.launch.hosts.slots import is_local\n"
        "print(is_local('192.0.2.1'), is_local('2001:db8::1'), is_local('127.0.0.1'))"
    )
    done = subprocess.run(
        [*ALLOWING, f'{ALLOW} && exec "$@"', "sh", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "False False True\n", done.stderr


def test_several_names_of_this_machine_are_one_host() -> None:
    hosts = [Host("localhost", 2), Host("192.0.2.1", 1), Host("127.0.0.1", 2)]
    assert join_local(hosts) == [Host("localhost", 4), Host("192.0.2.1", 1)]


def test_hosts_that_are_all_others_stay_as_they_are() -> None:
    hosts = [Host("192.0.2.1", 1), Host("192.0.2.2", 3)]
    assert join_local(hosts) == hosts


def test_a_host_file_may_be_a_pipe_and_have_the_marks_of_windows() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"\xef\xbb\xbfn1 slots=2\r\n\r\n# not n2\r\n")
    os.close(writer)
    flags = Flags(hostfile=f"/dev/fd/{reader}", num_proc=2)
    assert flags.given_hosts() == flags.but(verbose=True).given_hosts() == [Host("n1", 2)]
    os.close(reader)
