"""One render as HTTP Archive 1.2, with what the gate made of it under ``log._forage`` (pure).

One entry a hop. No headers, cookies or bodies: what a render showed is which URLs, when and with which outcome. Format: HAR 1.2.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from forage.mirror.gate import Assessment
from forage.mirror.leaks import RequestClass, Sighting
from forage.mirror.probe import RenderReport, RequestRecord

__all__ = ["findings_members", "har_document"]

_UNKNOWN: Final = -1


def har_document(key: str, iteration: int, report: RenderReport, assessment: Assessment, *, now: str) -> dict[str, Any]:
    """The record of one render."""
    seen = [(r, s) for r, s in zip(report.requests, assessment.sightings, strict=True) if s.kind is not RequestClass.INERT]
    browser = {} if report.browser is None else {"browser": dict(zip(("name", "version"), _named(report.browser), strict=True))}
    return {
        "log": {
            "version": "1.2",
            "creator": {"name": "forage", "version": _own_version()},
            **browser,
            "pages": [{"startedDateTime": now, "id": "page", "title": key, "pageTimings": {"onContentLoad": _UNKNOWN, "onLoad": _UNKNOWN}}],
            "entries": [_entry(record, now) for record, _ in seen],
            "_forage": {
                "key": key,
                "iter": iteration,
                "observed": len(report.requests),
                "requests": [_request(record, sighting) for record, sighting in seen],
                **findings_members(assessment),
            },
        }
    }


def findings_members(assessment: Assessment) -> dict[str, Any]:
    """The lists of one assessment, as a person or another program reads them."""
    found = assessment.findings
    return {
        "csp": list(assessment.csp),
        "worklist": [entry.key for entry in assessment.worklist],
        "unresolved": list(assessment.unresolved),
        "hardResidual": list(assessment.hard),
        "allowedEscapes": list(found.allowed),
        "unmatchedEscapes": list(found.unmatched),
        "incompleteClosure": list(assessment.incomplete),
        "unlocalized": list(assessment.unlocalized),
        "corrupt": list(assessment.corrupt),
        "stale": list(assessment.stale),
        "terminal": list(assessment.terminal),
        "sanctionedCsp": list(assessment.sanctioned),
        "navigations": list(assessment.navigations),
        "dropped": [*found.beacons, *found.unfetchable],
    }


def _request(record: RequestRecord, sighting: Sighting) -> dict[str, Any]:
    held = {None: "n/a", True: "hit", False: "miss"}[sighting.held]
    members: dict[str, Any] = {"url": sighting.url, "origin": "local" if sighting.local else "non-local", "corpus": held}
    optional = {"resourceType": sighting.resource_type, "key": sighting.key, "initiator": record.initiator}
    return members | {name: value for name, value in optional.items() if value is not None} | {"class": sighting.kind.value}


def _entry(record: RequestRecord, now: str) -> dict[str, Any]:
    milliseconds = _UNKNOWN if record.seconds is None else round(record.seconds * 1000, 3)
    comment = {} if record.comment is None else {"comment": record.comment}
    error = {} if record.failure is None else {"_error": record.failure}
    return {
        "pageref": "page",
        "startedDateTime": record.started_at or now,
        "time": max(milliseconds, 0),
        "request": {
            "method": record.method,
            "url": record.url,
            "httpVersion": "HTTP/1.1",
            "cookies": [],
            "headers": [],
            "queryString": [],
            "headersSize": _UNKNOWN,
            "bodySize": _UNKNOWN,
        },
        "response": {
            "status": record.status or 0,
            "statusText": "",
            "httpVersion": "HTTP/1.1",
            "cookies": [],
            "headers": [],
            "content": {"size": _UNKNOWN, "mimeType": ""},
            "redirectURL": "",
            "headersSize": _UNKNOWN,
            "bodySize": _UNKNOWN,
            **error,
        },
        "cache": {},
        "timings": {"send": _UNKNOWN, "wait": milliseconds, "receive": _UNKNOWN},
        **comment,
    }


def _named(browser: str) -> tuple[str, str]:
    name, _, number = browser.partition("/")
    return name, number


def _own_version() -> str:
    try:
        return version("forage-crawl")
    except PackageNotFoundError:
        return "0"
