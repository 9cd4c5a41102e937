"""Rel values, robots directives, Link headers and refreshes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.crawler.relations import header_links, link_kind, parse_refresh, says_nofollow, says_nofollow_header


@pytest.mark.parametrize(
    ("rel", "media", "kind"),
    [
        ("canonical", None, "canonical"),
        ("CANONICAL", None, "canonical"),
        ("next", None, "next"),
        ("prev", None, "prev"),
        ("previous", None, "prev"),
        ("alternate", None, "alternate"),
        ("alternate", "text/html", "alternate"),
        ("alternate", "Application/RSS+XML; charset=utf-8", "feed"),
        ("alternate", "application/atom+xml", "feed"),
        ("alternate stylesheet", "text/css", None),
        ("amphtml", None, "alternate"),
        ("nofollow\nnext", None, "next"),
        ("shortcut icon", None, None),
        ("stylesheet", None, None),
        ("preload", None, None),
        ("dns-prefetch", None, None),
        ("next-page", None, None),
        ("", None, None),
    ],
)
def test_kind_of_a_link_by_its_tokens(rel: str, media: str | None, kind: str | None) -> None:
    assert link_kind(rel, media) == kind


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("0;url=/r", (0.0, "/r")),
        (" 5 ; URL = '/r' x", (5.0, "/r")),
        ('0;url="/r', (0.0, "/r")),
        ("0,url=/r", (0.0, "/r")),
        ("0 /r", (0.0, "/r")),
        ("0;/r", (0.0, "/r")),
        ("0;'/r'", (0.0, "/r")),
        ("0;url", (0.0, "url")),
        ("0;urls=/r", (0.0, "urls=/r")),
        (".5;url=/r", (0.0, "/r")),
        ("1.9.9;url=/r", (1.0, "/r")),
        ("99999999999999999999;url=/r", (999999999999.0, "/r")),
        ("0", None),
        ("0;", None),
        ("0; url=", None),
        ("0;url=''", None),
        (";url=/r", None),
        ("url=/r", None),
        ("-1;url=/r", None),
        ("0x;url=/r", None),
        ("٠;url=/r", None),
        ("", None),
    ],
)
def test_refresh_follows_the_html_standard(content: str, expected: tuple[float, str] | None) -> None:
    assert parse_refresh(content) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("nofollow", True),
        ("noindex, NoFollow ", True),
        ("none", True),
        ("follow", False),
        ("nofollower", False),
        ("no follow", False),
        ("", False),
    ],
)
def test_nofollow_is_a_whole_directive(content: str, expected: bool) -> None:
    assert says_nofollow(content) is expected
    assert says_nofollow_header(content, "forage") is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("forage: nofollow", True),
        ("FORAGE: noindex, nofollow", True),
        ("otherbot: noindex, nofollow", False),
        ("otherbot: noindex, forage: nofollow", True),
        ("nofollow, otherbot: noindex", True),
        ("unavailable_after: 25 Jun 2030 15:00:00 PST, nofollow", True),
        ("max-snippet: -1, none", True),
        ("otherbot: max-snippet: 3, nofollow", False),
    ],
)
def test_directives_of_a_header_count_for_the_robot_they_name(value: str, expected: bool) -> None:
    assert says_nofollow_header(value, "forage") is expected
    assert says_nofollow_header("forage: nofollow", None) is False


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('<?p=2>; rel="next", </c>;rel=canonical', [("?p=2", {"rel": "next"}), ("/c", {"rel": "canonical"})]),
        ('</a>; title="x, <y>; \\"z\\""; rel=next', [("/a", {"title": 'x, <y>; "z"', "rel": "next"})]),
        ("</a>; rel=next; rel=prev", [("/a", {"rel": "next"})]),
        ("</a> ; REL = next ;; type=text/html", [("/a", {"rel": "next", "type": "text/html"})]),
        ("</a>", [("/a", {})]),
        ("<>; rel=next", [("", {"rel": "next"})]),
        (", ,</a>;rel=next", [("/a", {"rel": "next"})]),
        ("</a;rel=next", []),
        ("/a; rel=next", []),
        ('</a>; rel="next', [("/a", {"rel": ""})]),
        ("", []),
    ],
)
def test_link_header_lines(value: str, expected: list[tuple[str, dict[str, str]]]) -> None:
    assert list(header_links(value)) == expected


@given(st.text(alphabet="<>;,=\"\\ \t\nabrel/0.'", max_size=60))
def test_readers_are_total(text: str) -> None:
    list(header_links(text))
    parse_refresh(text)
    says_nofollow_header(text, "forage")
    link_kind(text, text)
