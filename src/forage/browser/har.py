"""Visits as an HTTP Archive, version 1.2 (pure).

One page a visit, one entry a hop. No header, cookie or body is in it: it says what was asked for, when, and what became of it. What the
guard refused has status 0 and says so in ``_error``; what only the guard saw has a comment. Format: HAR 1.2, whose unknown numbers are -1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from ada_url import URL, URLSearchParams

from forage._version import __version__
from forage.browser.request_log import RequestEntry, RequestOutcome

if TYPE_CHECKING:
    from forage.browser.visit import Visit

__all__ = ["har_document"]

_UNKNOWN: Final = -1
_PROTOCOLS: Final = {"h2": "HTTP/2.0", "h3": "HTTP/3.0", "http/1.0": "HTTP/1.0"}


def har_document(visits: Iterable[Visit]) -> dict[str, Any]:
    """The archive of these visits, as an object for JSON."""
    visits = tuple(visits)
    facts = next((visit.browser for visit in visits if visit.browser is not None), None)
    name, _, number = ("" if facts is None else facts.product).partition("/")
    log: dict[str, Any] = {"version": "1.2", "creator": {"name": "forage", "version": __version__}}
    if facts is not None:
        log["browser"] = {"name": name, "version": number}
    log["pages"] = [_page(visit, f"page_{number}") for number, visit in enumerate(visits, 1)]
    log["entries"] = [
        _entry(entry, f"page_{number}", visit.started_at) for number, visit in enumerate(visits, 1) for entry in visit.requests
    ]
    return {"log": log}


def _page(visit: Visit, name: str) -> dict[str, Any]:
    page: dict[str, Any] = {
        "startedDateTime": visit.started_at,
        "id": name,
        "title": visit.final_url or visit.url,
        "pageTimings": {"onContentLoad": _UNKNOWN, "onLoad": _UNKNOWN},
        "_outcome": visit.outcome.value,
        "_viewport": str(visit.viewport),
    }
    if visit.error is not None:
        page["_error"] = visit.error
    if visit.left_for:
        page["_leftFor"] = list(visit.left_for)
    return page


def _entry(entry: RequestEntry, page: str, page_started: str) -> dict[str, Any]:
    milliseconds = None if entry.seconds is None else round(entry.seconds * 1000, 3)
    protocol = _PROTOCOLS.get(entry.protocol.lower(), "HTTP/1.1")
    row: dict[str, Any] = {
        "pageref": page,
        "startedDateTime": entry.started_at or page_started,
        "time": milliseconds or 0,
        "request": {
            "method": entry.method,
            "url": entry.url,
            "httpVersion": protocol,
            "cookies": [],
            "headers": [],
            "queryString": _query(entry.url),
            "headersSize": _UNKNOWN,
            "bodySize": _UNKNOWN,
        },
        "response": _response(entry, protocol),
        "cache": {},
        # Only the whole is known. It stands where the format wants a number that is not -1.
        "timings": {
            "blocked": _UNKNOWN,
            "dns": _UNKNOWN,
            "connect": _UNKNOWN,
            "ssl": _UNKNOWN,
            "send": 0,
            "wait": milliseconds or 0,
            "receive": 0,
        },
        "_outcome": entry.outcome.value,
    }
    row |= {} if entry.address is None else {"serverIPAddress": entry.address}
    more = {"_resourceType": entry.resource_type, "_initiator": entry.initiator, "_session": entry.session}
    row |= {name: value for name, value in more.items() if value}
    comment = _comment(entry)
    return row if comment is None else row | {"comment": comment}


def _response(entry: RequestEntry, protocol: str) -> dict[str, Any]:
    status = entry.status if entry.outcome is RequestOutcome.ANSWERED and entry.status is not None else 0
    row: dict[str, Any] = {
        "status": status,
        "statusText": entry.status_text if status else "",
        "httpVersion": protocol,
        "cookies": [],
        "headers": [],
        "content": {"size": _UNKNOWN, "mimeType": entry.mime_type},
        "redirectURL": entry.redirect_url,
        "headersSize": _UNKNOWN,
        "bodySize": _UNKNOWN if entry.body_bytes is None else entry.body_bytes,
    }
    error = _error(entry)
    return row if error is None else row | {"_error": error}


def _error(entry: RequestEntry) -> str | None:
    if entry.outcome is RequestOutcome.ANSWERED:
        return entry.failure
    reasons = (entry.code, entry.rule, entry.blocked, entry.failure)
    return ": ".join([entry.outcome.value, *(reason for reason in reasons if reason)])


def _comment(entry: RequestEntry) -> str | None:
    if not entry.in_browser:
        return "seen by the guard only; the browser told nothing of it"
    if entry.outcome is RequestOutcome.NAMED:
        return "named by the document; this browser does not ask for it"
    return "from the browser's cache" if entry.from_cache else None


def _query(url: str) -> list[dict[str, str]]:
    if "?" not in url or not URL.can_parse(url):
        return []
    return [{"name": name, "value": value} for name, value in URLSearchParams(URL(url).search).items()]
