"""Hrefs of one document to fetch URLs (pure).

A document resolves against one base, and writes the queries of its links in its own encoding (WHATWG URL, "percent-encode after
encoding"). ada-url resolves; hrefs of characters that it leaves alone are joined as text, which property tests prove equal to it.
Encoders are the inverse of the decoders of `forage.snapshots`, with the exceptions that the Encoding Standard lists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache

from ada_url import join_url

from forage.crawler.urls import MAX_URL_LENGTH, canonical_url, origin_of
from forage.snapshots import decode_text_body

__all__ = ["HrefMemo", "HrefResolver", "encode_query", "resolve_base"]

_PATH = r"[A-Za-z0-9_.~!$&'()*+,;=:@/-]"
_QUERY = r"[A-Za-z0-9_.~!$&()*+,;=:@/?%-]"
_FRAGMENT = r"(?:#[\x21-\x7e]*+)?"
# Classes are possessive, so that nothing need be remembered. Groups are not: before Python 3.11.5 possessive ones match wrongly.
# A path that every step of the parser leaves alone, with or without an origin before it; dot segments are excluded by the caller.
_CLEAN = re.compile(rf"(?:(https?:)?(//[A-Za-z0-9.:\[\]-]{{1,255}}+))?(/(?!/){_PATH}*+(?:\?{_QUERY}*+)?){_FRAGMENT}")
# The same below the base, with the steps up to it. No colon, which could end a scheme, and more than a query or fragment.
_CLEAN_BELOW = re.compile(rf"((?:\.\.?/)+|(?=[^?#]))((?![./]){_PATH.replace(':', '')}*+(?:\?{_QUERY}*+)?){_FRAGMENT}")
_MEMO_ORIGINS, _MEMO_HREFS, _MEMO_LENGTH = 8, 8192, 128
_EDGES = "".join(map(chr, range(0x21)))
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_CRAWLED = frozenset(["http", "https"])
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


@lru_cache(maxsize=1024)
def _is_origin(text: str) -> bool:
    """Whether the parser leaves an origin as it is: then it does so before any path."""
    return canonical_url(f"{text}/") == f"{text}/"


class HrefMemo:
    """What clean hrefs came to on earlier pages of an origin, for those that depend on nothing else of a page: most links of a site are
    on many of its pages. Bounded in origins, hrefs and their length. For one thread.
    """

    def __init__(self) -> None:
        self._origins: dict[str, dict[str, str]] = {}

    def of(self, origin: str) -> dict[str, str]:
        """The URLs by href, to be added to."""
        known = self._origins.get(origin)
        if known is None:
            if len(self._origins) >= _MEMO_ORIGINS:
                del self._origins[next(iter(self._origins))]
            known = self._origins[origin] = {}
        elif len(known) >= _MEMO_HREFS:
            known.clear()
        return known


class HrefResolver:
    """Resolves the hrefs of one document. ``too_long`` turns true once a URL above `MAX_URL_LENGTH` was dropped.

    ``here`` is the fetch URL of the base itself, None where that is no crawlable one.
    """

    def __init__(self, base: str, encoding: str = "utf-8", memo: HrefMemo | None = None) -> None:
        self._base = base
        self._encoding = encoding
        self.here = _clean_url(base) or canonical_url(base)
        self._origin = "" if self.here is None else origin_of(self.here)
        self._scheme = self._origin.partition("/")[0]
        self._known: dict[str, str] = {} if memo is None or not self._origin else memo.of(self._origin)
        self.memorised = self._known.get
        """The fetch URL of an href that was met before, if it is remembered. Nothing may depend on whether it is."""
        self._folders: list[str] = []  # the base's, its parent, and so on
        self.too_long = False

    def resolve(self, href: str) -> str | None:
        """The fetch URL, or None for what is not crawlable or too long. Linear in the href."""
        url = self._join(href) if self._origin else None
        if url is None:
            scheme = _SCHEME.match(href)
            if scheme is not None and scheme[1].lower() not in _CRAWLED:
                return None
            url = self._parse(href)
        if url is not None and len(url) > MAX_URL_LENGTH:
            self.too_long = True
            return None
        return url

    def _join(self, href: str) -> str | None:
        """The fetch URL of a clean href, without the parser; None for any other."""
        match = _CLEAN.fullmatch(href)
        if match is not None:
            scheme, authority, path = match.groups()
            if "/." in path:
                return None
            origin = self._origin if authority is None else (scheme or self._scheme) + authority
            if origin != self._origin and not _is_origin(origin):
                return None
            url = origin + path
            if len(href) <= _MEMO_LENGTH and len(self._known) < _MEMO_HREFS:
                self._known[href] = url
            return url
        if not href or href[0] == "#":
            return self.here
        match = _CLEAN_BELOW.fullmatch(href)
        if match is None or "/." in match[2]:
            return None
        return self._folder(match[1].count("../")) + match[2]

    def _folder(self, steps: int) -> str:
        """The base's folder, or one so many steps above it; the root is above itself."""
        folders = self._folders
        if not folders:
            here = self.here or ""
            path = here.partition("?")[0]
            folders.append(path[: path.rindex("/") + 1])
        root = len(self._origin) + 1
        while len(folders) <= steps:
            last = folders[-1]
            if len(last) == root:
                return last
            folders.append(last[: last.rindex("/", 0, -1) + 1])
        return folders[steps]

    def _parse(self, href: str) -> str | None:
        if len(href) > MAX_URL_LENGTH:
            href = href.strip(_EDGES).partition("#")[0]
            if len(href) > MAX_URL_LENGTH:
                scheme = _SCHEME.match(href)
                # Inline data is no link that was lost.
                self.too_long |= scheme is None or scheme[1].lower() in _CRAWLED
                return None
        if self._encoding != "utf-8" and not href.isascii():
            href = encode_query(href, self._encoding)
        return canonical_url(href, self._base)


