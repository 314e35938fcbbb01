"""The data about a job that `sirtaki top` shows in every form."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sirtaki.hang.analysis import analyse
from sirtaki.hang.answers import Job, compare, exposed_share, job_of, numbered_worlds
from sirtaki.hang.report import doing, spans
from sirtaki.questions.asking import ask_launcher
from sirtaki.questions.collect import collect
from sirtaki.questions.messages import Question, RankAnswer
from sirtaki.rendezvous.words import aligned

# Shares of the time, as in `sirtaki trace report`.
SHARES = ("COMPUTE", "EXPOSED", "COMM", "WAIT")
HEADINGS = ("RANK", "STEP", *SHARES, "CPU", "BYTES/S", "MEMORY", "DOES")
_RATES = ("step", "operations", "bytes", "communicating", "waiting")
_ADDED = ("operations", "bytes", "exposed", "calls", "completed")
_COVERED = ("communicating", "waiting")
_FIRST_SECONDS = 0.5


class Looks:
    """Samples a job, and compares each sample with the previous one.

    The ranks are asked at most once per `interval`, however many callers there are.

    Args:
        job: Its name.
        interval: Seconds between two samples.
        note: Called with each sample: the ranks, and the answers of which they were made.
    """

    def __init__(
        self,
        job: str,
        interval: float,
        note: Callable[[Job, Sequence[RankAnswer]], object] = lambda _found, _answers: None,
    ) -> None:
        self.job = job
        self.interval = interval
        self._note = note
        self._lock = threading.Lock()
        self._before: Job | None = None
        self._states: Mapping[int, Mapping[str, Any]] = {}
        self._at = 0.0
        self._seen: dict[str, Any] | None = None

    def look(self) -> dict[str, Any] | None:
        """Return the result of `view`, at most an interval old; None if no rank is left."""
        with self._lock:
            if self._before is None:
                self._look()
                time.sleep(min(self.interval, _FIRST_SECONDS))
                self._look()
            elif time.monotonic() - self._at >= self.interval:
                self._look()
            return self._seen

    @property
    def answered(self) -> bool:
        """Whether the operations of some rank were known in the last sample."""
        return self._before is not None and any(one.known for one in self._before.ranks.values())

    def _look(self) -> None:
        # A launcher on this host knows the ranks of other hosts too.
        answers = ask_launcher(self.job, Question.RATES) or collect(self.job, Question.RATES)
        now = time.monotonic()
        found = job_of(answers)
        self._note(found, answers)
        if self._before is not None:
            compare(self._before, found, now - self._at)
        self._before, self._at = found, now
        # Killed ranks leave their records behind.
        left = any("work" in answer or answer["state"] for answer in answers)
        self._seen = view(self.job, found, answers, self._states) if left else None
        self._states = states_of(answers)


def states_of(answers: Sequence[RankAnswer]) -> dict[int, Mapping[str, Any]]:
    """Return by rank what the ranks reported about themselves and others of their host.

    What a rank does in several groups is added up.
    """
    hosts = max((len(answer["hosts"]) for answer in answers), default=0)
    found: dict[int, dict[str, Mapping[str, Any]]] = {}
    for world, of_job in numbered_worlds(answers, hosts):
        for state in world["ranks"]:
            if (rank := of_job(state["rank"])) is not None:
                found.setdefault(rank, {}).setdefault(world["key"], state)
    return {rank: _joined(list(groups.values())) for rank, groups in found.items()}


def _joined(groups: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Add up what a rank does in its groups; the step is that of the busiest one."""
    busiest: Mapping[str, Any] = max(groups, key=lambda each: each.get("operations") or 0.0)
    joined = dict(busiest)
    for name in joined.keys() & {*_ADDED, *_COVERED}:
        values = [value for each in groups if (value := each.get(name)) is not None]
        joined[name] = (sum if name in _ADDED else max)(values) if values else None
    return joined


