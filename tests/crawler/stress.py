"""One manifest at any concurrency, and politeness as servers see it: ``python -m tests.crawler.stress [--seed N] [--pages N] [--runs N]``.

A generated site on five loopback hosts, whose latencies are shuffled anew for each run, is crawled at several concurrencies. All manifests
must be equal to the byte, account for every link that another HTML parser finds, and agree with the servers' logs. Then the same kind of
site is crawled with a delay, from one seed and from many, while some of its pages ask for a pause. At last crawls are cancelled at random
moments, and nothing of them may stay.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import trio

from forage.crawler import CrawlManifest, crawl, crawl_many
from forage.snapshots import FilesystemSnapshotStore
from tests.support.accounting import assert_accounted
from tests.support.dialer import RecordingDialer
from tests.support.folders import quick_folder
from tests.support.generated_site import GeneratedSite, open_generated_site
from tests.support.server_log import assert_at_most, assert_not_paused, assert_spaced
from tests.support.stepping import open_descriptors, settle
from tests.support.timeless import without_times

__all__ = ["NOW", "assert_clean", "cancel_at_random", "crawl_once", "many_seeds", "one_manifest", "polite"]

NOW = datetime(2026, 9, 1, tzinfo=UTC)
LEFTOVERS = ("*.tmp", "source.lock", "source.lock.break", "*.aside")


async def crawl_once(site: GeneratedSite, number: int, **options: Any) -> CrawlManifest:
    """A crawl of the site in a round of its own, under a clock that stands still; nothing beyond loopback is dialled."""
    site.begin_round(number)
    dialer = RecordingDialer()
    manifest = await crawl(site.seed, site.policy(**options), dialer=dialer, utc_now=lambda: NOW)
    assert all(address.startswith("127.0.0.") for address, _ in dialer.dialled)
    return manifest


async def one_manifest(site: GeneratedSite, concurrencies: Sequence[int], runs: int, **options: Any) -> CrawlManifest:
    """The manifest that every run at every concurrency gives, accounted for each time. AssertionError names the first difference."""
    first: CrawlManifest | None = None
    number = 0
    for concurrency in concurrencies:
        for _ in range(runs):
            number += 1
            manifest = await crawl_once(site, number, concurrency=concurrency, **options)
            assert_at_most(site.log, options.get("per_host", 1))
            assert_not_paused(site.log, site.pauses)
            assert_accounted(manifest, site.log)
            first = first or manifest
            difference = _difference(first.to_json(), manifest.to_json())
            assert difference is None, f"run {number}, at concurrency {concurrency}: {difference}"
    assert first is not None
    return first


def _difference(one: str, other: str) -> str | None:
    if one == other:
        return None
    pairs = zip(one.splitlines(), other.splitlines(), strict=False)
    return next((f"{a.strip()} became {b.strip()}" for a, b in pairs if a != b), "one is longer")


async def polite(site: GeneratedSite, delay: float, **options: Any) -> tuple[CrawlManifest, float]:
    """One crawl with a delay: the manifest, and the smallest gap between two request starts of a host, in seconds."""
    manifest = await crawl_once(site, 1, delay=delay, **options)
    assert_at_most(site.log, 1)
    assert_not_paused(site.log, site.pauses)
    assert_accounted(manifest, site.log)
    return manifest, assert_spaced(site.log, delay)


async def many_seeds(site: GeneratedSite, seeds: Sequence[str], **options: Any) -> Mapping[str, CrawlManifest]:
    """Manifests of crawls from many seeds, by seed, checked as one: hosts see one polite visitor."""
    site.begin_round(2)
    policy = site.policy(same_host=True, **options)
    async with crawl_many(seeds, policy, dialer=RecordingDialer(), utc_now=lambda: NOW) as crawls:
        manifests = {manifest.seed: manifest async for manifest in crawls}
    log = site.log
    assert_at_most(log, 1)
    assert_not_paused(log, site.pauses)
    assert_spaced(log, options.get("delay", 0.0))
    for host in {one.host for one in log}:
        assert sum(one.host == host and one.target == "/robots.txt" for one in log) == 1, "robots.txt is asked for once"
    return manifests


async def cancel_at_random(site: GeneratedSite, folder: Path, *, count: int, rng: random.Random) -> None:
    """Cancel crawls of the site at ``count`` moments; now and then the crawl goes on where it was, until it is done."""
    policy = site.policy(concurrency=16)
    threads = trio.to_thread.current_default_thread_limiter()
    site.begin_round(0)
    began = trio.current_time()
    whole = await crawl(site.seed, policy, store=FilesystemSnapshotStore(folder / "whole"))
    span = trio.current_time() - began
    await settle()
    descriptors, tasks = open_descriptors(), trio.lowlevel.current_statistics().tasks_living
    root = folder / "0"
    for number in range(count):
        root.mkdir(exist_ok=True)
        site.begin_round(number + 1)
        with trio.move_on_after(rng.uniform(0.0, span)):
            await crawl(site.seed, policy, store=FilesystemSnapshotStore(root / "store"), state=root / "state")
        assert threads.borrowed_tokens == 0, "a thread still works"
        assert_clean(root)
        await _until_as_before(descriptors, tasks)
        if number % 5 == 4:
            resumed = await crawl(site.seed, policy, store=FilesystemSnapshotStore(root / "store"), state=root / "state")
            assert without_times(resumed) == without_times(whole)
            await settle()
            shutil.rmtree(root)
            root = folder / str(number)


async def _until_as_before(descriptors: set[str], tasks: int) -> None:
    """Let the servers notice, one by one, that nobody listens any more."""
    for _ in range(200):
        await settle()
        if open_descriptors() == descriptors and trio.lowlevel.current_statistics().tasks_living == tasks:
            return
    raise AssertionError(f"left open: {open_descriptors() ^ descriptors}, tasks: {trio.lowlevel.current_statistics().tasks_living - tasks}")


def assert_clean(root: Path) -> None:
    left = [str(path.relative_to(root)) for pattern in LEFTOVERS for path in root.rglob(pattern)]
    assert not left, f"left behind: {left}"


async def _stress(pages: int, seed: int, runs: int, concurrencies: Sequence[int], cancellations: int) -> None:
    began = time.monotonic()
    async with open_generated_site(pages, seed=seed, busy=4) as site:
        manifest = await one_manifest(site, concurrencies, runs)
        counts = manifest.counts
        print(
            f"seed {seed}, {site.size} pages on {len(site.servers)} hosts: one manifest in {runs} runs each at concurrency "
            f"{', '.join(map(str, concurrencies))}; {counts.seen} URLs seen = {counts.captured} captured + {counts.failed} failed + "
            f"{counts.skipped} skipped; {time.monotonic() - began:.0f} s",
            flush=True,
        )
    began = time.monotonic()
    async with open_generated_site(150, seed=seed, busy=4) as site:
        manifest, gap = await polite(site, 0.2, concurrency=64)
        seen = len(site.log)
        seeds = [url for host in range(len(site.servers)) for url in site.pages_of(host)[:6]]
        manifests = await many_seeds(site, seeds, delay=0.2, concurrency=64)
        print(
            f"delay 0.2 s: {seen} requests from one seed, the smallest gap {gap:.3f} s; {len(site.log)} from {len(manifests)} seeds; "
            f"none in a pause; {time.monotonic() - began:.0f} s",
            flush=True,
        )
    began = time.monotonic()
    async with open_generated_site(500, seed=seed) as site:
        with quick_folder() as folder:
            await cancel_at_random(site, folder, count=cancellations, rng=random.Random(seed))
        print(f"cancelled at {cancellations} random moments of {site.size} pages: nothing stays; {time.monotonic() - began:.0f} s")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pages", type=int, default=2_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cancellations", type=int, default=200)
    parser.add_argument("--concurrency", type=int, nargs="*", default=[1, 4, 16, 64])
    options = parser.parse_args(arguments)
    trio.run(partial(_stress, options.pages, options.seed, options.runs, options.concurrency, options.cancellations))
    return 0


if __name__ == "__main__":
    sys.exit(main())
