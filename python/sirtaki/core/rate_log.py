"""Speeds of the ranks in the user's own metrics log."""

from __future__ import annotations

from typing import Any

from sirtaki.core.world import state

_TIMED = 128
_NAMES = {
    "step": "step_seconds",
    "bytes": "bytes_per_second",
    "exposed": "exposed",
    "communicating": "communicating",
    "waiting": "waiting",
}


class RateLog:
    """Lets rank 0 log the speeds of its host's ranks, as ``sirtaki top`` shows them.

    It is not a collective: the other ranks do nothing, and no rank waits.

    Args:
        log: What logs: a ``SummaryWriter`` of TensorBoard, the module ``wandb`` or a run of it, or
            the module ``mlflow``. Only rank 0 needs it; None elsewhere.
        every: The number of steps between two log entries.

    Raises:
        TypeError: `log` has none of the methods that these have.
        ValueError: `every` is not positive.
    """

    def __init__(self, log: Any, every: int = 100) -> None:
        if every < 1:
            raise ValueError(f"every={every} must be at least 1")
        if log is not None and _method_of(log) is None:
            raise TypeError(
                f"RateLog: {type(log).__name__} has none of add_scalar (TensorBoard), log_metrics "
                "(MLflow) and log (W&B)"
            )
        self._log = log
        self._every = every
        self._steps = 0
        self._before: dict[int, dict[str, object]] = {}

    def step(self) -> None:
        """Count a step, and log when due; call it after each step.

        Raises:
            ValueError: Before ``init()``.
        """
        self._steps += 1
        if self._log is not None and self._steps == 1 and self._every > 1 and state.rank() == 0:
            self._values()  # the base of the first comparison
        if self._log is not None and self._steps % self._every == 0 and state.rank() == 0:
            _write(self._log, self._values(), self._steps)

    def _values(self) -> dict[str, float]:
        from sirtaki.core.world import snapshot  # most processes never need it
        from sirtaki.hang.answers import exposed_share

        found = {}
        for one in state.snapshot(_TIMED, 0.0):
            if one.doing is None:
                continue  # on another host
            now = {"completed": one.doing.completed, **snapshot.exposed_of(one.doing)}
            before, self._before[one.rank] = self._before.get(one.rank), now
            exposed = None if before is None else exposed_share(before, now)
            rates = {**snapshot.rates_of(one.operations), "exposed": exposed}
            for field, name in _NAMES.items():
                value = rates[field]
                if isinstance(value, float):
                    found[f"sirtaki/rank{one.rank}/{name}"] = value
        return found


def _method_of(log: Any) -> str | None:
    names = ("add_scalar", "log_metrics", "log")
    return next((name for name in names if callable(getattr(log, name, None))), None)


def _write(log: Any, values: dict[str, float], step: int) -> None:
    method = _method_of(log)
    if method == "add_scalar":
        for name, value in values.items():
            log.add_scalar(name, value, step)
    elif method == "log_metrics":
        log.log_metrics(values, step=step)
    elif values:
        # Without a step: W&B counts its own, and ours would conflict with the user's.
        log.log(values, commit=False)
