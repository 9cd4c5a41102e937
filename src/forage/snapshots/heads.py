"""Which records may be the newest of a source, told by their names and remembered while the directory stands still.

Owns no record: what is remembered are names, and the caller reads and verifies the record each time. Format: "latest" in section 5 of the
snapshot formats.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import attrs

from forage._files import OpenDirectory
from forage.snapshots.records import iso_time_of

__all__ = ["RememberedHeads", "head_candidates"]


def head_candidates(names: list[str]) -> tuple[str, ...] | None:
    """Names that stand for the greatest time; None when some name tells no time, so that all records must be read."""
    best: tuple[str, ...] = ()
    greatest = ""
    for name in names:
        at = iso_time_of(name)
        if at is None:
            return None
        if at > greatest:
            best, greatest = (name,), at
        elif at == greatest:
            best += (name,)
    return best


@attrs.frozen
class _Seen:
    facts: tuple[int, ...]
    since: float
    candidates: tuple[str, ...] | None


class RememberedHeads:
    """Which records may be the newest of a source, kept as long as its directory stands still.

    A directory is the same when its device, inode and times are. Times are only as fine as the file system's clock, so a listing is
    trusted only when the directory had stood still for longer than that before it was made, by this process's own clock. Only
    names are remembered: the record itself is read and verified each time.
    """

    _FINE_SECONDS = 0.05
    _COARSE_SECONDS = 2.5
    _MOST = 4096

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._lock = threading.Lock()

    def candidates(self, key: str, directory: OpenDirectory, names: Callable[[], list[str]]) -> tuple[str, ...] | None:
        """What `head_candidates` gives for the names, without listing them where that is known."""
        before = self._facts(directory)
        now = time.monotonic()
        with self._lock:
            seen = self._seen.get(key)
        still = seen is not None and seen.facts == before
        if still and seen is not None and seen.candidates is not None:
            return seen.candidates
        found = head_candidates(names())
        since = seen.since if still and seen is not None else now
        settled = now - since > self._granularity(before) and self._facts(directory) == before
        self._remember(key, _Seen(before, since, found if settled else None))
        return found

    def _remember(self, key: str, seen: _Seen) -> None:
        with self._lock:
            self._seen.pop(key, None)
            self._seen[key] = seen
            if len(self._seen) > self._MOST:
                del self._seen[next(iter(self._seen))]

    @staticmethod
    def _facts(directory: OpenDirectory) -> tuple[int, ...]:
        facts = directory.facts()
        return facts.st_dev, facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns

    def _granularity(self, facts: tuple[int, ...]) -> float:
        # Whole seconds: a file system that keeps no finer times (or, one time in a billion, a coincidence).
        return self._COARSE_SECONDS if facts[2] % 1_000_000_000 == 0 else self._FINE_SECONDS
