"""Tags, raw text and attribute values of HTML, by position (pure).

Owns the tokenising that rewriting needs: where tags begin and end, what is raw text, which span of the input a decoded character of an
attribute value stands for. It builds no tree and repairs nothing; every pass is linear in its input. Format: the tokenising rules of the
HTML standard, reduced to those that decide where a URL can stand.

Texts are bytes decoded as ASCII with ``surrogateescape``, so that a position is a byte position and no byte of 80 and up is ever taken
for a letter, a blank or the end of anything.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

__all__ = ["WHITESPACE", "Attribute", "Tag", "View", "ascii_lower", "walk"]

WHITESPACE: Final = "\t\n\f\r "
_RAW_TEXT: Final = ("script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes")

_ANY: Final = re.compile(r"<(?:!--|[A-Za-z])")
_TAG_ONLY: Final = re.compile(r"<[A-Za-z]")
_NAME: Final = re.compile(r"[^\t\n\f\r />]+")
_BETWEEN: Final = re.compile(r"[\t\n\f\r /]*")
# Name, then double-quoted, single-quoted or bare value. What is left at an equals sign has a quote that never closes.
_ATTRIBUTE: Final = re.compile(
    r"""([^\t\n\f\r />][^\t\n\f\r />=]*)(?:[\t\n\f\r ]*+=[\t\n\f\r ]*+(?:"([^"]*)"|'([^']*)'|(?!["'])([^\t\n\f\r >]*)))?"""
)
_EQUALS: Final = re.compile(r"[\t\n\f\r ]*=")
_RAW_END: Final = {name: re.compile(rf"</{name}(?=[\t\n\f\r />])", re.ASCII | re.IGNORECASE) for name in _RAW_TEXT}

_ENTITY: Final = re.compile(r"&(?:(amp|lt|gt|quot|apos)|#([0-9]+)|#x([0-9a-f]+));", re.ASCII | re.IGNORECASE)
_NAMED: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_LONGEST_REFERENCE: Final = 7  # digits of the largest code point


class Attribute(NamedTuple):
    """Position of one attribute's value, quotes excluded. Empty when there is none."""

    start: int
    end: int


class Tag(NamedTuple):
    """A start tag. ``content`` is the raw text up to the end tag, where the element has such; ``close`` is where its end tag ends."""

    name: str
    start: int
    end: int
    attributes: Mapping[str, Attribute]
    content: tuple[int, int] | None
    close: int | None


def ascii_lower(text: str) -> str:
    """ASCII letters in lower case. ``str.lower`` also takes the Kelvin sign for a k."""
    return text.lower() if text.isascii() else re.sub("[A-Z]+", lambda found: found[0].lower(), text)


class _Ended(NamedTuple):
    attributes: dict[str, Attribute]
    end: int
    self_closing: bool


def _read_attributes(text: str, at: int, end: int) -> _Ended | None:
    """Attributes from behind a tag's name to its ``>``; None when the tag never ends. Of equal names the first counts."""
    attributes: dict[str, Attribute] = {}
    while True:
        gap = _BETWEEN.match(text, at, end)
        assert gap is not None
        at = gap.end()
        if at >= end:
            return None
        if text[at] == ">":
            return _Ended(attributes, at + 1, gap[0].endswith("/"))
        found = _ATTRIBUTE.match(text, at, end)
        assert found is not None
        at = found.end()
        value = found.lastindex or 1
        if value > 1:
            start, stop = found.span(value)
        elif _EQUALS.match(text, at, end) is not None:
            return None
        else:
            start = stop = at
        attributes.setdefault(ascii_lower(found[1]), Attribute(start, stop))


