"""Adapters of the vectors that need a store on disk: reading, damaged stores, sequences of writes, locks, head witnesses."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import trio

from forage._files import OpenDirectory
from forage.errors import SnapshotStoreError
from forage.snapshots import (
    FilesystemSnapshotStore,
    FindKind,
    Lookup,
    Snapshot,
    replay_source,
    resolve_source_ref,
    snapshot_digest,
    snapshot_of_members,
)
from forage.snapshots.lock import LOCK_NAME, is_stale, look_at
from forage.snapshots.model import sha256_hex
from forage.snapshots.owners import process_start
from forage.snapshots.text import decode_text_body
from forage.snapshots.witness import fingerprint_digest, fingerprint_json, parse_witness, token_json, witness_token
from tests.support.trees import lay_out, read_tree
from tests.vector_runner.model import Case, adapter, differs

# The vectors shortened the wait of those cases in which the lock is never given up.
LOCK_WAIT = 0.25


# --- values as the vectors write them


def snapshot_of_step(given: Mapping[str, Any]) -> Snapshot:
    """The snapshot of a put: what is absent has the defaults of the vectors' readme, the body hash is computed."""
    members = {"url": "https://example.test/a", "status": 200, **given}
    if "bytesBase64" in members:
        members["bytes"] = base64.b64decode(members.pop("bytesBase64"))
        members["body"] = decode_text_body(members["bytes"], members["declaredCharset"]).text
    elif "bodyBase64" in members:
        members["body"] = base64.b64decode(members.pop("bodyBase64"))
    members.setdefault("body", "hello")
    body = members.get("bytes", members["body"])
    members["bodyHash"] = sha256_hex(body.encode() if isinstance(body, str) else body)
    return snapshot_of_members(members)


def lookup_of_members(given: Mapping[str, Any]) -> Lookup:
    return Lookup(
        source_id=given["sourceId"],
        url=given["url"],
        body_hash=given["bodyHash"],
        fetched_at=given["fetchedAt"],
        snapshot_digest=given.get("snapshotDigest"),
    )


def members_of(lookup: Any) -> dict[str, Any]:
    found = {"sourceId": lookup.source_id, "url": lookup.url, "bodyHash": lookup.body_hash, "fetchedAt": lookup.fetched_at}
    if lookup.snapshot_digest is not None:
        found["snapshotDigest"] = lookup.snapshot_digest
    return found


def summary(snapshot: Snapshot | None) -> dict[str, Any] | None:
    if snapshot is None:
        return None
    found: dict[str, Any] = {"url": snapshot.url, "fetchedAt": snapshot.fetched_at, "bodyHash": snapshot.body_hash}
    if isinstance(snapshot.body, str):
        found["body"] = {"text": snapshot.body[:200]}
    else:
        found["body"] = {"base64": base64.b64encode(snapshot.body).decode()}
    if snapshot.raw_bytes is not None:
        found["bytesBase64"] = base64.b64encode(snapshot.raw_bytes).decode()
        found["declaredCharset"] = snapshot.declared_charset
    found["snapshotSha256"] = snapshot_digest(snapshot, released_identity=True)
    return found


def error_of(exc: Exception) -> dict[str, Any]:
    """An error without its wording. Plain errors of the original (a changed ceiling, a failed system call) are typed here."""
    if isinstance(exc, SnapshotStoreError):
        if exc.reason in {"ceiling-changed", "write-failed"}:
            return {"name": "Error"}
        if exc.code == "history-full":
            return {"name": "SnapshotHistoryFullError", "code": "history-full"}
        return {"name": "SnapshotStoreReadError", "code": str(exc.code), "reason": str(exc.reason)}
    return {"name": "TypeError" if isinstance(exc, TypeError) else type(exc).__name__}


def plain_error(expected: Any) -> Any:
    """An expected error without its wording (and without the number of a system error)."""
    if not isinstance(expected, dict) or not isinstance(expected.get("error"), dict):
        return expected
    error = {name: value for name, value in expected["error"].items() if name != "message" and value != "ENOENT"}
    return {**expected, "error": error}


# --- operations


