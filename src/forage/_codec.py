"""JSON bytes as the shared formats write and read them.

Owns the two writers (compact and two-space pretty), the strict reader and UTF-16 string rules of the formats. It knows no
record, manifest or file. Formats: RFC 8259 as JavaScript's JSON object writes and reads it.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

__all__ = ["JsonError", "dump_compact", "dump_pretty", "is_well_formed", "load_json", "units", "utf16_key"]


class JsonError(ValueError):
    """The text is not JSON that the formats accept."""


def dump_compact(value: object) -> str:
    """One line, no spaces, non-ASCII raw; what digests are computed over (encode as UTF-8)."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def dump_pretty(value: object) -> str:
    """Two-space indentation, no final newline; what record files hold."""
    return json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)


def _refuse_constant(name: str) -> NoReturn:
    raise JsonError(f"{name} is not JSON")


def _parse_int(text: str) -> int | float:
    # A literal beyond the double range is infinity to a JavaScript reader; Python's own digit limit must not decide.
    if len(text) > 400:
        return -math.inf if text[0] == "-" else math.inf
    return int(text)


def load_json(text: str) -> Any:
    """Parse, or raise JsonError: no NaN or Infinity, no leading U+FEFF, no nesting beyond the interpreter's depth.

    Duplicate members: the last one counts. A number too large for a double comes back as infinity.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_int=_parse_int)
    except (ValueError, RecursionError) as exc:
        raise JsonError("not JSON") from exc


def units(text: str) -> int:
    """Length in UTF-16 code units, in which every limit of the formats counts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf16_key(text: str) -> bytes:
    """Sort key for the order of UTF-16 code units, in which the formats sort names, times and hashes."""
    return text.encode("utf-16-be", "surrogatepass")


def is_well_formed(text: str) -> bool:
    """True when the text holds no lone surrogate, so that UTF-8 can carry it."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
