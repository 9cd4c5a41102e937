"""What a page asked for, and what that means for its mirror (pure).

Owns the classes of requests, the mapping of a leak to the capture that is missing, and the filter for scripted console lines. It knows no
sidecar: whether a missing capture is new, terminal or held but unlocalised is the gate's business (``gate``).
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from enum import StrEnum
from typing import Final

import attrs
from ada_url import URL

from forage.mirror.keys import RAW_FLAGS, find_held, is_archive_family, parse_wayback_path, parse_wayback_url
from forage.mirror.originals import is_beacon, is_fetchable
from forage.mirror.policy import EscapePolicy
from forage.mirror.sidecar import DynamicEntry

__all__ = [
    "Findings",
    "RequestClass",
    "Sighting",
    "classify_request",
    "gather",
    "infer_flag",
    "is_csp_violation",
    "map_dangling",
    "map_foreign",
    "quoted_url",
    "url_origin",
    "url_target",
]

_INERT: Final = frozenset(["data:", "blob:", "about:", "filesystem:", "chrome:", "chrome-extension:"])
_FLAG_OF_TYPE: Final = {"stylesheet": "cs_", "script": "js_", "image": "im_", "imageset": "im_"}
_REFUSED: Final = re.compile(r"content security policy|refused to (?:load|connect|execute|apply|frame)", re.ASCII | re.IGNORECASE)
_QUOTED_URL: Final = re.compile(r"""["'](https?://[^"'\s]+)["']""", re.ASCII)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class RequestClass(StrEnum):
    """What one request is to a mirror."""

    LOCAL_HIT = "local-hit"
    LOCAL_NOISE = "local-noise"
    MISSING_LOCAL = "missing-local"
    MISSING_FOREIGN = "missing-foreign"
    BEACON = "beacon-dropped"
    UNFETCHABLE = "unfetchable-dropped"
    CHROME = "chrome"
    ALLOWED_ESCAPE = "allowed-escape"
    UNMATCHED_ESCAPE = "unmatched-escape"
    UNPARSEABLE = "unparseable"
    INERT = "inert-or-unparseable"


@attrs.frozen(kw_only=True)
class Sighting:
    """One request, judged. ``key`` and ``flag`` name the capture that it asks for; ``held`` is None where that makes no sense."""

    kind: RequestClass
    url: str
    resource_type: str | None = None
    local: bool = False
    held: bool | None = None
    key: str | None = None
    flag: str | None = None


@attrs.frozen(kw_only=True)
class Findings:
    """The leaks of one render. ``entries`` are missing captures, each key once; ``foreign`` every capture URL asked of the archive."""

    entries: tuple[DynamicEntry, ...] = ()
    foreign: tuple[tuple[str, str], ...] = ()
    allowed: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    chrome: tuple[str, ...] = ()
    unparseable: tuple[str, ...] = ()
    beacons: tuple[str, ...] = ()
    unfetchable: tuple[str, ...] = ()


def _parse(url: str) -> URL | None:
    try:
        return URL(_SURROGATE.sub("\ufffd", url))
    except ValueError:
        return None


def url_origin(url: str) -> str:
    """The origin of a URL, empty when it is none."""
    parsed = _parse(url)
    return "" if parsed is None else parsed.origin


def url_target(url: str) -> str:
    """Path and query as they go on the wire, an empty query's mark included; never the fragment."""
    parsed = _parse(url)
    return "" if parsed is None else _target(parsed)


def _target(parsed: URL) -> str:
    bare = "?" if not parsed.search and parsed.href.partition("#")[0].endswith("?") else ""
    return parsed.pathname + parsed.search + bare


def infer_flag(own: str | None, resource_type: str | None) -> str:
    """The flag to fetch a child with: its own where that is a raw one, else by what the browser wanted."""
    return own if own in RAW_FLAGS else _FLAG_OF_TYPE.get((resource_type or "").lower(), "oe_")


