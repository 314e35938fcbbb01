"""Each thread of the package outlives what a turn of it meets, or hands its error to who waits."""

from __future__ import annotations

import ast
import errno
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import sirtaki
from sirtaki.core import advice
from sirtaki.core.tracing import recording
from sirtaki.hang import watching
from sirtaki.inspect.live import guard
from sirtaki.inspect.live.metrics import MetricsFile, MetricsServer
from sirtaki.launch.elastic.discovery import Discovery
from sirtaki.questions import answering, asker, asking, collect, serving
from sirtaki.questions.launcher import LauncherAnswers
from sirtaki.questions.messages import Question
from sirtaki.rendezvous import threads
from sirtaki.rendezvous.host import presence
from sirtaki.rendezvous.network.lookup import Lookup
from sirtaki.rendezvous.stores.store_server import StoreServer
from sirtaki.rendezvous.stores.unix_store import UnixStore, UnixStoreServer
from tests.single.launching import LIMIT

ERRORS = [
    OSError(errno.EMFILE, "Too many open files"),
    RuntimeError("can't start new thread"),
    RecursionError("maximum recursion depth exceeded"),
    MemoryError(),
    TypeError("an answer of another version"),
    KeyError("an answer of another version"),
    ValueError("a bad value"),
]
_MAKERS = {"Thread", "InheritableThread", "Timer", "ThreadPoolExecutor", "start_thread"}


class Failing:
    """A function that raises each of the errors, then does what it should."""

    def __init__(self, then: Callable[..., Any] = lambda *_: None) -> None:
        self._then = then
        self.left = list(ERRORS)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self.left:
            raise self.left.pop()
        return self._then(*arguments, **named)


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "the thread has ended"
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime folder of this test, and no long pauses."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv(presence.RUNTIME_DIR, str(tmp_path))
    monkeypatch.setattr(threads, "_PAUSE_SECONDS", 0.001)


def store_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with UnixStoreServer() as server:
        server.on_set = Failing()
        store = UnixStore(server.address, LIMIT)
        for _ in range(len(ERRORS) + 1):
            store.set("x", b"1")
        assert server.on_set.left == []
        assert store.get("x", LIMIT) == b"1"


def store_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(StoreServer.handle)
    monkeypatch.setattr(StoreServer, "handle", lambda self, peer: failing(self, peer))
    with UnixStoreServer() as server:
        store = UnixStore(server.address, LIMIT)
        for _ in ERRORS:
            with pytest.raises(ConnectionError):
                store.set("x", b"1")
        store.set("x", b"2")


def store_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(UnixStoreServer.admit)
    monkeypatch.setattr(UnixStoreServer, "admit", lambda self, sock: failing(self, sock))
    with UnixStoreServer() as server:
        for _ in ERRORS:
            link = socket.socket(socket.AF_UNIX)
            link.connect("\0" + server.address.removeprefix("unix:@"))
        wait_for(lambda: not failing.left)
        UnixStore(server.address, LIMIT).set("x", b"1")


def ranks_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(lambda: "fine")
    monkeypatch.setattr(serving, "peer_of", Failing(serving.peer_of))
    answers = {Question.STATE: failing, Question.STACKS: lambda: {1}}
    rank = answering.answer_for("cafe", 0, ["here"], 0, -1, answers)
    (one,) = presence.present()
    refusals: list[str] = []
    while failing.left:
        with pytest.raises(asking.NoAnswer) as refused:
            asking.ask(one, Question.STATE, LIMIT)
        refusals.append(str(refused.value))
    assert all(type(error).__name__ in "".join(refusals) for error in ERRORS)
    assert asking.ask(one, Question.STATE, LIMIT) == "fine"
    with pytest.raises(asking.NoAnswer, match="TypeError"):
        asking.ask(one, Question.STACKS, LIMIT)
    rank.close()
    assert not rank._server.thread.is_alive()


def launcher_takes_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    def wake() -> None:
        launcher.answer([b'[{"rank": 0}]'])

    said = list[str]()
    monkeypatch.setattr(serving, "peer_of", Failing(serving.peer_of))
    launcher = LauncherAnswers("cafe", Failing(wake), said.append)
    for _ in (*ERRORS, *ERRORS):
        assert asking.ask_launcher("cafe", Question.REPORT) is None
    assert asking.ask_launcher("cafe", Question.REPORT) == [{"rank": 0}]
    launcher.close()
    assert len(set(said)) == len(said) > 0


