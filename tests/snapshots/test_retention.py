"""What a prune keeps."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.errors import InvalidSnapshotError
from forage.snapshots import Lookup, RetentionPlan, lookup_of, plan_retention, validate_prune
from forage.snapshots.records import newest_first
from tests.snapshots.strategies import page

HISTORY = tuple(lookup_of(page(fetched_at=f"2026-01-{day:02d}T00:00:00.000Z")) for day in range(9, 0, -1))  # newest first


def days(plan: RetentionPlan) -> list[int]:
    return [int(item.fetched_at[8:10]) for item in plan.kept]


def test_the_head_stays_whatever_is_asked() -> None:
    assert days(plan_retention(HISTORY, keep_last=0)) == [9]
    assert days(plan_retention(HISTORY, keep_last=1)) == [9]
    assert plan_retention((), keep_last=0) == RetentionPlan(kept=(), victims=())


def test_the_newest_stay_in_whatever_order_they_are_given() -> None:
    assert days(plan_retention(reversed(HISTORY), keep_last=3)) == [9, 8, 7]
    assert days(plan_retention(HISTORY, keep_last=2**53 - 1)) == [9, 8, 7, 6, 5, 4, 3, 2, 1]


def test_named_snapshots_stay() -> None:
    assert days(plan_retention(HISTORY, keep_last=1, keep=[HISTORY[6], HISTORY[8]])) == [9, 3, 1]
    other = attrs.evolve(HISTORY[6], snapshot_digest="0" * 64)
    elsewhere = attrs.evolve(HISTORY[6], url="https://example.test/other")
    assert days(plan_retention(HISTORY, keep_last=1, keep=[other, elsewhere])) == [9]


def test_a_name_without_digest_keeps_every_snapshot_of_its_identity() -> None:
    twins = [lookup_of(page(headers={"a": value}, fetched_at="2025-01-01T00:00:00.000Z")) for value in "12"]
    identity = attrs.evolve(twins[0], snapshot_digest=None)
    plan = plan_retention([*HISTORY, *twins], keep_last=1, keep=[identity])
    assert set(plan.kept) == {HISTORY[0], *twins}


def test_several_records_of_one_snapshot_count_once() -> None:
    plan = plan_retention([*HISTORY, *HISTORY], keep_last=2)
    assert days(plan) == [9, 8]
    assert len(plan.victims) == 7


@given(st.lists(st.sampled_from(HISTORY)), st.integers(0, 12), st.lists(st.sampled_from(HISTORY)))
def test_a_plan_parts_the_history(history: list[Lookup], keep_last: int, keep: list[Lookup]) -> None:
    plan = plan_retention(history, keep_last=keep_last, keep=keep)
    assert set(plan.kept) | set(plan.victims) == set(history)
    assert not set(plan.kept) & set(plan.victims)
    assert len(plan.kept) + len(plan.victims) == len(set(history))
    assert set(keep) & set(history) <= set(plan.kept)
    assert sorted(plan.kept, key=newest_first, reverse=True) == list(plan.kept)
    if history:
        assert max(history, key=newest_first) in plan.kept


@pytest.mark.parametrize("keep_last", [-1, 2**53, True, 1.0, "1", None])
def test_keep_last_is_a_safe_integer(keep_last: int) -> None:
    with pytest.raises(InvalidSnapshotError, match="keep_last"):
        validate_prune("s", keep_last)


def test_a_request_is_checked_as_a_whole() -> None:
    validate_prune("s", 0, HISTORY)
    validate_prune("s", 2**53 - 1, [attrs.evolve(HISTORY[0], snapshot_digest=None)])
    with pytest.raises(InvalidSnapshotError, match="source_id"):
        validate_prune("", 1)
    for keep in ("x", {HISTORY[0]}, [HISTORY[0].url], None):
        with pytest.raises(InvalidSnapshotError, match="keep"):
            validate_prune("s", 1, keep)  # type: ignore[arg-type]
    with pytest.raises(InvalidSnapshotError, match="body_hash"):
        validate_prune("s", 1, [attrs.evolve(HISTORY[0], body_hash="x")])
