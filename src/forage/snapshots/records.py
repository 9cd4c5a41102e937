"""Record bytes to snapshot and back.

Owns the record text, its verification and its size limit. It opens no file; names are `names`' and are passed on from here, since who reads
or writes a record needs both. Format: section 5 of the snapshot formats.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any, cast

from forage._codec import JsonError, dump_compact, load_json
from forage.errors import InvalidSnapshotError, SnapshotCorruptError, StoreErrorReason
from forage.snapshots.javascript import js_integer, js_integer_text, js_key_order, quote_json
from forage.snapshots.model import Snapshot, validate_snapshot
from forage.snapshots.names import (
    ENVELOPE_RECORD,
    MAX_HISTORY_FILES,
    MAX_INDEX_ENTRY_BYTES,
    MAX_NAME_BYTES,
    RELEASED_RECORD,
    envelope_record_name,
    first_slot,
    iso_time_of,
    newest_first,
    parse_index_entry,
    record_name,
    refuse_ambiguous_time,
    released_record_name,
    source_directory,
)
from forage.snapshots.text import CHARSET_TOKEN, decode_text_body

__all__ = [
    "ENVELOPE_RECORD",
    "MAX_HISTORY_FILES",
    "MAX_INDEX_ENTRY_BYTES",
    "MAX_NAME_BYTES",
    "MAX_RECORD_BYTES",
    "RELEASED_RECORD",
    "decode_record",
    "encode_record",
    "envelope_record_name",
    "first_slot",
    "iso_time_of",
    "newest_first",
    "parse_index_entry",
    "record_name",
    "record_slices",
    "refuse_ambiguous_time",
    "released_record_name",
    "snapshot_of_members",
    "source_directory",
    "verify_record",
]

MAX_RECORD_BYTES = 96 * 1024 * 1024

_LAST_MEMBER = b',\n  "bodyBase64": "'
_END = b'"\n}'

# Divisible by 3, so that the base64 of slices may be joined.
_SLICE = 192 * 1024


# --- writing ---


def encode_record(snapshot: Snapshot) -> bytes:
    """The text of the record file, UTF-8. Raises InvalidSnapshotError when the snapshot is not durable, its time ambiguous, or the
    record above 96 MiB."""
    return b"".join(record_slices(snapshot))


def record_slices(snapshot: Snapshot) -> Iterator[bytes]:
    """The same in pieces of bounded size, so that encoding a large body never holds the interpreter for long.

    Raises as `encode_record` does; the size only once it is reached.
    """
    refuse_ambiguous_time(record_name(snapshot), snapshot.fetched_at)
    size = 0
    for piece in _pieces(snapshot):
        size += len(piece)
        if size > MAX_RECORD_BYTES:
            raise InvalidSnapshotError(f"record is above {MAX_RECORD_BYTES} bytes")
        yield piece


def _pieces(s: Snapshot) -> Iterator[bytes]:
    """Pretty JSON put together by hand: a general encoder would walk megabytes of body to indent a dozen lines."""
    head = f'{{\n  "sourceId": {quote_json(s.source_id)},\n  "url": {quote_json(s.url)},\n  "status": {js_integer_text(s.status)}'
    head += f',\n  "fetchedAt": {quote_json(s.fetched_at)}'
    tail = f',\n  "bodyHash": "{s.body_hash}"{_optional_members(s)}'
    if isinstance(s.body, str) and s.raw_bytes is None:
        yield f'{head},\n  "body": "'.encode()
        for start in range(0, len(s.body), _SLICE):
            yield quote_json(s.body[start : start + _SLICE])[1:-1].encode()
        yield f'"{tail}\n}}'.encode()
        return
    if s.raw_bytes is not None:
        head += f',\n  "declaredCharset": {dump_compact(s.declared_charset)}'
    data = s.body if isinstance(s.body, bytes) else s.raw_bytes or b""
    yield f'{head}{tail},\n  "bodyBase64": "'.encode()
    for start in range(0, len(data), _SLICE):
        yield base64.b64encode(data[start : start + _SLICE])
    yield b'"\n}'


def _optional_members(s: Snapshot) -> str:
    text = ""
    if s.headers is not None:
        lines = [f"    {quote_json(name)}: {quote_json(s.headers[name])}" for name in js_key_order(s.headers)]
        text += f',\n  "headers": {_block("{", lines, "}")}'
    if s.redirects is not None:
        text += f',\n  "redirects": {_block("[", [f"    {quote_json(url)}" for url in s.redirects], "]")}'
    if s.rendered is not None:
        text += f',\n  "rendered": {dump_compact(s.rendered)}'
    return text


def _block(opening: str, lines: list[str], closing: str) -> str:
    joined = ",\n".join(lines)
    return f"{opening}\n{joined}\n  {closing}" if lines else opening + closing


# --- reading ---


def _malformed() -> SnapshotCorruptError:
    return SnapshotCorruptError(StoreErrorReason.MALFORMED_RECORD, "a record is not JSON or holds bad base64")


def _invalid() -> SnapshotCorruptError:
    return SnapshotCorruptError(StoreErrorReason.INVALID_RECORD, "a record does not hold a durable snapshot")


def decode_record(data: bytes, *, name: str) -> Snapshot:
    """Read and verify the content of a record file; ``name`` says which generation's limits count.

    Raises SnapshotCorruptError (malformed-record or invalid-record). The caller has bounded ``data``; whether the record belongs to
    its place is for `verify_record`.
    """
    members, body = _parsed(data)
    if body is not None:
        members = _with_bytes(members, body)
    try:
        snapshot = snapshot_of_members(members)
        validate_snapshot(snapshot, released_identity=RELEASED_RECORD.fullmatch(name) is not None)
    except InvalidSnapshotError as exc:
        raise _invalid() from exc
    return snapshot


def verify_record(data: bytes, *, name: str, source_id: str) -> Snapshot:
    """`decode_record`, then that the record is of this source and an envelope-shaped name is the one that its content gives.

    Raises SnapshotCorruptError with the reason.
    """
    snapshot = decode_record(data, name=name)
    if snapshot.source_id != source_id:
        raise SnapshotCorruptError(StoreErrorReason.FOREIGN_SOURCE_RECORD, "a record belongs to another source")
    if ENVELOPE_RECORD.fullmatch(name) and name != record_name(snapshot):
        raise SnapshotCorruptError(StoreErrorReason.RECORD_IDENTITY_MISMATCH, "a record's name is not that of its content")
    return snapshot


def _parsed(data: bytes) -> tuple[dict[str, Any], bytes | None]:
    """The members of a record without its base64, and the bytes that this stands for.

    Records end in their base64 as a rule. It is cut off before the rest is read as JSON: nothing then walks over megabytes in one
    go. The cut is sound because a comma and white space before the member's name put it outside any string, and because base64 has no
    character that would end one; where base64 fails, the whole is read as JSON, which may spell it with escapes.
    """
    cut = data.rfind(_LAST_MEMBER) + len(_LAST_MEMBER)
    if cut >= len(_LAST_MEMBER) and data.endswith(_END):
        try:
            body = _canonical_base64(memoryview(data)[cut : -len(_END)])
        except ValueError:
            pass
        else:
            members = _members(data[:cut] + _END)
            members.pop("bodyBase64")
            return members, body
    members = _members(data)
    encoded = members.pop("bodyBase64", None)
    if not isinstance(encoded, str):
        return members, None
    try:
        return members, _canonical_base64(memoryview(encoded.encode("ascii")))
    except ValueError as exc:
        raise _malformed() from exc


def _members(data: bytes) -> dict[str, Any]:
    try:
        members = load_json(data.decode("utf-8", "replace"))
    except JsonError as exc:
        raise _malformed() from exc
    if not isinstance(members, dict):
        raise _invalid()
    return members


def _canonical_base64(text: memoryview) -> bytes:
    """Full groups, right padding, no white space, and zero spare bits: what one encoder writes, so that records cannot vary unseen.

    Raises ValueError for anything else. Decoded in pieces, as it is encoded.
    """
    pieces = []
    for start in range(0, len(text), _SLICE // 3 * 4):
        encoded = text[start : start + _SLICE // 3 * 4]
        piece = binascii.a2b_base64(encoded, strict_mode=True)
        # Padding inside, or spare bits: the last group written again shows both.
        whole = len(encoded) // 4 * 3
        if len(encoded) % 4 or len(piece) < whole - 2 or (len(piece) < whole and start + len(encoded) < len(text)):
            raise ValueError("not canonical base64")
        if len(piece) < whole and base64.b64encode(piece[whole - 3 :]) != encoded[-4:]:
            raise ValueError("not canonical base64")
        pieces.append(piece)
    return b"".join(pieces)


def _with_bytes(members: dict[str, Any], data: bytes) -> dict[str, Any]:
    """The members with the bytes in place: a byte-hashed text when a charset is recorded, null or not, else a binary body."""
    members = {key: value for key, value in members.items() if key != "body"}
    if "declaredCharset" not in members:
        return {**members, "body": data}
    charset = members["declaredCharset"]
    if charset is not None and not isinstance(charset, str):
        raise _malformed()
    # A charset that no valid record has is refused later; decoding by it would be work for nothing.
    valid = charset is None or CHARSET_TOKEN.fullmatch(charset)
    return {**members, "body": decode_text_body(data, charset).text if valid else "", "bytes": data}


def snapshot_of_members(members: Mapping[str, object]) -> Snapshot:
    """The snapshot with these members, named as in the formats; ``bytes`` and a binary ``body`` are bytes. Unknown members are dropped.

    Raises InvalidSnapshotError for members of a type that no snapshot has; `validate_snapshot` checks the rest.
    """
    for name in ("sourceId", "url", "fetchedAt", "bodyHash"):
        if not isinstance(members.get(name), str):
            raise InvalidSnapshotError(f"{name}: takes text")
    status = js_integer(members.get("status"))
    if status is None:
        raise InvalidSnapshotError("status: takes an integer")
    for name in ("headers", "redirects", "rendered", "bytes"):
        if name in members and members[name] is None:
            raise InvalidSnapshotError(f"{name}: is absent or has a value, never null")
    if "declaredCharset" in members and "bytes" not in members:
        raise InvalidSnapshotError("declaredCharset: belongs to a text body with its bytes")
    if "bytes" in members and "declaredCharset" not in members:
        raise InvalidSnapshotError("bytes: come with a declaredCharset, which may be null")
    if "notModified" in members and members["notModified"] is not True:
        raise InvalidSnapshotError("notModified: is absent or true")
    fields = cast("Mapping[str, Any]", members)
    return Snapshot(
        source_id=fields["sourceId"],
        url=fields["url"],
        status=status,
        fetched_at=fields["fetchedAt"],
        body=fields.get("body"),  # type: ignore[arg-type]  # validate_snapshot refuses what is neither text nor bytes
        body_hash=fields["bodyHash"],
        raw_bytes=fields.get("bytes"),
        declared_charset=fields.get("declaredCharset"),
        headers=fields.get("headers"),
        redirects=fields.get("redirects"),
        rendered=fields.get("rendered"),
    )
