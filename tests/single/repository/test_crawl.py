"""The crawler finds what is wrong with built pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.site.crawl import crawl

RIGHT = """<html><head><link rel="stylesheet" href="style.css"></head><body>
<h1 id="top">Title</h1><a href="#top">up</a> <a href="sub/other.html#there">there</a>
<a href="https://example.org/">elsewhere</a> <a href="mailto:a@b">mail</a>
<img src="picture.svg" alt="a picture"><svg role="img"><title>words</title></svg></body></html>"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text(RIGHT)
    (tmp_path / "sub" / "other.html").write_text('<p id="there"></p><a href="../index.html">up</a>')
    (tmp_path / "style.css").write_text("body { background: url(picture.svg) }")
    (tmp_path / "picture.svg").write_text("<svg/>")
    return tmp_path


def test_pages_that_are_right_are_not_complained_of(site: Path) -> None:
    assert crawl(site) == []


@pytest.mark.parametrize(
    ("added", "complaint"),
    [
        ('<a href="gone.html">x</a>', "page.html: dead link gone.html"),
        ('<a href="index.html#gone">x</a>', "page.html: dead link index.html#gone"),
        ('<a href="#gone">x</a>', "page.html: dead link #gone"),
        ('<img src="gone.png" alt="x">', "page.html: dead link gone.png"),
        ('<img src="picture.svg">', "page.html: picture.svg has no words"),
        ('<svg role="img"><path/></svg>', "page.html: a drawing has no words"),
        (
            '<script src="https://a.example/x.js"></script>',
            "page.html: loads https://a.example/x.js",
        ),
        ('<script src="//a.example/x.js"></script>', "page.html: loads //a.example/x.js"),
        ('<link rel="icon" href="https://a.example/i">', "page.html: loads https://a.example/i"),
        (
            '<link rel="preconnect" href="https://a.example">',
            "page.html: loads https://a.example",
        ),
        ('<p style="background:url(https://a.example/b)">', "page.html: loads https://a.example/b"),
        ("<style>@import 'https://a.example/c';</style>", "page.html: loads https://a.example/c"),
    ],
)
def test_what_is_wrong_is_named(site: Path, added: str, complaint: str) -> None:
    (site / "page.html").write_text(added)
    assert crawl(site) == [complaint]


def test_a_style_sheet_that_loads_a_font_is_named(site: Path) -> None:
    (site / "style.css").write_text("@font-face{src:url('https://a.example/f.woff2')}")
    assert crawl(site) == ["style.css: loads https://a.example/f.woff2"]


def test_a_folder_without_pages_is_wrong(tmp_path: Path) -> None:
    assert crawl(tmp_path) == [f"{tmp_path} has no pages"]
