"""Backends that run an estimator's training on ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class Backend:
    """Runs a function on ranks; base class for users."""

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[Any]:
        """Call a function on all ranks, and return their results by rank.

        Args:
            fn: The function.
            args: Its arguments.
            kwargs: Its named arguments.
            env: Variables for the ranks.
        """
        raise NotImplementedError

    def num_processes(self) -> int:
        """Return the number of ranks."""
        raise NotImplementedError


class SparkBackend(Backend):
    """Runs ranks through `horovod.spark.run`.

    Args:
        num_proc: The number of ranks; default: `spark.default.parallelism`.
        env: The whole environment of the ranks; default: that of Spark's workers.
        **kwargs: More arguments of `horovod.spark.run`.
    """

    def __init__(
        self, num_proc: int | None = None, env: Mapping[str, str] | None = None, **kwargs: Any
    ) -> None:
        self._num_proc = num_proc
        self._env = None if env is None else dict(env)
        self._kwargs = kwargs

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[Any]:
        """See `Backend`."""
        from sirtaki.spark.runner import run

        more = dict(env or {})

        def with_variables(*given: Any, **named: Any) -> Any:
            os.environ.update(more)
            return fn(*given, **named)

        count = self.num_processes()
        return run(with_variables, args, kwargs, count, env=self._env, **self._kwargs)

    def num_processes(self) -> int:
        """See `Backend`."""
        from sirtaki.spark.context import active_context, process_count

        if self._num_proc is None:
            self._num_proc = process_count(active_context(), None, 0)
        return self._num_proc
