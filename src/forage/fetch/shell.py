"""Whether a page is a mere shell that scripts would fill: the heuristic behind ``render="on-shell"`` (pure).

The steps and numbers are those of section 8 of the snapshot formats, so that every implementation renders the same pages. Each step reads
the text once: a page of unclosed comments or tags must not cost more than its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forage._codec import units

__all__ = ["looks_like_js_shell"]

# The white space of JavaScript's trim and \s, which the recorded heuristic uses; Python's own sets differ.
_WHITESPACE = "\t\n\v\f\r \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"

_SPACE = re.compile(f"[{_WHITESPACE}]+")
_OPENING = re.compile(r"<(?:script|style|noscript|svg)\b", re.IGNORECASE | re.ASCII)
_CLOSING = re.compile(r"</(?:script|style|noscript|svg)>", re.IGNORECASE | re.ASCII)
_BLANK_REFERENCE = re.compile(r"&nbsp;|&#160;", re.IGNORECASE | re.ASCII)
_REFERENCE = re.compile(r"&(?:[a-z]+|#[0-9]+|#x[0-9a-f]+);", re.IGNORECASE | re.ASCII)
_SCRIPT = re.compile(r"<script\b", re.IGNORECASE | re.ASCII)
_DIV = re.compile(r"<div\b", re.IGNORECASE | re.ASCII)
_BODY = re.compile(r"<body\b", re.IGNORECASE | re.ASCII)
_ROOT_ID = re.compile(
    rf"\bid[{_WHITESPACE}]*=[{_WHITESPACE}]*[\"']?(?:root|app|__next|__nuxt)",
    re.IGNORECASE | re.ASCII,
)
_ROOT_BODY = re.compile(r"\b(?:data-reactroot|ng-app)\b", re.IGNORECASE | re.ASCII)

_MOST_VISIBLE = 160
_MOST_VISIBLE_WITH_MARKER = 80
_LEAST_RAW = 200
_LEAST_RATIO = 0.08


def looks_like_js_shell(html: str) -> bool:
    """True for a page that shows next to nothing before its scripts run."""
    raw = html.strip(_WHITESPACE)
    if not raw:
        return True
    visible = units(_visible(raw))
    if visible > _MOST_VISIBLE:
        return False
    size = units(raw)
    if size >= _LEAST_RAW and visible / size < _LEAST_RATIO:
        return True
    return visible <= _MOST_VISIBLE_WITH_MARKER and _has_marker(raw)


def _visible(html: str) -> str:
    text = _without(html, re.compile("<!--"), re.compile("-->"))
    text = _without(text, _OPENING, _CLOSING)
    text = _without_tags(text)
    text = _BLANK_REFERENCE.sub(" ", text)
    text = _REFERENCE.sub("x", text)
    return _SPACE.sub(" ", text).strip(_WHITESPACE)


def _without(text: str, opening: re.Pattern[str], closing: re.Pattern[str]) -> str:
    """Each stretch from an opening to the next closing replaced by a space; one that is never closed stays."""
    kept, at = [], 0
    while begin := opening.search(text, at):
        end = closing.search(text, begin.end())
        if end is None:  # then no later one is closed either
            break
        kept.append(text[at : begin.start()])
        at = end.end()
    kept.append(text[at:])
    return " ".join(kept)


def _without_tags(text: str) -> str:
    """Each ``<...>`` replaced by a space."""
    kept, at = [], 0
    while True:
        begin = text.find("<", at)
        end = text.find(">", begin + 2) if begin >= 0 else -1  # "<>" is no tag
        if end < 0:
            break
        kept.append(text[at:begin])
        at = end + 1
    kept.append(text[at:])
    return " ".join(kept)


def _has_marker(html: str) -> bool:
    if _SCRIPT.search(html):
        return True
    return any(_ROOT_ID.search(tag) for tag in _tags(html, _DIV)) or any(_ROOT_BODY.search(tag) for tag in _tags(html, _BODY))


def _tags(html: str, opening: re.Pattern[str]) -> Iterator[str]:
    """The inside of each tag of a kind, up to its ``>``."""
    at = 0
    while begin := opening.search(html, at):
        end = html.find(">", begin.end())
        at = len(html) if end < 0 else end
        yield html[begin.end() : at]
