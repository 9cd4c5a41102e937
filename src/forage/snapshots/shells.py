"""Whether an HTML text is a shell that only a script fills: the trigger of rendering on demand.

Owns the heuristic, which reads text by pattern and never parses a document. Every step is linear in the text, whatever it holds: a search
that found nothing is not begun again. Format: "Shell heuristic" in section 8 of the snapshot formats; lengths are UTF-16 units.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forage._codec import units
from forage.snapshots.javascript import WHITESPACE, js_trim

__all__ = ["looks_like_js_shell"]

_FLAGS = re.ASCII | re.IGNORECASE
_HIDDEN = r"(?:script|style|noscript|svg)"
_OPENING = re.compile(rf"<{_HIDDEN}\b", _FLAGS)
_CLOSING = re.compile(rf"</{_HIDDEN}>", _FLAGS)
_TAG = re.compile(r"<[^>]+>")
_BLANK = re.compile(r"&nbsp;|&#160;", _FLAGS)
_REFERENCE = re.compile(r"&(?:[a-z]+|#[0-9]+|#x[0-9a-f]+);", _FLAGS)
_SPACES = re.compile(f"[{WHITESPACE}]+")
_SCRIPT = re.compile(r"<script\b", _FLAGS)
_DIV = re.compile(r"<div\b", _FLAGS)
_MOUNT = re.compile(r"\bid=[\"']?(?:root|app|__next|__nuxt)", _FLAGS)
_BODY = re.compile(r"<body\b", _FLAGS)
_FRAMEWORK = re.compile(r"\b(?:data-reactroot|ng-app)\b", _FLAGS)

_MAX_VISIBLE = 160
_MAX_VISIBLE_WITH_MARKER = 80
_MIN_RAW = 200
_MAX_RATIO = 0.08


def looks_like_js_shell(html: str) -> bool:
    """True when next to nothing is visible: an empty text, little text in much markup, or a marker of a script framework with
    at most 80 units of text."""
    raw = js_trim(html)
    if not raw:
        return True
    visible = units(_visible_text(raw))
    if visible > _MAX_VISIBLE:
        return False
    length = units(raw)
    if length >= _MIN_RAW and visible / length < _MAX_RATIO:
        return True
    return visible <= _MAX_VISIBLE_WITH_MARKER and _has_marker(raw)


def _visible_text(html: str) -> str:
    text = " ".join(_outside_comments(html))
    text = " ".join(_outside_hidden(text))
    # Behind the last ">" is no tag: a hundred thousand "<" there must not each search to the end.
    last = text.rfind(">") + 1
    text = _TAG.sub(" ", text[:last]) + text[last:]
    text = _REFERENCE.sub("x", _BLANK.sub(" ", text))
    return js_trim(_SPACES.sub(" ", text))


def _outside_comments(text: str) -> Iterator[str]:
    start = 0
    while (opening := text.find("<!--", start)) >= 0 and (closing := text.find("-->", opening + 4)) >= 0:
        yield text[start:opening]
        start = closing + 3
    yield text[start:]


def _outside_hidden(text: str) -> Iterator[str]:
    """An element ends at the first closing tag of any of the names."""
    start = 0
    while opening := _OPENING.search(text, start):
        closing = _CLOSING.search(text, opening.end())
        if closing is None:
            break
        yield text[start : opening.start()]
        start = closing.end()
    yield text[start:]


def _has_marker(html: str) -> bool:
    return bool(_SCRIPT.search(html)) or _tag_holds(html, _DIV, _MOUNT) or _tag_holds(html, _BODY, _FRAMEWORK)


def _tag_holds(html: str, tag: re.Pattern[str], sign: re.Pattern[str]) -> bool:
    """Whether ``sign`` follows ``tag`` with no ``>`` in between. The first tag of a stretch sees all that a later one would."""
    for stretch in html.split(">"):
        found = tag.search(stretch)
        if found and sign.search(stretch, found.end()):
            return True
    return False