@attrs.frozen
class Operation:
    """One operation of a case on a store; gives what the vectors expect of it, errors without wording."""

    store: FilesystemSnapshotStore
    given: Mapping[str, Any]

    async def run(self) -> Any:
        name = "".join("_" + c.lower() if c.isupper() else c for c in self.given["op"])
        try:
            return await getattr(self, name)()
        except (SnapshotStoreError, TypeError) as exc:
            return {"error": error_of(exc)}

    async def put(self) -> Any:
        await self.store.put(snapshot_of_step(self.given["snapshot"]))
        return {"ok": True}

    async def prune(self) -> Any:
        options = self.given["options"]
        keep = options.get("keep", [])
        lookups: Any = [lookup_of_members(item) for item in keep] if isinstance(keep, list) else keep
        result = await self.store.prune(self.given["sourceId"], keep_last=options.get("keepLast"), keep=lookups)
        return {"removed": result.removed, "retained": result.retained}

    async def latest(self) -> Any:
        return summary(await self.store.latest(self.given["sourceId"]))

    async def list(self) -> Any:
        return [summary(snapshot) for snapshot in await self.store.list(self.given["sourceId"])]

    async def get(self) -> Any:
        return summary(await self.store.get(self.given["sourceId"], self.given["bodyHash"]))

    async def find_exact(self) -> Any:
        result = await self.store.find_exact(lookup_of_members(self.given["lookup"]))
        found = {"kind": str(result.kind)}
        return {**found, "snapshot": summary(result.snapshot)} if result.kind is FindKind.FOUND else found

    async def resolve(self) -> Any:
        result = await resolve_source_ref(self.store, self.given["ref"])
        if result.error is not None:
            return {"ok": False, "error": {"kind": str(result.error.kind)}}
        return {
            "ok": True,
            "integrity": str(result.integrity),
            "reference": members_of(result.ref),
            "snapshot": summary(result.unwrap()),
        }

    async def replay(self) -> Any:
        result = await replay_source(self.store, self.given["sourceId"])
        return {"snapshot": summary(result.snapshot)} if result.error is None else {"error": {"kind": str(result.error.kind)}}

    async def read_verified_head(self) -> Any:
        result = await self.store.read_verified_head(self.given["sourceId"], **self.limits())
        found: dict[str, Any] = {"kind": str(result.kind)}
        return found if result.head is None else {**found, "headSnapshotRef": members_of(result.head)}

    def limits(self) -> dict[str, Any]:
        names = {"maxEntries": "max_entries", "maxIndexBytes": "max_index_bytes", "maxVerifiedBodyBytes": "max_verified_body_bytes"}
        return {names[name]: value for name, value in self.given.get("limits", {}).items()}


async def check_operations(root: Path, case: Case, ceiling: int) -> str | None:
    store = FilesystemSnapshotStore(root, max_history_files=ceiling)
    for number, operation in enumerate(case.plain("ops")):
        expected = operation["expect"]
        wanted = plain_error(expected["both"] if "both" in expected else expected["newest"])
        got = await Operation(store, operation).run()
        if got != wanted:
            return differs(f"op {number} {operation['op']}", got, wanted)
    return None


@adapter("snapshots/stores.json", together=4)
@adapter("snapshots/corrupt-stores.json", together=4)
async def check_store(case: Case) -> str | None:
    case.plain("writtenBy")
    with tempfile.TemporaryDirectory() as folder:
        lay_out(Path(folder), case.plain("tree"))
        return await check_operations(Path(folder), case, case.plain("maxHistoryFiles", 10_000))


@adapter("snapshots/sequences.json", together=4)
async def check_sequence(case: Case) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        lay_out(root, case.plain("initialTree", {}))
        wait = LOCK_WAIT if case.id.startswith(("lock-busy-", "lock-directory-")) else 90.0
        store = FilesystemSnapshotStore(root, max_history_files=case["maxHistoryFiles"], lock_wait_seconds=wait)
        for number, step in enumerate(case.plain("steps")):
            got = await Operation(store, step).run()
            wanted = plain_error(step["expect"])
            if got != wanted:
                return differs(f"step {number} {step['op']}", got, wanted)
        got_tree = read_tree(root)
        expected = {name: {k: v for k, v in entry.items() if k != "ageSeconds"} for name, entry in case.plain("finalTree").items()}
        for name in sorted({*got_tree, *expected}):
            if got_tree.get(name) != expected.get(name):
                return differs(f"final tree, {name}", got_tree.get(name), expected.get(name))
    await trio.lowlevel.checkpoint()
    return None


# --- locks and witnesses


def pid_of_no_process() -> int:
    """The id of a process that has ended and was waited for."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@adapter("snapshots/lock-staleness.json")
def check_lock(case: Case) -> str | None:
    alive = os.getpid()
    text = case["text"].replace("$ALIVE_PID", str(alive)).replace("$ALIVE_START", str(process_start(alive)))
    if "$DEAD_PID" in text:
        text = text.replace("$DEAD_PID", str(pid_of_no_process()))
    entry = {"dir": True} if case["kind"] == "dir" else {"text": text}
    with tempfile.TemporaryDirectory() as folder:
        lay_out(Path(folder), {LOCK_NAME: {**entry, "ageSeconds": case["ageSeconds"]}})
        with OpenDirectory(folder) as directory:
            lock = look_at(directory, LOCK_NAME)
            assert lock is not None
            return differs("stale", is_stale(lock, case["ourMachine"]), case["stale"])


@adapter("snapshots/head-witness-token.json")
def check_witness(case: Case) -> str | None:
    fingerprint = case.plain("fingerprint")
    witness = parse_witness(case.plain("witness"))
    if witness is None:
        return "the recorded witness is not read"
    json_text, digest = fingerprint_json(fingerprint), fingerprint_digest(fingerprint)
    token_text, token = token_json(fingerprint, witness.head), witness_token(fingerprint, witness.head)
    return (
        differs("fingerprint", json_text, case["fingerprintJson"])
        or differs("fingerprint digest", digest, case["fingerprintSha256"])
        or differs("token input", token_text, case["tokenJson"])
        or differs("token", token, witness.token)
        or differs("exchange form", witness.to_json(), case.plain("witness"))
    )
