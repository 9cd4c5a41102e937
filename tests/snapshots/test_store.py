"""The store in memory, resolving and replaying; what every store must do is in tests/contracts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from forage.errors import (
    FetchError,
    FetchErrorKind,
    InvalidSnapshotError,
    SnapshotCorruptError,
    SnapshotStoreError,
    SourceRefError,
    SourceRefErrorCode,
    StoreBusyError,
    StoreErrorCode,
    StoreErrorReason,
)
from forage.snapshots import (
    FilesystemSnapshotStore,
    FindKind,
    FindResult,
    HeadKind,
    Lookup,
    MemorySnapshotStore,
    Snapshot,
    WitnessOutcome,
    build_source_ref,
    compare_head_witness,
    format_source_ref,
    lookup_of,
    read_verified_head,
    replay_source,
    resolve_source_ref,
)
from forage.testing import sample_snapshot


class Answering(MemorySnapshotStore):
    """A store that gives one answer to everything, or fails; counts how often it is asked."""

    def __init__(self, answer: FindResult | Snapshot | Exception | None) -> None:
        super().__init__()
        self.answer = answer
        self.asked = 0

    async def find_exact(self, lookup: Lookup) -> FindResult:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        assert isinstance(self.answer, FindResult)
        return self.answer

    async def latest(self, source_id: str) -> Snapshot | None:
        if isinstance(self.answer, Exception):
            raise self.answer
        assert not isinstance(self.answer, FindResult)
        return self.answer


def found(snapshot: Snapshot | None) -> FindResult:
    return FindResult(kind=FindKind.FOUND, snapshot=snapshot)


CITED = sample_snapshot()
REF = build_source_ref(CITED)
OLD_REF = format_source_ref(lookup_of(CITED, released=True))
CORRUPT = SnapshotCorruptError(StoreErrorReason.MALFORMED_RECORD, "not JSON")
UNREADABLE = SnapshotStoreError(StoreErrorCode.SNAPSHOT_STORE_ERROR, StoreErrorReason.READ_FAILED, "could not be read")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (FindResult(kind=FindKind.MISSING), SourceRefErrorCode.SNAPSHOT_NOT_FOUND),
        (FindResult(kind=FindKind.MISMATCH), SourceRefErrorCode.SNAPSHOT_MISMATCH),
        (found(None), SourceRefErrorCode.SNAPSHOT_MISMATCH),
        (CORRUPT, SourceRefErrorCode.SNAPSHOT_CORRUPT),
        (UNREADABLE, SourceRefErrorCode.SNAPSHOT_STORE_ERROR),
        (StoreBusyError(), SourceRefErrorCode.SNAPSHOT_STORE_ERROR),
        (RuntimeError("anything"), SourceRefErrorCode.SNAPSHOT_STORE_ERROR),
        (ExceptionGroup("several", [ValueError()]), SourceRefErrorCode.SNAPSHOT_STORE_ERROR),
    ],
)
async def test_every_answer_of_a_store_has_its_code(answer: FindResult | Exception, kind: SourceRefErrorCode) -> None:
    result = await resolve_source_ref(Answering(answer), REF)
    assert not result.ok
    assert result.error is not None
    assert result.error.kind is kind
    assert "anything" not in result.error.message
    with pytest.raises(SourceRefError) as caught:
        result.unwrap()
    assert caught.value.code is kind


@pytest.mark.parametrize(
    "lie",
    [
        {"url": "https://example.test/other"},
        {"source_id": "other"},
        {"fetched_at": "2026-09-01T00:00:01.000Z"},
        {"status": 500},
        {"headers": {}},
    ],
)
async def test_a_store_that_returns_another_snapshot_is_not_believed(lie: dict[str, Any]) -> None:
    result = await resolve_source_ref(Answering(found(sample_snapshot(**lie))), REF)
    assert result.error is not None
    assert result.error.kind is SourceRefErrorCode.SNAPSHOT_MISMATCH


async def test_a_store_that_returns_an_undurable_snapshot_fails() -> None:
    result = await resolve_source_ref(Answering(found(attrs.evolve(CITED, body="changed"))), REF)
    assert result.error is not None
    assert result.error.kind is SourceRefErrorCode.SNAPSHOT_STORE_ERROR


async def test_old_references_commit_to_body_and_identity_alone() -> None:
    other_envelope = sample_snapshot(status=500)
    assert (await resolve_source_ref(Answering(found(other_envelope)), OLD_REF)).unwrap() == other_envelope


@pytest.mark.parametrize("text", ["", "forage-snapshot:", REF + "&x=1", REF.replace("%3A", "%3a"), REF[:-1], "https://example.test/"])
async def test_the_store_is_not_asked_for_what_is_not_canonical(text: str) -> None:
    store = Answering(found(CITED))
    result = await resolve_source_ref(store, text)
    assert result.error is not None
    assert result.error.kind is SourceRefErrorCode.INVALID_REFERENCE
    assert store.asked == 0


async def test_what_is_resolved_bears_no_mark_of_revalidation() -> None:
    result = await resolve_source_ref(Answering(found(attrs.evolve(CITED, not_modified=True))), REF)
    assert result.unwrap() == CITED


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (None, FetchErrorKind.NO_SNAPSHOT),
        (CORRUPT, FetchErrorKind.SNAPSHOT_CORRUPT),
        (UNREADABLE, FetchErrorKind.SNAPSHOT_STORE_ERROR),
        (RuntimeError("anything"), FetchErrorKind.SNAPSHOT_STORE_ERROR),
    ],
)
async def test_every_failure_to_replay_has_its_kind(answer: Exception | None, kind: FetchErrorKind) -> None:
    result = await replay_source(Answering(answer), "source")
    assert not result.ok
    assert result.error is not None
    assert result.error.kind is kind
    with pytest.raises(FetchError) as caught:
        result.unwrap()
    assert caught.value.kind is kind


async def test_replay_gives_the_newest() -> None:
    store = MemorySnapshotStore()
    for number in (1, 3, 2):
        await store.put(sample_snapshot(number))
    assert (await replay_source(store, "source")).unwrap() == sample_snapshot(3)


async def test_memory_store_lists_the_same_put_twice_and_finds_the_last_of_an_identity() -> None:
    store = MemorySnapshotStore()
    first, second = sample_snapshot(headers={"a": "1"}), sample_snapshot(headers={"a": "2"})
    for snapshot in (second, first, first):
        await store.put(snapshot)
    assert sorted(await store.list("source"), key=str) == sorted((first, first, second), key=str)
    assert (await store.find_exact(lookup_of(first, released=True))).snapshot == first


async def test_a_store_without_witness_is_unsupported() -> None:
    store = MemorySnapshotStore()
    await store.put(CITED)
    assert (await read_verified_head(store, "source")).kind is HeadKind.UNSUPPORTED
    assert await compare_head_witness(store, {}) is WitnessOutcome.UNSUPPORTED


@pytest.mark.parametrize("wrong", [None, 5, b"source", [], {}, object()])
@pytest.mark.parametrize("kind", [MemorySnapshotStore, FilesystemSnapshotStore])
async def test_an_argument_of_a_wrong_type_is_refused_by_name(kind: type[Any], wrong: Any, tmp_path: Path) -> None:
    store = kind(tmp_path) if kind is FilesystemSnapshotStore else kind()
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("source_id", lambda: store.latest(wrong)),
        ("source_id", lambda: store.list(wrong)),
        ("source_id", lambda: store.get(wrong, "")),
        ("body_hash", lambda: store.get("source", wrong)),
        ("lookup", lambda: store.find_exact(wrong)),
        ("snapshot", lambda: store.put(wrong)),
        ("source_id", lambda: store.prune(wrong, keep_last=1)),
    ]
    for name, call in calls:
        with pytest.raises(InvalidSnapshotError, match=rf"^{name}: takes "):
            await call()
    with pytest.raises(InvalidSnapshotError, match=r"^snapshot: takes "):
        build_source_ref(wrong)
    assert list(tmp_path.iterdir()) == []