def classify_request(url: str, resource_type: str | None, *, origin: str, held: Container[str], policy: EscapePolicy) -> Sighting:
    """Judge one network record of a page that was served from ``origin`` by a mirror that holds ``held``."""
    parsed = _parse(url)
    if parsed is None or parsed.protocol in _INERT:
        return Sighting(kind=RequestClass.INERT, url=url, resource_type=resource_type)
    if parsed.origin != origin:
        return map_foreign(url, resource_type, policy)
    found = find_held(_target(parsed), held)
    if found is None:
        return Sighting(kind=RequestClass.LOCAL_NOISE, url=url, resource_type=resource_type, local=True)
    capture, hit = found
    if hit:
        return Sighting(kind=RequestClass.LOCAL_HIT, url=url, resource_type=resource_type, local=True, held=True, key=capture.key)
    return map_dangling(url, resource_type)


def map_dangling(url: str, resource_type: str | None) -> Sighting:
    """A local capture URL that the mirror does not hold: what is missing."""
    parsed = _parse(url)
    capture = None if parsed is None else parse_wayback_path(_target(parsed))
    if capture is None:
        return Sighting(kind=RequestClass.UNPARSEABLE, url=url, resource_type=resource_type, local=True)
    return Sighting(
        kind=_mirrorable(capture.original) or RequestClass.MISSING_LOCAL,
        url=url,
        resource_type=resource_type,
        local=True,
        held=False,
        key=capture.key,
        flag=infer_flag(capture.flag, resource_type),
    )


def map_foreign(url: str, resource_type: str | None, policy: EscapePolicy) -> Sighting:
    """A request to another origin: a capture, the archive's own, or a third party."""
    capture = parse_wayback_url(url)
    if capture is not None:
        kind = _mirrorable(capture.original) or RequestClass.MISSING_FOREIGN
        return Sighting(kind=kind, url=url, resource_type=resource_type, key=capture.key, flag=infer_flag(capture.flags, resource_type))
    parsed = _parse(url)
    if parsed is None:
        kind = RequestClass.UNPARSEABLE
    elif is_archive_family(parsed.hostname):
        kind = RequestClass.CHROME
    else:
        kind = RequestClass.UNMATCHED_ESCAPE if policy.match(url) is None else RequestClass.ALLOWED_ESCAPE
    return Sighting(kind=kind, url=url, resource_type=resource_type)


def _mirrorable(original: str) -> RequestClass | None:
    """Why a capture is never fetched, None when it may be."""
    if is_beacon(original):
        return RequestClass.BEACON
    return None if is_fetchable(original) else RequestClass.UNFETCHABLE


def gather(sightings: Iterable[Sighting], first_seen: str | None) -> Findings:
    """The findings of a render. Local sightings come first, so that they fix the flag of a key that was seen both ways."""
    seen = sorted(sightings, key=lambda sighting: not sighting.local)
    entries: dict[str, DynamicEntry] = {}
    for sighting in seen:
        if sighting.kind in {RequestClass.MISSING_LOCAL, RequestClass.MISSING_FOREIGN} and sighting.key is not None:
            entries.setdefault(sighting.key, DynamicEntry(key=sighting.key, flag=sighting.flag, first_seen=first_seen))

    def urls(kind: RequestClass) -> tuple[str, ...]:
        return tuple(sighting.url for sighting in seen if sighting.kind is kind)

    return Findings(
        entries=tuple(entries.values()),
        foreign=tuple((s.key, s.url) for s in seen if s.kind is RequestClass.MISSING_FOREIGN and s.key is not None),
        allowed=urls(RequestClass.ALLOWED_ESCAPE),
        unmatched=urls(RequestClass.UNMATCHED_ESCAPE),
        chrome=urls(RequestClass.CHROME),
        unparseable=urls(RequestClass.UNPARSEABLE),
        beacons=urls(RequestClass.BEACON),
        unfetchable=urls(RequestClass.UNFETCHABLE),
    )


def is_csp_violation(message: str) -> bool:
    """True for a console line that reports a violation. Wording changes between browsers: for scripted lines only."""
    return _REFUSED.search(message) is not None


def quoted_url(message: str) -> str | None:
    """The URL that a console line is about."""
    found = _QUOTED_URL.search(message)
    return None if found is None else found[1]
