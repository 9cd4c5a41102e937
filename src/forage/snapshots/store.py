"""What a snapshot store is, the store in memory, and how references are resolved against any store.

Owns the protocols (a required part and optional capabilities), the results of look-ups, `MemorySnapshotStore`, `resolve_source_ref` and
`replay_source`. It touches no file. Format: "Resolving", "Reading" and "In-memory store" of the snapshot formats.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

import attrs
import trio

from forage.errors import FetchError, FetchErrorKind, SnapshotStoreError, SourceRefError, SourceRefErrorCode, StoreErrorCode
from forage.snapshots.model import Snapshot, canonical_clone, check_text, validate_snapshot
from forage.snapshots.records import newest_first, record_name, refuse_ambiguous_time
from forage.snapshots.reference import (
    Lookup,
    SourceRef,
    identity_digest,
    lookup_of,
    parse_source_ref,
    snapshot_digest,
    validate_lookup,
)
from forage.snapshots.retention import plan_retention, validate_prune

__all__ = [
    "ExactLookup",
    "FindKind",
    "FindResult",
    "Integrity",
    "MemorySnapshotStore",
    "Prunable",
    "PruneResult",
    "Replay",
    "ReplayFailure",
    "Resolution",
    "ResolutionFailure",
    "SnapshotStore",
    "matches",
    "replay_source",
    "resolve_source_ref",
]


class FindKind(StrEnum):
    """What an exact look-up found."""

    FOUND = "found"
    MISSING = "missing"
    MISMATCH = "mismatch"
    """There is a record in this place, but not one with all the fields asked for."""


@attrs.frozen(kw_only=True)
class FindResult:
    """The answer of ``find_exact``; the snapshot only when found."""

    kind: FindKind
    snapshot: Snapshot | None = None


@attrs.frozen(kw_only=True)
class PruneResult:
    """How many distinct snapshots a prune removed and kept."""

    removed: int
    retained: int


class SnapshotStore(Protocol):
    """The required part of a store. `forage.testing` has the suite that any implementation must pass.

    Reads verify what they return; a history that holds a damaged record is not returned in part. They raise SnapshotStoreError (of it,
    SnapshotCorruptError for bad facts), and InvalidSnapshotError, naming it, for an argument of another type. ``source_id`` is
    whatever the caller keeps apart, such as one page of one crawl.
    """

    async def put(self, snapshot: Snapshot) -> None:
        """Keep a snapshot. When this returns, it is as durable as the store makes anything; when it raises, no part of it is visible.

        InvalidSnapshotError: not durable in form. HistoryFullError: no room left. Putting the same snapshot again succeeds.
        """

    async def latest(self, source_id: str) -> Snapshot | None:
        """The newest snapshot of a source, None when there is none."""

    async def get(self, source_id: str, body_hash: str) -> Snapshot | None:
        """The newest snapshot whose body hash starts with ``body_hash``."""

    async def list(self, source_id: str) -> tuple[Snapshot, ...]:
        """The whole history, newest first."""


@runtime_checkable
class ExactLookup(Protocol):
    """A store that can resolve references."""

    async def find_exact(self, lookup: Lookup) -> FindResult:
        """The snapshot with exactly these fields. InvalidSnapshotError for fields that no snapshot has."""


@runtime_checkable
class Prunable(Protocol):
    """A store that can forget."""

    async def prune(self, source_id: str, *, keep_last: int, keep: Sequence[Lookup] = ()) -> PruneResult:
        """Remove all but the head, the newest ``keep_last``, and what ``keep`` names."""


def matches(snapshot: Snapshot, lookup: Lookup) -> bool:
    """True when the snapshot has every field that the look-up gives."""
    identity = (snapshot.source_id, snapshot.url, snapshot.body_hash, snapshot.fetched_at)
    if identity != (lookup.source_id, lookup.url, lookup.body_hash, lookup.fetched_at):
        return False
    return lookup.snapshot_digest is None or lookup.snapshot_digest == snapshot_digest(snapshot)


# --- in memory


class MemorySnapshotStore:
    """A store for one run: nothing outlives the object. A snapshot that is put twice is listed twice, as the formats have it."""

    def __init__(self) -> None:
        self._histories: dict[str, list[Snapshot]] = {}  # oldest first
        self._by_digest: dict[tuple[str, str], Snapshot] = {}
        self._by_identity: dict[str, Snapshot] = {}

    async def put(self, snapshot: Snapshot) -> None:
        """Keep a snapshot. InvalidSnapshotError when it is not durable; the last put of an identity is the one found by it."""
        await trio.lowlevel.checkpoint()
        kept = canonical_clone(snapshot)
        refuse_ambiguous_time(record_name(kept), kept.fetched_at)
        insort(self._histories.setdefault(kept.source_id, []), kept, key=newest_first)
        self._by_digest[kept.source_id, snapshot_digest(kept)] = kept
        self._by_identity[identity_digest(kept)] = kept

    async def latest(self, source_id: str) -> Snapshot | None:
        """The newest snapshot of a source, None when there is none."""
        check_text("source_id", source_id)
        await trio.lowlevel.checkpoint()
        history = self._histories.get(source_id)
        return history[-1] if history else None

    async def get(self, source_id: str, body_hash: str) -> Snapshot | None:
        """The newest snapshot whose body hash starts with ``body_hash``."""
        check_text("body_hash", body_hash)
        history = await self.list(source_id)
        return next((s for s in history if s.body_hash.startswith(body_hash)), None)

    async def list(self, source_id: str) -> tuple[Snapshot, ...]:
        """The whole history, newest first."""
        check_text("source_id", source_id)
        await trio.lowlevel.checkpoint()
        return tuple(reversed(self._histories.get(source_id, ())))

    async def find_exact(self, lookup: Lookup) -> FindResult:
        """The snapshot with exactly these fields."""
        await trio.lowlevel.checkpoint()
        validate_lookup(lookup)
        if lookup.snapshot_digest is None:
            found = self._by_identity.get(identity_digest(lookup))
        else:
            found = self._by_digest.get((lookup.source_id, lookup.snapshot_digest))
        if found is None:
            return FindResult(kind=FindKind.MISSING)
        return FindResult(kind=FindKind.FOUND, snapshot=found) if matches(found, lookup) else FindResult(kind=FindKind.MISMATCH)

    async def prune(self, source_id: str, *, keep_last: int, keep: Sequence[Lookup] = ()) -> PruneResult:
        """Remove all but the head, the newest ``keep_last``, and what ``keep`` names."""
        validate_prune(source_id, keep_last, keep)
        await trio.lowlevel.checkpoint()
        history = self._histories.get(source_id, [])
        plan = plan_retention(map(lookup_of, history), keep_last=keep_last, keep=keep)
        victims = {item.snapshot_digest for item in plan.victims}
        for digest in victims:
            self._by_digest.pop((source_id, str(digest)), None)
        history[:] = [s for s in history if snapshot_digest(s) not in victims]
        self._by_identity = {k: s for k, s in self._by_identity.items() if s.source_id != source_id}
        self._by_identity.update((identity_digest(s), s) for s in history)
        return PruneResult(removed=len(plan.victims), retained=len(plan.kept))


# --- resolving


class Integrity(StrEnum):
    """What a successful resolution proves."""

    SNAPSHOT_ENVELOPE = "snapshot-envelope"
    """The body and every recorded fact: the reference carries the digest of the envelope."""
    BODY_AND_IDENTITY = "body-and-identity"
    """The body, source, URL and time; status, headers and redirects are as the store says (references of the 0.3 generation)."""


_MESSAGES = {
    SourceRefErrorCode.INVALID_REFERENCE: "the text is not a canonical snapshot reference",
    SourceRefErrorCode.SNAPSHOT_NOT_FOUND: "the referenced snapshot is not present in the store",
    SourceRefErrorCode.SNAPSHOT_MISMATCH: "the store holds another snapshot in the place of the referenced one",
    SourceRefErrorCode.SNAPSHOT_CORRUPT: "the store holds a corrupt record in the place of the referenced snapshot",
    SourceRefErrorCode.SNAPSHOT_STORE_ERROR: "the store could not complete a reliable read",
}


@attrs.frozen(kw_only=True)
class ResolutionFailure:
    """Why a reference did not resolve. The message names no path and nothing out of a record."""

    kind: SourceRefErrorCode
    message: str


@attrs.frozen(kw_only=True)
class Resolution:
    """The outcome of `resolve_source_ref`: ``snapshot`` with what it proves, or ``error``."""

    ref: SourceRef | None = None
    snapshot: Snapshot | None = None
    integrity: Integrity | None = None
    error: ResolutionFailure | None = None
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True when there is a snapshot."""
        return self.snapshot is not None

    def unwrap(self) -> Snapshot:
        """The snapshot; SourceRefError when the reference did not resolve."""
        if self.snapshot is not None:
            return self.snapshot
        if self.error is None:
            raise AssertionError("a resolution has a snapshot or an error")
        raise SourceRefError(self.error.kind, self.error.message)


