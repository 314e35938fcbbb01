"""The page of `sirtaki top --web` in Chromium."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from sirtaki.inspect.live.page import PageServer
from tests import needs
from tests.chromium import browser
from tests.single.inspect.live.made_up import MadeUp

pytestmark = [pytest.mark.nightly, needs.program("chromium")]

EVIL = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
STEP = "document.querySelector('#ranks td:nth-child(2)')?.textContent"


def test_numbers_move_and_names_are_only_text(tmp_path: Path) -> None:
    made_up = MadeUp(name=EVIL, host=EVIL)
    with (
        PageServer(made_up, 0) as server,  # type: ignore[arg-type]
        browser("chromium", tmp_path) as page,
    ):
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        page.do("Page.navigate", url=server.address)
        first = page.wait(STEP)
        page.wait(f"{STEP} !== '{first}' && {STEP}")
        assert page.value("location.href") == f"http://127.0.0.1:{server.port}/"
        assert page.value("document.cookie") == ""
        assert page.value("[...document.querySelectorAll('polyline')].length") == 8
        # Longer from look to look, so the line of a rank has points.
        assert (
            page.value("document.querySelector('polyline').getAttribute('points')").count(",") > 1
        )

        axis = "[...document.querySelectorAll('figure:nth-child({}) text')].map(e => e.textContent)"
        assert page.value(axis.format(2)) == [
            *("0%", "50%", "100%"),
            *("now", "-15 s", "-30 s", "-45 s", "-1 min"),
        ]
        assert page.value(axis.format(1))[0] == "0 ms"
        assert page.value("document.querySelector('#legend').textContent") == (
            "rank 0, the stragglerrank 1"
        )

        assert EVIL in page.value("document.querySelector('#ranks').textContent")
        page.value("document.querySelectorAll('#ranks tr')[1].click()")
        page.wait(
            "document.querySelector('#frames').textContent.startsWith('rank 1: it has ended')"
        )
        details = page.value("document.querySelector('.details').textContent")
        assert f"Host{EVIL}" in details
        assert "Waits forrank 0" in details
        expanded = "[...document.querySelectorAll('#ranks button')].map(e => e.ariaExpanded)"
        assert page.value(expanded) == ["false", "true"]
        assert page.value("document.querySelectorAll('img, script:not([src])').length") == 0
        page.value("document.querySelectorAll('#ranks button')[1].click()")
        assert page.value("document.querySelectorAll('.details').length") == 0
        assert page.value("document.title") == "sirtaki top 0123abcd"

        assert page.value("document.documentElement.scrollWidth <= innerWidth")
        made_up.ended = True
        page.wait("document.querySelector('#state').textContent === 'The job has ended.'")
        foreign = [
            url for url in page.requests if not url.startswith(f"http://127.0.0.1:{server.port}/")
        ]
        assert (foreign, page.errors) == ([], [])
        server.shutdown()


def test_before_the_first_numbers_and_after_the_last_it_says_so(tmp_path: Path) -> None:
    made_up = MadeUp()
    made_up.ended = True
    with (
        PageServer(made_up, 0) as server,  # type: ignore[arg-type]
        browser("chromium", tmp_path) as page,
    ):
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        page.do("Page.navigate", url=server.address)
        page.wait("document.querySelector('#state').textContent === 'The job has ended.'")
        empty = page.value("document.querySelector('#empty').textContent")
        assert empty.startswith("No rank is left")
        charts = (
            "[...document.querySelectorAll('figure')].every(e => /no data yet/.test(e.textContent))"
        )
        assert page.value(charts)
        assert page.value("document.querySelector('table').hidden")
        assert page.errors == []
        server.shutdown()


def test_a_page_that_is_opened_later_has_the_last_ten_minutes(tmp_path: Path) -> None:
    made_up = MadeUp()
    seen = made_up.look()
    assert seen is not None
    with (
        PageServer(made_up, 0) as server,  # type: ignore[arg-type]
        browser("chromium", tmp_path) as page,
    ):
        now = time.time()
        for age in range(900, 0, -30):
            server.history.keep(now - age, seen)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        page.do("Page.navigate", url=server.address)
        page.wait(STEP)
        last = "[...document.querySelectorAll('figure:first-child text')].at(-1).textContent"
        assert page.value(last) == "-8 min"  # the largest whole number of two minutes
        points = page.value("document.querySelector('polyline').getAttribute('points')")
        assert len(points.split()) >= 20
        server.shutdown()


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window(tmp_path: Path, width: int) -> None:
    with (
        PageServer(MadeUp(name="gradient." * 20), 0) as server,  # type: ignore[arg-type]
        browser("chromium", tmp_path) as page,
    ):
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        page.resize(width, 900)
        page.do("Page.navigate", url=server.address)
        page.wait(STEP)
        page.value("document.querySelectorAll('#ranks tr')[1].click()")
        page.wait("document.querySelector('.details') !== null")
        assert page.value("document.documentElement.scrollWidth <= innerWidth")
        server.shutdown()


def test_without_the_token_the_page_says_what_to_do(tmp_path: Path) -> None:
    with (
        PageServer(MadeUp(), 0) as server,  # type: ignore[arg-type]
        browser("chromium", tmp_path) as page,
    ):
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        for token in ("", "#wrong"):
            page.do("Page.navigate", url="about:blank")
            page.do("Page.navigate", url=f"http://127.0.0.1:{server.port}/{token}")
            page.wait("/(no session|wrong token): open/.test(document.body.textContent)")
        assert page.value("document.querySelectorAll('#ranks tr').length") == 0
        server.shutdown()
