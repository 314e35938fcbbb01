"""A thread that answers questions at a Unix socket, one at a time."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable

from sirtaki.questions.messages import QUESTION_BYTES, Asked, read_question, write_refusal
from sirtaki.rendezvous.network.local_socket import peer_of
from sirtaki.rendezvous.threads import Lasting, start_thread

_ENDING_SECONDS = 1.0


class QuestionServer:
    """Answers the questions of this user's programs until it is closed.

    Args:
        path: Of the socket.
        answer: Called, in the thread, for each question; returns the answer. An error that it
            raises is sent in place of the answer.
        patience: Seconds for a client to send the question, and to read the answer.
        lasting: The context of each question.

    Raises:
        OSError: The socket's path is too long or taken, or no thread can be started.
    """

    def __init__(
        self, path: str, answer: Callable[[Asked], bytes], patience: float, lasting: Lasting
    ) -> None:
        self._answer = answer
        self._patience = patience
        self._lasting = lasting
        self._closed = False
        with contextlib.ExitStack() as failed:
            self._socket = failed.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            self._socket.bind(path)
            self._socket.listen()
            self.thread = start_thread(self._serve, "sirtaki questions")
            failed.pop_all()

    def close(self) -> None:
        """Stop answering; wait briefly for the thread's end."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends the thread's wait
        self.thread.join(_ENDING_SECONDS)  # before the interpreter shuts down
        self._socket.close()

    def forget(self) -> None:
        """Close only the socket, in a forked child, which has no thread."""
        self._closed = True
        self._socket.close()

    def _serve(self) -> None:
        while not self._closed:
            with self._lasting:
                self._serve_one()

    def _serve_one(self) -> None:
        try:
            link, _ = self._socket.accept()
        except OSError:
            if self._closed:
                return
            raise  # no descriptor is free at the moment
        with link, contextlib.suppress(OSError):
            link.settimeout(self._patience)
            if peer_of(link)[1] not in (0, os.geteuid()):
                return
            data = link.recv(QUESTION_BYTES)
            if data:  # without data it was a test whether we are alive
                link.sendall(self._reply(data))

    def _reply(self, data: bytes) -> bytes:
        try:
            asked = read_question(data)
        except ValueError as error:
            return write_refusal(str(error))
        try:
            return self._answer(asked)
        except Exception as error:  # the client should see any error
            return write_refusal(f"{type(error).__name__}: {error}")
