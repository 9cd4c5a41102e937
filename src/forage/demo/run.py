"""``forage demo``: the main job from end to end on this machine alone, and an account of it that can be checked line by line.

Owns the order of events, the fences around them and the two tables. Everything else is what any user calls: a site is crawled through the
guard into a store, the site goes away, and the store has to give every byte again. The result is an exit code, so the
demonstration is also a test: 0 only when everything came out as it must.
"""

from __future__ import annotations

import errno
import socket
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent
from typing import TextIO

import attrs
import trio

from forage.crawler import (
    CrawlManifest,
    CrawlPolicy,
    CrawlStream,
    CrawlWarning,
    HostPaused,
    PageCaptured,
    PageFailed,
    Seed,
    crawl,
    crawl_stream,
)
from forage.demo.content import REBINDING_HOST
from forage.demo.site import DemoSite, open_demo_site
from forage.egress import DnsAnswers, EgressPolicy, SocketDialer, evaluate_url
from forage.errors import EgressCode, EgressUnreachableError
from forage.snapshots import FilesystemSnapshotStore, SnapshotStore, body_bytes, resolve_source_ref

__all__ = ["run_demo"]

DELAY = 0.1
PUBLIC_ADDRESS = "93.184.215.14"
PRIVATE_ADDRESS = "10.13.37.7"
PAUSE_WORTH_SHOWING = 0.5  # seconds


class RebindingResolver:
    """Stands in for DNS: one name that answers a public address once and a private one ever after, and nothing else."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def resolve(self, host: str) -> DnsAnswers:
        await trio.lowlevel.checkpoint()
        if host != REBINDING_HOST:
            raise EgressUnreachableError(EgressCode.DNS_FAILURE, host)
        self.asked.append(host)
        return DnsAnswers(addresses=(PUBLIC_ADDRESS if len(self.asked) == 1 else PRIVATE_ADDRESS,), ttl=0.0)


class FencedDialer:
    """The second line of defence: connects to the demonstration's own server, notes and refuses everything else."""

    def __init__(self, site: DemoSite) -> None:
        self._site = site
        self._dialer = SocketDialer()
        self.connections = 0
        self.refused: list[str] = []

    async def dial(self, address: str, port: int) -> socket.socket:
        if f"http://{address}:{port}" != self._site.origin:
            await trio.lowlevel.checkpoint()
            self.refused.append(f"{address} port {port}")
            raise OSError(errno.ECONNREFUSED, "outside the demonstration")
        self.connections += 1
        return await self._dialer.dial(address, port)


async def run_demo(out: TextIO, err: TextIO) -> int:
    """Run the demonstration: progress on ``err``, tables on ``out``. 0 when every check held, else 1.

    Takes a few seconds, opens connections to a server of its own on 127.0.0.1 only, and leaves nothing behind.
    """
    with TemporaryDirectory(prefix="forage-demo-") as folder:
        store = FilesystemSnapshotStore(Path(folder, "store"))
        async with open_demo_site() as site:
            seed, policy = Seed(url=f"{site.origin}/", id="museum"), _policy(site)
            dialer, resolver = FencedDialer(site), RebindingResolver()
            await _introduce(site, policy, resolver, err)
            async with crawl_stream(seed, policy, store=store, resolver=resolver, dialer=dialer) as stream:
                manifest = await _watch(stream, err)
        _show_captured(manifest, out)
        _show_refused(manifest, out)
        problems = await _replay(manifest, seed, policy, store, out)
        problems += _check_fences(manifest, dialer)
    _conclude(manifest, dialer, site.requests, problems, out)
    return 1 if problems else 0


def _policy(site: DemoSite) -> CrawlPolicy:
    return CrawlPolicy(
        max_pages=60,
        max_depth=3,
        discovery="both",
        delay=DELAY,
        concurrency=4,
        retries=1,
        same_host=False,  # links to anywhere are followed: what stops them is the guard
        egress=EgressPolicy(test_loopback_origins=(site.origin,)),
    )


async def _introduce(site: DemoSite, policy: CrawlPolicy, resolver: RebindingResolver, err: TextIO) -> None:
    target = await evaluate_url(f"http://{REBINDING_HOST}/", policy.egress, resolver=resolver)
    checked = ", ".join(address.address for address in target.addresses)
    print(
        dedent(f"""\
        A small museum is served at {site.origin}; its guest book is full of links that lead inside.
        The crawl goes through the guard with that one origin open, delay={policy.delay} (seconds between request starts).
        {REBINDING_HOST} answers {checked} to a check before the crawl, and a private address to whoever asks again.
        """),
        file=err,
    )


