"""Messages from one rank of a group to another."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sirtaki import _core
from sirtaki.core.errors import MismatchError
from sirtaki.torch.distributed import buffers
from sirtaki.torch.distributed.works import Receive, Work

_ANY = -1
_WORLD = 0


class GroupPairs:
    """Send and receive, with the signatures that `torch.distributed` calls."""

    _engine: _core.Engine
    _timeout: float | None

    def send(self, tensors: Sequence[torch.Tensor], dst: int, tag: int) -> Work:
        """Start to send one tensor; the work is done once the tensor may be changed."""
        self._require_open()
        part = buffers.source(_single(tensors))
        handle = self._engine.send(*part.place, dst, tag, _WORLD, part)
        what = f"send to rank {dst}"
        return Work(self._engine, handle, [], None, self._timeout, what, announced=False)

    def recv(self, tensors: Sequence[torch.Tensor], src: int, tag: int) -> Work:
        """Start to receive one tensor."""
        self._require_open()
        tensor = _single(tensors)
        part = buffers.target(tensor)
        size = part.memory.nbytes
        handle = self._engine.receive(*part.place, src, tag, _WORLD, part)

        def conclude(done: _core.Handle) -> None:
            if done.bytes != size:
                raise MismatchError(
                    f"the message of rank {done.source} with tag {tag} has {done.bytes} bytes, the "
                    f"tensor to receive it {size}"
                )
            part.give_back()

        source = "any rank" if src == _ANY else f"rank {src}"
        what = f"recv from {source}"
        results = [tensor]
        return Receive(
            self._engine, handle, results, conclude, self._timeout, what, announced=False
        )

    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int) -> Work:
        """Start to receive one tensor from any rank; `work._source_rank()` returns the sender."""
        return self.recv(tensors, _ANY, tag)

    def _require_open(self) -> None:
        """Raise an error if the group has been destroyed."""
        raise NotImplementedError


def _single(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise ValueError(f"a message has one tensor, not {len(tensors)}")
    return tensors[0]
