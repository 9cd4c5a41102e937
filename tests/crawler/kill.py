"""Kills a crawl at random moments and lets it go on: ``python -m tests.crawler.kill [--count N] [--seed N] [--pages N]``.

Each time a process crawls a generated site into a store on disk with a state file, is killed with SIGKILL, and the same crawl goes on in
this process. Then the manifest must be that of an undisturbed crawl (times aside), every reference must resolve, every record of the store
must be sound, and no page may have been asked for twice but those that were under way when the process died.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from forage.crawler import CrawlManifest, CrawlPolicy, crawl
from forage.snapshots import FilesystemSnapshotStore, resolve_source_ref
from forage.snapshots.verify import Verdict, source_directories, verify_source
from tests.support.folders import quick_folder
from tests.support.generated_site import GeneratedSite, open_generated_site
from tests.support.server_log import Seen
from tests.support.timeless import without_times

__all__ = ["Death", "Kept", "crawl_killed_after", "kill_many"]

REPOSITORY = Path(__file__).resolve().parents[2]
CONCURRENCY = 8
_MOST_TRIES = 5  # crawls for each that is killed
UNDER_WAY = 3.0  # seconds from a request to its row in the state file, on a busy machine
POLICY: Mapping[str, Any] = {"delay": 0.0, "max_pages": 100_000, "max_depth": 1_000, "same_host": False, "concurrency": CONCURRENCY}


@attrs.frozen(kw_only=True)
class Kept:
    """What a crawl keeps on disk."""

    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def entries(self) -> set[str]:
        """URLs whose outcome is in the state file, read from a copy so that the next process finds the file as the last one left it."""
        with tempfile.TemporaryDirectory() as folder:
            for path in self.folder.glob("state*"):
                shutil.copy(path, folder)
            with closing(sqlite3.connect(Path(folder) / "state")) as database:
                return {url for (url,) in database.execute("SELECT url FROM outcomes")}

    async def check_store(self, manifest: CrawlManifest, *, interrupted: int = 0) -> None:
        """Every reference resolves and every record is sound. Of at most ``interrupted`` writes that were never acknowledged the record may
        lack its place in the index, as verify says: they were killed between the two.
        """
        store = FilesystemSnapshotStore(self.store)
        for page in manifest.pages:
            assert page.stored, page.url
            assert (await resolve_source_ref(store, page.source_ref)).ok, page.source_ref
        unindexed = 0
        for directory in await source_directories(self.store):
            for record in await verify_source(self.store, directory):
                unindexed += record.verdict is Verdict.UNINDEXED
                sound = record.verdict in (Verdict.INTACT, Verdict.UNINDEXED)
                assert sound, f"{record.name} is {record.verdict} ({record.reason})"
        assert unindexed <= interrupted, f"{unindexed} records are not indexed, {interrupted} writes were interrupted"


@attrs.frozen(kw_only=True)
class Death:
    """How a crawl in another process ended: its exit code, when on trio's clock, and how long after its first connection."""

    code: int
    at: float
    seconds: float


async def crawl_killed_after(site: GeneratedSite, kept: Kept, seconds: float, policy: Mapping[str, Any] = POLICY) -> Death:
    """Crawl in a process that is killed so long after its first connection, if it is not done by then."""
    spec = kept.folder / "spec.json"
    places = {"store": str(kept.store), "state": str(kept.state), "manifest": str(kept.folder / "manifest.json")}
    members = {"seed": site.seed, "ports": [server.port for server in site.servers], "policy": {**policy, "keep_bodies": False}}
    spec.write_text(json.dumps({**members, **places}), "utf-8")
    command = [sys.executable, "-m", "tests.support.crawl_process", str(spec)]
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
    code = process.returncode
    assert code in (0, -signal.SIGKILL), f"the crawl ended with {code}"
    return Death(code=code, at=trio.current_time(), seconds=trio.current_time() - began)


@attrs.define
class _Figures:
    killed: int = 0
    finished: int = 0
    kept: list[int] = attrs.field(factory=list)
    again: list[int] = attrs.field(factory=list)

    def line(self) -> str:
        least, most = min(self.kept, default=0), max(self.kept, default=0)
        return (
            f"{self.killed} killed with {least} to {most} entries kept, {self.finished} were done before; "
            f"pages asked for again: {sum(self.again)} in all, at most {max(self.again, default=0)} at a time"
        )


async def kill_many(count: int, *, seed: int, pages: int, progress: bool = False) -> str:
    """Kill and resume ``count`` times; one line of figures. AssertionError where a promise is broken.

    A crawl that was done before its moment is no death: another one is tried, within a span that is now known to be shorter.
    """
    rng = random.Random(f"kill {seed}")
    figures = _Figures()
    async with open_generated_site(pages, seed=seed) as site:
        policy = site.policy(concurrency=CONCURRENCY, keep_bodies=False)
        with quick_folder() as folder:
            kept = Kept(folder=folder)
            span = (await crawl_killed_after(site, kept, 600.0)).seconds
            usual = _asked(site)  # the target of a redirect is asked for once for each way to it
            whole = CrawlManifest.from_json((kept.folder / "manifest.json").read_bytes())
            await kept.check_store(whole)
        for number in range(1, _MOST_TRIES * count + 1):
            with quick_folder() as folder:
                death = await _one(site, Kept(folder=folder), policy, rng.uniform(0.0, span), number, without_times(whole), usual, figures)
            span = death.seconds if death.code == 0 else span
            if progress:
                print(f"\r{figures.killed}/{count}", end="", file=sys.stderr, flush=True)
            if figures.killed == count:
                return figures.line()
    raise AssertionError(f"only {figures.killed} of {count} crawls were killed: the others were done too soon")


def _asked(site: GeneratedSite) -> Counter[str]:
    return Counter(_url(one) for one in site.log if one.target != "/robots.txt")


def _url(one: Seen) -> str:
    return f"http://{one.host}{one.target}"


async def _one(
    site: GeneratedSite, kept: Kept, policy: CrawlPolicy, seconds: float, number: int, whole: str, usual: Counter[str], figures: _Figures
) -> Death:
    site.begin_round(number)
    death = await crawl_killed_after(site, kept, seconds)
    entries = kept.entries()
    figures.kept.append(len(entries))
    figures.killed += death.code != 0
    figures.finished += death.code == 0
    manifest = await crawl(site.seed, policy, store=FilesystemSnapshotStore(kept.store), state=kept.state)
    assert without_times(manifest) == whole, f"another manifest after a death at {seconds:.3f} s"
    await kept.check_store(manifest, interrupted=CONCURRENCY if death.code else 0)
    again = _asked(site) - usual
    figures.again.append(len(again))
    lost = (again.keys() & entries) - {site.redirect_of(url) for url in again}
    assert not lost, f"asked for again although kept: {sorted(lost)[:3]}"
    under_way = {_url(one) for one in site.log if death.at - UNDER_WAY <= one.at <= death.at}
    assert again.keys() <= under_way, f"asked for again, {UNDER_WAY} s after the first time: {sorted(again.keys() - under_way)[:3]}"
    return death


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pages", type=int, default=500)
    options = parser.parse_args(arguments)
    started = time.monotonic()
    line = trio.run(partial(kill_many, options.count, seed=options.seed, pages=options.pages, progress=sys.stderr.isatty()))
    print(f"seed {options.seed}, {options.pages} pages: {line}; {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
