"""The filesystem store beyond the contract suite: its files, what may be wrong with them, and what may be wrong with the disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from forage.errors import (
    HistoryFullError,
    InvalidSnapshotError,
    SnapshotCorruptError,
    SnapshotStoreError,
    StoreBusyError,
    StoreErrorReason,
)
from forage.snapshots import (
    FilesystemSnapshotStore,
    FindKind,
    Lookup,
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
from tests.support.trees import paths

SOURCE = source_directory("source")


def record_path(root: Path, number: int = 0, **members: Any) -> Path:
    return root / SOURCE / record_name(sample_snapshot(number, **members))


def lay_released(root: Path, number: int) -> Path:
    """The record as the 0.3 generation would have written it."""
    snapshot = sample_snapshot(number)
    path = root / SOURCE / str(released_record_name(snapshot.fetched_at, snapshot.body_hash))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_record(snapshot))
    return path


def slots(root: Path) -> dict[str, str]:
    folder = root / SOURCE / "capacity-index"
    return {p.name: p.read_text() for p in folder.iterdir() if p.name not in {"max-history-files.txt", "initialized.txt"}}


# --- files


async def test_put_makes_the_files_of_the_format_and_nothing_else(tmp_path: Path) -> None:
    snapshot = sample_snapshot()
    name = record_name(snapshot)
    await FilesystemSnapshotStore(tmp_path / "a" / "b", max_history_files=7).put(snapshot)
    folder = tmp_path / "a" / "b" / SOURCE
    contents = {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}
    assert contents == {
        name: encode_record(snapshot).decode(),
        "capacity-index/max-history-files.txt": "7",
        "capacity-index/initialized.txt": "1",
        f"capacity-index/{first_slot(name, 7)}.txt": name,
        f"identity-index/{identity_digest(snapshot)}.txt": name,
    }
    assert {oct(p.stat().st_mode & 0o777) for p in folder.rglob("*") if p.is_file()} == {"0o600"}


async def test_a_second_put_of_the_same_changes_no_file(tmp_path: Path) -> None:
    store = FilesystemSnapshotStore(tmp_path)
    await store.put(sample_snapshot())
    before = {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in tmp_path.rglob("*") if p.is_file()}
    await store.put(sample_snapshot())
    assert {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in tmp_path.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("ceiling", [0, -1, 10_001, 1.5, True, "7", None])
def test_an_impossible_ceiling_is_refused_at_construction(tmp_path: Path, ceiling: Any) -> None:
    with pytest.raises(InvalidSnapshotError, match="max_history_files"):
        FilesystemSnapshotStore(tmp_path, max_history_files=ceiling)


@pytest.mark.parametrize("root", [5, None, b"x", object(), ["a"], "a\0b"])
def test_a_root_that_is_no_path_is_refused_by_name(root: Any) -> None:
    with pytest.raises(InvalidSnapshotError, match=r"^root: takes a path"):
        FilesystemSnapshotStore(root)


@pytest.mark.parametrize("seconds", ["5", None, float("nan"), -1, -0.5, True, [1]])
def test_a_wait_that_is_no_time_is_refused_by_name(tmp_path: Path, seconds: Any) -> None:
    with pytest.raises(InvalidSnapshotError, match=r"^lock_wait_seconds: takes seconds"):
        FilesystemSnapshotStore(tmp_path, lock_wait_seconds=seconds)
    assert FilesystemSnapshotStore(tmp_path, lock_wait_seconds=float("inf")).root == tmp_path


async def test_what_is_no_snapshot_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    wrong: Any = {"sourceId": "source"}
    with pytest.raises(InvalidSnapshotError):
        await FilesystemSnapshotStore(tmp_path / "store").put(wrong)
    assert not (tmp_path / "store").exists()


async def test_several_stores_on_one_root_see_each_other_at_once(tmp_path: Path) -> None:
    one, other = FilesystemSnapshotStore(tmp_path), FilesystemSnapshotStore(tmp_path)
    for number in range(6):
        await (one if number % 2 else other).put(sample_snapshot(number))
        for store in (one, other):
            assert await store.latest("source") == sample_snapshot(number)
            await trio.sleep(0.06 if number == 3 else 0)  # long enough for the head to be remembered


def test_one_store_serves_several_runs_of_trio(tmp_path: Path) -> None:
    store = FilesystemSnapshotStore(tmp_path)

    def run(number: int) -> None:
        trio.run(store.put, sample_snapshot(number))

    run(0)
    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(trio.run(store.list, "source")) == 5


# --- limits


async def test_a_full_history_takes_no_more_until_it_is_pruned(tmp_path: Path) -> None:
    store = FilesystemSnapshotStore(tmp_path, max_history_files=3)
    for number in range(3):
        await store.put(sample_snapshot(number))
    before = paths(tmp_path)
    with pytest.raises(HistoryFullError) as caught:
        await store.put(sample_snapshot(3))
    assert caught.value.max_history_files == 3
    assert paths(tmp_path) == before
    await store.put(sample_snapshot(1))
    await store.prune("source", keep_last=1)
    await store.put(sample_snapshot(3))
    assert len(await store.list("source")) == 2


async def test_one_put_too_many_of_a_group_fails_alone(tmp_path: Path) -> None:
    store = FilesystemSnapshotStore(tmp_path, max_history_files=5)
    failures = 0

    async def put(number: int) -> None:
        nonlocal failures
        try:
            await store.put(sample_snapshot(number))
        except HistoryFullError:
            failures += 1

    async with trio.open_nursery() as nursery:
        for number in range(12):
            nursery.start_soon(put, number)
        nursery.start_soon(store.put, sample_snapshot(source_id="other"))
    assert failures == 7
    assert len(await store.list("source")) == len(slots(tmp_path)) == 5


async def test_the_same_snapshot_twice_in_a_group_is_one_record(tmp_path: Path) -> None:
    store = FilesystemSnapshotStore(tmp_path, max_history_files=1)
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(store.put, sample_snapshot())
    assert len(await store.list("source")) == 1


async def test_the_ceiling_of_a_source_cannot_change(tmp_path: Path) -> None:
    await FilesystemSnapshotStore(tmp_path, max_history_files=3).put(sample_snapshot())
    other = FilesystemSnapshotStore(tmp_path, max_history_files=4)
    with pytest.raises(SnapshotStoreError) as caught:
        await other.put(sample_snapshot(1))
    assert caught.value.reason is StoreErrorReason.CEILING_CHANGED
    assert await other.list("source") == (sample_snapshot(),)


async def test_more_records_than_the_ceiling_are_not_read(tmp_path: Path) -> None:
    for number in range(3):
        lay_released(tmp_path, number)
    store = FilesystemSnapshotStore(tmp_path, max_history_files=2)
    for read in (store.latest, store.list):
        with pytest.raises(SnapshotStoreError) as caught:
            await read("source")
        assert caught.value.reason is StoreErrorReason.READ_LIMIT


async def test_a_record_above_the_limit_is_refused_and_not_read(tmp_path: Path) -> None:
    store = FilesystemSnapshotStore(tmp_path)
    escaped = sample_snapshot(1, body="\x01" * 17_000_000)  # six bytes each in JSON
    with pytest.raises(InvalidSnapshotError, match="100663296"):
        await store.put(escaped)
    await store.put(sample_snapshot())
    os.truncate(record_path(tmp_path), 96 * 1024 * 1024 + 1)
    with pytest.raises(SnapshotStoreError) as caught:
        await store.latest("source")
    assert caught.value.reason is StoreErrorReason.READ_LIMIT


# --- damage


async def test_older_damage_is_found_by_list_and_not_by_latest(tmp_path: Path) -> None:
    store = FilesystemSnapshotStore(tmp_path)
    for number in range(3):
        await store.put(sample_snapshot(number))
    record_path(tmp_path, 1).write_bytes(b"{")
    assert await store.latest("source") == sample_snapshot(2)
    with pytest.raises(SnapshotCorruptError) as caught:
        await store.list("source")
    assert caught.value.reason is StoreErrorReason.MALFORMED_RECORD


async def test_damage_to_a_remembered_head_is_noticed(tmp_path: Path) -> None:
    store = FilesystemSnapshotStore(tmp_path)
    await store.put(sample_snapshot())
    for _ in range(3):
        assert await store.latest("source") == sample_snapshot()
        await trio.sleep(0.06)
    with record_path(tmp_path).open("r+b") as file:
        file.write(b"[")
    with pytest.raises(SnapshotCorruptError):
        await store.latest("source")


@pytest.mark.parametrize("what", ["source", "record", "identity-index", "capacity-index"])
async def test_links_are_not_followed(tmp_path: Path, what: str) -> None:
    store = FilesystemSnapshotStore(tmp_path / "store")
    await store.put(sample_snapshot())
    folder = tmp_path / "store" / SOURCE
    path = {"source": folder, "record": record_path(tmp_path / "store")}.get(what, folder / what)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    before = paths(tmp_path)

    async def attempt() -> None:
        if what == "identity-index":
            await store.find_exact(lookup_of(sample_snapshot(), released=True))
        elif what == "capacity-index":
            await store.put(sample_snapshot(1))
        else:
            await store.put(sample_snapshot())

    with pytest.raises(SnapshotCorruptError) as caught:
        await attempt()
    assert caught.value.reason is StoreErrorReason.NON_REGULAR_ENTRY
    assert paths(tmp_path) == before


@pytest.mark.parametrize("kind", ["fifo", "folder", "socket"])
async def test_special_files_are_no_records_and_hang_nobody(tmp_path: Path, kind: str) -> None:
    store = FilesystemSnapshotStore(tmp_path)
    await store.put(sample_snapshot())
    path = record_path(tmp_path)
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        os.mknod(path, 0o140600)
    with trio.fail_after(5), pytest.raises(SnapshotCorruptError) as caught:
        await store.latest("source")
    assert caught.value.reason is StoreErrorReason.NON_REGULAR_ENTRY


async def test_a_garbage_identity_entry_is_told_after_the_record_is_kept(tmp_path: Path) -> None:
    store = FilesystemSnapshotStore(tmp_path)
    await store.put(sample_snapshot(1))
    entry = tmp_path / SOURCE / "identity-index" / f"{identity_digest(sample_snapshot())}.txt"
    entry.write_text("not a record")
    with pytest.raises(SnapshotCorruptError) as caught:
        await store.put(sample_snapshot())
    assert caught.value.reason is StoreErrorReason.INVALID_IDENTITY_INDEX
    assert len(await store.list("source")) == 2


async def test_a_record_whose_file_is_damaged_cannot_be_put_again_in_silence(tmp_path: Path) -> None:
    store = FilesystemSnapshotStore(tmp_path)
    await store.put(sample_snapshot())
    record_path(tmp_path).write_bytes(b"{}")
    with pytest.raises(SnapshotCorruptError):
        await store.put(sample_snapshot())


# --- records of the 0.3 generation


@pytest.mark.parametrize("ceiling", [3, 10])
async def test_a_released_record_is_put_again_by_renaming_it(tmp_path: Path, ceiling: int) -> None:
    released = [lay_released(tmp_path, number) for number in range(3)]
    store = FilesystemSnapshotStore(tmp_path, max_history_files=ceiling)
    await store.put(sample_snapshot(1))
    assert not released[1].exists()
    assert len(slots(tmp_path)) == 3
    assert set(slots(tmp_path).values()) == {p.name for p in (tmp_path / SOURCE).glob("*.json")}
    assert [s.fetched_at for s in await store.list("source")] == [sample_snapshot(n).fetched_at for n in (2, 1, 0)]
    for number in range(3):
        old = format_source_ref(lookup_of(sample_snapshot(number), released=True))
        assert (await resolve_source_ref(store, old)).ok
        assert (await resolve_source_ref(store, build_source_ref(sample_snapshot(number)))).ok is (number == 1)
    await store.put(sample_snapshot(1))
    assert len(slots(tmp_path)) == 3


async def test_another_snapshot_under_the_released_name_is_left_alone(tmp_path: Path) -> None:
    path = lay_released(tmp_path, 0)
    store = FilesystemSnapshotStore(tmp_path)
    await store.put(sample_snapshot(0, status=404))
    assert path.exists()
    assert len(await store.list("source")) == 2
    path.write_bytes(b"damaged")
    await store.put(sample_snapshot(0))
    assert path.exists()


async def test_a_released_name_longer_than_any_file_is_missing(tmp_path: Path) -> None:
    await FilesystemSnapshotStore(tmp_path).put(sample_snapshot())
    long = Lookup(source_id="source", url="u", body_hash="0" * 64, fetched_at="x" * 300)
    assert (await FilesystemSnapshotStore(tmp_path).find_exact(long)).kind is FindKind.MISSING


# --- the disk


async def test_a_root_that_is_a_file_is_told(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.write_text("a file")
    store = FilesystemSnapshotStore(root)
    with pytest.raises(SnapshotStoreError, match="Not a directory") as caught:
        await store.put(sample_snapshot())
    assert caught.value.reason is StoreErrorReason.WRITE_FAILED
    assert str(tmp_path) not in str(caught.value)
    for read in (store.latest("source"), store.list("source"), store.find_exact(lookup_of(sample_snapshot()))):
        with pytest.raises(SnapshotStoreError) as caught:
            await read
        assert caught.value.reason is StoreErrorReason.READ_FAILED
    assert root.read_text() == "a file"


@contextmanager
def as_nobody() -> Iterator[None]:
    """Where the tests run as the super-user, permissions mean nothing: do it as somebody else."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


