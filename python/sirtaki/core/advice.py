"""Says once, on rank 0, that steps of a job on several hosts are long because of the network.

A thread looks at counters that exist anyway until it has seen enough steps, and ends then.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sirtaki import _core
from sirtaki.rendezvous.threads import Lasting, start_thread

if TYPE_CHECKING:
    from sirtaki.core.world.world import World

_LOOK_SECONDS = 0.5
_END_SECONDS = 1.0
_WARM_UP_STEPS = 5
_STEPS = 50
# Times of more would take long to read.
_OPERATIONS = 512
# Less is not worth a line.
_LEAST_SHARE = 0.2
# Up to these shares of a step, half or a quarter of the bytes help enough.
_MOST_FOR_BF16, _MOST_FOR_INT8 = 0.35, 0.6
# Of the bytes that float32 sums send.
_SHORT, _SHORTER = 0.75, 0.4
_DEVICES = Path("/proc/self/net/dev")
_SENT_COLUMN = 8
_SPEED = "/sys/class/net/{}/speed"


class Look(NamedTuple):
    """Counters of this rank, and of its host's network, so far.

    at: seconds of a clock. exposed: seconds in which threads were blocked in calls, None if its
    framework waits in its own code. summed: bytes. sent: bytes by interface.
    """

    at: float
    steps: int
    exposed: float | None
    summed: int
    sent: dict[str, int]


class _Process:
    """Whether this process has advised its user, perhaps in an earlier world."""

    said = False


def advise(world: World) -> None:
    """Watch a world of several hosts, of which this is rank 0, unless no thread can be started."""
    if _Process.said:
        return
    hosts = max(world.links.joined.host_of) + 1
    with contextlib.suppress(OSError):
        world.at_close.append(Advice(world.engine, hosts).end)


class Advice:
    """Looks at a world of several hosts until it has advised its user, or need not.

    Args:
        engine: Of rank 0 of the world.
        hosts: How many the world has.

    Raises:
        OSError: No thread can be started.
    """

    def __init__(self, engine: _core.Engine, hosts: int) -> None:
        self._engine = engine
        self._hosts = hosts
        self._end = threading.Event()
        self._lasting = Lasting("the look at the network")
        self._first: Look | None = None
        self._thread = start_thread(self._watch, "sirtaki advice")

    def end(self) -> None:
        """Stop looking."""
        self._end.set()
        # It refers to the engine, which should not end in a thread that outlives the program.
        self._thread.join(_END_SECONDS)

    def _watch(self) -> None:
        while not self._end.wait(_LOOK_SECONDS):
            with self._lasting:
                self._look()

    def _look(self) -> None:
        now = _look(self._engine)
        if now.steps < _WARM_UP_STEPS:
            return
        if self._first is None:
            self._first = now
        if now.steps - self._first.steps < _STEPS:
            return
        self._end.set()
        if exposed_share(self._first, now) < _LEAST_SHARE:
            return
        moving = _moving(self._engine, now.at - self._first.at)
        if text := advice(self._first, now, self._hosts, moving):
            _Process.said = True
            with contextlib.suppress(OSError, ValueError):
                print(f"sirtaki: {text}", file=sys.stderr, flush=True)


def _look(engine: _core.Engine) -> Look:
    totals = engine.totals(0)
    assert totals is not None
    steps, summed = sum(totals["steps"].values()), totals["bytes"].get("allreduce", 0)
    return Look(time.monotonic(), steps, totals["seconds"].get("exposed"), summed, _sent())


def _sent() -> dict[str, int]:
    """Return how many bytes this host has sent, by interface."""
    found = {}
    for line in _DEVICES.read_text().splitlines()[2:]:
        name, _, counters = line.partition(":")
        found[name.strip()] = int(counters.split()[_SENT_COLUMN])
    found.pop("lo", None)
    return found


def _moving(engine: _core.Engine, seconds: float) -> float:
    """Return the share of the latest seconds in which data of operations moved."""
    from sirtaki.core.world.snapshot import covered, states  # not at the start of a job

    own = states(engine, _OPERATIONS, 0.0)[0]
    begun = [one for one in own.operations if one.begun is not None]
    # They may have begun later.
    seconds = min(seconds, max((one.begun or 0.0 for one in begun), default=seconds))
    times = [(min(one.begun or 0.0, seconds), one.ended or 0.0) for one in begun]
    return covered([each for each in times if each[0] > each[1]]) / max(seconds, 1e-6)


def exposed_share(first: Look, now: Look) -> float:
    """Return the share of the time between two looks in which this rank waited, 0 if unknown."""
    if first.exposed is None or now.exposed is None:
        return 0.0
    return (now.exposed - first.exposed) / (now.at - first.at)


def advice(first: Look, now: Look, hosts: int, moving: float) -> str:
    """Return what to tell the user, "" if the network costs little or nobody knows.

    Args:
        first, now: Two looks.
        hosts: Of the job.
        moving: The share of the time between them in which data moved.
    """
    seconds, steps = now.at - first.at, now.steps - first.steps
    # Who is blocked while nothing moves waits for another rank, not for the network.
    share = min(exposed_share(first, now), moving)
    if share < _LEAST_SHARE:
        return ""
    step = seconds / steps
    text = f"in {steps} steps rank 0 waited for the network for {share:.0%} of the time: "
    text += f"{share * step * 1e3:.0f} of {step * 1e3:.0f} ms"
    if hosts * (1 - share) < 1:
        text += f". Without the other hosts, each of the {hosts} would train faster than all do now"
    sent = {name: count - first.sent.get(name, 0) for name, count in now.sent.items()}
    name = max(sent, key=sent.__getitem__, default="")
    whole = 2 * (hosts - 1) / hosts * (now.summed - first.summed)
    if name:
        reached = sent[name] / (moving * seconds)
        text += f". Meanwhile {name} sent {reached / 1e6:.1f} MB/s{_limit(name)}"
    way = _way(share, sent[name] / whole if name and whole > 0 else 1.0)
    return (
        f'{text}. Try {way}, as the page "Train over a slow network" says '
        "(SIRTAKI_ADVICE=0: no such advice)"
    )


def _limit(interface: str) -> str:
    """Return how much an interface can send, as far as its driver knows."""
    with contextlib.suppress(OSError, ValueError):
        mbits = int(Path(_SPEED.format(interface)).read_text())
        if mbits > 0:
            return f" of {mbits / 8:.0f}"
    return " (`sirtaki doctor --hosts` measures what it can)"


def _way(share: float, sent: float) -> str:
    """Return what helps. sent: the bytes on the wire, of those of sums in float32."""
    if sent > _SHORT and share <= _MOST_FOR_BF16:
        return "compression=hvd.Compression.bf16"
    if sent > _SHORTER and share <= _MOST_FOR_INT8:
        return "compression=hvd.Compression.int8"
    return "hvd.DiLoCo"
