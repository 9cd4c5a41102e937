"""The capacity index: choosing slots, and telling what cannot be chosen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage._files import OpenDirectory
from forage.errors import HistoryFullError, SnapshotStoreError, StoreErrorReason
from forage.snapshots.records import first_slot
from forage.snapshots.slots import SLOT_FILE, CapacityIndex, read_entry


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[OpenDirectory]:
    with OpenDirectory(tmp_path) as directory:
        yield directory


def names_starting_at(slot: int, ceiling: int, count: int) -> list[str]:
    found = []
    for number in range(100_000):
        name = f"record-{number}.json"
        if first_slot(name, ceiling) == slot:
            found.append(name)
        if len(found) == count:
            break
    return found


def test_the_search_begins_at_the_hash_and_wraps_around(folder: OpenDirectory) -> None:
    names = names_starting_at(3, 5, 5)
    index = CapacityIndex(folder, 5)
    assert [index.reserve(name) for name in names] == [3, 4, 0, 1, 2]
    assert [index.reserve(name) for name in names] == [None] * 5
    with pytest.raises(HistoryFullError):
        index.reserve("one more.json")


def test_slots_on_disk_are_taken_unless_their_text_is_ours(tmp_path: Path, folder: OpenDirectory) -> None:
    first, second, third = names_starting_at(1, 4, 3)
    (tmp_path / "1.txt").write_text(first)
    (tmp_path / "2.txt").write_text("anything else")
    index = CapacityIndex(folder, 4)
    assert index.reserve(first) is None
    assert index.reserve(second) == 3
    assert index.slot_of(first) == 1
    assert index.slot_of(third) is None
    index.give(3, None)
    assert index.reserve(third) == 3


def test_a_slot_that_another_writer_took_is_looked_past(tmp_path: Path, folder: OpenDirectory) -> None:
    name, other = names_starting_at(0, 3, 2)
    index = CapacityIndex(folder, 3)
    assert index.reserve(name) == 0
    (tmp_path / "0.txt").write_text(other)
    assert index.reserve_again(name, 0) == 1
    (tmp_path / "1.txt").write_text(name)
    assert index.reserve_again(name, 1) is None


def test_a_slot_is_found_also_where_a_search_would_end(tmp_path: Path, folder: OpenDirectory) -> None:
    """A slot before it was freed since."""
    (name,) = names_starting_at(0, 4, 1)
    (tmp_path / "2.txt").write_text(name)
    assert CapacityIndex(folder, 4).slot_of(name) == 2


def test_the_ceiling_on_record_must_be_ours(tmp_path: Path, folder: OpenDirectory) -> None:
    index = CapacityIndex(folder, 4)
    assert not index.ceiling_is_published()
    (tmp_path / "max-history-files.txt").write_text("4\n")
    assert index.ceiling_is_published()
    for text in ("5", "04", ""):
        (tmp_path / "max-history-files.txt").write_text(text)
        with pytest.raises(SnapshotStoreError) as caught:
            index.ceiling_is_published()
        assert caught.value.reason is StoreErrorReason.CEILING_CHANGED


@pytest.mark.parametrize(("text", "marked"), [("1", True), (" 1\n", True), ("0", False), ("", False), ("1" * 600, False)])
def test_the_mark_of_initialisation_is_a_one(tmp_path: Path, folder: OpenDirectory, text: str, marked: bool) -> None:
    (tmp_path / "initialized.txt").write_text(text)
    assert CapacityIndex(folder, 4).is_initialized() is marked


def test_all_slots_are_read_untrimmed_and_no_more_than_the_ceiling(tmp_path: Path, folder: OpenDirectory) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"name {number}\n")
    (tmp_path / "03.txt").write_text("no slot")
    (tmp_path / "initialized.txt").write_text("1")
    assert CapacityIndex(folder, 3).slots() == {0: "name 0\n", 1: "name 1\n", 2: "name 2\n"}
    with pytest.raises(SnapshotStoreError) as caught:
        CapacityIndex(folder, 2).slots()
    assert caught.value.reason is StoreErrorReason.READ_LIMIT


def test_an_entry_is_a_small_regular_file(tmp_path: Path, folder: OpenDirectory) -> None:
    assert read_entry(folder, "absent.txt") is None
    (tmp_path / "large.txt").write_text("x" * 513)
    assert read_entry(folder, "large.txt") == "\n"
    (tmp_path / "link.txt").symlink_to("large.txt")
    with pytest.raises(SnapshotStoreError) as caught:
        read_entry(folder, "link.txt")
    assert caught.value.reason is StoreErrorReason.NON_REGULAR_ENTRY


@given(st.lists(st.integers(0, 40), min_size=1, max_size=40), st.integers(1, 40))
def test_no_two_records_share_a_slot_and_none_has_two(tmp_path_factory: pytest.TempPathFactory, picks: list[int], ceiling: int) -> None:
    with OpenDirectory(tmp_path_factory.mktemp("slots")) as directory:
        index = CapacityIndex(directory, ceiling)
        given_slots: dict[str, int] = {}
        for pick in picks:
            name = f"{pick}.json"
            if name not in given_slots and len(given_slots) == ceiling:
                with pytest.raises(HistoryFullError):
                    index.reserve(name)
                continue
            number = index.reserve(name)
            assert (number is None) is (name in given_slots)
            if number is not None:
                given_slots[name] = number
        assert len(set(given_slots.values())) == len(given_slots)
        assert all(0 <= number < ceiling for number in given_slots.values())


@pytest.mark.parametrize(("name", "is_slot"), [("0.txt", True), ("10.txt", True), ("01.txt", False), ("-1.txt", False), ("1.txt.x", False)])
def test_slot_names_have_no_leading_zeros(name: str, is_slot: bool) -> None:
    assert (SLOT_FILE.fullmatch(name) is not None) is is_slot
