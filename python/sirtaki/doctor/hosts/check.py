"""`sirtaki doctor --hosts`: checks every host by itself, then each pair of them."""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from sirtaki.doctor.finding import ERROR, Finding, plain
from sirtaki.doctor.hosts import compare
from sirtaki.doctor.hosts.asked import AskedHost, Unreachable, fix_of
from sirtaki.doctor.hosts.link import STALL_SECONDS, TOKEN_BYTES
from sirtaki.launch.hosts.addresses import own_addresses
from sirtaki.launch.starters.ssh import Ssh

# The helper imports frameworks, perhaps from a slow file system.
_EXAMINE_SECONDS = 300.0
_PAIR_SECONDS = 60.0
_LOOKS = 3

Pair = tuple[int, int]


@dataclass(frozen=True)
class HostsPlan:
    """The checks to run.

    hosts: names. interfaces: of the network to use, empty for those on the routes. seconds: how
    long to send between two hosts, in each direction. quick: import no frameworks.
    """

    hosts: Sequence[str]
    ssh: Ssh
    interfaces: Sequence[str] = ()
    start_seconds: float = 30.0
    seconds: float = 0.25
    quick: bool = False


def check(plan: HostsPlan) -> dict[str, Any]:
    """Check all hosts that can be reached, and name the others.

    Returns:
        ``hosts``: for each that answers, the doctor's report, ``versions``, ``addresses`` (those
        that a job would use), ``interfaces``, ``routes``, ``clock``; ``pairs``: the measurements
        between two hosts; ``findings``, of all.

    Raises:
        LaunchError: This machine has no address, or none of the interfaces that were named.
    """
    findings: list[Finding] = []
    with _all(plan, findings) as asked, ThreadPoolExecutor(len(asked) or 1) as pool:
        remote = [one.name for one in asked if not one.local]
        towards = own_addresses(remote, plan.interfaces) if remote else ["127.0.0.1"]
        told = list(pool.map(lambda one: _examine(one, plan, towards), asked))
        hosts = {}
        for one, answer in zip(asked, told, strict=True):
            if isinstance(answer, Finding):
                findings.append(answer)
            else:
                hosts[one.name] = answer
        able = [one for one in asked if one.name in hosts]

        def look(together: Sequence[Pair]) -> Iterable[dict[str, Any]]:
            both = [(able[first], able[second]) for first, second in together]
            return pool.map(lambda two: _pair(two[0], two[1], hosts, plan.seconds), both)

        measured = look_at_pairs(len(able), look)
    return _report(hosts, measured, findings)


@contextlib.contextmanager
def _all(plan: HostsPlan, findings: list[Finding]) -> Iterator[list[AskedHost]]:
    """Start the helpers of all hosts at once; yield those that answer."""
    with contextlib.ExitStack() as stack:
        asked = []
        for name in plan.hosts:
            try:
                asked.append(AskedHost(name, plan.ssh, plan.start_seconds))
            except Unreachable as error:
                findings.append(_unreachable(name, str(error)))
            else:
                stack.callback(asked[-1].close)
        with ThreadPoolExecutor(len(asked) or 1) as pool:
            why = list(pool.map(_greet, asked))
        findings += [_unreachable(one.name, w) for one, w in zip(asked, why, strict=True) if w]
        yield [one for one, w in zip(asked, why, strict=True) if not w]


def _greet(one: AskedHost) -> str:
    try:
        one.greet()
    except Unreachable as error:
        return str(error)
    return ""


def _unreachable(host: str, why: str) -> Finding:
    return Finding("reach", ERROR, f"host {host}: {why}", fix_of(host, why), host)


