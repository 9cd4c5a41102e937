"""`FilesystemSnapshotStore`: snapshots as files, shared with any other program that keeps these formats.

Owns the asynchronous face: what runs in which thread, waiting for another writer, cancellation. How files are read and written is in
`reading`, `publication`, `pruning` and `witness`. Format: sections 5 and 6 of the snapshot formats.

Durability: when put returns, the record and its names are synced. Readers take no lock. Writers of one source wait for each other by
``source.lock``; a writer that does not take it (0.7.0 and older) does no harm to records, but may see a full history one record late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio

from forage.errors import InvalidSnapshotError, StoreBusyError
from forage.snapshots.heads import RememberedHeads
from forage.snapshots.model import Snapshot, check_text
from forage.snapshots.owners import Writer
from forage.snapshots.pruning import Prune, prune_source
from forage.snapshots.publication import publish_group
from forage.snapshots.puts import Put
from forage.snapshots.reading import SourceReader, find_exact, latest, open_source
from forage.snapshots.records import MAX_HISTORY_FILES, source_directory
from forage.snapshots.reference import Lookup
from forage.snapshots.retention import validate_prune
from forage.snapshots.store import FindResult, PruneResult
from forage.snapshots.witness import HeadWitness, VerifiedHead, WitnessLimits, WitnessOutcome, capture_head, compare_head
from forage.snapshots.writers import WriteJob, WriterThreads

__all__ = ["FilesystemSnapshotStore"]

T = TypeVar("T")

# Most of a put is waiting for the disk, which serves several syncs at once; a group shares what a thread costs. Together they bound the
# open files (for each put of a group three folders and at most 8 temporaries) below the usual limit.
_WRITER_THREADS = 8
_GROUP = 8
_READER_THREADS = 8
_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.05


class FilesystemSnapshotStore:
    """Snapshots below the directory ``root``, which is made when something is put.

    ``max_history_files`` (1 to 10,000) is the most records of one source; it cannot change once a source has records.
    ``lock_wait_seconds`` is how long a write waits while another program holds the lock of its source. The object holds nothing open;
    any number of stores, processes and machines may share a root.
    """

    def __init__(self, root: str | Path, *, max_history_files: int = MAX_HISTORY_FILES, lock_wait_seconds: float = 90.0) -> None:
        if isinstance(max_history_files, bool) or not isinstance(max_history_files, int):
            raise InvalidSnapshotError(f"max_history_files: takes an integer of 1 to {MAX_HISTORY_FILES}")
        if not 1 <= max_history_files <= MAX_HISTORY_FILES:
            raise InvalidSnapshotError(f"max_history_files: takes an integer of 1 to {MAX_HISTORY_FILES}")
        if not _is_seconds(lock_wait_seconds):
            raise InvalidSnapshotError("lock_wait_seconds: takes seconds, 0 or more")
        self._root = _path(root)
        self._ceiling = max_history_files
        self._lock_wait = lock_wait_seconds
        self._writer = Writer()
        self._writers: WriterThreads[Put | Prune] = WriterThreads(threads=_WRITER_THREADS, most=_GROUP)
        self._readers = trio.CapacityLimiter(_READER_THREADS)
        self._heads = RememberedHeads()

    @property
    def root(self) -> Path:
        """Where the sources are."""
        return self._root

    @property
    def max_history_files(self) -> int:
        """The most records of one source."""
        return self._ceiling

    # --- writing

    async def put(self, snapshot: Snapshot) -> None:
        """Keep a snapshot; returns when it is durable. Putting the same again succeeds and changes nothing.

        InvalidSnapshotError: not durable in form, or above 96 MiB as a record. HistoryFullError: ``max_history_files`` reached.
        StoreBusyError: another program held the source's lock for all of ``lock_wait_seconds``. SnapshotStoreError: the store could not
        be written (reason write-failed: no room, no permission, not a directory), has another ceiling, or holds something else in the
        place of a file. Whatever is raised, no half-written record is visible. A cancel during the writing waits for its end.
        """
        _check_type(snapshot)
        await self._write(snapshot.source_id, Put(snapshot), self._publish, alone=False)

    async def prune(self, source_id: str, *, keep_last: int, keep: Sequence[Lookup] = ()) -> PruneResult:
        """Remove all but the head, the newest ``keep_last``, and what ``keep`` names; clear what interrupted writers left.

        InvalidSnapshotError: the request is wrong, and nothing was looked at. SnapshotCorruptError: a record is damaged, and none was
        removed. StoreBusyError and SnapshotStoreError as for `put`. A cancel during the pruning waits for its end.
        """
        validate_prune(source_id, keep_last, keep)
        prune = Prune(source_id, keep_last, tuple(keep))
        await self._write(source_id, prune, self._prune, alone=True)
        return prune.result

    def _publish(self, puts: Sequence[Put | Prune]) -> None:
        publish_group(self._root, [put for put in puts if isinstance(put, Put)], self._ceiling, self._writer)

    def _prune(self, prunes: Sequence[Put | Prune]) -> None:
        for prune in prunes:
            if isinstance(prune, Prune):
                prune_source(self._root, prune, self._ceiling, self._writer)

    async def _write(self, source_id: str, item: Put | Prune, run: Callable[[Sequence[Put | Prune]], None], *, alone: bool) -> None:
        """Hand ``item`` to the writer threads, again while another program holds the source's lock."""
        pause, deadline = _FIRST_PAUSE, None
        while True:
            await self._writers.submit(WriteJob(source_directory(source_id), item, run, alone))
            if item.error is not None:
                raise item.error
            if not item.busy:
                return
            # Only time in which another program holds the lock counts, not that of our own queue.
            now = trio.current_time()
            deadline = now + self._lock_wait if deadline is None else deadline
            if now >= deadline:
                raise StoreBusyError
            await trio.sleep(min(pause, deadline - now))
            pause = min(pause * 2, _LONGEST_PAUSE)

    # --- reading

    async def latest(self, source_id: str) -> Snapshot | None:
        """The newest snapshot of a source, None when there is none. Reads the newest record only; older damage goes unnoticed."""
        check_text("source_id", source_id)
        return await self._in_thread(latest, self._root, source_id, self._ceiling, self._heads, _give_way)

    async def get(self, source_id: str, body_hash: str) -> Snapshot | None:
        """The newest snapshot whose body hash starts with ``body_hash``; an empty prefix gives the newest of all."""
        check_text("source_id", source_id)
        check_text("body_hash", body_hash)
        return await self._in_thread(self._from_source, source_id, lambda reader: reader.newest(body_hash), None)

    async def list(self, source_id: str) -> tuple[Snapshot, ...]:
        """The whole history, newest first, every record verified; one that is damaged raises SnapshotCorruptError instead."""
        check_text("source_id", source_id)
        nothing: tuple[Snapshot, ...] = ()
        return await self._in_thread(self._from_source, source_id, SourceReader.history, nothing)

    async def find_exact(self, lookup: Lookup) -> FindResult:
        """The snapshot with exactly these fields, without a scan. InvalidSnapshotError for fields that no snapshot has."""
        return await self._in_thread(find_exact, self._root, lookup, self._ceiling)

    # --- head witness

    async def read_verified_head(
        self,
        source_id: str,
        *,
        max_entries: int | None = None,
        max_index_bytes: int | None = None,
        max_verified_body_bytes: int | None = None,
    ) -> VerifiedHead:
        """The verified newest snapshot of a source, with a witness of the state in which it was that. Answers in kinds; raises nothing."""
        limits = WitnessLimits(max_entries=max_entries, max_index_bytes=max_index_bytes, max_verified_body_bytes=max_verified_body_bytes)
        return await self._in_thread(capture_head, self._root, source_id, self._ceiling, limits)

    async def compare_head_witness(
        self,
        witness: HeadWitness | Mapping[str, object],
        *,
        max_entries: int | None = None,
        max_index_bytes: int | None = None,
        max_verified_body_bytes: int | None = None,
    ) -> WitnessOutcome:
        """Whether nothing has changed since the witness was made. Takes its exchange form too; reads no record and raises nothing."""
        limits = WitnessLimits(max_entries=max_entries, max_index_bytes=max_index_bytes, max_verified_body_bytes=max_verified_body_bytes)
        return await self._in_thread(compare_head, self._root, witness, self._ceiling, limits)

    def _from_source(self, source_id: str, read: Callable[[SourceReader], T], nothing: T) -> T:
        source = open_source(self._root, source_id)
        if source is None:
            return nothing
        with source:
            return read(SourceReader(source, source_id, self._ceiling, between=_give_way))

    async def _in_thread(self, read: Callable[..., T], *args: object) -> T:
        return await trio.to_thread.run_sync(partial(read, *args), abandon_on_cancel=False, limiter=self._readers)


def _give_way() -> None:
    """Between two records, in the reading thread: a cancelled caller is not kept waiting for the rest of a long history."""
    trio.from_thread.check_cancelled()


def _check_type(snapshot: object) -> None:
    if not isinstance(snapshot, Snapshot):
        raise InvalidSnapshotError("snapshot: takes a Snapshot")
    check_text("source_id", snapshot.source_id)


def _path(root: str | Path) -> Path:
    try:
        path = Path(root)
    except TypeError as exc:
        raise InvalidSnapshotError("root: takes a path, as text or Path") from exc
    if "\0" in str(path):
        raise InvalidSnapshotError("root: takes a path without NUL")
    return path


def _is_seconds(value: object) -> bool:
    return type(value) in (int, float) and value >= 0  # type: ignore[operator]  # a number; NaN is not above 0
