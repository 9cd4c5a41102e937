"""A store that offers one snapshot, or that fails: what a conditional fetch asks."""

from __future__ import annotations

import trio

from forage.errors import SnapshotStoreError, StoreErrorCode
from forage.snapshots import Snapshot

__all__ = ["PriorStore"]


class PriorStore:
    """A store that holds at most one snapshot, or that fails."""

    def __init__(self, prior: Snapshot | None, *, fails: bool = False) -> None:
        self._prior = prior
        self._fails = fails

    async def latest(self, source_id: str) -> Snapshot | None:
        await trio.lowlevel.checkpoint()
        if self._fails:
            raise SnapshotStoreError(StoreErrorCode.SNAPSHOT_STORE_ERROR, None, "store down")
        return self._prior if self._prior is not None and self._prior.source_id == source_id else None

    async def put(self, snapshot: Snapshot) -> None:
        raise AssertionError("a fetch writes nothing")

    async def get(self, source_id: str, body_hash: str) -> Snapshot | None:
        raise AssertionError("a fetch asks for the latest only")

    async def list(self, source_id: str) -> tuple[Snapshot, ...]:
        raise AssertionError("a fetch asks for the latest only")
