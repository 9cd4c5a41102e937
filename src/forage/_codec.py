"""JSON bytes as the shared formats write and read them.

Owns the two writers (compact and two-space pretty), the strict reader, the UTF-16 string rules of the formats and the one
converter factory. It knows no record, manifest or file. Formats: RFC 8259 as JavaScript's JSON object writes and reads it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import attrs

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = ["JsonError", "dump_compact", "dump_pretty", "is_well_formed", "load_json", "make_converter", "units", "utf16_key"]


# json.dumps makes an encoder for each call; a digest needs several.
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_PRETTY = json.JSONEncoder(ensure_ascii=False, indent=2, allow_nan=False)


class JsonError(ValueError):
    """The text is not JSON that the formats accept."""


def dump_compact(value: object) -> str:
    """One line, no spaces, non-ASCII raw; what digests are computed over (encode as UTF-8)."""
    return _COMPACT.encode(value)


def dump_pretty(value: object) -> str:
    """Two-space indentation, no final newline; what record files hold."""
    return _PRETTY.encode(value)


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


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


def make_converter(*, omit: Mapping[type, tuple[str, ...]] | None = None) -> Converter:
    """A cattrs converter between frozen values and camelCase JSON objects; unknown members are refused, none is defaulted away.

    ``omit`` names fields, by class, that are not part of the JSON form. Structuring raises cattrs' own exceptions: the module that reads
    untrusted text maps them to its error.
    """
    from cattrs import Converter
    from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

    left_out = omit or {}
    converter = Converter(forbid_extra_keys=True, prefer_attrib_converters=True)

    def overrides(cls: type) -> dict[str, Any]:
        fields = attrs.fields(cls)
        return {f.name: override(omit=True) if f.name in left_out.get(cls, ()) else override(rename=_camel(f.name)) for f in fields}

    converter.register_unstructure_hook_factory(attrs.has, lambda cls: make_dict_unstructure_fn(cls, converter, **overrides(cls)))
    converter.register_structure_hook_factory(
        attrs.has, lambda cls: make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True, **overrides(cls))
    )
    _strict_scalars(converter)
    return converter


def _strict_scalars(converter: Converter) -> None:
    """JSON has its own types: "1" is no number, 1 no text and no truth value."""
    for kind in (bool, int, float, str):

        def check(value: Any, wanted: type, kind: type = kind) -> Any:
            if wanted is not kind:  # an enumeration of texts is a text to the dispatch
                return wanted(value)
            if type(value) is kind or (kind is float and type(value) is int):
                return value
            raise TypeError(f"expected {kind.__name__}")

        converter.register_structure_hook(kind, check)
