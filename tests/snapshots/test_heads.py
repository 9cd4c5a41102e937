"""Which records may be the newest, and when that may be remembered."""

from __future__ import annotations

import os
import time
from pathlib import Path

from forage._files import OpenDirectory
from forage.snapshots.heads import RememberedHeads, head_candidates

DIGEST = "0" * 64


def name(at: str) -> str:
    return f"{at}-{DIGEST}.json"


def test_candidates_are_the_names_of_the_greatest_time() -> None:
    newest = [f"2026-09-01T00-00-02.000Z-{digit * 64}.json" for digit in "ab"]
    assert head_candidates([name("2026-09-01T00-00-01.000Z"), *newest]) == tuple(newest)
    assert head_candidates([]) == ()


def test_whole_seconds_sort_above_their_fractions() -> None:
    """As texts do: Z is above the full stop."""
    assert head_candidates([name("2026-09-01T00-00-00Z"), name("2026-09-01T00-00-00.5Z")]) == (name("2026-09-01T00-00-00Z"),)


def test_one_name_without_a_time_makes_all_be_read() -> None:
    assert head_candidates([name("2026-09-01T00-00-01.000Z"), "2026-09-01T00-00-00.000Z-0123456789ab.json"]) is None
    assert head_candidates([name("yesterday")]) is None


class Counted:
    """A folder whose listings are counted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.listings = 0

    def names(self) -> list[str]:
        self.listings += 1
        return [p.name for p in self.path.iterdir()]

    def candidates(self, heads: RememberedHeads) -> tuple[str, ...] | None:
        with OpenDirectory(self.path) as directory:
            return heads.candidates("key", directory, self.names)


def test_a_folder_that_stands_still_is_listed_no_more(tmp_path: Path) -> None:
    heads, counted = RememberedHeads(), Counted(tmp_path)
    (tmp_path / name("2026-09-01T00-00-01.000Z")).touch()
    for _ in range(3):
        assert counted.candidates(heads) == (name("2026-09-01T00-00-01.000Z"),)
    assert counted.listings == 3  # too young: a change in the same tick of the clock would not show
    time.sleep(0.06)
    for _ in range(5):
        assert counted.candidates(heads) == (name("2026-09-01T00-00-01.000Z"),)
    assert counted.listings == 4


def test_any_change_of_the_folder_makes_it_be_listed_again(tmp_path: Path) -> None:
    heads, counted = RememberedHeads(), Counted(tmp_path)
    for second in range(1, 4):
        (tmp_path / name(f"2026-09-01T00-00-0{second}.000Z")).touch()
        for _ in range(2):
            assert counted.candidates(heads) == (name(f"2026-09-01T00-00-0{second}.000Z"),)
            time.sleep(0.06)
    (tmp_path / name("2026-09-01T00-00-03.000Z")).unlink()
    assert counted.candidates(heads) == (name("2026-09-01T00-00-02.000Z"),)


def test_changes_within_one_tick_are_not_missed(tmp_path: Path) -> None:
    heads, counted = RememberedHeads(), Counted(tmp_path)
    for second in range(200):
        at = name(f"2026-09-01T00-{second // 60:02d}-{second % 60:02d}.000Z")
        (tmp_path / at).touch()
        assert counted.candidates(heads) == (at,)


def test_a_file_system_of_coarse_times_is_trusted_later(tmp_path: Path) -> None:
    heads, counted = RememberedHeads(), Counted(tmp_path)
    os.utime(tmp_path, (1_000_000_000, 1_000_000_000))
    for _ in range(3):
        counted.candidates(heads)
        time.sleep(0.06)
    assert counted.listings == 3


def test_the_memory_is_bounded(tmp_path: Path) -> None:
    heads = RememberedHeads()
    with OpenDirectory(tmp_path) as directory:
        for number in range(5000):
            heads.candidates(str(number), directory, list)
    assert len(heads._seen) <= 4096
