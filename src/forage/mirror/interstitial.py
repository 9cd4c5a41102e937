"""Replies of the archive that are not the capture: wrappers, redirect notices, error pages (pure).

Only what is certain is named; the body of such a reply is never kept.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

import attrs

from forage.mirror.keys import ARCHIVE, CaptureUrl, parse_wayback_url, split_key

__all__ = ["Interstitial", "Signature", "detect_interstitial"]

_FLAGS: Final = re.ASCII | re.IGNORECASE
_ERROR_STATUS: Final = re.compile(r"[45][0-9]{2}")
_HTML: Final = re.compile(r"html", _FLAGS)
_TIMER: Final = re.compile(r"""setTimeout\(\s*["']?go(?:\(\))?["']?\s*,\s*5000\s*\)""", re.ASCII)
_LOADER: Final = re.compile(r"\bwebComponentLoaderConfig\b", re.ASCII)
_TARGET: Final = re.compile(
    r"""(["'])(?:https?://web\.archive\.org)?(/web/[0-9]{4,14}(?:[a-z]{2}_)?/http[^"'\s\\]*)\1""",
    re.ASCII,
)
_TITLE: Final = re.compile(r"<title(?:\s[^<>]*)?>\s*Wayback Machine\s*</title", _FLAGS)
_PLAYBACK: Final = re.compile(r"""<iframe(?=\s)[^<>]*?\sid\s*=\s*["']?playback\b""", _FLAGS)
_QUERY: Final = re.compile(r"[?#]")


class Signature(StrEnum):
    """What a reply is, when it is not the capture."""

    WRAPPER_STUB = "wrapper-stub"
    REDIRECT = "redirect-interstitial"
    EXTENSION_MISMATCH = "extension-mismatch"
    ARCHIVED_ERROR = "archived-error"


@attrs.frozen(kw_only=True)
class Interstitial:
    """A detection; ``target`` is where a redirect notice leads, when that can be read."""

    signature: Signature
    target: CaptureUrl | None = None


def detect_interstitial(key: str, content_type: str, body: str | None, *, index_status: object = None) -> Interstitial | None:
    """Judge a reply; first match wins. ``body`` is its text, None where it was not kept in memory; ``index_status`` what the index says."""
    if index_status is not None and _ERROR_STATUS.fullmatch(str(index_status)):
        return Interstitial(signature=Signature.ARCHIVED_ERROR)
    html = _HTML.search(content_type) is not None
    if body is not None and (html or not content_type):
        if _TIMER.search(body) and _LOADER.search(body):
            return Interstitial(signature=Signature.REDIRECT, target=_target(body))
        if _TITLE.search(body) and _PLAYBACK.search(body):
            return Interstitial(signature=Signature.WRAPPER_STUB)
    parts = split_key(key)
    if html and parts is not None and _QUERY.split(parts[1], maxsplit=1)[0].lower().endswith((".pdf", ".txt")):
        return Interstitial(signature=Signature.EXTENSION_MISMATCH)
    return None


def _target(body: str) -> CaptureUrl | None:
    found = _TARGET.search(body)
    return None if found is None else parse_wayback_url(ARCHIVE + found[2])
