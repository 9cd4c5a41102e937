"""Budgets against endless URL spaces: calendars, faceted lists, links that grow at every hop (pure).

`TrapBudget` looks at the shape of a URL and at how many of its siblings were admitted before. It is asked once for each new key, in
commit order, so its answers depend on site and policy alone. It knows nothing of pages: equal content is `soft404`'s matter.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from enum import StrEnum

from forage.crawler.urls import origin_of

__all__ = ["TrapBudget", "TrapReason"]

DEFAULT_PATH_QUERY_BUDGET = 60
MAX_SEGMENTS = 20
MAX_PARAMETERS = 20
MAX_REPEATS = 3
MAX_LENGTH = 2048
EARLIEST_YEAR = 1970
YEARS_AHEAD = 2

_YEAR = re.compile(r"[0-9]{4}")
_PART = re.compile(r"0?[1-9]|[12][0-9]|3[01]")
_ISO_DATE = re.compile(r"([0-9]{4})-([0-9]{2})(?:-([0-9]{2}))?")
# Three levels of a percent sign or ampersand that was encoded again: %252F is data, %25252F unusual, one more is growth.
_ENCODED_AGAIN = re.compile(r"%25(?:%?25){2}|(?:amp(?:;|%3B)){3}", re.IGNORECASE)

_MAYBE_DATED = re.compile(r"/[0-9]{4}[/-]")

_YEAR_NAMES = frozenset(["year", "yr", "yyyy", "y", "cal_year", "calyear"])
_MONTH_NAMES = frozenset(["month", "mon", "mo", "mm", "m", "cal_month", "calmonth"])
_DAY_NAMES = frozenset(["day", "dd", "d"])


class TrapReason(StrEnum):
    """Why a URL was taken for part of an endless space."""

    LONG_URL = "long-url"
    DEEP_PATH = "deep-path"
    REPEATED_SEGMENTS = "repeated-segments"
    MANY_PARAMETERS = "many-parameters"
    REPEATED_PARAMETERS = "repeated-parameters"
    ENCODED_AGAIN = "encoded-again"
    FAR_DATE = "far-date"
    PATH_QUERY_BUDGET = "path-query-budget"
    DIRECTORY_BUDGET = "directory-budget"


class TrapBudget:
    """Counts of what was admitted, and the shapes that are refused whatever was.

    ``now`` fixes the clock of the calendar rule (default: today, UTC). ``per_path_query_budget`` is how many queries one path may have,
    ``per_dir_budget`` how many entries one folder may have at each level below it (None: any number; then nothing is remembered for it).
    Memory grows with admitted paths and their folders only: what is refused leaves no trace.
    """

    def __init__(
        self,
        *,
        now: date | None = None,
        per_path_query_budget: int = DEFAULT_PATH_QUERY_BUDGET,
        per_dir_budget: int | None = None,
    ) -> None:
        today = datetime.now(UTC).date() if now is None else now
        self._latest = (today.year + YEARS_AHEAD, today.month, today.day)
        self._per_path = per_path_query_budget
        self._per_dir = per_dir_budget
        self._calendars: set[str] = set()
        self._queries: dict[str, int] = {}
        self._children: dict[str, int] = {}
        self._entries: set[str] = set()

    def admit(self, url: str) -> TrapReason | None:
        """None, and the URL counts from now on; or the reason why this fetch URL is refused."""
        if len(url) > MAX_LENGTH:
            return TrapReason.LONG_URL
        # Neither a query, nor a date, nor anything encoded again: most URLs, and quickly told.
        plain = "?" not in url and "%" not in url and ";" not in url and _MAYBE_DATED.search(url) is None
        if plain and self._per_dir is None:
            return _shape(url.split("/")[3:], "")
        path, _, query = url.partition("?")
        origin = origin_of(path)
        segments = path[len(origin) + 1 :].split("/")
        dated = _dates_of_path(origin, segments)
        reason = _shape(segments, query)
        if reason is None and (any(map(self._is_far, _dates_of_text(segments, query))) or any(map(self._runs_far, dated))):
            reason = TrapReason.FAR_DATE
        if reason is None and _ENCODED_AGAIN.search(url) is not None:
            reason = TrapReason.ENCODED_AGAIN
        if reason is not None:
            return reason
        if query and self._queries.get(path, 0) >= self._per_path:
            return TrapReason.PATH_QUERY_BUDGET
        if self._per_dir is not None and not self._enter(origin, segments, self._per_dir):
            return TrapReason.DIRECTORY_BUDGET
        if query:
            self._queries[path] = self._queries.get(path, 0) + 1
        self._calendars.update(folder for folder, day in dated if not self._is_far(day))
        return None

    def _is_far(self, day: tuple[int, int, int]) -> bool:
        return day[0] < EARLIEST_YEAR or day > self._latest

    def _runs_far(self, dated: tuple[str, tuple[int, int, int]]) -> bool:
        """Only a folder that has held a plausible date is a calendar: /thread/1234/2 is no month of the Middle Ages."""
        folder, day = dated
        return folder in self._calendars and self._is_far(day)

    def _enter(self, origin: str, segments: list[str], budget: int) -> bool:
        """Count each folder and the last segment as entries of their parents; all or none."""
        new: list[tuple[str, str]] = []
        parent = origin + "/"
        for at, segment in enumerate(segments):
            last = at == len(segments) - 1
            entry = parent + segment + ("" if last else "/")
            if entry not in self._entries and entry != parent:
                if self._children.get(parent, 0) >= budget:
                    return False
                new.append((parent, entry))
            parent = entry
        for parent, entry in new:
            self._entries.add(entry)
            self._children[parent] = self._children.get(parent, 0) + 1
        return True


def _shape(segments: list[str], query: str) -> TrapReason | None:
    named = segments[:-1] if segments and not segments[-1] else segments
    if len(named) < MAX_REPEATS and not query:
        return None
    if len(named) > MAX_SEGMENTS:
        return TrapReason.DEEP_PATH
    if _repeats(named):
        return TrapReason.REPEATED_SEGMENTS
    if query.count("&") >= MAX_REPEATS - 1:
        pairs = [pair for pair in query.split("&") if pair]
        if len(pairs) > MAX_PARAMETERS:
            return TrapReason.MANY_PARAMETERS
        if len(pairs) - len(set(pairs)) >= MAX_REPEATS - 1 and max(map(pairs.count, pairs)) >= MAX_REPEATS:
            return TrapReason.REPEATED_PARAMETERS
    return None


def _repeats(segments: list[str]) -> bool:
    """Whether a run of segments follows itself twice: relative links below a page that answers for every path."""
    count = len(segments)
    if count - len(set(segments)) < MAX_REPEATS - 1:
        return False
    for size in range(1, count // MAX_REPEATS + 1):
        same = 0
        for at in range(count - size):
            same = same + 1 if segments[at] == segments[at + size] else 0
            if same == size * (MAX_REPEATS - 1):
                return True
    return False


def _dates_of_path(origin: str, segments: list[str]) -> list[tuple[str, tuple[int, int, int]]]:
    """Year and month in neighbouring segments, each with the folder that they lie in. A year alone is no calendar."""
    found = []
    for at, segment in enumerate(segments[:-1]):
        if _YEAR.fullmatch(segment):
            day = segments[at + 2] if at + 2 < len(segments) else None
            found += [("/".join([origin, *segments[:at]]), date) for date in _checked(segment, segments[at + 1], day)]
    return found


def _dates_of_text(segments: list[str], query: str) -> list[tuple[int, int, int]]:
    """Dates that can be nothing else: ISO dates as segment or value, and parameters that are called year and month."""
    if not query and "-" not in "".join(segments):
        return []
    pairs = [pair.partition("=") for pair in query.split("&")]
    values = {name.lower(): value for name, _, value in reversed(pairs)}
    found = []
    for text in [*segments, *values.values()]:
        if (iso := _ISO_DATE.fullmatch(text)) is not None:
            found += _checked(iso[1], iso[2], iso[3])
    year, month, day = (next((values[name] for name in values if name in names), None) for names in (_YEAR_NAMES, _MONTH_NAMES, _DAY_NAMES))
    if year is not None and month is not None and _YEAR.fullmatch(year):
        found += _checked(year, month, day)
    return found


def _checked(year: str, month: str, day: str | None) -> list[tuple[int, int, int]]:
    """A date whose parts are in range; without a usable day, the first of the month."""
    if not _PART.fullmatch(month) or int(month) > 12:
        return []
    return [(int(year), int(month), int(day) if day is not None and _PART.fullmatch(day) else 1)]
