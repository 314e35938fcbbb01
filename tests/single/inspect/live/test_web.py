"""`sirtaki top --web` as a command, on a job that hangs."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.single.inspect.test_questions import PROGRAM, running, sirtaki
from tests.single.launching import LIMIT, SIRTAKI, Job

pytestmark = pytest.mark.job


def ask(address: str, path: str, body: str | None = None, **headers: str) -> tuple[str, str]:
    """What is answered, and the cookie that comes with it."""
    link = http.client.HTTPConnection(address, timeout=LIMIT)
    link.request("GET" if body is None else "POST", path, body, headers)
    reply = link.getresponse()
    return reply.read().decode(), reply.headers.get("Set-Cookie", "").partition(";")[0]


def test_the_address_that_is_printed_leads_to_numbers_and_stacks(job: Job, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    with running("asleep", str(script), job) as found:
        name = str(found.pids[1])
        process = subprocess.Popen(
            [*SIRTAKI, "top", name, "--web", "--interval", "0.2"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        url = urlsplit(process.stdout.readline().strip())
        origin = f"{url.scheme}://{url.netloc}"
        _, cookie = ask(url.netloc, "/session", url.fragment, Origin=origin)
        seen = json.loads(ask(url.netloc, "/look", Cookie=cookie)[0])
        assert [one["pid"] for one in seen["ranks"]] == found.pids
        assert "in asleep" in ask(url.netloc, "/stack?rank=1", Cookie=cookie)[0]
        assert ask(url.netloc, "/stack?rank=x", Cookie=cookie)[0] == "that is no rank"

        taken = sirtaki("top", name, "--web", "--port", str(url.port))
        assert taken.returncode == 2
        told = f"sirtaki top: error: --port {url.port}: Address already in use\n"
        assert taken.stderr == told
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 0


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--web", "--once"), "--web shows a page"),
        (("--web", "--json"), "--web shows a page"),
        (("--port", "1"), "--port is of the page: give --web too"),
        (("--web", "--port", "70000"), "70000 is not from 0 to 65535"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(flags: tuple[str, ...], why: str) -> None:
    shown = sirtaki("top", "any", *flags)
    assert shown.returncode == 2
    assert why in shown.stderr
