"""The two indexes of a source as a writer sees them: which entries a record needs, staged and linked.

Owns how entries are planned: the ceiling, the slots of records older than the index, one slot and one identity entry a record. The order in
which things get their names is the caller's. Format: "Identity index" and "Capacity index" in section 5 of the snapshot formats.
Blocking; under the source's lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Generic, TypeVar

from forage._files import OpenDirectory, Temporary, make_directory
from forage.errors import StoreErrorReason
from forage.snapshots.reading import CAPACITY, IDENTITY, corrupt, open_real, read_error
from forage.snapshots.records import parse_index_entry
from forage.snapshots.slots import CEILING_FILE, INITIALIZED_FILE, CapacityIndex, read_entry, slot_file
from forage.snapshots.staging import Staging

__all__ = ["SourceIndexes", "make_and_open"]

Owner = TypeVar("Owner")


def make_and_open(name: str, parent: OpenDirectory, stack: contextlib.ExitStack) -> tuple[OpenDirectory, bool]:
    """A directory of the store, and whether it was made; closed with ``stack``. SnapshotCorruptError when the name is something else's."""
    made = make_directory(parent, name)
    found = open_real(name, inside=parent)
    if found is None:
        raise read_error(StoreErrorReason.READ_RACED)
    return stack.enter_context(found), made


class SourceIndexes(Generic[Owner]):
    """The indexes of one source directory, made when first needed."""

    def __init__(self, source: OpenDirectory, ceiling: int, staging: Staging[Owner], stack: contextlib.ExitStack) -> None:
        self._source = source
        self._ceiling = ceiling
        self._staging = staging
        self._stack = stack
        self._identity: OpenDirectory | None = None
        self._identity_is_new = False
        # Made just now, under the lock: there is nothing in it to be read.
        self.capacity, self.is_new = make_and_open(CAPACITY, source, stack)
        self.slots = CapacityIndex(self.capacity, ceiling, empty=self.is_new)

    @property
    def identity(self) -> OpenDirectory:
        """The identity index."""
        if self._identity is None:
            self._identity, self._identity_is_new = make_and_open(IDENTITY, self._source, self._stack)
        return self._identity

    def sync(self) -> None:
        """Make the names of the entries durable."""
        self.capacity.sync()
        if self._identity is not None:
            self._identity.sync()

    def plan_ceiling(self) -> None:
        """Put the ceiling on record. SnapshotStoreError (ceiling-changed) when another one is."""
        if not self.is_new and self.slots.ceiling_is_published():
            return
        ceiling = self._staging.write_text(self.capacity, CEILING_FILE, str(self._ceiling))

        def link() -> None:
            if not ceiling.link(CEILING_FILE):
                self.slots.ceiling_is_published()

        self._staging.then(None, link)

    def plan_initialization(self, names: list[str]) -> None:
        """Slots for records that are older than the index, then the mark that they have them."""
        for name in names:
            self.plan_slot(name)
        mark = self._staging.write_text(self.capacity, INITIALIZED_FILE, "1")
        self._staging.then(None, lambda: _link(mark, INITIALIZED_FILE))

    def plan_slot(self, name: str, owner: Owner | None = None, linked: Callable[[int | None], None] | None = None) -> None:
        """A slot for this record, unless it has one. ``linked`` is told which it got. HistoryFullError when none is free."""
        number = self.slots.reserve(name)
        if number is None:
            return
        slot = self._staging.write_text(self.capacity, slot_file(number), name)

        def link() -> None:
            wanted: int | None = number
            while wanted is not None and not slot.link(slot_file(wanted)):
                wanted = self.slots.reserve_again(name, wanted)
            if linked is not None:
                linked(wanted)

        self._staging.then(owner, link)

    def plan_identity(self, identity: str, name: str, owner: Owner | None = None) -> None:
        """An entry that leads from the identity to this record; an entry that is there stays, whatever envelope it names."""
        directory, file = self.identity, f"{identity}.txt"
        there = not self._identity_is_new and directory.exists(file)
        entry = None if there else self._staging.write_text(directory, file, name)

        def link() -> None:
            if entry is not None and entry.link(file):
                return
            if parse_index_entry(read_entry(directory, file) or "") is None:
                raise corrupt(StoreErrorReason.INVALID_IDENTITY_INDEX, "an identity entry names no record")

        self._staging.then(owner, link)


def _link(temporary: Temporary, name: str) -> None:
    temporary.link(name)  # a taken name is fine: somebody said the same
