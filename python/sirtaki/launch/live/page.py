"""The page of `sirtaki top --web`: files, numbers, and stacks for whoever has the token."""

from __future__ import annotations

import json
import secrets
import sys
import threading
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from sirtaki.launch.live.guard import LOOPBACK, Handler, LoopbackServer, Refused, same
from sirtaki.launch.live.view import HEADINGS, Looks, cells
from sirtaki.launch.questions.stacks import stack_of

_FILES = Path(__file__).with_name("files")
# They hold nothing of the job; a browser asks for them before it has a cookie.
_PUBLIC = {
    "/": ("top.html", "text/html"),
    "/top.css": ("top.css", "text/css"),
    "/top.js": ("top.js", "text/javascript"),
}
_MOST_BYTES = 200
_MOST_DIGITS = 10
_POLL_SECONDS = 0.2


class PageServer(LoopbackServer):
    """Serves the page of a job.

    Args:
        looks: At the job.
        port: 0: any that is free.

    Raises:
        OSError: Something else listens there.
    """

    def __init__(self, looks: Looks, port: int) -> None:
        super().__init__(port, _PageHandler)
        self.looks = looks
        self.token = secrets.token_urlsafe(32)
        self.session = secrets.token_urlsafe(32)
        # Browsers send a cookie to every port of a host, so it is named after ours.
        self.cookie = f"sirtaki-{self.port}"

    @property
    def address(self) -> str:
        """What the user opens; what is behind "#" browsers keep to themselves."""
        return f"http://{LOOPBACK}:{self.port}/#{self.token}"


def serve(looks: Looks, port: int) -> int:
    """Serve the page until Ctrl-C; returns 0, 1 where the job has ended, 2: the port is taken."""
    if looks.look() is None:
        print(f"sirtaki top: no rank of {looks.job} is left here", file=sys.stderr)
        return 1
    try:
        server = PageServer(looks, port)
    except OSError as error:
        print(f"sirtaki top: error: --port {port}: {error.strerror}", file=sys.stderr)
        return 2
    print(f"{server.address}\nOpen it in a browser of this machine; Ctrl-C ends it.", flush=True)
    with server:
        threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,), daemon=True).start()
        threading.Event().wait()
    return 0


class _PageHandler(Handler):
    server: PageServer

    def answer(self) -> None:
        """See `Handler`."""
        asked = urlsplit(self.path)
        if self.command == "POST" and asked.path == "/session":
            self._begin_session()
        elif self.command == "GET" and asked.path in _PUBLIC:
            name, kind = _PUBLIC[asked.path]
            self.reply(200, kind, (_FILES / name).read_bytes())
        elif self.command == "GET" and asked.path == "/look":
            self._require_session()
            self.reply(200, "application/json", json.dumps(_seen(self.server.looks)))
        elif self.command == "GET" and asked.path == "/stack":
            self._require_session()
            self._stack(parse_qs(asked.query).get("rank", [""])[0])
        else:
            self.reply(404, "text/plain", "there is nothing here\n")

    def _begin_session(self) -> None:
        """Give a cookie for the token."""
        if self.headers.get("Origin") is None:
            raise Refused("the page itself asks for its session, with an Origin")
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            length = -1
        given = (
            self.rfile.read(length).decode(errors="replace") if 0 < length <= _MOST_BYTES else ""
        )
        if not same(given, self.server.token):
            raise Refused("wrong token: open the address that `sirtaki top --web` has printed")
        cookie = f"{self.server.cookie}={self.server.session}; HttpOnly; SameSite=Strict; Path=/"
        self.reply(204, "text/plain", "", Set_Cookie=cookie)

    def _require_session(self) -> None:
        # Not http.cookies: what other programs of this host have set may not be to its liking.
        pairs = (each.strip().partition("=") for each in self.headers.get("Cookie", "").split(";"))
        given = next((value for name, _, value in pairs if name == self.server.cookie), "")
        if not same(given, self.server.session):
            raise Refused("no session: open the address that `sirtaki top --web` has printed")

    def _stack(self, number: str) -> None:
        known = number.isdecimal() and len(number) < _MOST_DIGITS
        lines = stack_of(self.server.looks.job, int(number)) if known else ["that is no rank"]
        self.reply(200, "text/plain", "\n".join(lines))


def _seen(looks: Looks) -> dict[str, object]:
    """What `--json` prints, and the words of the terminal."""
    seen = looks.look()
    ranks = [] if seen is None else [{**one, "cells": cells(one)} for one in seen["ranks"]]
    return {
        "job": looks.job,
        "interval": looks.interval,
        "headings": HEADINGS,
        "ended": seen is None,
        "ranks": ranks,
    }
