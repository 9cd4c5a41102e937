"""References to captures, as pages and style sheets write them (rule 3 of localising, sections 2, 3 and 8; pure).

Owns the grammar of a reference, where its token ends, the spellings under which a mirror may hold it, the list rule of ``srcset`` and the
refresh rule of ``meta``. Every search is linear in its text.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import Final, NamedTuple

from forage.mirror.keys import capture_key, repair_original

__all__ = [
    "Reference",
    "cut_length",
    "find_references",
    "is_held",
    "is_repairable",
    "list_references",
    "may_refer",
    "refresh_reference",
    "script_references",
    "spellings",
]

_PREFIX: Final = r"(?i:(?:https?:)?//web\.archive\.org)(?::(?:80|443))?"
_CAPTURE: Final = r"/web/([0-9]{4,14})(?:[a-z]{1,3}_)?/"
_HOST: Final = re.compile(r"//web\.archive\.org", re.ASCII | re.IGNORECASE)
# A prefix counts at the start, or after white space or one of these; so a URL inside another URL stays.
_REFERENCE: Final = re.compile(rf"""(?<![^\t-\r "'(,;\[|>])({_PREFIX}){_CAPTURE}""", re.ASCII)
_AT: Final = re.compile(rf"({_PREFIX}){_CAPTURE}", re.ASCII)
_LITERAL: Final = re.compile(
    rf"""(["'])((?i:https?://web\.archive\.org)(?::(?:80|443))?){_CAPTURE}([^\\\r\n]+?)\1""",
    re.ASCII,
)
_TOKEN: Final = re.compile(r"""[^"'<>\\\x00-\x20]*""")
_CUT: Final = re.compile(r"""["'<>\\\x00-\x20()]""")
_SCHEMES: Final = (6, 5, 0)  # lengths of https:, http: and nothing

_LIST_GAP: Final = re.compile(r"[\t\n\f\r ,]*")
_LIST_URL: Final = re.compile(r"[^\t\n\f\r ]+")
_DESCRIPTORS: Final = re.compile(r"(?:[^(,]++|\([^)]*+\)?+)*")
_REFRESH: Final = re.compile(
    r"""[\t\n\f\r ]*[0-9.]+[\t\n\f\r ]*[;,]?[\t\n\f\r ]*(?:url[\t\n\f\r ]*=[\t\n\f\r ]*)?["']?""", re.ASCII | re.IGNORECASE
)

_HIGH: Final = re.compile("[\udc80-\udcff]")
_UNSAFE: Final = re.compile(r"""[^\x21-\x7e]|["<>`{}]""")
# Bytes that windows-1252 leaves undefined are controls to a browser.
_WINDOWS_1252: Final = {0xDC00 + byte: bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(0x80, 0x100)}


class Reference(NamedTuple):
    """One reference: its prefix is ``start`` to ``prefix_end``, its token ``token``, and scanning goes on at ``end``."""

    start: int
    prefix_end: int
    timestamp: str
    token: str
    end: int


def may_refer(text: str) -> bool:
    """False when no reference can stand in ``text``, decoded or not."""
    return "&" in text or _HOST.search(text) is not None


def cut_length(text: str, start: int) -> int:
    """Where a token that starts at ``start`` ends when it is cut before its first unbalanced parenthesis."""
    depth = 0
    for found in _CUT.finditer(text, start):
        match found[0]:
            case "(":
                depth += 1
            case ")" if depth:
                depth -= 1
            case _:
                return found.start()
    return len(text)


def find_references(text: str, *, cut: bool) -> Iterator[Reference]:
    """References anywhere in ``text``. With ``cut`` tokens end before an unbalanced parenthesis, as in style sheets."""
    at = 0
    while (host := _HOST.search(text, at)) is not None:
        found = _begin(text, host.start(), at)
        at = host.end()
        if found is not None:
            reference = _complete(text, found, cut=cut)
            if reference.token:
                at = reference.end
                yield reference


def _begin(text: str, host: int, least: int) -> re.Match[str] | None:
    """The match of a reference whose host is at ``host``, with whichever scheme it has."""
    starts = (host - length for length in _SCHEMES)
    matches = (_REFERENCE.match(text, start) for start in starts if start >= least)
    return next((found for found in matches if found is not None), None)


def _complete(text: str, found: re.Match[str], *, cut: bool) -> Reference:
    start = found.end()
    if cut:
        end = cut_length(text, start)
    else:
        token = _TOKEN.match(text, start)
        assert token is not None
        end = token.end()
    return Reference(found.start(1), found.end(1), found[2], text[start:end], end)


def list_references(text: str) -> Iterator[Reference]:
    """References of a ``srcset``, by the standard's own splitting: each begins its URL and takes all of it."""
    at = 0
    while True:
        gap = _LIST_GAP.match(text, at)
        assert gap is not None
        url = _LIST_URL.match(text, gap.end())
        if url is None:
            return
        bare = url[0].rstrip(",")
        if len(bare) == len(url[0]):
            rest = _DESCRIPTORS.match(text, url.end())
            assert rest is not None
            at = rest.end()
        else:
            at = url.end()
        found = _AT.match(text, url.start(), url.start() + len(bare))
        if found is not None and found.end() < url.start() + len(bare):
            end = url.start() + len(bare)
            yield Reference(found.start(1), found.end(1), found[2], text[found.end() : end], end)


def refresh_reference(text: str) -> Reference | None:
    """The reference that a refresh declaration leads to."""
    opening = _REFRESH.match(text)
    found = None if opening is None else _AT.match(text, opening.end())
    if found is None:
        return None
    reference = _complete(text, found, cut=False)
    return reference if reference.token else None


def script_references(text: str) -> Iterator[Reference]:
    """Complete string literals of a script that are a reference and nothing else."""
    if _HOST.search(text) is None:
        return
    for found in _LITERAL.finditer(text):
        yield Reference(found.start(2), found.end(2), found[3], found[4], found.end())


def _read(token: str) -> str:
    """A token's text: UTF-8, or windows-1252 where its bytes are not UTF-8."""
    if token.isascii() or _HIGH.search(token) is None:
        return token
    try:
        return token.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeDecodeError:
        return token.translate(_WINDOWS_1252)


def _escape(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


def spellings(token: str) -> tuple[str, ...]:
    """Originals under which a mirror may hold what a token names: as repaired, as a browser escapes it, and both without fragment."""
    repaired = repair_original(_read(token))
    if repaired is None:
        return ()
    escaped = _UNSAFE.sub(_escape, repaired)
    return tuple(dict.fromkeys([repaired, escaped, repaired.partition("#")[0], escaped.partition("#")[0]]))


def is_held(reference: Reference, held: Container[str]) -> bool:
    """True when the mirror holds a capture of any status for the reference."""
    return any(capture_key(reference.timestamp, original) in held for original in spellings(reference.token))


def is_repairable(reference: Reference) -> bool:
    """True when a mirror could be asked for the reference."""
    return repair_original(_read(reference.token)) is not None
