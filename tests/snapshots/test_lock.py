"""``source.lock``: who holds it, when it is stale, and breaking it without breaking a live one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forage._files import OpenDirectory
from forage.errors import StoreBusyError
from forage.snapshots import FilesystemSnapshotStore, source_directory
from forage.snapshots.lock import BREAK_NAME, LOCK_NAME, SourceLock, break_stale, clear_stale_marker, is_stale, look_at, try_lock
from forage.snapshots.owners import LockOwner, Writer, is_running, process_start, this_machine
from forage.testing import sample_snapshot


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[OpenDirectory]:
    with OpenDirectory(tmp_path) as directory:
        yield directory


def age(path: Path, seconds: float) -> None:
    at = time.time() - seconds
    os.utime(path, (at, at), follow_symlinks=False)


def dead_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def write_lock(root: Path, name: str = LOCK_NAME, **changes: Any) -> Path:
    """A lock of this process, with changes."""
    owner = {"machine": this_machine(), "pid": os.getpid(), "start": process_start(os.getpid()), "token": "t"} | changes
    (root / name).write_text(json.dumps(owner, separators=(",", ":")))
    return root / name


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


# --- holding


def test_the_lock_says_who_holds_it_in_the_order_of_the_format(tmp_path: Path, folder: OpenDirectory) -> None:
    lock = try_lock(folder, Writer())
    assert lock is not None
    path = tmp_path / LOCK_NAME
    value = json.loads(path.read_text())
    assert list(value) == ["machine", "pid", "start", "token"]
    assert " " not in path.read_text()
    assert (value["machine"], value["pid"], value["start"]) == (this_machine(), os.getpid(), process_start(os.getpid()))
    assert path.stat().st_mode & 0o777 == 0o600
    lock.release()
    assert names(tmp_path) == set()


def test_the_start_of_a_process_is_read_behind_its_name(tmp_path: Path) -> None:
    """The name may hold brackets and blanks."""
    program = tmp_path / "a) b 1 ("
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "5"]) as process:
        time.sleep(0.05)
        line = Path(f"/proc/{process.pid}/stat").read_text()
        assert process_start(process.pid) == f"linux-starttime:{line.rsplit(')', 1)[1].split()[19]}"
        process.kill()
    assert process_start(2**22 + 5) is None


def test_two_cannot_hold_it(folder: OpenDirectory) -> None:
    first = try_lock(folder, Writer())
    assert first is not None
    assert try_lock(folder, Writer()) is None
    first.release()
    second = try_lock(folder, Writer())
    assert second is not None
    assert second.broken is None
    second.release()


def test_a_lock_that_is_not_ours_any_more_is_not_released(tmp_path: Path, folder: OpenDirectory) -> None:
    lock = try_lock(folder, Writer())
    assert lock is not None
    (tmp_path / LOCK_NAME).unlink()
    write_lock(tmp_path)
    lock.release()
    assert names(tmp_path) == {LOCK_NAME}
    (tmp_path / LOCK_NAME).unlink()
    lock.release()


def held_for(lock: SourceLock, seconds: float) -> None:
    """As if the last refresh were that long ago."""
    lock._refreshed -= seconds


def test_refreshing_shows_that_the_writer_lives(tmp_path: Path, folder: OpenDirectory) -> None:
    lock = try_lock(folder, Writer())
    assert lock is not None
    age(tmp_path / LOCK_NAME, 50)
    lock.refresh()
    assert time.time() - (tmp_path / LOCK_NAME).stat().st_mtime > 40  # not due yet
    held_for(lock, 11)
    lock.refresh()
    assert time.time() - (tmp_path / LOCK_NAME).stat().st_mtime < 5
    lock.release()


def test_a_writer_that_lost_its_lock_stops(tmp_path: Path, folder: OpenDirectory) -> None:
    lock = try_lock(folder, Writer())
    assert lock is not None
    (tmp_path / LOCK_NAME).unlink()
    write_lock(tmp_path)
    held_for(lock, 11)
    with pytest.raises(StoreBusyError, match="taken over"):
        lock.refresh()
    lock.release()
    assert names(tmp_path) == {LOCK_NAME}


@pytest.mark.parametrize("ours", [True, False])
def test_a_release_after_a_long_pause_removes_the_file_and_not_the_name(tmp_path: Path, folder: OpenDirectory, ours: bool) -> None:
    lock = try_lock(folder, Writer())
    assert lock is not None
    if not ours:
        (tmp_path / LOCK_NAME).unlink()
        write_lock(tmp_path)
    held_for(lock, 45)
    lock.release()
    assert names(tmp_path) == (set() if ours else {LOCK_NAME})


def test_where_files_need_a_name_from_the_start_the_lock_still_works(tmp_path: Path, folder: OpenDirectory) -> None:
    """Other kernels and file systems."""
    from forage.snapshots.lock import _create_in_place

    assert _create_in_place(folder, LOCK_NAME, "text") is not None
    assert _create_in_place(folder, LOCK_NAME, "other") is None
    assert (tmp_path / LOCK_NAME).read_text() == "text"


# --- staleness


STALE_RULES: list[tuple[str, dict[str, Any], bool]] = [
    ("a living process", {}, False),
    ("a process of another start", {"start": "linux-starttime:1"}, True),
    ("a living process of unknown start", {"start": None}, False),
    ("a dead process", {"pid": "dead"}, True),
    ("a dead process of unknown start", {"pid": "dead", "start": None}, True),
    ("a dead process of another machine", {"pid": "dead", "machine": "elsewhere"}, False),
    ("a dead process of an unknown machine", {"pid": "dead", "machine": None}, False),
    ("a process id that no system has", {"pid": 2**70}, False),
    ("a process id in text", {"pid": "1"}, False),
    ("a process id that is true", {"pid": True}, False),
    ("a process id with a fraction", {"pid": 1.5}, False),
    ("no token", {"pid": "dead", "token": None}, False),
]


@pytest.mark.parametrize(("why", "changes", "stale"), STALE_RULES, ids=[rule[0] for rule in STALE_RULES])
def test_a_young_lock_is_stale_only_when_its_process_is_surely_gone(
    tmp_path: Path, folder: OpenDirectory, why: str, changes: dict[str, Any], stale: bool
) -> None:
    if changes.get("pid") == "dead":
        changes = {**changes, "pid": dead_process()}
    path = write_lock(tmp_path, **changes)
    lock = look_at(folder, LOCK_NAME)
    assert lock is not None
    assert is_stale(lock, this_machine()) is stale
    assert is_stale(lock, None) is False
    age(path, 61)
    old = look_at(folder, LOCK_NAME)
    assert old is not None
    assert is_stale(old, None)


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{", '{"machine":"m","pid":1,"token":"t"}', '{"host":"m","pid":1,"start":null,"token":"t"}']
)
def test_text_that_names_no_owner_is_stale_by_age_alone(tmp_path: Path, folder: OpenDirectory, text: str) -> None:
    assert LockOwner.parse(text) is None
    (tmp_path / LOCK_NAME).write_text(text)
    assert try_lock(folder, Writer()) is None
    age(tmp_path / LOCK_NAME, 61)
    lock = try_lock(folder, Writer())
    assert lock is not None
    assert lock.broken is not None
    lock.release()


def test_a_link_in_its_place_is_removed_when_old_and_its_target_stays(tmp_path: Path, folder: OpenDirectory) -> None:
    (tmp_path / "target").write_text("keep")
    (tmp_path / LOCK_NAME).symlink_to("target")
    assert try_lock(folder, Writer()) is None
    age(tmp_path / LOCK_NAME, 61)
    lock = try_lock(folder, Writer())
    assert lock is not None
    lock.release()
    assert names(tmp_path) == {"target"}


def test_a_process_of_somebody_else_counts_as_running() -> None:
    assert is_running(1)
    assert not is_running(dead_process())


# --- breaking


def test_breaking_leaves_nothing_of_itself(tmp_path: Path, folder: OpenDirectory) -> None:
    write_lock(tmp_path, pid=dead_process())
    broken = break_stale(folder, Writer())
    assert broken is not None
    assert broken.owner is not None
    assert names(tmp_path) == set()
    assert break_stale(folder, Writer()) is None


def test_a_live_breaker_is_not_disturbed(tmp_path: Path, folder: OpenDirectory) -> None:
    write_lock(tmp_path, pid=dead_process())
    write_lock(tmp_path, BREAK_NAME)
    assert break_stale(folder, Writer()) is None
    assert try_lock(folder, Writer()) is None
    clear_stale_marker(folder, this_machine())
    assert names(tmp_path) == {LOCK_NAME, BREAK_NAME}


def test_the_marker_of_a_dead_breaker_is_cleared_first(tmp_path: Path, folder: OpenDirectory) -> None:
    write_lock(tmp_path, pid=dead_process())
    write_lock(tmp_path, BREAK_NAME, pid=dead_process())
    assert try_lock(folder, Writer()) is None
    assert names(tmp_path) == {LOCK_NAME}
    lock = try_lock(folder, Writer())
    assert lock is not None
    lock.release()
    assert names(tmp_path) == set()


def test_of_many_breakers_one_wins_and_no_live_lock_is_removed(tmp_path: Path) -> None:
    """Threads race over a lock that goes stale again and again; every holder must find its own lock when it lets go."""
    dead, rounds, failures = dead_process(), 40, []
    counter = {"held": 0, "most": 0}
    guard = threading.Lock()

    def work() -> None:
        writer, done = Writer(), 0
        with OpenDirectory(tmp_path) as directory:
            while done < rounds:
                lock = try_lock(directory, writer)
                if lock is None:
                    continue
                with guard:
                    counter["held"] += 1
                    counter["most"] = max(counter["most"], counter["held"])
                if not lock._is_ours():
                    failures.append("taken away while held")
                with guard:
                    counter["held"] -= 1
                if done % 3 == 0:  # die instead of letting go
                    write_lock(tmp_path, pid=dead)
                else:
                    lock.release()
                done += 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert counter["most"] == 1
    assert names(tmp_path) <= {LOCK_NAME}


async def test_what_a_killed_writer_left_is_cleared_by_the_next_put(tmp_path: Path) -> None:
    """Its temporaries, not those of a writer that works without a lock."""
    store = FilesystemSnapshotStore(tmp_path)
    await store.put(sample_snapshot())
    source = tmp_path / source_directory("source")
    dead, other = dead_process(), os.getppid()
    write_lock(source, pid=dead)
    token = "00000000-0000-4000-8000-000000000000"
    left = [source / folder / f"x.json.{dead}.{token}.tmp" for folder in (".", "capacity-index", "identity-index")]
    kept = source / f"x.json.{other}.{token}.tmp"
    for path in (*left, kept):
        path.write_text("half")
    await store.put(sample_snapshot(1))
    assert not any(path.exists() for path in left)
    assert kept.exists()
    assert not (source / LOCK_NAME).exists()
