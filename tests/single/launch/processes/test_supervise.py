"""The supervisor and hosts that are reached through an agent, here without ssh."""

from __future__ import annotations

import ctypes
import io
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence

import pytest

from sirtaki.launch.errors import JobError
from sirtaki.launch.output.output import Outputs
from sirtaki.launch.processes.awaited import ABSENT_SECONDS
from sirtaki.launch.processes.events import Event, HostJob, Process
from sirtaki.launch.processes.frames import SILENCE_SECONDS, FrameError
from sirtaki.launch.processes.outcome import Failure, Policy, Verdict
from sirtaki.launch.processes.remote import RemoteProcesses
from sirtaki.launch.processes.signals import SignalWatch
from sirtaki.launch.processes.supervise import Supervisor
from sirtaki.launch.starters.ssh_channel import SshChannel
from tests.single.launching import python


class SlowReader(io.StringIO):
    """Takes nothing for a while when it is first written to."""

    def write(self, text: str) -> int:
        if not self.tell():
            time.sleep(SILENCE_SECONDS + 1)
        return super().write(text)


def host(
    code: str,
    ranks: Mapping[int, Mapping[str, str]],
    bind_to: str | None = None,
    silent: float = 0.0,
) -> RemoteProcesses:
    job = HostJob(python(code), {}, "/", len(ranks), bytes(32), 0.3, bind_to, silent_seconds=silent)
    planned = [Process(rank, place, ranks[rank], {}) for place, rank in enumerate(ranks)]
    argv = [sys.executable, "-m", "sirtaki.launch.processes.agent"]
    channel = SshChannel(argv, lambda code, lines: f"{code} {lines}", 30.0)
    return RemoteProcesses("there", planned, channel, job)


