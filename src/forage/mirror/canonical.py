"""The canonical text of a JSON value (pure).

Format: JSON as JavaScript writes it, one line, members sorted by UTF-16 units at every level, array indices first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from forage._codec import JsonError, is_well_formed, utf16_key
from forage.snapshots.javascript import js_integer, js_integer_text, js_key_order, quote_json

__all__ = ["canonical_json", "escape_lone"]

_LONE: Final = re.compile("[\ud800-\udfff]")


def canonical_json(value: object) -> str:
    """The one spelling of a JSON value. Numbers are doubles; a lone surrogate is escaped. Raises JsonError when nested too deep."""
    try:
        return _canonical(value)
    except RecursionError as exc:
        raise JsonError("nested too deep") from exc


def _canonical(value: object) -> str:
    match value:
        case None | bool():
            return "null" if value is None else "true" if value else "false"
        case str():
            return _quote(value)
        case int() | float():
            return _number(value)
        case Mapping():
            names = js_key_order(sorted(value, key=utf16_key))
            return "{" + ",".join(f"{_quote(name)}:{_canonical(value[name])}" for name in names) + "}"
        case list() | tuple():
            return "[" + ",".join(map(_canonical, value)) + "]"
    raise TypeError(f"not a JSON value: {type(value).__name__}")


def _quote(text: str) -> str:
    if is_well_formed(text):
        return quote_json(text)
    # Two halves that stand side by side are one character to a JavaScript reader.
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return escape_lone(quote_json(joined))


def _number(value: float) -> str:
    whole = js_integer(value)
    if whole is not None:
        return js_integer_text(whole)
    try:
        double = float(value)
    except OverflowError:
        return "null"
    if not math.isfinite(double):
        return "null"
    mantissa, _, exponent = repr(double).partition("e")
    power = int(exponent or 0)
    if not -7 < power < 0:
        return mantissa if power == 0 else f"{mantissa}e{power}"
    sign, digits = ("-", mantissa[1:]) if double < 0 else ("", mantissa)
    return f"{sign}0.{'0' * (-power - 1)}{digits.replace('.', '')}"


def escape_lone(text: str) -> str:
    """JSON text whose lone surrogates are escapes, so that UTF-8 can carry it."""
    return _LONE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
