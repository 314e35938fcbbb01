"""The errors of Sirtaki, with their meanings and the caller's options."""

from __future__ import annotations


class HorovodInternalError(RuntimeError):
    """A collective failed; base of the errors that end or reject an operation.

    Raised when waiting for an operation, or when submitting one before ``init()``, after
    ``shutdown()`` or after the world has failed.  The caller can restore its state and
    initialise again.
    """


class PeerLostError(HorovodInternalError):
    """A rank died or its connection closed; the message names it. Every pending operation fails."""


class CollectiveTimeoutError(HorovodInternalError):
    """Some ranks never submitted an operation; the message names the tensor and those ranks."""


class MismatchError(HorovodInternalError):
    """Ranks disagree on an operation's shape, dtype, reduce op or root; the job can go on."""


class UnsupportedError(ValueError, NotImplementedError):
    """The operation does not exist for any tensor; nothing was sent.

    It is also a RuntimeError, as Horovod scripts expect.
    """


class OverlapError(ValueError):
    """Tensors of one operation share memory that it writes to; nothing was sent."""


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written or read; the message names the file and the remedy."""


class DivergedError(RuntimeError):
    """Ranks have different values that should be equal; the message names the ranks."""


class NotFiniteError(ArithmeticError):
    """A value is infinite or NaN; the message names the rank and the tensor."""


class HostsUpdatedInterrupt(RuntimeError):
    """The set of hosts changed; training continues in a new world.

    Attributes:
        skip_sync: True when ranks only left, so no state has to be broadcast.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the set of hosts changed")
        self.skip_sync = skip_sync
