"""The page of `sirtaki top --web` in Chromium."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sirtaki.launch.live.page import PageServer
from tests import needs
from tests.chromium import browser
from tests.single.launch.live.made_up import MadeUp

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

        assert EVIL in page.value("document.querySelector('#ranks').textContent")
        page.value("document.querySelectorAll('#ranks button')[1].click()")
        page.wait(
            "document.querySelector('#frames').textContent.startsWith('rank 1: it has ended')"
        )
        assert page.value("document.querySelectorAll('img, script:not([src])').length") == 0
        assert page.value("document.title") == "sirtaki top 0123abcd"

        assert page.value("document.documentElement.scrollWidth <= innerWidth")
        made_up.ended = True
        page.wait("document.querySelector('#state').textContent === 'The job has ended.'")
        foreign = [
            url for url in page.requests if not url.startswith(f"http://127.0.0.1:{server.port}/")
        ]
        assert (foreign, page.errors) == ([], [])
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
