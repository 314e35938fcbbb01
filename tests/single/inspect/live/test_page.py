"""The page of `sirtaki top --web`: who may ask, and what it answers."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator

import pytest

from sirtaki.inspect.live.page import PageServer
from sirtaki.inspect.live.view import HEADINGS, cells
from tests.single.inspect.live.made_up import MadeUp

Answer = tuple[int, str, http.client.HTTPMessage]


class Asking:
    """A program that asks the server of a job, with the headers of a browser or others."""

    def __init__(self, server: PageServer) -> None:
        self.server = server
        self.own = f"http://127.0.0.1:{server.port}"

    def ask(self, path: str, body: str | None = None, **headers: str) -> Answer:
        """headers: with "_" for "-"."""
        link = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        link.request("GET" if body is None else "POST", path, body, named)
        reply = link.getresponse()
        return reply.status, reply.read().decode(), reply.headers

    def cookie(self) -> str:
        """The cookie that the token is exchanged for."""
        _, _, headers = self.ask("/session", self.server.token, Origin=self.own)
        return headers["Set-Cookie"].partition(";")[0]


@pytest.fixture
def made_up() -> MadeUp:
    return MadeUp()


@pytest.fixture
def asking(made_up: MadeUp) -> Iterator[Asking]:
    with PageServer(made_up, 0) as server:  # type: ignore[arg-type]
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield Asking(server)
        server.shutdown()


def test_the_token_gets_a_cookie_and_the_cookie_the_numbers_of_the_terminal(asking: Asking) -> None:
    status, text, headers = asking.ask("/session", asking.server.token, Origin=asking.own)
    assert (status, text) == (204, "")
    name, _, attributes = headers["Set-Cookie"].partition("=")
    assert name == f"sirtaki-{asking.server.port}"
    assert attributes.split("; ")[1:] == ["HttpOnly", "SameSite=Strict", "Path=/"]
    assert asking.server.token not in headers["Set-Cookie"]
    status, text, _ = asking.ask("/look", Cookie=asking.cookie())
    seen = json.loads(text)
    assert (status, seen["job"], seen["ended"]) == (200, "0123abcd", False)
    assert seen["headings"] == list(HEADINGS)
    assert [one["rank"] for one in seen["ranks"]] == [0, 1]
    assert [one["cells"] for one in seen["ranks"]] == [list(cells(one)) for one in seen["ranks"]]


def test_the_last_ten_minutes_are_kept_a_look_in_two_seconds(
    asking: Asking, made_up: MadeUp
) -> None:
    seen = made_up.look()
    assert seen is not None
    for second in range(1200):
        asking.server.history.keep(1000.0 + second, seen)
    told = json.loads(asking.ask("/history", Cookie=asking.cookie())[1])
    assert [one["time"] for one in told] == [1598.0 + 2 * step for step in range(301)]
    assert [one["rank"] for one in told[0]["ranks"]] == [0, 1]
    fields = {"rank", "step", "waiting", "bytes", "memory", "slowest"}
    assert {*told[0]["ranks"][0]} == fields


@pytest.mark.parametrize("path", ["/look", "/history", "/stack?rank=0"])
@pytest.mark.parametrize("cookie", ["", "sirtaki-1=x", "sirtaki-{port}=x", 'a={"b', "{token}"])
def test_nothing_of_the_job_is_told_without_the_cookie(
    asking: Asking, path: str, cookie: str
) -> None:
    given = cookie.replace("{port}", str(asking.server.port))
    given = given.replace("{token}", f"sirtaki-{asking.server.port}={asking.server.token}")
    status, text, _ = asking.ask(path, Cookie=given)
    assert status == 403
    assert text == "no session: open the address that `sirtaki top --web` has printed\n"


def test_cookies_of_other_programs_are_no_obstacle(asking: Asking) -> None:
    cookie = f'other={{"a": [1}}; {asking.cookie()}; empty'
    assert asking.ask("/look", Cookie=cookie)[0] == 200


@pytest.mark.parametrize("token", ["", "x", "é" * 40, "x" * 100_000])
def test_a_wrong_token_gets_no_cookie(asking: Asking, token: str) -> None:
    status, text, headers = asking.ask("/session", token, Origin=asking.own)
    assert status == 403
    assert text.startswith("wrong token: open the address")
    assert "Set-Cookie" not in headers


@pytest.mark.parametrize("path", ["/", "/top.js", "/look"])
@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1:1", ""])
def test_a_name_that_leads_here_is_refused(asking: Asking, path: str, host: str) -> None:
    forged = host.replace("{port}", str(asking.server.port))
    status, text, _ = asking.ask(path, Host=forged, Cookie=asking.cookie())
    assert status == 403
    assert text.startswith(f"this is 127.0.0.1:{asking.server.port}, not ")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:{port}"])
def test_another_site_is_refused_even_with_cookie_and_token(asking: Asking, origin: str) -> None:
    forged = origin.replace("{port}", str(asking.server.port))
    asked = (
        asking.ask("/look", Cookie=asking.cookie(), Origin=forged),
        asking.ask("/session", asking.server.token, Origin=forged),
    )
    for status, text, _ in asked:
        assert (status, text) == (403, f"a page of {forged!r} may not ask here\n")


def test_a_request_of_another_site_without_an_origin_is_refused(asking: Asking) -> None:
    status, text, _ = asking.ask("/look", Cookie=asking.cookie(), Sec_Fetch_Site="cross-site")
    assert (status, text) == (403, "another page may not ask here\n")
    status, text, _ = asking.ask("/session", asking.server.token)
    assert (status, text) == (403, "the page itself asks for its session, with an Origin\n")


@pytest.mark.parametrize("path", ["/", "/top.js", "/top.css", "/look", "/nowhere", "/../guard.py"])
def test_every_answer_forbids_what_is_not_of_this_server(asking: Asking, path: str) -> None:
    status, text, headers = asking.ask(path)
    policy = headers["Content-Security-Policy"].split("; ")
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert not any("unsafe" in each or "http" in each or "*" in each for each in policy)
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert asking.server.token not in text
    assert (status == 200) == (path in ("/", "/top.js", "/top.css"))


def test_the_files_ask_no_other_host(asking: Asking) -> None:
    for path in ("/", "/top.js", "/top.css"):
        text = asking.ask(path)[1].replace("http://www.w3.org/2000/svg", "")
        assert "//" not in "".join(line.partition("// ")[0] for line in text.splitlines())
        assert "innerHTML" not in text


def test_it_listens_on_loopback_only(asking: Asking) -> None:
    assert asking.server.server_address[0] == "127.0.0.1"


def test_a_job_that_has_ended_is_said_to_have(asking: Asking, made_up: MadeUp) -> None:
    made_up.ended = True
    seen = json.loads(asking.ask("/look", Cookie=asking.cookie())[1])
    assert (seen["ended"], seen["ranks"]) == (True, [])
    text = asking.ask("/stack?rank=0", Cookie=asking.cookie())[1]
    assert text == "rank 0: it has ended, or runs on another host"
