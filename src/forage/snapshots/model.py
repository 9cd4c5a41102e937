"""The snapshot: what was received, in the form that may be digested, referenced and stored.

Owns the value, the durable-shape rules and the hash input. It knows no reference text, record file or store.
Format: sections 2 and 7 of the snapshot formats.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import attrs

from forage._codec import is_well_formed, units
from forage.errors import InvalidSnapshotError
from forage.snapshots.javascript import js_integer
from forage.snapshots.text import CHARSET_TOKEN, decodes_to

__all__ = [
    "MAX_BODY_BYTES",
    "MAX_FETCHED_AT_UNITS",
    "MAX_RELEASED_UNITS",
    "MAX_SOURCE_ID_UNITS",
    "MAX_URL_UNITS",
    "SHA256_HEX",
    "HashBasis",
    "Snapshot",
    "body_bytes",
    "body_slices",
    "canonical_clone",
    "prove_made",
    "sha256_hex",
    "snapshot_hash_basis",
    "validate_snapshot",
]

MAX_SOURCE_ID_UNITS = 1024
MAX_URL_UNITS = 8192
MAX_FETCHED_AT_UNITS = 256
MAX_RELEASED_UNITS = 1_048_576
"""Limit of each of the three strings in records and references of the 0.3 generation."""
MAX_BODY_BYTES = 64 * 1024 * 1024
SHA256_HEX = re.compile("[0-9a-f]{64}")

# Large texts are encoded in pieces, so that another thread gets the interpreter in between.
_SLICE = 256 * 1024


class HashBasis(StrEnum):
    """What ``body_hash`` is the SHA-256 of."""

    BYTES = "bytes"
    """The bytes as received, after content codings."""
    DECODED_UTF8 = "decoded-utf8"
    """The UTF-8 of the text: older text records and rendered pages."""


class _Proof:
    """What was already proved of one immutable snapshot, so that put, digest and reference prove it once."""

    __slots__ = ("digest", "durable", "released")

    def __init__(self) -> None:
        self.durable = False
        self.released = False
        self.digest: str | None = None


def _integral(value: int) -> int:
    exact = js_integer(value)
    return value if exact is None else exact


def _own_headers(value: Mapping[str, str] | None) -> Mapping[str, str] | None:
    # Not a mapping: kept as it is, for validate_snapshot to refuse.
    return MappingProxyType(dict(value)) if isinstance(value, Mapping) else value


def _own_redirects(value: tuple[str, ...] | list[str] | None) -> tuple[str, ...] | None:
    return tuple(value) if isinstance(value, list) else value


def _shown(body: str | bytes | None) -> str:
    return "None" if body is None else f"<{type(body).__name__} of {len(body)}>"


@attrs.frozen(kw_only=True)
class Snapshot:
    """One response as kept. Making one checks nothing; `validate_snapshot` says whether it is durable.

    ``body`` is text or bytes. ``raw_bytes`` are the bytes that a text body was decoded from with ``declared_charset`` (the charset
    token of Content-Type, None when it named none); a text body without them is hashed as its UTF-8. ``fetched_at`` is
    ISO-8601 UTC with milliseconds and ``Z``. ``redirects`` are the URLs left behind. ``not_modified`` marks an answer to a
    revalidation: transient, never digested or stored. Header mappings and redirect lists are copied.
    """

    source_id: str
    url: str
    status: int = attrs.field(converter=_integral)
    fetched_at: str
    body: str | bytes = attrs.field(repr=_shown)
    body_hash: str
    raw_bytes: bytes | None = attrs.field(default=None, repr=_shown)
    declared_charset: str | None = None
    headers: Mapping[str, str] | None = attrs.field(default=None, converter=_own_headers, hash=False)
    redirects: tuple[str, ...] | None = attrs.field(default=None, converter=_own_redirects)
    rendered: bool | None = None
    not_modified: bool = False
    _proof: _Proof = attrs.field(factory=_Proof, init=False, eq=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies by its fields; a read-only header view does neither by itself."""
        fields = {a.name: getattr(self, a.name) for a in attrs.fields(Snapshot) if a.init}
        if isinstance(self.headers, MappingProxyType):
            fields["headers"] = dict(self.headers)
        return _rebuild, (fields,)


