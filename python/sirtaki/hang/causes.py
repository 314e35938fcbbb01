"""Likely causes of a hang: one sentence for each known pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sirtaki.hang.analysis import Diagnosis
from sirtaki.hang.answers import AskedOperation, Frame, Rank

_LOADERS = ("/torch/utils/data/", "/tensorflow/python/data/", "/sirtaki/data/", "/grain/")
_LOADER_WORDS = ("load", "dataset", "next(", "batch")
_OTHERS = {
    "child": "another process",
    "file lock": "the lock of a file",
    "read": "data of a file, a pipe or the network",
}
_LOCKS = ("threading.py", "queue.py", "multiprocessing/", "concurrent/futures/", "asyncio/")


def cause_of(diagnosis: Diagnosis) -> str:
    """Return a sentence, "" if no pattern matches."""
    for guess in (
        _of_a_process,
        _of_a_thread,
        _of_an_accelerator,
        _of_the_network,
        _of_names,
        _of_code,
    ):
        if found := guess(diagnosis):
            return found
    return ""


def _each(diagnosis: Diagnosis, holds: Callable[[Rank], object]) -> Iterator[Rank]:
    return (one for one in diagnosis.holding if holds(one))


def _of_a_process(diagnosis: Diagnosis) -> str:
    """Return a cause that concerns a whole process."""
    for one in _each(diagnosis, lambda one: one.stopped):
        return f"rank {one.rank} is stopped by a signal: kill -CONT {one.pid} resumes it"
    for one in _each(diagnosis, lambda one: one.traced or one.debugger):
        with_what = f" ({one.debugger})" if one.debugger else ""
        return f"rank {one.rank} is in a debugger{with_what}: the job goes on when it does"
    for one in _each(diagnosis, lambda one: one.gone):
        return (
            f"rank {one.rank} has left: it had fewer batches, its script has ended, or it has "
            "called shutdown(); let it join() where there is join()"
        )
    for one in _each(diagnosis, lambda one: one.silent):
        return f"rank {one.rank} {one.silent}"
    for one in _each(diagnosis, lambda one: one.pid and not one.state):
        return f"the process of rank {one.rank} is dead"
    return ""


def _of_a_thread(diagnosis: Diagnosis) -> str:
    """Return a cause in a rank's main thread, which is in a call that may last."""
    for one in _each(diagnosis, lambda one: one.call == "input" or _calls(one, "input(")):
        return (
            f"rank {one.rank} waits for a line on standard input: ask for it on one rank and "
            "broadcast it, before the others wait"
        )
    for one in _each(diagnosis, lambda one: one.busy):
        return (
            f"rank {one.rank} is in C code that holds Python's lock (GIL), so that none of its "
            "other threads runs"
        )
    for one in _each(diagnosis, lambda one: one.handles):
        return (
            f"rank {one.rank} handles an exception that the others did not get "
            f"({one.handles}); let it end the rank, or handle it on all"
        )
    return ""


def _of_an_accelerator(diagnosis: Diagnosis) -> str:
    """Return a cause if all ranks have submitted an operation to an accelerator."""
    for one in diagnosis.missed:
        opened = [each for rank in one.has for each in diagnosis.job.ranks[rank].open]
        mine = [each for each in opened if each.asked == one.asked]
        if one.given:
            return (
                f"the accelerator of rank {', '.join(map(str, one.missing))} did nothing in "
                f"{diagnosis.job.label(one.asked)}, or has not come to it"
            )
        if not one.missing and mine and all(each.stage == "handed over" for each in mine):
            return (
                f"the accelerators have {diagnosis.job.label(one.asked)} and do not complete it: "
                "something before it on their streams waits, or the links between them fail"
            )
    return ""


def _of_the_network(diagnosis: Diagnosis) -> str:
    """Return a cause if a rank waits for a running rank of another host in one operation."""
    ranks = diagnosis.job.ranks
    for missed in diagnosis.missed:
        for rank in missed.has:
            for each in ranks[rank].open:
                peer = ranks.get(-1 if each.peer is None else each.peer)
                if each.asked != missed.asked or each.stage != "under way" or peer is None:
                    continue
                sends = [o for o in peer.open if o.asked == each.asked and o.stage == "under way"]
                if sends and peer.state and not peer.busy and peer.host != ranks[rank].host:
                    return (
                        f"the data of {diagnosis.job.label(each.asked)} come slowly or not at all "
                        f"from {peer.host} to {ranks[rank].host}: look at the network between them"
                    )
    return ""


