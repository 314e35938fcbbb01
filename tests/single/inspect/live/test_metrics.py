"""Metrics of a job that the launcher runs."""

from __future__ import annotations

import errno
import http.client
import json
import os
import secrets
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sirtaki.inspect.live import guard
from sirtaki.inspect.live.metrics import MetricsFile, MetricsServer, token_of
from sirtaki.inspect.live.prometheus import Written
from sirtaki.inspect.live.totals import JobTotals
from sirtaki.launch.errors import LaunchError
from tests.single.inspect.live.made_up import MadeUp, samples
from tests.single.launching import LIMIT, Job

TOKEN = "a token of a test"
JOB = frozenset({("sirtaki_job", "0123abcd")})
# Reduces until nobody keeps the file.
PROGRAM = """
import os, sys, time, numpy
import sirtaki as hvd

hvd.init()
end = time.monotonic() + 60
go = True
while go:
    time.sleep(0.01)
    kept = numpy.float32([os.path.exists(sys.argv[1]) and time.monotonic() < end])
    go = hvd.allreduce(kept, name="kept") == 1
"""


def scrape(port: int, path: str = "/metrics", **headers: str) -> tuple[int, str]:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    link.request("GET", path, headers=headers)
    reply = link.getresponse()
    return reply.status, reply.read().decode()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with MetricsServer(Written(MadeUp(), JobTotals()), 0, TOKEN) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def test_a_scrape_with_the_token_gets_the_numbers_of_each_rank(server: MetricsServer) -> None:
    status, text = scrape(server.port, Authorization=f"Bearer {TOKEN}")
    assert status == 200
    found = samples(text)
    assert found["sirtaki_ranks", JOB] == 2
    for rank, slowest in ((0, 1), (1, 0)):
        labels = frozenset({*JOB, ("rank", str(rank)), ("host", "node0")})
        assert found["sirtaki_slowest", labels] == slowest
        assert found["sirtaki_resident_memory_bytes", labels] == 300 << 20
        assert found["sirtaki_waits_for_ranks", labels] == rank
        assert found["sirtaki_communicating_ratio", labels] == 0.75


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer x", f"Basic {TOKEN}", TOKEN])
def test_a_scrape_without_the_token_is_refused(server: MetricsServer, given: str) -> None:
    status, text = scrape(server.port, Authorization=given)
    assert status == 403
    assert text == "wrong token: send `Authorization: Bearer` and the token of the file\n"


def test_a_scrape_by_another_name_is_refused(server: MetricsServer) -> None:
    given = {"Authorization": f"Bearer {TOKEN}", "Host": "evil.example"}
    status, text = scrape(server.port, **given)
    assert (status, text.startswith("this is 127.0.0.1:")) == (403, True)
    assert scrape(server.port, "/", Authorization=f"Bearer {TOKEN}")[0] == 404


def test_a_token_is_made_once_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "token"
    token = token_of(path)
    assert len(token) >= 32
    assert (token_of(path), path.stat().st_mode & 0o777) == (token, 0o600)
    assert [each.name for each in path.parent.iterdir()] == ["token"]


def test_of_two_first_launchers_both_find_the_whole_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"
    other: list[str] = []
    made = secrets.token_urlsafe

    def meanwhile(size: int) -> str:
        monkeypatch.setattr(secrets, "token_urlsafe", made)
        other.append(token_of(path))  # before our own is written
        return made(size)

    monkeypatch.setattr(secrets, "token_urlsafe", meanwhile)
    assert [token_of(path)] == other


def test_what_is_no_file_is_no_token(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "token", 0o600)
    with pytest.raises(LaunchError, match="it is no file"):
        token_of(tmp_path / "token")


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        (TOKEN, 0o644, "others may read it"),
        ("short", 0o600, "at least 16"),
        ("", 0o600, "at least"),
    ],
)
def test_a_token_that_protects_nothing_is_refused(
    tmp_path: Path, content: str, mode: int, why: str
) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    path.chmod(mode)
    with pytest.raises(LaunchError, match=why):
        token_of(path)


