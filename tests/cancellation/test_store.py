"""The filesystem store cancelled at every scheduler step: a write has happened whole or not at all, and nothing stays behind."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import trio
import trio.testing

from forage.snapshots import FilesystemSnapshotStore, HeadKind, lookup_of, source_directory
from forage.testing import sample_snapshot
from tests.support.stepping import cancel_at_every_step, open_descriptors
from tests.support.trees import paths

SOURCE = source_directory("source")


def leftovers(root: Path) -> list[str]:
    return [name for name in paths(root) if name.endswith((".tmp", ".aside", ".lock", ".break"))]


async def test_cancelled_puts_happen_whole_or_not_at_all(tmp_path: Path) -> None:
    roots = (tmp_path / str(number) for number in itertools.count())

    async def operation() -> None:
        root = next(roots)
        store = FilesystemSnapshotStore(root, max_history_files=40)
        try:
            async with trio.open_nursery() as nursery:
                for number in range(4):
                    nursery.start_soon(store.put, sample_snapshot(number))
                nursery.start_soon(store.put, sample_snapshot(source_id="other"))
        finally:
            assert not leftovers(root)
            with trio.CancelScope(shield=True):
                history = await store.list("source")
                kinds = HeadKind.FOUND, HeadKind.MISSING
                assert (await store.read_verified_head("source")).kind in kinds
                assert len(history) in range(5)

    await operation()
    threads = threading.active_count()
    assert await cancel_at_every_step(operation) > 10
    assert threading.active_count() <= threads + 8  # those of writing, which trio keeps for the next


async def test_cancelled_prunes_and_reads_leave_nothing(tmp_path: Path) -> None:
    store = FilesystemSnapshotStore(tmp_path, max_history_files=40)
    for number in range(6):
        await store.put(sample_snapshot(number))

    async def operation() -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.list, "source")
                nursery.start_soon(store.latest, "source")
                nursery.start_soon(store.find_exact, lookup_of(sample_snapshot(5)))
                nursery.start_soon(store.read_verified_head, "source")
                nursery.start_soon(lambda: store.prune("source", keep_last=3))
                nursery.start_soon(store.put, sample_snapshot(2))
        finally:
            assert not leftovers(tmp_path)

    assert await cancel_at_every_step(operation) > 10
    assert await store.latest("source") == sample_snapshot(5)


async def test_a_put_that_a_thread_has_begun_is_waited_for(tmp_path: Path) -> None:
    """And is durable, whoever leads the group."""
    store = FilesystemSnapshotStore(tmp_path, max_history_files=100)
    before = open_descriptors()
    done: list[int] = []

    async def put(number: int) -> None:
        with trio.CancelScope() as scope:
            scope.cancel() if number % 2 else None
            await store.put(sample_snapshot(number))
            done.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(40):
            nursery.start_soon(put, number)
    kept = {s.fetched_at for s in await store.list("source")}
    assert {sample_snapshot(number).fetched_at for number in done} == kept
    assert open_descriptors() == before


async def test_cancelling_the_leader_does_not_take_the_others_along(tmp_path: Path) -> None:
    store = FilesystemSnapshotStore(tmp_path, max_history_files=100)

    async def put_and_leave() -> None:
        with trio.move_on_after(0.001):
            await store.put(sample_snapshot(0, body="x" * 2_000_000))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(put_and_leave)
        for number in range(1, 30):
            nursery.start_soon(store.put, sample_snapshot(number))
    assert len(await store.list("source")) in {29, 30}
    assert not leftovers(tmp_path)
