"""Stores and references exchanged with the npm package of the same formats, in both directions.

    python -m benchmarks.interchange --npm DIR [--count 200] [--seed N]

Each implementation writes the same varied snapshots to a store of its own and cites them; the other reads them back and resolves the
citations. Prints one line; exit code 1 on any mismatch, 2 when the package is not there.
"""

from __future__ import annotations

import argparse
import base64
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trio

from benchmarks.npm_peer import HOW_TO, Peer, find_peer
from forage.snapshots import (
    FilesystemSnapshotStore,
    Snapshot,
    build_source_ref,
    format_source_ref,
    lookup_of,
    resolve_source_ref,
    snapshot_of_members,
)
from forage.snapshots.model import sha256_hex

CHARACTERS = [
    *"abc ABC 019 -_.~!*'()%+&=?#;:/\\\"<>\n\t\x00\x1f\x7f\x85\xa0",
    "é",
    "\u2028",
    "\ufeff",
    "\ufffd",
    "\ue000",
    "😀",
    "%41",
    "%2f",
]

WRITE = """
const store = createFilesystemSnapshotStore({ root: work.root });
const references = [];
for (const s of work.snapshots.map(revive)) { await store.put(s); references.push(buildSnapshotSourceRef(s)); }
process.stdout.write(JSON.stringify(references));
"""

READ = """
const store = createFilesystemSnapshotStore({ root: work.root });
const resolved = [], histories = {};
for (const reference of work.references) {
  const r = await resolveSnapshotSourceRef(store, reference);
  resolved.push(r.ok ? { snapshot: plain(r.snapshot), reference: buildSnapshotSourceRef(r.snapshot), integrity: r.integrity } : r.error);
}
for (const id of work.sources) histories[id] = (await store.list(id)).map(buildSnapshotSourceRef);
process.stdout.write(JSON.stringify({ resolved, histories }));
"""


def varied_snapshots(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Members of snapshots of every kind that the released package knows: texts and bytes, with what is awkward in each member."""
    chance = random.Random(seed)

    def text(most: int) -> str:
        return "".join(chance.choices(CHARACTERS, k=chance.randrange(1, most)))

    for number in range(count):
        members: dict[str, Any] = {
            "sourceId": chance.choice(["plain", "https://example.test/::https://example.test/a?b", text(30)]),
            "url": f"https://example.test/{number}?{text(40)}",
            "status": chance.choice([200, 404, 301, 0, -1, 2**40]),
            "fetchedAt": f"2026-09-{number % 28 + 1:02d}T{number % 24:02d}:00:{number % 60:02d}.{number % 1000:03d}Z",
        }
        if chance.random() < 0.3:
            data = chance.randbytes(chance.choice([0, 1, 2, 3, 1000, 70_000]))
            members |= {"bodyBase64": base64.b64encode(data).decode(), "bodyHash": sha256_hex(data)}
        else:
            body = text(chance.choice([2, 50, 3000]))
            members |= {"body": body, "bodyHash": sha256_hex(body.encode())}
        if chance.random() < 0.6:
            names = [text(12), "content-type", "2", "10", "1", "-1", "4294967295"]
            members["headers"] = {name: text(20) for name in chance.sample(names, chance.randrange(len(names)))}
        if chance.random() < 0.4:
            members["redirects"] = [text(30) for _ in range(chance.randrange(3))]
        if chance.random() < 0.4:
            members["rendered"] = chance.random() < 0.5
        yield members


def snapshot_of(members: dict[str, Any]) -> Snapshot:
    plain = dict(members)
    if "bodyBase64" in plain:
        plain["body"] = base64.b64decode(plain.pop("bodyBase64"))
    return snapshot_of_members(plain)


async def they_write_we_read(peer: Peer, root: Path, work: list[dict[str, Any]]) -> list[str]:
    references = await trio.to_thread.run_sync(peer.run, WRITE, {"root": str(root), "snapshots": work})
    store = FilesystemSnapshotStore(root)
    wrong = []
    for members, reference in zip(work, references, strict=True):
        snapshot = snapshot_of(members)
        if build_source_ref(snapshot) != reference:
            wrong.append(f"reference of {members['url']!r}")
        for cited in (reference, format_source_ref(lookup_of(snapshot, released=True))):
            found = await resolve_source_ref(store, cited)
            wrong += [f"we resolve {cited[:100]!r}"] * (found.snapshot != snapshot)
    return wrong


async def we_write_they_read(peer: Peer, root: Path, work: list[dict[str, Any]]) -> list[str]:
    store = FilesystemSnapshotStore(root)
    snapshots = [snapshot_of(members) for members in work]
    async with trio.open_nursery() as nursery:
        for snapshot in snapshots:
            nursery.start_soon(store.put, snapshot)
    references = [build_source_ref(snapshot) for snapshot in snapshots]
    old = [format_source_ref(lookup_of(snapshot, released=True)) for snapshot in snapshots]
    sources = sorted({snapshot.source_id for snapshot in snapshots})
    asked = {"root": str(root), "references": references + old, "sources": sources}
    answer = await trio.to_thread.run_sync(peer.run, READ, asked)
    wrong = []
    for reference, snapshot, got in zip(references * 2, snapshots * 2, answer["resolved"], strict=True):
        differs = got.get("reference") != reference or snapshot_of(got["snapshot"]) != snapshot
        wrong += [f"they resolve {reference[:100]!r}: {str(got)[:100]}"] * differs
    for source_id in sources:
        ours = [build_source_ref(snapshot) for snapshot in await store.list(source_id)]
        wrong += [f"history of {source_id!r}"] * (answer["histories"][source_id] != ours)
    return wrong


def records_differ(theirs: Path, ours: Path) -> list[str]:
    """Record files byte for byte, and the names of all index entries."""
    names = [{str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()} for root in (theirs, ours)]
    records = [name for name in names[0] & names[1] if name.endswith(".json")]
    unlike = [f"record {name}" for name in records if (theirs / name).read_bytes() != (ours / name).read_bytes()]
    # Slots depend on the order of puts where two records want the same.
    return unlike + [f"file {name}" for name in names[0] ^ names[1] if "capacity-index" not in name]


async def run(peer: Peer, count: int, seed: int) -> list[str]:
    work = list(varied_snapshots(count, seed))
    with tempfile.TemporaryDirectory() as folder:
        theirs = await they_write_we_read(peer, Path(folder) / "theirs", work)
        ours = await we_write_they_read(peer, Path(folder) / "ours", work)
        return theirs + ours + records_differ(Path(folder) / "theirs", Path(folder) / "ours")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--npm", type=Path, help="folder in which the package is installed")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    peer = find_peer(args.npm)
    if peer is None:
        print(HOW_TO, file=sys.stderr)
        return 2
    wrong = trio.run(run, peer, args.count, args.seed)
    for line in wrong[:20]:
        print(line, file=sys.stderr)
    what = "records byte for byte, references of both generations"
    print(f"{args.count} snapshots each way with npm {peer.version}, {what}: {len(wrong)} mismatches")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
