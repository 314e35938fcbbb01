"""A pipe between threads."""

from __future__ import annotations

import threading


class Pipe:
    """Passes text or bytes from a writing thread to a reading one, piece by piece."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._piece: str | bytes | None = None
        self._closed = False

    def write(self, buf: str | bytes) -> None:
        """Pass on a piece, once the previous one has been read. Raises RuntimeError when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._piece is None or self._closed)
            if self._closed:
                raise RuntimeError("the pipe is closed")
            self._piece = buf or None
            self._changed.notify_all()

    def read(self, length: int = -1, timeout: float | None = None) -> str | bytes | None:
        """Return the next piece, or `length` of it, None at the end. Raises TimeoutError."""
        with self._changed:
            ready = self._changed.wait_for(lambda: self._piece is not None or self._closed, timeout)
            if not ready:
                raise TimeoutError(f"nothing was written for {timeout} s")
            piece = self._piece
            if piece is None:
                return None
            end = len(piece) if length < 0 else length
            self._piece = piece[end:] or None
            self._changed.notify_all()
            return piece[:end]

    def flush(self) -> None:
        """Do nothing: written data can be read at once."""

    def close(self) -> None:
        """Mark the end of the data; written data can still be read."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
