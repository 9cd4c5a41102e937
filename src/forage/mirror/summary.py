"""What a bulk pass did: entries, failures and their counts (pure)."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from forage.mirror.keys import key_hash

__all__ = ["CaptureEntry", "CaptureFailure", "CaptureReport", "CaptureSummary", "OnEntry"]


@attrs.frozen(kw_only=True)
class CaptureEntry:
    """What a pass did with one key. ``action`` is skipped, fetched or failed; ``digest`` is None for a malformed key."""

    key: str
    digest: str | None
    status: str
    action: str
    flag: str | None


@attrs.frozen(kw_only=True)
class CaptureFailure:
    """A child that brought nothing; a later run asks again."""

    key: str
    error: str


@attrs.frozen(kw_only=True)
class CaptureSummary:
    """What a pass did. ``fetched`` counts committed entries of any status."""

    key: str
    entries: tuple[CaptureEntry, ...] = ()
    failures: tuple[CaptureFailure, ...] = ()

    @property
    def fetched(self) -> int:
        return sum(entry.action == "fetched" for entry in self.entries)

    @property
    def skipped(self) -> int:
        return sum(entry.action == "skipped" for entry in self.entries)


OnEntry = Callable[[CaptureEntry], None]


class CaptureReport:
    """The summary of a pass while it runs."""

    def __init__(self, key: str, on_entry: OnEntry | None) -> None:
        self._key = key
        self._on_entry = on_entry
        self._entries: list[CaptureEntry] = []
        self._failures: list[CaptureFailure] = []

    def add(self, key: str, status: str, action: str, flag: str | None, *, digest: str | None = "") -> None:
        entry = CaptureEntry(key=key, digest=key_hash(key) if digest == "" else digest, status=status, action=action, flag=flag)
        self._entries.append(entry)
        if self._on_entry is not None:
            self._on_entry(entry)

    def fail(self, key: str, flag: str | None, error: str, *, digest: str | None) -> None:
        self._failures.append(CaptureFailure(key=key, error=error))
        self.add(key, "failed", "failed", flag, digest=digest)

    def summary(self) -> CaptureSummary:
        return CaptureSummary(key=self._key, entries=tuple(self._entries), failures=tuple(self._failures))
