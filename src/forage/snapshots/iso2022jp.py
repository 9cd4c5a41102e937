"""The ISO-2022-JP decoder of the WHATWG Encoding Standard.

The one decoder with a state that outlives a character: escape sequences choose between ASCII, JIS X 0201 and pairs of JIS X 0208. It
has no table of pairs of its own; EUC-JP has the same pairs with the high bit set.
Format: https://encoding.spec.whatwg.org/#iso-2022-jp-decoder
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Protocol

from forage.snapshots.marks import ERROR

__all__ = ["Iso2022Jp"]


_WINDOW = 64 * 1024
_HIGH = bytes(byte | 0x80 for byte in range(256))


class Kanji(Protocol):
    """The EUC-JP decoder."""

    def marked(self, data: bytes) -> str:
        """The text with a stand-in for each error."""

    def cut(self, data: bytes, end: int, start: int) -> int:
        """Where tokens end, near ``end``, when one begins at ``start``."""


class _Tokens(dict[bytes, str]):
    """Tokens of the state of pairs to text, each made once: at most 2**15 of them, so a body full of errors is as quick as any."""

    def __init__(self, kanji: Kanji) -> None:
        self._kanji = kanji

    def __missing__(self, token: bytes) -> str:
        whole = len(token) == 2 and 0x21 <= token[1] <= 0x7E
        text = self[token] = self._kanji.marked(token.translate(_HIGH)) if whole else ERROR
        return text


class Iso2022Jp:
    """ISO-2022-JP: segments between valid escape sequences, each in the state that the last one chose."""

    # A run of escape sequences, three bytes each; the last one counts.
    _ESCAPES = re.compile(rb"(?:\x1b(?:\([BJI]|\$[@B]))+")
    # A pair; a lead with a byte that is no trail and swallowed; anything else, one error each. ESC is never swallowed.
    _PAIRS = re.compile(rb"[\x21-\x7e][\x21-\x7e]|[\x21-\x7e][^\x1b\x21-\x7e]|[\x00-\xff]")
    _PAIR_BYTES = bytes(range(0x21, 0x7F))
    _ASCII_BYTES = bytes(byte for byte in range(0x80) if byte not in {0x0E, 0x0F, 0x1B})

    def __init__(self, kanji: Kanji) -> None:
        self._kanji = kanji
        self._tokens = _Tokens(kanji)
        ascii_table = [chr(byte) if byte in self._ASCII_BYTES else ERROR for byte in range(256)]
        roman = {0x5C: "¥", 0x7E: "‾"}
        katakana = [chr(0xFF61 - 0x21 + byte) if 0x21 <= byte <= 0x5F else ERROR for byte in range(256)]
        self._tables: dict[bytes | None, str] = {
            b"B": "".join(ascii_table),
            b"J": "".join(roman.get(byte, char) for byte, char in enumerate(ascii_table)),
            b"I": "".join(katakana),
        }

    def __call__(self, data: bytes) -> tuple[str, bool]:
        text = "".join(self._texts(data))
        return (text.replace(ERROR, "\ufffd"), True) if ERROR in text else (text, False)

    def _texts(self, data: bytes) -> Iterator[str]:
        """Faultless ASCII and kanji gather as EUC-JP, which says the same in bytes that its decoder takes in one go."""
        gathered: list[bytes] = []
        size = 0
        for segment, state in self._segments(data):
            if state == b"B" and not segment.translate(None, self._ASCII_BYTES):
                gathered.append(segment)
            elif state is None and len(segment) % 2 == 0 and not segment.translate(None, self._PAIR_BYTES):
                gathered.append(segment.translate(_HIGH))
            else:
                yield from self._faultless(gathered)
                gathered, size = [], 0
                yield from self._faulty(segment, state)
                continue
            size += len(segment)
            if size >= _WINDOW:
                yield from self._faultless(gathered)
                gathered, size = [], 0
        yield from self._faultless(gathered)

    def _faultless(self, gathered: list[bytes]) -> Iterator[str]:
        """In pieces of bounded size, cut between pairs: each step is one call into C, and no other thread runs during it."""
        data = b"".join(gathered)
        start = 0
        while start < len(data):
            end = start + _WINDOW
            end = self._kanji.cut(data, end, start) if end < len(data) else len(data)
            yield self._kanji.marked(data[start:end])
            start = end

    def _segments(self, data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
        """Bytes and the state that they are in: b"B", b"J", b"I", or None for pairs."""
        state: bytes | None = b"B"
        start = 0
        for escapes in self._ESCAPES.finditer(data):
            if escapes.start() > start:
                yield data[start : escapes.start()], state
            run, start = escapes[0], escapes.end()
            if len(run) > 3:
                # Each escape sequence right after another is one error, as an ESC in ASCII is: nothing may hide between the two.
                yield b"\x1b" * (len(run) // 3 - 1), b"B"
            state = None if run[-2:-1] == b"$" else run[-1:]
        yield data[start:], state

    def _faulty(self, data: bytes, state: bytes | None) -> Iterator[str]:
        if state is not None:
            yield codecs.charmap_decode(data, "strict", self._tables[state])[0]
            return
        start = 0
        while start < len(data):
            tokens, end = self._PAIRS.findall(data, start, start + _WINDOW), min(start + _WINDOW, len(data))
            if end < len(data):
                end -= len(tokens.pop())  # it could read otherwise with the byte behind it
            yield "".join(map(self._tokens.__getitem__, tokens))
            start = end
