"""What kind of markup a body is, and in which encoding, for link discovery only (pure).

Order of evidence: byte-order mark, Content-Type, meta (or XML declaration), UTF-8 if the bytes are valid, else windows-1252. The text of
a snapshot follows the header alone, so the two may differ. Kinds follow the MIME Sniffing Standard; the search for a meta declaration is
"prescan a byte stream to determine its encoding" of the HTML Standard. Decoding itself belongs to `forage.snapshots`.
"""

from __future__ import annotations

import codecs
import re
from enum import StrEnum
from functools import lru_cache

import attrs

from forage.snapshots import charset_of, decode_text_body

__all__ = ["MAX_MARKUP_BYTES", "Kind", "Markup", "media_type", "read_markup"]

MAX_MARKUP_BYTES = 8 * 1024 * 1024
"""What lies beyond is not searched: parsing holds the interpreter lock."""

PRESCAN_BYTES = 1024
LATE_PRESCAN_BYTES = 64 * 1024
_LONGEST_TYPE = 256

_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # RFC 9110 section 5.6.2
_ESSENCE = re.compile(rf"[\t\n\r ]*({_WORD}/{_WORD})[\t\n\r ]*(?:;|\Z)")
_UNKNOWN = frozenset(["unknown/unknown", "application/unknown", "*/*"])
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_BE, "utf-16be"), (codecs.BOM_UTF16_LE, "utf-16le"))

# MIME Sniffing Standard, sections 6 and 7.1: formats that are never markup, whatever their label says.
_BINARY = re.compile(
    rb"%PDF-|%!PS-Adobe-|GIF8[79]a|\x89PNG\r\n\x1a\n|\xff\xd8\xff|BM....\x00\x00\x00\x00|\x00\x00[\x01\x02]\x00"
    rb"|RIFF....(?:WEBPVP|AVI |WAVE)|FORM....AIFF|OggS\x00|MThd\x00\x00\x00\x06|ID3|....ftyp|\x1a\x45\xdf\xa3"
    rb"|\x1f\x8b\x08|PK\x03\x04|Rar!?\x1a\x07|wOF[F2]|OTTO\x00|ttcf\x00|\x00\x01\x00\x00",
    re.DOTALL,
)
_MARKUP_START = re.compile(r"<[A-Za-z!?/]")
_SPACE = "\t\n\f\r "


class Kind(StrEnum):
    """How the text is to be parsed."""

    HTML = "html"
    XHTML = "xhtml"
    XML = "xml"


@attrs.frozen(kw_only=True)
class Markup:
    """``text`` to parse as ``kind``; ``encoding`` is the WHATWG name that queries of its links are written in.

    ``utf8`` is the text as UTF-8 where the body was just that.
    """

    kind: Kind
    text: str = attrs.field(repr=lambda text: f"<str of {len(text)}>")
    encoding: str
    utf8: bytes | None = attrs.field(default=None, repr=False)
    warnings: tuple[str, ...] = ()


def media_type(content_type: str | None) -> str | None:
    """The lower-case ``type/subtype`` of a Content-Type (the last well-formed one of several), None when there is none."""
    for piece in reversed((content_type or "").split(",")):
        match = _ESSENCE.match(piece)
        if match is not None:
            return match[1].lower()
    return None


@attrs.frozen
class _Declared:
    """What a Content-Type says: the kind, None for what is no markup; whether it names a type at all; the encoding's WHATWG name."""

    kind: Kind | None
    labelled: bool
    encoding: str | None


def _read_type(content_type: str | None) -> _Declared:
    media = media_type(content_type)
    return _Declared(_declared_kind(media), media is not None and media not in _UNKNOWN, _known(_header_charset(content_type)))


_read_known_type = lru_cache(maxsize=256)(_read_type)


def _declared_kind(media: str | None) -> Kind | None:
    """None: not markup. A missing, unknown or malformed type is HTML until the body is looked at."""
    if media is None or media in _UNKNOWN or media == "text/html":
        return Kind.HTML
    if media == "application/xhtml+xml":
        return Kind.XHTML
    return Kind.XML if media in ("text/xml", "application/xml") or media.endswith("+xml") else None


def read_markup(body: bytes | str, content_type: str | None, decoded: str | None = None) -> Markup | tuple[str, ...]:
    """The markup in a body, or only the warnings when it is none. Reads at most `MAX_MARKUP_BYTES`; never raises.

    A ``str`` body is taken as decoded (UTF-8 for queries), a rendered page for one. ``decoded`` is what UTF-8 makes of ``bytes``,
    errors replaced, where the caller has it.
    """
    # A site has few types, which are short; others must not fill the memory.
    declared = (_read_known_type if content_type is None or len(content_type) <= _LONGEST_TYPE else _read_type)(content_type)
    kind = declared.kind
    if kind is None:
        return ()
    warnings: list[str] = []
    if len(body) > MAX_MARKUP_BYTES:
        body, decoded = body[:MAX_MARKUP_BYTES], None
        warnings.append("html-truncated")
    head = body[:64] if isinstance(body, bytes) else body[:64].encode("latin-1", "replace")
    if _BINARY.match(head) is not None:
        return ("content-type-mismatch",) if declared.labelled else ()
    if isinstance(body, str):
        text, encoding, utf8 = body.removeprefix("\ufeff"), "utf-8", None
    else:
        text, encoding, utf8 = _decode(body, declared.encoding, decoded, truncated=bool(warnings))
    if not declared.labelled:
        start = text[:PRESCAN_BYTES].lstrip(_SPACE)
        if _MARKUP_START.match(start) is None:
            return ()
        if start.startswith("<?xml"):
            kind = Kind.XHTML
    return Markup(kind=kind, text=text, encoding=encoding, utf8=utf8, warnings=tuple(warnings))


