"""The page of `sirtaki top --web`: files, numbers, and stacks for clients with the token."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sirtaki.inspect.live.guard import LOOPBACK, Handler, LoopbackServer, Refused, same
from sirtaki.inspect.live.view import Looks, cells, headings
from sirtaki.inspect.stacks import stack_of
from sirtaki.launch.flags.guesses import refused

_FILES = Path(__file__).with_name("files")
# Files without job data, which a browser requests before it has a cookie.
_PUBLIC = {
    "/": ("top.html", "text/html"),
    "/top.css": ("top.css", "text/css"),
    "/top.js": ("top.js", "text/javascript"),
}
_MOST_BYTES = 200
_MOST_DIGITS = 10
_POLL_SECONDS = 0.2
_KEPT_SECONDS = 600.0
_BETWEEN_KEPT_SECONDS = 2.0
_CHARTED = ("rank", "step", "waiting", "bytes", "memory", "slowest")


class History:
    """The data of the charts for the last ten minutes, for pages that are opened later.

    Args:
        looks: Samples the job.
    """

    def __init__(self, looks: Looks) -> None:
        self._looks = looks
        self._kept: deque[dict[str, Any]] = deque()
        self._lock = threading.Lock()

    def run(self) -> None:
        """Sample the job until it ends."""
        while (seen := self._looks.look()) is not None:
            self.keep(time.time(), seen)
            time.sleep(self._looks.interval)

    def keep(self, now: float, seen: Mapping[str, Any]) -> None:
        """Keep a sample, unless the previous one is as new."""
        with self._lock:
            if self._kept and now - self._kept[-1]["time"] < _BETWEEN_KEPT_SECONDS:
                return
            ranks = [{name: one[name] for name in _CHARTED} for one in seen["ranks"]]
            self._kept.append({"time": now, "ranks": ranks})
            while self._kept[0]["time"] < now - _KEPT_SECONDS:
                self._kept.popleft()

    def told(self) -> list[dict[str, Any]]:
        """Return the samples: ``time``, seconds since 1970, and ``ranks`` of each."""
        with self._lock:
            return list(self._kept)


class PageServer(LoopbackServer):
    """Serves the page of a job.

    Args:
        looks: Samples the job.
        port: 0: any free port.

    Raises:
        OSError: Another process listens there.
    """

    def __init__(self, looks: Looks, port: int) -> None:
        super().__init__(port, _PageHandler)
        self.looks = looks
        self.history = History(looks)
        self.token = secrets.token_urlsafe(32)
        self.session = secrets.token_urlsafe(32)
        # Browsers send a cookie to every port of a host, so its name includes our port.
        self.cookie = f"sirtaki-{self.port}"

    @property
    def address(self) -> str:
        """The address for the user; browsers do not send the part after "#"."""
        return f"http://{LOOPBACK}:{self.port}/#{self.token}"


def serve(looks: Looks, port: int) -> int:
    """Serve the page until Ctrl-C; returns 2 if the port is taken."""
    try:
        server = PageServer(looks, port)
    except OSError as error:
        return refused("sirtaki top", f"--port {port}: {error.strerror}")
    print(f"{server.address}\nOpen it in a browser of this machine; Ctrl-C ends it.", flush=True)
    with server:
        threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,), daemon=True).start()
        threading.Thread(target=server.history.run, daemon=True).start()
        # If another thread receives the signal of Ctrl-C, nothing wakes a main thread in a lock.
        while True:
            time.sleep(_POLL_SECONDS)


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
        elif self.command == "GET" and asked.path == "/history":
            self._require_session()
            self.reply(200, "application/json", json.dumps(self.server.history.told()))
        elif self.command == "GET" and asked.path == "/stack":
            self._require_session()
            self._stack(parse_qs(asked.query).get("rank", [""])[0])
        else:
            self.reply(404, "text/plain", "there is nothing here\n")

    def _begin_session(self) -> None:
        """Set a session cookie in exchange for the token."""
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
        # Not http.cookies, which may reject cookies that other programs of this host have set.
        pairs = (each.strip().partition("=") for each in self.headers.get("Cookie", "").split(";"))
        given = next((value for name, _, value in pairs if name == self.server.cookie), "")
        if not same(given, self.server.session):
            raise Refused("no session: open the address that `sirtaki top --web` has printed")

    def _stack(self, number: str) -> None:
        known = number.isdecimal() and len(number) < _MOST_DIGITS
        lines = stack_of(self.server.looks.job, int(number)) if known else ["that is no rank"]
        self.reply(200, "text/plain", "\n".join(lines))


def _seen(looks: Looks) -> dict[str, object]:
    """Return what `--json` prints, with the terminal's cells."""
    seen = looks.look()
    ranks = [] if seen is None else [{**one, "cells": cells(one)} for one in seen["ranks"]]
    return {
        "job": looks.job,
        "time": time.time(),
        "interval": looks.interval,
        "headings": headings(ranks),
        "ended": seen is None,
        "ranks": ranks,
    }
