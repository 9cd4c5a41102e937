"""The heuristic that says whether a page needs a browser."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.snapshots import looks_like_js_shell

SCRIPT = "<script></script>"


def markup(length: int, visible: str = "") -> str:
    """A paragraph of that many units in all."""
    return f"<p {'x' * (length - len(visible) - 8)}>{visible}</p>"


@pytest.mark.parametrize("html", ["", " \n\t", "\ufeff\u2028"])
def test_nothing_is_a_shell(html: str) -> None:
    assert looks_like_js_shell(html)


@pytest.mark.parametrize(
    ("html", "shell"),
    [
        (SCRIPT, True),
        ("<SCRIPT SRC=x></SCRIPT>", True),
        ("<scripty></scripty>", False),
        ('<div id="root"></div>', True),
        ("<div class=x id='App-main'></div>", True),
        ("<DIV ID=__next>", True),
        ("<div data-id=__nuxt>", True),  # any attribute that ends in id at a word boundary
        ("<div xid=root>", False),
        ("<div id = root>", False),
        ("<divx id=root>", False),
        ("<div><b id=root>", False),
        ("<div <b id=root>", True),
        ("<body ng-app>", True),
        ("<body class=x data-reactroot-x>", True),
        ("<body xng-app>", False),
        ("<body ng-apps>", False),
        ("<bodyx ng-app>", False),
        ("<ſcript>", False),
    ],
)
def test_markers(html: str, shell: bool) -> None:
    assert looks_like_js_shell(html) is shell


def test_with_a_marker_eighty_units_of_text_are_a_shell() -> None:
    assert looks_like_js_shell(SCRIPT + "a" * 80)
    assert not looks_like_js_shell(SCRIPT + "a" * 81)
    assert looks_like_js_shell(SCRIPT + "😀" * 40)
    assert not looks_like_js_shell(SCRIPT + "😀" * 41)
    assert not looks_like_js_shell("a" * 80)


def test_without_a_marker_less_than_eight_percent_of_two_hundred_units_are_a_shell() -> None:
    assert looks_like_js_shell(markup(200))
    assert not looks_like_js_shell(markup(199))
    assert looks_like_js_shell(markup(200, "v" * 15))
    assert not looks_like_js_shell(markup(200, "v" * 16))
    assert looks_like_js_shell(markup(4_000, "v" * 160))
    assert not looks_like_js_shell(markup(4_000, "v" * 161))


@pytest.mark.parametrize(
    ("html", "visible"),
    [
        ("<!-- <p>" + "x" * 90 + "-->", 0),
        ("<!-->" + "x" * 90, 90),  # a comment that never ends is text, but for its tag
        ("<style>" + "x" * 90 + "</STYLE>", 0),
        ("<script>" + "x" * 90 + "</style>", 0),  # the first closing tag of any of the names
        ("<svg " + "x" * 90 + "</svg>", 0),
        ("<script>" + "x" * 90, 90),
        ("<script>" + "x" * 90 + "</script >", 90),
        ("< p>" + "x" * 80, 80),
        ("<>" + "x" * 80, 82),
        ("&nbsp;&#160;&NBSP;" * 30, 0),
        ("&amp;" * 80, 80),
        ("&#12;&#x1f;" * 40, 80),
        ("&#x;" * 30, 120),
        ("&a1;" * 30, 120),
        ("a \n\t\u00a0\ufeffb" * 40, 119),
        ("\x85" * 90, 90),
    ],
)
def test_what_counts_as_visible(html: str, visible: int) -> None:
    """The marker makes eighty units the border."""
    text = f"<div id=app></div>{html}"
    room = 80 - visible
    if room >= 0:
        padding = "" if not room else " " + "v" * (room - 1) if visible else "v" * room
        assert looks_like_js_shell(text + padding)
        assert not looks_like_js_shell(text + padding + "vv")
    else:
        assert not looks_like_js_shell(text)


@given(st.text("<>!-/ script div id=root&nbsp;#1\n", max_size=60))
def test_any_text_has_an_answer(html: str) -> None:
    assert looks_like_js_shell(html) in {True, False}


@pytest.mark.parametrize("unit", ["<", "<!--", "<script", "<div", "<div id=x", "&a", "<>", "<body ", "</script>", "<svg>", " "])
def test_hostile_texts_take_time_in_proportion_to_their_size(unit: str) -> None:
    def seconds(times: int) -> float:
        start = time.process_time()
        looks_like_js_shell(unit * times)
        return time.process_time() - start

    small = min(seconds(10_000) for _ in range(3))
    assert min(seconds(80_000) for _ in range(2)) < 8 * small * 6 + 0.05  # quadratic would be 64 times
