"""The critical section of put, with other writers that take no lock in between its phases."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forage._files import OpenDirectory
from forage.errors import HistoryFullError, SnapshotStoreError, StoreBusyError, StoreErrorReason
from forage.snapshots import identity_digest, record_name, source_directory
from forage.snapshots.owners import LockOwner, Writer, process_start, this_machine
from forage.snapshots.publication import _PHASES, _SourcePublication, publish_group
from forage.snapshots.puts import Put
from forage.snapshots.records import encode_record, first_slot, released_record_name
from forage.testing import sample_snapshot

SOURCE = source_directory("source")
CEILING = 3
SNAPSHOT = sample_snapshot(1)
NAME = record_name(SNAPSHOT)


def publish(root: Path, put: Put, *, interfere: Callable[[Path], object], after: str = "write") -> Path:
    """Run the phases, and between two of them what another writer does."""
    with OpenDirectory(root) as directory:
        publication = _SourcePublication(directory, "source", [put], CEILING, Writer())
        try:
            for phase in _PHASES:
                publication.attempt(phase.__get__(publication))
                if phase.__name__ == after:
                    interfere(root / SOURCE)
        finally:
            publication.close()
    return root / SOURCE


def put_one(root: Path, number: int) -> None:
    put = Put(sample_snapshot(number))
    publish_group(root, [put], CEILING, Writer())
    assert put.error is None


def slots(folder: Path) -> dict[int, str]:
    return {int(p.stem): p.read_text() for p in (folder / "capacity-index").iterdir() if p.stem.isdigit()}


def left_over(folder: Path) -> list[str]:
    return [p.name for p in folder.rglob("*") if p.name.endswith((".tmp", ".lock"))]


@pytest.mark.parametrize("first", [True, False])
def test_a_slot_that_is_taken_meanwhile_is_replaced_by_another(tmp_path: Path, first: bool) -> None:
    if not first:
        put_one(tmp_path, 0)
    put = Put(SNAPSHOT)
    taken = first_slot(NAME, CEILING)
    while not first and taken in slots(tmp_path / SOURCE):
        taken = (taken + 1) % CEILING
    folder = publish(tmp_path, put, interfere=lambda f: (f / "capacity-index" / f"{taken}.txt").write_text("other.json"))
    assert put.error is None
    assert sorted(slots(folder).values()).count(NAME) == 1
    assert slots(folder)[taken] == "other.json"
    assert not left_over(folder)


def test_when_the_last_slot_is_taken_meanwhile_the_record_is_not_published(tmp_path: Path) -> None:
    put_one(tmp_path, 0)
    put = Put(SNAPSHOT)

    def fill(folder: Path) -> None:
        for number in range(CEILING):
            path = folder / "capacity-index" / f"{number}.txt"
            if not path.exists():
                path.write_text("other.json")

    folder = publish(tmp_path, put, interfere=fill)
    assert isinstance(put.error, HistoryFullError)
    assert not (folder / NAME).exists()
    assert not left_over(folder)


def test_the_same_record_published_meanwhile_is_verified_and_kept(tmp_path: Path) -> None:
    put = Put(SNAPSHOT)
    folder = publish(tmp_path, put, interfere=lambda f: (f / NAME).write_bytes(encode_record(SNAPSHOT)))
    assert put.error is None
    put = Put(sample_snapshot(2))
    publish(tmp_path, put, interfere=lambda f: (f / record_name(put.snapshot)).write_text("damaged"))
    assert isinstance(put.error, SnapshotStoreError)
    assert put.error.reason is StoreErrorReason.MALFORMED_RECORD
    assert (folder / record_name(put.snapshot)).read_text() == "damaged"


def test_an_identity_entry_made_meanwhile_stays(tmp_path: Path) -> None:
    other = record_name(sample_snapshot(1, headers={}))
    put = Put(SNAPSHOT)
    entry = f"{identity_digest(SNAPSHOT)}.txt"
    folder = publish(tmp_path, put, interfere=lambda f: (f / "identity-index" / entry).write_text(other))
    assert put.error is None
    assert (folder / "identity-index" / entry).read_text() == other


def test_another_ceiling_published_meanwhile_is_told(tmp_path: Path) -> None:
    put = Put(SNAPSHOT)
    folder = publish(tmp_path, put, interfere=lambda f: (f / "capacity-index" / "max-history-files.txt").write_text("7"))
    assert isinstance(put.error, SnapshotStoreError)
    assert put.error.reason is StoreErrorReason.CEILING_CHANGED
    assert not (folder / NAME).exists()
    assert not left_over(folder)


def test_a_record_that_cannot_get_its_name_keeps_no_slot(tmp_path: Path) -> None:
    put_one(tmp_path, 0)
    put = Put(SNAPSHOT)

    def steal(folder: Path) -> None:
        for path in folder.glob("*.tmp"):
            path.unlink()

    folder = publish(tmp_path, put, interfere=steal)
    assert isinstance(put.error, SnapshotStoreError)
    assert put.error.reason is StoreErrorReason.WRITE_FAILED
    assert list(slots(folder).values()) == [record_name(sample_snapshot(0))]


def test_a_writer_whose_lock_was_taken_over_publishes_nothing_more(tmp_path: Path) -> None:
    put = Put(SNAPSHOT)
    with OpenDirectory(tmp_path) as directory:
        publication = _SourcePublication(directory, "source", [put], CEILING, Writer())
        for phase in _PHASES[:4]:
            publication.attempt(phase.__get__(publication))
        assert publication._lock is not None
        publication._lock._refreshed -= 100
        (tmp_path / SOURCE / "source.lock").unlink()
        (tmp_path / SOURCE / "source.lock").write_text("another")
        for phase in _PHASES[4:]:
            publication.attempt(phase.__get__(publication))
        publication.close()
    assert isinstance(put.error, StoreBusyError)
    assert not (tmp_path / SOURCE / NAME).exists()
    assert (tmp_path / SOURCE / "source.lock").read_text() == "another"


# --- after a crash


@contextmanager
def dead_writer(root: Path) -> Iterator[None]:
    """A lock whose process is gone."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    owner = LockOwner(machine=this_machine(), pid=process.pid, start=process_start(os.getpid()), token="t")
    (root / SOURCE / "source.lock").write_text(owner.text())
    yield
    assert not (root / SOURCE / "source.lock").exists()