async def _watch(stream: CrawlStream, err: TextIO) -> CrawlManifest:
    async for event in stream:
        match event:
            case PageCaptured(page=page):
                print(f"  {page.status}  {page.url}", file=err)
            case PageFailed(failure=failure):
                print(f"  ---  {failure.url}: {failure.rule or failure.code}", file=err)
            case HostPaused(host=host, seconds=seconds, why=why) if seconds >= PAUSE_WORTH_SHOWING:
                print(f"       {host} waits {seconds:.1f} s ({why})", file=err)
            case CrawlWarning(message=message):
                print(f"       warning: {message}", file=err)
    assert stream.manifest is not None, "a stream that ended has its manifest"
    return stream.manifest


def _show_captured(manifest: CrawlManifest, out: TextIO) -> None:
    print(f"\nCaptured: {len(manifest.pages)} pages, each with the reference that cites exactly these bytes\n", file=out)
    for page in manifest.pages:
        print(f"  {page.status}  {page.body_bytes:>6,} bytes  {page.url}", file=out)
        for came_from in page.redirects:
            print(f"       by way of  {came_from}", file=out)
        print(f"       {page.source_ref}", file=out)


def _show_refused(manifest: CrawlManifest, out: TextIO) -> None:
    rows = [(failure.url, failure.message if failure.rule else f"{failure.code}: {failure.message}") for failure in manifest.failures]
    rows += [(skip.url, f"{skip.reason}: {skip.detail}" if skip.detail else skip.reason) for skip in manifest.skips]
    print(f"\nNot captured: {len(rows)} URLs, and the rule that decided\n", file=out)
    for url, why in rows:
        print(f"  {url}\n       {why}", file=out)


async def _replay(manifest: CrawlManifest, seed: Seed, policy: CrawlPolicy, store: SnapshotStore, out: TextIO) -> list[str]:
    """With the server gone: crawl again from the store alone, and resolve each reference as a reader of a citation would."""
    again = await crawl(seed, attrs.evolve(policy, mode="replay"), store=store)
    bodies = {page.url: page.snapshot for page in again.pages}
    problems = []
    for page in manifest.pages:
        replayed = bodies.get(page.url)
        resolution = await resolve_source_ref(store, page.source_ref)
        assert page.snapshot is not None, "the demonstration keeps bodies"
        received = body_bytes(page.snapshot)
        if replayed is None or body_bytes(replayed) != received:
            problems.append(f"{page.url}: replayed with other bytes")
        if resolution.snapshot is None or body_bytes(resolution.snapshot) != received:
            problems.append(f"{page.url}: its reference does not resolve to the bytes received")
    same = len(manifest.pages) - len({problem.split(": ")[0] for problem in problems})
    print(
        f"\nReplayed with the server gone: {same} of {len(manifest.pages)} pages, every byte the same, every reference resolved", file=out
    )
    return problems


def _check_fences(manifest: CrawlManifest, dialer: FencedDialer) -> list[str]:
    """Nothing but the one origin may have been captured, or dialled."""
    origin = manifest.seed.rstrip("/")
    problems = [f"dialled {address}" for address in dialer.refused]
    problems += [f"captured {page.url}" for page in manifest.pages if not page.url.startswith(f"{origin}/")]
    if not any(failure.rule == EgressCode.DENIED_ADDRESS and REBINDING_HOST in failure.url for failure in manifest.failures):
        problems.append(f"{REBINDING_HOST} was not refused for its second answer")
    return problems


def _conclude(manifest: CrawlManifest, dialer: FencedDialer, requests: Sequence[str], problems: Iterable[str], out: TextIO) -> None:
    counts = manifest.counts
    again = sorted(request for request, times in Counter(requests).items() if times > 1)
    print(f"Asked again after it had answered 429 (too many requests) and named a time: {', '.join(again)}", file=out)
    print(
        f"{counts.seen} URLs seen = {counts.captured} captured + {counts.failed} failed + {counts.skipped} skipped;"
        f" {len(requests)} requests, connections: {dialer.connections}, all to {manifest.seed}",
        file=out,
    )
    for problem in problems:
        print(f"PROBLEM: {problem}", file=out)
