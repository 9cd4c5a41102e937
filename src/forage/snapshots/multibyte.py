"""The multi-byte decoders of the WHATWG Encoding Standard.

Two paths give one answer. The table path cuts a window of bytes into the standard's tokens by one regular expression and looks each
up. The codec path lets a codec of Python decode in C and repairs what differs: a sequence that the codec does not know goes to the
table path through an error handler, a character that stands for another of the standard is put right afterwards, and a body with a
sequence that cannot be told apart afterwards takes the table path as a whole. Which sequences differ is found by comparing codec and
table when a decoder is made, not assumed: another Python may differ elsewhere. Both paths are linear: the handler always takes a
window, so that a body of nothing but errors costs no more than the table path. Format: https://encoding.spec.whatwg.org/
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache

import attrs

from forage.snapshots.encodings import PIECE, load_index, load_text
from forage.snapshots.iso2022jp import Iso2022Jp
from forage.snapshots.marks import ERROR

__all__ = ["decoder"]

_WINDOW = 64 * 1024
_HANDLER_WINDOW = 4 * 1024
_HOLE = "\0"

# Trails begin at 0x30 and end at 0xfe. What is below is read again where it follows a lead, what is above is swallowed with it.
_ENDS = re.compile(rb"[\x00-\x2f\xff]")

_ASCII = rb"[\x00-\x7f]+"
# One lead byte and whatever follows, or a byte that leads nothing.
_PAIRS = re.compile(_ASCII + rb"|[\x81-\xfe][\x00-\xff]?|[\x80\xff]")
_SHIFT_JIS = re.compile(_ASCII + rb"|[\x81-\x9f\xe0-\xfc][\x00-\xff]?|[\x80-\xff]")
_EUC_JP = re.compile(_ASCII + rb"|\x8f[\xa1-\xfe][\x00-\xff]?|[\x8e\x8f\xa1-\xfe][\x00-\xff]?|[\x80-\xff]")
# A lead before a digit that begins no four-byte sequence is an error by itself; at the end of the body it swallows what came of one.
_GB18030 = re.compile(
    _ASCII + rb"|[\x81-\xfe][0-9][\x81-\xfe][0-9]|[\x81-\xfe][0-9][\x81-\xfe]?\Z|[\x81-\xfe](?=[0-9])|[\x81-\xfe][\x00-\xff]?|[\x80\xff]"
)


class _Table(dict[bytes, str]):
    """Tokens to text. What is not in it is a run of ASCII or an error."""

    def __missing__(self, token: bytes) -> str:
        text = token.decode("ascii") if token[0] < 0x80 else self.compute(token)
        if len(token) <= 2:
            self[token] = text  # fewer than 2**16 of them; a body full of errors is then as quick as any
        return text

    def compute(self, token: bytes) -> str:
        """An error. An ASCII byte behind a bad lead is not swallowed: it is read again, and stands for itself."""
        last = token[-1]
        return ERROR if last >= 0x80 else ERROR + chr(last)


class _Gb18030Table(_Table):
    """With the four-byte sequences, which are computed from ranges."""

    def __init__(self, pairs: Mapping[bytes, str], ranges: str) -> None:
        super().__init__(pairs)
        rows = [tuple(map(int, row.split())) for row in ranges.splitlines()]
        self._starts = [row[0] for row in rows]
        self._points = [row[1] for row in rows]

    def compute(self, token: bytes) -> str:
        if len(token) == 4:
            return self._four_bytes(token)
        if len(token) > 1 and 0x30 <= token[1] <= 0x39:
            return ERROR  # the end of the body came before the third or fourth byte
        return super().compute(token)

    def _four_bytes(self, token: bytes) -> str:
        first, second, third, fourth = token
        pointer = ((first - 0x81) * 10 + second - 0x30) * 1260 + (third - 0x81) * 10 + fourth - 0x30
        if 39_419 < pointer < 189_000 or pointer > 1_237_575:
            return ERROR
        if pointer == 7457:
            return "\ue7c7"
        row = bisect_right(self._starts, pointer) - 1
        return chr(self._points[row] + pointer - self._starts[row])

    def samples(self) -> Iterator[bytes]:
        """Four-byte sequences at both ends of every range, and the one that is no part of any."""
        for start in {*self._starts, *(start - 1 for start in self._starts[1:]), 7457}:
            high, low = divmod(start, 1260)
            yield bytes((high // 10 + 0x81, high % 10 + 0x30, low // 10 + 0x81, low % 10 + 0x30))


def _rows(index: str, leads: range, trails: bytes, first: int = 0) -> dict[bytes, str]:
    """Two-byte tokens of an index that numbers all trails of a lead before those of the next."""
    pairs = (bytes((lead, trail)) for lead in leads for trail in trails)
    return {pair: char for pair, char in zip(pairs, index[first:], strict=False) if char != _HOLE}


_TRAILS_40 = bytes((*range(0x40, 0x7F), *range(0x80, 0xFF)))


def _shift_jis_table() -> _Table:
    index, trails = load_index("jis0208"), _TRAILS_40[:-2]
    # Pointers 8836 to 10715 are the end-user-defined characters, without entries in the index.
    index = index[:8836] + "".join(map(chr, range(0xE000, 0xE000 + 1880))) + index[10716:]
    table = _Table(_rows(index, range(0x81, 0xA0), trails) | _rows(index, range(0xE0, 0xFD), trails, 31 * 188))
    table.update({bytes((byte,)): chr(0xFF61 - 0xA1 + byte) for byte in range(0xA1, 0xE0)})
    table[b"\x80"] = "\x80"
    return table


def _euc_jp_table() -> _Table:
    trails = bytes(range(0xA1, 0xFF))
    table = _Table(_rows(load_index("jis0208"), range(0xA1, 0xFF), trails))
    table.update({b"\x8f" + pair: char for pair, char in _rows(load_index("jis0212"), range(0xA1, 0xFF), trails).items()})
    table.update({bytes((0x8E, byte)): chr(0xFF61 - 0xA1 + byte) for byte in range(0xA1, 0xE0)})
    return table


def _euc_kr_table() -> _Table:
    return _Table(_rows(load_index("euc-kr"), range(0x81, 0xFF), bytes(range(0x41, 0xFF))))


def _big5_table() -> _Table:
    trails = bytes((*range(0x40, 0x7F), *range(0xA1, 0xFF)))
    table = _Table(_rows(load_index("big5"), range(0x81, 0xFF), trails))
    table.update({b"\x88\x62": "\xca\u0304", b"\x88\x64": "\xca\u030c", b"\x88\xa3": "\xea\u0304", b"\x88\xa5": "\xea\u030c"})
    return table


def _gb18030_table() -> _Table:
    table = _Gb18030Table(_rows(load_index("gb18030"), range(0x81, 0xFF), _TRAILS_40), load_text("gb18030-ranges.txt"))
    table[b"\x80"] = "€"
    return table


@attrs.frozen(kw_only=True)
class _Scheme:
    pattern: re.Pattern[bytes]
    make_table: Callable[[], _Table]
    codec: str


_SCHEMES = {
    "shift_jis": _Scheme(pattern=_SHIFT_JIS, make_table=_shift_jis_table, codec="cp932"),
    "euc-jp": _Scheme(pattern=_EUC_JP, make_table=_euc_jp_table, codec="euc_jp"),
    "euc-kr": _Scheme(pattern=_PAIRS, make_table=_euc_kr_table, codec="cp949"),
    "big5": _Scheme(pattern=_PAIRS, make_table=_big5_table, codec="big5hkscs"),
    "gb18030": _Scheme(pattern=_GB18030, make_table=_gb18030_table, codec="gb18030"),
}


class _MixedError(Exception):
    """A text of the table holds what the codec says for something else: it could not be told from what is to be put right."""


class _MultiByte:
    """One decoder with its table and what is known of the codec that helps it."""

    def __init__(self, scheme: _Scheme) -> None:
        self._pattern = scheme.pattern
        self._codec = scheme.codec
        self._table = scheme.make_table()
        self._fixes: dict[int, str] = {}
        self._hazards: list[bytes] = []
        self._compare()
        self._wrong = "".join(map(chr, self._fixes))
        self._handler = f"forage-{scheme.codec}"
        codecs.register_error(self._handler, self._repair)

    def __call__(self, data: bytes) -> tuple[str, bool]:
        if data.isascii():
            return data.decode("ascii"), False
        text = self.marked(data)
        return (text.replace(ERROR, "\ufffd"), True) if ERROR in text else (text, False)

    def marked(self, data: bytes) -> str:
        """The text with a stand-in for each error."""
        if not any(sequence in data for sequence in self._hazards):
            try:
                text = data.decode(self._codec, self._handler)
            except _MixedError:
                return self.by_table(data)
            return text.translate(self._fixes) if any(char in text for char in self._wrong) else text
        return self.by_table(data)

    def by_table(self, data: bytes) -> str:
        """The table path, in windows of bounded size."""
        position, pieces = 0, []
        while position < len(data):
            text, position = self._window(data, position, _WINDOW)
            pieces.append(text)
        return "".join(pieces)

    def cut(self, data: bytes, end: int, start: int | None = None) -> int:
        """Where tokens end, shortly before or behind ``end``, when one begins at ``start`` (None: ``PIECE`` bytes before ``end``)."""
        start = end - PIECE if start is None else start
        # Cheap where the body has them: a control, a space or punctuation, or an octet of no sequence, is never swallowed and begins none.
        found = _ENDS.search(data, end, end + _WINDOW)
        return found.end() if found else self._tokens(data, start, end - start)[1]

    def _tokens(self, data: bytes, start: int, size: int) -> tuple[list[bytes], int]:
        """The tokens from ``start`` on, and where they end; at most ``size`` bytes."""
        end = min(start + size, len(data))
        tokens = self._pattern.findall(data, start, end)
        if end < len(data):
            # What was read within three bytes of the cut could read otherwise with the bytes behind it. A run of ASCII could not.
            cut = end - 3
            while end > cut and tokens[-1][0] >= 0x80:
                end -= len(tokens.pop())
        return tokens, end

    def _window(self, data: bytes, start: int, size: int) -> tuple[str, int]:
        """Text of the tokens from ``start`` on, and where they end; at most ``size`` bytes."""
        tokens, end = self._tokens(data, start, size)
        return "".join(map(self._table.__getitem__, tokens)), end

    def _repair(self, error: UnicodeError) -> tuple[str, int]:
        """Error handler of the codec path: the codec stands at a token that it does not know."""
        assert isinstance(error, UnicodeDecodeError)
        text, end = self._window(error.object, error.start, _HANDLER_WINDOW)
        if any(char in text for char in self._wrong):
            raise _MixedError
        return text, end

    def _compare(self) -> None:
        """Find where the codec has other text than the table, over every token of one to three bytes and the ends of every range."""
        tokens = [*self._shapes(), *(self._table.samples() if isinstance(self._table, _Gb18030Table) else ())]
        # A line feed ends any sequence, so each line is the codec's answer for one token.
        answers = (b"\n".join(tokens)).decode(self._codec, "replace").split("\n")
        seen = Counter(answers)
        seen.update(map(chr, range(0x80)))
        for token, answer in zip(tokens, answers, strict=True):
            if answer == self._table.get(token) or "\ufffd" in answer:
                continue  # equal, or an error, which the handler repairs
            expected = self._table[token]
            if answer == expected:
                continue
            if len(answer) == 1 and seen[answer] == 1:
                self._fixes[ord(answer)] = expected
            else:
                self._hazards.append(token)

    def _shapes(self) -> Iterator[bytes]:
        upper = range(0x80, 0x100)
        yield from (bytes((byte,)) for byte in upper)
        leads = [byte for byte in upper if self._pattern.fullmatch(bytes((byte, 0xA1)))]
        yield from (bytes((lead, trail)) for lead in leads for trail in range(0x30, 0x100))
        if self._pattern is _EUC_JP:
            yield from (bytes((0x8F, second, third)) for second in range(0xA1, 0xFF) for third in range(0xA1, 0xFF))


@cache
def _multi_byte(name: str) -> _MultiByte:
    return _MultiByte(_SCHEMES[name])


def decoder(name: str) -> tuple[Callable[[bytes], tuple[str, bool]], Callable[[bytes, int], int]]:
    """The decoder of a multi-byte encoding by its name in the standard (text, and whether an error was replaced by U+FFFD), and where
    a body can be cut."""
    if name == "iso-2022-jp":
        # Its escape sequences reach over any byte.
        return Iso2022Jp(_multi_byte("euc-jp")), lambda data, _: len(data)
    found = _multi_byte("gb18030" if name == "gbk" else name)  # the standard has one decoder for both
    return found, found.cut
