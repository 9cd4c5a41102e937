"""Head witness: the newest snapshot of a source, and a token by which anyone can see later, without reading bodies, that nothing changed.

Owns the witness, the capture and the comparison; the look at the directory is in `fingerprint`. It answers in kinds, never by raising:
a store that is being written, damaged or of an older generation is an answer. The root directory is part of the fingerprint: adding
another source to the store changes every witness, and so does every put or prune of the source, by the times that its lock file leaves.
Format: section 6 of the snapshot formats. `capture_head` and `compare_head` block.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import attrs
import trio

from forage._codec import dump_compact, units
from forage._files import OpenDirectory
from forage.errors import InvalidSnapshotError, SnapshotCorruptError, SnapshotStoreError
from forage.snapshots.fingerprint import EndedError, HeadKind, Look, end
from forage.snapshots.javascript import js_trim
from forage.snapshots.model import MAX_SOURCE_ID_UNITS, SHA256_HEX, Snapshot, sha256_hex
from forage.snapshots.reading import SourceReader
from forage.snapshots.records import MAX_RECORD_BYTES, newest_first, source_directory
from forage.snapshots.reference import Lookup, identity_digest, lookup_of, validate_lookup
from forage.snapshots.store import SnapshotStore

__all__ = [
    "MAX_INDEX_BYTES",
    "WITNESS_FORMAT",
    "HeadKind",
    "HeadWitness",
    "VerifiedHead",
    "WitnessLimits",
    "WitnessOutcome",
    "WitnessStore",
    "capture_head",
    "compare_head",
    "compare_head_witness",
    "fingerprint_digest",
    "fingerprint_json",
    "parse_witness",
    "read_verified_head",
    "token_json",
    "witness_token",
]

WITNESS_FORMAT = "forage.source-head-witness/v1"
MAX_INDEX_BYTES = 8 * 1024 * 1024

Json = dict[str, Any]


class WitnessOutcome(StrEnum):
    """The answer of compare_head_witness."""

    MATCHES = "matches"
    CHANGED = "changed"
    MISSING = "missing"
    UNAVAILABLE = "unavailable"
    CORRUPT = "corrupt"
    UNSUPPORTED = "unsupported"


@attrs.frozen(kw_only=True)
class HeadWitness:
    """What was the head of a source, and the token of the directory state in which it was."""

    head: Lookup
    token: str

    @property
    def source_id(self) -> str:
        """The source."""
        return self.head.source_id

    def to_json(self) -> Json:
        """The witness in its exchange form, a plain object."""
        head = {
            "sourceId": self.head.source_id,
            "url": self.head.url,
            "bodyHash": self.head.body_hash,
            "fetchedAt": self.head.fetched_at,
            "snapshotDigest": self.head.snapshot_digest,
        }
        return {"format": WITNESS_FORMAT, "sourceId": self.source_id, "headSnapshotRef": head, "token": self.token}


@attrs.frozen(kw_only=True)
class VerifiedHead:
    """The answer of read_verified_head; head and witness only when found."""

    kind: HeadKind
    head: Lookup | None = None
    witness: HeadWitness | None = None


@attrs.frozen(kw_only=True)
class WitnessLimits:
    """The most that a capture or comparison reads; None stands for the owner's maximum."""

    max_entries: int | None = None
    max_index_bytes: int | None = None
    max_verified_body_bytes: int | None = None

    def resolved(self, ceiling: int) -> tuple[int, int, int] | None:
        """Entries, index bytes, record bytes; None when one is no integer of 0 to the owner's maximum."""
        pairs = (
            (self.max_entries, ceiling),
            (self.max_index_bytes, MAX_INDEX_BYTES),
            (self.max_verified_body_bytes, MAX_RECORD_BYTES),
        )
        for asked, most in pairs:
            value: object = asked  # a caller's answer from elsewhere may be anything
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most):
                return None
        found = [most if asked is None else asked for asked, most in pairs]
        return found[0], found[1], found[2]


def parse_witness(value: object) -> HeadWitness | None:
    """Read the exchange form; None when it is not exactly that."""
    if not isinstance(value, Mapping) or set(value) != {"format", "sourceId", "headSnapshotRef", "token"}:
        return None
    head, token = value["headSnapshotRef"], value["token"]
    if value["format"] != WITNESS_FORMAT or not isinstance(token, str) or SHA256_HEX.fullmatch(token) is None:
        return None
    if not isinstance(head, Mapping) or set(head) != {"sourceId", "url", "bodyHash", "fetchedAt", "snapshotDigest"}:
        return None
    if head["snapshotDigest"] is None or head["sourceId"] != value["sourceId"]:
        return None
    lookup = Lookup(
        source_id=head["sourceId"],
        url=head["url"],
        body_hash=head["bodyHash"],
        fetched_at=head["fetchedAt"],
        snapshot_digest=head["snapshotDigest"],
    )
    return HeadWitness(head=lookup, token=token) if _is_exact(lookup) else None


def _is_exact(lookup: Lookup) -> bool:
    try:
        validate_lookup(lookup)
    except InvalidSnapshotError:
        return False
    return lookup.snapshot_digest is not None


# --- pure: digests of what was seen


def fingerprint_json(fingerprint: Mapping[str, Any]) -> str:
    """The compact JSON that the fingerprint digest is taken over."""
    return dump_compact(fingerprint)


