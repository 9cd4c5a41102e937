"""One sitemap document: XML, text list, RSS or Atom, to the URLs that it lists (pure).

Format: https://www.sitemaps.org/protocol.html, RSS 2.0 and 1.0, RFC 4287. Streaming: memory holds one piece of the content and the result.
What the document is follows from its content, never from its name or type. A location that met a parse error, an entity or undecodable
bytes is dropped with a warning, never half used. Owns values and meaning; bytes are `sitemap_bytes`', XML is `sitemap_xml`'s, and which
documents are read at all is `discovery`'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

import attrs

from forage.crawler.sitemap_bytes import unpacked, utf8_pieces
from forage.crawler.sitemap_xml import Entry, EntryReader
from forage.crawler.timestamps import rfc822_instant, w3c_instant
from forage.crawler.urls import MAX_URL_LENGTH, canonical_url

__all__ = ["MAX_SITEMAP_BYTES", "MAX_SITEMAP_URLS", "SitemapDocument", "SitemapKind", "SitemapUrl", "parse_sitemap"]

MAX_SITEMAP_URLS = 50_000
"""Entries of one document, by the protocol."""

MAX_SITEMAP_BYTES = 52_428_800
"""Bytes of one document after unpacking, by the protocol."""

MAX_LOCATION = 2048
_LONGEST_LINE = 64 * 1024
_HOPELESS_LINES = 1000
_MAX_LINES = 4 * MAX_SITEMAP_URLS
_SPACE = " \t\r\n"
_LINE_ENDS = re.compile(rb"[\r\n]+")


class SitemapKind(StrEnum):
    """What a document turned out to be."""

    URLSET = "urlset"
    INDEX = "sitemapindex"
    RSS = "rss"
    ATOM = "atom"
    TEXT = "text"
    UNKNOWN = "unknown"


_KINDS = {"urlset": "urlset", "sitemapindex": "sitemapindex", "rss": "rss", "rdf": "rss", "feed": "atom"}


@attrs.frozen(kw_only=True)
class SitemapUrl:
    """A fetch URL that a sitemap lists.

    ``lastmod`` is UTC at the precision given (``2024``, ``2024-05``, ``2024-05-01``, ``2024-05-01T08:00:00Z``), None when absent or
    no date; ``alternates`` are pairs of language and fetch URL.
    """

    loc: str
    lastmod: str | None = None
    alternates: tuple[tuple[str, str], ...] = ()


@attrs.frozen(kw_only=True)
class SitemapDocument:
    """``urls`` of pages, ``sitemaps`` that an index lists, both in document order and as often as listed; ``warnings`` are codes."""

    kind: SitemapKind
    urls: tuple[SitemapUrl, ...] = ()
    sitemaps: tuple[SitemapUrl, ...] = ()
    warnings: tuple[str, ...] = ()
    unpacked_bytes: int = 0


def parse_sitemap(
    data: bytes, *, url: str, content_type: str | None = None, max_urls: int = MAX_SITEMAP_URLS, max_bytes: int = MAX_SITEMAP_BYTES
) -> SitemapDocument:
    """Read one document. Never raises; linear in the bytes after unpacking, of which at most ``max_bytes`` are looked at.

    ``url`` resolves relative locations; ``content_type`` gives a charset at most.
    """
    return _Document(url, max_urls).read(data, content_type, max_bytes)


class _Document:
    def __init__(self, url: str, max_urls: int) -> None:
        self._url = url
        self._max_urls = max_urls
        self._warnings: dict[str, None] = {}
        self._found: list[SitemapUrl] = []
        self._bytes = 0

    def _note(self, code: str) -> None:
        self._warnings.setdefault(code)

    def read(self, data: bytes, content_type: str | None, max_bytes: int) -> SitemapDocument:
        pieces = utf8_pieces(self._counted(unpacked(data, self._note, max_bytes)), content_type, self._note)
        first = next(pieces, b"")
        if not first:
            kind = SitemapKind.UNKNOWN
        elif first.startswith(b"<"):
            kind = self._read_xml(first, pieces)
        else:
            kind = self._read_text(first, pieces)
        if not self._found and not self._warnings:
            self._note("sitemap-empty")
        found = tuple(self._found)
        index = kind is SitemapKind.INDEX
        return SitemapDocument(
            kind=kind,
            urls=() if index else found,
            sitemaps=found if index else (),
            warnings=tuple(self._warnings),
            unpacked_bytes=self._bytes,
        )

    def _counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._bytes += len(piece)
            yield piece

    def _read_xml(self, first: bytes, pieces: Iterator[bytes]) -> SitemapKind:
        reader = EntryReader(lambda entry: self._take(reader, entry), self._note)
        reader.feed(first)
        for piece in pieces:
            if reader.done:
                break
            reader.feed(piece)
        reader.close()
        if reader.root is None:
            self._warnings.clear()  # what is no sitemap has no faults of one
            self._note("sitemap-not-xml")
            return SitemapKind.UNKNOWN
        return SitemapKind(_KINDS[reader.root])

    def _take(self, reader: EntryReader, entry: Entry) -> bool:
        """Use one entry; False when the limit is reached."""
        if reader.root in ("urlset", "sitemapindex"):
            return self._add(entry.fields.get("loc", ""), w3c_instant(entry.fields.get("lastmod", "")), _references(entry, "hreflang"))
        if reader.root == "feed":
            href = next((link.get("href", "") for link in entry.links if link.get("rel", "alternate").strip().lower() == "alternate"), "")
            stamp = entry.fields.get("updated") or entry.fields.get("published") or ""
            return self._add(self._reference(href, entry.base), w3c_instant(stamp))
        link = entry.fields.get("link", "").strip(_SPACE)
        if not link and entry.guid_is_link:
            link = entry.fields.get("guid", "")
            if canonical_url(link) is None:
                link = ""  # an identifier that does not say that it is none
        stamp = entry.fields.get("pubdate", "")
        return self._add(link, rfc822_instant(stamp) if stamp else w3c_instant(entry.fields.get("dc:date", "")))

    def _reference(self, href: str, base: str) -> str:
        """An href of a feed, which may be relative, under its ``xml:base``."""
        if not href or "\ufffd" in href:
            return href
        return canonical_url(href, canonical_url(base, self._url) if base else self._url) or href

    def _add(self, location: str, lastmod: str | None, references: tuple[tuple[str, str], ...] = ()) -> bool:
        url = self._location(location.strip(_SPACE))
        if url is None:
            return True
        if len(self._found) >= self._max_urls:
            self._note("sitemap-url-limit")
            return False
        alternates = [(language, found) for language, href in references if (found := canonical_url(href, self._url)) is not None]
        self._found.append(SitemapUrl(loc=url, lastmod=lastmod, alternates=tuple(alternates)))
        return True

    def _location(self, text: str) -> str | None:
        if not text:
            return None  # an entry without a location lists nothing
        if "\ufffd" in text:
            self._note("sitemap-malformed")
            return None
        url = None
        if len(text) <= MAX_LOCATION and (url := canonical_url(text)) is None and (url := canonical_url(text, self._url)) is not None:
            self._note("sitemap-relative-url")
        if url is None or len(url) > MAX_URL_LENGTH:
            self._note("sitemap-url-skipped")
            return None
        return url

    def _read_text(self, first: bytes, pieces: Iterator[bytes]) -> SitemapKind:
        hopeless = _HOPELESS_LINES
        for number, line in enumerate(_lines(first, pieces)):
            if number >= _MAX_LINES:
                self._note("sitemap-size-limit")
                break
            text = line.decode("utf-8", "replace").strip()
            if not text:
                continue
            url = canonical_url(text) if len(text) <= MAX_LOCATION and "\ufffd" not in text else None
            if url is None or len(url) > MAX_URL_LENGTH:
                self._note("sitemap-url-skipped")
                hopeless -= 1
                if not self._found and not hopeless:
                    break
            elif len(self._found) >= self._max_urls:
                self._note("sitemap-url-limit")
                break
            else:
                self._found.append(SitemapUrl(loc=url))
        if not self._found:
            self._warnings.pop("sitemap-url-skipped", None)
            self._note("sitemap-not-xml")
            return SitemapKind.UNKNOWN
        return SitemapKind.TEXT


def _references(entry: Entry, language: str) -> tuple[tuple[str, str], ...]:
    """The language alternates of an entry, those that decoded well."""
    return tuple(
        (link[language].strip(_SPACE), link["href"].strip(_SPACE))
        for link in entry.links
        if "alternate" in link.get("rel", "").lower().split() and link.get(language) and "\ufffd" not in link.get("href", "\ufffd")
    )


def _lines(first: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Lines by CR, LF or both; what is longer than any location comes cut, so that it is no URL."""
    rest = b""
    for piece in _chain(first, pieces):
        *whole, rest = _LINE_ENDS.split(rest + piece)
        yield from whole
        if len(rest) > _LONGEST_LINE:
            rest = rest[: MAX_LOCATION * 8]
    yield rest


def _chain(first: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from pieces