def _clean_url(text: str) -> str | None:
    """The fetch URL of a text that is one already, but for its fragment; None for any other."""
    match = _CLEAN.fullmatch(text)
    if match is None or match[1] is None or "/." in match[3]:
        return None
    origin = match[1] + match[2]
    return origin + match[3] if _is_origin(origin) else None


def resolve_base(href: str, page_url: str, encoding: str) -> str | None:
    """The URL that a base element sets, of any scheme but ``data`` and ``javascript``; None when it sets none."""
    if len(href) > MAX_URL_LENGTH:
        return None
    try:
        url = join_url(page_url, encode_query(href, encoding))
    except ValueError:
        return None
    return None if url.startswith(("data:", "javascript:")) else url


def encode_query(href: str, encoding: str) -> str:
    """The href with the characters of its query that are not ASCII percent-encoded in the encoding of the document.

    A character that the encoding lacks becomes a numeric character reference, as forms have it. UTF-16 writes queries in UTF-8.
    """
    head, mark, rest = href.partition("?")
    if not mark or "#" in head or rest.isascii() or encoding.startswith("utf-"):
        return href
    query, hash_mark, fragment = rest.partition("#")
    if encoding == "iso-2022-jp":
        return f"{head}?{_stateful(query)}{hash_mark}{fragment}"
    table = _encoder(encoding)
    query = _NOT_ASCII.sub(lambda match: table.get(match[0]) or _reference(match[0]), query)
    return f"{head}?{query}{hash_mark}{fragment}"


def _reference(char: str) -> str:
    code = ord(char)
    return f"%26%23{0xFFFD if 0xD800 <= code <= 0xDFFF else code}%3B"


def _percent(data: bytes) -> str:
    """The special-query percent-encode set; second bytes that look like ASCII letters or a backslash stay."""
    return "".join([chr(b) if 0x20 < b < 0x7F and b not in b"\"#<>'" else f"%{b:02X}" for b in data])


def _stateful(query: str) -> str:
    """ISO-2022-JP: every piece between two characters that it lacks ends in the ASCII state."""
    pieces, run = [], ""
    for char in query:
        try:
            (char if char != "−" else "－").encode("iso2022_jp")
        except UnicodeEncodeError:
            pieces += [_stateful_run(run), _reference(char)]
            run = ""
        else:
            run += char if char != "−" else "－"
    return "".join([*pieces, _stateful_run(run)])


def _stateful_run(run: str) -> str:
    parts = re.split(r"([^\x00-\x7f]+)", run)
    return "".join([part if part.isascii() else _percent(part.encode("iso2022_jp")) for part in parts])


_Pairs = Iterable[tuple[int, int]]


def _pairs(leads: Iterable[int], trails: Iterable[int]) -> list[bytes]:
    seconds = list(trails)
    return [bytes((lead, trail)) for lead in leads for trail in seconds]


_HIGH = [bytes((byte,)) for byte in range(0x80, 0x100)]
_SEQUENCES: dict[str, Callable[[], list[bytes]]] = {
    # The order of the index; where a character stands twice the first sequence is the standard's choice.
    "big5": lambda: _pairs(range(0xA1, 0xFF), [*range(0x40, 0x7F), *range(0xA1, 0xFF)]),  # no Hong Kong extensions
    "euc-jp": lambda: [*_pairs([0x8E], range(0xA1, 0xE0)), *_pairs(range(0xA1, 0xFF), range(0xA1, 0xFF))],
    "euc-kr": lambda: _pairs(range(0x81, 0xFF), range(0x41, 0xFF)),
    "gb18030": lambda: _pairs(range(0x81, 0xFF), [*range(0x40, 0x7F), *range(0x80, 0xFF)]),
    "gbk": lambda: [b"\x80", *_pairs(range(0x81, 0xFF), [*range(0x40, 0x7F), *range(0x80, 0xFF)])],
    # Without the NEC selection of IBM extensions (rows ED and EE): the encoder uses the IBM rows.
    "shift_jis": lambda: [
        *_HIGH,
        *_pairs([b for b in [*range(0x81, 0xA0), *range(0xE0, 0xFD)] if b not in (0xED, 0xEE)], range(0x40, 0xFD)),
    ],
}
_BIG5_LAST = frozenset("═╞╡╪十卅")  # these the encoder writes by their last sequence
_JAPANESE = {"¥": b"\\", "‾": b"~"}


class _FourByte(dict[str, str]):
    """gb18030 has a sequence for every character: four bytes for those outside its index."""

    def get(self, char: str, default: object = None) -> str:
        found = super().get(char)
        return _percent(char.encode("gb18030", "replace")) if found is None else found


@cache
def _encoder(encoding: str) -> dict[str, str]:
    """Characters to what a query holds for them. Built once for an encoding, by decoding every sequence that it has."""
    sequences = _SEQUENCES.get(encoding, lambda: _HIGH)()
    decoded = decode_text_body(b"\n".join(sequences), encoding).text.split("\n")
    table: dict[str, str] = _FourByte() if encoding == "gb18030" else {}
    for sequence, char in zip(sequences, decoded, strict=True):
        if len(char) == 1 and char != "\ufffd" and not char.isascii() and (char not in table or char in _BIG5_LAST):
            table[char] = _percent(sequence)
    if encoding in ("shift_jis", "euc-jp"):
        table |= {char: _percent(data) for char, data in _JAPANESE.items()}
        table["−"] = table["－"]
    return table
