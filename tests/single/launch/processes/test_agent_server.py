"""Agents that call the launcher: who is taken, who is turned away, and with what words."""

from __future__ import annotations

import io
import json
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sirtaki
from sirtaki.launch.errors import JobError, LaunchError
from sirtaki.launch.hosts.shared_folder import JOB, create_folder, write_private
from sirtaki.launch.hosts.shared_folder import SECRET as SECRET_FILE
from sirtaki.launch.output.output import Outputs
from sirtaki.launch.processes import connecting_agent
from sirtaki.launch.processes.agent_server import AgentServer, CallChannel, secure
from sirtaki.launch.processes.connecting_agent import call, host_and_count
from sirtaki.launch.processes.events import HostJob, Process
from sirtaki.launch.processes.remote import RemoteProcesses
from sirtaki.launch.processes.supervise import Supervisor
from sirtaki.launch.starters.starter import Starter
from sirtaki.rendezvous.trust import auth
from tests.single.launching import Job, python

SECRET = secrets.token_bytes(32)
STEP = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4"}
JSM = {"JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_SIZE": "2"}


class Office:
    """A launcher that waits for the agents of hosts a and b; what it says and does stands here."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.complete = 0
        where = ["127.0.0.1", "::1"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]
        self.server = AgentServer(where, SECRET, ["a", "b"], self._count, self.said.append)
        self.job: dict[str, Any] = {"address": self.server.address, "seconds": 5.0}

    def _count(self) -> None:
        self.complete += 1

    def wait_for_words(self) -> str:
        deadline = time.monotonic() + 30
        while not self.said:
            assert time.monotonic() < deadline, "nobody was turned away"
            time.sleep(0.01)
        return self.said[0]


@pytest.fixture
def office() -> Iterator[Office]:
    office = Office()
    with office.server:
        yield office


def test_bytes_go_both_ways_between_the_launcher_and_the_agent_of_each_host(
    office: Office,
) -> None:
    agents = [secure(call(office.job, SECRET, number)) for number in (1, 0)]
    for number, agent in zip((1, 0), agents, strict=True):
        agent.socket.sendall(b"from %d" % number)
        ours = office.server.socket_of(number)
        assert ours.recv(64) == b"from %d" % number
        ours.sendall(b"to %d" % number)
        assert agent.socket.recv(64) == b"to %d" % number
    assert (office.complete, office.said) == (1, [])


@pytest.mark.parametrize("end", ["agent", "launcher"])
def test_the_end_of_one_side_is_seen_by_the_other(office: Office, end: str) -> None:
    agent = secure(call(office.job, SECRET, 0)).socket
    ours = office.server.socket_of(0)
    one, other = (agent, ours) if end == "agent" else (ours, agent)
    one.sendall(b"last words")
    one.shutdown(socket.SHUT_WR)
    assert other.recv(64) == b"last words"
    assert other.recv(64) == b""


def test_a_host_that_joins_twice_is_turned_away_by_its_name(office: Office) -> None:
    first = secure(call(office.job, SECRET, 1)).socket
    second = secure(call(office.job, SECRET, 1)).socket
    assert second.recv(64) == b""
    assert office.wait_for_words().endswith("host b has joined already")
    first.sendall(b"still here")
    assert office.server.socket_of(1).recv(64) == b"still here"


def test_a_host_that_the_job_does_not_have_is_turned_away(office: Office) -> None:
    assert secure(call(office.job, SECRET, 2)).socket.recv(64) == b""
    assert office.wait_for_words().endswith("host 2 of 2 is none of this job's")


def test_an_agent_with_a_wrong_secret_is_turned_away_and_says_so(office: Office) -> None:
    with pytest.raises(LaunchError, match=r"cannot reach the launcher.*wrong secret: it belongs"):
        call(office.job, bytes(32), 0)
    assert "the launcher turned away a connection" in office.wait_for_words()
    assert "wrong secret" in office.said[0]
    assert office.complete == 0


def test_an_agent_of_another_version_is_told_which_versions_there_are(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = auth.own_identity()._replace(version="0.0.7")
    monkeypatch.setattr(auth, "own_identity", lambda: other)
    with pytest.raises(LaunchError, match=r"version mismatch: host .* runs Sirtaki 0\.0\.7, host"):
        call(office.job, SECRET, 0)
    assert "version mismatch" in office.wait_for_words()


def test_an_agent_for_which_nobody_waits_any_more_is_let_go(office: Office) -> None:
    office.server.give_up([0])
    assert office.server.socket_of(0).recv(64) == b""
    assert secure(call(office.job, SECRET, 0)).socket.recv(64) == b""


def test_an_agent_that_cannot_connect_names_what_it_tried_and_a_firewall() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]  # where nobody listens
        job = {"address": f"tls:127.0.0.1,[::1]:{port}", "seconds": 5.0}
        with pytest.raises(LaunchError) as refused:
            call(job, SECRET, 0)
    for where in ("127.0.0.1", "[::1]"):
        assert f"{where}:{port}: [Errno " in str(refused.value)
    assert "a firewall lets no connection from this host in there" in str(refused.value)


GOT = """
import signal, time
got = []
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda *_: got.append(1))
print("up", flush=True)
while not got: time.sleep(0.01)
time.sleep(0.3)
print("got", len(got), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_signal_that_only_an_agent_gets_reaches_its_ranks(
    office: Office, job: Job, tmp_path: Path, number: signal.Signals
) -> None:
    folder = create_folder(tmp_path, "job")
    write_private(folder / SECRET_FILE, SECRET)
    told = {**office.job, "version": sirtaki.__version__, "hosts": 2}
    write_private(folder / JOB, json.dumps(told).encode())
    argv = [sys.executable, str(connecting_agent.__file__), str(folder), "0"]
    channel = CallChannel(office.server, 0, Starter(argv, job.environment, [0]))
    ranks = [Process(rank, rank, {}, {}) for rank in (0, 1)]
    what = HostJob(python(GOT), {}, "/", 2, SECRET, 5.0)
    shown = io.StringIO()

    def send() -> None:
        while shown.getvalue().count("up") < 2:
            time.sleep(0.01)
        (agent,) = [
            pid for pid, command in job.processes().items() if "connecting_agent.py" in command
        ]
        os.kill(agent, number)

    threading.Thread(target=send, daemon=True).start()
    hosts = [RemoteProcesses("a", ranks, channel, what)]
    supervisor = Supervisor(hosts, Outputs(2, shown, shown), None, 30.0, lambda: False)
    if number == signal.SIGUSR1:
        assert supervisor.run().success
    else:
        with pytest.raises(JobError, match="host a was told to end by SIGTERM: the job was"):
            supervisor.run()
    assert shown.getvalue().count("<stdout>:got 1\n") == 2, shown.getvalue()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({**STEP, "SLURM_NTASKS": "8"}, (3, 4)),
        (JSM, (1, 2)),
        ({**STEP, **JSM}, (1, 2)),
    ],
)
def test_the_host_comes_from_the_step(environ: dict[str, str], expected: tuple[int, int]) -> None:
    assert host_and_count(environ) == expected


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"},  # a batch script
        {**STEP, "SLURM_PROCID": "x"},
        {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"},
    ],
)
def test_without_a_step_nobody_knows_the_host(environ: dict[str, str]) -> None:
    with pytest.raises(LaunchError, match="which host it is for is unknown"):
        host_and_count(environ)
