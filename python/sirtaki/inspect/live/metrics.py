"""Metrics of a job that the launcher runs: an endpoint for Prometheus, and a file of JSON lines."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sirtaki.inspect.live.guard import Handler, LoopbackServer, Refused, same
from sirtaki.inspect.live.totals import JobTotals
from sirtaki.inspect.live.view import Looks
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.settings import MetricSettings
from sirtaki.rendezvous.files.private_folder import is_private
from sirtaki.rendezvous.host.presence import job_name
from sirtaki.rendezvous.threads import Lasting, start_thread

_LEAST_TOKEN = 16
_MOST_TOKEN = 4096
_POLL_SECONDS = 0.2
# An earlier scrape gets the numbers of the previous one.
_SCRAPE_SECONDS = 1.0


def token_of(path: Path) -> str:
    """Return the token in a file, which is created if it is missing.

    Raises:
        LaunchError: It cannot be read or created, others can read it, or it is too short.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.path.lexists(path):
            _make_token(path)
        # Anything but a regular file may be endless, or have no writer.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)) as file:  # noqa: PTH123
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ValueError("it is no file")
            token = file.read(_MOST_TOKEN).strip()
    except (OSError, ValueError) as error:
        raise LaunchError(f"--metrics-token-file {path}: {error}") from None
    if not is_private(found):
        raise LaunchError(
            f"--metrics-token-file {path}: others may read it; chown it to you, and chmod 600 it"
        )
    if len(token) < _LEAST_TOKEN:
        raise LaunchError(
            f"--metrics-token-file {path}: a token has at least {_LEAST_TOKEN} characters; "
            "remove the file to get a new one"
        )
    return token


def _make_token(path: Path) -> None:
    """Create the file atomically; another launcher may be faster."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    made = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(made, "w") as file:
            file.write(f"{secrets.token_urlsafe(32)}\n")
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(beside)
    finally:
        beside.unlink()


class MetricsServer(LoopbackServer):
    """Answers `GET /metrics` for clients with the token.

    Args:
        written: Returns the metrics for a client's `Accept`, and their content type.
        port: 0: any free port.
        token: The one in the header `Authorization: Bearer`.

    Raises:
        OSError: Another process listens there.
    """

    def __init__(self, written: Callable[[str], tuple[bytes, str]], port: int, token: str) -> None:
        super().__init__(port, _MetricsHandler)
        self.written = written
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
        text, kind = self.server.written(self.headers.get("Accept", ""))
        self.reply(200, kind, text)


@contextlib.contextmanager
def metrics_of(
    settings: MetricSettings, store: str, say: Callable[[str], object]
) -> Iterator[None]:
    """Serve and write the metrics of the job whose ranks meet at a store, until the end.

    Args:
        settings: Where they go.
        store: Its address.
        say: Shows the endpoint, and later problems, which do not end the job.

    Raises:
        LaunchError: The port is taken, a file cannot be used, or a package is missing.
    """
    job = job_name(store)
    with contextlib.ExitStack() as until_the_end:
        if settings.port is not None:
            server = until_the_end.enter_context(_open_server(settings, job))
            lasting = Lasting("the metrics port", say)
            start_thread(lambda: _serve(server, lasting), "sirtaki metrics")
            until_the_end.callback(server.shutdown)
            say(f"metrics: http://127.0.0.1:{server.port}/metrics, token in {settings.token_file}")
        if settings.file is not None:
            writer = MetricsFile(Path(settings.file), Looks(job, settings.interval), say)
            start_thread(writer.run, "sirtaki metrics")
            until_the_end.callback(writer.end)
        yield


def _serve(server: MetricsServer, lasting: Lasting) -> None:
    ended = False
    while not ended:
        with lasting:
            server.serve_forever(_POLL_SECONDS)
            ended = True


def _open_server(settings: MetricSettings, job: str) -> MetricsServer:
    try:
        from sirtaki.inspect.live.prometheus import Written
    except ImportError as error:
        raise LaunchError(
            f"--metrics-port needs the package prometheus-client: pip install 'sirtaki[metrics]' "
            f"({error})"
        ) from None
    token = token_of(Path(settings.token_file))
    counted = JobTotals()
    written = Written(Looks(job, _SCRAPE_SECONDS, counted.add), counted)
    try:
        return MetricsServer(written, settings.port or 0, token)
    except OSError as error:
        raise LaunchError(f"--metrics-port {settings.port}: {error.strerror}") from None


class MetricsFile:
    """A file that gets a line per sample: the time (seconds since 1970), and what `--json` prints.

    Args:
        path: Of the file, to which lines are appended.
        looks: Samples the job.
        say: Called, once for each reason, if the file cannot be written.

    Raises:
        LaunchError: It cannot be opened.
    """

    def __init__(self, path: Path, looks: Looks, say: Callable[[str], object]) -> None:
        self._looks = looks
        self._ended = threading.Event()
        self._lasting = Lasting(f"--metrics-file {path}", say)
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise LaunchError(f"--metrics-file {path}: {error.strerror}") from None

    def run(self) -> None:
        """Write until `end`; skip samples that fail and lines for which the disk is full."""
        with contextlib.closing(self._file):
            while not self._ended.wait(self._looks.interval):
                with self._lasting:
                    self._write()

    def _write(self) -> None:
        if seen := self._looks.look():
            data = f"{json.dumps({'time': time.time(), **seen})}\n".encode()
            written = self._file.write(data)
            if written != len(data):
                # Remove the partial line, which would not be JSON.
                self._file.truncate(self._file.seek(0, os.SEEK_END) - (written or 0))
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def end(self) -> None:
        """Stop writing lines."""
        self._ended.set()