def test_a_record_without_slot_gets_one_when_a_dead_writer_left_it(tmp_path: Path) -> None:
    put_one(tmp_path, 1)
    for number in slots(tmp_path / SOURCE):
        (tmp_path / SOURCE / "capacity-index" / f"{number}.txt").unlink()
    put_one(tmp_path, 1)
    assert slots(tmp_path / SOURCE) == {}  # nobody died here: left to a prune
    with dead_writer(tmp_path):
        put_one(tmp_path, 1)
    assert list(slots(tmp_path / SOURCE).values()) == [NAME]


def test_the_slot_of_a_renamed_record_is_handed_over_when_the_writer_died_before(tmp_path: Path) -> None:
    put_one(tmp_path, 1)
    old = str(released_record_name(SNAPSHOT.fetched_at, SNAPSHOT.body_hash))
    (number,) = slots(tmp_path / SOURCE)
    (tmp_path / SOURCE / "capacity-index" / f"{number}.txt").write_text(old)
    with dead_writer(tmp_path):
        put_one(tmp_path, 1)
    assert slots(tmp_path / SOURCE) == {number: NAME}


def test_a_released_record_without_slot_is_renamed_and_gets_one(tmp_path: Path) -> None:
    put_one(tmp_path, 0)
    old = str(released_record_name(SNAPSHOT.fetched_at, SNAPSHOT.body_hash))
    (tmp_path / SOURCE / old).write_bytes(encode_record(SNAPSHOT))
    put_one(tmp_path, 1)
    assert not (tmp_path / SOURCE / old).exists()
    assert sorted(slots(tmp_path / SOURCE).values()) == sorted(record_name(sample_snapshot(n)) for n in (0, 1))