def _unresolved(kind: SourceRefErrorCode, ref: SourceRef | None) -> Resolution:
    return Resolution(ref=ref, error=ResolutionFailure(kind=kind, message=_MESSAGES[kind]))


async def resolve_source_ref(store: SnapshotStore, source_ref: str) -> Resolution:
    """Find what a reference cites and prove that it is that, or say why not. Never raises for what the store does.

    A reference that is not canonical is refused without asking the store. What the store answers is validated and compared again:
    a store that is wrong, or lies, gives ``snapshot-mismatch`` or an error, never another snapshot.
    """
    ref = parse_source_ref(source_ref)
    if ref is None or not ref.canonical:
        await trio.lowlevel.checkpoint()
        return _unresolved(SourceRefErrorCode.INVALID_REFERENCE, ref)
    if not isinstance(store, ExactLookup):
        await trio.lowlevel.checkpoint()
        return _unresolved(SourceRefErrorCode.SNAPSHOT_STORE_ERROR, ref)
    try:
        found = await store.find_exact(ref.lookup)
        if found.kind is FindKind.MISSING:
            return _unresolved(SourceRefErrorCode.SNAPSHOT_NOT_FOUND, ref)
        if found.kind is FindKind.FOUND and found.snapshot is not None:
            return _proved(ref, found.snapshot)
        return _unresolved(SourceRefErrorCode.SNAPSHOT_MISMATCH, ref)
    except SnapshotStoreError as exc:
        corrupt = exc.code is StoreErrorCode.SNAPSHOT_CORRUPT
        return _unresolved(SourceRefErrorCode.SNAPSHOT_CORRUPT if corrupt else SourceRefErrorCode.SNAPSHOT_STORE_ERROR, ref)
    except Exception:  # noqa: BLE001 - the store may be anyone's; whatever it raises is its failure, not the caller's
        return _unresolved(SourceRefErrorCode.SNAPSHOT_STORE_ERROR, ref)