def fingerprint_digest(fingerprint: Mapping[str, Any]) -> str:
    """SHA-256 of the fingerprint."""
    return sha256_hex(fingerprint_json(fingerprint).encode("utf-8", "surrogatepass"))


def token_json(fingerprint: Mapping[str, Any], head: Lookup) -> str:
    """The compact JSON that the token is taken over: the directory state and its head."""
    facts = [head.source_id, head.url, head.body_hash, head.fetched_at, head.snapshot_digest]
    return dump_compact([WITNESS_FORMAT, fingerprint["root"], fingerprint["source"], fingerprint_digest(fingerprint), *facts])


def witness_token(fingerprint: Mapping[str, Any], head: Lookup) -> str:
    """The token of a witness."""
    return sha256_hex(token_json(fingerprint, head).encode("utf-8", "surrogatepass"))


# --- capture and comparison


def capture_head(root: Path, source_id: object, ceiling: int, limits: WitnessLimits) -> VerifiedHead:
    """The verified head of a source with its witness."""
    resolved = limits.resolved(ceiling)
    if resolved is None or not isinstance(source_id, str) or not source_id or units(source_id) > MAX_SOURCE_ID_UNITS:
        return VerifiedHead(kind=HeadKind.UNSUPPORTED)
    look = Look(root, source_id, ceiling, resolved)
    try:
        before = look.fingerprint()
        head = lookup_of(_verified_head(root, source_id, ceiling, before))
        if look.fingerprint() != before:
            end(HeadKind.UNAVAILABLE)
    except EndedError as exc:
        return VerifiedHead(kind=exc.kind)
    except SnapshotCorruptError:
        return VerifiedHead(kind=HeadKind.CORRUPT)
    except (SnapshotStoreError, OSError):
        return VerifiedHead(kind=HeadKind.UNAVAILABLE)
    return VerifiedHead(kind=HeadKind.FOUND, head=head, witness=HeadWitness(head=head, token=witness_token(before, head)))


def _verified_head(root: Path, source_id: str, ceiling: int, fingerprint: Json) -> Snapshot:
    entries = {name.removesuffix(".txt"): js_trim(text) for name, _, text in fingerprint["identity"]}
    best: Snapshot | None = None
    with OpenDirectory(root / source_directory(source_id)) as directory:
        reader = SourceReader(directory, source_id, ceiling)
        for name, _ in fingerprint["records"]:
            snapshot = reader.read_listed(name)
            if entries.get(identity_digest(snapshot)) != name:
                end(HeadKind.UNAVAILABLE)
            if best is None or newest_first(snapshot) > newest_first(best):
                best = snapshot
    if best is None:
        end(HeadKind.UNAVAILABLE)
    return best


def compare_head(root: Path, witness: object, ceiling: int, limits: WitnessLimits) -> WitnessOutcome:
    """Whether the source is still as the witness saw it; reads no record."""
    parsed = parse_witness(witness.to_json() if isinstance(witness, HeadWitness) else witness)
    resolved = limits.resolved(ceiling)
    if parsed is None or resolved is None:
        return WitnessOutcome.UNSUPPORTED
    try:
        fingerprint = Look(root, parsed.source_id, ceiling, resolved).fingerprint()
    except EndedError as exc:
        return WitnessOutcome(exc.kind.value)
    return WitnessOutcome.MATCHES if witness_token(fingerprint, parsed.head) == parsed.token else WitnessOutcome.CHANGED


# --- of any store


@runtime_checkable
class WitnessStore(Protocol):
    """A store that can witness its heads."""

    async def read_verified_head(
        self,
        source_id: str,
        *,
        max_entries: int | None = None,
        max_index_bytes: int | None = None,
        max_verified_body_bytes: int | None = None,
    ) -> VerifiedHead:
        """The verified newest snapshot of a source, with a witness."""

    async def compare_head_witness(
        self,
        witness: HeadWitness | Mapping[str, object],
        *,
        max_entries: int | None = None,
        max_index_bytes: int | None = None,
        max_verified_body_bytes: int | None = None,
    ) -> WitnessOutcome:
        """Whether nothing has changed since the witness was made."""


async def read_verified_head(
    store: SnapshotStore,
    source_id: str,
    *,
    max_entries: int | None = None,
    max_index_bytes: int | None = None,
    max_verified_body_bytes: int | None = None,
) -> VerifiedHead:
    """`WitnessStore.read_verified_head`; ``unsupported`` of a store that has it not. Limits default to the store's maximum."""
    if not isinstance(store, WitnessStore):
        await trio.lowlevel.checkpoint()
        return VerifiedHead(kind=HeadKind.UNSUPPORTED)
    return await store.read_verified_head(
        source_id, max_entries=max_entries, max_index_bytes=max_index_bytes, max_verified_body_bytes=max_verified_body_bytes
    )


async def compare_head_witness(
    store: SnapshotStore,
    witness: HeadWitness | Mapping[str, object],
    *,
    max_entries: int | None = None,
    max_index_bytes: int | None = None,
    max_verified_body_bytes: int | None = None,
) -> WitnessOutcome:
    """`WitnessStore.compare_head_witness`; ``unsupported`` of a store that has it not."""
    if not isinstance(store, WitnessStore):
        await trio.lowlevel.checkpoint()
        return WitnessOutcome.UNSUPPORTED
    return await store.compare_head_witness(
        witness, max_entries=max_entries, max_index_bytes=max_index_bytes, max_verified_body_bytes=max_verified_body_bytes
    )
