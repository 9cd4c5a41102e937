"""Entries of sitemaps and feeds from XML in pieces, with entities off and bad entries left out (pure).

expat parses; it is started anew behind a document type declaration, so that what that declares can never be used: no entity expands,
none is read from elsewhere. An entry in which anything went wrong is dropped as a whole, and reading goes on at the next entry. Depth,
the size of one token and the number of new starts are bounded, which keeps memory flat and time linear. What an entry means is
`sitemaps`' matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn
from xml.parsers import expat

import attrs

from forage.crawler.sitemap_bytes import PIECE, Note

__all__ = ["Entry", "EntryReader"]

MAX_DEPTH = 256
MAX_TOKEN = 256 * 1024
MAX_RESTARTS = 1000
MAX_FIELD = 16 * 1024
MAX_REFERENCES = 512
MAX_ELEMENTS = 2_000_000
MAX_ENTRIES = 100_000  # twice the protocol's limit, those that list nothing included

_FIRST_STEP = 512
_OVERLAP = 128
_ENTRY_NAMES = {"urlset": "url", "sitemapindex": "sitemap", "rss": "item", "rdf": "item", "feed": "entry"}
_ROOT_START = re.compile(rb"<(?:[A-Za-z_][A-Za-z0-9_.-]*:)?(?:urlset|sitemapindex|rss|feed|rdf)(?=[ \t\r\n/>])", re.IGNORECASE)
_FIELDS = {
    "url": frozenset(["loc", "lastmod"]),
    "sitemap": frozenset(["loc", "lastmod"]),
    "item": frozenset(["link", "guid", "pubdate", "dc:date"]),
    "entry": frozenset(["updated", "published"]),
}


@attrs.define
class Entry:
    """One entry as written: text fields by lower-case name, the attributes of its link elements, and its ``xml:base``."""

    fields: dict[str, str] = attrs.field(factory=dict)
    guid_is_link: bool = True
    links: list[dict[str, str]] = attrs.field(factory=list)
    base: str = ""
    broken: bool = False


class _DoctypeEndError(Exception):
    """Not an error: leaves the parser at the end of a document type declaration."""


class _TooDeepError(Exception):
    """More open elements than any sitemap has."""


class _EnoughError(Exception):
    """Nothing more is to be read: a limit was reached, or this is neither sitemap nor feed."""


class EntryReader:
    """Reads pieces of UTF-8; ``take(entry)`` answers False to end it. ``root`` is the kind found: urlset, sitemapindex, rss, rdf, feed."""

    def __init__(self, take: Callable[[Entry], bool], note: Note) -> None:
        self._take = take
        self._note = note
        self._restarts = 0
        self._parser: expat.XMLParserType | None = None
        self._fed = 0
        self._step = _FIRST_STEP
        self._recent = b""
        self._held = b""
        self._names: list[str] = []
        self._ancestors: list[str] = []
        self._prefix = ""
        self._base = ""
        self._entry: Entry | None = None
        self._entry_depth = 0
        self._field: str | None = None
        self._text: list[str] = []
        self._size = 0
        self._elements = 0
        self._entries = 0
        self._closed_root = False
        self.root: str | None = None
        self.done = False
        self._start_parser()

    def feed(self, data: bytes) -> None:
        """Read one more piece. Never raises."""
        data = self._held + data
        self._held = b""
        while data and not self.done:
            if self._parser is None:
                data = self._seek(data)
                continue
            piece, rest = data[: self._step], data[self._step :]
            data = self._parse(self._parser, piece, rest)

    def close(self) -> None:
        """The document ends here; an entry that is still open is not used."""
        if self.done:
            return
        broken = self._parser is None
        try:
            if self._parser is not None:
                self._parser.Parse(b"", True)
        except (_DoctypeEndError, _EnoughError):
            pass
        except (expat.ExpatError, _TooDeepError):
            broken = True
        if broken:
            self._note("sitemap-malformed")
        self.done = True

    def _parse(self, parser: expat.XMLParserType, piece: bytes, rest: bytes) -> bytes:
        """Give ``piece`` to the parser; answers what is still to be read."""
        before = self._recent
        self._recent = piece
        self._fed += len(piece)
        try:
            parser.Parse(piece)
            if self._fed - max(parser.CurrentByteIndex, 0) <= MAX_TOKEN:
                self._step = min(self._step * 2, PIECE)
                return rest
            at = self._fed - 1  # one token without end: expat would scan it again and again
        except _DoctypeEndError:
            at = max(parser.CurrentByteIndex, 0)
            rest = self._from(at + 1, before, piece) + rest
            self._again()
            self._start_parser()
            return rest
        except _EnoughError:
            self.done = True
            return b""
        except _TooDeepError:
            at = max(parser.CurrentByteIndex, 0)
        except expat.ExpatError:
            at = max(parser.ErrorByteIndex, 0)
        self._note("sitemap-malformed")
        self._parser = None
        self._again(closing=self._closed_root)
        return self._from(at + 1, before, piece) + rest

    def _from(self, at: int, before: bytes, piece: bytes) -> bytes:
        """The input of the current parser from an offset on, as far back as it is still held."""
        window = before + piece
        return window[max(0, at - (self._fed - len(window))) :]

    def _again(self, *, closing: bool = False) -> None:
        self._restarts += 1
        if closing or self._restarts > MAX_RESTARTS:
            self.done = True

    def _seek(self, data: bytes) -> bytes:
        """Go on at the next entry (or root, while there was none) and answer the data from there."""
        match = (_ROOT_START if self.root is None else self._entry_start()).search(data)
        if match is None:
            self._held = data[-_OVERLAP:]
            return b""
        parser = self._start_parser()
        if self.root is not None:
            opening = "".join(f"<{name}>" for name in self._ancestors).encode()
            self._fed += len(opening)
            parser.Parse(opening)
        return data[match.start() :]

    def _entry_start(self) -> re.Pattern[bytes]:
        prefix = f"{self._prefix}:" if self._prefix and self.root in ("urlset", "sitemapindex", "feed") else ""
        name = re.escape(prefix + _ENTRY_NAMES[self.root or "urlset"]).encode()
        return re.compile(rb"<" + name + rb"(?=[ \t\r\n/>])", re.IGNORECASE)

    def _start_parser(self) -> expat.XMLParserType:
        parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartDoctypeDeclHandler = self._doctype
        parser.EndDoctypeDeclHandler = self._doctype_end
        self._parser = parser
        self._fed = 0
        self._step = _FIRST_STEP
        self._recent = b""
        self._names = []
        self._entry = self._field = None
        return parser

    # Handlers of expat.

    def _doctype(self, name: str, *_: object) -> None:
        if name.lower() == "html":
            raise _EnoughError
        self._note("sitemap-dtd")

    def _doctype_end(self) -> NoReturn:
        raise _DoctypeEndError

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        names = self._names
        names.append(name)
        if len(names) > MAX_DEPTH:
            raise _TooDeepError
        self._elements += 1
        if self._elements > MAX_ELEMENTS:
            self._note("sitemap-size-limit")
            raise _EnoughError
        if len(names) == 1:
            self._start_root(name, attributes)
            return
        prefix, _, local = name.rpartition(":")
        lower = local.lower()
        kind = _ENTRY_NAMES[self.root or "urlset"]
        if lower == kind and self._is_own(prefix) and (self._entry is None or len(names) == self._entry_depth + 1):
            self._start_entry(attributes)
        elif self._entry is not None:
            self._start_inside(self._entry, kind, name, lower, prefix, attributes)
        elif len(names) == 2 and self.root in ("urlset", "sitemapindex"):
            if lower in ("url", "sitemap"):
                self._note("sitemap-malformed")  # an entry of the other kind is not followed
            elif lower == "loc" and self._is_own(prefix):
                self._start_entry({})  # a location without an entry around it means what it says
                self._field, self._text, self._size = lower, [], 0

    def _start_root(self, name: str, attributes: dict[str, str]) -> None:
        prefix, _, local = name.rpartition(":")
        lower = local.lower()
        if lower not in _ENTRY_NAMES:
            raise _EnoughError
        if self.root is None:
            if lower != local and lower != "rdf":
                self._note("sitemap-malformed")
            self.root, self._prefix, self._base = lower, prefix, attributes.get("xml:base", "")
            self._ancestors = [name, "channel"] if lower == "rss" else [name]

    def _is_own(self, prefix: str) -> bool:
        return prefix == (self._prefix if self.root in ("urlset", "sitemapindex", "feed") else "")

    def _start_entry(self, attributes: dict[str, str]) -> None:
        self._entries += 1
        if self._entries > MAX_ENTRIES:
            self._note("sitemap-url-limit")
            raise _EnoughError
        if self._entry is not None:  # the one before was never closed: it is dropped
            self._note("sitemap-malformed")
        else:
            self._ancestors = self._names[:-1]
        self._entry = Entry(base=attributes.get("xml:base", ""))
        self._entry_depth = len(self._names)
        self._field = None

    def _start_inside(self, entry: Entry, kind: str, name: str, lower: str, prefix: str, attributes: dict[str, str]) -> None:
        if self._field is not None:
            entry.broken = True
            return
        if len(self._names) != self._entry_depth + 1:
            return
        if lower == "link" and (prefix or kind != "item") and len(entry.links) < MAX_REFERENCES:
            entry.links.append({key.lower(): value for key, value in attributes.items()})
        field = lower if self._is_own(prefix) else name.lower()
        if field not in _FIELDS[kind]:
            return
        if field in entry.fields:
            if field == "loc":
                self._note("sitemap-malformed")  # the first counts
            return
        if field == "guid":
            entry.guid_is_link = attributes.get("isPermaLink", "true").strip().lower() != "false"
        self._field, self._text, self._size = field, [], 0

    def _characters(self, text: str) -> None:
        if self._field is not None and self._size <= MAX_FIELD:
            self._text.append(text)
            self._size += len(text)

    def _end(self, _: str) -> None:
        depth = len(self._names)
        self._names.pop()
        entry = self._entry
        if depth == 1:
            self._closed_root = True
        elif entry is not None and depth == self._entry_depth:
            self._entry = None
            if self._field is not None:  # the entry is its location
                entry.fields[self._field] = "".join(self._text)
                self._field = None
            if entry.broken:
                self._note("sitemap-malformed")
            else:
                entry.base = entry.base or self._base
                if not self._take(entry):
                    raise _EnoughError
        elif entry is not None and self._field is not None and depth == self._entry_depth + 1:
            entry.fields[self._field] = "".join(self._text)
            self._field = None
