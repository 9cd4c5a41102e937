"""Random sites over an in-memory wire, in virtual time: one manifest at any concurrency, all URLs accounted for, politeness exact."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import attrs
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from forage.crawler import CrawlManifest, CrawlPolicy, crawl
from forage.egress import JudgedUrl
from tests.crawler.stress import NOW
from tests.support.accounting import assert_accounted
from tests.support.server_log import Pause, Seen, assert_not_paused
from tests.support.virtual_hosts import Asked, VirtualAnswer, VirtualHosts, VirtualResolver

SEED = "https://a.test/0"
HTML = (("Content-Type", "text/html; charset=utf-8"),)


@attrs.frozen
class Site:
    """What each URL answers: links, a redirect target or a status; whose robots.txt closes a path, and whose asks for a delay."""

    answers: Mapping[str, Sequence[str] | str | int]
    closed: frozenset[str]
    crawl_delays: Mapping[str, int]


class Hosts:
    """The servers of a site for one crawl: latencies from a seed, and one 429 for each busy URL where ``busy``.

    Who gets the 429 depends on who comes first, so a host of which several pages are asked for at a time has none.
    """

    def __init__(self, site: Site, *, seed: int, busy: bool) -> None:
        self._site = site
        self._all_busy = busy
        self._random = random.Random(seed)
        self._busy: set[str] = set()
        self.pauses: list[Pause] = []

    def __call__(self, target: JudgedUrl, asked: Asked) -> VirtualAnswer:
        delay = self._random.choice((0.0, 0.001, 0.01, 0.1, 1.0))
        if target.url.endswith("/robots.txt"):
            closed = "Disallow: /3" if target.host in self._site.closed else "Disallow:"
            slow = self._site.crawl_delays.get(target.host, 0)
            return VirtualAnswer(
                headers=(("Content-Type", "text/plain"),), body=f"User-agent: *\n{closed}\nCrawl-delay: {slow}\n".encode(), delay=delay
            )
        answer = self._site.answers.get(target.url, 404)
        if answer == 429:
            first = self._all_busy and target.url not in self._busy
            self._busy.add(target.url)
            answer = 429 if first else ()
        if answer == 429:
            told = asked.at + delay
            self.pauses.append(Pause(host=target.host, begin=told, end=told + 7))
        if isinstance(answer, int):
            return VirtualAnswer(status=answer, headers=(("Retry-After", "7"),), delay=delay)
        if isinstance(answer, str):
            return VirtualAnswer(status=302, headers=(("Location", answer),), delay=delay)
        body = "".join(f'<a href="{url}">x</a>' for url in answer).encode()
        return VirtualAnswer(headers=HTML, body=body, delay=delay)


@st.composite
def sites(draw: st.DrawFn) -> Site:
    urls = [SEED, *(f"https://{draw(st.sampled_from('abcd'))}.test/{n}" for n in range(1, draw(st.integers(2, 20))))]
    links = st.lists(st.sampled_from([*urls, "https://a.test/none"]), max_size=6)
    answer = st.one_of(links, links, links, st.sampled_from(urls), st.sampled_from([404, 410, 429]))
    answers: dict[str, Any] = {url: draw(links if url == SEED else answer) for url in urls}
    slow = draw(st.dictionaries(st.sampled_from(["a.test", "b.test"]), st.integers(1, 3)))
    return Site(answers, closed=frozenset(draw(st.sets(st.sampled_from(["a.test", "c.test"])))), crawl_delays=slow)


async def crawl_virtual(site: Site, *, seed: int, **options: Any) -> tuple[CrawlManifest, list[Seen], list[Pause]]:
    wanted: dict[str, Any] = {"max_pages": 100, "max_depth": 50, "same_host": False, "delay": 0.0, **options}
    async with trio.open_nursery() as nursery:
        hosts = Hosts(site, seed=seed, busy=wanted.get("per_host") == 1)
        wire = VirtualHosts(nursery, hosts)
        manifest = await crawl(SEED, CrawlPolicy(**wanted), wire=wire, resolver=VirtualResolver(), utc_now=lambda: NOW)
        nursery.cancel_scope.cancel()
    return manifest, seen(wire.asked), hosts.pauses


def run(site: Site, *, seed: int, **options: Any) -> tuple[CrawlManifest, list[Seen], list[Pause]]:
    async def main() -> tuple[CrawlManifest, list[Seen], list[Pause]]:
        return await crawl_virtual(site, seed=seed, **options)

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def seen(asked: Sequence[Asked]) -> list[Seen]:
    log = []
    for one in asked:
        host, slash, path = one.url.partition("//")[2].partition("/")
        log.append(Seen(host=host, target=slash + path, at=one.at, answered=None))
    return log


@given(
    site=sites(),
    window=st.sampled_from([1, 3, 64]),
    per_host=st.sampled_from([1, 1, 2]),
    concurrency=st.sampled_from([2, 5, 32]),
    max_pages=st.sampled_from([4, 100]),
    delay=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 2**32),
)
def test_one_manifest_at_any_concurrency(
    site: Site, window: int, per_host: int, concurrency: int, max_pages: int, delay: float, seed: int
) -> None:
    options = {"window": window, "per_host": per_host, "max_pages": max_pages, "delay": delay}
    plain, _, _ = run(site, seed=0, concurrency=1, **options)
    shuffled, log, pauses = run(site, seed=seed, concurrency=concurrency, **options)
    assert shuffled.to_json() == plain.to_json()
    assert_accounted(shuffled, log, scheme="https")
    assert_not_paused(log, pauses)
    by_host: dict[str, list[float]] = {}
    for one in log:
        by_host.setdefault(one.host, []).append(one.at)
    for host, starts in by_host.items():
        wanted = max(delay, site.crawl_delays.get(host, 0))
        # The Crawl-delay is known once robots.txt has come, and holds from the first page on.
        assert all(later - earlier >= wanted - 1e-6 for earlier, later in pairwise(starts[1:])), (host, wanted, starts)
