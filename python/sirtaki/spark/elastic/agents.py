"""The driver's side of agents in Spark's tasks, and the connections to them."""

from __future__ import annotations

import collections
import contextlib
import functools
import json
import socket
import threading
import time
from collections.abc import Mapping, Sequence

from sirtaki.launch.elastic.starts import PlannedPlace, own_variables
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.hosts.torch_variables import default_environment
from sirtaki.launch.processes.agent_server import secure
from sirtaki.launch.processes.channels import Channel
from sirtaki.launch.processes.events import HostJob, HostProcesses, Process
from sirtaki.launch.processes.remote import RemoteProcesses
from sirtaki.rendezvous.network import tcp_socket
from sirtaki.rendezvous.network.serving import Peer, Server
from sirtaki.rendezvous.network.tls_relay import Relay
from sirtaki.rendezvous.stores.tcp_store import TLS_SCHEME, listener_claim
from sirtaki.rendezvous.trust import auth

_GRACE_SECONDS = 5.0
_FLUSH_LOOK_SECONDS = 0.002
# A task starts its next agent within this time.
_BETWEEN_SECONDS = 10.0


class Agents(Server):
    """Accepts connections of agents, each of which claims the number of its task.

    A task connects again after its ranks have ended, and after Spark has restarted it.

    addresses: numeric ones, to listen on. secret: the job's. Raises OSError if it cannot listen.
    """

    def __init__(self, addresses: Sequence[str], secret: bytes) -> None:
        guard = functools.partial(
            auth.Listener, secret, auth.AGENT, auth.own_identity(), listener_claim(tls=True)
        )
        listeners, port = tcp_socket.listen_together(addresses)
        super().__init__(listeners, "the driver", guard, tls=True)
        self.address = TLS_SCHEME + tcp_socket.format_endpoints(addresses, port)
        self._lock = threading.Lock()
        self._told: dict[int, Mapping[str, str]] = {}
        self._waiting: dict[int, collections.deque[AgentChannel]] = {}
        self._taken: dict[int, AgentChannel] = {}
        self._seen: dict[int, float] = {}

    def note(self, number: int, told: bytes) -> None:
        """Record the data that a task sends at its start."""
        with self._lock:
            self._told[number] = json.loads(told)

    def handle(self, peer: Peer) -> bool:
        """See `Server.handle`: an agent has authenticated itself."""
        number = int.from_bytes(peer.claim, "big")
        ours, theirs = socket.socketpair()
        channel = AgentChannel(ours, secure(self.release(peer), (theirs, ours)))
        with self._lock:
            # If a task has two agents, the older one is lost.
            self._waiting.setdefault(number, collections.deque(maxlen=1)).append(channel)
            self._seen[number] = time.monotonic()
        return True

    @property
    def called(self) -> int:
        """Return the number of tasks that currently have agents."""
        return len(self.found())

    def found(self) -> dict[str, int]:
        """Return the available "hosts", each a task with a slot for one rank."""
        now = time.monotonic()
        with self._lock:
            for number in self._seen:
                taken = self._taken.get(number)
                if self._waiting.get(number) or (taken is not None and taken.is_open):
                    self._seen[number] = now
            return {
                self._task_name(number): 1
                for number, seen in self._seen.items()
                if now - seen < _BETWEEN_SECONDS and number in self._told
            }

    def take(self, name: str) -> tuple[AgentChannel, Mapping[str, str]]:
        """Return the connection to a task's agent and the task's data. Raises LaunchError."""
        with self._lock:
            number = next((n for n in self._told if self._task_name(n) == name), None)
            if number is None or not self._waiting.get(number):
                raise LaunchError(f"{name}: no agent of this Spark task has called")
            channel = self._taken[number] = self._waiting[number].pop()
            return channel, self._told[number]

    def _task_name(self, number: int) -> str:
        return f"task-{number}.{self._told[number]['host']}"


class AgentChannel(Channel):
    """The connection made by an agent."""

    def __init__(self, ours: socket.socket, relay: Relay) -> None:
        self._socket = ours
        self._relay = relay
        self.is_open = True

    def open(self, host: str) -> socket.socket:
        """See `Channel`."""
        return self._socket

    def flush(self, sent: int, seconds: float) -> None:
        """See `Channel`."""
        give_up_at = time.monotonic() + seconds
        while self._relay.passed < sent and time.monotonic() < give_up_at:
            time.sleep(_FLUSH_LOOK_SECONDS)

    def explain(self, code: int | None, lines: Sequence[str]) -> str:
        """See `Channel`."""
        return "the connection to the agent of this Spark task has ended"

    def cut(self) -> None:
        """See `Channel`."""
        self.is_open = False
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self, patiently: bool) -> None:
        """See `Channel`."""
        self.is_open = False


class SparkHosts:
    """Starts the ranks of an elastic job in Spark's tasks; see `starts.HostPool`.

    agents: of the tasks. store, secret: the job's. executable: the Python of the ranks, "" for that
    of Spark's workers. silent_seconds: the time without a sign of life before a rank is lost.
    """

    def __init__(
        self, agents: Agents, store: str, secret: bytes, executable: str, silent_seconds: float
    ) -> None:
        self._agents = agents
        self._store = store
        self._secret = secret
        self._executable = executable
        self._silent_seconds = silent_seconds

    def reach(self, host: str, slots: int) -> HostProcesses:
        """See `HostPool`."""
        channel, told = self._agents.take(host)
        job = HostJob(
            command=[self._executable or told["python"], "-m", "sirtaki.launch.task"],
            environment={"PYTHONUNBUFFERED": "1"},
            folder=told["folder"],
            places=slots,
            secret=self._secret,
            grace=_GRACE_SECONDS,
            # Other tasks may share the machine.
            bind_to="none",
            silent_seconds=self._silent_seconds,
        )
        return RemoteProcesses(host, [], channel, job)

    def process(
        self, process_id: int, host: str, place: int, planned: PlannedPlace | None
    ) -> Process:
        """See `HostPool`."""
        own = own_variables(planned, host, process_id, self._store)
        return Process(process_id, place, own, default_environment(host))