def _rebuild(fields: dict[str, Any]) -> Snapshot:
    return Snapshot(**fields)


def sha256_hex(data: bytes) -> str:
    """Lower-case hexadecimal SHA-256."""
    return hashlib.sha256(data).hexdigest()


def snapshot_hash_basis(snapshot: Snapshot) -> HashBasis:
    """What the snapshot's ``body_hash`` was taken over."""
    if isinstance(snapshot.body, str) and snapshot.raw_bytes is None:
        return HashBasis.DECODED_UTF8
    return HashBasis.BYTES


def body_bytes(snapshot: Snapshot) -> bytes:
    """The hash input: the bytes received, or the UTF-8 of a text that has none."""
    return b"".join(body_slices(snapshot))


def body_slices(snapshot: Snapshot) -> Iterator[bytes]:
    """The hash input in order; a text in pieces of bounded size."""
    if snapshot.raw_bytes is not None:
        yield snapshot.raw_bytes
    elif isinstance(snapshot.body, bytes):
        yield snapshot.body
    else:
        for start in range(0, len(snapshot.body), _SLICE):
            yield snapshot.body[start : start + _SLICE].encode()


def check_text(field: str, value: object) -> None:
    """Raise InvalidSnapshotError, naming the argument, for what is no text."""
    if not isinstance(value, str):
        raise InvalidSnapshotError(f"{field}: takes text")


def validate_snapshot(snapshot: Snapshot, *, released_identity: bool = False) -> None:
    """Raise InvalidSnapshotError unless the snapshot is durable.

    ``released_identity`` lifts the limits of source_id, url and fetched_at to 1,048,576 units each, as records named by the 0.3
    generation and references without snapshot digest need.
    """
    given: object = snapshot  # the type is looked at: callers do not always keep it
    if not isinstance(given, Snapshot):
        raise InvalidSnapshotError("snapshot: takes a Snapshot")
    proof = snapshot._proof  # noqa: SLF001 - the same module's own mark
    if proof.durable or (released_identity and proof.released):
        return
    _check_shape(snapshot, released_identity=released_identity)
    _check_body(snapshot)
    proof.released = True
    proof.durable = not released_identity


def prove_made(snapshot: Snapshot) -> None:
    """`validate_snapshot` for a snapshot whose hash and text the caller has just made from its bytes: looks at the rest, and at sizes.

    Only for `building`, where both are made: who claims it of anything else undoes what digests stand for.
    """
    _check_shape(snapshot, released_identity=False)
    _refuse_large_text(snapshot)
    proof = snapshot._proof  # noqa: SLF001 - the same module's own mark
    proof.durable = proof.released = True


def _check_shape(s: Any, *, released_identity: bool) -> None:
    """Rules 1 to 6, except what is said of the body itself. Types are looked at: callers and records do not always keep them."""
    _check_identity(s, released_identity=released_identity)
    if js_integer(s.status) is None:
        raise InvalidSnapshotError("status: takes an integer")
    _check_charset(s)
    if s.headers is not None:
        _check_headers(s.headers)
    if s.redirects is not None:
        if not isinstance(s.redirects, tuple) or not all(isinstance(url, str) for url in s.redirects):
            raise InvalidSnapshotError("redirects: takes a list of strings")
        if not all(map(is_well_formed, s.redirects)):
            raise InvalidSnapshotError("redirects: holds a lone surrogate")
    if s.rendered is not None and not isinstance(s.rendered, bool):
        raise InvalidSnapshotError("rendered: takes a boolean")
    if not isinstance(s.not_modified, bool):
        raise InvalidSnapshotError("not_modified: takes a boolean")


