"""The capacity index: one slot file a record, so that writers without a common process never exceed the ceiling.

Owns how the ceiling, the mark of initialisation and the slots are read and chosen. It writes nothing: publication and pruning do, under the
source's lock. Format: "Capacity index" in section 5 of the snapshot formats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forage._files import FileFault, FileReadError, OpenDirectory, read_regular
from forage.errors import HistoryFullError, SnapshotStoreError, StoreErrorCode, StoreErrorReason
from forage.snapshots.javascript import js_trim
from forage.snapshots.reading import read_error, store_error
from forage.snapshots.records import MAX_INDEX_ENTRY_BYTES, first_slot

__all__ = ["CEILING_FILE", "INITIALIZED_FILE", "SLOT_FILE", "CapacityIndex", "read_entry", "slot_file"]

CEILING_FILE = "max-history-files.txt"
INITIALIZED_FILE = "initialized.txt"
SLOT_FILE = re.compile(r"(0|[1-9][0-9]*)\.txt")
"""Names of slot files (use fullmatch); a number with leading zeros is none."""


def slot_file(number: int) -> str:
    """The file of a slot."""
    return f"{number}.txt"


def read_entry(index: OpenDirectory, name: str) -> str | None:
    """The text of an index file, untrimmed; None when absent. One that is too long reads as a text that no entry has."""
    try:
        return read_regular(index, name, MAX_INDEX_ENTRY_BYTES).decode("utf-8", "replace")
    except FileReadError as exc:
        if exc.fault is FileFault.MISSING:
            return None
        if exc.fault is FileFault.TOO_LARGE:
            return "\n"
        raise store_error(exc.fault) from exc


class CapacityIndex:
    """The slots of one source, read as they are needed; choices made here count as taken."""

    def __init__(self, directory: OpenDirectory, ceiling: int, *, empty: bool = False) -> None:
        """``empty``: nothing is looked for on disk until a publication finds that somebody else was there."""
        self._directory = directory
        self._ceiling = ceiling
        self._empty = empty
        self._texts: dict[int, str] = {}

    def ceiling_is_published(self) -> bool:
        """Whether the ceiling is on record. SnapshotStoreError (ceiling-changed) when it is another: slots depend on it."""
        text = read_entry(self._directory, CEILING_FILE)
        if text is None:
            return False
        if js_trim(text) != str(self._ceiling):
            raise SnapshotStoreError(
                StoreErrorCode.SNAPSHOT_STORE_ERROR,
                StoreErrorReason.CEILING_CHANGED,
                "max_history_files cannot change once a source has records",
            )
        return True

    def is_initialized(self) -> bool:
        """Whether records that were there before the index have slots."""
        text = read_entry(self._directory, INITIALIZED_FILE)
        return text is not None and js_trim(text) == "1"

    def _text(self, number: int) -> str | None:
        known = self._texts.get(number)
        if known is None and not self._empty:
            known = read_entry(self._directory, slot_file(number))
            if known is not None:
                self._texts[number] = known
        return known

    def _probe(self, name: str) -> Iterator[tuple[int, str | None]]:
        """Slots in the order of the search for ``name``, with their texts, up to the first free one."""
        start = first_slot(name, self._ceiling)
        for step in range(self._ceiling):
            number = (start + step) % self._ceiling
            text = self._text(number)
            yield number, text
            if text is None:
                return

    def reserve(self, name: str) -> int | None:
        """Choose the slot to publish for a record; None when it has one. HistoryFullError when all are taken."""
        for number, text in self._probe(name):
            if text == name:
                return None
            if text is None:
                self._texts[number] = name
                return number
        raise HistoryFullError(self._ceiling)

    def reserve_again(self, name: str, lost: int) -> int | None:
        """As `reserve`, after another writer took the slot that was chosen."""
        del self._texts[lost]
        self._empty = False
        return self.reserve(name)

    def slot_of(self, name: str) -> int | None:
        """The slot that a record has; found by search, or by looking at all: a slot freed on the way ends a search."""
        found = next((number for number, text in self._probe(name) if text == name), None)
        if found is not None:
            return found
        planned = self._texts
        every = self.slots()
        self._texts = {**every, **planned}
        return next((number for number, text in every.items() if text == name), None)

    def slots(self) -> dict[int, str]:
        """All slots by number, texts untrimmed. SnapshotStoreError (read-limit) when there are more than the ceiling allows."""
        found: dict[int, str] = {}
        try:
            numbers = [int(match[1]) for name in self._directory.names() if (match := SLOT_FILE.fullmatch(name))]
        except (OSError, ValueError) as exc:
            raise read_error(StoreErrorReason.READ_FAILED) from exc
        if len(numbers) > self._ceiling:
            raise read_error(StoreErrorReason.READ_LIMIT)
        for number in numbers:
            text = read_entry(self._directory, slot_file(number))
            if text is not None:
                found[number] = text
        self._texts = dict(found)
        return found

    def give(self, number: int, name: str | None) -> None:
        """The slot now belongs to this record, or to none."""
        if name is None:
            self._texts.pop(number, None)
        else:
            self._texts[number] = name