def walk(text: str, skip: Mapping[int, int] | None = None, *, foreign: bool = False) -> Iterator[Tag]:
    """Start tags in order; those inside a comment are read by themselves, so that conditional comments are seen.

    ``skip`` maps starts of spans to their ends: a comment that starts there is jumped with all up to the end. With ``foreign`` a tag that
    ends in ``/>`` has no content, as in SVG. A tag that never ends is text, and nothing after it is read.
    """
    at, spans = 0, skip or {}
    while (found := _ANY.search(text, at)) is not None:
        start = found.start()
        if start in spans:
            at = spans[start]
        elif found[0] == "<!--":
            inside = found.end()
            stop = text.find("-->", inside)
            yield from _walk_comment(text, inside, len(text) if stop < 0 else stop, foreign=foreign)
            at = len(text) if stop < 0 else stop + 3
        else:
            tag = _read_tag(text, start, len(text), foreign=foreign)
            if tag is None:
                return
            yield tag
            at = _after(tag, len(text))


def _walk_comment(text: str, at: int, end: int, *, foreign: bool) -> Iterator[Tag]:
    # A comment inside a comment ends where the outer one does, so its opener is only text.
    while (found := _TAG_ONLY.search(text, at, end)) is not None:
        tag = _read_tag(text, found.start(), end, foreign=foreign)
        if tag is None:
            return
        yield tag
        at = _after(tag, end)


def _after(tag: Tag, end: int) -> int:
    if tag.content is None:
        return tag.end
    return end if tag.close is None else tag.close


def _read_tag(text: str, start: int, end: int, *, foreign: bool) -> Tag | None:
    name = _NAME.match(text, start + 1, end)
    assert name is not None
    ended = _read_attributes(text, name.end(), end)
    if ended is None:
        return None
    lower = ascii_lower(name[0])
    closing = _RAW_END.get(lower)
    if closing is None or (foreign and ended.self_closing):
        return Tag(lower, start, ended.end, ended.attributes, None, None)
    final = closing.search(text, ended.end, end)
    if final is None:
        return Tag(lower, start, ended.end, ended.attributes, (ended.end, end), None)
    final_ended = _read_attributes(text, final.end(), end)
    close = None if final_ended is None else final_ended.end
    return Tag(lower, start, ended.end, ended.attributes, (ended.end, final.start()), close)


class View:
    """A stretch of text, possibly with its character references decoded, that knows where each character came from."""

    __slots__ = ("_at", "_from", "_parent", "text")

    def __init__(self, text: str, *, parent: View | None = None, at: list[int] | None = None, origins: list[int] | None = None) -> None:
        self.text = text
        self._parent = parent
        self._at = at or [0]
        self._from = origins or [0]

    def origin(self, position: int) -> int:
        """Position in the outermost text of the character at ``position`` (or of the end)."""
        if self._parent is None:
            return position
        index = bisect_right(self._at, position) - 1
        return self._parent.origin(self._from[index] + position - self._at[index])

    def slice(self, start: int, end: int) -> View:
        """A stretch as it is written."""
        return View(self.text[start:end], parent=self, origins=[start])

    def value(self, attribute: Attribute) -> View:
        """An attribute's value, decoded once. A character reference becomes one character, whose origin is the whole reference."""
        raw = self.text[attribute.start : attribute.end]
        if "&" not in raw:
            return View(raw, parent=self, origins=[attribute.start])
        parts: list[str] = []
        at, origins = [0], [attribute.start]
        read = length = 0
        for found in _ENTITY.finditer(raw):
            parts += [raw[read : found.start()], _referenced(found)]
            length += found.start() - read
            read = found.end()
            at += [length, length + 1]
            origins += [attribute.start + found.start(), attribute.start + read]
            length += 1
        parts.append(raw[read:])
        return View("".join(parts), parent=self, at=at, origins=origins)


def _referenced(found: re.Match[str]) -> str:
    name, decimal, hexadecimal = found.groups()
    if name is not None:
        return _NAMED[name.lower()]
    digits = (decimal or hexadecimal).lstrip("0")
    if len(digits) > _LONGEST_REFERENCE:
        return "\ufffd"
    code = int(digits or "0", 10 if decimal else 16)
    if 0x80 <= code < 0xA0:  # the standard reads these as windows-1252, with controls where that has none
        return bytes([code]).decode("cp1252", "ignore") or chr(code)
    return "\ufffd" if code == 0 or code > 0x10FFFF or 0xD800 <= code < 0xE000 else chr(code)