def hosts_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sirtaki.launch.elastic.discovery._PAUSE_SECONDS", 0.001)
    found, said = list[dict[str, int]](), list[str]()
    search = Discovery(Failing(lambda: {"new": 1}), {}, found.append, said.append)
    search.start()
    wait_for(lambda: found)
    search.end()
    assert len(said) == len(ERRORS)


def a_rank_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = threading.Event()
    failing = Failing(lambda *_: seen.set() or [])
    monkeypatch.setattr(watching, "collect", failing)
    watch = watching.OwnWatch("cafe", 0.004)
    wait_for(seen.is_set)
    watch.end()


def a_rank_looks_for_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "_LOOK_SECONDS", 0.001)
    seen = threading.Event()
    nothing = advice.Look(0.0, 0, None, 0, {})
    monkeypatch.setattr(advice, "_look", Failing(lambda *_: seen.set() or nothing))
    looks = advice.Advice(None, 2)  # type: ignore[arg-type]
    wait_for(seen.is_set)
    looks.end()


def the_launcher_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "collect", Failing(lambda *_: ["fine"]))
    background = asker.Asker()
    for number in range(len(ERRORS) + 1):
        background.ask("cafe", Question.POLL, number)
        answers: list[tuple[int, bytes]] = []
        wait_for(lambda: answers.extend(background.take()) or answers)  # noqa: B023
        assert json.loads(answers[0][1]) == ([] if number < len(ERRORS) else ["fine"])
    background.close()


def a_trace_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_PAUSE_SECONDS", 0.001)
    looked = threading.Event()
    failing = Failing(lambda: looked.set() or [])
    asked_of = iter([list])  # what begins is told of its errors
    trace = recording.Recording(lambda: next(asked_of, failing)())
    wait_for(looked.is_set)
    trace.stop()


def metrics_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path(presence.own_folder()) / "lines"
    looks = SimpleNamespace(interval=0.001, look=Failing(lambda: {"ranks": []}))
    writer = MetricsFile(file, looks, lambda _: None)  # type: ignore[arg-type]
    thread = threads.start_thread(writer.run, "test")
    wait_for(file.read_text)
    writer.end()
    thread.join(LIMIT)


def metrics_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(guard.LoopbackServer.service_actions)
    monkeypatch.setattr(guard.LoopbackServer, "service_actions", lambda self: failing(self))
    from sirtaki.inspect.live import metrics

    with MetricsServer(None, 0, "token") as server:  # type: ignore[arg-type]
        monkeypatch.setattr(metrics, "_POLL_SECONDS", 0.001)
        serving = threads.Lasting("the metrics port", lambda _: None)
        thread = threads.start_thread(metrics._serve, "test", (server, serving))
        wait_for(lambda: not failing.left)
        link = socket.create_connection(("127.0.0.1", server.port))
        link.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert link.recv(9) == b"HTTP/1.0 "
        link.close()
        server.shutdown()
        thread.join(LIMIT)


