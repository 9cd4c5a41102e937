"""The decoders of the WHATWG Encoding Standard byte by byte, as its text has them: the reference for the quick ones.

Each handler answers a text, `ERROR`, or None for "continue"; bytes that are to be read again are put back on the queue. `END` is
end-of-queue. The functions keep the standard's steps together, however many they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cache

from forage.snapshots.encodings import load_index, load_text

END = -1
ERROR = "error"

Handler = Callable[[deque[int], int], "str | None"]


def run(handler: Handler, data: bytes) -> tuple[str, bool]:
    """Decode with replacement."""
    queue = deque(data)
    text: list[str] = []
    invalid = False
    while True:
        byte = queue.popleft() if queue else END
        answer = handler(queue, byte)
        if answer == "finished":
            return "".join(text), invalid
        if answer == ERROR:
            invalid = True
            text.append("\ufffd")
        elif answer is not None:
            text.append(answer)


@cache
def index_at(name: str) -> Callable[[int], str | None]:
    index = load_index(name)
    return lambda pointer: index[pointer] if 0 <= pointer < len(index) and index[pointer] != "\0" else None


def utf8() -> Handler:  # noqa: C901
    point = needed = seen = 0
    lower, upper = 0x80, 0xBF

    def handle(queue: deque[int], byte: int) -> str | None:
        nonlocal point, needed, seen, lower, upper
        if byte == END:
            if needed:
                needed = 0
                return ERROR
            return "finished"
        if not needed:
            if byte <= 0x7F:
                return chr(byte)
            if 0xC2 <= byte <= 0xDF:
                needed, point = 1, byte & 0x1F
            elif 0xE0 <= byte <= 0xEF:
                lower = 0xA0 if byte == 0xE0 else lower
                upper = 0x9F if byte == 0xED else upper
                needed, point = 2, byte & 0xF
            elif 0xF0 <= byte <= 0xF4:
                lower = 0x90 if byte == 0xF0 else lower
                upper = 0x8F if byte == 0xF4 else upper
                needed, point = 3, byte & 0x7
            else:
                return ERROR
            return None
        if not lower <= byte <= upper:
            point = needed = seen = 0
            lower, upper = 0x80, 0xBF
            queue.appendleft(byte)
            return ERROR
        lower, upper = 0x80, 0xBF
        point = (point << 6) | (byte & 0x3F)
        seen += 1
        if seen != needed:
            return None
        char, point, needed, seen = chr(point), 0, 0, 0
        return char

    return handle


def utf16(big_endian: bool) -> Handler:
    lead: int | None = None
    high: int | None = None

    def handle(queue: deque[int], byte: int) -> str | None:
        nonlocal lead, high
        if byte == END:
            if lead is None and high is None:
                return "finished"
            lead = high = None
            return ERROR
        if lead is None:
            lead = byte
            return None
        first, lead = lead, None
        unit = (first << 8) + byte if big_endian else (byte << 8) + first
        if high is not None:
            surrogate, high = high, None
            if 0xDC00 <= unit <= 0xDFFF:
                return chr(0x10000 + ((surrogate - 0xD800) << 10) + unit - 0xDC00)
            queue.extendleft((byte, first))
            return ERROR
        if 0xD800 <= unit <= 0xDBFF:
            high = unit
            return None
        return ERROR if 0xDC00 <= unit <= 0xDFFF else chr(unit)

    return handle


def two_byte(is_lead: Callable[[int], bool], single: Callable[[int], str | None], pair: Callable[[int, int], str | None]) -> Handler:
    """The common form of Shift_JIS, EUC-KR and Big5."""
    lead = 0

    def handle(queue: deque[int], byte: int) -> str | None:
        nonlocal lead
        if byte == END:
            if not lead:
                return "finished"
            lead = 0
            return ERROR
        if lead:
            first, lead = lead, 0
            text = pair(first, byte)
            if text is not None:
                return text
            if byte <= 0x7F:
                queue.appendleft(byte)
            return ERROR
        if byte <= 0x7F:
            return chr(byte)
        if is_lead(byte):
            lead = byte
            return None
        return single(byte) or ERROR

    return handle


def shift_jis() -> Handler:
    at = index_at("jis0208")

    def pair(lead: int, byte: int) -> str | None:
        if not (0x40 <= byte <= 0x7E or 0x80 <= byte <= 0xFC):
            return None
        pointer = (lead - (0x81 if lead < 0xA0 else 0xC1)) * 188 + byte - (0x40 if byte < 0x7F else 0x41)
        return chr(0xE000 - 8836 + pointer) if 8836 <= pointer <= 10715 else at(pointer)

    def single(byte: int) -> str | None:
        if byte == 0x80:
            return "\x80"
        return chr(0xFF61 - 0xA1 + byte) if 0xA1 <= byte <= 0xDF else None

    return two_byte(lambda byte: 0x81 <= byte <= 0x9F or 0xE0 <= byte <= 0xFC, single, pair)


def euc_kr() -> Handler:
    at = index_at("euc-kr")
    return two_byte(
        lambda byte: 0x81 <= byte <= 0xFE,
        lambda byte: None,
        lambda lead, byte: at((lead - 0x81) * 190 + byte - 0x41) if 0x41 <= byte <= 0xFE else None,
    )


def big5() -> Handler:
    at = index_at("big5")
    composed = {1133: "\xca\u0304", 1135: "\xca\u030c", 1164: "\xea\u0304", 1166: "\xea\u030c"}

    def pair(lead: int, byte: int) -> str | None:
        if not (0x40 <= byte <= 0x7E or 0xA1 <= byte <= 0xFE):
            return None
        pointer = (lead - 0x81) * 157 + byte - (0x40 if byte < 0x7F else 0x62)
        return composed.get(pointer) or at(pointer)

    return two_byte(lambda byte: 0x81 <= byte <= 0xFE, lambda byte: None, pair)


def euc_jp() -> Handler:  # noqa: C901
    jis0208, jis0212 = index_at("jis0208"), index_at("jis0212")
    lead, third = 0, False

    def handle(queue: deque[int], byte: int) -> str | None:  # noqa: C901
        nonlocal lead, third
        if byte == END:
            if not lead:
                return "finished"
            lead = 0
            return ERROR
        if lead == 0x8E and 0xA1 <= byte <= 0xDF:
            lead = 0
            return chr(0xFF61 - 0xA1 + byte)
        if lead == 0x8F and 0xA1 <= byte <= 0xFE:
            third, lead = True, byte
            return None
        if lead:
            first, lead = lead, 0
            text = None
            if 0xA1 <= first <= 0xFE and 0xA1 <= byte <= 0xFE:
                text = (jis0212 if third else jis0208)((first - 0xA1) * 94 + byte - 0xA1)
            third = False
            if text is not None:
                return text
            if byte <= 0x7F:
                queue.appendleft(byte)
            return ERROR
        if byte <= 0x7F:
            return chr(byte)
        if byte in {0x8E, 0x8F} or 0xA1 <= byte <= 0xFE:
            lead = byte
            return None
        return ERROR

    return handle


def _range_point(pointer: int, rows: list[tuple[int, int]]) -> str | None:
    if 39419 < pointer < 189000 or pointer > 1237575:
        return None
    if pointer == 7457:
        return "\ue7c7"
    offset, point = max(row for row in rows if row[0] <= pointer)
    return chr(point + pointer - offset)


def gb18030() -> Handler:  # noqa: C901
    at = index_at("gb18030")
    rows = [(int(a), int(b)) for a, b in (row.split() for row in load_text("gb18030-ranges.txt").splitlines())]
    first = second = third = 0

    def handle(queue: deque[int], byte: int) -> str | None:  # noqa: C901
        nonlocal first, second, third
        if byte == END:
            if not (first or second or third):
                return "finished"
            first = second = third = 0
            return ERROR
        if third:
            if not 0x30 <= byte <= 0x39:
                queue.extendleft((byte, third, second))
                first = second = third = 0
                return ERROR
            pointer = (first - 0x81) * 12600 + (second - 0x30) * 1260 + (third - 0x81) * 10 + byte - 0x30
            first = second = third = 0
            return _range_point(pointer, rows) or ERROR
        if second:
            if 0x81 <= byte <= 0xFE:
                third = byte
                return None
            queue.extendleft((byte, second))
            first = second = 0
            return ERROR
        if first:
            if 0x30 <= byte <= 0x39:
                second = byte
                return None
            lead, first = first, 0
            valid = 0x40 <= byte <= 0x7E or 0x80 <= byte <= 0xFE
            text = at((lead - 0x81) * 190 + byte - (0x40 if byte < 0x7F else 0x41)) if valid else None
            if text is None and byte <= 0x7F:
                queue.appendleft(byte)
            return text or ERROR
        if byte <= 0x7F:
            return chr(byte)
        if byte == 0x80:
            return "€"
        if byte == 0xFF:
            return ERROR
        first = byte
        return None

    return handle


def iso_2022_jp() -> Handler:  # noqa: C901
    at = index_at("jis0208")
    state = output_state = "ascii"
    lead, output = 0, False
    chosen = {(0x28, 0x42): "ascii", (0x28, 0x4A): "roman", (0x28, 0x49): "katakana", (0x24, 0x40): "lead", (0x24, 0x42): "lead"}

    def escape(queue: deque[int], byte: int) -> str | None:
        nonlocal state, output_state, lead, output
        if state == "escape start":
            if byte in {0x24, 0x28}:
                lead, state = byte, "escape"
                return None
            if byte != END:
                queue.appendleft(byte)
            output, state = False, output_state
            return ERROR
        first, lead = lead, 0
        if (first, byte) in chosen:
            state = output_state = chosen[first, byte]
            before, output = output, True
            return ERROR if before else None
        if byte != END:
            queue.appendleft(byte)
        queue.appendleft(first)
        output, state = False, output_state
        return ERROR

    def one_byte(byte: int) -> str:
        if state == "katakana":
            return chr(0xFF61 - 0x21 + byte) if 0x21 <= byte <= 0x5F else ERROR
        if state == "roman" and byte in {0x5C, 0x7E}:
            return "¥" if byte == 0x5C else "‾"
        return chr(byte) if byte <= 0x7F and byte not in {0x0E, 0x0F} else ERROR

    def handle(queue: deque[int], byte: int) -> str | None:
        nonlocal state, lead, output
        if state.startswith("escape"):
            return escape(queue, byte)
        if byte == 0x1B:
            before, state = state, "escape start"
            return ERROR if before == "trail" else None
        if state == "trail":
            state = "lead"
            if 0x21 <= byte <= 0x7E:
                return at((lead - 0x21) * 94 + byte - 0x21) or ERROR
            return ERROR  # end-of-queue is met again in the lead state
        if byte == END:
            return "finished"
        output = False
        if state == "lead":
            if 0x21 <= byte <= 0x7E:
                lead, state = byte, "trail"
                return None
            return ERROR
        return one_byte(byte)

    return handle


def single_byte(upper: str) -> Handler:
    def handle(queue: deque[int], byte: int) -> str | None:
        if byte == END:
            return "finished"
        if byte <= 0x7F:
            return chr(byte)
        return upper[byte - 0x80] if upper[byte - 0x80] != "\ufffd" else ERROR

    return handle


DECODERS: dict[str, Callable[[], Handler]] = {
    "utf-8": utf8,
    "utf-16le": lambda: utf16(big_endian=False),
    "utf-16be": lambda: utf16(big_endian=True),
    "shift_jis": shift_jis,
    "euc-jp": euc_jp,
    "iso-2022-jp": iso_2022_jp,
    "euc-kr": euc_kr,
    "big5": big5,
    "gbk": gb18030,
    "gb18030": gb18030,
}
