"""Capture keys, the two wayback parsers and the link-path codec (pure).

A capture key is ``<timestamp>/<original URL>``, joined verbatim: no encoding, no case folding, no normal form, no replay flag. Owns the
key, its hash and its two paths, `parse_wayback_path` (what a server of captures reads), `parse_wayback_url` (what a leak looks like) and
the path spelling of a key. It knows no file and no request. The two parsers differ on purpose: the first repairs, the second does not.

Format: the cache root of wayback mirrors. Patterns are JavaScript's: digits and word characters are ASCII, a dot takes no line end.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container
from typing import Final

import attrs

from forage.snapshots.javascript import js_utf8

__all__ = [
    "ARCHIVE",
    "ARCHIVE_HOST",
    "RAW_FLAGS",
    "CaptureUrl",
    "CrawlInput",
    "ReplayPath",
    "archive_url",
    "body_path",
    "capture_key",
    "decode_capture_path",
    "document_path",
    "find_held",
    "format_capture_path",
    "is_addressable",
    "is_archive_family",
    "is_key",
    "key_hash",
    "parse_archive_url",
    "parse_crawl_input",
    "parse_wayback_path",
    "parse_wayback_url",
    "repair_original",
    "sidecar_path",
    "split_key",
]

ARCHIVE_HOST: Final = "web.archive.org"
ARCHIVE: Final = f"https://{ARCHIVE_HOST}"
RAW_FLAGS: Final = ("im_", "cs_", "js_", "oe_")
"""Replay flags of raw assets: the only ones that a sidecar or a recorded child carries."""

_LINE: Final = r"[^\n\r\u2028\u2029]+"  # what a dot takes in JavaScript
_PATH: Final = re.compile(rf"/(?:web/)?([0-9]{{4,14}})([a-z]{{1,3}}_)?/({_LINE})")
_URL: Final = re.compile(rf"https?://web\.archive\.org/web/([0-9]{{4,14}})([a-z]{{2}}_)?/({_LINE})")
_ARCHIVE_PREFIX: Final = re.compile(r"https?://web\.archive\.org/web", re.ASCII | re.IGNORECASE)
_ORIGIN: Final = re.compile(r"(https?)://([^/?#\s]+)", re.ASCII | re.IGNORECASE)
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
_TIMESTAMP: Final = re.compile(r"[0-9]{4,14}")
_ONE_SLASH: Final = re.compile(r"(https?):/(?!/)", re.ASCII | re.IGNORECASE)
_ONE_SLASH_LOWER: Final = re.compile(r"(https?):/(?!/)")
_ABSOLUTE: Final = re.compile(r"https?://[^/]", re.ASCII | re.IGNORECASE)
_SCHEMELESS: Final = re.compile(r"[\w-]++(?:\.[\w-]++)+(?=[:/?#]|\Z)", re.ASCII)

_ESCAPED: Final = frozenset(bytes(range(0x21)) + b"\"#%'<>\\^`{}" + bytes(range(0x7F, 0x100)))
_SPELLED: Final = tuple(f"%{byte:02X}" if byte in _ESCAPED else chr(byte) for byte in range(0x100))
_PERCENT: Final = re.compile(rb"%([0-9A-Fa-f]{2})")


def capture_key(timestamp: str, original: str) -> str:
    """The key of a capture. Nothing is checked or changed."""
    return f"{timestamp}/{original}"


def split_key(key: str) -> tuple[str, str] | None:
    """Timestamp and original of a key, split at its first slash; None when either side is empty."""
    timestamp, _, original = key.partition("/")
    return (timestamp, original) if timestamp and original else None


def key_hash(key: str) -> str:
    """Lower-case hexadecimal SHA-256 of the key's UTF-8; a lone surrogate counts as U+FFFD."""
    return hashlib.sha256(js_utf8(key)).hexdigest()


def body_path(digest: str) -> str:
    """Where a body is kept, relative to the root. The key itself is never a path component."""
    return f"cap/{digest[:2]}/{digest}"


def sidecar_path(digest: str) -> str:
    """Where a sidecar is kept, relative to the root."""
    return f"meta/{digest[:2]}/{digest}.json"


def archive_url(timestamp: str, flag: str, original: str) -> str:
    """The replay URL of a capture; ``flag`` is empty or ends in an underscore."""
    return f"{ARCHIVE}/web/{timestamp}{flag}/{original}"


@attrs.frozen(kw_only=True)
class ReplayPath:
    """What a path of a mirror asks for."""

    timestamp: str
    original: str
    flag: str | None = None

    @property
    def key(self) -> str:
        return capture_key(self.timestamp, self.original)

    @property
    def archive_url(self) -> str:
        """The same capture at the archive, flag kept."""
        return archive_url(self.timestamp, self.flag or "", self.original)

    @property
    def canonical_archive_url(self) -> str:
        """The same capture at the archive, without flag."""
        return archive_url(self.timestamp, "", self.original)


@attrs.frozen(kw_only=True)
class CaptureUrl:
    """What a URL of the archive names; ``flags`` is empty when there are none."""

    timestamp: str
    flags: str
    original: str

    @property
    def key(self) -> str:
        return capture_key(self.timestamp, self.original)


