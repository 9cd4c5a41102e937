"""Serve-time rewriting of captures: references that a mirror holds become local, the archive's additions go (rule 3; pure).

It only deletes: the output is the input without the spans of the archive's own markup and without the prefix (scheme, host, port) of each
reference that is held. So every other byte stays, in any ASCII-compatible charset, and nothing is ever put together that was not there.
Owns which attributes are read in which way; the grammar is in ``refs``, tokenising in ``markup``, the archive's markup in ``chrome``.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from enum import StrEnum
from typing import Final

import attrs

from forage.mirror.chrome import comment_spans, element_span
from forage.mirror.markup import WHITESPACE, Attribute, Tag, View, ascii_lower, walk
from forage.mirror.refs import (
    Reference,
    find_references,
    is_held,
    is_repairable,
    list_references,
    may_refer,
    refresh_reference,
    script_references,
)
from forage.snapshots.javascript import js_trim

__all__ = ["RULE_VERSION", "Dialect", "Localized", "dialect_of", "localize", "strip_chrome"]

RULE_VERSION: Final = 3
"""Raised with any change of matching, rewriting or stripping: stamps made under another number are void."""

_XHTML: Final = re.compile(r"(?:^|/)xhtml\b", re.ASCII)
_SCRIPT: Final = re.compile(r"javascript|ecmascript", re.ASCII)
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
_DEEPEST_SRCDOC: Final = 3

_URLS: Final = frozenset(["action", "background", "data", "formaction", "href", "poster", "src", "xlink:href"])
_LISTS: Final = frozenset(["srcset", "imagesrcset", "data-srcset"])
_STYLES: Final = frozenset(
    "style fill stroke filter clip-path mask cursor marker-start marker-mid marker-end".split()  # noqa: SIM905 - a row of names
)
# A link is followed by a person, not by the page: it stays in the mirror even where its target is not held.
_NAVIGATION: Final = frozenset(
    [
        ("a", "href"),
        ("area", "href"),
        ("base", "href"),
        ("a", "xlink:href"),
        ("form", "action"),
        ("button", "formaction"),
        ("input", "formaction"),
    ]
)


class Dialect(StrEnum):
    """How a body is read for references."""

    HTML = "html"
    CSS = "css"
    JS = "js"
    SVG = "svg"


@attrs.frozen(kw_only=True)
class Localized:
    """A body as it is served. ``count`` is how many references became local; ``changed`` also when only the archive's markup went."""

    body: bytes
    count: int
    changed: bool
    dialect: Dialect | None


def dialect_of(content_type: str) -> Dialect | None:
    """The dialect of a media type, None for what is passed through."""
    media = js_trim(content_type.partition(";")[0]).lower()
    if media in {"text/html", "application/xhtml+xml"} or _XHTML.search(media):
        return Dialect.HTML
    if media == "text/css":
        return Dialect.CSS
    if media == "image/svg+xml":
        return Dialect.SVG
    return Dialect.JS if _SCRIPT.search(media) else None


def localize(body: bytes, content_type: str, held: Container[str]) -> Localized:
    """Rewrite a body for a mirror that holds the keys ``held``, whatever their status."""
    dialect = dialect_of(content_type)
    if dialect is None or body.startswith(_UTF_16):
        return Localized(body=body, count=0, changed=False, dialect=dialect)
    page = View(body.decode("ascii", "surrogateescape"))
    rewriting = _Rewriting(held)
    match dialect:
        case Dialect.HTML:
            rewriting.document(page, strip=True)
        case Dialect.SVG:
            rewriting.document(page, foreign=True)
        case Dialect.CSS:
            rewriting.references(page, find_references(page.text, cut=True))
        case Dialect.JS:
            rewriting.references(page, script_references(page.text))
    kept, count = rewriting.apply(body)
    return Localized(body=kept, count=count, changed=len(kept) != len(body), dialect=dialect)


