"""The crawler's own records below ``.crawl/``: verified, flaky and asked-for documents as JSON lines, and the files of renders.

Rows are appended and never changed; the latest row of a key decides. A line that a crash cut short is completed before the next one, and
skipped by every reader. Owns the rows and their reading, not when one is due. Blocking: call it in a worker thread.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from forage._codec import JsonError, dump_compact, dump_pretty, load_json
from forage._files import FileReadError
from forage.mirror.cache import CacheRootError, writing
from forage.mirror.canonical import escape_lone
from forage.mirror.folders import open_file, open_folder, read_below, replace_file
from forage.mirror.keys import key_hash
from forage.mirror.results import DocumentResult
from forage.snapshots.javascript import js_utf8

__all__ = ["Ledgers", "har_name", "verified_rows"]

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_NAME: Final = 200
_LONGEST_LINE: Final = 64 << 20  # bytes; a flaky row names every URL that was left
_MOST_FINDINGS: Final = 256 << 20
_FOLDER: Final = ".crawl"
_HAR: Final = ".crawl/har"
_FINDINGS: Final = ".crawl/findings"


def verified_rows(lines: Iterable[str], rule_version: int) -> dict[str, Mapping[str, Any]]:
    """Stamps in force by key: the latest row of the key is no tombstone and was made under this very rule version."""
    latest: dict[str, Mapping[str, Any]] = {}
    for row in _rows(lines):
        key = row.get("key")
        if isinstance(key, str):
            latest[key] = row
    return {key: row for key, row in latest.items() if row.get("verified") is not False and _is_version(row, rule_version)}


def _is_version(row: Mapping[str, Any], rule_version: int) -> bool:
    version = row.get("ruleVersion")
    return isinstance(version, int | float) and not isinstance(version, bool) and version == rule_version


def _rows(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    for line in lines:
        with contextlib.suppress(JsonError):
            row = load_json(line)
            if isinstance(row, dict):
                yield row


def har_name(name: str) -> str:
    """File name of a render's record."""
    return _UNSAFE.sub("_", name)[:_LONGEST_NAME] + ".json"


class Ledgers:
    """The records of the root at ``path``. Nothing is kept in memory."""

    def __init__(self, path: Path) -> None:
        self._root = path

    def prepare(self, *, har: bool = False) -> None:
        """Make the folder. Raises CacheRootError when that is not possible."""
        with writing():
            open_folder(self._root, _HAR if har else _FOLDER, make=True).close()

    def verified(self, rule_version: int) -> dict[str, Mapping[str, Any]]:
        """Stamps in force, by key."""
        return verified_rows(self._lines("verified.jsonl"), rule_version)

    def flaky(self) -> dict[str, Mapping[str, Any]]:
        """The latest row of each document that did not verify."""
        return self._latest("flaky.jsonl")

    def asked(self) -> dict[str, Mapping[str, Any]]:
        """The latest row of each document that a run was given; with ``status`` where that run ended with it before it was rendered."""
        return self._latest("asked.jsonl")

    def note_asked(self, keys: Iterable[str], at: str) -> None:
        """Keep which documents a run works on. Only ``status`` reads this: that it cannot be written is no reason to stop."""
        with contextlib.suppress(CacheRootError):
            known = {key for key, row in self.asked().items() if "status" not in row}
            self._append("asked.jsonl", [{"key": key, "at": at} for key in keys if key not in known])

    def note_unfinished(self, results: Iterable[DocumentResult], at: str) -> None:
        """Keep how a run ended with documents that it did not come to render; as `note_asked`."""
        with contextlib.suppress(CacheRootError):
            self._append("asked.jsonl", [{"key": r.key, "at": at, "status": r.status.value, **r.members} for r in results])

    def append(self, name: str, row: Mapping[str, Any]) -> None:
        """Append a row to ``verified.jsonl`` or ``flaky.jsonl``. Raises CacheRootError when it cannot be written."""
        self._append(name, [row])

    def _append(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        data = b"".join(map(_line, rows))
        if not data:
            return
        with writing():
            with open_folder(self._root, _FOLDER) as folder:
                fd = open_file(folder, name, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            try:
                size = os.fstat(fd).st_size
                torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
                _write_whole(fd, b"\n" + data if torn else data)
            finally:
                os.close(fd)

    def write_har(self, name: str, document: Mapping[str, Any]) -> None:
        """Write the record of a render; that it cannot be written is no reason to stop."""
        self._keep(_HAR, har_name(name), document)

    def write_findings(self, key: str, document: Mapping[str, Any]) -> None:
        """Keep why a document did not verify, for ``explain``; that it cannot be written is no reason to stop."""
        self._keep(_FINDINGS, f"{key_hash(key)}.json", document)

    def forget_findings(self, key: str) -> None:
        """Drop what was kept about a document that verified since."""
        with contextlib.suppress(OSError), open_folder(self._root, _FINDINGS) as folder:
            folder.unlink(f"{key_hash(key)}.json")

    def read_findings(self, key: str) -> Mapping[str, Any] | None:
        """What was kept about a document, None when there is nothing."""
        with contextlib.suppress(FileReadError, JsonError):
            data = read_below(self._root, f"{_FINDINGS}/{key_hash(key)}.json", _MOST_FINDINGS)
            document = load_json((data or b"").decode("utf-8", "replace"))
            if isinstance(document, dict):
                return document
        return None

    def _keep(self, folder: str, name: str, document: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError), open_folder(self._root, folder, make=True) as opened:
            replace_file(opened, name, js_utf8(dump_pretty(document)))

    def _latest(self, name: str) -> dict[str, Mapping[str, Any]]:
        return {row["key"]: row for row in _rows(self._lines(name)) if isinstance(row.get("key"), str)}

    def _lines(self, name: str) -> Iterator[str]:
        try:
            with open_folder(self._root, _FOLDER) as folder:
                fd = open_file(folder, name, os.O_RDONLY)
        except FileNotFoundError:
            return
        except OSError as exc:
            raise CacheRootError("the crawler's records cannot be read") from exc
        with os.fdopen(fd, "rb") as file:
            for line in _bounded_lines(file):
                yield line.decode("utf-8", "replace").rstrip("\n")


def _bounded_lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines of a file; one that is longer than any that was ever written is no row and is never in memory as a whole."""
    while line := file.readline(_LONGEST_LINE):
        if len(line) < _LONGEST_LINE or line.endswith(b"\n"):
            yield line
            continue
        while len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
            line = file.readline(_LONGEST_LINE)


def _line(row: Mapping[str, Any]) -> bytes:
    return escape_lone(dump_compact(row)).encode() + b"\n"


def _write_whole(fd: int, data: bytes) -> None:
    if os.write(fd, data) != len(data):
        # Out of space in the middle of a line: readers skip it, and the next append completes it.
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
