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


class Kanji(Protocol):
    """The EUC-JP decoder."""

    def marked(self, data: bytes) -> str:
        """The text with a stand-in for each error."""


class Iso2022Jp:
    """ISO-2022-JP: segments between valid escape sequences, each in the state that the last one chose."""

    # A run of escape sequences, three bytes each; the last one counts.
    _ESCAPES = re.compile(rb"(?:\x1b(?:\([BJI]|\$[@B]))+")
    # Whole pairs; a lead with a byte that is no trail and swallowed; anything else, one error each. ESC is never swallowed.
    _PAIRS = re.compile(rb"(?:[\x21-\x7e][\x21-\x7e])+|[\x21-\x7e][^\x1b\x21-\x7e]|[\x00-\xff]")
    _PAIR_BYTES = bytes(range(0x21, 0x7F))
    _ASCII_BYTES = bytes(byte for byte in range(0x80) if byte not in {0x0E, 0x0F, 0x1B})
    _HIGH = bytes(byte | 0x80 for byte in range(256))

    def __init__(self, kanji: Kanji) -> None:
        self._kanji = kanji
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
        for segment, state in self._segments(data):
            if state == b"B" and not segment.translate(None, self._ASCII_BYTES):
                gathered.append(segment)
            elif state is None and len(segment) % 2 == 0 and not segment.translate(None, self._PAIR_BYTES):
                gathered.append(segment.translate(self._HIGH))
            else:
                if gathered:
                    yield self._kanji.marked(b"".join(gathered))
                    gathered.clear()
                yield self._faulty(segment, state)
        yield self._kanji.marked(b"".join(gathered))

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

    def _faulty(self, data: bytes, state: bytes | None) -> str:
        if state is None:
            return "".join(map(self._kanji_token, self._PAIRS.findall(data)))
        return codecs.charmap_decode(data, "strict", self._tables[state])[0]

    def _kanji_token(self, token: bytes) -> str:
        if len(token) % 2 or not 0x21 <= token[-1] <= 0x7E:
            return ERROR
        return self._kanji.marked(token.translate(self._HIGH))