def view(
    job: str,
    found: Job,
    answers: Sequence[RankAnswer],
    earlier: Mapping[int, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return what `--json` prints.

    Args:
        job: The job's name.
        found: The state of the ranks, compared with an earlier sample.
        answers: The same as returned by `collect`.
        earlier: The result of `states_of` for the earlier sample.

    Returns:
        ``job``, and ``ranks``: of each ``rank``, ``host``, ``pid``, ``step`` (seconds),
        ``operations`` and ``bytes`` (per second), ``exposed`` (blocked in our calls), ``computing``
        (not blocked), ``communicating`` (with an operation open), ``waiting``, ``cpu`` (shares of
        the time), ``memory`` (bytes), ``parts`` (how many of a step it computes), ``does``,
        ``waits_for`` (ranks), and ``slowest``. Unknown values, such as those of ranks on other
        hosts, are None.
    """
    rates = states_of(answers)
    parts = _parts_of(answers)
    memory = {answer["rank"]: answer["memory"] for answer in answers}
    missed = analyse(found).missed
    slowest = _slowest(rates)
    ranks = []
    for rank, one in sorted(found.ranks.items()):
        told = rates.get(rank, {})
        known = {name: told.get(name) for name in _RATES}
        exposed = None
        if rank in rates and rank in earlier:
            exposed = exposed_share(earlier[rank], rates[rank])
        ranks.append(
            {
                "rank": rank,
                "host": one.host,
                "pid": one.pid or None,
                **known,
                "exposed": exposed,
                "computing": None if exposed is None else 1.0 - exposed,
                "cpu": one.share,
                "memory": memory.get(rank),
                "parts": parts.get(rank),
                "does": doing(one),
                "waits_for": sorted({each for m in missed if rank in m.has for each in m.missing}),
                "slowest": rank == slowest,
            }
        )
    return {"job": job, "ranks": ranks}


def _parts_of(answers: Iterable[RankAnswer]) -> dict[int, int]:
    """Return by rank how many parts of a step it computes; empty where no parts are shared out."""
    return {
        rank: count
        for answer in answers
        for world in answer.get("work") or ()
        if world["whole"]
        for rank, count in enumerate(world.get("parts") or ())
    }


def _slowest(rates: Mapping[int, Mapping[str, Any]]) -> int | None:
    """Return the rank that waits least, if the others wait for a tenth of the time or more."""
    waiting = {
        rank: share for rank, one in rates.items() if (share := one.get("waiting")) is not None
    }
    if len(waiting) < 2 or max(waiting.values()) - min(waiting.values()) < 0.1:
        return None
    return min(waiting, key=waiting.__getitem__)


def table(seen: Mapping[str, Any]) -> list[str]:
    """Return the lines of the view."""
    rows = [headings(seen["ranks"]), *map(cells, seen["ranks"])]
    lines = aligned([row[:-1] for row in rows])
    return [f"{line}  {row[-1]}" for line, row in zip(lines, rows, strict=True)]


def headings(ranks: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the headings for the ranks of `view`; PARTS only where ranks share out parts."""
    shared = any(one["parts"] is not None for one in ranks)
    return (*HEADINGS[:-1], *(["PARTS"] if shared else []), HEADINGS[-1])


def cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells under `headings` for a rank of `view`."""
    step = one["step"]
    does = one["does"]
    if one["waits_for"] and ", waiting for " not in does:
        link = "for" if "waits in" in does else "waiting for"
        does += f", {link} rank {spans(one['waits_for'])}"
    shares = ("computing", "exposed", "communicating", "waiting", "cpu")
    return (
        f"{one['rank']}{'*' if one['slowest'] else ' '}",
        "-" if step is None else f"{step * 1e3:.1f} ms",
        *(_percent(one[name]) for name in shares),
        amount(one["bytes"]),
        amount(one["memory"]),
        *([] if one["parts"] is None else [str(one["parts"])]),
        does,
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def amount(count: float | None) -> str:
    """Return a number of bytes for people, "-" if it is unknown."""
    if count is None:
        return "-"
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