_Decoded = tuple[str, str, "bytes | None"]


def _decode(body: bytes, declared: str | None, decoded: str | None, *, truncated: bool) -> _Decoded:
    """Text and the name of its encoding, by the first evidence there is; and the bytes, where they are the text's UTF-8."""
    for mark, encoding in _BOMS:
        if body.startswith(mark):
            return _decode_as(body, encoding)
    name = declared or _declared(body[:PRESCAN_BYTES])
    if decoded is not None and name in (None, "utf-8") and "\ufffd" not in decoded:  # nothing was replaced
        return decoded, "utf-8", body
    if name is not None:
        return _decode_as(body, name)
    try:
        return body.decode("utf-8"), "utf-8", body
    except UnicodeDecodeError as exc:
        if truncated and exc.start >= len(body) - 3 and exc.reason == "unexpected end of data":
            return body[: exc.start].decode("utf-8"), "utf-8", None
    # A browser honours a meta that its parser meets later, too, by starting over.
    return _decode_as(body, _declared(body[:LATE_PRESCAN_BYTES]) or "windows-1252")


def _decode_as(body: bytes, name: str) -> _Decoded:
    if name == "utf-8":
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError:
            pass
        else:
            return (text[1:], name, None) if text.startswith("\ufeff") else (text, name, body)
    return decode_text_body(body, name).text, name, None


def _header_charset(content_type: str | None) -> str | None:
    if content_type is None or ";" not in content_type:
        return None
    found = (charset_of(piece)[0] for piece in content_type.split(","))
    return next((charset for charset in found if charset is not None), None)


def _known(label: str | None) -> str | None:
    """The name of the encoding that a label means; None for an unknown label."""
    if label is None:
        return None
    decoded = decode_text_body(b"", label)
    return None if decoded.unknown_label else decoded.encoding


_CHARSET_WORD = re.compile(rb"charset|<\?xml", re.IGNORECASE)
_SKIPPED = re.compile(rb"<(?:!--|[!?]|/(?![A-Za-z])|(/?)([A-Za-z][^\t\n\f\r />]*))")
_ATTRIBUTE = re.compile(
    rb"[\t\n\f\r /]*([^\t\n\f\r />][^\t\n\f\r />=]*)"
    rb"""(?:[\t\n\f\r ]*=[\t\n\f\r ]*(?:"([^"]*)(?:"|\Z)|'([^']*)(?:'|\Z)|([^\t\n\f\r >"'][^\t\n\f\r >]*))?)?"""
)
_META_CHARSET = re.compile(rb"""charset[\t\n\f\r ]*=[\t\n\f\r ]*(?:"([^"]*)"|'([^']*)'|([^"'\t\n\f\r ;][^\t\n\f\r ;]*))""", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"""<\?xml[^>]*?[\t\n\f\r ]encoding[\t\n\f\r ]*=[\t\n\f\r ]*(?:"([^"]*)"|'([^']*)')""")


def _declared(head: bytes) -> str | None:
    """The encoding that a meta element within these bytes declares, else an XML declaration."""
    if _CHARSET_WORD.search(head) is None:
        return None
    at = 0
    while (match := _SKIPPED.search(head, at)) is not None:
        at = match.end()
        name = match[2]
        if name is None:
            end = head.find(b"-->", at - 2) if match[0] == b"<!--" else head.find(b">", at)
            if end == -1:
                break
            at = end + 1
            continue
        attributes, at = _attributes(head, at)
        if name.lower() == b"meta" and not match[1] and (found := _meta_encoding(attributes)) is not None:
            return found
    xml = _XML_ENCODING.match(head)
    return None if xml is None else _readable(_known((xml[1] or xml[2] or b"").decode("latin-1")))


def _attributes(head: bytes, at: int) -> tuple[dict[bytes, bytes], int]:
    found: dict[bytes, bytes] = {}
    while (match := _ATTRIBUTE.match(head, at)) is not None:
        at = match.end()
        found.setdefault(match[1].lower(), match[2] or match[3] or match[4] or b"")
    return found, at


def _meta_encoding(attributes: dict[bytes, bytes]) -> str | None:
    label = attributes.get(b"charset")
    if label is None and attributes.get(b"http-equiv", b"").lower() == b"content-type":
        match = _META_CHARSET.search(attributes.get(b"content", b""))
        label = None if match is None else match[1] or match[2] or match[3]
    return None if label is None else _readable(_known(label.decode("latin-1")))


def _readable(name: str | None) -> str | None:
    """A declaration that was read as ASCII cannot mean UTF-16; and the standard maps x-user-defined so."""
    if name in ("utf-16le", "utf-16be"):
        return "utf-8"
    return "windows-1252" if name == "x-user-defined" else name