@attrs.frozen(kw_only=True)
class CrawlInput:
    """One document to mirror: the URL that is fetched and the key that it is kept under."""

    url: str
    key: str


def repair_original(text: str) -> str | None:
    """An original as a server of captures reads it: proxies collapse slashes and drop schemes. None when it cannot be a URL."""
    text = _ONE_SLASH.sub(r"\1://", text, count=1) if _ONE_SLASH.match(text) else text
    if _ABSOLUTE.match(text):
        return text
    if text.startswith("//") and len(text) > 2 and text[2] != "/":
        return f"https:{text}"
    return f"http://{text}" if _SCHEMELESS.match(text) else None


def parse_wayback_path(path: str) -> ReplayPath | None:
    """The serving parser: a path, with ``?query`` already appended, to the capture that it asks for."""
    found = _PATH.fullmatch(path)
    original = repair_original(found[3]) if found is not None else None
    if found is None or original is None:
        return None
    return ReplayPath(timestamp=found[1], flag=found[2], original=original)


def parse_archive_url(url: str) -> ReplayPath | None:
    """The serving parser on what follows ``/web`` in a URL of the archive."""
    found = _ARCHIVE_PREFIX.match(url)
    return None if found is None else parse_wayback_path(url[found.end() :])


def parse_wayback_url(url: str) -> CaptureUrl | None:
    """The foreign parser: exactly the archive's own spelling of a capture URL, and no repair beyond slashes."""
    found = _URL.fullmatch(url)
    return None if found is None else CaptureUrl(timestamp=found[1], flags=found[2] or "", original=repair_slashes(found[3]))


def repair_slashes(original: str) -> str:
    """Second slash of a lower-case scheme, scheme of a leading ``//``; nothing else."""
    if original.startswith("//"):
        return f"https:{original}"
    return _ONE_SLASH_LOWER.sub(r"\1://", original, count=1) if _ONE_SLASH_LOWER.match(original) else original


def parse_crawl_input(text: str, base: str = ARCHIVE) -> CrawlInput | None:
    """A replay URL, of the archive or of the service at ``base``, or a bare key; None for anything else. ``url`` is the archive's."""
    url = _at_archive(text, base)
    capture = parse_wayback_url(url)
    if capture is not None:
        return CrawlInput(url=url, key=capture.key)
    return CrawlInput(url=f"{ARCHIVE}/web/{text}", key=text) if is_key(text) else None


def is_key(text: str) -> bool:
    """True for the key of a capture: a timestamp, a slash, and something behind it."""
    parts = split_key(text)
    return parts is not None and _TIMESTAMP.fullmatch(parts[0]) is not None


def _at_archive(text: str, base: str) -> str:
    """The archive's own URL of what ``text`` names at another service; any other text as it is."""
    if base.rstrip("/") == ARCHIVE:
        return text
    prefix, url = _plain_origin(base.rstrip("/")), _plain_origin(text)
    return ARCHIVE + url[len(prefix) :] if url.startswith(f"{prefix}/web/") else text


def _plain_origin(url: str) -> str:
    """The URL with scheme and host in lower case and without default port; all behind them is left as it is written."""
    found = _ORIGIN.match(url)
    if found is None:
        return url
    scheme = found[1].lower()
    return f"{scheme}://{found[2].lower().removesuffix(_DEFAULT_PORTS[scheme])}{url[found.end() :]}"


def is_archive_family(host: str) -> bool:
    """True for archive.org and the hosts below it; ``host`` is as a URL parser gives it."""
    host = host.lower()
    return host == "archive.org" or host.endswith(".archive.org")


def format_capture_path(key: str) -> str:
    """The path that links to a key, escaped so that a URL parser leaves it alone."""
    return "/" + "".join(map(_SPELLED.__getitem__, js_utf8(key)))


def decode_capture_path(path: str) -> str:
    """Undo `format_capture_path`: only what it escapes is decoded, so ``%2F`` stays; bad UTF-8 is read with replacement."""
    if "%" not in path:
        return path
    return _PERCENT.sub(_decoded, js_utf8(path)).decode("utf-8", "replace")


def _decoded(found: re.Match[bytes]) -> bytes:
    byte = int(found[1], 16)
    return bytes([byte]) if byte in _ESCAPED else found[0]


def find_held(target: str, held: Container[str]) -> tuple[ReplayPath, bool] | None:
    """What a path and query ask for and whether it is held: the raw spelling first, the decoded one on a miss. None: no capture path."""
    raw = parse_wayback_path(target)
    if raw is not None and raw.key in held:
        return raw, True
    decoded = parse_wayback_path(decode_capture_path(target))
    if decoded is not None and decoded.key in held:
        return decoded, True
    return None if raw is None else (raw, False)


def document_path(key: str) -> str:
    """The path at which a mirror serves a document."""
    return "/web" + format_capture_path(key)


def is_addressable(key: str) -> bool:
    """False for a key whose path holds dot segments: every URL parser resolves them away, so no browser can ask for it."""
    return not {".", ".."} & set(key.partition("?")[0].split("/"))
