"""Reading a source directory: records that are verified one by one, the newest, and the one that a look-up names.

Owns the read rules of the filesystem store. It writes nothing and takes no lock: publication is by link, so
a reader sees a record whole or not at all. Fails closed: one damaged record in a history fails the whole read. Format:
"Reading" in section 5 of the snapshot formats. Blocking; runs in a worker thread.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from forage._codec import units, utf16_key
from forage._files import FileFault, FileReadError, OpenDirectory, read_regular
from forage.errors import SnapshotCorruptError, SnapshotStoreError, StoreErrorCode, StoreErrorReason
from forage.snapshots.heads import RememberedHeads
from forage.snapshots.model import MAX_SOURCE_ID_UNITS, Snapshot
from forage.snapshots.records import (
    MAX_INDEX_ENTRY_BYTES,
    MAX_RECORD_BYTES,
    envelope_record_name,
    iso_time_of,
    newest_first,
    parse_index_entry,
    released_record_name,
    source_directory,
    verify_record,
)
from forage.snapshots.reference import Lookup, identity_digest, snapshot_digest, validate_lookup
from forage.snapshots.store import FindKind, FindResult, matches

__all__ = [
    "CAPACITY",
    "IDENTITY",
    "SourceReader",
    "corrupt",
    "find_exact",
    "latest",
    "open_real",
    "open_source",
    "read_error",
    "record_names",
    "store_error",
]

CAPACITY = "capacity-index"
IDENTITY = "identity-index"

_FAULTS = {
    FileFault.DISAPPEARED: StoreErrorReason.RECORD_DISAPPEARED,
    FileFault.RACED: StoreErrorReason.READ_RACED,
    FileFault.TOO_LARGE: StoreErrorReason.READ_LIMIT,
    FileFault.FAILED: StoreErrorReason.READ_FAILED,
    FileFault.MISSING: StoreErrorReason.RECORD_DISAPPEARED,
}
_TEXTS = {
    StoreErrorReason.RECORD_DISAPPEARED: "a record disappeared while the history was read",
    StoreErrorReason.READ_RACED: "a file was replaced while it was read",
    StoreErrorReason.READ_LIMIT: "the history, or a file of it, is above its limit",
    StoreErrorReason.READ_FAILED: "the store could not be read",
}


def corrupt(reason: StoreErrorReason, message: str) -> SnapshotCorruptError:
    """A store that holds what no writer makes."""
    return SnapshotCorruptError(reason, message)


def read_error(reason: StoreErrorReason) -> SnapshotStoreError:
    """A read that was not reliable."""
    return SnapshotStoreError(StoreErrorCode.SNAPSHOT_STORE_ERROR, reason, _TEXTS[reason])


def store_error(fault: FileFault) -> SnapshotStoreError:
    """The public error of a file that could not be read."""
    if fault is FileFault.NOT_REGULAR:
        return corrupt(StoreErrorReason.NON_REGULAR_ENTRY, "the store holds a link or special file in the place of a regular one")
    return read_error(_FAULTS[fault])


def open_real(path: str | Path, *, inside: OpenDirectory | None = None) -> OpenDirectory | None:
    """Open a directory of the store; None when absent, SnapshotStoreError when it is a link, a file, or cannot be opened."""
    try:
        return OpenDirectory(path, inside=inside)
    except FileNotFoundError:
        return None
    except OSError as exc:
        if _is_something_else(path, inside):
            raise corrupt(StoreErrorReason.NON_REGULAR_ENTRY, "the store holds something else in the place of a directory") from exc
        raise read_error(StoreErrorReason.READ_FAILED) from exc


def _is_something_else(path: str | Path, inside: OpenDirectory | None) -> bool:
    try:
        facts = Path(path).lstat() if inside is None else inside.lstat(str(path))
    except OSError:
        return False
    return facts is not None and not stat.S_ISDIR(facts.st_mode)


def open_source(root: Path, source_id: str) -> OpenDirectory | None:
    """Open the directory of a source; None when there is none."""
    return open_real(root / source_directory(source_id))


def record_names(source: OpenDirectory, ceiling: int) -> list[str]:
    """Names that count as records, in UTF-16 order. SnapshotStoreError (read-limit) when there are more than ``ceiling``."""
    found: list[str] = []
    try:
        for name in source.names():
            if name.endswith(".json"):
                found.append(name)
                if len(found) > ceiling:
                    raise read_error(StoreErrorReason.READ_LIMIT)
    except OSError as exc:
        raise read_error(StoreErrorReason.READ_FAILED) from exc
    found.sort(key=utf16_key)
    return found


def _nothing() -> None:
    return None


class SourceReader:
    """One open source directory. ``between`` runs before each record: it may raise to give up, and lets other threads run."""

    def __init__(self, directory: OpenDirectory, source_id: str, ceiling: int, *, between: Callable[[], None] = _nothing) -> None:
        self._directory = directory
        self._source_id = source_id
        self._ceiling = ceiling
        self._between = between
        self._released = units(source_id) > MAX_SOURCE_ID_UNITS

    def names(self) -> list[str]:
        """Names of all records."""
        return record_names(self._directory, self._ceiling)

    def read(self, name: str) -> Snapshot | None:
        """One verified record, None when there is no such file."""
        self._between()
        try:
            data = read_regular(self._directory, name, MAX_RECORD_BYTES)
        except FileReadError as exc:
            if exc.fault is FileFault.MISSING:
                return None
            raise store_error(exc.fault) from exc
        return verify_record(data, name=name, source_id=self._source_id)

    def read_listed(self, name: str) -> Snapshot:
        """One verified record that was there a moment ago."""
        snapshot = self.read(name)
        if snapshot is None:
            raise read_error(StoreErrorReason.RECORD_DISAPPEARED)
        return snapshot

    def records(self) -> Iterator[tuple[str, Snapshot]]:
        """Every record with its name, one in memory at a time; stops with the error of the first that is damaged."""
        for name in self.names():
            yield name, self.read_listed(name)

    def digest(self, snapshot: Snapshot) -> str:
        """The digest of a record of a history. InvalidSnapshotError for one whose URL or time is beyond today's limits.

        Such 0.3 records resolve by their references alone. A source whose own id is beyond the limit holds no others, and is let through.
        """
        return snapshot_digest(snapshot, released_identity=self._released)

    def history(self) -> tuple[Snapshot, ...]:
        """Every snapshot once, newest first."""
        distinct = {self.digest(snapshot): snapshot for _, snapshot in self.records()}
        return tuple(sorted(distinct.values(), key=newest_first, reverse=True))

    def newest(self, prefix: str = "") -> Snapshot | None:
        """The newest whose body hash starts with ``prefix``; all are verified, one is kept in memory."""
        best: Snapshot | None = None
        for _, snapshot in self.records():
            self.digest(snapshot)  # a record that can have none fails the history
            if snapshot.body_hash.startswith(prefix) and (best is None or newest_first(snapshot) > newest_first(best)):
                best = snapshot
        return best

    def head_of(self, candidates: tuple[str, ...]) -> Snapshot | None:
        """The newest of records whose names stand for the same, greatest time; None when a name was misleading and all must be read."""
        best: Snapshot | None = None
        for name in candidates:
            snapshot = self.read_listed(name)
            if snapshot.fetched_at != iso_time_of(name):
                return None
            if best is None or newest_first(snapshot) > newest_first(best):
                best = snapshot
        return best

    def find(self, lookup: Lookup) -> FindResult:
        """The record that a look-up names, without a scan."""
        if lookup.snapshot_digest is not None:
            snapshot = self.read(envelope_record_name(lookup.fetched_at, lookup.snapshot_digest))
        else:
            snapshot = self._find_by_identity(lookup)
        if snapshot is None:
            return FindResult(kind=FindKind.MISSING)
        return FindResult(kind=FindKind.FOUND, snapshot=snapshot) if matches(snapshot, lookup) else FindResult(kind=FindKind.MISMATCH)

    def _find_by_identity(self, lookup: Lookup) -> Snapshot | None:
        name = self._indexed_name(identity_digest(lookup))
        if name is not None:
            return self.read_listed(name)
        released = released_record_name(lookup.fetched_at, lookup.body_hash)
        return None if released is None else self.read(released)

    def _indexed_name(self, identity: str) -> str | None:
        index = open_real(IDENTITY, inside=self._directory)
        if index is None:
            return None
        with index:
            try:
                text = read_regular(index, f"{identity}.txt", MAX_INDEX_ENTRY_BYTES).decode("utf-8", "replace")
            except FileReadError as exc:
                if exc.fault is FileFault.MISSING:
                    return None
                raise store_error(exc.fault) from exc
        name = parse_index_entry(text)
        if name is None:
            raise corrupt(StoreErrorReason.INVALID_IDENTITY_INDEX, "an identity entry names no record")
        return name


def find_exact(root: Path, lookup: Lookup, ceiling: int) -> FindResult:
    """`SourceReader.find` for a store; checks the look-up first."""
    validate_lookup(lookup)
    source = open_source(root, lookup.source_id)
    if source is None:
        return FindResult(kind=FindKind.MISSING)
    with source:
        return SourceReader(source, lookup.source_id, ceiling).find(lookup)


def latest(root: Path, source_id: str, ceiling: int, heads: RememberedHeads, between: Callable[[], None] = _nothing) -> Snapshot | None:
    """The newest snapshot: by names alone where they tell the time, else of the whole history. Older damaged records go unnoticed."""
    source = open_source(root, source_id)
    if source is None:
        return None
    with source:
        reader = SourceReader(source, source_id, ceiling, between=between)
        try:
            candidates = heads.candidates(source_directory(source_id), source, reader.names)
        except OSError as exc:
            raise read_error(StoreErrorReason.READ_FAILED) from exc
        if candidates is None:
            return reader.newest()
        if not candidates:
            return None
        return reader.head_of(candidates) or reader.newest()