class OthersGoOn(Policy):
    """A policy that lets a job go on without the ranks that have failed, and keeps what it saw."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, str, int]] = []

    def ended(self, rank: int, host: str, code: int) -> Verdict | None:
        self.seen.append((rank, host, code))
        return None

    def lost(self, host: str, ranks: Sequence[int], how: str) -> Verdict | None:
        raise AssertionError(f"{host} was lost: {how}")


FAIL_SOON = """
import os, sys, time
if os.environ["HOROVOD_RANK"] == "0": sys.exit(3)
time.sleep(1)
print("done")
"""
RANKS = {0: {"HOROVOD_RANK": "0"}, 1: {"HOROVOD_RANK": "1"}}


def test_another_policy_lets_a_job_go_on_after_a_failure() -> None:
    shown, policy = io.StringIO(), OthersGoOn()
    outputs = Outputs(2, shown, shown)
    hosts = [host(FAIL_SOON, RANKS)]
    outcome = Supervisor(hosts, outputs, None, 30.0, lambda: False, policy=policy).run()
    assert (outcome.success, shown.getvalue()) == (True, "[1]<stdout>:done\n")
    assert policy.seen == [(0, "there", 3), (1, "there", 0)]


def test_a_verbose_run_says_what_was_decided_and_why() -> None:
    shown, errors = io.StringIO(), io.StringIO()
    hosts = [host(FAIL_SOON, RANKS)]
    outcome = Supervisor(hosts, Outputs(2, shown, errors), None, 30.0, lambda: False, True).run()
    assert outcome.failure == Failure(0, 3)
    said = "decision: rank 0 on there ended with code 3, so the job is ended"
    assert said in errors.getvalue().splitlines()


class PollFd(ctypes.Structure):
    """What poll(2) is told to wait for."""

    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


def test_a_signal_is_readable_before_python_can_run_a_handler() -> None:
    with SignalWatch() as signals:
        # Taken by another thread, so that the wait of this one, in which no handler runs, goes on.
        raiser = threading.Thread(target=lambda: signal.raise_signal(signal.SIGHUP))
        waited = PollFd(signals.reader.fileno(), select.POLLIN, 0)
        threading.Timer(0.2, raiser.start).start()
        ready = ctypes.CDLL(None).poll(ctypes.byref(waited), 1, 10_000)
        raiser.join()
    assert ready == 1


def test_a_host_is_not_given_up_because_the_reader_of_the_output_was_slow() -> None:
    shown = SlowReader()
    code = f"import time; print('one', flush=True); time.sleep({SILENCE_SECONDS + 2}); print('two')"
    hosts = [host(code, {0: {}})]
    supervisor = Supervisor(hosts, Outputs(1, shown, shown), None, 30.0, lambda: False)
    assert supervisor.run().success
    assert shown.getvalue() == "[0]<stdout>:one\n[0]<stdout>:two\n"


STOP_AGENT = """
import os, signal, time
guardian = os.getppid()
agent = int(open(f"/proc/{guardian}/stat").read().rpartition(")")[2].split()[1])
os.kill(agent, signal.SIGSTOP)
time.sleep(600)
"""


def test_a_silent_host_of_an_elastic_job_is_given_up_when_a_process_would_be() -> None:
    shown = io.StringIO()
    hosts = [host(STOP_AGENT, {0: {}}, silent=1.0)]
    with pytest.raises(JobError, match="nothing was heard of it for 1 s"):
        Supervisor(hosts, Outputs(1, shown, shown), None, 30.0, lambda: False).run()


def test_a_host_of_an_elastic_job_says_often_enough_that_it_is_there() -> None:
    shown = io.StringIO()
    hosts = [host("import time; time.sleep(3); print('here')", {0: {}}, silent=1.0)]
    supervisor = Supervisor(hosts, Outputs(1, shown, shown), None, 30.0, lambda: False)
    assert supervisor.run().success
    assert shown.getvalue() == "[0]<stdout>:here\n"


def test_a_host_that_does_not_answer_is_named_while_it_is_waited_for() -> None:
    shown = io.StringIO()
    channel = SshChannel(["sleep", "600"], lambda code, lines: "", 30.0)
    job = HostJob([], {}, "/", 1, bytes(32), 0.3)
    silent = RemoteProcesses("far", [Process(1, 0, {}, {})], channel, job)
    hosts = [host("pass", {0: {}}), silent]
    late = ABSENT_SECONDS + 0.5
    with pytest.raises(JobError, match="no answer from far within"):
        Supervisor(hosts, Outputs(2, shown, shown), None, late, lambda: False).run()
    assert shown.getvalue() == "waiting for host far ...\n"


def test_hosts_that_answer_are_not_named() -> None:
    shown = io.StringIO()
    code = f"import time; time.sleep({ABSENT_SECONDS + 0.2})"
    Supervisor([host(code, {0: {}})], Outputs(1, shown, shown), None, 30.0, lambda: False).run()
    assert shown.getvalue() == ""


@pytest.mark.parametrize("verbose", [True, False])
def test_what_ranks_of_other_hosts_get_is_said_in_a_verbose_run(
    verbose: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    shown, errors = io.StringIO(), io.StringIO()
    cpu = min(os.sched_getaffinity(0))
    code = "import os; print(len(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])"
    hosts = [host(code, {3: {}, 4: {}}, bind_to=f"{cpu}:{cpu}")]
    supervisor = Supervisor(hosts, Outputs(5, shown, errors), None, 30.0, lambda: False, verbose)
    assert supervisor.run().success
    assert sorted(shown.getvalue().splitlines()) == ["[3]<stdout>:1 1", "[4]<stdout>:1 1"]
    said = [f"rank {rank} on there: CPUs {cpu}, OMP_NUM_THREADS is 1" for rank in (3, 4)]
    assert errors.getvalue().splitlines() == (said if verbose else [])


@pytest.mark.parametrize("event", [{"rank": "0"}, {"rank": 0, "code": "1"}, {"rank": 7}])
def test_an_event_that_makes_no_sense_is_not_believed(event: dict[str, object]) -> None:
    with pytest.raises(FrameError):
        host("pass", RANKS)._read_event({"event": "exited", **event})


def test_what_another_host_says_of_its_cpus_is_shown_and_does_not_cost_the_host() -> None:
    event = {"event": "said", "rank": -1, "code": 0, "text": "warning: CPUs 0 are"}
    read = host("pass", RANKS)._read_event(event)
    assert read == Event("said", text="warning: CPUs 0 are")
