"""Publication of records: the critical section of put, for one source or for a group of sources at once.

Owns the order of writing. Under the source's lock everything is written to temporaries, which are synced; then slot, record and
identity entry get their names, in this order; then each directory is synced once; only then is anything acknowledged. A
writer that is killed at any point leaves a store that reads well, and what it left is put right by the same put again or by a prune.
The sources of a group share the commits of the disk. Format: "put" and "Publishing one file" in section 5 of the snapshot formats.
Blocking; one call in one thread.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import attrs

from forage._files import OpenDirectory, Temporary, make_directory, open_or_make, temporary_owner
from forage.errors import (
    HistoryFullError,
    InvalidSnapshotError,
    SnapshotStoreError,
    StoreErrorCode,
    StoreErrorReason,
)
from forage.snapshots.lock import SourceLock, Writer, try_lock
from forage.snapshots.model import Snapshot
from forage.snapshots.reading import CAPACITY, IDENTITY, SourceReader, corrupt, open_real, read_error, record_names
from forage.snapshots.records import (
    parse_index_entry,
    record_name,
    record_slices,
    released_record_name,
    source_directory,
)
from forage.snapshots.reference import identity_digest
from forage.snapshots.slots import CEILING_FILE, INITIALIZED_FILE, CapacityIndex, read_entry, slot_file

__all__ = ["Put", "publish_group", "write_error"]

# Temporaries that are written and not yet synced, each with an open file.
_MOST_UNSYNCED = 32


def write_error(exc: OSError) -> SnapshotStoreError:
    """The public error of a system call that failed while writing; names the cause, no path."""
    cause = os.strerror(exc.errno) if exc.errno else type(exc).__name__
    return SnapshotStoreError(
        StoreErrorCode.SNAPSHOT_STORE_ERROR, StoreErrorReason.WRITE_FAILED, f"the store could not be written: {cause}"
    )


@attrs.define(eq=False)
class Put:
    """One put of a group and what became of it: ``busy`` (another writer holds the lock), ``error``, or neither: it is durable.

    A busy one may be handed in again.
    """

    snapshot: Snapshot
    busy: bool = False
    error: BaseException | None = None
    name: str = ""
    parts: tuple[bytes, ...] = ()
    slot: int | None = None

    @property
    def is_open(self) -> bool:
        return self.error is None and not self.busy


class _SourcePublication:
    """The puts of one source, through the phases of a group. A phase that fails fails all puts that are still open."""

    def __init__(self, root: OpenDirectory, source_id: str, puts: Sequence[Put], ceiling: int, writer: Writer) -> None:
        self._root = root
        self._source_id = source_id
        self._puts = puts
        self._ceiling = ceiling
        self._writer = writer
        self._made = False
        self._lock: SourceLock | None = None
        self._temporaries: list[Temporary] = []
        self._unsynced: list[Temporary] = []
        self._links: list[tuple[Put | None, Callable[[], None]]] = []
        self._over = False
        self._directories = contextlib.ExitStack()
        self._source: OpenDirectory
        self._capacity: OpenDirectory
        self._identity: OpenDirectory | None = None

    # --- phases, in order

    def attempt(self, phase: Callable[[], None]) -> None:
        """Run one phase, unless an earlier one ended it."""
        if self._over:
            return
        try:
            if self._lock is not None:
                self._lock.refresh()
            phase()
        except OSError as exc:
            self._fail(write_error(exc))
        except Exception as exc:  # noqa: BLE001 - handed to every caller that waits for this group
            self._fail(exc)

    def prepare(self) -> None:
        """Make the directory and the bytes. The directory comes first: it is there even when the snapshot is refused."""
        name = source_directory(self._source_id)
        self._made = make_directory(self._root, name)
        self._source = self._open(name, self._root)
        for put in self._puts:
            with self._failing(put):
                put.name = record_name(put.snapshot)
                put.parts = put.parts or tuple(record_slices(put.snapshot))
        self._over = not any(put.is_open for put in self._puts)

    def lock(self) -> None:
        """Take the lock, or leave all puts as busy."""
        self._lock = try_lock(self._source, self._writer)
        if self._lock is None:
            self._over = True
            for put in self._puts:
                put.busy = put.is_open
        elif self._lock.broken is not None and self._lock.broken.owner is not None:
            self._clear_temporaries_of(self._lock.broken.owner.pid)

    def write(self) -> None:
        """Decide on all files and write them as temporaries."""
        make_directory(self._source, CAPACITY)
        self._capacity = self._open(CAPACITY, self._source)
        index = CapacityIndex(self._capacity, self._ceiling)
        self._plan_index(index)
        first: dict[str, Put] = {}
        for put in self._puts:
            if not put.is_open:
                continue
            with self._failing(put):
                if put.name in first:
                    self._links.append((put, _same_outcome(put, first[put.name])))
                else:
                    first[put.name] = put
                    self._plan_put(put, index)

    def sync_files(self) -> None:
        """Make all contents durable, before any of them gets its name."""
        while self._unsynced:
            self._unsynced.pop().sync()

    def link(self) -> None:
        """Give the contents their names, in order."""
        for put, step in self._links:
            if put is None:
                step()
            elif put.is_open:
                with self._failing(put):
                    step()

    def sync_directories(self) -> None:
        """Make the names durable."""
        self._capacity.sync()
        if self._identity is not None:
            self._identity.sync()
        self._source.sync()
        if self._made:
            self._root.sync()

    def close(self) -> None:
        """Remove the temporaries and the lock. What cannot be removed any more is left for the next writer; nothing depends on it."""
        for temporary in self._temporaries:
            with contextlib.suppress(OSError):
                temporary.discard()
        if self._lock is not None:
            with contextlib.suppress(OSError):
                self._lock.release()
        self._directories.close()

    # --- failures

    def _fail(self, error: BaseException) -> None:
        self._over = True
        for put in self._puts:
            if put.is_open:
                put.error = error

    @contextlib.contextmanager
    def _failing(self, put: Put) -> Iterator[None]:
        """What goes wrong inside concerns this put alone."""
        try:
            yield
        except OSError as exc:
            put.error = write_error(exc)
        except Exception as exc:  # noqa: BLE001 - handed to the caller of this put
            put.error = exc
        if put.error is not None and put.slot is not None:
            # The record did not get its name: its slot must not count.
            with contextlib.suppress(OSError):
                self._capacity.unlink(slot_file(put.slot))
            put.slot = None

    def _clear_temporaries_of(self, pid: int) -> None:
        """What the writer left whose lock was broken. Others may be at work without a lock (0.7.0), so only its own are removed."""
        with contextlib.ExitStack() as stack:
            directories = [self._source]
            for name in (CAPACITY, IDENTITY):
                found = open_real(name, inside=self._source)
                if found is not None:
                    directories.append(stack.enter_context(found))
            for directory in directories:
                for name in [name for name in directory.names() if temporary_owner(name) == pid]:
                    directory.unlink(name)

    # --- planning

    def _open(self, name: str, parent: OpenDirectory) -> OpenDirectory:
        found = open_real(name, inside=parent)
        if found is None:
            raise read_error(StoreErrorReason.READ_RACED)
        return self._directories.enter_context(found)

    def _stage(self, directory: OpenDirectory, name: str, parts: Iterable[bytes]) -> Temporary:
        if len(self._unsynced) >= _MOST_UNSYNCED:
            self.sync_files()
        temporary = Temporary(directory, name, parts, start_writing=True)
        self._temporaries.append(temporary)
        self._unsynced.append(temporary)
        return temporary

    def _stage_index(self, directory: OpenDirectory, name: str, text: str) -> Temporary:
        return self._stage(directory, name, (text.encode(),))

    def _plan_index(self, index: CapacityIndex) -> None:
        """The ceiling and, for records older than the index, their slots."""
        if not index.ceiling_is_published():
            ceiling = self._stage_index(self._capacity, CEILING_FILE, str(self._ceiling))
            self._links.append((None, lambda: self._link_ceiling(ceiling, index)))
        if index.is_initialized():
            return
        try:
            names = record_names(self._source, self._ceiling)
        except SnapshotStoreError as exc:
            if exc.reason is not StoreErrorReason.READ_LIMIT:
                raise
            for put in self._puts:
                put.error = put.error or HistoryFullError(self._ceiling)
            return
        for name in names:
            self._plan_slot(None, name, index)
        mark = self._stage_index(self._capacity, INITIALIZED_FILE, "1")
        self._links.append((None, lambda: self._link(mark, INITIALIZED_FILE)))

    @staticmethod
    def _link(temporary: Temporary, name: str) -> None:
        temporary.link(name)  # a taken name is fine: somebody said the same

    @staticmethod
    def _link_ceiling(temporary: Temporary, index: CapacityIndex) -> None:
        if not temporary.link(CEILING_FILE):
            index.ceiling_is_published()

    def _plan_slot(self, put: Put | None, name: str, index: CapacityIndex) -> None:
        number = index.reserve(name)
        if number is not None:
            slot = self._stage_index(self._capacity, slot_file(number), name)
            self._links.append((put, lambda: self._link_slot(put, slot, number, name, index)))

    @staticmethod
    def _link_slot(put: Put | None, slot: Temporary, number: int, name: str, index: CapacityIndex) -> None:
        wanted: int | None = number
        while wanted is not None and not slot.link(slot_file(wanted)):
            wanted = index.reserve_again(name, wanted)
        if put is not None:
            put.slot = wanted

    def _plan_put(self, put: Put, index: CapacityIndex) -> None:
        if self._source.exists(put.name):
            self._links.append((put, lambda: self._check_existing(put)))
            self._plan_identity(put)
            return
        twin = self._released_twin(put)
        if twin is not None:
            self._plan_rename(put, twin, index)
            return
        self._plan_slot(put, put.name, index)
        record = self._stage(self._source, put.name, put.parts)
        self._links.append((put, lambda: self._link_record(put, record)))
        self._plan_identity(put)

    def _link_record(self, put: Put, record: Temporary) -> None:
        taken = not record.link(put.name)
        put.slot = None  # from here on the slot belongs to a record
        if taken:
            self._check_existing(put)

    def _check_existing(self, put: Put) -> None:
        """A record is there under this name. Its name holds its digest, so a verified one is the snapshot that is put."""
        SourceReader(self._source, self._source_id, self._ceiling).read_listed(put.name)

    def _plan_identity(self, put: Put) -> None:
        if self._identity is None:
            make_directory(self._source, IDENTITY)
            self._identity = self._open(IDENTITY, self._source)
        identity, name = self._identity, f"{identity_digest(put.snapshot)}.txt"
        entry = None if identity.exists(name) else self._stage_index(identity, name, put.name)
        self._links.append((put, lambda: self._link_identity(identity, entry, name)))

    @staticmethod
    def _link_identity(identity: OpenDirectory, entry: Temporary | None, name: str) -> None:
        if entry is not None and entry.link(name):
            return
        # The first entry of an identity stays, whatever envelope it names.
        if parse_index_entry(read_entry(identity, name) or "") is None:
            raise corrupt(StoreErrorReason.INVALID_IDENTITY_INDEX, "an identity entry names no record")

    # --- records of the 0.3 generation

    def _released_twin(self, put: Put) -> str | None:
        """The record of the same snapshot under its 0.3 name, if there is one."""
        name = released_record_name(put.snapshot.fetched_at, put.snapshot.body_hash)
        if name is None or not self._source.exists(name):
            return None
        try:
            snapshot = SourceReader(self._source, self._source_id, self._ceiling).read(name)
            return name if snapshot is not None and record_name(snapshot) == put.name else None
        except (SnapshotStoreError, InvalidSnapshotError):
            return None

    def _plan_rename(self, put: Put, twin: str, index: CapacityIndex) -> None:
        """Rename the 0.3 record instead of adding one. First the identity entry, so that old references are never answered "missing"."""
        self._plan_identity(put)
        number = index.slot_of(twin)
        if number is None:
            self._plan_slot(put, put.name, index)
        self._links.append((put, lambda: self._rename(put, twin)))
        if number is not None:
            index.give(number, put.name)
            slot = self._stage_index(self._capacity, slot_file(number), put.name)
            self._links.append((put, lambda: slot.replace(slot_file(number))))

    def _rename(self, put: Put, twin: str) -> None:
        os.rename(twin, put.name, src_dir_fd=self._source.fd, dst_dir_fd=self._source.fd)
        put.slot = None


def _same_outcome(put: Put, other: Put) -> Callable[[], None]:
    def take() -> None:
        put.error = other.error

    return take


def publish_group(root: Path, puts: Sequence[Put], ceiling: int, writer: Writer) -> None:
    """Publish all puts durably, or say of each why not. Raises nothing: outcomes are in the puts."""
    try:
        directory = open_or_make(root)
    except OSError as exc:
        for put in puts:
            put.error = write_error(exc)
        return
    sources: dict[str, list[Put]] = {}
    for put in puts:
        put.busy = False
        sources.setdefault(put.snapshot.source_id, []).append(put)
    with directory:
        publications = [_SourcePublication(directory, source_id, members, ceiling, writer) for source_id, members in sources.items()]
        try:
            for phase in (
                _SourcePublication.prepare,
                _SourcePublication.lock,
                _SourcePublication.write,
                _SourcePublication.sync_files,
                _SourcePublication.link,
                _SourcePublication.sync_directories,
            ):
                for publication in publications:
                    publication.attempt(phase.__get__(publication))
        finally:
            for publication in publications:
                publication.close()
