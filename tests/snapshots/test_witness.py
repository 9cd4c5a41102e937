"""Head witnesses: when there is one, and what changes it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forage.snapshots import (
    FilesystemSnapshotStore,
    HeadKind,
    HeadWitness,
    WitnessOutcome,
    compare_head_witness,
    identity_digest,
    lookup_of,
    read_verified_head,
    record_name,
    source_directory,
)
from forage.snapshots.records import encode_record, released_record_name
from forage.snapshots.witness import parse_witness
from forage.testing import sample_snapshot

SOURCE = source_directory("source")


async def filled(root: Path) -> FilesystemSnapshotStore:
    store = FilesystemSnapshotStore(root, max_history_files=8)
    for number in (1, 3, 2):
        await store.put(sample_snapshot(number))
    return store


async def witness_of(store: FilesystemSnapshotStore) -> HeadWitness:
    head = await store.read_verified_head("source")
    assert head.witness is not None
    return head.witness


async def test_the_head_is_the_newest_and_its_witness_matches(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    head = await read_verified_head(store, "source")
    assert (head.kind, head.head) == (HeadKind.FOUND, lookup_of(sample_snapshot(3)))
    assert head.witness is not None
    assert head.witness.source_id == "source"
    for _ in range(2):
        assert await compare_head_witness(store, head.witness) is WitnessOutcome.MATCHES
        assert await compare_head_witness(store, head.witness.to_json()) is WitnessOutcome.MATCHES
    assert await witness_of(store) == head.witness


async def test_comparing_reads_no_record(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    witness = await witness_of(store)
    assert await store.compare_head_witness(witness, max_verified_body_bytes=96 * 1024 * 1024) is WitnessOutcome.MATCHES
    path = tmp_path / SOURCE / record_name(sample_snapshot(1))
    facts = path.stat()
    with path.open("r+b") as file:
        file.write(b"[")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    # The time of the last change of the inode gives it away, without a look at the content.
    assert await store.compare_head_witness(witness) is WitnessOutcome.CHANGED


async def put_again(store: FilesystemSnapshotStore) -> None:
    await store.put(sample_snapshot(1))


async def put_more(store: FilesystemSnapshotStore) -> None:
    await store.put(sample_snapshot(9))


async def put_elsewhere(store: FilesystemSnapshotStore) -> None:
    await store.put(sample_snapshot(source_id="other"))


async def prune_nothing(store: FilesystemSnapshotStore) -> None:
    await store.prune("source", keep_last=10)


async def prune_some(store: FilesystemSnapshotStore) -> None:
    await store.prune("source", keep_last=1)


@pytest.mark.parametrize("write", [put_again, put_more, put_elsewhere, prune_nothing, prune_some], ids=lambda f: f.__name__)
async def test_every_write_changes_the_witness(tmp_path: Path, write: Callable[[FilesystemSnapshotStore], Any]) -> None:
    store = await filled(tmp_path)
    witness = await witness_of(store)
    await write(store)
    assert await store.compare_head_witness(witness) is WitnessOutcome.CHANGED
    assert (await witness_of(store)).token != witness.token


async def test_of_nothing_there_is_no_witness(tmp_path: Path) -> None:
    store = FilesystemSnapshotStore(tmp_path / "store")
    assert (await store.read_verified_head("source")).kind is HeadKind.MISSING
    await FilesystemSnapshotStore(tmp_path / "store").put(sample_snapshot(source_id="other"))
    assert (await store.read_verified_head("source")).kind is HeadKind.MISSING


def link_away(path: Path) -> None:
    path.rename(path.parent.parent / "gone")
    path.symlink_to(path.parent.parent / "gone")


def lay_released(folder: Path) -> None:
    snapshot = sample_snapshot(0)
    (folder / str(released_record_name(snapshot.fetched_at, snapshot.body_hash))).write_bytes(encode_record(snapshot))


def swap_entries(folder: Path) -> None:
    one, other = (folder / "identity-index" / f"{identity_digest(sample_snapshot(n))}.txt" for n in (1, 2))
    texts = one.read_text(), other.read_text()
    one.write_text(texts[1])
    other.write_text(texts[0])


Damage = Callable[[Path], object]
STATES: list[tuple[str, Damage, HeadKind]] = [
    ("a lock", lambda f: (f / "source.lock").write_text("x"), HeadKind.UNAVAILABLE),
    ("a temporary", lambda f: (f / "x.tmp").write_text("x"), HeadKind.UNAVAILABLE),
    ("a temporary in an index", lambda f: (f / "identity-index" / "x.tmp").write_text("x"), HeadKind.UNAVAILABLE),
    ("a slot with a leading zero", lambda f: (f / "capacity-index" / "01.txt").write_text("x"), HeadKind.UNAVAILABLE),
    ("a slot beyond the ceiling", lambda f: (f / "capacity-index" / "8.txt").write_text("x"), HeadKind.UNAVAILABLE),
    ("no capacity index", lambda f: (f / "capacity-index").rename(f.parent / "gone"), HeadKind.UNAVAILABLE),
    ("no identity index", lambda f: (f / "identity-index").rename(f.parent / "gone"), HeadKind.UNAVAILABLE),
    ("a link for an index", lambda f: link_away(f / "identity-index"), HeadKind.CORRUPT),
    ("a link for a record", lambda f: link_away(f / record_name(sample_snapshot(1))), HeadKind.CORRUPT),
    ("no mark of initialisation", lambda f: (f / "capacity-index" / "initialized.txt").unlink(), HeadKind.UNSUPPORTED),
    ("another ceiling", lambda f: (f / "capacity-index" / "max-history-files.txt").write_text("9"), HeadKind.UNSUPPORTED),
    ("space around it", lambda f: (f / "capacity-index" / "max-history-files.txt").write_text(" 8\n"), HeadKind.FOUND),
    ("a released record", lay_released, HeadKind.UNSUPPORTED),
    ("a strange record name", lambda f: (f / "x.json").write_text("{}"), HeadKind.CORRUPT),
    ("a damaged record", lambda f: (f / record_name(sample_snapshot(1))).write_text("{}"), HeadKind.CORRUPT),
    ("a missing record", lambda f: (f / record_name(sample_snapshot(1))).unlink(), HeadKind.UNAVAILABLE),
    ("an entry of another identity", swap_entries, HeadKind.UNAVAILABLE),
]


@pytest.mark.parametrize(("why", "damage", "kind"), STATES, ids=[state[0] for state in STATES])
async def test_other_states_than_writers_leave_have_their_kind(tmp_path: Path, why: str, damage: Damage, kind: HeadKind) -> None:
    store = await filled(tmp_path / "store")
    damage(tmp_path / "store" / SOURCE)
    assert (await store.read_verified_head("source")).kind is kind


async def test_a_root_that_is_a_link_is_corrupt(tmp_path: Path) -> None:
    await filled(tmp_path / "store")
    (tmp_path / "link").symlink_to("store")
    store = FilesystemSnapshotStore(tmp_path / "link", max_history_files=8)
    assert (await store.read_verified_head("source")).kind is HeadKind.CORRUPT
    assert (await store.latest("source")) is not None


@pytest.mark.parametrize(
    "limits",
    [
        {"max_entries": 9},
        {"max_entries": -1},
        {"max_entries": True},
        {"max_index_bytes": 8 * 1024 * 1024 + 1},
        {"max_verified_body_bytes": 1.5},
    ],
)
async def test_limits_beyond_the_owners_are_unsupported(tmp_path: Path, limits: dict[str, Any]) -> None:
    store = await filled(tmp_path)
    assert (await store.read_verified_head("source", **limits)).kind is HeadKind.UNSUPPORTED
    assert await store.compare_head_witness(await witness_of(store), **limits) is WitnessOutcome.UNSUPPORTED


async def test_limits_bound_what_is_read(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    index_bytes = sum(p.stat().st_size for name in ("capacity-index", "identity-index") for p in (tmp_path / SOURCE / name).iterdir())
    bodies = sum(p.stat().st_size for p in (tmp_path / SOURCE).glob("*.json"))
    for limits in ({"max_entries": 3}, {"max_index_bytes": 2 * index_bytes}, {"max_verified_body_bytes": bodies}):
        assert (await store.read_verified_head("source", **limits)).kind is HeadKind.FOUND
    for limits in ({"max_entries": 2}, {"max_index_bytes": 2 * index_bytes - 1}, {"max_verified_body_bytes": bodies - 1}):
        assert (await store.read_verified_head("source", **limits)).kind is HeadKind.UNAVAILABLE
    # A comparison looks once.
    assert await store.compare_head_witness(await witness_of(store), max_index_bytes=index_bytes) is WitnessOutcome.MATCHES


@pytest.mark.parametrize("source_id", ["", "x" * 1025, None, 7])
async def test_impossible_sources_are_unsupported(tmp_path: Path, source_id: Any) -> None:
    assert (await FilesystemSnapshotStore(tmp_path).read_verified_head(source_id)).kind is HeadKind.UNSUPPORTED


async def test_only_the_exact_exchange_form_is_a_witness(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    good = (await witness_of(store)).to_json()
    assert parse_witness(good) is not None
    bad: list[Any] = [
        None,
        [],
        {},
        {**good, "more": 1},
        {**good, "format": "forage.source-head-witness/v2"},
        {**good, "token": "A" * 64},
        {**good, "token": 7},
        {**good, "sourceId": "other"},
        {**good, "headSnapshotRef": None},
        {**good, "headSnapshotRef": {**good["headSnapshotRef"], "snapshotDigest": None}},
        {**good, "headSnapshotRef": {**good["headSnapshotRef"], "url": ""}},
        {**good, "headSnapshotRef": {**good["headSnapshotRef"], "url": 7}},
        {k: v for k, v in good.items() if k != "token"},
    ]
    for value in bad:
        assert await store.compare_head_witness(value) is WitnessOutcome.UNSUPPORTED
