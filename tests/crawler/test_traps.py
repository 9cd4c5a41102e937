"""Budgets against endless URL spaces."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forage.crawler.traps import TrapBudget, TrapReason

NOW = date(2026, 11, 30)
SITE = "https://site.test"


def admit(path: str, **options: int) -> TrapReason | None:
    return TrapBudget(now=NOW, **options).admit(SITE + path)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/" + "/".join("abcdefghijklmnopqrst"), None),
        ("/" + "/".join("abcdefghijklmnopqrst") + "/", None),
        ("/" + "/".join("abcdefghijklmnopqrstu"), TrapReason.DEEP_PATH),
        ("/a/a/b", None),
        ("/a/a/a", TrapReason.REPEATED_SEGMENTS),
        ("/x/a/b/a/b", None),
        ("/x/a/b/a/b/a", None),
        ("/x/a/b/a/b/a/b", TrapReason.REPEATED_SEGMENTS),
        ("/a/b/c/a/b/c/a/b/c/d", TrapReason.REPEATED_SEGMENTS),
        ("//", None),
        ("/?" + "&".join(f"k{i}" for i in range(20)), None),
        ("/?" + "&".join(f"k{i}" for i in range(21)), TrapReason.MANY_PARAMETERS),
        ("/?" + "&" * 50, None),
        ("/?a=1&a=1", None),
        ("/?a=1&b=2&a=1&a=1", TrapReason.REPEATED_PARAMETERS),
        ("/?a=1&a=2&a=3", None),
        ("/?u=%252F", None),
        ("/?u=%25252F", None),
        ("/?u=%2525252F", TrapReason.ENCODED_AGAIN),
        ("/a%25%25%25b", TrapReason.ENCODED_AGAIN),
        ("/?amp;amp;a=1", None),
        ("/?amp;amp;amp;a=1", TrapReason.ENCODED_AGAIN),
        ("/?amp%3Bamp%3Bamp%3Ba=1", TrapReason.ENCODED_AGAIN),
        ("/" + "a" * 2030, None),
        ("/" + "a" * 2048, TrapReason.LONG_URL),
        ("", None),
    ],
)
def test_shape_of_a_url(path: str, reason: TrapReason | None) -> None:
    assert admit(path) == reason


@pytest.mark.parametrize(
    ("path", "far"),
    [
        ("/cal?year=2028&month=11", False),
        ("/cal?year=2028&month=12", True),
        ("/cal?year=2028&month=11&day=30", False),
        ("/cal?d=30&m=11&y=2028", False),
        ("/cal?Y=2028&M=12", True),
        ("/cal?year=1969&month=12", True),
        ("/cal?year=1969", False),
        ("/cal?year=2999&month=13", False),
        ("/cal?year=12345&month=1", False),
        ("/cal?date=2029-01", True),
        ("/cal?date=2026-01-31", False),
        ("/cal/2029-01-31", True),
        ("/cal/1969-12-31/", True),
        ("/cal/2026-13-45", False),
        ("/thread/1234/2", False),
        ("/rfc/2119/3", False),
    ],
)
def test_dates_far_from_now(path: str, far: bool) -> None:
    assert (admit(path) is TrapReason.FAR_DATE) is far


def test_dated_paths_are_a_calendar_once_their_folder_held_a_plausible_date() -> None:
    budget = TrapBudget(now=NOW)
    assert budget.admit(f"{SITE}/cal/2026/11") is None
    assert budget.admit(f"{SITE}/cal/2028/12") is TrapReason.FAR_DATE
    assert budget.admit(f"{SITE}/cal/1969/12/31") is TrapReason.FAR_DATE
    assert budget.admit(f"{SITE}/cal/1970/1") is None
    assert budget.admit(f"{SITE}/thread/1234/2") is None
    assert budget.admit("https://other.test/cal/2028/12") is None


def test_queries_of_one_path_are_counted_and_others_are_not_starved() -> None:
    budget = TrapBudget(now=NOW, per_path_query_budget=2)
    assert [budget.admit(f"{SITE}/list?page={n}") for n in range(4)] == [None, None, *[TrapReason.PATH_QUERY_BUDGET] * 2]
    assert budget.admit(f"{SITE}/list") is None
    assert budget.admit(f"{SITE}/other?page=1") is None
    assert budget.admit("https://other.test/list?page=9") is None


def test_entries_of_one_folder_are_counted_at_every_level() -> None:
    budget = TrapBudget(now=NOW, per_dir_budget=2)
    assert budget.admit(f"{SITE}/d/1/a") is None
    assert budget.admit(f"{SITE}/d/2/a?q") is None
    assert budget.admit(f"{SITE}/d/3/a") is TrapReason.DIRECTORY_BUDGET
    assert budget.admit(f"{SITE}/d/2/a?q=2") is None  # the same entry
    assert budget.admit(f"{SITE}/d/2/") is None
    assert budget.admit(f"{SITE}/d/2/b") is None
    assert budget.admit(f"{SITE}/d/2/c") is TrapReason.DIRECTORY_BUDGET
    assert budget.admit(f"{SITE}/e") is None


def test_what_is_refused_leaves_no_trace() -> None:
    budget = TrapBudget(now=NOW, per_path_query_budget=1, per_dir_budget=1)
    for n in range(100):
        assert budget.admit(f"{SITE}/a/b/a/b/a/b?{n}") is TrapReason.REPEATED_SEGMENTS
    assert budget.admit(f"{SITE}/x?1") is None
    assert budget.admit(f"{SITE}/y?1") is TrapReason.DIRECTORY_BUDGET


@given(st.text(alphabet="abc/?&=%25;-2026.", max_size=60))
def test_any_path_is_admitted_or_refused(path: str) -> None:
    budget = TrapBudget(now=NOW, per_dir_budget=5)
    assert budget.admit(f"{SITE}/{path}") in [None, *TrapReason]


PIECES = [
    "a",
    "b",
    "2026",
    "1999",
    "2026-11",
    "2026-11-31",
    "12",
    "amp;",
    "amp%3B",
    "AMP;",
    "%25",
    "25",
    "%",
    "-",
    "x2026",
    "",
    "?",
    "&",
    "year=",
    "m=1",
]


@given(
    st.lists(
        st.lists(st.sampled_from(PIECES), max_size=12).map("/".join) | st.lists(st.sampled_from(PIECES), max_size=8).map("".join),
        max_size=8,
    )
)
@example(["2026/11", "2026/12/1", "2026/13"])
@example(["a/a/a", "a/b/a/b/a/b", "amp;amp;amp;", "%25%25%25", "%252525"])
def test_unremarkable_urls_are_judged_as_all_others(paths: list[str]) -> None:
    short, whole = TrapBudget(now=NOW), TrapBudget(now=NOW, per_dir_budget=1_000_000)
    for path in paths:
        assert short.admit(f"{SITE}/{path}") == whole.admit(f"{SITE}/{path}")
