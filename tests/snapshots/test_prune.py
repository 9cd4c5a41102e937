"""Pruning on disk: what goes, what stays, and what interrupted writers left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from forage.errors import InvalidSnapshotError, SnapshotCorruptError, SnapshotStoreError, StoreErrorReason
from forage.snapshots import (
    FilesystemSnapshotStore,
    HeadKind,
    PruneResult,
    build_source_ref,
    format_source_ref,
    identity_digest,
    lookup_of,
    record_name,
    resolve_source_ref,
    source_directory,
)
from forage.snapshots.records import encode_record, first_slot, released_record_name
from forage.testing import sample_snapshot
from tests.support.trees import paths, read_tree

SOURCE = source_directory("source")
CEILING = 8


async def filled(root: Path, count: int = 3) -> FilesystemSnapshotStore:
    store = FilesystemSnapshotStore(root, max_history_files=CEILING, lock_wait_seconds=0.2)
    for number in range(count):
        await store.put(sample_snapshot(number))
    return store


async def is_sound(store: FilesystemSnapshotStore) -> bool:
    """One slot and one identity entry a record, nothing else: what a witness demands."""
    return (await store.read_verified_head("source")).kind is HeadKind.FOUND


Damage = Callable[[Path], object]


def entry_of(number: int) -> str:
    return f"identity-index/{identity_digest(sample_snapshot(number))}.txt"


def free_slots(folder: Path) -> list[Path]:
    return [path for n in range(CEILING) if not (path := folder / "capacity-index" / f"{n}.txt").exists()]


def slot_of(folder: Path, number: int) -> Path:
    name = record_name(sample_snapshot(number))
    return next(path for path in (folder / "capacity-index").iterdir() if path.read_text() == name)


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


TOKEN = "00000000-0000-4000-8000-000000000000"

REPAIRED: dict[str, Damage] = {
    "a missing identity entry": lambda folder: (folder / entry_of(1)).unlink(),
    "a missing slot": lambda folder: slot_of(folder, 1).unlink(),
    "a slot of no record": lambda folder: free_slots(folder)[0].write_text("2026-09-01T00-59-00.000Z-" + "0" * 64 + ".json"),
    "a slot that holds garbage": lambda folder: free_slots(folder)[0].write_text("junk"),
    "a second slot of a record": lambda folder: free_slots(folder)[0].write_text(record_name(sample_snapshot(1))),
    "two more slots of a record": lambda folder: [path.write_text(record_name(sample_snapshot(0))) for path in free_slots(folder)[:2]],
    "a missing mark of initialisation": lambda folder: (folder / "capacity-index" / "initialized.txt").unlink(),
    "an identity entry of no record": lambda folder: (folder / "identity-index" / f"{'b' * 64}.txt").write_text("x-" + "0" * 64 + ".json"),
    "an identity entry that holds garbage": lambda folder: (folder / entry_of(1)).write_text("junk"),
    "a foreign identity entry that holds garbage": lambda folder: (folder / "identity-index" / f"{'b' * 64}.txt").write_text("junk"),
    "temporaries in all folders": lambda folder: [
        (folder / name / f"x.json.77.{TOKEN}.tmp").write_text("half") for name in (".", "capacity-index", "identity-index")
    ],
    "no index but the ceiling and slots": lambda folder: empty(folder / "identity-index"),
}


@pytest.mark.parametrize("damage", REPAIRED.values(), ids=REPAIRED)
async def test_prune_puts_right(tmp_path: Path, damage: Damage) -> None:
    store = await filled(tmp_path)
    before = read_tree(tmp_path)
    damage(tmp_path / SOURCE)
    assert not await is_sound(store)
    assert await store.prune("source", keep_last=10) == PruneResult(removed=0, retained=3)
    assert await is_sound(store)
    after = read_tree(tmp_path)
    assert {name for name in after if "capacity-index" not in name} == {name for name in before if "capacity-index" not in name}
    assert sorted(str(v) for k, v in after.items() if "capacity" in k) == sorted(str(v) for k, v in before.items() if "capacity" in k)


async def test_the_slot_that_stays_is_the_one_that_a_search_finds(tmp_path: Path) -> None:
    store = await filled(tmp_path, 1)
    name = record_name(sample_snapshot(0))
    start = first_slot(name, CEILING)
    folder = tmp_path / SOURCE / "capacity-index"
    for step in (5, 2, 1):
        (folder / f"{(start + step) % CEILING}.txt").write_text(name)
    (folder / f"{start}.txt").unlink()
    await store.prune("source", keep_last=1)
    assert [p.name for p in folder.iterdir() if p.read_text() == name] == [f"{(start + 1) % CEILING}.txt"]


LEFT_ALONE: dict[str, Damage] = {
    "names that only look like temporaries": lambda folder: [
        (folder / name).write_text("p") for name in ("x.tmp", f"x.json.077.{TOKEN}.tmp", f"x.json.77.{TOKEN}.TMP", f"x.{TOKEN}.tmp")
    ],
    "strange files": lambda folder: (folder / "notes.txt").write_text("mine"),
    "another ceiling": lambda folder: (folder / "capacity-index" / "max-history-files.txt").write_text("9"),
    "a young aside": lambda folder: (folder / f"source.lock.{TOKEN}.aside").write_text("x"),
}


@pytest.mark.parametrize("damage", LEFT_ALONE.values(), ids=LEFT_ALONE)
async def test_prune_leaves_alone(tmp_path: Path, damage: Damage) -> None:
    store = await filled(tmp_path)
    damage(tmp_path / SOURCE)
    before = read_tree(tmp_path)
    assert await store.prune("source", keep_last=10) == PruneResult(removed=0, retained=3)
    assert read_tree(tmp_path) == before


async def test_a_mark_is_not_written_where_no_ceiling_is_on_record(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    index = tmp_path / SOURCE / "capacity-index"
    (index / "initialized.txt").unlink()
    (index / "max-history-files.txt").unlink()
    await store.prune("source", keep_last=10)
    assert not (index / "initialized.txt").exists()


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_a_damaged_record_stops_a_prune_before_anything_is_removed(tmp_path: Path, number: int) -> None:
    store = await filled(tmp_path)
    (tmp_path / SOURCE / record_name(sample_snapshot(number))).write_text("{}")
    before = read_tree(tmp_path)
    with pytest.raises(SnapshotCorruptError):
        await store.prune("source", keep_last=0)
    assert read_tree(tmp_path) == before


async def test_a_prune_of_nothing_makes_nothing(tmp_path: Path) -> None:
    store = FilesystemSnapshotStore(tmp_path / "store")
    assert await store.prune("source", keep_last=1) == PruneResult(removed=0, retained=0)
    assert not (tmp_path / "store").exists()


async def test_a_wrong_request_is_refused_before_the_store_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    store = FilesystemSnapshotStore(tmp_path / "file")
    with pytest.raises(InvalidSnapshotError):
        await store.prune("source", keep_last=-1)


async def test_files_of_the_removed_go_and_those_of_the_kept_stay(tmp_path: Path) -> None:
    store = await filled(tmp_path, 6)
    await store.prune("source", keep_last=1, keep=[lookup_of(sample_snapshot(2))])
    names = {record_name(sample_snapshot(number)) for number in (2, 5)}
    assert {path for path in paths(tmp_path / SOURCE) if path.endswith(".json")} == names
    assert {p.read_text() for p in (tmp_path / SOURCE / "identity-index").iterdir()} == names
    assert len(paths(tmp_path / SOURCE / "capacity-index")) == 4
    assert await is_sound(store)


async def test_the_identity_leads_to_the_envelope_that_is_left(tmp_path: Path) -> None:
    store = FilesystemSnapshotStore(tmp_path, max_history_files=CEILING)
    envelopes = [sample_snapshot(headers={"a": str(number)}) for number in range(4)]
    for snapshot in envelopes:
        await store.put(snapshot)
    head = (await store.list("source"))[0]
    await store.prune("source", keep_last=1)
    assert (await resolve_source_ref(store, format_source_ref(lookup_of(head, released=True)))).unwrap() == head
    assert await is_sound(store)


async def test_released_records_are_pruned_and_get_no_entries(tmp_path: Path) -> None:
    folder = tmp_path / SOURCE
    folder.mkdir()
    for number in range(3):
        snapshot = sample_snapshot(number)
        (folder / str(released_record_name(snapshot.fetched_at, snapshot.body_hash))).write_bytes(encode_record(snapshot))
    store = FilesystemSnapshotStore(tmp_path, max_history_files=CEILING)
    assert await store.prune("source", keep_last=1) == PruneResult(removed=2, retained=1)
    assert len(paths(folder)) == 1
    assert await store.list("source") == (sample_snapshot(2),)


async def test_two_files_of_one_snapshot_count_once_and_go_together(tmp_path: Path) -> None:
    store = await filled(tmp_path, 2)
    snapshot = sample_snapshot(0)
    twin = tmp_path / SOURCE / str(released_record_name(snapshot.fetched_at, snapshot.body_hash))
    twin.write_bytes(encode_record(snapshot))
    assert await store.prune("source", keep_last=1) == PruneResult(removed=1, retained=1)
    assert not twin.exists()
    assert await is_sound(store)


async def test_without_a_capacity_index_it_is_put_that_makes_one(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    for path in (tmp_path / SOURCE / "capacity-index").iterdir():
        path.unlink()
    (tmp_path / SOURCE / "capacity-index").rmdir()
    with pytest.raises(SnapshotStoreError, match="No such file") as caught:
        await store.prune("source", keep_last=10)
    assert caught.value.reason is StoreErrorReason.WRITE_FAILED
    await store.put(sample_snapshot(3))
    await store.prune("source", keep_last=10)
    assert await is_sound(store)


async def test_more_index_entries_than_there_can_be_are_not_read(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    for number in range(2 * CEILING + 1):
        (tmp_path / SOURCE / "identity-index" / f"{number:064x}.txt").write_text("junk")
    with pytest.raises(SnapshotStoreError) as caught:
        await store.prune("source", keep_last=10)
    assert caught.value.reason is StoreErrorReason.READ_LIMIT


async def test_puts_and_prunes_side_by_side_lose_nothing_that_was_cited(tmp_path: Path) -> None:
    store = FilesystemSnapshotStore(tmp_path, max_history_files=40)
    cited = sample_snapshot(0)
    await store.put(cited)

    async def put(number: int) -> None:
        await store.put(sample_snapshot(number))

    async def prune() -> None:
        for _ in range(5):
            await store.prune("source", keep_last=2, keep=[lookup_of(cited)])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(prune)
        for number in range(1, 30):
            nursery.start_soon(put, number)
    await store.prune("source", keep_last=2, keep=[lookup_of(cited)])
    assert (await resolve_source_ref(store, build_source_ref(cited))).ok
    assert [s.fetched_at for s in await store.list("source")] == [sample_snapshot(n).fetched_at for n in (29, 28, 0)]
    assert await is_sound(store)