async def test_a_root_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = FilesystemSnapshotStore(root)
    await store.put(sample_snapshot())
    before = paths(root)
    root.chmod(0o500)
    try:
        with as_nobody(), pytest.raises(SnapshotStoreError) as caught:
            await store.put(sample_snapshot(source_id="other"))
    finally:
        root.chmod(0o700)
    assert caught.value.reason is StoreErrorReason.WRITE_FAILED
    assert paths(root) == before


SMALL_DISK = """if True:
    import json, resource, sys, trio
    from forage.errors import SnapshotStoreError
    from forage.snapshots import FilesystemSnapshotStore
    from forage.testing import sample_snapshot

    async def main():
        store = FilesystemSnapshotStore(sys.argv[1])
        await store.put(sample_snapshot(0))
        if sys.argv[2] == "file size":
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        try:
            await store.put(sample_snapshot(1, body="x" * 900_000))
        except SnapshotStoreError as exc:
            print(json.dumps([exc.reason, str(exc)]))
        await store.put(sample_snapshot(2))

    trio.run(main)
"""


def check_after_small_disk(done: subprocess.CompletedProcess[str], root: Path, cause: str) -> None:
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["write-failed", f"the store could not be written: {cause}"]
    store = FilesystemSnapshotStore(root)
    history = trio.run(store.list, "source")
    assert [s.fetched_at for s in history] == [sample_snapshot(n).fetched_at for n in (2, 0)]
    assert set(slots(root).values()) == {record_name(s) for s in history}
    assert not [p for p in paths(root) if p.endswith((".tmp", ".lock"))]