def _check_identity(s: Any, *, released_identity: bool) -> None:
    limits = (("source_id", MAX_SOURCE_ID_UNITS), ("url", MAX_URL_UNITS), ("fetched_at", MAX_FETCHED_AT_UNITS))
    for field, limit in limits:
        value = getattr(s, field)
        most = MAX_RELEASED_UNITS if released_identity else limit
        # A character is at least one unit: the first comparison keeps a huge string from being measured.
        if not isinstance(value, str) or not value or len(value) > most or units(value) > most:
            raise InvalidSnapshotError(f"{field}: takes 1 to {most} UTF-16 units of text")
        if not is_well_formed(value):
            raise InvalidSnapshotError(f"{field}: holds a lone surrogate")
    if not isinstance(s.body_hash, str) or SHA256_HEX.fullmatch(s.body_hash) is None:
        raise InvalidSnapshotError("body_hash: takes 64 lower-case hexadecimal digits")


def _check_charset(s: Any) -> None:
    if not isinstance(s.body, str | bytes):
        raise InvalidSnapshotError("body: takes text or bytes")
    if s.raw_bytes is None:
        if s.declared_charset is not None:
            raise InvalidSnapshotError("declared_charset: belongs to a text body with its bytes")
        return
    if not isinstance(s.raw_bytes, bytes) or not isinstance(s.body, str):
        raise InvalidSnapshotError("raw_bytes: takes the bytes of a text body")
    if s.declared_charset is None:
        return
    if not isinstance(s.declared_charset, str) or CHARSET_TOKEN.fullmatch(s.declared_charset) is None:
        raise InvalidSnapshotError("declared_charset: takes a lower-case token of at most 64 characters")


def _check_headers(headers: object) -> None:
    if not isinstance(headers, Mapping):
        raise InvalidSnapshotError("headers: takes a mapping of strings to strings")
    try:
        everything = "".join([*headers, *headers.values()])
    except TypeError as exc:
        raise InvalidSnapshotError("headers: takes a mapping of strings to strings") from exc
    if not is_well_formed(everything):
        raise InvalidSnapshotError("headers: holds a lone surrogate")


def _check_body(s: Snapshot) -> None:
    """Rules 3, 6, 7 and 8 for the body."""
    for data in (s.body, s.raw_bytes or b""):
        if len(data) > MAX_BODY_BYTES:
            raise InvalidSnapshotError(f"body: is above {MAX_BODY_BYTES} bytes")
    if _body_digest(s) != s.body_hash:
        raise InvalidSnapshotError("body_hash: is not the SHA-256 of the body")
    if s.raw_bytes is None:
        return
    if not isinstance(s.body, str) or not decodes_to(s.raw_bytes, s.declared_charset, s.body):
        raise InvalidSnapshotError("body: is not what its bytes decode to")
    _refuse_large_text(s)


def _body_digest(s: Snapshot) -> str:
    digest, size = hashlib.sha256(), 0
    try:
        for piece in body_slices(s):
            size += len(piece)
            if size > MAX_BODY_BYTES:
                raise InvalidSnapshotError(f"body: is above {MAX_BODY_BYTES} bytes")
            digest.update(piece)
    except UnicodeEncodeError as exc:
        raise InvalidSnapshotError("body: holds a lone surrogate") from exc
    return digest.hexdigest()


def _refuse_large_text(s: Snapshot) -> None:
    """A text decoded from few bytes may still be above the limit as UTF-8; at most three bytes a unit, so small ones are not measured."""
    text = s.body
    if isinstance(text, str) and len(text) * 4 > MAX_BODY_BYTES:
        size = sum(len(text[i : i + _SLICE].encode()) for i in range(0, len(text), _SLICE))
        if size > MAX_BODY_BYTES:
            raise InvalidSnapshotError(f"body: is above {MAX_BODY_BYTES} bytes")


def canonical_clone(snapshot: Snapshot) -> Snapshot:
    """The validated snapshot as stores keep and return it: without ``not_modified``. Values are immutable, so nothing else is copied."""
    validate_snapshot(snapshot)
    return attrs.evolve(snapshot, not_modified=False) if snapshot.not_modified else snapshot
