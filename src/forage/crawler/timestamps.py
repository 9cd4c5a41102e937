"""Modification times of sitemaps and feeds to UTC, at the precision they were given in (pure).

W3C Date and Time Formats (a profile of ISO 8601, used by sitemaps and Atom) and RFC 822 dates as RSS writes them. A time without a zone
names no instant and has no value.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from email.utils import parsedate_to_datetime

__all__ = ["rfc822_instant", "w3c_instant"]

_LONGEST = 64
_W3C = re.compile(
    r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2})(?:T([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]+)?)?(?:Z|([+-])([0-9]{2}):([0-9]{2})))?)?)?"
)


def w3c_instant(text: str) -> str | None:
    """``YYYY``, ``YYYY-MM``, ``YYYY-MM-DD``, or an instant as ``YYYY-MM-DDTHH:MM:SSZ``; None for what is no such date."""
    text = text.strip()
    match = _W3C.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    year, month, day, hour, minute, second, sign, zone_hours, zone_minutes = match.groups()
    try:
        moment = datetime(int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=UTC)
        if hour is None:
            return text
        if sign is not None:
            offset = timedelta(hours=int(zone_hours), minutes=int(zone_minutes))
            moment = moment.replace(tzinfo=timezone(-offset if sign == "-" else offset))
        return _instant(moment)
    except (ValueError, OverflowError):
        return None


def rfc822_instant(text: str) -> str | None:
    """An RFC 822 date with a zone as ``YYYY-MM-DDTHH:MM:SSZ``, else None."""
    if len(text) > _LONGEST:
        return None
    try:
        moment = parsedate_to_datetime(text.strip())
        return None if moment.tzinfo is None else _instant(moment)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _instant(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")
