"""Reference strings, the envelope that their digest commits to, and identities.

Owns the grammar of both generations, with and without snapshot digest; it resolves nothing. Format: sections 3 and 4 of the snapshot
formats.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from forage._codec import dump_compact, is_well_formed, units, utf16_key
from forage.errors import InvalidSnapshotError
from forage.snapshots.javascript import js_integer_text, quote_json
from forage.snapshots.model import (
    MAX_FETCHED_AT_UNITS,
    MAX_RELEASED_UNITS,
    MAX_SOURCE_ID_UNITS,
    MAX_URL_UNITS,
    SHA256_HEX,
    Snapshot,
    sha256_hex,
    validate_snapshot,
)

__all__ = [
    "MAX_REFERENCE_UNITS",
    "MAX_RELEASED_REFERENCE_UNITS",
    "Lookup",
    "SourceRef",
    "build_source_ref",
    "encode_uri_component",
    "envelope_json",
    "format_source_ref",
    "identity_digest",
    "lookup_of",
    "parse_source_ref",
    "snapshot_digest",
    "validate_lookup",
]

MAX_REFERENCE_UNITS = 16_384
MAX_RELEASED_REFERENCE_UNITS = 1_048_576

_PREFIX = "forage-snapshot:"
_DIGEST = "&snapshotSha256="
# URLs and what is made of them hold these and little else that is escaped; other texts go through the expressions.
_COMPONENT_PLAIN = re.compile(r"[A-Za-z0-9\-_.!~*'()%:/]*")
_FORM_PLAIN = re.compile(r"[A-Za-z0-9*\-._%:/]*")
_COMPONENT_RESERVED = re.compile(rb"[^A-Za-z0-9\-_.!~*'()]")
_FORM_RESERVED = re.compile(rb"[^A-Za-z0-9*\-._ ]")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


@attrs.frozen(kw_only=True)
class Lookup:
    """The fields by which a store finds one snapshot exactly. Without digest: the identity as the 0.3 generation cited it."""

    source_id: str
    url: str
    body_hash: str
    fetched_at: str
    snapshot_digest: str | None = None


@attrs.frozen(kw_only=True)
class SourceRef:
    """A parsed reference. Only a ``canonical`` one may be resolved: its fields, formatted again, are the text that was parsed."""

    source_id: str
    url: str
    body_hash: str
    fetched_at: str
    snapshot_digest: str | None = None
    canonical: bool

    @property
    def lookup(self) -> Lookup:
        """The same fields, as stores take them."""
        return Lookup(
            source_id=self.source_id,
            url=self.url,
            body_hash=self.body_hash,
            fetched_at=self.fetched_at,
            snapshot_digest=self.snapshot_digest,
        )


def lookup_of(snapshot: Snapshot, *, released: bool = False) -> Lookup:
    """The lookup that finds this snapshot; ``released`` leaves the digest out."""
    return Lookup(
        source_id=snapshot.source_id,
        url=snapshot.url,
        body_hash=snapshot.body_hash,
        fetched_at=snapshot.fetched_at,
        snapshot_digest=None if released else snapshot_digest(snapshot, released_identity=True),
    )


def validate_lookup(lookup: Lookup) -> None:
    """Raise InvalidSnapshotError unless a store may look this up. The limits are those of the reference generation it comes from."""
    given: object = lookup  # the type is looked at: callers do not always keep it
    if not isinstance(given, Lookup):
        raise InvalidSnapshotError("lookup: takes a Lookup")
    exact = lookup.snapshot_digest is not None
    limits = (("source_id", MAX_SOURCE_ID_UNITS), ("url", MAX_URL_UNITS), ("fetched_at", MAX_FETCHED_AT_UNITS))
    for field, limit in limits:
        value = getattr(lookup, field)
        most = limit if exact else MAX_RELEASED_UNITS
        if not isinstance(value, str) or not value or len(value) > most or units(value) > most:
            raise InvalidSnapshotError(f"{field}: takes 1 to {most} UTF-16 units of text")
    for field in ("body_hash", "snapshot_digest"):
        value = getattr(lookup, field)
        if (field == "body_hash" or exact) and not (isinstance(value, str) and SHA256_HEX.fullmatch(value)):
            raise InvalidSnapshotError(f"{field}: takes 64 lower-case hexadecimal digits")


def envelope_json(snapshot: Snapshot, *, released_identity: bool = False) -> str:
    """The compact JSON that the snapshot digest is taken over. The text is not in it: ``bodyHash`` commits to that.

    Raises InvalidSnapshotError for a snapshot that is not durable.
    """
    validate_snapshot(snapshot, released_identity=released_identity)
    if snapshot.raw_bytes is not None:
        encoding = f'"charset-decoded-bytes","declaredCharset":{dump_compact(snapshot.declared_charset)}'
    else:
        encoding = '"utf8"' if isinstance(snapshot.body, str) else '"bytes"'
    headers = snapshot.headers
    pairs = None if headers is None else [[name, headers[name]] for name in _in_order(headers)]
    tail = dump_compact({"headers": pairs, "redirects": snapshot.redirects, "rendered": snapshot.rendered})
    return (
        f'{{"sourceId":{quote_json(snapshot.source_id)},"url":{quote_json(snapshot.url)},"status":{js_integer_text(snapshot.status)},'
        f'"fetchedAt":{quote_json(snapshot.fetched_at)},"bodyHash":"{snapshot.body_hash}","bodyEncoding":{encoding},{tail[1:]}'
    )


def _in_order(names: Mapping[str, str]) -> list[str]:
    if "".join(names).isascii():
        return sorted(names)
    return sorted(names, key=utf16_key)


def snapshot_digest(snapshot: Snapshot, *, released_identity: bool = False) -> str:
    """SHA-256 of the envelope, computed once a snapshot. Raises InvalidSnapshotError for a snapshot that is not durable."""
    validate_snapshot(snapshot, released_identity=released_identity)
    proof = snapshot._proof  # noqa: SLF001 - this package's own mark on an immutable value
    if proof.digest is None:
        proof.digest = sha256_hex(envelope_json(snapshot, released_identity=released_identity).encode())
    return proof.digest


def identity_digest(item: Snapshot | Lookup | SourceRef) -> str:
    """SHA-256 of the identity: source, URL, body hash and time, without the rest of the envelope."""
    text = dump_compact([item.source_id, item.url, item.body_hash, item.fetched_at])
    return sha256_hex(text.encode("utf-8", "surrogatepass"))


def build_source_ref(snapshot: Snapshot) -> str:
    """The canonical reference of a snapshot, with its digest. Raises InvalidSnapshotError when the snapshot is not durable, or the
    reference would be longer than 16,384 units."""
    digest = snapshot_digest(snapshot)
    text = _identity_text(snapshot.source_id, snapshot.url, snapshot.body_hash, snapshot.fetched_at) + _DIGEST + digest
    if len(text) > MAX_REFERENCE_UNITS:
        raise InvalidSnapshotError(f"source reference would be longer than {MAX_REFERENCE_UNITS} units")
    return text


def format_source_ref(ref: Lookup | SourceRef) -> str:
    """The canonical text of these fields, of any length; ASCII only."""
    text = _identity_text(ref.source_id, ref.url, _encode_form(ref.body_hash), ref.fetched_at)
    return text if ref.snapshot_digest is None else text + _DIGEST + _encode_form(ref.snapshot_digest)


def _identity_text(source_id: str, url: str, body_hash: str, fetched_at: str) -> str:
    return f"{_PREFIX}{encode_uri_component(source_id)}?url={_encode_form(url)}&sha256={body_hash}&fetchedAt={_encode_form(fetched_at)}"


def parse_source_ref(text: object) -> SourceRef | None:
    """Read a reference; None when it is none. Never raises, whatever is passed. See `SourceRef.canonical` for what may be resolved."""
    if not isinstance(text, str) or len(text) > MAX_RELEASED_REFERENCE_UNITS or not text.startswith(_PREFIX):
        return None
    if units(text) > MAX_RELEASED_REFERENCE_UNITS or not is_well_formed(text):
        return None
    source, question, query = text[len(_PREFIX) :].partition("?")
    source_id = _decode_component(source) if question else None
    fields = _decode_form(query)
    url, body_hash, fetched_at = (fields.get(name, "") for name in ("url", "sha256", "fetchedAt"))
    digest = fields.get("snapshotSha256")
    if not (source_id and url and body_hash and fetched_at):
        return None
    if digest is not None and not _within_limits(text, source_id, url, fetched_at):
        return None
    plain = Lookup(source_id=source_id, url=url, body_hash=body_hash, fetched_at=fetched_at, snapshot_digest=digest)
    hashes = SHA256_HEX.fullmatch(body_hash) and (digest is None or SHA256_HEX.fullmatch(digest))
    canonical = bool(hashes) and format_source_ref(plain) == text
    return SourceRef(source_id=source_id, url=url, body_hash=body_hash, fetched_at=fetched_at, snapshot_digest=digest, canonical=canonical)


def _within_limits(text: str, source_id: str, url: str, fetched_at: str) -> bool:
    return (
        units(text) <= MAX_REFERENCE_UNITS
        and units(source_id) <= MAX_SOURCE_ID_UNITS
        and units(url) <= MAX_URL_UNITS
        and units(fetched_at) <= MAX_FETCHED_AT_UNITS
    )


def _escape(match: re.Match[bytes]) -> bytes:
    return b"%%%02X" % match[0][0]


def _unescape(match: re.Match[bytes]) -> bytes:
    return bytes((int(match[1], 16),))


def encode_uri_component(text: str) -> str:
    """JavaScript's encodeURIComponent: the first part of a reference, and the seed in a crawl's source ids."""
    if _COMPONENT_PLAIN.fullmatch(text) is not None:
        return _escape_url(text)
    return _COMPONENT_RESERVED.sub(_escape, text.encode()).decode("ascii")


def _encode_form(text: str) -> str:
    """One value of application/x-www-form-urlencoded."""
    if _FORM_PLAIN.fullmatch(text) is not None:
        return _escape_url(text)
    return _FORM_RESERVED.sub(_escape, text.encode()).replace(b" ", b"+").decode("ascii")


def _escape_url(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F").replace(":", "%3A")


def _decode_component(text: str) -> str | None:
    """decodeURIComponent; None for a bad escape or escapes that are not UTF-8."""
    if "%" not in text:
        return text
    if _BAD_ESCAPE.search(text):
        return None
    try:
        return _ESCAPE.sub(_unescape, text.encode()).decode()
    except UnicodeDecodeError:
        return None


def _decode_form_text(text: str) -> str:
    text = text.replace("+", " ")
    return text if "%" not in text else _ESCAPE.sub(_unescape, text.encode()).decode("utf-8", "replace")


def _decode_form(query: str) -> dict[str, str]:
    """The four parameters of a reference; the first occurrence of each name counts, bad escapes stay as they are."""
    found: dict[str, str] = {}
    for piece in query.removeprefix("?").split("&"):
        name, _, value = piece.partition("=")
        name = _decode_form_text(name)
        if name in {"url", "sha256", "fetchedAt", "snapshotSha256"} and name not in found:
            found[name] = _decode_form_text(value)
    return found
