"""When to ask again, and how long to wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.errors import FetchErrorKind
from forage.fetch.retry import MAX_BACKOFF_SECONDS, backoff_seconds, may_retry, read_retry_after

NOW = datetime(2026, 9, 1, 12, 0, 0, tzinfo=UTC)


def http(seconds: float) -> str:
    return format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("value", "date", "seconds"),
    [
        ("120", None, 120.0),
        (" 7\t", None, 7.0),
        ("0", None, 0.0),
        (http(30), None, 30.0),
        (http(30), http(0), 30.0),
        (http(30 + 3600), http(3600), 30.0),  # their clock is an hour ahead
        (http(30 - 3600), http(-3600), 30.0),  # or behind: without their Date this would be no wait at all
        (http(30), "nonsense", 30.0),
        (http(-30), None, 0.0),
        ("Tuesday, 01-Sep-26 12:00:30 GMT", None, 30.0),
        ("Tue Sep  1 12:00:30 2026", None, 30.0),
        ("Tue, 01 Sep 2026 14:00:30 +0200", None, 30.0),
    ],
)
def test_seconds_and_dates_are_read(value: str, date: str | None, seconds: float) -> None:
    found = read_retry_after(value, date=date, now=NOW)
    assert found is not None
    assert found.seconds == seconds
    assert found.skewed is (date in (http(3600), http(-3600)))


@pytest.mark.parametrize(
    "value", [None, "", "soon", "-5", "1.5", "1e3", "5, 6", "٣", "Tue, 31 Feb 2026 00:00:00 GMT", "9" * 30, "x" * 100_000]
)
def test_what_is_neither_is_no_wish(value: str | None) -> None:
    assert read_retry_after(value, date=None, now=NOW) is None


@pytest.mark.parametrize("moment", ["Fri, 31 Dec 9999 23:59:59 -2359", "Fri, 31 Dec 9999 23:00:00 -0200"])
def test_date_that_utc_has_no_name_for_is_no_wish_and_no_exception(moment: str) -> None:
    assert read_retry_after(moment, date=None, now=NOW) is None
    found = read_retry_after(http(30), date=moment, now=NOW)
    assert found is not None
    assert found.seconds == 30.0


@given(st.text(max_size=80), st.text(max_size=80))
def test_any_text_is_read(value: str, date: str) -> None:
    found = read_retry_after(value, date=date, now=NOW)
    assert found is None or found.seconds >= 0


def test_back_off_doubles_with_full_jitter_up_to_a_minute() -> None:
    assert [backoff_seconds(n, lambda: 0.5) for n in (1, 2, 3)] == [0.25, 0.5, 1.0]
    assert backoff_seconds(1, lambda: 0.0) == 0.0
    assert backoff_seconds(1, lambda: 0.9999) == 0.499
    assert backoff_seconds(10_000, lambda: 1.0) == MAX_BACKOFF_SECONDS


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        (FetchErrorKind.HTTP_ERROR, 429, True),
        (FetchErrorKind.HTTP_ERROR, 500, True),
        (FetchErrorKind.HTTP_ERROR, 599, True),
        (FetchErrorKind.HTTP_ERROR, 600, False),
        (FetchErrorKind.HTTP_ERROR, 404, False),
        (FetchErrorKind.HTTP_ERROR, 999, False),
        (FetchErrorKind.TIMEOUT, None, True),
        (FetchErrorKind.NETWORK, None, True),
        (FetchErrorKind.INCOMPLETE_BODY, 200, True),
        (FetchErrorKind.PROTOCOL, None, False),
        (FetchErrorKind.DECODE_ERROR, 200, False),
        (FetchErrorKind.EGRESS_DENIED, None, False),
        (FetchErrorKind.RESPONSE_TOO_LARGE, 200, False),
        (FetchErrorKind.HOST_PAUSED, None, False),
    ],
)
def test_only_what_may_pass_is_tried_again(kind: FetchErrorKind, status: int | None, expected: bool) -> None:
    assert may_retry(kind, status) is expected
