"""Processes that put, prune and read shared sources while they are killed at random.

    python -m tests.snapshots.stress_store [--seconds 60] [--seed N] [--processes 8]

Each process works on the same few sources of one root, through ceilings of 2, 8 and 10,000, and notes what was acknowledged to it and
what it saw, in a journal of its own. While they run, and at the end:

* no read returns a damaged history, more records than the ceiling, or a snapshot that nobody put;
* what was acknowledged and is cited (every prune keeps it) resolves from then on;
* at the end one put and one prune a source make everything sound: one slot and one identity entry a record, nothing left over.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import trio

from forage.errors import HistoryFullError, SnapshotStoreError, StoreBusyError, StoreErrorReason
from forage.snapshots import (
    FilesystemSnapshotStore,
    HeadKind,
    Snapshot,
    build_source_ref,
    lookup_of,
    record_name,
    resolve_source_ref,
    source_directory,
)
from forage.testing import sample_snapshot
from tests.support.trees import paths

__all__ = ["StressError", "stress"]

CEILINGS = (2, 8, 10_000)
SOURCES_A_CEILING = 2
KINDS = 12
"""Different snapshots of each source; few, so that writers meet over the same ones."""


class StressError(AssertionError):
    """A rule was broken."""


def sources() -> list[tuple[str, int]]:
    return [(f"source-{ceiling}-{number}", ceiling) for ceiling in CEILINGS for number in range(SOURCES_A_CEILING)]


def snapshot_of(source_id: str, number: int) -> Snapshot:
    """One of the few; the last two differ from two others in their envelope alone."""
    base, headers = (number - 4, {"envelope": "another"}) if number >= KINDS - 2 else (number, None)
    return sample_snapshot(base, source_id=source_id, body="x" * (base * 7_000), headers=headers)


def cited(number: int) -> bool:
    """Every prune keeps these: once acknowledged, they are there for ever."""
    return number % 2 == 0


# --- one process


class _Worker:
    def __init__(self, root: Path, seed: int, journal: Path) -> None:
        self._random = random.Random(seed)
        self._stores = {ceiling: FilesystemSnapshotStore(root, max_history_files=ceiling) for ceiling in CEILINGS}
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._acknowledged: set[tuple[str, int]] = set()
        self._known = {build_source_ref(snapshot_of(s, n)) for s, _ in sources() for n in range(KINDS)}

    def note(self, **facts: object) -> None:
        os.write(self._journal, (json.dumps(facts) + "\n").encode())

    async def run(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(self._repeat)

    async def _repeat(self) -> None:
        while True:
            source_id, ceiling = self._random.choice(sources())
            act = self._random.choice([self._put, self._put, self._put, self._latest, self._resolve, self._list, self._prune])
            try:
                await act(self._stores[ceiling], source_id)
            except (HistoryFullError, StoreBusyError):
                await trio.lowlevel.checkpoint()
            except SnapshotStoreError as exc:
                # A record that a prune removes while a history is read makes the read fail: it says so, and may be repeated.
                if exc.reason not in {StoreErrorReason.RECORD_DISAPPEARED, StoreErrorReason.READ_RACED}:
                    self.note(failure=f"{act.__name__} {source_id}: {exc!r}")

    async def _put(self, store: FilesystemSnapshotStore, source_id: str) -> None:
        number = self._random.randrange(KINDS)
        await store.put(snapshot_of(source_id, number))
        self.note(put=[source_id, number])
        if cited(number):
            self._acknowledged.add((source_id, number))

    async def _prune(self, store: FilesystemSnapshotStore, source_id: str) -> None:
        keep = [lookup_of(snapshot_of(source_id, number)) for number in range(KINDS) if cited(number)]
        await store.prune(source_id, keep_last=self._random.randrange(4), keep=keep)
        self.note(prune=[source_id])

    async def _latest(self, store: FilesystemSnapshotStore, source_id: str) -> None:
        self._check(await store.latest(source_id))

    async def _list(self, store: FilesystemSnapshotStore, source_id: str) -> None:
        for snapshot in await store.list(source_id):
            self._check(snapshot)

    async def _resolve(self, store: FilesystemSnapshotStore, source_id: str) -> None:
        number = self._random.randrange(KINDS)
        must = (source_id, number) in self._acknowledged
        result = await resolve_source_ref(store, build_source_ref(snapshot_of(source_id, number)))
        if result.snapshot is not None and result.snapshot != snapshot_of(source_id, number):
            self.note(failure=f"{source_id} {number} resolved to something else")
        allowed = {"snapshot-store-error"} if must else {"snapshot-not-found", "snapshot-store-error"}
        if result.error is not None and result.error.kind not in allowed:
            self.note(failure=f"{source_id} {number} did not resolve: {result.error.kind}")

    def _check(self, snapshot: Snapshot | None) -> None:
        if snapshot is not None and build_source_ref(snapshot) not in self._known:
            self.note(failure=f"{snapshot.source_id} holds what nobody put")


# --- all of them, and the killing


def _start(root: Path, seed: int, seconds: float, journals: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.snapshots.stress_store", "--work", str(root), "--seed", str(seed), "--seconds", str(seconds)]
    return subprocess.Popen([*command, "--journal", str(journals / f"{seed}.jsonl")])


def stress(root: Path, *, seconds: float, seed: int, processes: int = 8) -> str:
    """Run, kill, check; one line of figures. StressError when a rule was broken."""
    chance = random.Random(seed)
    journals = root.with_name(root.name + "-journals")
    journals.mkdir()
    root.mkdir(exist_ok=True)
    ends = time.monotonic() + seconds
    number = seed * 1_000_000
    running: list[subprocess.Popen[bytes]] = []
    kills = 0
    try:
        while (left := ends - time.monotonic()) > 0:
            while len(running) < processes:
                number += 1
                running.append(_start(root, number, left, journals))
            time.sleep(chance.uniform(0.05, 0.4))
            victim = running.pop(chance.randrange(len(running)))
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            kills += 1
    finally:
        for process in running:
            process.wait(30)
    if any(process.returncode for process in running):
        raise StressError("a process ended with an error")
    notes = [json.loads(line) for path in journals.iterdir() for line in path.read_text().splitlines() if line.endswith("}")]
    failures = [note["failure"] for note in notes if "failure" in note]
    if failures:
        raise StressError("; ".join(failures[:5]))
    trio.run(_check_end, root, notes)
    counts = {name: sum(name in note for note in notes) for name in ("put", "prune")}
    return f"{processes} processes, {kills} killed, {counts['put']} puts and {counts['prune']} prunes acknowledged: all rules hold"


async def _check_end(root: Path, notes: list[dict[str, list[object]]]) -> None:
    for source_id, ceiling in sources():
        store = FilesystemSnapshotStore(root, max_history_files=ceiling)
        if not (root / source_directory(source_id)).exists():
            continue
        await _check_acknowledged(store, source_id, notes)
        await store.prune(source_id, keep_last=ceiling)
        await _check_sound(root, store, source_id)


async def _check_acknowledged(store: FilesystemSnapshotStore, source_id: str, notes: list[dict[str, list[object]]]) -> None:
    puts = {int(str(note["put"][1])) for note in notes if "put" in note and note["put"][0] == source_id}
    held = {record_name(snapshot) for snapshot in await store.list(source_id)}
    lost = [number for number in puts if cited(number) and record_name(snapshot_of(source_id, number)) not in held]
    if lost:
        raise StressError(f"{source_id}: {len(lost)} acknowledged and cited snapshots are gone")
    if puts and not held:
        raise StressError(f"{source_id}: the head is gone")


async def _check_sound(root: Path, store: FilesystemSnapshotStore, source_id: str) -> None:
    folder = root / source_directory(source_id)
    left = [name for name in paths(folder) if name.endswith((".tmp", ".lock", ".break"))]
    records = {path.name for path in folder.glob("*.json")}
    slots = sorted(path.read_text() for path in (folder / "capacity-index").iterdir() if path.name[0].isdigit())
    entries = {path.read_text() for path in (folder / "identity-index").iterdir()}
    if left or slots != sorted(records) or not entries <= records:
        raise StressError(f"{source_id}: {left} left over, {len(slots)} slots of {len(records)} records")
    kind = (await store.read_verified_head(source_id)).kind
    if records and kind is not HeadKind.FOUND and len(entries) == len(records):
        raise StressError(f"{source_id}: the head is {kind}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make stress-store", description="Writers and readers of shared sources, killed at random.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--journal", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.work is not None:
        trio.run(_Worker(args.work, args.seed, args.journal).run, args.seconds)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            print(stress(Path(folder) / "store", seconds=args.seconds, seed=args.seed, processes=args.processes))
        except StressError as exc:
            print(f"seed {args.seed}: {exc}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
