"""The result of one check of the doctor, on one host or on many."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

# By increasing severity.
LEVELS = ("ok", "note", "warning", "error")
OK, NOTE, WARNING, ERROR = LEVELS


@dataclass(frozen=True)
class Finding:
    """The result of a check.

    check: a short name of the check for scripts. level: `OK`; `NOTE`, which matters only in some
    jobs; `WARNING`, which slows a job or ends some; `ERROR`: jobs do not run. what: a sentence.
    fix: what to do, empty if nothing. host: the host, or several joined by commas.
    """

    check: str
    level: str
    what: str
    fix: str = ""
    host: str = ""

    def on(self, host: str) -> Finding:
        """Return this finding with a host."""
        return replace(self, host=host)


def plain(findings: Iterable[Finding]) -> list[dict[str, str]]:
    """Return findings as JSON objects."""
    return [asdict(finding) for finding in findings]
