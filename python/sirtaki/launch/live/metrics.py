"""Metrics of a job that the launcher runs: an endpoint for Prometheus, and a file of JSON lines."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.settings import MetricSettings
from sirtaki.launch.live import prometheus
from sirtaki.launch.live.guard import Handler, LoopbackServer, Refused, same
from sirtaki.launch.live.view import Looks
from sirtaki.rendezvous.host.presence import job_name

_LEAST_TOKEN = 16
_MOST_TOKEN = 4096
_POLL_SECONDS = 0.2
# A scrape that comes sooner gets the numbers of the one before.
_SCRAPE_SECONDS = 1.0


def token_of(path: Path) -> str:
    """Return the token in a file, which is made where there is none.

    Raises:
        LaunchError: It cannot be read or made, is not its user's alone, or is too short.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(made, "w") as file:
                file.write(f"{secrets.token_urlsafe(32)}\n")
        with path.open() as file:
            found = os.fstat(file.fileno())
            token = file.read(_MOST_TOKEN).strip()
    except (OSError, ValueError) as error:
        raise LaunchError(f"--metrics-token-file {path}: {error}") from None
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise LaunchError(
            f"--metrics-token-file {path}: others may read it; chown it to you, and chmod 600 it"
        )
    if len(token) < _LEAST_TOKEN:
        raise LaunchError(
            f"--metrics-token-file {path}: a token has at least {_LEAST_TOKEN} characters; "
            "remove the file to get a new one"
        )
    return token


class MetricsServer(LoopbackServer):
    """Answers `GET /metrics` of who has the token.

    Args:
        looks: At the job.
        port: 0: any that is free.
        token: What is in the header `Authorization: Bearer`.

    Raises:
        OSError: Something else listens there.
    """

    def __init__(self, looks: Looks, port: int, token: str) -> None:
        super().__init__(port, _MetricsHandler)
        self.looks = looks
        self.token = token


class _MetricsHandler(Handler):
    server: MetricsServer

    def answer(self) -> None:
        """See `Handler`."""
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not same(token.strip(), self.server.token):
            raise Refused("wrong token: send `Authorization: Bearer` and the token of the file")
        if self.command != "GET" or self.path != "/metrics":
            self.reply(404, "text/plain", "there is nothing here but /metrics\n")
            return
        looks = self.server.looks
        self.reply(200, prometheus.KIND, prometheus.text(looks.job, looks.look()))


@contextlib.contextmanager
def metrics_of(
    settings: MetricSettings, store: str, say: Callable[[str], object]
) -> Iterator[None]:
    """Serve and write the metrics of the job whose ranks meet at a store, until the end.

    Args:
        settings: Where they go.
        store: Its address.
        say: Told where the endpoint is, and what goes wrong later: the job goes on.

    Raises:
        LaunchError: The port is taken, or a file cannot be used.
    """
    job = job_name(store)
    with contextlib.ExitStack() as until_the_end:
        if settings.port is not None:
            looks = Looks(job, _SCRAPE_SECONDS)
            server = until_the_end.enter_context(_open_server(settings, looks))
            _start(lambda: server.serve_forever(_POLL_SECONDS))
            until_the_end.callback(server.shutdown)
            say(f"metrics: http://127.0.0.1:{server.port}/metrics, token in {settings.token_file}")
        if settings.file is not None:
            writer = MetricsFile(Path(settings.file), Looks(job, settings.interval), say)
            _start(writer.run)
            until_the_end.callback(writer.end)
        yield


def _open_server(settings: MetricSettings, looks: Looks) -> MetricsServer:
    token = token_of(Path(settings.token_file))
    try:
        return MetricsServer(looks, settings.port or 0, token)
    except OSError as error:
        raise LaunchError(f"--metrics-port {settings.port}: {error.strerror}") from None


class MetricsFile:
    """A file that gets a line a look: the time (seconds since 1970), and what `--json` prints.

    Args:
        path: Of the file, to which lines are added.
        looks: At the job.
        say: Told, once, that it cannot be written.

    Raises:
        LaunchError: It cannot be opened.
    """

    def __init__(self, path: Path, looks: Looks, say: Callable[[str], object]) -> None:
        self._path, self._looks, self._say = path, looks, say
        self._ended = threading.Event()
        try:
            self._file = path.open("a")
        except OSError as error:
            raise LaunchError(f"--metrics-file {path}: {error.strerror}") from None

    def run(self) -> None:
        """Write until `end`, or until the file cannot be written."""
        try:
            with self._file:
                while not self._ended.wait(self._looks.interval):
                    if seen := self._looks.look():
                        print(
                            json.dumps({"time": time.time(), **seen}), file=self._file, flush=True
                        )
        except OSError as error:
            self._say(f"--metrics-file {self._path}: {error.strerror}; no more is written there")

    def end(self) -> None:
        """Write no more lines."""
        self._ended.set()


def _start(target: Callable[[], object]) -> None:
    threading.Thread(target=target, name="sirtaki metrics", daemon=True).start()