def test_a_disk_that_is_full_for_a_while_costs_lines_and_not_the_job(tmp_path: Path) -> None:
    looks, said, file = MadeUp(), list[str](), tmp_path / "lines"
    writer = MetricsFile(Path("/dev/full"), looks, said.append)  # type: ignore[arg-type]
    thread = threading.Thread(target=writer.run, daemon=True)
    thread.start()
    wait_for(lambda: said)
    writer._file = file.open("ab", buffering=0)  # there is room again
    wait_for(lambda: file.read_bytes().count(b"\n") > 1)
    writer.end()
    thread.join(LIMIT)
    why = "OSError: [Errno 28] No space left on device"
    assert said == [f"--metrics-file /dev/full goes on after {why}"]
    assert all(json.loads(line)["time"] for line in file.read_text().splitlines())


def test_who_has_no_token_takes_few_connections_and_little_time(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_MOST_CONNECTIONS", 4)
    strangers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(50)]
    for stranger in strangers:
        stranger.sendall(b"GET /")  # and never goes on
    wait_for(lambda: len(server._open) <= 4 and strangers[0].recv(1) == b"")
    assert scrape(server.port, Authorization=f"Bearer {TOKEN}")[0] == 200
    monkeypatch.setattr(guard, "_MOST_SECONDS", 0.0)
    assert strangers[-1].recv(1) == b""
    for stranger in strangers:
        stranger.close()


def test_a_shortage_of_descriptors_or_threads_costs_a_scrape_and_not_the_endpoint(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    real, left = socketserver.TCPServer.get_request, [3]

    def no_descriptor(self: socketserver.TCPServer) -> object:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(self)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        with pytest.raises((OSError, http.client.HTTPException)):
            scrape(server.port)
    monkeypatch.setattr(socketserver.TCPServer, "get_request", no_descriptor)
    assert scrape(server.port, Authorization=f"Bearer {TOKEN}")[0] == 200
    assert left[0] < 0


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--metrics-file", "/no/such/file"), "--metrics-file /no/such/file: No such file"),
        (("--metrics-port", "{taken}"), "--metrics-port {taken}: Address already in use"),
        (("--metrics-token-file", "x"), "it is of --metrics-port, which is not given"),
        (("--metrics-interval", "1"), "it is of --metrics-file, which is not given"),
        (("--metrics-file", "x", "--metrics-interval", "0"), "not from 0.1 to 3600"),
        (("--metrics-port", "1", "--mpi"), "with --mpi it is mpirun that stays"),
    ],
)
def test_a_job_is_not_started_without_its_metrics(
    flags: tuple[str, ...], why: str, job: Job, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = str(other.getsockname()[1])
        given = [flag.replace("{taken}", taken) for flag in flags]
        done = job.run("-np", "1", *given, "echo", "started", HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert why.replace("{taken}", taken) in done.stderr


def test_without_prometheus_client_no_endpoint_is_promised(job: Job, tmp_path: Path) -> None:
    (tmp_path / "prometheus_client.py").write_text("raise ImportError('it is not here')")
    paths = {"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}
    done = job.run("-np", "1", "--metrics-port", "9105", "echo", "started", **paths)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'sirtaki[metrics]' (it is not here)" in done.stderr


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param((), id="job"),
        pytest.param(("--min-np", "2"), id="elastic", marks=pytest.mark.slow),
    ],
)
def test_a_job_serves_its_metrics_and_writes_them(
    kind: tuple[str, ...], job: Job, tmp_path: Path
) -> None:
    script, token, lines = (tmp_path / name for name in ("program.py", "token", "lines"))
    script.write_text(PROGRAM)
    port = free_port()
    flags = ("--metrics-port", str(port), "--metrics-token-file", str(token))
    flags = (*flags, "--metrics-file", str(lines), "--metrics-interval", "0.2")
    process = job.start("-np", "2", *kind, *flags, sys.executable, str(script), str(token))
    deadline = time.monotonic() + LIMIT
    text = ""
    while text.count("\nsirtaki_steps_total{") < 2 or '"step": 0.' not in lines.read_text():
        assert time.monotonic() < deadline, text
        time.sleep(0.1)
        if token.exists() and lines.exists():
            text = scrape(port, Authorization=f"Bearer {token.read_text().strip()}")[1]
    token.unlink()
    out, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, out
    assert f"metrics: http://127.0.0.1:{port}/metrics, token in {token}" in out
    found = samples(text)
    assert sum(name == "sirtaki_ranks" for name, _ in found) == 1
    assert sum(name == "sirtaki_step_seconds_sum" for name, _ in found) == 2
    for line in lines.read_text().splitlines():
        seen = json.loads(line)
        assert abs(seen["time"] - time.time()) < 600
        assert [one["rank"] for one in seen["ranks"]][:2] == [0, 1]
