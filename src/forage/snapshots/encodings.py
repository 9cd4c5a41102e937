"""The decoders of the WHATWG Encoding Standard by label: UTF-8, UTF-16, the single-byte encodings, and where the multi-byte ones are.

Owns labels and the simple decoders; `forage.snapshots.multibyte` has the others. Python's codecs do the work where they are proved to
agree with the standard: UTF-8 and UTF-16 with replacement, and charmap decoding through the standard's own tables. Tables are read
from package data when a label first needs them. Format: https://encoding.spec.whatwg.org/
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache

import attrs

__all__ = ["PIECE", "REPLACEMENT", "UTF8", "Encoding", "find_encoding", "is_quick", "load_index", "load_text"]

_ASCII_SPACE = "\t\n\f\r "
_SINGLE_BYTE = (
    "ibm866",
    "iso-8859-10",
    "iso-8859-13",
    "iso-8859-14",
    "iso-8859-15",
    "iso-8859-16",
    "iso-8859-2",
    "iso-8859-3",
    "iso-8859-4",
    "iso-8859-5",
    "iso-8859-6",
    "iso-8859-7",
    "iso-8859-8",
    "koi8-r",
    "koi8-u",
    "macintosh",
    "windows-1250",
    "windows-1251",
    "windows-1252",
    "windows-1253",
    "windows-1254",
    "windows-1255",
    "windows-1256",
    "windows-1257",
    "windows-1258",
    "windows-874",
    "x-mac-cyrillic",
)
_MULTI_BYTE = frozenset(["big5", "euc-jp", "euc-kr", "gb18030", "gbk", "iso-2022-jp", "shift_jis"])


# Large bodies are decoded in pieces, so that another thread gets the interpreter in between.
PIECE = 256 * 1024


def _cut_anywhere(data: bytes, end: int) -> int:
    return end


@attrs.frozen
class Encoding:
    """A decoder of the standard. ``mark`` is its byte-order mark, dropped at the beginning of a body and nowhere else."""

    name: str
    _decode: Callable[[bytes], tuple[str, bool]] = attrs.field(repr=False, eq=False)
    _cut: Callable[[bytes, int], int] = attrs.field(default=_cut_anywhere, repr=False, eq=False)
    mark: bytes = b""

    def decode(self, data: bytes) -> tuple[str, bool]:
        """The text, and whether an error was replaced by U+FFFD."""
        pieces = list(self.pieces(data))
        if len(pieces) == 1:
            return pieces[0]
        return "".join(text for text, _ in pieces), any(invalid for _, invalid in pieces)

    def pieces(self, data: bytes) -> Iterator[tuple[str, bool]]:
        """The same in order, in pieces of bounded size as far as the encoding can be cut; at least one."""
        start = len(self.mark) if self.mark and data.startswith(self.mark) else 0
        while True:
            end = start + PIECE
            end = self._cut(data, end) if end < len(data) else len(data)
            yield self._decode(data[start:end])
            if end >= len(data):
                return
            start = end


def _data(name: str) -> bytes:
    from importlib import resources  # pulls in half a dozen modules that a crawl of UTF-8 pages never needs

    return (resources.files("forage.snapshots") / "data" / name).read_bytes()


def load_text(name: str) -> str:
    """A text file of the package's data."""
    return _data(name).decode()


def load_index(name: str) -> str:
    """An index in pointer order; U+0000 where it has no entry."""
    planes = zlib.decompress(_data(f"{name}.bin"))
    units = bytearray(len(planes))
    units[::2], units[1::2] = planes[: len(planes) // 2], planes[len(planes) // 2 :]
    return units.decode("utf-16-le")


def _codec(name: str) -> Callable[[bytes], tuple[str, bool]]:
    def decode(data: bytes) -> tuple[str, bool]:
        try:
            return data.decode(name), False
        except UnicodeDecodeError:
            return data.decode(name, "replace"), True

    return decode


def _cut_utf8(data: bytes, end: int) -> int:
    """Before a byte that continues nothing; behind three that do, whatever they continued has ended."""
    return next((at for at in range(end, end - 4, -1) if data[at] & 0xC0 != 0x80), end)


def _cut_utf16(high_byte: int) -> Callable[[bytes, int], int]:
    def cut(data: bytes, end: int) -> int:
        end -= end % 2
        return end - 2 if data[end - 2 + high_byte] & 0xFC == 0xD8 else end

    return cut


def _single_byte(upper: str) -> Callable[[bytes], tuple[str, bool]]:
    table = "".join(map(chr, range(128))) + upper
    gaps = "\ufffd" in upper

    def decode(data: bytes) -> tuple[str, bool]:
        if data.isascii():
            return data.decode("ascii"), False
        text = codecs.charmap_decode(data, "strict", table)[0]
        return text, gaps and "\ufffd" in text

    return decode


UTF8 = Encoding("utf-8", _codec("utf-8"), _cut_utf8, codecs.BOM_UTF8)
# Its decoder would answer one U+FFFD for any body; the formats fall back to UTF-8 for its labels instead.
REPLACEMENT = Encoding("replacement", _codec("utf-8"))


@cache
def _labels() -> Mapping[str, str]:
    return {label: row.split(" ", 1)[0] for row in load_text("labels.txt").splitlines() for label in row.split(" ")}


@cache
def _single_byte_uppers() -> Mapping[str, str]:
    uppers = load_index("single-byte")
    found = {name: uppers[i * 128 : i * 128 + 128] for i, name in enumerate(_SINGLE_BYTE)}
    return {**found, "iso-8859-8-i": found["iso-8859-8"], "x-user-defined": "".join(map(chr, range(0xF780, 0xF800)))}


@cache
def _encoding(name: str) -> Encoding:
    if name == "utf-8":
        return UTF8
    if name == "replacement":
        return REPLACEMENT
    if name == "utf-16le":
        return Encoding(name, _codec("utf-16-le"), _cut_utf16(1), codecs.BOM_UTF16_LE)
    if name == "utf-16be":
        return Encoding(name, _codec("utf-16-be"), _cut_utf16(0), codecs.BOM_UTF16_BE)
    if name in _MULTI_BYTE:
        from forage.snapshots.multibyte import decoder  # the tables are large, few pages need them

        return Encoding(name, *decoder(name))
    return Encoding(name, _single_byte(_single_byte_uppers()[name]))


def is_quick(label: str) -> bool:
    """Whether the encoding that a label names decodes in C, in milliseconds a MiB whatever the body; reads no table of it."""
    return not label.isascii() or _labels().get(label.strip(_ASCII_SPACE).lower()) not in _MULTI_BYTE


def find_encoding(label: str) -> Encoding | None:
    """The encoding that a label names, without ASCII white space around it and in any ASCII case; None for an unknown label."""
    if not label.isascii():
        return None
    name = _labels().get(label.strip(_ASCII_SPACE).lower())
    return None if name is None else _encoding(name)
