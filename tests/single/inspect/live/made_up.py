"""A job whose ranks tell what a test lets them."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from sirtaki.hang.answers import job_of
from sirtaki.inspect.live.view import view
from tests.single.hang.made_up import answer, opened

STATES = {"step": 0.02, "operations": 100.0, "bytes": 3 << 20, "communicating": 0.75}
# When and for how long threads had been blocked at the look before, and now.
EARLIER = {"at": 2.0, "exposed": 3.0, "calls": 60}
STATES |= {"at": 12.0, "exposed": 4.5, "calls": 90}


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return what Prometheus reads: by name and labels."""
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


class MadeUp:
    """Stands for `Looks`: each look finds a step a millisecond longer. `name`: of a tensor.

    parts: of a step, which each rank computes.
    """

    def __init__(
        self,
        name: str = "grad",
        host: str = "node0",
        ranks: int = 2,
        parts: list[int] | None = None,
    ) -> None:
        self.job = "0123abcd"
        self.interval = 0.05
        self.ended = False
        self.answered = True
        self._name, self._host, self._ranks = name, host, ranks
        self._looks = 0
        self._parts = parts

    def look(self) -> dict[str, Any] | None:
        """See `Looks`."""
        self._looks += 1
        hosts = [self._host] * self._ranks
        answers = [
            answer(
                rank,
                self._ranks,
                *([opened(self._name)] if rank else []),
                told={**STATES, "step": 0.02 + self._looks / 1e3, "waiting": 0.7 if rank else 0.1},
                memory=300 << 20,
                host=self._host,
                hosts=hosts,
            )
            for rank in range(self._ranks)
        ]
        for one in answers:
            one["work"][0]["parts"] = self._parts
        earlier = {rank: {**EARLIER, "completed": 5} for rank in range(self._ranks)}
        return None if self.ended else view(self.job, job_of(answers), answers, earlier)
