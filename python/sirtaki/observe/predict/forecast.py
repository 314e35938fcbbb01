"""What a job will do on a number of hosts: its step's time, what bounds it, when it pays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from sirtaki.observe.predict.exchange import Setting, seconds_of, sent_bytes
from sirtaki.observe.predict.link import Link
from sirtaki.observe.predict.replay import Cores, Sent, replay
from sirtaki.observe.predict.steps import Steps, is_gradient
from sirtaki.observe.trace.model import Operation

# Seconds of a core for a byte that a rank sends, receives and adds: as docs/design/prediction.md
# has measured it.
MOVING_COST = 0.32e-9
# A step of which so much is lost is not bound by its computation.
_NOTABLE = 0.05
_MOST_BATCHES = 1024.0
_HALVINGS = 12


class Form(NamedTuple):
    """In what form gradients travel.

    share: bytes that are sent for one of float32. cost: seconds of a core for one of float32, in
    the thread that moves data. before: in the thread that computes, which adds what was lost.
    """

    share: float
    cost: float
    before: float = 0.0


FORMS = {
    "float32": Form(1.0, 0.0),
    "bf16": Form(0.5, 0.15e-9),
    "int8": Form(64 / 60 / 4, 0.17e-9, 0.2e-9),
    "int4": Form(32 / 60 / 4, 0.17e-9, 0.2e-9),
}
DILOCO = "DiLoCo"


class Forecast(NamedTuple):
    """A job on a number of hosts.

    exchange: how gradients travel, or DiLoCo. step: seconds. speed_up: in samples a second, of one
    host. bound: "compute", "bandwidth", "latency" or "cores". pays_from: the least batch, as a
    multiple of the trace's, with which these hosts train more samples a second than one; None:
    there is none.
    """

    hosts: int
    exchange: str
    step: float
    speed_up: float
    bound: str
    pays_from: float | None


class Question(NamedTuple):
    """What is asked.

    ranks: of a host. cores: that a rank may use. sync_every: steps from one exchange of DiLoCo's to
    the next.
    """

    steps: Steps
    link: Link
    ranks: int
    cores: float
    sync_every: int


def forecasts(asked: Question, hosts: Sequence[int]) -> Iterator[Forecast]:
    """Return the forecast of each exchange at each number of hosts."""
    for number in hosts:
        for exchange in (*FORMS, DILOCO):
            yield _forecast(asked, number, exchange)


def _forecast(asked: Question, hosts: int, exchange: str) -> Forecast:
    step = step_seconds(asked, hosts, exchange)

    def gain(batch: float) -> float:
        alone = step_seconds(asked, 1, exchange, batch)
        return hosts * alone / step_seconds(asked, hosts, exchange, batch)

    pays = _least(lambda batch: gain(batch) >= 1.0)
    return Forecast(hosts, exchange, step, gain(1.0), _bound(asked, hosts, exchange, step), pays)


def step_seconds(asked: Question, hosts: int, exchange: str, batch: float = 1.0) -> float:
    """Return the seconds of a step; batch: as a multiple of the trace's."""
    here = asked.steps
    if hosts == 1:
        meets = here.alone and asked.ranks > 1
        return here.computing * batch + (here.step - here.computing if meets else 0.0)
    cores = Cores(asked.cores, here.busy)
    setting = Setting(hosts, asked.ranks, asked.link, MOVING_COST, cores.waking)
    if exchange != DILOCO:
        form = FORMS[exchange]
        return replay(here.events, setting, cores, lambda one: _sent(one, form, hosts), batch)
    # Ranks that do not meet compute at different times.
    apart = max(1.0, here.busy / asked.cores)
    alone = replay(
        here.events,
        setting,
        Cores(math.inf, here.busy),
        lambda one: None if is_gradient(one) else _sent(one, FORMS["float32"], hosts),
        batch * apart,
    )
    slowed = setting._replace(cost=MOVING_COST / cores.speed(False))
    outer = seconds_of("allreduce", here.gradients, slowed)
    agreed = asked.link.round_trip + 3 * cores.waking
    return alone + (outer + agreed) / asked.sync_every


def _sent(operation: Operation, form: Form, hosts: int) -> Sent:
    if not is_gradient(operation):
        return Sent(operation.kind, operation.bytes, MOVING_COST)
    size = operation.bytes * form.share
    # Among more hosts more bytes are sent, but a number is encoded and decoded about as often.
    coding = form.cost / sent_bytes("allreduce", form.share, hosts, 1)
    return Sent("allreduce", size, MOVING_COST + coding, operation.bytes * form.before)


def _bound(asked: Question, hosts: int, exchange: str, step: float) -> str:
    """Return what makes the step longer than its computation: that without which it is shortest."""
    if step <= asked.steps.computing / (1 - _NOTABLE):
        return "compute"
    link = asked.link
    without = {
        "bandwidth": asked._replace(link=link._replace(rate=math.inf)),
        "latency": asked._replace(link=link._replace(round_trip=0.0)),
        "cores": asked._replace(cores=math.inf),
    }
    return min(without, key=lambda name: step_seconds(without[name], hosts, exchange))


def _least(pays: Callable[[float], bool]) -> float | None:
    """Return the least batch that pays; a larger one does if a smaller one does."""
    least, most = 1 / _MOST_BATCHES, _MOST_BATCHES
    if not pays(most):
        return None
    for _ in range(_HALVINGS):
        middle = math.sqrt(least * most)
        least, most = (least, middle) if pays(middle) else (middle, most)
    return most