def strip_chrome(body: bytes) -> bytes:
    """An HTML body without the archive's own markup, its references as they are."""
    if body.startswith(_UTF_16):
        return body
    page = View(body.decode("ascii", "surrogateescape"))
    rewriting = _Rewriting(None)
    rewriting.document(page, strip=True)
    return rewriting.apply(body)[0]


class _Rewriting:
    """The deletions of one body, as spans of it. With ``held`` None only the archive's markup is looked for."""

    def __init__(self, held: Container[str] | None) -> None:
        self._held = held
        self._spans: list[tuple[int, int]] = []
        self._prefixes: list[tuple[int, int]] = []

    def apply(self, body: bytes) -> tuple[bytes, int]:
        """The body without them, and how many prefixes went; one inside a span goes with it and does not count."""
        spans = _merged(self._spans)
        prefixes = _outside(sorted(self._prefixes), spans)
        parts, at = [], 0
        for start, end in sorted(spans + prefixes):
            parts.append(body[at:start])
            at = end
        parts.append(body[at:])
        return b"".join(parts), len(prefixes)

    def references(self, view: View, references: Iterable[Reference], *, navigation: bool = False) -> None:
        """Delete the prefixes of those that are held, or of all that a mirror could be asked for."""
        if self._held is None:
            return
        for reference in references:
            if is_repairable(reference) if navigation else is_held(reference, self._held):
                self._prefixes.append((view.origin(reference.start), view.origin(reference.prefix_end)))

    def document(self, page: View, *, strip: bool = False, foreign: bool = False, depth: int = 0) -> None:
        """Read a document, or the value of a ``srcdoc`` as one."""
        comments = comment_spans(page.text) if strip else {}
        self._spans += comments.items()
        for tag in walk(page.text, comments, foreign=foreign):
            span = element_span(page, tag) if strip else None
            if span is not None:
                self._spans.append(span)
            elif self._held is not None:
                self._tag(page, tag, depth)

    def _tag(self, page: View, tag: Tag, depth: int) -> None:
        for name, attribute in tag.attributes.items():
            if may_refer(page.text[attribute.start : attribute.end]):
                self._attribute(page, tag, name, attribute, depth)
        if tag.content is None:
            return
        if tag.name == "style":
            inside = page.slice(*tag.content)
            self.references(inside, find_references(inside.text, cut=True))
        elif tag.name == "script" and "src" not in tag.attributes:
            inside = page.slice(*tag.content)
            self.references(inside, script_references(inside.text))

    def _attribute(self, page: View, tag: Tag, name: str, attribute: Attribute, depth: int) -> None:
        value = page.value(attribute)
        if name in _URLS:
            self.references(value, find_references(value.text, cut=False), navigation=(tag.name, name) in _NAVIGATION)
        elif name in _LISTS:
            self.references(value, list_references(value.text))
        elif name in _STYLES or name.startswith("data-"):
            self.references(value, find_references(value.text, cut=True))
        elif name == "content" and _is_refresh(page, tag):
            target = refresh_reference(value.text)
            self.references(value, [target] if target is not None else [], navigation=True)
        elif name == "srcdoc" and tag.name == "iframe" and depth < _DEEPEST_SRCDOC:
            self.document(value, depth=depth + 1)


def _is_refresh(page: View, tag: Tag) -> bool:
    directive = tag.attributes.get("http-equiv")
    if tag.name != "meta" or directive is None:
        return False
    return ascii_lower(page.value(directive).text.strip(WHITESPACE)) == "refresh"


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _outside(prefixes: list[tuple[int, int]], spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted ``prefixes`` that touch none of the sorted, disjoint ``spans``."""
    kept, index = [], 0
    for start, end in prefixes:
        while index < len(spans) and spans[index][1] <= start:
            index += 1
        if index == len(spans) or end <= spans[index][0]:
            kept.append((start, end))
    return kept
