"""The bytes of a sitemap as pieces of UTF-8: gzip by content, bounded; encodings by mark, header or declaration (pure).

Nothing is unpacked as a whole: a bomb costs its limit in time and one piece in memory. Encodings follow RFC 7303: byte-order mark,
charset parameter, XML declaration, UTF-8.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Callable, Iterator

from forage.snapshots import charset_of, decode_text_body

__all__ = ["PIECE", "Note", "unpacked", "utf8_pieces"]

PIECE = 64 * 1024
_GZIP = b"\x1f\x8b"
_LAYERS = 2  # a server compresses what was a .gz file already
_HEAD = 1024
_LONGEST_RUN = 1024 * 1024
_SPACE = b" \t\r\n"

Note = Callable[[str], None]
"""Takes the code of a warning."""

_DECLARATION = re.compile(rb"""<\?xml[^>]*?[ \t\r\n]encoding[ \t\r\n]*=[ \t\r\n]*(?:"([^"]*)"|'([^']*)')""")


def unpacked(data: bytes, note: Note, limit: int) -> Iterator[bytes]:
    """The content in pieces, at most ``limit`` bytes after (and within) each layer of gzip."""
    pieces = _capped(_slices(data), note, limit)
    for _ in range(_LAYERS):
        head, pieces = _peek(pieces, len(_GZIP))
        if not head.startswith(_GZIP):
            break
        pieces = _capped(_gunzip(pieces, note), note, limit)
    return pieces


def _slices(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), PIECE):
        yield data[at : at + PIECE]


def _capped(pieces: Iterator[bytes], note: Note, limit: int) -> Iterator[bytes]:
    left = limit
    for piece in pieces:
        if len(piece) > left:
            note("sitemap-size-limit")
            yield piece[:left]
            return
        left -= len(piece)
        yield piece


def _peek(pieces: Iterator[bytes], size: int) -> tuple[bytes, Iterator[bytes]]:
    """The first ``size`` bytes or more, where there are that many, and all the pieces."""
    head = b""
    for piece in pieces:
        head += piece
        if len(head) >= size:
            break

    def whole() -> Iterator[bytes]:
        yield head
        yield from pieces

    return head, whole()


def _gunzip(pieces: Iterator[bytes], note: Note) -> Iterator[bytes]:
    """RFC 1952: members one after another; zeros or other bytes behind the last one are padding."""
    inflater = zlib.decompressobj(wbits=31)
    for piece in pieces:
        data = piece
        while data:
            if inflater.eof:
                data = data.lstrip(b"\0")
                if not data:
                    break
                if not _GZIP.startswith(data[:2]):
                    return
                inflater = zlib.decompressobj(wbits=31)
            try:
                out = inflater.decompress(data, PIECE)
            except zlib.error:
                note("sitemap-gzip-truncated")
                return
            if out:
                yield out
            data = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
        # What the inflater holds back without more input.
        while not inflater.eof and (out := _flushed(inflater)):
            yield out
    if not inflater.eof:
        note("sitemap-gzip-truncated")


def _flushed(inflater: zlib._Decompress) -> bytes:
    try:
        return inflater.decompress(b"", PIECE)
    except zlib.error:
        return b""


def utf8_pieces(pieces: Iterator[bytes], content_type: str | None, note: Note) -> Iterator[bytes]:
    """The pieces in UTF-8, without byte-order mark and leading white space. Bytes that are declared to be UTF-8 pass as they are."""
    head, pieces = _peek(pieces, _HEAD)
    encoding, mark = _encoding(head, content_type, note)
    if encoding != "utf-8":
        pieces = _recoded(pieces, encoding)
    elif mark:
        pieces = _without_start(pieces, mark)
    return _stripped(pieces, note)


def _without_start(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    yield next(pieces)[size:]
    yield from pieces


def _stripped(pieces: Iterator[bytes], note: Note) -> Iterator[bytes]:
    started = False
    for piece in pieces:
        if not started:
            bare = piece.lstrip(_SPACE)
            started = bool(bare)
            if len(bare) != len(piece) and bare.startswith(b"<?xml"):
                note("sitemap-malformed")  # nothing may stand before an XML declaration
            piece = bare
        if piece:
            yield piece


def _encoding(head: bytes, content_type: str | None, note: Note) -> tuple[str, int]:
    """The WHATWG name of the encoding, and how many bytes its mark takes."""
    for mark, name in ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16le"), (codecs.BOM_UTF16_BE, "utf-16be")):
        if head.startswith(mark):
            return name, len(mark)
    # XML appendix F: a less-than sign in two bytes.
    if head.startswith((b"<\0", b"\0<")):
        return "utf-16le" if head[:1] == b"<" else "utf-16be", 0
    charset, _ = charset_of(content_type)
    declared = _DECLARATION.match(head.lstrip(_SPACE))
    label = charset if charset is not None else (declared[1] or declared[2] or b"").decode("latin-1") if declared else None
    if label is None:
        return "utf-8", 0
    known = decode_text_body(b"", label)
    if known.unknown_label or known.encoding.startswith("utf-16"):  # UTF-16 would not have been read so far
        note("sitemap-malformed")
        return "utf-8", 0
    return known.encoding, 0


def _recoded(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    if encoding in ("utf-16le", "utf-16be", "iso-2022-jp"):
        name = {"utf-16le": "utf-16-le", "utf-16be": "utf-16-be"}.get(encoding, "iso2022_jp")
        decoder = codecs.getincrementaldecoder(name)("replace")
        for piece in pieces:
            yield decoder.decode(piece).lstrip("\ufeff").encode("utf-8")
        yield decoder.decode(b"", True).encode("utf-8")
        return
    rest = b""
    for piece in pieces:
        rest += piece
        # In every other encoding a less-than sign or a line feed is no second byte.
        cut = max(rest.rfind(b"<"), rest.rfind(b"\n"), rest.rfind(b"\r"))
        if cut <= 0:
            cut = len(rest) if len(rest) > _LONGEST_RUN else 0
        if cut:
            yield decode_text_body(rest[:cut], encoding).text.encode("utf-8")
            rest = rest[cut:]
    yield decode_text_body(rest, encoding).text.encode("utf-8")
