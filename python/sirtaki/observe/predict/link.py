"""The links of hosts: as the user describes them, or as `sirtaki doctor` has measured them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sirtaki.rendezvous.words import parse_json

# Of a frame with its preamble and gap 1448 of 1538 bytes are data; without these, of 1514.
DATA_SHARE = 0.95
_RATE = re.compile(r"([0-9]*\.?[0-9]+)(k|m|g|t)?bit(?:/s)?", re.IGNORECASE)
_TIME = re.compile(r"([0-9]*\.?[0-9]+)(us|ms|s)")
_RATES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_MOST_RATE = 1e13
_MOST_SECONDS = 10.0


class Link(NamedTuple):
    """The link of each host.

    rate: bytes of data a second, in each direction. round_trip: seconds of a small message and its
    answer.
    """

    rate: float
    round_trip: float


def parse_link(text: str) -> Link:
    """Return the link of a text such as "1gbit,0.2ms".

    Raises:
        ValueError: It is no such text, or no link has such figures.
    """
    rate_text, _, time_text = text.partition(",")
    rate, seconds = _RATE.fullmatch(rate_text.strip()), _TIME.fullmatch(time_text.strip())
    if rate is None or seconds is None:
        raise ValueError(f"{text!r} is not a rate and a round trip, such as 1gbit,0.2ms")
    return _checked(
        text,
        float(rate[1]) * _RATES[(rate[2] or "").lower()] / 8 * DATA_SHARE,
        float(seconds[1]) * _TIMES[seconds[2]],
    )


def read_link(path: str) -> Link:
    """Return the slowest link among those that `sirtaki doctor --hosts --json` has measured.

    Raises:
        OSError: The file cannot be read.
        ValueError: It has no measurements of two hosts.
    """
    try:
        report = parse_json(Path(path).read_bytes())
        pairs = [_measured(pair) for pair in report["pairs"]]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path}: not what `sirtaki doctor --hosts --json` prints ({error!r})"
        ) from None
    found = [pair for pair in pairs if pair is not None]
    if not found:
        raise ValueError(f"{path}: it measured no two hosts; see its findings")
    rates, round_trips = zip(*found, strict=True)
    return _checked(path, min(rates), max(round_trips))


def _measured(pair: Mapping[str, Any]) -> tuple[float, float] | None:
    figures = pair.get("sends"), pair.get("receives"), pair.get("latency")
    if pair["error"] or None in figures:
        return None
    sends, receives, latency = map(float, figures)  # type: ignore[arg-type]
    return min(sends, receives), latency


def _checked(name: str, rate: float, round_trip: float) -> Link:
    if not rate > 0:
        raise ValueError(f"{name}: a link of 0 bit/s carries nothing")
    if not (rate <= _MOST_RATE and 0 <= round_trip <= _MOST_SECONDS and math.isfinite(rate)):
        raise ValueError(
            f"{name}: no link carries {rate * 8:.3g} bit/s with a round trip of {round_trip:.3g} s"
        )
    return Link(rate, round_trip)
