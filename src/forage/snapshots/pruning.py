"""Pruning: what interrupted writers left is cleared, old records are removed, and what remains has its index entries again.

Owns the critical section of prune. Everything is read and verified before the first record is removed: a history with a damaged record is
not touched. A prune that is killed at any point leaves a store that reads well and that the next prune finishes. Format: "prune" in
section 5 of the snapshot formats, and beyond it: doubled slots, a missing mark of initialisation, and identity entries that hold no
record name are put right. Blocking; one call in one thread.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

import attrs

from forage._files import TEMPORARY, OpenDirectory
from forage.errors import StoreErrorReason
from forage.snapshots.indexes import SourceIndexes
from forage.snapshots.javascript import js_trim
from forage.snapshots.lock import LOCK_NAME, STALE_SECONDS, SourceLock, clear_stale_marker, try_lock
from forage.snapshots.owners import Writer
from forage.snapshots.puts import write_error
from forage.snapshots.reading import CAPACITY, IDENTITY, SourceReader, open_real, open_source, read_error
from forage.snapshots.records import ENVELOPE_RECORD, first_slot, newest_first, parse_index_entry
from forage.snapshots.reference import Lookup, identity_digest, lookup_of
from forage.snapshots.retention import plan_retention
from forage.snapshots.slots import CEILING_FILE, INITIALIZED_FILE, CapacityIndex, read_entry, slot_file
from forage.snapshots.staging import staging
from forage.snapshots.store import PruneResult

__all__ = ["Prune", "prune_source"]

_IDENTITY_FILE = re.compile(r"([0-9a-f]{64})\.txt")
_ASIDE = re.compile(re.escape(LOCK_NAME) + r"(?:\.break)?\.[0-9a-f-]{36}\.aside")


@attrs.define(eq=False)
class Prune:
    """A request, already validated, and what became of it: ``busy`` (another writer holds the lock), ``error`` or ``result``."""

    source_id: str
    keep_last: int
    keep: Sequence[Lookup]
    busy: bool = False
    error: BaseException | None = None
    result: PruneResult = attrs.field(factory=lambda: PruneResult(removed=0, retained=0))


def prune_source(root: Path, prune: Prune, ceiling: int, writer: Writer) -> None:
    """Prune one source, or say why not; raises nothing."""
    prune.busy = False
    try:
        source = open_source(root, prune.source_id)
        if source is None:
            return
        with source, contextlib.ExitStack() as stack:
            lock = try_lock(source, writer)
            if lock is None:
                prune.busy = True
                return
            stack.callback(_release, lock)
            prune.result = _Pruning(source, prune, ceiling, lock, stack).run(writer.machine)
    except OSError as exc:
        prune.error = write_error(exc)
    except Exception as exc:  # noqa: BLE001 - handed to the caller of this prune
        prune.error = exc


def _release(lock: SourceLock) -> None:
    with contextlib.suppress(OSError):  # a lock that cannot be removed any more goes stale
        lock.release()


class _Pruning:
    def __init__(self, source: OpenDirectory, prune: Prune, ceiling: int, lock: SourceLock, stack: contextlib.ExitStack) -> None:
        self._source = source
        self._prune = prune
        self._ceiling = ceiling
        self._lock = lock
        self._capacity = self._enter(stack, CAPACITY)
        self._identity = self._enter(stack, IDENTITY)
        self._files: dict[str, list[str]] = {}  # snapshot digest to the names of its records

    def _enter(self, stack: contextlib.ExitStack, name: str) -> OpenDirectory | None:
        found = open_real(name, inside=self._source)
        return None if found is None else stack.enter_context(found)

    def run(self, machine: str | None) -> PruneResult:
        """The whole of it, in order."""
        self._clear_lock_debris(machine)
        self._clear_temporaries()
        self._clear_identity_entries()
        plan = plan_retention(self._read_history(), keep_last=self._prune.keep_last, keep=self._prune.keep)
        slots = self._clear_orphan_slots()
        for victim in plan.victims:
            self._lock.refresh()
            self._remove(victim, slots)
        self._restore(plan.kept)
        for directory in (self._capacity, self._identity, self._source):
            if directory is not None:
                directory.sync()
        return PruneResult(removed=len(plan.victims), retained=len(plan.kept))

    # --- what interrupted writers left

    def _clear_lock_debris(self, machine: str | None) -> None:
        clear_stale_marker(self._source, machine)
        for name in [name for name in self._source.names() if _ASIDE.fullmatch(name)]:
            facts = self._source.lstat(name)
            if facts is not None and time.time() - facts.st_mtime > STALE_SECONDS:
                self._source.unlink(name)

    def _clear_temporaries(self) -> None:
        for directory in (self._source, self._capacity, self._identity):
            if directory is not None:
                for name in [name for name in directory.names() if TEMPORARY.search(name)]:
                    directory.unlink(name)

    def _clear_identity_entries(self) -> None:
        """Entries that lead to no record: their file is gone, or they hold something else than a record name."""
        if self._identity is None:
            return
        entries = [name for name in self._identity.names() if _IDENTITY_FILE.fullmatch(name)]
        if len(entries) > 2 * self._ceiling:
            raise read_error(StoreErrorReason.READ_LIMIT)
        for entry in entries:
            record = parse_index_entry(read_entry(self._identity, entry) or "")
            if record is None or not self._source.exists(record):
                self._identity.unlink(entry)

    def _clear_orphan_slots(self) -> dict[str, list[int]]:
        """Remove slots that no record has; those of each record that remain, the one that a search finds first in front."""
        if self._capacity is None:
            return {}
        found: dict[str, list[int]] = {}
        records = {name for names in self._files.values() for name in names}
        for number, name in CapacityIndex(self._capacity, self._ceiling).slots().items():
            if name in records:
                found.setdefault(name, []).append(number)
            else:
                self._capacity.unlink(slot_file(number))
        for name, numbers in found.items():
            start = first_slot(name, self._ceiling)
            numbers.sort(key=lambda number: ((number - start) % self._ceiling, number))
            for extra in numbers[1:]:
                self._capacity.unlink(slot_file(extra))
        return found

    # --- the history

    def _read_history(self) -> list[Lookup]:
        history: list[Lookup] = []
        reader = SourceReader(self._source, self._prune.source_id, self._ceiling, between=self._lock.refresh)
        for name, snapshot in reader.records():
            self._files.setdefault(reader.digest(snapshot), []).append(name)
            history.append(lookup_of(snapshot))
        return history

    def _remove(self, victim: Lookup, slots: dict[str, list[int]]) -> None:
        """The record first: an entry without a record is cleared by the next prune, a record without its slot would not be counted."""
        names = self._files[str(victim.snapshot_digest)]
        for name in names:
            self._source.unlink(name)
        if self._identity is not None:
            entry = f"{identity_digest(victim)}.txt"
            # Another envelope of the same identity may be the one that the entry leads to.
            if parse_index_entry(read_entry(self._identity, entry) or "") in names:
                self._identity.unlink(entry)
        for name in names:
            for number in slots.pop(name, ()):
                if self._capacity is not None:
                    self._capacity.unlink(slot_file(number))

    # --- what remains

    def _restore(self, kept: tuple[Lookup, ...]) -> None:
        """Index entries that records of this generation lack, and the mark of initialisation where the ceiling is on record."""
        ordered = sorted(kept, key=newest_first, reverse=True)
        retained = [(item, name) for item in ordered for name in self._files[str(item.snapshot_digest)]]
        records = [(item, name) for item, name in retained if ENVELOPE_RECORD.fullmatch(name)]
        unmarked = self._capacity is not None and self._lacks_mark(self._capacity)
        if not records and not unmarked:
            return
        if self._capacity is None:
            # Only put makes it: it knows which ceiling the source shall have.
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        with contextlib.ExitStack() as stack, staging() as held:
            indexes = SourceIndexes(self._source, self._ceiling, held, stack)
            # Not by search: one that ends at a slot freed just now would give a record a second one.
            counted = set(indexes.slots.slots().values())
            for item, name in records:
                if name not in counted:
                    indexes.plan_slot(name)
                indexes.plan_identity(identity_digest(item), name)
            if unmarked:
                indexes.plan_initialization([name for _, name in retained if name not in counted])
            held.sync()
            held.run_steps()
            indexes.sync()

    def _lacks_mark(self, capacity: OpenDirectory) -> bool:
        """Whether the mark is all that an otherwise sound index lacks."""
        ceiling = read_entry(capacity, CEILING_FILE)
        return not capacity.exists(INITIALIZED_FILE) and ceiling is not None and js_trim(ceiling) == str(self._ceiling)
