"""Adapters of the snapshot vectors that need no store on disk: digests, references, records, text, order, shells."""

from __future__ import annotations

import base64
from collections.abc import Awaitable
from typing import Any

from forage.errors import InvalidSnapshotError, SourceRefErrorCode
from forage.snapshots import (
    Snapshot,
    build_snapshot,
    build_source_ref,
    charset_of,
    decode_record,
    decode_text_body,
    encode_record,
    envelope_json,
    identity_digest,
    is_textual,
    looks_like_js_shell,
    parse_source_ref,
    record_name,
    snapshot_digest,
    snapshot_hash_basis,
    snapshot_of_members,
    source_directory,
)
from forage.snapshots.model import sha256_hex
from forage.snapshots.records import first_slot
from forage.snapshots.store import MemorySnapshotStore, resolve_source_ref
from tests.vector_runner.model import Case, adapter, differs


def snapshot_from(given: dict[str, Any]) -> Snapshot:
    """The snapshot of a case. InvalidSnapshotError where its members already show that it is none."""
    members = {name: value for name, value in given.items() if name not in {"bodyBase64", "bytesBase64", "headers"}}
    if "bodyBase64" in given:
        members["body"] = base64.b64decode(given["bodyBase64"])
    if "bytesBase64" in given:
        members["bytes"] = base64.b64decode(given["bytesBase64"])
        members.setdefault("body", decode_text_body(members["bytes"], given.get("declaredCharset")).text)
    if "headers" in given:
        pairs = given["headers"]
        members["headers"] = dict(pairs) if isinstance(pairs, list) else pairs
    return snapshot_of_members(members)


def first(*lines: str | None) -> str | None:
    """The first difference, None when there is none."""
    return next((line for line in lines if line is not None), None)


def is_refused(given: dict[str, Any]) -> bool:
    """Whether the reference builder, which takes the digest, or the record encoder, which every put asks, refuses this snapshot."""
    try:
        snapshot = snapshot_from(given)
        build_source_ref(snapshot)
        encode_record(snapshot)
    except InvalidSnapshotError:
        return True
    return False


@adapter("snapshots/snapshots.json")
def check_snapshot(case: Case) -> str | Awaitable[str | None] | None:
    given = case.plain("snapshot")
    if "error" in case:
        error = case["error"]
        error.plain("message")
        return first(differs("error type", "TypeError", error["type"]), differs("refused", is_refused(given), True))
    return check_durable(case, snapshot_from(given))


async def check_durable(case: Case, snapshot: Snapshot) -> str | None:
    record = encode_record(snapshot)
    name = record_name(snapshot)
    store = MemorySnapshotStore()
    await store.put(snapshot)
    kept = await store.latest(snapshot.source_id)
    resolved = await resolve_source_ref(store, build_source_ref(snapshot))
    expect = case.plain("expect")
    got = {
        "hashBasis": snapshot_hash_basis(snapshot).value,
        "bodyHash": snapshot.body_hash,
        "envelopeJson": envelope_json(snapshot),
        "snapshotSha256": snapshot_digest(snapshot),
        "sourceRef": build_source_ref(snapshot),
        "sourceDir": source_directory(snapshot.source_id),
        "recordFile": name,
        "identitySha256": identity_digest(snapshot),
        "slot10000": first_slot(name, 10_000),
        "slot7": first_slot(name, 7),
    }
    if "recordJson" in expect:
        got["recordJson"] = record.decode()
    else:
        got |= {"recordJsonUtf8Length": len(record), "recordJsonSha256": sha256_hex(record)}
    return first(
        *(differs(member, got.get(member), value) for member, value in expect.items()),
        differs("members", sorted(got), sorted(expect)),
        differs("record read again", decode_record(record, name=name), kept),
        differs("resolved", resolved.snapshot, kept),
    )


def joined(value: Any) -> Any:
    """A text that the vectors may give as a list of parts and repeated parts."""
    if not isinstance(value, list):
        return value
    return "".join(part if isinstance(part, str) else part[0] * part[1] for part in value)


@adapter("snapshots/references.json")
async def check_reference(case: Case) -> str | None:
    text = joined(case.plain("ref"))
    expected = case.plain("parsed")
    ref = parse_source_ref(text)
    got = None
    if ref is not None:
        got = {"sourceId": ref.source_id, "url": ref.url, "bodyHash": ref.body_hash, "fetchedAt": ref.fetched_at}
        if ref.snapshot_digest is not None:
            got["snapshotDigest"] = ref.snapshot_digest
    canonical = ref is not None and ref.canonical
    resolved = await resolve_source_ref(MemorySnapshotStore(), text)
    kind = SourceRefErrorCode.SNAPSHOT_NOT_FOUND if case["canonical"] else SourceRefErrorCode.INVALID_REFERENCE
    return first(
        differs("parsed", got, None if expected is None else {name: joined(value) for name, value in expected.items()}),
        differs("canonical", canonical, case["canonical"]),
        differs("resolving in an empty store", resolved.error and resolved.error.kind, kind),
    )


@adapter("snapshots/content-type-charset.json")
def check_charset(case: Case) -> str | None:
    header = case["contentType"]
    charset, warnings = charset_of(header)
    snapshot, _ = build_snapshot(
        source_id="s", url="https://example.test/", status=200, fetched_at="2026-01-01T00:00:00.000Z", body=b"x", content_type=header
    )
    return first(
        differs("charset", charset, case["charset"]),
        differs("number of warnings", len(warnings), len(case.plain("warnings"))),
        differs("recorded charset", snapshot.declared_charset, charset if is_textual(header) else None),
    )


@adapter("snapshots/text-decoding.json")
def check_decoding(case: Case) -> str | None:
    decoded = decode_text_body(bytes.fromhex(case["bytesHex"]), case["charset"])
    expected = {name: case.plain(name) for name in ("text", "encoding", "invalid", "unknownLabel", "warnings")}
    if "standard" in case:
        # Where Node's tables differ from the standard, the standard is what forage does.
        expected |= case.plain("standard")
        expected["warnings"] = [name for name in ("invalid", "unknownLabel") if expected[name]]
    return first(
        differs("text", decoded.text, expected["text"]),
        differs("encoding", decoded.encoding, expected["encoding"]),
        differs("invalid", decoded.invalid, expected["invalid"]),
        differs("unknown label", decoded.unknown_label, expected["unknownLabel"]),
        differs("number of warnings", len(decoded.warnings), len(expected["warnings"])),
    )


@adapter("snapshots/sort-order.json")
async def check_order(case: Case) -> str | None:
    snapshots = [snapshot_from(given) for given in case.plain("snapshots")]
    store = MemorySnapshotStore()
    for snapshot in snapshots:
        await store.put(snapshot)
    history = await store.list(snapshots[0].source_id)
    return differs("order", [snapshot_digest(s) for s in history], [snapshot_digest(snapshots[i]) for i in case.plain("order")])


@adapter("snapshots/js-shell.json")
def check_shell(case: Case) -> str | None:
    return differs("shell", looks_like_js_shell(case["html"]), case["shell"])