def _examine(one: AskedHost, plan: HostsPlan, towards: Sequence[str]) -> dict[str, Any] | Finding:
    request = {"towards": towards, "interfaces": list(plan.interfaces), "quick": plan.quick}
    try:
        ahead, off = one.clock()
        answer = one.ask(_EXAMINE_SECONDS, do="examine", **request)
    except Unreachable as error:
        return _unreachable(one.name, str(error))
    except ValueError as error:
        fix = "name an interface that it has with --network-interfaces"
        return Finding("examine", ERROR, f"host {one.name}: {error}", fix, one.name)
    return {**answer, "clock": {"ahead": ahead, "off": off}}


def look_at_pairs(
    count: int, look: Callable[[Sequence[Pair]], Iterable[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Measure all pairs of `count` hosts; look again at slow ones, for which the best look counts.

    A slow link stays slow; a host that had other work for a moment does not.
    """
    found: dict[Pair, dict[str, Any]] = {}
    due = {pair for together in rounds(count) for pair in together}
    for _ in range(_LOOKS):
        for together in rounds(count):
            now = [pair for pair in together if pair in due]
            for pair, seen in zip(now, look(now), strict=True):
                found[pair] = _better(found[pair], seen) if pair in found else seen
        due = set(itertools.compress(found, compare.slow([*found.values()])))
    return [*found.values()]


def _better(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return the second look at a pair, with the better figures of both if both have them."""
    if first["stalled"] or second["error"] or second["stalled"]:
        return second
    best = {"sends": max, "receives": max, "latency": min}
    return {**second, **{name: of(first[name], second[name]) for name, of in best.items()}}


def rounds(count: int) -> list[list[Pair]]:
    """Return all pairs of `count`, in rounds whose pairs are disjoint and can run at the same time.

    This is the circle method of tournaments: one stays, the others rotate by one place.
    """
    places = list(range(count + count % 2))
    found = []
    for _ in range(len(places) - 1):
        half = len(places) // 2
        pairs = zip(places[:half], reversed(places[half:]), strict=True)
        ordered = [(min(pair), max(pair)) for pair in pairs]
        found.append([pair for pair in ordered if pair[1] < count])
        places = [places[0], places[-1], *places[1:-1]]
    return found


def _pair(
    one: AskedHost, other: AskedHost, hosts: Mapping[str, Any], seconds: float
) -> dict[str, Any]:
    """Measure the connection from one host to the other, and try that in reverse."""
    found = {"from": one.name, "to": other.name, "error": "", "back": "", "refused": []}
    try:
        found |= _way(one, other, hosts, seconds)
    except (Unreachable, ValueError) as error:
        return {**found, "error": str(error)}
    try:
        _way(other, one, hosts, 0.0)
    except (Unreachable, ValueError) as error:
        found["back"] = str(error)
    return found


def _way(
    one: AskedHost, other: AskedHost, hosts: Mapping[str, Any], seconds: float
) -> dict[str, Any]:
    token = secrets.token_bytes(TOKEN_BYTES).hex()
    limit = _PAIR_SECONDS + STALL_SECONDS
    addresses = hosts[other.name]["addresses"]
    there = other.ask(limit, do="listen", addresses=addresses, token=token, seconds=_PAIR_SECONDS)
    return one.ask(limit, do="measure", endpoints=there["endpoints"], token=token, seconds=seconds)


def _report(
    hosts: Mapping[str, Any], measured: list[dict[str, Any]], findings: list[Finding]
) -> dict[str, Any]:
    own = [
        Finding(**finding).on(name)
        for name, told in hosts.items()
        for finding in told.pop("findings")
    ]
    skews = {name: (told["clock"]["ahead"], told["clock"]["off"]) for name, told in hosts.items()}
    mtus = {
        address: link["mtu"]
        for told in hosts.values()
        for link in told["interfaces"]
        for address in link["addresses"]
    }
    between = [
        *compare.versions({name: told["versions"] for name, told in hosts.items()}),
        *compare.clocks(skews),
        *compare.pairs(measured, mtus),
    ]
    every = [*findings, *own, *between]
    return {"hosts": dict(hosts), "pairs": measured, "findings": plain(every)}
