"""The agent of a host, spoken to through pipes as ssh would do it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import sirtaki
from sirtaki.launch.processes.events import HostJob, Process
from sirtaki.launch.processes.frames import (
    FrameReader,
    Kind,
    greeting,
    pack,
    pack_job,
    pack_json,
    pack_signal,
    pack_start,
    unpack_json,
)
from tests.single.launching import LIMIT, Job, python

SECRET = bytes(range(32))


def start(job: Job) -> subprocess.Popen[bytes]:
    """An agent that has greeted and said that it is ready."""
    agent = subprocess.Popen(
        [sys.executable, "-m", "sirtaki.launch.processes.agent"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=job.environment,
    )
    assert agent.stdout is not None
    hello = greeting(sirtaki.__version__)
    assert agent.stdout.read(len(hello)) == hello
    header = agent.stdout.read(5)
    ready = unpack_json(agent.stdout.read(int.from_bytes(header[1:], "big")))
    assert (header[0], ready["event"]) == (Kind.EVENT, "ready")
    assert 0 < ready["port"] < 65536
    return agent


def order(code: str, folder: str = "/", bind_to: str | None = None) -> bytes:
    """The frames that make ranks 4 and 5 run `code`."""
    job = HostJob(python(code), {"GIVEN": "value"}, folder, 2, SECRET, 0.3, bind_to)
    return pack_job(job) + pack_start([process(4, 0), process(5, 1)])


def process(rank: int, place: int) -> Process:
    return Process(rank, place, {"HOROVOD_RANK": str(rank)}, {})


def finish(agent: subprocess.Popen[bytes], *frames: bytes) -> tuple[list[tuple[Kind, bytes]], str]:
    """Send the frames; returns what the agent sends until it ends, and its complaints."""
    assert agent.stdin is not None
    assert agent.stdout is not None
    assert agent.stderr is not None
    agent.stdin.write(b"".join(frames))
    agent.stdin.flush()
    with agent:
        received = FrameReader().feed(agent.stdout.read())
        said = agent.stderr.read().decode()
        assert agent.wait(LIMIT) == 0
    return received, said


def test_ranks_run_with_their_environment_folder_and_secret(job: Job, tmp_path: Path) -> None:
    code = (
        "import os, pathlib\n"
        "secret = pathlib.Path(os.environ['SIRTAKI_SECRET_FILE']).read_bytes()\n"
        "rank = os.environ['HOROVOD_RANK']\n"
        "pathlib.Path(rank).write_text(os.environ['GIVEN'] + secret.hex())"
    )
    received, said = finish(start(job), order(code, str(tmp_path)))
    events = [unpack_json(payload) for kind, payload in received if kind == Kind.EVENT]
    assert sorted((e["event"], e.get("rank"), e.get("code")) for e in events[:-1]) == [
        ("exited", 4, 0),
        ("exited", 5, 0),
        ("started", 4, 0),
        ("started", 5, 0),
    ]
    assert (events[-1], said) == ({"event": "done"}, "")
    for rank in ("4", "5"):
        assert (tmp_path / rank).read_text() == "value" + SECRET.hex()


def test_a_folder_that_is_not_there_is_refused(job: Job) -> None:
    received, _ = finish(start(job), order("print()", "/no/such/folder"))
    refusal, done = (unpack_json(payload) for _, payload in received)
    assert (refusal["event"], refusal["code"]) == ("refused", 2)
    assert "'/no/such/folder' cannot be entered" in refusal["text"]
    assert done == {"event": "done"}


def test_ranks_are_bound_to_cpus_of_this_host_and_the_launcher_hears_of_it(
    job: Job, tmp_path: Path
) -> None:
    code = (
        "import os, pathlib\n"
        "own = [sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS']]\n"
        "pathlib.Path(os.environ['HOROVOD_RANK']).write_text(str(own))"
    )
    cpus = sorted(os.sched_getaffinity(0))[-1:]
    listed = f"{cpus[0]}:{cpus[0]}"
    job.environment["OMP_NUM_THREADS"] = ""
    received, _ = finish(start(job), order(code, str(tmp_path), listed))
    events = [unpack_json(payload) for kind, payload in received if kind == Kind.EVENT]
    told = [event["text"] for event in events if event["event"] == "started"]
    assert told == [f"CPUs {cpus[0]}, OMP_NUM_THREADS is 1"] * 2
    for rank in ("4", "5"):
        assert (tmp_path / rank).read_text() == str([cpus, "1"])


def test_a_variable_of_the_shared_heap_is_refused_before_anything_is_started(job: Job) -> None:
    job.environment["SIRTAKI_SHARED_HEAP"] = "1"
    received, _ = finish(start(job), order("print()"))
    refusal = unpack_json(received[0][1])
    assert (refusal["event"], refusal["code"]) == ("refused", 2)
    assert "SIRTAKI_SHARED_HEAP=1 is refused: there is no shared heap" in refusal["text"]


def test_a_cpu_that_this_host_does_not_have_is_refused(job: Job) -> None:
    received, _ = finish(start(job), order("print()", bind_to="0:9999"))
    refusal, done = (unpack_json(payload) for _, payload in received)
    assert (refusal["event"], refusal["code"]) == ("refused", 2)
    assert "--bind-to 0:9999: local rank 1 is to have CPU 9999" in refusal["text"]
    assert done == {"event": "done"}


class Talk:
    """What an agent says, frame by frame, while its job goes on."""

    def __init__(self, agent: subprocess.Popen[bytes]) -> None:
        assert agent.stdin is not None
        assert agent.stdout is not None
        self._out, self._in = agent.stdout.fileno(), agent.stdin.fileno()
        self._reader = FrameReader()
        self._frames: list[tuple[Kind, bytes]] = []

    def say(self, *frames: bytes) -> None:
        os.write(self._in, b"".join(frames))

    def next_event(self, *kinds: str) -> dict[str, object]:
        """The next event of these kinds; others and output are passed over."""
        while True:
            while self._frames:
                kind, payload = self._frames.pop(0)
                if kind == Kind.EVENT and unpack_json(payload)["event"] in kinds:
                    return unpack_json(payload)
            data = os.read(self._out, 65536)
            assert data, f"the agent ended before it said one of {kinds}"
            self._frames += self._reader.feed(data)


SLEEP = "import time; time.sleep(600)"


def test_a_process_is_started_in_a_job_that_runs(job: Job) -> None:
    both = HostJob(python(SLEEP), {}, "/", 2, SECRET, 0.3)
    with start(job) as agent:
        talk = Talk(agent)
        talk.say(pack_job(both), pack_start([process(4, 0)]))
        assert talk.next_event("started")["rank"] == 4
        talk.say(pack_start([process(5, 1)]))
        assert talk.next_event("started")["rank"] == 5
        talk.say(pack(Kind.TERMINATE))
        ended = [talk.next_event("exited") for _ in range(2)]
        assert sorted((e["rank"], e["code"]) for e in ended) == [(4, -15), (5, -15)]
        assert talk.next_event("done") == {"event": "done"}


def test_one_process_is_signalled_or_ended_while_the_others_go_on(job: Job) -> None:
    with start(job) as agent:
        talk = Talk(agent)
        talk.say(order(SLEEP))
        for _ in range(2):
            talk.next_event("started")
        talk.say(pack_signal(5, signal.SIGTERM))
        ended = talk.next_event("exited", "done")
        assert (ended["rank"], ended["code"]) == (5, -signal.SIGTERM)
        talk.say(pack_start([process(5, 1)]))
        assert talk.next_event("started", "exited", "done")["rank"] == 5
        talk.say(pack_signal(4, signal.SIGUSR1))
        ended = talk.next_event("exited", "done")
        assert (ended["rank"], ended["code"]) == (4, -signal.SIGUSR1)
        talk.say(pack(Kind.KILL))
        assert talk.next_event("done") == {"event": "done"}


def test_a_start_of_a_process_that_runs_is_refused_and_disturbs_nobody(job: Job) -> None:
    with start(job) as agent:
        talk = Talk(agent)
        talk.say(order(SLEEP))
        for _ in range(2):
            talk.next_event("started")
        talk.say(pack_start([process(5, 1)]))
        failed = talk.next_event("failed", "exited", "started")
        assert (failed["event"], failed["rank"]) == ("failed", 5)
        assert failed["text"] == "rank 5 runs already"
        talk.say(pack_signal(5, signal.SIGKILL))
        assert talk.next_event("exited")["code"] == -signal.SIGKILL
        talk.say(pack(Kind.KILL))
        talk.next_event("done")


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 100,
        pack_json(Kind.JOB, {})[:5] + b"no",
        b"\1\0\0\0\2[]",
    ],
)
def test_garbage_ends_the_agent(job: Job, garbage: bytes) -> None:
    agent = start(job)
    assert agent.stdin is not None
    assert agent.stderr is not None
    with agent:
        agent.stdin.write(garbage)
        agent.stdin.close()
        agent.stderr.read()
        agent.wait(LIMIT)


def test_the_end_of_the_lifeline_ends_the_ranks(job: Job) -> None:
    agent = start(job)
    assert agent.stdin is not None
    assert agent.stdout is not None
    with agent:
        agent.stdin.write(order("import time; print('up', flush=True); time.sleep(600)"))
        agent.stdin.flush()
        seen = b""
        while seen.count(b"up") < 2:
            data = os.read(agent.stdout.fileno(), 4096)
            assert data, f"the agent ended before its ranks were up: {seen!r}"
            seen += data
        agent.stdin.close()
        agent.stdout.read()
        assert agent.wait(LIMIT) == 0
    assert not job.processes()


def test_silence_of_the_launcher_ends_the_ranks_unless_it_was_announced(job: Job) -> None:
    sleeper = "import time; time.sleep(7)"
    received, said = finish(start(job), order(sleeper))
    assert received[-1] != (Kind.EVENT, b'{"event": "done"}')
    assert "nothing was heard of the launcher for 5 s" in said
    received, said = finish(start(job), order(sleeper), pack(Kind.PAUSE))
    assert (received[-1], said) == ((Kind.EVENT, b'{"event": "done"}'), "")
