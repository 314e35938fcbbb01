"""The ranks of one host hand one another their shared heaps, whose tensors the others can touch."""

from __future__ import annotations

import os
import socket
import struct

from sirtaki.records import dataclass
from sirtaki.rendezvous.network import local_socket

_BYTES = struct.Struct("!Q")


@dataclass(frozen=True)
class HeapMemory:
    """The memory of a rank's shared heap.

    descriptor: of its file in memory, -1 where it is not handed over, for it is this rank's own.
    bytes: its size, 0 where the rank has none.
    """

    descriptor: int = -1
    bytes: int = 0

    def close(self) -> None:
        """Close the descriptor of another rank's heap."""
        if self.descriptor >= 0:
            os.close(self.descriptor)


def send(sock: socket.socket, heap: HeapMemory, deadline: float) -> None:
    """Say how large a heap is, and hand it over where it has a descriptor."""
    local_socket.set_deadline(sock, deadline)
    descriptors = [heap.descriptor] if heap.descriptor >= 0 else []
    socket.send_fds(sock, [_BYTES.pack(heap.bytes)], descriptors)


def receive(sock: socket.socket, deadline: float) -> HeapMemory:
    """Return what `send` has sent; the descriptor belongs to the caller."""
    data, descriptors = local_socket.receive_with_descriptors(sock, _BYTES.size, 1, deadline)
    return HeapMemory(descriptors[0] if descriptors else -1, _BYTES.unpack(data)[0])
