"""The suite for snapshot stores, run on each implementation, on a store that has the required part alone, and on broken ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from forage.snapshots import FilesystemSnapshotStore, MemorySnapshotStore, Snapshot, SnapshotStore
from forage.testing import STORE_CHECKS, StoreCheck, check_snapshot_store


class RequiredPartOnly:
    """What a user's store has at least."""

    def __init__(self) -> None:
        self._store = MemorySnapshotStore()

    async def put(self, snapshot: Snapshot) -> None:
        await self._store.put(snapshot)

    async def latest(self, source_id: str) -> Snapshot | None:
        return await self._store.latest(source_id)

    async def get(self, source_id: str, body_hash: str) -> Snapshot | None:
        return await self._store.get(source_id, body_hash)

    async def list(self, source_id: str) -> tuple[Snapshot, ...]:
        return await self._store.list(source_id)


class ForgetsSources(RequiredPartOnly):
    """Broken: one history for all."""

    async def list(self, source_id: str) -> tuple[Snapshot, ...]:
        return await self._store.list("source")


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", ["memory", "filesystem", "required part only"])
async def test_store_keeps_the_rule(kind: str, check: StoreCheck, tmp_path: Path) -> None:
    makers: dict[str, Callable[[], SnapshotStore]] = {
        "memory": MemorySnapshotStore,
        "filesystem": lambda: FilesystemSnapshotStore(tmp_path / "store", max_history_files=40),
        "required part only": RequiredPartOnly,
    }
    await check(makers[kind]())


async def test_whole_suite_takes_a_maker(tmp_path: Path) -> None:
    roots = (tmp_path / str(number) for number in itertools.count())
    await check_snapshot_store(lambda: FilesystemSnapshotStore(next(roots)))


async def test_suite_names_the_broken_rule() -> None:
    with pytest.raises(AssertionError, match=r"sources_are_apart|what_is_put_is_returned"):
        await check_snapshot_store(ForgetsSources)
