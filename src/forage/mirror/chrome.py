"""The archive's own additions to a replayed page: toolbar, rewriting scripts and style sheets (rule 3, section 4; pure).

Finds spans and deletes nothing. Root-relative ``/static/`` is the page's own.
"""

from __future__ import annotations

import re
from typing import Final

from forage.mirror.markup import WHITESPACE, Tag, View

__all__ = ["comment_spans", "element_span"]

_FLAGS: Final = re.ASCII | re.IGNORECASE


def _comment(words: str) -> re.Pattern[str]:
    return re.compile(rf"<!--[\t\n\f\r ]*{words}[\t\n\f\r ]*-->", _FLAGS)


_BEGIN: Final = _comment("BEGIN WAYBACK TOOLBAR INSERT")
_END: Final = _comment("END WAYBACK TOOLBAR INSERT")
_REWRITE_END: Final = _comment("End Wayback Rewrite JS Include")
_BLANKS: Final = re.compile(r"[ \t]*(?:\r?\n)?")
_STATIC: Final = re.compile(
    r"(?:/_static/|(?:https?:)?//(?:(?:web|web-static|www)\.)?archive\.org/(?:_static|static|includes)/)",
    _FLAGS,
)
_INLINE: Final = (
    "__wm.init(",
    "__wm.wombat(",
    "__wm.bt(",
    "__wm.rw(",
    "archive_analytics.",
    "window.RufflePlayer=window.RufflePlayer||{};window.RufflePlayer.config=",
)


def comment_spans(text: str) -> dict[int, int]:
    """Start to end of the toolbar and of the marker comment. A toolbar that never ends is left."""
    spans: dict[int, int] = {}
    at = 0
    while (begin := _BEGIN.search(text, at)) is not None:
        end = _END.search(text, begin.end())
        if end is None:
            break
        spans[begin.start()] = at = end.end()
    for found in _REWRITE_END.finditer(text):
        spans.setdefault(found.start(), _with_line_end(text, found.end()))
    return spans


def element_span(page: View, tag: Tag) -> tuple[int, int] | None:
    """The span of a script element or link tag of the archive, with the blanks and the line end behind it; None for the page's own."""
    if tag.name == "link":
        return (tag.start, _with_line_end(page.text, tag.end)) if _is_static(page, tag, "href") else None
    if tag.name != "script" or tag.close is None or tag.content is None:
        return None
    if "src" in tag.attributes:
        ours = _is_static(page, tag, "src")
    else:
        inside = page.text[slice(*tag.content)]
        ours = any(mark in inside for mark in _INLINE)
    return (tag.start, _with_line_end(page.text, tag.close)) if ours else None


def _is_static(page: View, tag: Tag, name: str) -> bool:
    attribute = tag.attributes.get(name)
    return attribute is not None and _STATIC.match(page.value(attribute).text.strip(WHITESPACE)) is not None


def _with_line_end(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    assert found is not None
    return found.end()
