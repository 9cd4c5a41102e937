"""Cookies between the hops of one acquisition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.fetch.cookies import HopCookies

ORIGIN = "https://site.test"


def after(*values: str, path: str = "/a/b", ask: str = "/a/c", origin: str = ORIGIN) -> str | None:
    cookies = HopCookies()
    cookies.receive(ORIGIN, "site.test", path, values)
    return cookies.header(origin, ask)


@pytest.mark.parametrize(
    ("values", "sent"),
    [
        (("s=1; Path=/; HttpOnly; Secure",), "s=1"),
        (("s=1",), "s=1"),
        (("s=1; Path=/other",), None),
        (("s=1; Path=relative",), "s=1"),
        (("s=1; Path=/a", "t=2; Path=/", "u=3; Path=/a/c"), "u=3; s=1; t=2"),
        (("s=1; Path=/", "s=2; Path=/"), "s=2"),
        (("s=1; Path=/", "s=; Path=/; Max-Age=0"), None),
        (("s=1; Path=/", "s=1; Path=/; max-age=-5"), None),
        (("s=1; Path=/; Max-Age=60",), "s=1"),
        (("s=1; Domain=site.test",), "s=1"),
        (("s=1; Domain=.site.test",), "s=1"),
        (("s=1; Domain=other.test",), None),
        (("s=1; Domain=test",), "s=1"),  # it stays with the origin whatever it claims
        (("s=",), "s="),
        (("=1",), None),
        (("s",), None),
        (("s p=1",), None),
        (("s=\u00e9",), None),
        (("s=" + "x" * 5000,), None),
    ],
)
def test_what_is_sent_back(values: tuple[str, ...], sent: str | None) -> None:
    assert after(*values) == sent


@pytest.mark.parametrize("origin", ["http://site.test", "https://site.test:8443", "https://www.site.test"])
def test_nothing_crosses_to_another_origin(origin: str) -> None:
    assert after("s=1; Path=/", origin=origin) is None


def test_the_default_path_is_the_folder_of_the_page() -> None:
    assert after("s=1", path="/a/b/c", ask="/a/b/d") == "s=1"
    assert after("s=1", path="/a/b/c", ask="/a/bc") is None
    assert after("s=1", path="/a", ask="/z") == "s=1"


def test_the_number_of_cookies_is_bounded() -> None:
    sent = after(*[f"c{n}=1; Path=/" for n in range(500)])
    assert sent is not None
    assert sent.count("=") == 50


@given(st.lists(st.text(max_size=60), max_size=5))
def test_whatever_a_server_sends_the_header_is_one_clean_line(values: list[str]) -> None:
    sent = after(*values)
    assert sent is None or (sent.isascii() and sent.isprintable())