def _proved(ref: SourceRef, snapshot: Snapshot) -> Resolution:
    released = ref.snapshot_digest is None
    validate_snapshot(snapshot, released_identity=released)
    if not matches(snapshot, ref.lookup):
        return _unresolved(SourceRefErrorCode.SNAPSHOT_MISMATCH, ref)
    integrity = Integrity.BODY_AND_IDENTITY if released else Integrity.SNAPSHOT_ENVELOPE
    clean = attrs.evolve(snapshot, not_modified=False) if snapshot.not_modified else snapshot
    return Resolution(ref=ref, snapshot=clean, integrity=integrity)


# --- replaying


@attrs.frozen(kw_only=True)
class ReplayFailure:
    """Why a source could not be replayed: ``no-snapshot``, ``snapshot-corrupt`` or ``snapshot-store-error``."""

    kind: FetchErrorKind
    message: str


@attrs.frozen(kw_only=True)
class Replay:
    """The outcome of `replay_source`: the newest stored snapshot, or ``error``."""

    snapshot: Snapshot | None = None
    error: ReplayFailure | None = None
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True when there is a snapshot."""
        return self.snapshot is not None

    def unwrap(self) -> Snapshot:
        """The snapshot; FetchError when there is none to replay."""
        if self.snapshot is not None:
            return self.snapshot
        if self.error is None:
            raise AssertionError("a replay has a snapshot or an error")
        raise FetchError(self.error.kind, self.error.message)


async def replay_source(store: SnapshotStore, source_id: str) -> Replay:
    """The newest stored snapshot of a source, without any request. Never raises for what the store does."""
    try:
        snapshot = await store.latest(source_id)
    except SnapshotStoreError as exc:
        if exc.code is StoreErrorCode.SNAPSHOT_CORRUPT:
            return _not_replayed(FetchErrorKind.SNAPSHOT_CORRUPT, "the stored snapshot is corrupt and cannot be replayed")
        return _not_replayed(FetchErrorKind.SNAPSHOT_STORE_ERROR, "the snapshot store could not be read")
    except Exception:  # noqa: BLE001 - as in resolve_source_ref
        return _not_replayed(FetchErrorKind.SNAPSHOT_STORE_ERROR, "the snapshot store could not be read")
    if snapshot is None:
        return _not_replayed(FetchErrorKind.NO_SNAPSHOT, "no snapshot of this source is stored")
    return Replay(snapshot=snapshot)


def _not_replayed(kind: FetchErrorKind, message: str) -> Replay:
    return Replay(error=ReplayFailure(kind=kind, message=message))
