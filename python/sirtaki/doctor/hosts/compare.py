"""Findings about differences between hosts and about the connection of each pair."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from sirtaki.doctor.finding import ERROR, OK, WARNING, Finding

_SKEW_SECONDS = 0.5
_SLOW_SHARE = 0.5
_FEW_PAIRS = 3
_OPEN = (
    "let the hosts reach each other by TCP at every port (firewall, security group), or name "
    "another network with --network-interfaces"
)


def versions(told: Mapping[str, Mapping[str, str]]) -> list[Finding]:
    """Compare versions, by host and package; "" means that a package is not installed."""
    packages = sorted({package for own in told.values() for package in own})
    found = []
    for package in packages:
        hosts: dict[str, list[str]] = {}
        for host, own in told.items():
            hosts.setdefault(own.get(package, ""), []).append(host)
        if len(hosts) > 1:
            found.append(_differs(package, hosts))
    same = [package for package in packages if all(own.get(package) for own in told.values())]
    if not found and len(told) > 1:
        what = f"all hosts have the same {', '.join(same)}"
        found.append(Finding("versions", OK, what, host=",".join(told)))
    return found


def _differs(package: str, hosts: Mapping[str, Sequence[str]]) -> Finding:
    usual = max(hosts, key=lambda version: len(hosts[version]))
    words = [
        f"{version or 'not installed'} on {', '.join(names)}" for version, names in hosts.items()
    ]
    odd = [name for version, names in hosts.items() if version != usual for name in names]
    install = "" if package == "python" or not usual else f": pip install {package}=={usual}"
    return Finding(
        f"version of {package}",
        WARNING,
        f"{package} is {'; '.join(words)}",
        f"install the same version on all hosts{install}",
        ",".join(odd),
    )


def clocks(skews: Mapping[str, tuple[float, float]]) -> list[Finding]:
    """Judge clocks: by host, the seconds ahead of ours and the possible error."""
    found = []
    for host, (ahead, off) in skews.items():
        what = f"{abs(ahead) * 1e3:.1f} ms {'ahead of' if ahead > 0 else 'behind'} this machine's"
        what += f", ± {off * 1e3:.1f} ms"
        if abs(ahead) - off <= _SKEW_SECONDS:
            found.append(Finding("clock", OK, what, host=host))
        else:
            why = "; times in logs and of files mislead, and certificates may be refused"
            fix = "run chrony or ntpd on all hosts, or ask their administrator"
            found.append(Finding("clock", WARNING, what + why, fix, host))
    return found


def pairs(measured: Sequence[Mapping[str, Any]], mtus: Mapping[str, int]) -> list[Finding]:
    """Judge the measurements between hosts.

    measured: as `check.check` returns it. mtus: of the interface of each address.
    """
    usual = _usual_rate(measured)
    return [finding for one in measured for finding in _of_pair(one, usual, mtus)]


def slow(measured: Sequence[Mapping[str, Any]]) -> list[bool]:
    """Return for each pair whether it is much slower than the usual one."""
    usual = _usual_rate(measured)
    return [_is_slow(_rates(one), usual) for one in measured]


def _rates(one: Mapping[str, Any]) -> list[float]:
    return [rate for rate in (one.get("sends"), one.get("receives")) if rate]


def _usual_rate(measured: Sequence[Mapping[str, Any]]) -> float:
    """Return the median rate, or 0 if too few pairs were measured to tell what is usual."""
    rates = [rates for one in measured if (rates := _rates(one))]
    return statistics.median(itertools.chain(*rates)) if len(rates) >= _FEW_PAIRS else 0.0


def _is_slow(rates: Sequence[float], usual: float) -> bool:
    return min(rates, default=usual) < usual * _SLOW_SHARE


def _of_pair(one: Mapping[str, Any], usual: float, mtus: Mapping[str, int]) -> list[Finding]:
    names = f"{one['from']},{one['to']}"
    if one["error"]:
        what = f"{one['from']} cannot connect to {one['to']}: {one['error']}"
        return [Finding("connection", ERROR, what, _OPEN, names)]
    found = []
    if one["back"]:
        what = f"{one['to']} cannot connect to {one['from']}, only the other way: {one['back']}"
        found.append(Finding("connection", ERROR, what, _OPEN, names))
    if one["refused"]:
        what = f"addresses of {one['to']} that {one['from']} cannot reach cost time at the start: "
        fix = "name the network to use with --network-interfaces"
        found.append(Finding("addresses", WARNING, what + "; ".join(one["refused"]), fix, names))
    ends = [mtus.get(str(one[end])) for end in ("source", "target")]
    if None not in ends and ends[0] != ends[1]:
        what = f"{one['source']} sends packets of {ends[0]} bytes, {one['target']} of {ends[1]}"
        fix = "set the same MTU on all hosts and switches on the way (ip link set NAME mtu BYTES)"
        found.append(Finding("mtu", WARNING, what, fix, names))
    return [*found, _speed(one, usual, names)]


def _speed(one: Mapping[str, Any], usual: float, names: str) -> Finding:
    if one["stalled"]:
        what = f"small messages pass from {one['from']} to {one['to']}, large ones do not: "
        fix = "compare the MTU of all hosts, switches and tunnels on the way, and let ICMP through"
        return Finding("bandwidth", ERROR, what + one["stalled"], fix, names)
    what = pair_in_words(one)
    if not _is_slow([one["sends"], one["receives"]], usual):
        return Finding("bandwidth", OK, what, host=names)
    return Finding(
        "bandwidth",
        WARNING,
        f"{what}; the usual pair has {usual / 1e6:.0f} MB/s, and the slowest sets the pace",
        "look for a slower link, a bad cable (ethtool -S), or other traffic on one of the two",
        names,
    )


def pair_in_words(one: Mapping[str, Any]) -> str:
    """Describe the measurements between two hosts."""
    return (
        f"{one['sends'] / 1e6:.0f} MB/s, back {one['receives'] / 1e6:.0f} MB/s, "
        f"{one['latency'] * 1e6:.0f} us round trip, from {one['source']} to {one['target']}"
    )
