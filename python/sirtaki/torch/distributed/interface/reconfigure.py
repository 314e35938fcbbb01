"""Groups whose members leave and join, through PyTorch 2.14's interface."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from sirtaki.core.errors import CollectiveTimeoutError
from sirtaki.rendezvous.trust import digests
from sirtaki.torch.distributed.in_pytorch import PythonWork

_KIND = "sirtaki"
_NUMBER_BYTES = 16


class HandlesError(ValueError, RuntimeError):
    """Handles cannot form a group; PyTorch's backends raise RuntimeError for this."""


class _Formed(PythonWork):
    """The work of members that have met."""

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return at once."""
        return True

    def is_completed(self) -> bool:
        """Return that it is done."""
        return True

    def is_success(self) -> bool:
        """Return that all members have arrived."""
        return True


class Reconfigurable:
    """The methods with which a group can be formed again from other members."""

    supports_reconfigure = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._handle = f"{_KIND}:{os.urandom(_NUMBER_BYTES).hex()}"

    def get_reconfigure_handle(self) -> str:
        """Return the handle of this process as a member of a group."""
        return self._handle

    def reconfigure(self, opts: Any) -> dist.Work:
        """Form the group from the processes of the given handles; all of them call it.

        Args:
            opts: PyTorch's options: `uuid`, unique for each call; `handles`, in the order of ranks
                if they are a list; `timeout`; `hints`, of which none are supported.

        Returns:
            A completed work.

        Raises:
            HandlesError: This process is not among them, or a handle is invalid.
            CollectiveTimeoutError: Some members did not arrive; the group is unchanged.
        """
        handles = sorted(opts.handles) if isinstance(opts.handles, (set, frozenset)) else None
        ordered = list(opts.handles) if handles is None else handles
        self._check_handles(ordered)
        name = digests.sha256(f"{opts.uuid} {ordered}".encode()).hex()
        try:
            self._form_anew(ordered.index(self._handle), len(ordered), name, opts.timeout)
        except (TimeoutError, ConnectionError) as error:
            raise CollectiveTimeoutError(f"reconfigure: {error}") from error
        return _Formed()

    def _check_handles(self, handles: list[str]) -> None:
        strange = [each for each in handles if not each.startswith(f"{_KIND}:")]
        if strange:
            raise HandlesError(f"reconfigure: {strange[0]!r} is no handle of a group of {_KIND}")
        if len(set(handles)) != len(handles):
            raise HandlesError("reconfigure: each handle can be given once")
        if self._handle not in handles:
            raise HandlesError("reconfigure: the handle of this process is not among those given")

    def _form_anew(self, rank: int, size: int, name: str, timeout: timedelta | None) -> None:
        """Meet the members, and make them the group."""
        raise NotImplementedError
