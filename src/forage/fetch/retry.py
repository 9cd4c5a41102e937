"""When and how long to wait before asking again (pure).

Owns the reading of Retry-After (RFC 9110 section 10.2.3), the back-off without one, and which outcomes are worth another attempt.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import attrs

from forage.errors import FetchErrorKind

__all__ = ["MAX_BACKOFF_SECONDS", "RetryAfter", "backoff_seconds", "may_retry", "read_retry_after"]

MAX_BACKOFF_SECONDS = 60.0
_SECONDS = re.compile(r"[0-9]{1,18}")
_SKEW_SECONDS = 60.0
_RETRIED = frozenset({FetchErrorKind.TIMEOUT, FetchErrorKind.NETWORK, FetchErrorKind.INCOMPLETE_BODY})


@attrs.frozen(kw_only=True)
class RetryAfter:
    """``seconds`` from the answer on; ``skewed`` says that the server's clock and ours are more than a minute apart."""

    seconds: float
    skewed: bool = False


def read_retry_after(value: str | None, *, date: str | None, now: datetime) -> RetryAfter | None:
    """How long the server asks to be left alone, or None for a missing or malformed value.

    A date is measured against the Date header of the same answer when there is one, so that a wrong clock on either side
    neither shortens nor stretches the wait; a date in the past is no wait.
    """
    if value is None:
        return None
    text = value.strip(" \t")
    if _SECONDS.fullmatch(text):
        return RetryAfter(seconds=float(text))
    until = _http_date(text)
    if until is None:
        return None
    said = _http_date(date) if date is not None else None
    skewed = said is not None and abs((said - now).total_seconds()) > _SKEW_SECONDS
    return RetryAfter(seconds=max(0.0, (until - (said or now)).total_seconds()), skewed=skewed)


def _http_date(text: str) -> datetime | None:
    if len(text) > 64:
        return None
    try:
        moment = parsedate_to_datetime(text)
        # The last day of the year 9999 in a zone of its own has no name in UTC: a server's text must not end a crawl.
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError, IndexError, TypeError):
        return None


def backoff_seconds(attempt: int, random: Callable[[], float]) -> float:
    """The pause before retry ``attempt`` (1, 2, ...): full jitter over a doubling range, in whole milliseconds, at most a minute."""
    return min(math.floor(random() * 250 * 2.0 ** min(attempt, 20)) / 1000, MAX_BACKOFF_SECONDS)


def may_retry(kind: FetchErrorKind, status: int | None) -> bool:
    """Whether asking again may help. A denial never is: policy gives the same answer again; nor is a size or a protocol error."""
    if kind is FetchErrorKind.HTTP_ERROR:
        return status is not None and (status == 429 or 500 <= status <= 599)
    return kind in _RETRIED