def _of_names(diagnosis: Diagnosis) -> str:
    """Return a cause if ranks wait for one another in different operations."""
    asked = list(dict.fromkeys(found for one in diagnosis.holding if (found := _blocking(one))))
    others = [one.asked for one in diagnosis.missed if one.asked not in asked]
    names = [*asked, *others][:2]
    if not asked or len(names) < 2:
        return ""
    first, second = (_asking(diagnosis, name) for name in names)
    shown = f"{diagnosis.job.label(names[0])} and {diagnosis.job.label(names[1])}"
    # The first collective of the function of elastic.run in a new world.
    enters = [name.name.startswith("elastic.versions") for name in names]
    if enters[0] != enters[1]:
        one = second if enters[0] else first
        where = f" at {_at(_own(one))}" if _own(one) else ""
        called = diagnosis.job.label(names[1] if enters[0] else names[0])
        return (
            f"rank {one.rank} calls {called}{where} while others "
            "exchange the elastic state: the script calls it before the function of elastic.run, "
            "and a process that joins later is alone there; move it into the function"
        )
    places = [frame for frame in (_own(first), _own(second)) if frame is not None]
    if len(places) == 2 and places[0][:2] == places[1][:2] and names[0].kind == names[1].kind:
        return f"{_at(places[0])} gives other tensor names on other ranks: {shown}"
    known = [_known(first, second, str(name)) for name in names]
    if all(known):
        return (
            f"ranks call {shown} in a different order, or one has left one out, as after an "
            "exception that was caught"
        )
    if any(known):
        early = first if known[1] else second
        return (
            f"rank {early.rank} has come to {names[0] if known[1] else names[1]}, which no rank "
            "had come to before, while others go on: uneven data, for which there is join() "
            "where the framework has it; or an exception that was caught has ended its loop"
        )
    told = f": {_at(places[0])}, and {_at(places[1])}" if len(places) == 2 else ""
    return f"control flow depends on the rank: they wait in {shown}{told}"


def _of_code(diagnosis: Diagnosis) -> str:
    """Return a cause if a rank is in its own code instead of an operation."""
    for one in _each(diagnosis, lambda one: not one.waits and one.stack):
        own, inner = _own(one), one.stack[0]
        where = "" if own is None else f" at {_at(own)}"
        if any(part in frame.file for part in _LOADERS for frame in one.stack) or (
            own is not None and _any_word(_LOADER_WORDS, own)
        ):
            return f"rank {one.rank} waits for its data{where}: a slow loader"
        if not one.moved and (one.call == "lock" or any(part in inner.file for part in _LOCKS)):
            return f"rank {one.rank} waits for a lock or another thread of its own{where}"
        if not one.moved and one.call in _OTHERS:
            return f"rank {one.rank} waits for {_OTHERS[one.call]}{where}"
    computing = [one for one in diagnosis.holding if one.moved and not one.waits]
    if computing:
        one = computing[0]
        own = _own(one)
        return f"rank {one.rank} takes longer than the others" + (f" at {_at(own)}" if own else "")
    for one in _each(diagnosis, lambda one: not one.waits and one.ended):
        if _own(one) is not None:
            return f"rank {one.rank} does nothing at {_at(_own(one))}; the others wait for it"
    return ""


def _any_word(words: Sequence[str], frame: Frame) -> bool:
    text = f"{frame.function} {frame.text}".lower()
    return any(word in text for word in words)


def _calls(one: Rank, what: str) -> bool:
    return bool(one.stack) and one.stack[0].own and what in one.stack[0].text


def _blocking(one: Rank) -> AskedOperation | None:
    return next((each.asked for each in one.open if each.stage == "submitted" or each.waits), None)


def _asking(diagnosis: Diagnosis, asked: AskedOperation) -> Rank:
    ranks = diagnosis.job.ranks.values()
    return next(one for one in ranks if any(each.asked == asked for each in one.open))


def _known(first: Rank, second: Rank, name: str) -> bool:
    """Return whether an operation has occurred before; for an unnamed one, any of its kind."""
    before = {_unnumbered(each) for each in (*first.ended, *second.ended)}
    return _unnumbered(name) in before


def _unnumbered(name: str) -> str:
    return name.rstrip("'0123456789") if "'noname." in name else name


def _own(one: Rank) -> Frame | None:
    return next(iter(one.own), None)


def _at(frame: Frame | None) -> str:
    return "" if frame is None else f"{frame.file}:{frame.line}"
