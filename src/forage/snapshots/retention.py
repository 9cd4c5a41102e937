"""Which records of a history a prune keeps.

Owns the check of the request and the choice; the store reads the history before and removes the files after. Format: "prune" in section 5
of the snapshot formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from forage.errors import InvalidSnapshotError
from forage.snapshots.records import newest_first
from forage.snapshots.reference import Lookup, validate_lookup

__all__ = ["RetentionPlan", "plan_retention", "validate_prune"]

_MAX_SAFE_INTEGER = 2**53 - 1


@attrs.frozen(kw_only=True)
class RetentionPlan:
    """The snapshots of a history, newest first, in two parts. Each has its digest."""

    kept: tuple[Lookup, ...]
    victims: tuple[Lookup, ...]


def validate_prune(source_id: str, keep_last: int, keep: Sequence[Lookup] = ()) -> None:
    """Raise InvalidSnapshotError for a request that no store may act on; to be asked before any file is touched.

    ``keep_last`` is 0 to 2^53-1; every entry of ``keep`` must be one that find_exact would take.
    """
    request: Any = (source_id, keep_last, keep)  # types are looked at: what is removed cannot be brought back
    source, last, entries = request
    if not isinstance(source, str) or not source:
        raise InvalidSnapshotError("source_id: takes text that is not empty")
    if isinstance(last, bool) or not isinstance(last, int) or not 0 <= last <= _MAX_SAFE_INTEGER:
        raise InvalidSnapshotError(f"keep_last: takes an integer of 0 to {_MAX_SAFE_INTEGER}")
    if not isinstance(entries, list | tuple):
        raise InvalidSnapshotError("keep: takes a list of lookups")
    for entry in entries:
        if not isinstance(entry, Lookup):
            raise InvalidSnapshotError("keep: takes a list of lookups")
        validate_lookup(entry)


def plan_retention(history: Iterable[Lookup], *, keep_last: int, keep: Sequence[Lookup] = ()) -> RetentionPlan:
    """Keep the head whatever is asked, the newest ``keep_last``, and what ``keep`` names; the rest are victims.

    Several records of one snapshot (equal digest) count once. A ``keep`` entry without digest keeps every snapshot of its identity.
    """
    distinct = {item.snapshot_digest: item for item in history}
    ordered = sorted(distinct.values(), key=newest_first, reverse=True)
    named = set(keep)
    kept: list[Lookup] = []
    victims: list[Lookup] = []
    for position, item in enumerate(ordered):
        spared = position < max(keep_last, 1) or item in named or attrs.evolve(item, snapshot_digest=None) in named
        (kept if spared else victims).append(item)
    return RetentionPlan(kept=tuple(kept), victims=tuple(victims))