# Loops that serve for as long as a job or a process lasts.
LOOPS = {
    "core/advice.py:Advice.__init__": [a_rank_looks_for_advice],
    "core/tracing/recording.py:Recording.__init__": [a_trace_records],
    "questions/asker.py:Asker.ask": [the_launcher_asks],
    "hang/watching.py:OwnWatch.__init__": [a_rank_watches],
    "launch/elastic/discovery.py:Discovery": [hosts_are_found],
    "inspect/live/metrics.py:metrics_of": [metrics_are_served, metrics_are_written],
    "questions/serving.py:QuestionServer.__init__": [ranks_answer, launcher_takes_questions],
    "rendezvous/network/serving.py:Server.start": [store_is_told, store_reads, store_accepts],
}
# Threads that do one thing: what goes wrong in them reaches who waits for it.
OTHERS = {
    "checkpoint/saving.py:_Writing.start": "`finish` raises it",
    "core/elastic.py:_listen": "waits for one value; the next world has another",
    "core/elastic.py:leave": "says one thing",
    "data/data_loader_base.py:_ReadAhead.__init__": "the iteration raises it",
    "demo/program.py:Program.__init__": "a command of the user's",
    "elastic/run.py:tell_failure": "waits for one thread, and says one thing",
    "doctor/hosts/asked.py:AskedHost.__init__": "`ask` is told of the end",
    "doctor/hosts/check.py:_all": "a command of the user's",
    "doctor/hosts/check.py:check": "a command of the user's",
    "doctor/hosts/link.py:LinkListener": "a command of the user's",
    "doctor/probe.py:probe_modules": "a command of the user's",
    "launch/elastic/discovery.py:_Function.__call__": "the search for hosts is told",
    "inspect/live/page.py:serve": "a command of the user's",
    "inspect/live/screen.py:Screen._open": "a command of the user's",
    "inspect/live/screen.py:Screen.run": "`run` raises it",
    "launch/processes/remote.py:_Writer": "the other host notices the silence",
    "launch/starters/ssh_channel.py:SshChannel.open": "ends one way to a host, which is lost",
    "launch/starters/starter.py:Starter": "waits for the end of one process",
    "ray/elastic_job.py:_logged": "each turn is a `Lasting`, as is each callback",
    "rendezvous/threads.py:in_threads": "the caller raises it",
    "rendezvous/threads.py:start_thread": "starts what others have made",
    "rendezvous/network/lookup.py:Lookup.__init__": "`addresses` raises it",
    "rendezvous/network/tls_relay.py:Relay.__init__": "ends one connection, which both sides see",
    "rendezvous/world/attempts.py:Attempts._speaking": "says one thing",
    "spark/barrier.py:_ended_with_others": "waits for one value",
    "spark/barrier.py:_relayed": "each turn is a `Lasting`",
    "spark/elastic/runner.py:_ElasticJob.__enter__": "`wait_for_tasks` raises it",
    "spark/elastic/worker.py:_over": "waits for one value",
    "spark/runner.py:_Job.results": "`results` raises it",
    "tensorflow/data/registry.py:ComputeService.__init__": "`socketserver` ends the answer alone",
    "torch/device/dispatcher.py:Dispatcher.__init__": "ends the world, with the reason",
    "torch/distributed/works.py:Completions._add_thread": "each turn is a `Lasting`",
    "torch/distributed/works.py:Work.get_future": "the future has it",
}


def threads_of(tree: ast.AST, within: str = "") -> Iterator[str]:
    """Yield the qualified names of what makes threads."""
    for node in ast.iter_child_nodes(tree):
        name = within
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            name = f"{within}.{node.name}".lstrip(".")
        bases = node.bases if isinstance(node, ast.ClassDef) else []
        if any(ast.unparse(base).endswith("Thread") for base in bases):
            yield name
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _MAKERS:
            yield within
        yield from threads_of(node, name)


def test_each_thread_of_the_package_is_known_here() -> None:
    root = Path(sirtaki.__file__).parent
    found = {
        f"{file.relative_to(root)}:{name}"
        for file in root.rglob("*.py")
        if "templates" not in file.parts
        for name in threads_of(ast.parse(file.read_text()))
    }
    assert found == (LOOPS | OTHERS).keys()


@pytest.mark.parametrize("probe", [each for probes in LOOPS.values() for each in probes])
def test_a_loop_outlives_what_a_turn_of_it_raises(
    probe: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    probe(monkeypatch)


def no_thread(*_: object) -> None:
    raise RuntimeError("can't start new thread")


def test_a_shortage_of_threads_is_an_oserror(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(OSError, match="can't start new thread") as raised:
        threads.start_thread(print, "test")
    assert not isinstance(raised.value, BlockingIOError)  # which is taken for "nothing to read"


def test_without_threads_the_caller_does_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    assert threads.in_threads(str, range(5), 3) == ["0", "1", "2", "3", "4"]


def test_what_one_of_many_raises_is_raised_when_all_have_ended() -> None:
    done: list[int] = []

    def work(number: int) -> None:
        done.append(number)
        if number == 1:
            raise KeyError(number)

    with pytest.raises(KeyError):
        threads.in_threads(work, range(4), 2)
    assert sorted(done) == [0, 1, 2, 3]


def test_without_threads_the_launcher_and_ranks_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    background = asker.Asker()
    background.ask("cafe", Question.POLL, 7)
    assert list(background.take()) == [(7, b"[]")]
    lookup = Lookup("no.such.host.invalid")
    assert lookup.wait(0)
    with pytest.raises(OSError, match="can't start new thread"):
        lookup.addresses(1)
    with pytest.raises(OSError, match="can't start new thread"):
        answering.answer_for("cafe", 0, ["here"], 0, -1, {})
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_each_kind_of_error_is_said_once() -> None:
    said: list[str] = []
    turn = threads.Lasting("the test", said.append)
    for error in (*ERRORS, *ERRORS):
        with turn:
            raise error
    assert len(said) == len(ERRORS)
    assert said[0] == "the test goes on after OSError: [Errno 24] Too many open files"
    with pytest.raises(SystemExit), turn:
        raise SystemExit
