"""What a page names: cut tokens, hosts before the path, candidate lists, and linear time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.mirror.interstitial import detect_interstitial
from forage.mirror.requisites import extract_requisites, is_page


def originals(text: str) -> list[str]:
    return [requisite.original for requisite in extract_requisites(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('<img src="https://evil.example/web/2012im_/http://x.org/a">', []),
        ('<img src="//evil.example:80/web/2012im_/http://x.org/a">', []),
        ('<img src="https://WEB.archive.org:443/web/2012im_/http://x.org/a">', ["http://x.org/a"]),
        ('<img src="https://web.archive.org.evil.example/web/2012im_/http://x.org/a">', []),
        ('<img src="https://u@web.archive.org/web/2012im_/http://x.org/a">', []),
        ('<img src="app/web/2012im_/http://x.org/a">', ["http://x.org/a"]),
        ("url(/web/2012im_/http://x.org/a)url(/web/2012im_/http://x.org/b)", ["http://x.org/a", "http://x.org/b"]),
        ('<img srcset="/web/2012im_/http://x.org/a, /web/2012im_/http://x.org/b,,">', ["http://x.org/a", "http://x.org/b"]),
        ("<img srcset=/web/2012im_/http://x.org/a,>", ["http://x.org/a"]),
        ('<img src="/web/2012im_/http://x.org/a, b">', ["http://x.org/a,"]),
        ("<p>see /web/2012im_/http://x.org/a, and</p>", ["http://x.org/a,"]),
        ('<img srcset="/web/2012im_/http://x.org/a,b 1x">', ["http://x.org/a,b"]),
        ("/web/2012im_/http://x.org/a\u2003b /web/2012im_/http://x.org/c\x85d", ["http://x.org/a", "http://x.org/c\x85d"]),
        ("/web/2012im_/http://x.org/&AMP;lt;&#39;&Quot;", ["http://x.org/<'\""]),
        ("/web/2012im_/http://x.org/é🚀\ud800", ["http://x.org/é🚀\ud800"]),
    ],
)
def test_requisites(text: str, found: list[str]) -> None:
    assert originals(text) == found


@given(
    st.lists(
        st.sampled_from(["/web/2012im_/", "https://web.archive.org", "(", ")", ",", " ", "&amp;", "x", "<a srcset='", "'", ">"]),
        max_size=40,
    )
)
def test_no_text_raises_and_every_requisite_is_fetchable_and_new(parts: list[str]) -> None:
    found = extract_requisites("".join(parts))
    assert len({requisite.key for requisite in found}) == len(found)
    assert all(requisite.original for requisite in found)


@pytest.mark.parametrize("content_type", ["", "text/html", "x/XHTML+y"])
def test_pages(content_type: str) -> None:
    assert is_page(content_type)


HOSTILE = [
    "/web/2012im_/a)",
    "//web.archive.org/web/2012im_/(",
    "/web/2012im_/a,",
    "//" * 200 + "/web/2012im_/",
    "<iframe ",
    "<title> ",
    "setTimeout( go ,",
]


@pytest.mark.parametrize("unit", HOSTILE)
def test_scanning_takes_linear_time(unit: str) -> None:
    text = unit * (400_000 // len(unit))
    started = time.process_time()
    extract_requisites(text)
    detect_interstitial("2012/http://x.org/", "text/html", text)
    assert time.process_time() - started < 3
