"""Which raw assets a captured page names: the edges of a mirror (pure).

Not a parser: one scan over the whole text, wherever the match sits: attributes, style blocks, scripts, comments, prose. What the scan
cannot see (references inside fetched style sheets and scripts, relative ones) is left to the browser. Linear in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

import attrs

from forage.mirror.keys import archive_url, capture_key, repair_slashes
from forage.mirror.markup import walk
from forage.mirror.originals import is_fetchable
from forage.snapshots.javascript import WHITESPACE

__all__ = ["Requisite", "extract_requisites", "is_page"]

_START: Final = re.compile(r"/web/([0-9]{4,14})(im_|cs_|js_|oe_)/")
_STOP: Final = re.compile(rf"""["'<>\\(){WHITESPACE}]""")
_PAGE: Final = re.compile(r"html", re.ASCII | re.IGNORECASE)
# A host right before /web/; what is no host (a path, a quote, nothing) plays no part.
_HOST: Final = re.compile(rf"""//([^/"'<>\\(),{WHITESPACE}]+)\Z""")
_OURS: Final = re.compile(r"web\.archive\.org(?::(?:80|443))?", re.ASCII | re.IGNORECASE)
_LONGEST_HOST: Final = 300

_FLAGS: Final = re.ASCII | re.IGNORECASE
_ENTITIES: Final = (
    (re.compile("&amp;", _FLAGS), "&"),
    (re.compile("&lt;", _FLAGS), "<"),
    (re.compile("&gt;", _FLAGS), ">"),
    (re.compile("&#39;|&apos;", _FLAGS), "'"),
    (re.compile("&quot;", _FLAGS), '"'),
)
_LISTS: Final = ("srcset", "imagesrcset", "data-srcset")


@attrs.frozen(kw_only=True)
class Requisite:
    """A raw asset that a page names, with the flag of its first mention."""

    timestamp: str
    flag: str
    original: str

    @property
    def key(self) -> str:
        return capture_key(self.timestamp, self.original)

    @property
    def wayback_url(self) -> str:
        """Where it is fetched: the flag stays."""
        return archive_url(self.timestamp, self.flag, self.original)


def is_page(content_type: str) -> bool:
    """True for a content type whose body is scanned: HTML in any dialect, or none given."""
    return not content_type or _PAGE.search(content_type) is not None


def extract_requisites(text: str) -> tuple[Requisite, ...]:
    """Fetchable requisites in document order, each key once."""
    found: dict[str, Requisite] = {}
    for timestamp, flag, token in _tokens(text):
        original = _decode(token)
        if is_fetchable(original):
            requisite = Requisite(timestamp=timestamp, flag=flag, original=original)
            found.setdefault(requisite.key, requisite)
    return tuple(found.values())


def _tokens(text: str) -> Iterator[tuple[str, str, str]]:
    lists: _Lists | None = None
    at = 0
    while (start := _START.search(text, at)) is not None:
        at = start.end()
        if not _may_start(text, start.start()):
            continue
        at = _end(text, start.end())
        token = text[start.end() : at]
        if token.endswith(","):
            lists = lists or _Lists(text)
            token = token.rstrip(",") if lists.hold(start.start()) else token
        if token:
            yield start[1], start[2], token


def _may_start(text: str, at: int) -> bool:
    """A host right before ``/web/`` must be the archive's: what another host serves there is its own."""
    host = _HOST.search(text, max(0, at - _LONGEST_HOST), at)
    return host is None or _OURS.fullmatch(host[1]) is not None


def _end(text: str, start: int) -> int:
    """Where a token ends: at a quote, a bracket, a backslash, white space, or its first unbalanced parenthesis."""
    depth = 0
    for found in _STOP.finditer(text, start):
        match found[0]:
            case "(":
                depth += 1
            case ")" if depth:
                depth -= 1
            case _:
                return found.start()
    return len(text)


def _decode(token: str) -> str:
    if "&" in token:
        for pattern, character in _ENTITIES:
            token = pattern.sub(character, token)
    return repair_slashes(token)


class _Lists:
    """Where in a page the values of candidate lists stand: there a trailing comma separates."""

    def __init__(self, page: str) -> None:
        spans = [tag.attributes[name] for tag in walk(page) for name in _LISTS if name in tag.attributes]
        self._starts = sorted(span.start for span in spans)
        self._ends = {span.start: span.end for span in spans}

    def hold(self, at: int) -> bool:
        index = bisect_right(self._starts, at) - 1
        return index >= 0 and at < self._ends[self._starts[index]]
