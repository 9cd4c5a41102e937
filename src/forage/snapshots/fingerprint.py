"""The fingerprint of a source directory: everything about it but the content of its records.

Owns the look at the directory and what ends it: another state than writers leave, limits, or a change meanwhile. Format: "Fingerprint"
and "Value" in section 6 of the snapshot formats. Blocking.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

from forage._codec import utf16_key
from forage._files import FileFault, FileReadError, OpenDirectory, read_regular
from forage.snapshots.javascript import js_trim
from forage.snapshots.reading import CAPACITY, IDENTITY
from forage.snapshots.records import ENVELOPE_RECORD, RELEASED_RECORD, source_directory
from forage.snapshots.slots import CEILING_FILE, INITIALIZED_FILE, SLOT_FILE

__all__ = ["EndedError", "HeadKind", "Look", "end"]

_IDENTITY_FILE = re.compile(r"[0-9a-f]{64}\.txt")

# A source directory, besides its records, holds two indexes; one more name is enough to see that there is something else.
_OTHER_NAMES = 3

Json = dict[str, Any]


class HeadKind(StrEnum):
    """The answer of read_verified_head."""

    FOUND = "found"
    MISSING = "missing"
    UNAVAILABLE = "unavailable"
    """Being written, or not in the state that writers leave; asking again, or a prune, may help."""
    CORRUPT = "corrupt"
    UNSUPPORTED = "unsupported"
    """A store, source or question for which there is no witness."""


class EndedError(Exception):
    """The answer is known before the end."""

    def __init__(self, kind: HeadKind) -> None:
        self.kind = kind
        super().__init__(kind.value)


def end(kind: HeadKind) -> NoReturn:
    raise EndedError(kind)


def _metadata(facts: os.stat_result) -> Json:
    return {
        "dev": str(facts.st_dev),
        "ino": str(facts.st_ino),
        "size": str(facts.st_size),
        "ctimeNs": str(facts.st_ctime_ns),
        "mtimeNs": str(facts.st_mtime_ns),
    }


class Look:
    """One look at a source directory, with the budget of index bytes that all looks of a question share."""

    def __init__(self, root: Path, source_id: str, ceiling: int, limits: tuple[int, int, int]) -> None:
        self._root = root
        self._path = root / source_directory(source_id)
        self._ceiling = ceiling
        self._entries, self._index_bytes, self._body_bytes = limits

    def fingerprint(self) -> Json:
        """Everything about the directory but the records' content; ends when it is not as writers leave it, or changes meanwhile."""
        try:
            found = self._once()
            if self._facts_of(found) != self._facts_again(found):
                end(HeadKind.UNAVAILABLE)
        except OSError:
            end(HeadKind.UNAVAILABLE)
        return found

    def _directory(self, path: Path) -> Json:
        try:
            facts = path.lstat()
        except FileNotFoundError:
            end(HeadKind.MISSING)
        if not stat.S_ISDIR(facts.st_mode):
            end(HeadKind.CORRUPT)
        return _metadata(facts)

    def _once(self) -> Json:
        root, source = self._directory(self._root), self._directory(self._path)
        with OpenDirectory(self._path) as directory:
            records = self._records(directory)
            capacity_facts, capacity = self._index(directory, CAPACITY, _is_capacity_name)
            identity_facts, identity = self._index(directory, IDENTITY, lambda name: _IDENTITY_FILE.fullmatch(name) is not None)
        self._check_capacity(capacity, {name for name, _ in records})
        self._check_entries([text for _, _, text in identity], {name for name, _ in records})
        return {
            "root": root,
            "source": source,
            "records": records,
            "capacity": capacity,
            "identity": identity,
            "capacityDirectory": capacity_facts,
            "identityDirectory": identity_facts,
        }

    def _records(self, directory: OpenDirectory) -> list[list[Any]]:
        names = self._names(directory, self._entries + _OTHER_NAMES)
        records = [name for name in names if name.endswith(".json")]
        if any(RELEASED_RECORD.fullmatch(name) for name in records):
            end(HeadKind.UNSUPPORTED)
        if not all(ENVELOPE_RECORD.fullmatch(name) for name in records):
            end(HeadKind.CORRUPT)
        others = set(names) - set(records)
        if not records or len(records) > self._entries or others - {CAPACITY, IDENTITY}:
            end(HeadKind.UNAVAILABLE)
        found: list[list[Any]] = [[name, self._regular(directory, name)] for name in records]
        if sum(int(record[1]["size"]) for record in found) > self._body_bytes:
            end(HeadKind.UNAVAILABLE)
        return found

    def _names(self, directory: OpenDirectory, most: int) -> list[str]:
        names: list[str] = []
        for name in directory.names():
            names.append(name)
            if len(names) > most:
                end(HeadKind.UNAVAILABLE)
        return sorted(names, key=utf16_key)

    @staticmethod
    def _regular(directory: OpenDirectory, name: str) -> Json:
        facts = directory.lstat(name)
        if facts is None:
            end(HeadKind.UNAVAILABLE)
        if not stat.S_ISREG(facts.st_mode):
            end(HeadKind.CORRUPT)
        return _metadata(facts)

    def _index(self, source: OpenDirectory, name: str, is_legal: Callable[[str], bool]) -> tuple[Json, list[list[Any]]]:
        facts = source.lstat(name)
        if facts is None:
            end(HeadKind.UNAVAILABLE)
        if not stat.S_ISDIR(facts.st_mode):
            end(HeadKind.CORRUPT)
        with OpenDirectory(name, inside=source) as directory:
            names = self._names(directory, self._entries + _OTHER_NAMES)
            if not all(map(is_legal, names)):
                end(HeadKind.UNAVAILABLE)
            entries = [[entry, self._regular(directory, entry), self._text(directory, entry)] for entry in names]
        return _metadata(facts), entries

    def _text(self, directory: OpenDirectory, name: str) -> str:
        try:
            data = read_regular(directory, name, self._index_bytes)
        except FileReadError as exc:
            end(HeadKind.CORRUPT if exc.fault is FileFault.NOT_REGULAR else HeadKind.UNAVAILABLE)
        self._index_bytes -= len(data)
        return data.decode("utf-8", "replace")

    def _check_capacity(self, capacity: list[list[Any]], records: set[str]) -> None:
        texts = {name: js_trim(text) for name, _, text in capacity}
        if texts.pop(CEILING_FILE, None) != str(self._ceiling) or texts.pop(INITIALIZED_FILE, None) != "1":
            end(HeadKind.UNSUPPORTED)
        if any(int(name.removesuffix(".txt")) >= self._ceiling for name in texts):
            end(HeadKind.UNAVAILABLE)
        self._check_entries(list(texts.values()), records)

    @staticmethod
    def _check_entries(texts: list[str], records: set[str]) -> None:
        """One entry a record."""
        if len(texts) != len(records) or {js_trim(text) for text in texts} != records:
            end(HeadKind.UNAVAILABLE)

    # Between the two, everything is looked at again: a writer that was at work in between shows in some time or name.

    @staticmethod
    def _facts_of(found: Json) -> list[Any]:
        indexes = [[entry[:2] for entry in found[name]] for name in ("capacity", "identity")]
        return [found[name] for name in ("root", "source", "records", "capacityDirectory", "identityDirectory")] + indexes

    def _facts_again(self, found: Json) -> list[Any]:
        root, source = self._directory(self._root), self._directory(self._path)
        indexes: list[Any] = []
        directories: list[Json] = []
        with OpenDirectory(self._path) as directory:
            records = [[name, self._regular(directory, name)] for name, _ in found["records"]]
            for name, member in ((CAPACITY, "capacity"), (IDENTITY, "identity")):
                with OpenDirectory(name, inside=directory) as index:
                    directories.append(_metadata(index.facts()))
                    indexes.append([[entry, self._regular(index, entry)] for entry, _, _ in found[member]])
        return [root, source, records, *directories, *indexes]


def _is_capacity_name(name: str) -> bool:
    return name in {CEILING_FILE, INITIALIZED_FILE} or SLOT_FILE.fullmatch(name) is not None
