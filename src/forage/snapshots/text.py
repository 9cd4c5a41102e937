"""Text bodies: which are text, the charset that Content-Type declares, and the WHATWG decoders.

Owns section 7 of the snapshot formats. It does not look into the document (no byte-order mark or meta sniffing): the text of a
snapshot follows the header alone, so that anyone can decode the stored bytes again.
"""

from __future__ import annotations

import re

import attrs

from forage.snapshots.encodings import REPLACEMENT, UTF8, Encoding, find_encoding, is_quick
from forage.snapshots.javascript import js_trim

__all__ = ["CHARSET_TOKEN", "DecodedText", "charset_of", "decode_text_body", "decodes_quickly", "decodes_to", "is_textual"]

CHARSET_TOKEN = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,64}")
_TEXTUAL = ("json", "xml", "javascript", "x-www-form-urlencoded")
_MALFORMED = "content-type declares a malformed charset parameter; decoded as utf-8"


@attrs.frozen(kw_only=True)
class DecodedText:
    """``text`` and how it came about: ``encoding`` is the name of the decoder used, ``invalid`` that bytes were replaced by
    U+FFFD, ``unknown_label`` that the charset named no decoder and UTF-8 was used."""

    text: str = attrs.field(repr=lambda text: f"<str of {len(text)}>")
    encoding: str
    invalid: bool = False
    unknown_label: bool = False
    warnings: tuple[str, ...] = ()


def is_textual(content_type: str | None) -> bool:
    """Whether a body of this Content-Type is kept as text; a missing or empty header counts as text."""
    if not content_type:
        return True
    lowered = content_type.lower()
    return lowered.startswith("text/") or any(part in lowered for part in _TEXTUAL)


def charset_of(content_type: str | None) -> tuple[str | None, tuple[str, ...]]:
    """The charset token that Content-Type declares (lower-case), or None; with a warning when the parameter is malformed.

    The first ``charset`` parameter decides. Quotes do not protect a ``;``.
    """
    for piece in (content_type or "").split(";")[1:]:
        name, found, value = piece.partition("=")
        if not found or js_trim(name).lower() != "charset":
            continue
        value = js_trim(value)
        if len(value) >= 2 and value[0] == value[-1] == '"':
            value = js_trim(value[1:-1])
        value = value.lower()
        return (value, ()) if CHARSET_TOKEN.fullmatch(value) else (None, (_MALFORMED,))
    return None, ()


def decodes_quickly(content_type: str | None) -> bool:
    """Whether a body of this Content-Type costs milliseconds a MiB to make a snapshot of. The multi-byte charsets of East Asia may cost
    hundreds: who must not be held up makes those snapshots in a thread."""
    charset = charset_of(content_type)[0] if is_textual(content_type) else None
    return charset is None or is_quick(charset)


def _chosen(charset: str | None) -> tuple[Encoding, bool]:
    """The decoder to use, and whether it is a fall-back for a label that names none."""
    named = UTF8 if charset is None else find_encoding(charset)
    return (UTF8, True) if named is None or named is REPLACEMENT else (named, False)


def decode_text_body(body: bytes, charset: str | None) -> DecodedText:
    """Decode by a charset label (None: UTF-8) as the WHATWG Encoding Standard does; never fails.

    An unknown label, and those of the "replacement" encoding, fall back to UTF-8. A leading byte-order mark of the chosen encoding is
    dropped; a mark of another never changes the encoding. Time and memory are linear in ``body``.
    """
    encoding, unknown = _chosen(charset)
    text, invalid = encoding.decode(body)
    warnings = []
    if unknown:
        warnings.append(f'unknown charset "{charset}"; decoded as utf-8')
    if invalid:
        warnings.append(f"body is not valid {encoding.name}; invalid bytes were replaced with U+FFFD")
    return DecodedText(text=text, encoding=encoding.name, invalid=invalid, unknown_label=unknown, warnings=tuple(warnings))


def decodes_to(body: bytes, charset: str | None, text: str) -> bool:
    """Whether `decode_text_body` gives exactly ``text``; in pieces, without making it a second time."""
    position = 0
    for piece, _ in _chosen(charset)[0].pieces(body):
        if not text.startswith(piece, position):
            return False
        position += len(piece)
    return position == len(text)
