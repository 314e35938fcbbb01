"""Hosts are found by a script or in a file, and what is wrong with either is said."""

from __future__ import annotations

import queue
from pathlib import Path

import pytest

from sirtaki.launch.elastic import discovery
from sirtaki.launch.elastic.discovery import Discovery, finder, hosts_of_script, read_lines
from sirtaki.launch.elastic.settings import Elastic
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.hosts.slots import Host


def test_a_script_prints_hosts_with_or_without_slots() -> None:
    script = "printf 'a\\n\\n  b:4  \\n[fe80::1]:2\\nlocalhost\\n'"
    assert hosts_of_script(script, 3) == {"a": 3, "b": 4, "fe80::1": 2, "localhost": 3}


def test_a_host_that_is_printed_twice_counts_once() -> None:
    assert read_lines("a:1\nb\na:2\n", "s", 1) == {"a": 2, "b": 1}


@pytest.mark.parametrize("line", ["a:b", "a b", "-oProxyCommand=x", "a:1:2", "{json: 1}", "a,b"])
def test_what_is_no_host_is_an_error_that_shows_the_line(line: str) -> None:
    with pytest.raises(LaunchError, match=r"'s' printed .*expected lines such as node-a"):
        read_lines(f"good\n{line}\n", "s", 1)


def test_a_script_that_fails_is_an_error_with_what_it_said() -> None:
    with pytest.raises(LaunchError, match=r"'echo why >&2; exit 4' ended with code 4: why"):
        hosts_of_script("echo why >&2; exit 4", 1)


def test_a_script_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_SCRIPT_SECONDS", 0.1)
    with pytest.raises(LaunchError, match=r"did not end within 0.1 s"):
        hosts_of_script("sleep 60", 1)


def test_hosts_are_those_of_the_flags_or_of_the_file_as_it_is_now(tmp_path: Path) -> None:
    fixed = Elastic(1, 1, 1, hosts=(Host("a", 2), Host("b", 1)))
    assert dict(finder(fixed)()) == {"a": 2, "b": 1}
    path = tmp_path / "hosts"
    find = finder(Elastic(1, 1, 1, hostfile=str(path)))
    path.write_text("a slots=2\n")
    assert find() == {"a": 2}
    path.write_text("b\n")
    assert find() == {"b": 1}


def test_only_changes_are_told_and_trouble_leaves_the_hosts_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discovery, "_PAUSE_SECONDS", 0.01)
    told: queue.Queue[object] = queue.Queue()
    answers = iter([{"a": 1}, None, None, {"a": 1}, {"a": 1, "b": 2}])

    def find() -> dict[str, int]:
        answer = next(answers, {"a": 1, "b": 2})
        if answer is None:
            raise LaunchError("no answer")
        return answer

    thread = Discovery(find, {"a": 1}, told.put, told.put)
    thread.start()
    assert told.get(timeout=30) == "no answer; the hosts stay as they were"
    assert told.get(timeout=30) == {"a": 1, "b": 2}
    thread.end()
    thread.join(30)
    assert told.empty()
