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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from forage._files import OpenDirectory, Temporary, open_or_make, temporary_owner
from forage.errors import HistoryFullError, InvalidSnapshotError, SnapshotStoreError, StoreErrorReason
from forage.snapshots.indexes import SourceIndexes, make_and_open
from forage.snapshots.lock import SourceLock, try_lock
from forage.snapshots.owners import Writer
from forage.snapshots.puts import Put, write_error
from forage.snapshots.reading import CAPACITY, IDENTITY, SourceReader, open_real, record_names
from forage.snapshots.records import record_name, released_record_name, source_directory
from forage.snapshots.reference import identity_digest
from forage.snapshots.slots import slot_file
from forage.snapshots.staging import Staging

__all__ = ["publish_group"]


class _SourcePublication:
    """The puts of one source, through the phases of a group. A phase that fails fails all puts that are still open."""

    def __init__(self, root: OpenDirectory, source_id: str, puts: Sequence[Put], ceiling: int, writer: Writer) -> None:
        self._root = root
        self._source_id = source_id
        self._puts = puts
        self._ceiling = ceiling
        self._writer = writer
        self._made = False
        self._new = False
        self._over = False
        self._lock: SourceLock | None = None
        self._staging: Staging[Put] = Staging()
        self._directories = contextlib.ExitStack()
        self._source: OpenDirectory
        self._indexes: SourceIndexes[Put]

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
        except Exception as exc:  # noqa: BLE001 - handed to every caller that waits for this source
            self._fail(exc)

    def prepare(self) -> None:
        """Make the directory and the bytes. The directory comes first: it is there even when the snapshot is refused."""
        self._source, self._made = make_and_open(source_directory(self._source_id), self._root, self._directories)
        for put in self._puts:
            with self._failing(put):
                put.encode()
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
        self._indexes = SourceIndexes(self._source, self._ceiling, self._staging, self._directories)
        self._indexes.plan_ceiling()
        # A writer that takes the lock makes the index first: where both are ours, there is nothing to look for.
        self._new = self._made and self._indexes.is_new
        if self._indexes.is_new or not self._indexes.slots.is_initialized():
            self._plan_initialization()
        first: dict[str, Put] = {}
        for put in self._puts:
            if put.is_open:
                with self._failing(put):
                    other = first.setdefault(put.name, put)
                    if other is put:
                        self._plan_put(put)
                    else:
                        self._staging.then(put, _same_outcome(put, other))

    def sync_files(self) -> None:
        """Make all contents durable, before any of them gets its name."""
        self._staging.sync()

    def link(self) -> None:
        """Give the contents their names, in order."""
        self._staging.run_steps(self._run_step)

    def sync_directories(self) -> None:
        """Make the names durable."""
        self._indexes.sync()
        self._source.sync()
        if self._made:
            self._root.sync()

    def close(self) -> None:
        """Remove the temporaries and the lock. A lock that cannot be removed any more goes stale."""
        self._staging.discard()
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
                self._indexes.capacity.unlink(slot_file(put.slot))

    def _run_step(self, put: Put, step: Callable[[], None]) -> None:
        if put.is_open:
            with self._failing(put):
                step()

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

    def _plan_initialization(self) -> None:
        try:
            names = [] if self._new else record_names(self._source, self._ceiling)
        except SnapshotStoreError as exc:
            if exc.reason is not StoreErrorReason.READ_LIMIT:
                raise
            for put in self._puts:
                put.error = put.error or HistoryFullError(self._ceiling)
        else:
            self._indexes.plan_initialization(names)

    def _plan_put(self, put: Put) -> None:
        identity = identity_digest(put.snapshot)
        if not self._new and self._source.exists(put.name):
            self._staging.then(put, lambda: self._check_existing(put))
            if self._lock is not None and self._lock.broken is not None:
                self._plan_repair(put)
        elif (twin := self._released_twin(put)) is not None:
            self._plan_rename(put, twin, identity)
            return
        else:
            self._indexes.plan_slot(put.name, put, put.hold_slot)
            record = self._staging.write(self._source, put.name, put.parts)
            self._staging.then(put, lambda: self._link_record(put, record))
        self._indexes.plan_identity(identity, put.name, put)

    def _link_record(self, put: Put, record: Temporary) -> None:
        taken = not record.link(put.name)
        put.slot = None  # from here on the slot is a record's
        if taken:
            self._check_existing(put)

    def _check_existing(self, put: Put) -> None:
        """A record is there under this name. The name holds the digest, so a verified one is the snapshot that is put."""
        SourceReader(self._source, self._source_id, self._ceiling).read_listed(put.name)

    # --- records of the 0.3 generation

    def _released_twin(self, put: Put) -> str | None:
        """The record of the same snapshot under its 0.3 name, if there is one."""
        name = released_record_name(put.snapshot.fetched_at, put.snapshot.body_hash)
        if self._new or name is None or not self._source.exists(name):
            return None
        try:
            snapshot = SourceReader(self._source, self._source_id, self._ceiling).read(name)
            return name if snapshot is not None and record_name(snapshot) == put.name else None
        except (SnapshotStoreError, InvalidSnapshotError):
            return None

    def _plan_rename(self, put: Put, twin: str, identity: str) -> None:
        """Rename the 0.3 record instead of adding one, so that a full source takes it.

        The identity entry comes first: old references are never answered "missing" in between.
        """
        self._indexes.plan_identity(identity, put.name, put)
        number = self._indexes.slots.slot_of(twin)
        if number is None:
            self._indexes.plan_slot(put.name, put, put.hold_slot)
        self._staging.then(put, lambda: self._rename(put, twin))
        if number is not None:
            self._plan_handing_over(put, number)

    def _plan_handing_over(self, put: Put, number: int) -> None:
        """The slot of the 0.3 name becomes that of the record; its text changes at one stroke, so that it counts all the time."""
        self._indexes.slots.give(number, put.name)
        slot = self._staging.write_text(self._indexes.capacity, slot_file(number), put.name)
        self._staging.then(put, lambda: slot.replace(slot_file(number)))

    def _plan_repair(self, put: Put) -> None:
        """A writer died here: the record may have lost the way to its slot."""
        slots = self._indexes.slots
        if slots.slot_of(put.name) is not None:
            return
        twin = released_record_name(put.snapshot.fetched_at, put.snapshot.body_hash)
        number = None if twin is None or self._source.exists(twin) else slots.slot_of(twin)
        if number is None:
            self._indexes.plan_slot(put.name, put)
        else:
            self._plan_handing_over(put, number)

    def _rename(self, put: Put, twin: str) -> None:
        os.rename(twin, put.name, src_dir_fd=self._source.fd, dst_dir_fd=self._source.fd)
        put.slot = None


def _same_outcome(put: Put, other: Put) -> Callable[[], None]:
    def take() -> None:
        put.error = other.error

    return take


_PHASES = (
    _SourcePublication.prepare,
    _SourcePublication.lock,
    _SourcePublication.write,
    _SourcePublication.sync_files,
    _SourcePublication.link,
    _SourcePublication.sync_directories,
)


def publish_group(root: Path, puts: Sequence[Put], ceiling: int, writer: Writer) -> None:
    """Publish all puts durably, or say of each why not; raises nothing."""
    sources: dict[str, list[Put]] = {}
    for put in puts:
        put.busy = False
        sources.setdefault(put.snapshot.source_id, []).append(put)
    try:
        directory = open_or_make(root)
    except OSError as exc:
        for put in puts:
            put.error = write_error(exc)
        return
    with directory:
        publications = [_SourcePublication(directory, source_id, members, ceiling, writer) for source_id, members in sources.items()]
        try:
            for phase in _PHASES:
                for publication in publications:
                    publication.attempt(phase.__get__(publication))
        finally:
            for publication in publications:
                publication.close()
