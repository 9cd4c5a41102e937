"""String and number rules of JavaScript that the formats rest on, where Python's own differ.

Owns: the trim set, quoting of one JSON string, the text of an integral number, key order of objects, UTF-8 of ill-formed text. Units,
unit order and well-formedness are in `forage._codec`. Format: ECMA-262 (String.prototype.trim, Number::toString,
OrdinaryOwnPropertyKeys) as section 1 of the snapshot formats names it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from json.encoder import encode_basestring

__all__ = ["WHITESPACE", "js_integer", "js_integer_text", "js_key_order", "js_trim", "js_utf8", "quote_json"]

# str.strip() also takes U+001C to U+001F and U+0085, and leaves U+FEFF.
WHITESPACE = "\t\n\v\f\r \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"

_EXACT = 2**53
_EXPONENT_FROM = 10**21
_LAST_INDEX = 4_294_967_294


def js_trim(text: str) -> str:
    """``text`` without JavaScript white space at both ends."""
    return text.strip(WHITESPACE)


def quote_json(text: str) -> str:
    """One JSON string: non-ASCII raw, short escapes, lower-case ``\\u00xx``. Escapes look at one character, so slices may be joined."""
    return encode_basestring(text)


def js_utf8(text: str) -> bytes:
    """UTF-8, with EF BF BD for each lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def js_integer(value: object) -> int | None:
    """The integral double that a JavaScript reader would hold for ``value``; None when there is none (a bool is not a number)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and -_EXACT <= value <= _EXACT:
        return value
    try:
        double = float(value)
    except OverflowError:
        return None
    return int(double) if math.isfinite(double) and double.is_integer() else None


def js_integer_text(value: int) -> str:
    """How JavaScript prints an integral double: shortest digits that read back, filled up with zeros, an exponent from 1e21."""
    if -_EXACT <= value <= _EXACT:
        return str(value)
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = f"{abs(float(value))!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).rstrip("0")
    point = len(whole) + int(exponent or 0)
    if abs(value) < _EXPONENT_FROM:
        return sign + digits.ljust(point, "0")
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e+{point - 1}"


def _is_index(key: str) -> bool:
    return key.isascii() and key.isdigit() and (key[0] != "0" or key == "0") and len(key) <= 10 and int(key) <= _LAST_INDEX


def js_key_order(keys: Iterable[str]) -> list[str]:
    """Keys as JavaScript lists them: array indices in ascending order, then the others as they came."""
    ordered = list(keys)
    indices = [key for key in ordered if _is_index(key)]
    if not indices:
        return ordered
    return sorted(indices, key=int) + [key for key in ordered if not _is_index(key)]
