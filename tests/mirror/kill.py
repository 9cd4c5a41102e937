"""Kills a mirror crawl at random moments and lets it go on: ``python -m tests.mirror.kill [--count N] [--seed N] [--documents N]``.

Each time a process crawls documents of a loopback archive, is killed with SIGKILL, and the same command is given again, until it ends by
itself. Nothing that was recorded may be lost on the way and nothing that was held be asked for again; in the end the root must verify, and
hold what an undisturbed crawl holds, byte for byte, but for the times.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from forage.mirror import RULE_VERSION, CacheRoot, verify_root
from forage.mirror.demo_web import STAMP, asset, page
from forage.mirror.keys import parse_wayback_path
from forage.mirror.ledgers import Ledgers
from forage.mirror.loopback import Archived, LoopbackArchive, open_loopback_archive
from tests.support.network_guard import forbid_traffic

__all__ = ["kill_many"]

REPOSITORY = Path(__file__).resolve().parents[2]
TOGETHER = 4
SOUND = {"orphanCap", "staleTmp", "incompleteClosure"}  # what may be there between a death and the next run


def web(documents: int) -> list[Archived]:
    """Documents that share a style sheet, a script and a broken link; each has an image of its own and a late child."""
    head = '<link rel=stylesheet href="style.css">'
    captures = [asset("style.css", b"p{color:red}"), asset("app.js", b'fetch("late-" + document.title + ".json")')]
    for n in range(documents):
        name = f"d{n}"
        captures += [
            page(name, f'<p>{n}</p><img src="i{n}.png"><img src="gone.png"><script src="app.js"></script>', head=head),
            asset(f"i{n}.png", b"image %d" % n),
            asset(f"late-{name}.json", b"{}"),
        ]
    return captures


def keys(documents: int) -> list[str]:
    return [f"{STAMP}/http://site.example.org/d{n}" for n in range(documents)]


@attrs.define(kw_only=True)
class Soak:
    """An archive, and crawls of it in other processes."""

    archive: LoopbackArchive
    base: str
    documents: int
    seconds: float = 0.0
    killed: int = 0
    finished: int = 0

    async def crawl(self, root: Path, *, seconds: float = float("inf")) -> int:
        """Crawl in a process that is killed so many seconds after it began, if it is not done by then; gives its exit code."""
        root.mkdir(exist_ok=True)
        spec = root.with_suffix(".json")
        spec.write_text(json.dumps({"root": str(root), "base": self.base, "keys": keys(self.documents), "together": TOGETHER}), "utf-8")
        command = [sys.executable, "-m", "tests.support.mirror_process", str(spec)]
        async with trio.open_nursery() as nursery:
            run = partial(trio.run_process, command, stdout=subprocess.PIPE, cwd=REPOSITORY, check=False)
            process: trio.Process = await nursery.start(run)
            assert process.stdout is not None
            await process.stdout.receive_some(16)
            began = trio.current_time()
            with trio.move_on_after(seconds):
                await process.wait()
            if process.returncode is None:
                process.kill()
            self.seconds = trio.current_time() - began
        assert process.returncode in (0, -signal.SIGKILL), process.returncode
        return process.returncode

    async def killed_until_done(self, root: Path, chance: random.Random, *, most: int, within: float) -> None:
        """Kill at most so many times, each within so many seconds of its beginning, then let it end."""
        for left in range(most, -1, -1):
            held, recorded, before = holdings(root), edges(root), len(self.archive.log)
            code = await self.crawl(root, seconds=chance.uniform(0.0, within) if left else 600.0)
            assert not edges_lost(recorded, edges(root))
            asked = {capture.key for hit in self.archive.log[before:] if (capture := parse_wayback_path(hit.target)) is not None}
            assert not asked & held, f"held, and asked for again: {sorted(asked & held)}"
            if code == 0:
                self.finished += 1
                return
            self.killed += 1
            found = await trio.to_thread.run_sync(verify_root, root)
            assert {finding.category.value for finding in found.findings} <= SOUND, found.findings


def holdings(root: Path) -> set[str]:
    return set(CacheRoot(root).load_corpus())


def edges(root: Path) -> dict[str, set[str]]:
    """What every sidecar names, recorded children included."""
    found = {}
    for key in holdings(root):
        sidecar = CacheRoot(root).read_sidecar(key)
        assert sidecar is not None
        found[key] = {*sidecar.requisites, *(entry.key for entry in sidecar.dynamic)}
    return found


def edges_lost(before: Mapping[str, set[str]], after: Mapping[str, set[str]]) -> set[str]:
    return {key for key, names in before.items() if not names <= after.get(key, set())}


def contents(root: Path) -> dict[str, Any]:
    """Bodies as they are, sidecars without their times, and the verified keys."""
    found: dict[str, Any] = {str(path.relative_to(root)): path.read_bytes() for path in (root / "cap").rglob("*") if path.is_file()}
    for path in (root / "meta").rglob("*.json"):
        members = json.loads(path.read_text("utf-8"))
        del members["fetchedAt"]
        for row in members.get("dynamic", ()):
            del row["firstSeen"]
        found[str(path.relative_to(root))] = members
    return found | {"verified": sorted(Ledgers(root).verified(RULE_VERSION))}


async def kill_many(count: int, *, seed: int, documents: int = 20, share: float = 0.8) -> Soak:
    """Kill ``count`` times, over as many roots as it takes; then compare. A kill falls within ``share`` of an undisturbed crawl's time."""
    chance = random.Random(seed)
    archive = LoopbackArchive(web(documents))
    async with open_loopback_archive(archive) as base:
        with tempfile.TemporaryDirectory() as folder:
            soak = Soak(archive=archive, base=base, documents=documents)
            undisturbed = Path(folder, "undisturbed")
            assert await soak.crawl(undisturbed) == 0
            within = share * soak.seconds
            expected = contents(undisturbed)
            assert len(expected["verified"]) == documents, Ledgers(undisturbed).flaky()
            while soak.killed < count:
                root = Path(folder, f"root{soak.finished}")
                await soak.killed_until_done(root, chance, most=min(10, count - soak.killed), within=within)
                report = await trio.to_thread.run_sync(verify_root, root)
                assert report.ok, report.findings
                found = contents(root)
                assert found == expected, sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
    return soak


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--documents", type=int, default=20)
    args = parser.parse_args(arguments)
    forbid_traffic()
    soak = trio.run(partial(kill_many, args.count, seed=args.seed, documents=args.documents))
    figures = f"{soak.killed} kills over {soak.finished} roots of {args.documents} documents"
    print(f"seed {args.seed}: {figures}; each ends as if undisturbed")


if __name__ == "__main__":
    main()
