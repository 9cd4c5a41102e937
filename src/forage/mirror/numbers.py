"""Numbers as JavaScript reads them from text, for command lines that other programs of this format share (pure)."""

from __future__ import annotations

import math
import re
from typing import Final

from forage.snapshots.javascript import js_trim

__all__ = ["javascript_number"]

_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_PREFIXED: Final = re.compile(r"0(?:[xX][0-9A-Fa-f]+|[oO][0-7]+|[bB][01]+)")
_BASES: Final = {"x": 16, "o": 8, "b": 2}
_LONGEST: Final = 400


def javascript_number(text: str) -> float | None:
    """The finite number that a text stands for, None when it stands for none. Blank text is 0."""
    text = js_trim(text)
    if not text:
        return 0.0
    if len(text) > _LONGEST:
        return None
    if _PREFIXED.fullmatch(text):
        return float(int(text[2:], _BASES[text[1].lower()]))
    value = float(text) if _DECIMAL.fullmatch(text) else math.nan
    return value if math.isfinite(value) else None
