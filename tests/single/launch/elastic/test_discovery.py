"""Hosts are found by a script or in a file, and what is wrong with either is said."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
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


def test_nothing_is_left_of_a_script_that_hangs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(discovery, "_SCRIPT_SECONDS", 1.0)
    pid = tmp_path / "pid"
    with pytest.raises(LaunchError):
        hosts_of_script(f"sleep 60 & echo $! > {pid}; wait", 1)
    child = Path(f"/proc/{pid.read_text().strip()}/stat")
    deadline = time.monotonic() + 30
    while child.exists() and child.read_text().split()[2] != "Z":
        assert time.monotonic() < deadline


def test_a_host_with_two_numbers_of_slots_is_told_of_once() -> None:
    said: list[str] = []
    find = finder(Elastic(1, 1, 1, script="printf 'a:1\\na:2\\n'"), said.append)
    assert (find(), find()) == ({"a": 2}, {"a": 2})
    assert len(said) == 1
    assert "printed a with 1 and with 2 slots: the last line counts" in said[0]


def raise_no_route() -> dict[str, int]:
    raise OSError("no route")


def sleep_for_long() -> dict[str, int]:
    time.sleep(60)
    return {}


def test_hosts_of_a_function() -> None:
    find = finder(Elastic(1, 1, 1, function=lambda: {"a": 2, "[fe80::1]": 1}))
    assert find() == {"a": 2, "fe80::1": 1}


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (raise_no_route, r"function raise_no_route raised OSError: no route"),
        (sleep_for_long, r"function sleep_for_long did not return within 0.1 s"),
        (lambda: ["a:2"], r"returned \['a:2'\]: expected a mapping such as"),
        (lambda: {"a": "many"}, r"expected a mapping such as"),
        (lambda: {"a": -1}, r"expected a mapping such as"),
        (lambda: {"a b": 1}, r"expected a mapping such as"),
        (lambda: {None: 1, "": 2}, r"expected a mapping such as"),
    ],
)
def test_what_is_wrong_with_a_function_is_said(
    function: Callable[[], dict[str, int]], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "_SCRIPT_SECONDS", 0.1)
    find = finder(Elastic(1, 1, 1, function=function))
    for _ in range(2):
        with pytest.raises(LaunchError, match=words):
            find()


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
