"""Members of the browser's messages as texts and numbers, whatever was sent in their place (pure)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from forage.browser.cdp import JsonObject

__all__ = ["clock_of", "initiator_of", "instant", "text_of", "whole"]

_LATEST = 253_402_300_799.0  # the end of the year 9999


def whole(text: str) -> str:
    """``text`` with U+FFFD for each half of a surrogate pair, as a browser writes it out: scripts cut texts anywhere."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def text_of(params: JsonObject, name: str) -> str:
    """The member as text that can be written down, empty when it is none."""
    value = params.get(name)
    return whole(value) if isinstance(value, str) else ""


def clock_of(params: JsonObject, name: str = "timestamp") -> float | None:
    """The member as seconds, None when it is no number."""
    value: Any = params.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def instant(seconds: float | None) -> str | None:
    """Seconds of the epoch as recorded time: UTC, milliseconds, Z."""
    if seconds is None or not 0 <= seconds <= _LATEST:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def initiator_of(value: object) -> str | None:
    """Who asked for a request: the kind of thing, and the URL of the document, script or style that it is in, where that is known."""
    if not isinstance(value, dict):
        return None
    kind, url = text_of(value, "type"), text_of(value, "url")
    if not url:
        stack: Any = value.get("stack")
        frames = stack.get("callFrames") if isinstance(stack, dict) else None
        if isinstance(frames, list) and frames and isinstance(frames[0], dict):
            url = text_of(frames[0], "url")
    return f"{kind} {url[:2048]}".strip() or None
