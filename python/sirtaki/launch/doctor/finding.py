"""One thing that the doctor has looked at, the same on one host and on many."""

from __future__ import annotations

from collections.abc import Iterable

from sirtaki.records import asdict, dataclass, replace

# In the order of their weight.
LEVELS = ("ok", "note", "warning", "error")
OK, NOTE, WARNING, ERROR = LEVELS


@dataclass(frozen=True)
class Finding:
    """What was found.

    check: what was looked at, a short name for scripts. level: `OK`; `NOTE`, which costs something
    only in some jobs; `WARNING`, which slows a job or ends some; `ERROR`: jobs do not run. what: a
    sentence. fix: what to do, empty where nothing is. host: where, or hosts joined by commas.
    """

    check: str
    level: str
    what: str
    fix: str = ""
    host: str = ""

    def on(self, host: str) -> Finding:
        """Return the same, of a host."""
        return replace(self, host=host)


def plain(findings: Iterable[Finding]) -> list[dict[str, str]]:
    """Return findings as JSON has them."""
    return [asdict(finding) for finding in findings]


def worst(findings: Iterable[Finding]) -> str:
    """Return the gravest level among them, `OK` where there is none."""
    return max((finding.level for finding in findings), key=LEVELS.index, default=OK)
