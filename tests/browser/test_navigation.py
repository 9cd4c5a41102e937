"""Which documents the root frame may load, and where a page tried to go."""

from __future__ import annotations

import pytest

from forage.browser.navigation import Navigation
from forage.egress import EgressPolicy

START = "http://site.example/"


def navigation(**policy: object) -> Navigation:
    made = Navigation(EgressPolicy(**policy))  # type: ignore[arg-type]  # the options of a test
    made.begin(made.judged(START))
    return made


def test_the_document_itself_and_its_redirects_are_loaded() -> None:
    made = navigation()
    assert made.judge("N", START) is None
    assert made.judge("N", "http://site.example/there") is None
    assert made.judge("N", "https://site.example/there") is None
    made.commit("N", "https://site.example/there")
    assert (made.shown, made.left_for, made.error) == ("N", [], None)


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("http://other.example/", "REDIRECT_CROSS_HOST"),
        ("http://169.254.169.254/", "REDIRECT_CROSS_HOST"),
        ("http://user:pass@site.example/", "REDIRECT_INVALID"),
        (START, "REDIRECT_LOOP"),
    ],
)
def test_a_redirect_is_judged_as_the_guard_judges_it(target: str, code: str) -> None:
    made = navigation()
    made.judge("N", START)
    assert made.judge("N", target) == "redirect"
    assert made.code in {code, "CREDENTIALS"}
    assert made.left_for == []


def test_a_redirect_to_another_host_is_loaded_where_the_policy_opens_it() -> None:
    made = navigation(redirect_hosts="any")
    made.judge("N", START)
    assert made.judge("N", "http://other.example/") is None


def test_after_the_document_is_shown_every_other_one_is_refused_and_noted_once() -> None:
    made = navigation()
    made.judge("N", START)
    made.commit("N", START)
    assert made.judge("M", "http://site.example/next") == "navigation"
    assert made.judge("O", "http://site.example/next") == "navigation"
    assert made.judge("N", "http://site.example/again") == "navigation"
    assert made.left_for == ["http://site.example/next", "http://site.example/again"]


def test_another_document_before_the_first_is_shown_is_refused_too() -> None:
    made = navigation()
    made.judge("N", START)
    assert made.judge("M", "http://site.example/next") == "navigation"


def test_a_document_without_a_request_is_noted() -> None:
    made = navigation()
    made.judge("N", START)
    made.commit("N", START)
    made.commit("B", "about:blank")
    assert (made.shown, made.left_for) == ("B", ["about:blank"])


def test_the_browsers_page_about_a_failure_is_no_document_and_may_not_try_again() -> None:
    made = navigation()
    made.judge("N", START)
    made.fail("net::ERR_EMPTY_RESPONSE")
    made.commit("N", "chrome-error://chromewebdata/")
    assert made.judge("M", START) == "navigation"
    assert (made.shown, made.left_for, made.error) == (None, [], "net::ERR_EMPTY_RESPONSE")


def test_once_the_page_is_left_what_it_shows_counts_no_more() -> None:
    made = navigation()
    made.judge("N", START)
    made.commit("N", START)
    made.finish()
    made.commit("B", "about:blank")
    assert (made.shown, made.left_for) == ("N", [])


def test_our_own_words_for_a_failure_replace_the_browsers() -> None:
    made = navigation()
    made.fail("net::ERR_ABORTED")
    made.fail("it is a download")
    made.fail("net::ERR_FAILED")
    assert made.error == "it is a download"


def test_the_list_of_attempts_is_bounded() -> None:
    made = navigation()
    made.judge("N", START)
    made.commit("N", START)
    for number in range(1_000):
        made.judge(f"M{number}", f"http://site.example/{number}")
    assert len(made.left_for) == 200
