"""The filesystem store, beside the npm package of the same formats when it is there, on the same work in one run.

    python -m benchmarks.store [--npm DIR] [--root DIR] [--puts N] [--records N]

One line a subject: puts (each page a source of its own, as a crawl keeps them, and all in one source) with fsync on, against the disk's own
fsync rate; latest, list and resolve at 10, 1,000 and 10,000 records; prune; and what a put adds to the latency of the event loop.
Ratios are theirs over ours; CPU is that of the whole process. `latest` is taken as repeated, with the head remembered.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import trio

from benchmarks.npm_peer import HOW_TO, Peer, find_peer
from forage.snapshots import (
    FilesystemSnapshotStore,
    Snapshot,
    build_snapshot,
    build_source_ref,
    identity_digest,
    record_name,
    resolve_source_ref,
    source_directory,
)
from forage.snapshots.records import encode_record, first_slot
from forage.testing import sample_snapshot

MIB = 1 << 20


# --- puts


def pages(count: int, source: Callable[[int], str]) -> list[Snapshot]:
    """Pages of 15 KB of text, in the form that the released package knows."""
    chance = random.Random(1)
    words = ["crawl", "untrusted", "pinned", "guard", "<a href='/x'>", "café", "</a>\n"]
    return [
        sample_snapshot(0, source_id=source(n), body=" ".join(chance.choices(words, k=2400)), fetched_at=time_of(n)) for n in range(count)
    ]


def time_of(number: int) -> str:
    return f"2026-09-01T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}.{number // 86400:03d}Z"


@attrs.frozen
class Cost:
    """Seconds of wall and CPU for one operation."""

    wall: float
    cpu: float


PUT = """
const store = createFilesystemSnapshotStore({ root: work.root });
const snapshots = work.snapshots.map(revive);
await store.put({ ...snapshots[0], sourceId: "warm" });
const cpu = process.cpuUsage(), began = performance.now();
const queue = snapshots.values();
await Promise.all(Array.from({ length: work.concurrency }, async () => { for (const s of queue) await store.put(s); }));
const used = process.cpuUsage(cpu);
process.stdout.write(JSON.stringify({ wall: (performance.now() - began) / 1e3, cpu: (used.user + used.system) / 1e6 }));
"""


async def our_puts(root: Path, snapshots: list[Snapshot], concurrency: int) -> Cost:
    store = FilesystemSnapshotStore(root)
    await store.put(attrs.evolve(snapshots[0], source_id="warm"))
    waiting = iter(snapshots)

    async def lane() -> None:
        for snapshot in waiting:
            await store.put(snapshot)

    cpu, wall = time.process_time(), time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(concurrency):
            nursery.start_soon(lane)
    return Cost((time.perf_counter() - wall) / len(snapshots), (time.process_time() - cpu) / len(snapshots))


async def their_puts(peer: Peer, root: Path, snapshots: list[Snapshot], concurrency: int) -> Cost:
    members = [
        {
            "sourceId": s.source_id,
            "url": s.url,
            "status": s.status,
            "fetchedAt": s.fetched_at,
            "body": s.body,
            "bodyHash": s.body_hash,
        }
        for s in snapshots
    ]
    work = {"root": str(root), "snapshots": members, "concurrency": concurrency}
    got = await trio.to_thread.run_sync(peer.run, PUT, work)
    return Cost(got["wall"] / len(snapshots), got["cpu"] / len(snapshots))


def fsync_rate(folder: Path, seconds: float = 0.7) -> float:
    """Appends of 16 KB, each synced, one after another."""
    count, began = 0, time.perf_counter()
    fd = os.open(folder / "fsync", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        while time.perf_counter() - began < seconds:
            os.write(fd, b"x" * 16384)
            os.fsync(fd)
            count += 1
    finally:
        os.close(fd)
    return count / (time.perf_counter() - began)


async def compare_puts(folder: Path, count: int, peer: Peer | None) -> None:
    shapes = [("a source each", lambda n: f"page {n}", 1), ("a source each", lambda n: f"page {n}", 8)]
    shapes += [("a source each", lambda n: f"page {n}", 32), ("one source", lambda n: "page", 8)]
    for number, (name, source, concurrency) in enumerate(shapes):
        snapshots = pages(count, source)
        before = fsync_rate(folder)
        # Fresh copies: what is proved of a snapshot is proved once.
        ours = await our_puts(folder / f"ours-{number}", [attrs.evolve(s) for s in snapshots], concurrency)
        rate = statistics.mean([before, fsync_rate(folder)])
        line = f"put, {name}, {concurrency} in flight: {1 / ours.wall:.0f} records/s, {ours.cpu * 1e6:.0f} us CPU, "
        line += f"{1 / ours.wall / rate:.2f} records for each of the disk's own {rate:.0f} fsync/s"
        if peer is not None:
            theirs = await their_puts(peer, folder / f"theirs-{number}", snapshots, concurrency)
            line += f"; npm: cpu-x {theirs.cpu / ours.cpu:.1f}, wall-x {theirs.wall / ours.wall:.1f}"
        print(line, flush=True)


# --- reads of histories


def lay_out_history(root: Path, count: int) -> list[Snapshot]:
    """A history as puts would have left it, without their syncs."""
    folder = root / source_directory("source")
    for name in ("capacity-index", "identity-index"):
        (folder / name).mkdir(parents=True)
    (folder / "capacity-index" / "max-history-files.txt").write_text("10000")
    (folder / "capacity-index" / "initialized.txt").write_text("1")
    taken: set[int] = set()
    snapshots = [sample_snapshot(0, body=f"body {n}", fetched_at=time_of(n)) for n in range(count)]
    for snapshot in snapshots:
        name = record_name(snapshot)
        slot = first_slot(name, 10_000)
        while slot in taken:
            slot = (slot + 1) % 10_000
        taken.add(slot)
        (folder / name).write_bytes(encode_record(snapshot))
        (folder / "capacity-index" / f"{slot}.txt").write_text(name)
        (folder / "identity-index" / f"{identity_digest(snapshot)}.txt").write_text(name)
    return snapshots


READS = """
const store = createFilesystemSnapshotStore({ root: work.root });
const time = async (repeats, act) => {
  await act();
  const began = performance.now();
  for (let n = 0; n < repeats; n++) await act();
  return (performance.now() - began) / 1e3 / repeats;
};
process.stdout.write(JSON.stringify({
  latest: await time(work.repeats, () => store.latest("source")),
  list: await time(work.few, () => store.list("source")),
  resolve: await time(100, () => resolveSnapshotSourceRef(store, work.reference)),
}));
"""


async def timed(repeats: int, act: Callable[[], Awaitable[object]]) -> float:
    await act()
    began = time.perf_counter()
    for _ in range(repeats):
        await act()
    return (time.perf_counter() - began) / repeats


async def compare_reads(folder: Path, most: int, peer: Peer | None) -> None:
    found: dict[int, dict[str, float]] = {}
    theirs: dict[int, dict[str, float]] = {}
    for count in (10, 1_000, 10_000):
        if count > most:
            continue
        root = folder / f"history-{count}"
        snapshots = lay_out_history(root, count)
        store = FilesystemSnapshotStore(root)
        reference = build_source_ref(snapshots[count // 2])
        first = await timed(3, lambda root=root: FilesystemSnapshotStore(root).latest("source"))  # type: ignore[misc]  # bound at once
        for _ in range(2):
            await store.latest("source")
            await trio.sleep(0.06)
        found[count] = {
            "latest": await timed(200, lambda store=store: store.latest("source")),  # type: ignore[misc]
            "latest, unremembered": first,
            "list": await timed(2, lambda store=store: store.list("source")),  # type: ignore[misc]
            "resolve": await timed(200, lambda store=store, ref=reference: resolve_source_ref(store, ref)),  # type: ignore[misc]
        }
        if peer is not None:
            work = {"root": str(root), "reference": reference, "repeats": max(1, 2_000 // count), "few": 2}
            theirs[count] = await trio.to_thread.run_sync(peer.run, READS, work)
    for name in found[10]:
        line = f"{name}: " + ", ".join(f"{values[name] * 1e3:.2f} ms at {count}" for count, values in found.items())
        line += f"; largest over smallest {max(v[name] for v in found.values()) / found[10][name]:.1f}"
        if peer is not None and name in theirs[10]:
            line += "; npm: wall-x " + ", ".join(f"{theirs[count][name] / found[count][name]:.1f} at {count}" for count in found)
        print(line, flush=True)


async def measure_prune(folder: Path) -> None:
    root = folder / "pruned"
    lay_out_history(root, 1_000)
    began = time.perf_counter()
    result = await FilesystemSnapshotStore(root).prune("source", keep_last=100)
    print(
        f"prune of 1000 records to 100: {(time.perf_counter() - began) * 1e3:.0f} ms, {result.removed} removed (npm 0.7.0 has none)",
        flush=True,
    )


# --- the event loop


async def latencies(work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """99th percentile and maximum, in milliseconds, of how late a task wakes that sleeps for 1 ms again and again."""
    late: list[float] = []
    over = False

    async def tick() -> None:
        while not over:
            began = time.perf_counter()
            await trio.sleep(0.001)
            late.append(time.perf_counter() - began - 0.001)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tick)
        await work()
        over = True
    late.sort()
    return late[int(len(late) * 0.99)] * 1e3, late[-1] * 1e3


async def rest() -> None:
    await trio.sleep(1.0)


async def measure_latency(folder: Path) -> None:
    for size, count in ((MIB, 60), (64 * MIB, 3)):
        for kind, content_type in (("text", "text/html; charset=utf-8"), ("bytes", "image/png")):
            store = FilesystemSnapshotStore(folder / f"latency-{size}-{kind}")
            body = ("häuser " * (size // 8 + 1)).encode()[: size - 2000] if kind == "text" else os.urandom(size)
            made = [
                build_snapshot(source_id=str(n), url="u", status=200, fetched_at=time_of(n), body=body, content_type=content_type)[0]
                for n in range(count)
            ]
            snapshots = [attrs.evolve(snapshot) for snapshot in made]  # nothing is proved of a copy: put has all the work

            async def work(store: FilesystemSnapshotStore = store, snapshots: list[Snapshot] = snapshots) -> None:
                for snapshot in snapshots:
                    await store.put(snapshot)

            idle, _ = await latencies(rest)
            busy, worst = await latencies(work)
            idle = max(idle, (await latencies(rest))[0])  # what others do on the machine is not the store's
            added = f"adds {busy - idle:.1f} ms to the p99 of the event loop ({busy:.1f} against {idle:.1f} idle, worst {worst:.1f})"
            print(f"put of {size // MIB} MiB of {kind}: {added}", flush=True)
            shutil.rmtree(store.root)


async def run(args: argparse.Namespace, peer: Peer | None) -> None:
    with tempfile.TemporaryDirectory(dir=args.root) as name:
        folder = Path(name)
        await compare_puts(folder, args.puts, peer)
        await compare_reads(folder, args.records, peer)
        await measure_prune(folder)
        await measure_latency(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--npm", type=Path, help="folder in which the npm package is installed")
    parser.add_argument("--root", type=Path, help="folder on the disk to be measured (default: the system's temporary one)")
    parser.add_argument("--puts", type=int, default=300)
    parser.add_argument("--records", type=int, default=10_000, help="longest history")
    args = parser.parse_args()
    peer = find_peer(args.npm)
    if peer is None:
        print(HOW_TO)
    trio.run(run, args, peer)


if __name__ == "__main__":
    main()
