"""Walking a store: which sources there are, and what each record proves.

Owns the verdicts. It reads whatever is there, also what no history would return, and changes nothing. For a store that is written
meanwhile a verdict may be out of date: a record is ``unindexed`` for as long as its put takes.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import attrs
import trio

from forage._codec import utf16_key
from forage._files import FileFault, FileReadError, OpenDirectory, read_regular
from forage.errors import SnapshotStoreError, StoreErrorReason
from forage.snapshots.javascript import js_trim
from forage.snapshots.model import HashBasis, Snapshot, body_slices, snapshot_hash_basis
from forage.snapshots.reading import CAPACITY, IDENTITY, open_real, read_error, store_error
from forage.snapshots.records import (
    ENVELOPE_RECORD,
    MAX_HISTORY_FILES,
    MAX_RECORD_BYTES,
    RELEASED_RECORD,
    decode_record,
    parse_index_entry,
    source_directory,
    verify_record,
)
from forage.snapshots.reference import identity_digest
from forage.snapshots.slots import CEILING_FILE, SLOT_FILE, read_entry

__all__ = ["RecordVerdict", "Verdict", "recorded_ceiling", "source_directories", "verify_source"]

_FAILED_READS = frozenset({StoreErrorReason.READ_FAILED, StoreErrorReason.READ_RACED})


class Verdict(StrEnum):
    """What a record is worth."""

    INTACT = "intact"
    CORRUPT = "corrupt"
    """Its history cannot be read as long as it is there; ``reason`` says what is wrong."""
    UNREADABLE = "unreadable"
    """It could not be read, so nothing is known of it: no permission, mostly. ``reason`` says what happened."""
    LEGACY = "legacy"
    """Sound, under the name that the 0.3 generation gave it: found by references of that generation only."""
    UNINDEXED = "unindexed"
    """Sound, but it has no slot or no identity entry, or a name that no look-up asks for; a prune adds what is missing."""


@attrs.frozen(kw_only=True)
class RecordVerdict:
    """One entry of a source directory that counts as a record. The last four members only where the content can be read."""

    directory: str
    name: str
    verdict: Verdict
    reason: StoreErrorReason | None = None
    size: int = 0
    source_id: str | None = None
    fetched_at: str | None = None
    body_bytes: int | None = None
    hash_basis: HashBasis | None = None


async def source_directories(root: Path) -> tuple[str, ...]:
    """Names of what may be source directories, in order. SnapshotStoreError (read-failed) when the store cannot be read."""
    return await trio.to_thread.run_sync(_source_directories, root, abandon_on_cancel=False)


def _source_directories(root: Path) -> tuple[str, ...]:
    try:
        with OpenDirectory(root, follow=True) as directory:
            names = [name for name in directory.names() if (facts := directory.lstat(name)) and not stat.S_ISREG(facts.st_mode)]
    except FileNotFoundError:
        return ()
    except OSError as exc:
        raise read_error(StoreErrorReason.READ_FAILED) from exc
    return tuple(sorted(names, key=utf16_key))


async def verify_source(root: Path, directory: str) -> tuple[RecordVerdict, ...]:
    """A verdict on each record of one source directory, by name. A directory that is none has one verdict, on the empty name."""
    return await trio.to_thread.run_sync(_verify_source, root, directory, abandon_on_cancel=False)


def _verify_source(root: Path, directory: str) -> tuple[RecordVerdict, ...]:
    try:
        source = open_real(root / directory)
        if source is None:
            return ()
        with source:
            return tuple(_Walk(source, directory).verdicts())
    except SnapshotStoreError as exc:
        return (RecordVerdict(directory=directory, name="", verdict=_of(exc.reason), reason=exc.reason),)


def _of(reason: StoreErrorReason | None) -> Verdict:
    """A failed read says nothing about what is stored."""
    return Verdict.UNREADABLE if reason in _FAILED_READS else Verdict.CORRUPT


class _Walk:
    def __init__(self, source: OpenDirectory, directory: str) -> None:
        self._source = source
        self._directory = directory
        self._slots = frozenset(text for name, text in self._entries(CAPACITY) if SLOT_FILE.fullmatch(name))
        self._identities = {name.removesuffix(".txt"): parse_index_entry(text) for name, text in self._entries(IDENTITY)}

    def _entries(self, name: str) -> Iterator[tuple[str, str]]:
        try:
            index = open_real(name, inside=self._source)
            if index is None:
                return
            with index:
                for entry in list(index.names()):
                    yield entry, self._text(index, entry)
        except SnapshotStoreError:
            return  # an index that is none has no entries: its records are unindexed

    @staticmethod
    def _text(index: OpenDirectory, entry: str) -> str:
        try:
            return read_entry(index, entry) or ""
        except SnapshotStoreError:
            return ""

    def verdicts(self) -> Iterator[RecordVerdict]:
        for name in sorted((name for name in self._source.names() if name.endswith(".json")), key=utf16_key):
            trio.from_thread.check_cancelled()
            yield self._verdict(name)

    def _verdict(self, name: str) -> RecordVerdict:
        size = 0
        try:
            data = read_regular(self._source, name, MAX_RECORD_BYTES)
            size = len(data)
            source_id = decode_record(data, name=name).source_id
            # A record is of another source when its directory would be another.
            expected = source_id if source_directory(source_id) == self._directory else ""
            snapshot = verify_record(data, name=name, source_id=expected)
        except FileReadError as exc:
            reason = None if exc.fault is FileFault.MISSING else store_error(exc.fault).reason
            return RecordVerdict(directory=self._directory, name=name, verdict=_of(reason), reason=reason)
        except SnapshotStoreError as exc:
            return RecordVerdict(directory=self._directory, name=name, verdict=Verdict.CORRUPT, reason=exc.reason, size=size)
        return RecordVerdict(
            directory=self._directory,
            name=name,
            verdict=self._standing(name, snapshot),
            size=size,
            source_id=snapshot.source_id,
            fetched_at=snapshot.fetched_at,
            body_bytes=sum(map(len, body_slices(snapshot))),
            hash_basis=snapshot_hash_basis(snapshot),
        )

    def _standing(self, name: str, snapshot: Snapshot) -> Verdict:
        if RELEASED_RECORD.fullmatch(name):
            return Verdict.LEGACY
        # The entry may lead to another envelope of the same identity.
        indexed = self._identities.get(identity_digest(snapshot)) is not None and name in self._slots
        return Verdict.INTACT if indexed and ENVELOPE_RECORD.fullmatch(name) else Verdict.UNINDEXED


async def recorded_ceiling(root: Path, source_id: str) -> int:
    """The ``max_history_files`` that a source has on record; the default where it has none."""
    return await trio.to_thread.run_sync(_recorded_ceiling, root, source_id, abandon_on_cancel=False)


def _recorded_ceiling(root: Path, source_id: str) -> int:
    index = open_real(root / source_directory(source_id) / CAPACITY)
    if index is None:
        return MAX_HISTORY_FILES
    with index:
        text = js_trim(read_entry(index, CEILING_FILE) or "")
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else 0
    return number if 1 <= number <= MAX_HISTORY_FILES else MAX_HISTORY_FILES