def test_a_write_beyond_the_size_that_the_system_allows_leaves_no_half_record(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SMALL_DISK, str(tmp_path), "file size"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    check_after_small_disk(done, tmp_path, "File too large")


def test_a_full_disk_leaves_no_half_record(tmp_path: Path) -> None:
    """On a small file system in a mount namespace of its own; where that is not to be had, the limit of the test above must do."""
    kept = tmp_path / "kept"
    script = 'mount -t tmpfs -o size=300k tmpfs "$1" && "$2" -c "$3" "$1/store" disk && cp -a "$1/store" "$4"'
    mounted = tmp_path / "small"
    mounted.mkdir()
    command = ["unshare", "-m", "sh", "-c", script, "sh", str(mounted), sys.executable, SMALL_DISK, str(kept)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError:
        pytest.skip("no unshare here")
    if done.returncode != 0 and os.geteuid() != 0:
        pytest.skip("no mount namespaces here")
    check_after_small_disk(done, kept, "No space left on device")


# --- other writers


def live_lock(root: Path) -> Path:
    """The lock of a process of another machine: nobody here can say that it is dead."""
    path = root / SOURCE / "source.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"machine":"elsewhere","pid":1,"start":null,"token":"t"}')
    return path


async def test_a_held_lock_is_waited_for_and_then_told(tmp_path: Path) -> None:
    lock = live_lock(tmp_path)
    store = FilesystemSnapshotStore(tmp_path, lock_wait_seconds=0.2)
    began = time.monotonic()
    with pytest.raises(StoreBusyError):
        await store.put(sample_snapshot())
    assert 0.2 <= time.monotonic() - began < 5
    with pytest.raises(StoreBusyError):
        await store.prune("source", keep_last=1)
    assert lock.exists()
    assert await store.list("source") == ()


async def test_a_lock_that_is_released_in_time_holds_nobody_up(tmp_path: Path) -> None:
    lock = live_lock(tmp_path)
    store = FilesystemSnapshotStore(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.put, sample_snapshot())
        await trio.sleep(0.1)
        assert await store.list("source") == ()  # readers take no lock
        lock.unlink()
    assert await store.list("source") == (sample_snapshot(),)


async def test_a_put_that_waits_for_a_lock_can_be_cancelled(tmp_path: Path) -> None:
    live_lock(tmp_path)
    began = time.monotonic()
    with trio.move_on_after(0.1) as scope:
        await FilesystemSnapshotStore(tmp_path).put(sample_snapshot())
    assert scope.cancelled_caught
    assert time.monotonic() - began < 5


async def test_a_held_lock_of_one_source_holds_no_other_up(tmp_path: Path) -> None:
    live_lock(tmp_path)
    store = FilesystemSnapshotStore(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.put, sample_snapshot())
        await store.put(sample_snapshot(source_id="other"))
        nursery.cancel_scope.cancel()
    assert len(await store.list("other")) == 1


async def test_a_folder_in_the_place_of_the_lock_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / SOURCE / "source.lock").mkdir(parents=True)
    with trio.fail_after(5), pytest.raises(StoreBusyError, match="directory"):
        await FilesystemSnapshotStore(tmp_path).put(sample_snapshot())


async def test_a_cancelled_read_does_not_wait_for_a_long_history(tmp_path: Path) -> None:
    store = FilesystemSnapshotStore(tmp_path)
    async with trio.open_nursery() as nursery:
        for number in range(60):
            nursery.start_soon(store.put, sample_snapshot(number, body="x" * 300_000))
    with trio.move_on_after(0.01) as scope:
        await store.list("source")
    assert scope.cancelled_caught
