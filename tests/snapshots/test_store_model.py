"""The stores against a plain dictionary, through random sequences of writes and reads; two file stores share one root."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from forage.errors import HistoryFullError, SourceRefErrorCode
from forage.snapshots import (
    FilesystemSnapshotStore,
    FindKind,
    HeadKind,
    MemorySnapshotStore,
    Snapshot,
    SnapshotStore,
    build_source_ref,
    identity_digest,
    lookup_of,
    resolve_source_ref,
    snapshot_digest,
    source_directory,
)
from forage.snapshots.records import newest_first
from forage.testing import sample_snapshot

SOURCES = ("one", "two/../..")
CEILING = 5

snapshots = st.builds(
    lambda source, number, body, headers: sample_snapshot(number, source_id=source, body=body, headers=headers),
    st.sampled_from(SOURCES),
    st.integers(0, 3),
    st.sampled_from(["same", "other", b"\x00"]),
    st.sampled_from([None, {}, {"a": "b"}]),
)
which = st.integers(0, 1)


class StoreModel(RuleBasedStateMachine):
    """The dictionary says what each source holds; the stores must agree, at every step, and never hold anything else."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.model: dict[str, dict[str, Snapshot]] = {source: {} for source in SOURCES}
        self.memory = MemorySnapshotStore()

    stores: list[FilesystemSnapshotStore]

    @initialize()
    def open(self) -> None:
        self.stores = [FilesystemSnapshotStore(self.root, max_history_files=CEILING) for _ in range(2)]

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def history(self, source: str) -> list[Snapshot]:
        return sorted(self.model[source].values(), key=newest_first, reverse=True)

    @rule(which=which, batch=st.lists(snapshots, min_size=1, max_size=4))
    def put(self, which: int, batch: list[Snapshot]) -> None:
        """One after another, so that it is known which ones a full history refuses."""

        async def run() -> None:
            for snapshot in batch:
                held = self.model[snapshot.source_id]
                digest = snapshot_digest(snapshot)
                full = len(held) == CEILING and digest not in held
                try:
                    await self.stores[which].put(snapshot)
                    assert not full
                except HistoryFullError:
                    assert full
                    continue
                if digest not in held:
                    await self.memory.put(snapshot)
                held[digest] = snapshot

        trio.run(run)

    @rule(batch=st.lists(snapshots, min_size=2, max_size=6))
    def put_side_by_side(self, batch: list[Snapshot]) -> None:
        """Through both stores at once; whoever finds the history full, the history is full."""
        kept: list[Snapshot] = []

        async def put(which: int, snapshot: Snapshot) -> None:
            try:
                await self.stores[which].put(snapshot)
                kept.append(snapshot)
            except HistoryFullError:
                pass

        async def run() -> None:
            async with trio.open_nursery() as nursery:
                for number, snapshot in enumerate(batch):
                    nursery.start_soon(put, number % 2, snapshot)
            for snapshot in kept:
                held = self.model[snapshot.source_id]
                if snapshot_digest(snapshot) not in held:
                    await self.memory.put(snapshot)
                held[snapshot_digest(snapshot)] = snapshot
            for snapshot in batch:
                held = self.model[snapshot.source_id]
                assert snapshot in kept or len(held) == CEILING

        trio.run(run)

    @rule(which=which, source=st.sampled_from(SOURCES), keep_last=st.integers(0, 3), keep=st.lists(snapshots, max_size=2))
    def prune(self, which: int, source: str, keep_last: int, keep: list[Snapshot]) -> None:
        history = self.history(source)
        named = [lookup_of(snapshot) for snapshot in keep]
        kept = [s for n, s in enumerate(history) if n < max(keep_last, 1) or s in keep]

        async def run() -> None:
            for store in (self.stores[which], self.memory):
                result = await store.prune(source, keep_last=keep_last, keep=named)
                assert (result.removed, result.retained) == (len(history) - len(kept), len(kept))

        trio.run(run)
        self.model[source] = {snapshot_digest(s): s for s in kept}

    @rule(which=which, snapshot=snapshots)
    def look_up(self, which: int, snapshot: Snapshot) -> None:
        held = self.model[snapshot.source_id]
        present = snapshot_digest(snapshot) in held
        same_identity = [s for s in held.values() if identity_digest(s) == identity_digest(snapshot)]

        async def run() -> None:
            for store in (self.stores[which], self.memory):
                found = await store.find_exact(lookup_of(snapshot))
                assert (found.kind, found.snapshot) == ((FindKind.FOUND, snapshot) if present else (FindKind.MISSING, None))
                by_identity = await store.find_exact(lookup_of(snapshot, released=True))
                assert (by_identity.kind is FindKind.FOUND) is bool(same_identity)
                assert by_identity.snapshot is None or by_identity.snapshot in same_identity
                resolved = await resolve_source_ref(store, build_source_ref(snapshot))
                assert resolved.ok is present
                assert present or (resolved.error and resolved.error.kind is SourceRefErrorCode.SNAPSHOT_NOT_FOUND)

        trio.run(run)

    @rule(which=which, source=st.sampled_from(SOURCES), prefix=st.sampled_from(["", "0", "f", "zz"]))
    def get(self, which: int, source: str, prefix: str) -> None:
        wanted = next((s for s in self.history(source) if s.body_hash.startswith(prefix)), None)
        assert trio.run(self.stores[which].get, source, prefix) == wanted
        assert trio.run(self.memory.get, source, prefix) == wanted

    @invariant()
    def stores_hold_what_the_model_holds(self) -> None:
        async def run() -> None:
            for source in SOURCES:
                history = tuple(self.history(source))
                every: list[SnapshotStore] = [*self.stores, self.memory]
                for store in every:
                    assert await store.list(source) == history
                    assert await store.latest(source) == (history[0] if history else None)

        if hasattr(self, "stores"):
            trio.run(run)

    @invariant()
    def every_record_has_one_slot_and_its_identity_an_entry(self) -> None:
        for source in SOURCES:
            folder = self.root / source_directory(source)
            if not (folder / "identity-index").exists():
                continue
            slots = [p.read_text() for p in (folder / "capacity-index").iterdir() if p.name[0].isdigit()]
            records = {p.name for p in folder.glob("*.json")}
            assert sorted(slots) == sorted(records)
            entries = {p.stem: p.read_text() for p in (folder / "identity-index").iterdir()}
            assert set(entries) == {identity_digest(s) for s in self.model[source].values()}
            assert set(entries.values()) <= records
            assert {p.name for p in folder.iterdir()} == records | {"capacity-index", "identity-index"}

    @rule(source=st.sampled_from(SOURCES))
    def witness(self, source: str) -> None:
        head = trio.run(self.stores[0].read_verified_head, source)
        history = self.history(source)
        identities = {identity_digest(s) for s in history}
        if not history:
            assert head.kind in {HeadKind.MISSING, HeadKind.UNAVAILABLE}
        elif len(identities) == len(history):
            assert (head.kind, head.head) == (HeadKind.FOUND, lookup_of(history[0]))
        else:  # an identity leads to one envelope; of two there is no witness
            assert head.kind is HeadKind.UNAVAILABLE


TestStoreModel = StoreModel.TestCase
TestStoreModel.settings = settings(max_examples=25, stateful_step_count=12, suppress_health_check=list(HealthCheck))
