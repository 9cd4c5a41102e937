"""Hosts that are left alone in the middle of a crawl: which of their pages a manifest lists depends on the site, not on what was under way.

In virtual time over an in-memory wire; a server that is asked inside a pause fails the test.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from forage.crawler import CrawlManifest, CrawlPolicy, SkipReason, crawl
from forage.egress import EgressPolicy, JudgedUrl
from forage.snapshots import MemorySnapshotStore, Snapshot
from tests.crawler.stress import NOW
from tests.support.virtual_hosts import Asked, Trouble, VirtualAnswer, VirtualHosts, VirtualResolver

SEED = "https://a.test/"
HTML = (("Content-Type", "text/html; charset=utf-8"),)
LONG = 500.0
"""Seconds that a host may ask for; above what these policies wait."""


@attrs.frozen
class Node:
    """What one URL answers: links, or a status with a wish, or a redirect, or nothing."""

    links: tuple[str, ...] = ()
    status: int = 200
    retry_after: float | None = None
    target: str | None = None
    reset: bool = False


class Servers:
    """Answers of a site, after latencies from a seed. Asked inside a pause it says so."""

    def __init__(self, nodes: Mapping[str, Node], *, crawl_delay: Mapping[str, int], latency: Callable[[str], float]) -> None:
        self._nodes = nodes
        self._crawl_delay = crawl_delay
        self._latency = latency
        self._pauses: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.asked_in_pause: list[str] = []

    def __call__(self, target: JudgedUrl, asked: Asked) -> VirtualAnswer | Trouble:
        delay = self._latency(target.url)
        if any(begin < asked.at < end for begin, end in self._pauses[target.host]):
            self.asked_in_pause.append(target.url)
        if target.url.endswith("/robots.txt") and target.url not in self._nodes:
            wish = self._crawl_delay.get(target.host)
            rules = "User-agent: *\nDisallow: /closed\n" + (f"Crawl-delay: {wish}\n" if wish else "")
            return VirtualAnswer(headers=(("Content-Type", "text/plain"),), body=rules.encode(), delay=delay)
        node = self._nodes.get(target.url, Node(status=404))
        if node.reset:
            return Trouble(kind="reset")
        if node.retry_after is not None and node.status in (429, 503):
            told = asked.at + delay
            self._pauses[target.host].append((told, told + node.retry_after))
        wish_for = () if node.retry_after is None else (("Retry-After", f"{node.retry_after:.0f}"),)
        if node.target is not None:
            return VirtualAnswer(status=302, headers=(("Location", node.target),), delay=delay)
        body = "".join(f'<a href="{url}">x</a>' for url in node.links).encode() if node.status == 200 else b""
        return VirtualAnswer(status=node.status, headers=(*HTML, *wish_for), body=body, delay=delay)


def run(
    nodes: Mapping[str, Node],
    *,
    crawl_delay: Mapping[str, int] | None = None,
    latency: Callable[[str], float] = lambda _: 0.01,
    store: MemorySnapshotStore | None = None,
    **options: Any,
) -> CrawlManifest:
    """One crawl in virtual time."""
    wanted: dict[str, Any] = {"max_pages": 500, "max_depth": 50, "same_host": False, "delay": 0.0, "retries": 0, **options}
    servers = Servers(nodes, crawl_delay=crawl_delay or {}, latency=latency)

    async def main() -> CrawlManifest:
        async with trio.open_nursery() as nursery:
            wire = VirtualHosts(nursery, servers)
            policy = CrawlPolicy(**wanted)
            manifest = await crawl(SEED, policy, wire=wire, resolver=VirtualResolver(), store=store, utc_now=lambda: NOW)
            nursery.cancel_scope.cancel()
        return manifest

    manifest = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert not servers.asked_in_pause
    return manifest


def star(count: int, **special: Node) -> dict[str, Node]:
    """A seed page with ``count`` linked pages /1, /2, ...; ``special`` are those that answer otherwise, by ``n`` and number."""
    nodes = {f"{SEED}{n}": special.get(f"n{n}", Node()) for n in range(1, count + 1)}
    return {SEED: Node(links=tuple(nodes)), **nodes}


def rows(manifest: CrawlManifest) -> dict[str, str]:
    """What became of each path."""
    return {
        **{page.requested_url.removeprefix(SEED): "captured" for page in manifest.pages},
        **{failure.url.removeprefix(SEED): failure.code for failure in manifest.failures},
        **{skip.url.removeprefix(SEED): skip.reason.value for skip in manifest.skips},
    }


def shuffled(seed: int) -> Callable[[str], float]:
    """Latencies in an order of their own."""
    source = random.Random(seed)
    return lambda _: source.choice((0.0, 0.001, 0.01, 0.1, 1.0))


CONCURRENCIES = [1, 2, 4, 16, 64]


@pytest.mark.parametrize("per_host", [1, 2, 3, 4, 16])
@pytest.mark.parametrize("delay", [0.0, 0.5])
@pytest.mark.parametrize("status", [429, 503])
def test_host_that_asks_for_too_long_a_pause_is_lost_at_the_same_page_at_any_concurrency(per_host: int, delay: float, status: int) -> None:
    nodes = star(20, n5=Node(status=status, retry_after=LONG))
    manifests = [run(nodes, per_host=per_host, concurrency=c, delay=delay, latency=shuffled(c)) for c in CONCURRENCIES]
    first = rows(manifests[0])
    assert [first[str(n)] for n in (4, 5, 6, 20)] == ["captured", "retry-after-too-long", "host-paused", "host-paused"]
    assert manifests[0].counts.captured == 5
    assert len({manifest.to_json() for manifest in manifests}) == 1


def test_what_was_fetched_beside_the_answer_that_lost_a_host_is_not_listed_and_not_followed() -> None:
    nodes = star(8, n2=Node(status=429, retry_after=LONG), n3=Node(links=(f"{SEED}deeper", "https://b.test/")))
    manifest = run(nodes, per_host=4, concurrency=4, latency=lambda url: 5.0 if url.endswith("/2") else 0.01)
    assert rows(manifest) == {"": "captured", "1": "captured", "2": "retry-after-too-long", **{str(n): "host-paused" for n in range(3, 9)}}


class SlowLookups(MemorySnapshotStore):
    """A store that takes a while to say what it has of the pages of one number."""

    async def latest(self, source_id: str) -> Snapshot | None:
        if source_id.endswith("/1"):
            await trio.sleep(3)
        return await super().latest(source_id)


def test_page_whose_request_is_late_is_not_lost_by_the_answer_to_a_later_one() -> None:
    nodes = star(8, n3=Node(status=429, retry_after=LONG))
    slow = run(nodes, per_host=4, concurrency=4, store=SlowLookups())
    assert rows(slow)["1"] == "captured"
    assert slow.to_json() == run(nodes, per_host=4, concurrency=1, store=MemorySnapshotStore()).to_json()


@pytest.mark.parametrize("per_host", [1, 4])
@pytest.mark.parametrize("slow", [0.01, 20.0])
def test_host_whose_crawl_delay_is_above_the_ceiling_gives_one_page_however_long_pages_take(per_host: int, slow: float) -> None:
    nodes = {SEED: Node(links=("https://b.test/1", "https://b.test/2", *(f"{SEED}{n}" for n in range(6)), "https://b.test/3"))}
    nodes |= {f"{SEED}{n}": Node() for n in range(6)} | {f"https://b.test/{n}": Node() for n in (1, 2, 3)}
    found = {
        run(
            nodes,
            crawl_delay={"b.test": 61},
            per_host=per_host,
            concurrency=c,
            latency=lambda _: slow,
            attempt_seconds=100.0,
            window=4,
            max_retry_wait=1.0,
        ).to_json()
        for c in CONCURRENCIES
    }
    assert len(found) == 1
    found_rows = rows(CrawlManifest.from_json(found.pop()))
    assert [found_rows[f"https://b.test/{n}"] for n in (1, 2, 3)] == ["captured", "crawl-delay-too-long", "crawl-delay-too-long"]


def test_redirect_to_another_host_that_asks_for_a_pause_loses_that_host_and_not_the_first() -> None:
    nodes = star(4, n1=Node(target="https://b.test/busy")) | {"https://b.test/busy": Node(status=429, retry_after=LONG)}
    nodes[SEED] = Node(links=(*nodes[SEED].links, "https://b.test/1", "https://b.test/2"))
    found = rows(run(nodes, egress=EgressPolicy(redirect_hosts="any")))
    assert [found[name] for name in ("2", "3", "4")] == ["captured"] * 3
    assert [found[f"https://b.test/{n}"] for n in (1, 2)] == ["host-paused"] * 2


def test_probe_for_missing_pages_that_is_told_to_wait_too_long_loses_the_host_at_its_first_page() -> None:
    class Probed(dict[str, Node]):
        def get(self, key: str, default: Any = None) -> Any:
            known = super().get(key)
            return Node(status=429, retry_after=LONG) if known is None else known

    nodes = Probed(star(6))
    found = {run(nodes, soft_404_probe=True, per_host=4, concurrency=c, latency=shuffled(c)).to_json() for c in CONCURRENCIES}
    assert len(found) == 1
    assert set(rows(CrawlManifest.from_json(found.pop())).values()) == {"captured", "host-paused"}


def test_back_off_of_our_own_never_loses_a_host() -> None:
    nodes = star(6, n2=Node(status=503), n4=Node(status=503))
    found = rows(run(nodes, retries=5, max_retry_wait=0.05))
    assert [found[str(n)] for n in range(1, 7)] == ["captured", "http-error", "captured", "http-error", "captured", "captured"]


async def test_lost_host_stays_lost_when_the_crawl_goes_on(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    nodes = star(12, n4=Node(status=429, retry_after=LONG))
    policy = CrawlPolicy(delay=0.0, per_host=4, concurrency=4, retries=0, max_pages=100)

    async def once(state: Path | None) -> CrawlManifest:
        async with trio.open_nursery() as nursery:
            wire = VirtualHosts(nursery, Servers(nodes, crawl_delay={}, latency=lambda _: 0.01))
            manifest = await crawl(SEED, policy, wire=wire, resolver=VirtualResolver(), state=state, utc_now=lambda: NOW)
            nursery.cancel_scope.cancel()
        return manifest

    whole = await once(None)
    for _ in range(2):
        assert (await once(tmp_path / "state")).to_json() == whole.to_json()
    assert {skip.reason for skip in whole.skips} == {SkipReason.RETRY_AFTER_TOO_LONG, SkipReason.HOST_PAUSED}


def urls_of(count: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from([f"https://{host}.test/{n}" for host in "abc" for n in range(count)]), max_size=8)


@st.composite
def sites(draw: st.DrawFn) -> dict[str, Node]:
    """Pages of three hosts, of which some fail, are closed by robots.txt, or want to be left alone, for a short or too long a time."""
    answers = st.one_of(
        st.builds(Node, links=urls_of(8).map(tuple)),
        st.builds(Node, links=urls_of(8).map(tuple)),
        st.builds(Node, links=urls_of(8).map(tuple)),
        st.builds(Node, status=st.sampled_from([404, 500, 503]), retry_after=st.sampled_from([None, 0, 3])),
        st.builds(Node, status=st.sampled_from([429, 503]), retry_after=st.sampled_from([2, LONG, 1e9])),
        st.just(Node(reset=True)),
        st.builds(Node, target=st.sampled_from([f"https://{host}.test/{n}" for host in "abc" for n in range(8)])),
    )
    nodes = {f"https://{host}.test/{n}": draw(answers) for host in "abc" for n in range(8)}
    first = [*draw(urls_of(8)), *(f"https://{host}.test/{n}" for host in "abc" for n in range(draw(st.integers(0, 8))))]
    return {SEED: Node(links=(*first, "https://b.test/closed")), **nodes}


@settings(max_examples=150)
@given(
    nodes=sites(),
    per_host=st.integers(1, 4),
    concurrency=st.sampled_from([2, 4, 16, 64]),
    window=st.sampled_from([1, 5, 64]),
    delay=st.sampled_from([0.0, 0.3]),
    wishes=st.dictionaries(st.sampled_from(["a.test", "b.test", "c.test"]), st.sampled_from([1, 1000]), max_size=2),
    max_pages=st.sampled_from([6, 500]),
    retries=st.integers(0, 2),
    seed=st.integers(0, 2**32),
)
def test_one_manifest_at_any_concurrency_where_hosts_are_lost(
    nodes: dict[str, Node],
    per_host: int,
    concurrency: int,
    window: int,
    delay: float,
    wishes: dict[str, int],
    max_pages: int,
    retries: int,
    seed: int,
) -> None:
    if per_host > 1 and (1000 in wishes.values() or any((node.retry_after or 0) >= LONG for node in nodes.values())):
        # A page that needs another request may find its host paused by the answer to a page after it: docs/crawl.md.
        retries = 0
        nodes = {url: Node() if node.target is not None else node for url, node in nodes.items()}
    options: dict[str, Any] = {"per_host": per_host, "window": window, "delay": delay, "max_pages": max_pages, "crawl_delay": wishes}
    options["retries"] = retries
    plain = run(nodes, concurrency=1, **options)
    other = run(nodes, concurrency=concurrency, latency=shuffled(seed), **options)
    assert other.to_json() == plain.to_json()


@pytest.mark.parametrize("on_error", ["allow", "deny"])
@pytest.mark.parametrize("status", [429, 503])
def test_host_whose_robots_file_asks_for_too_long_a_pause_is_lost_at_its_first_page(on_error: str, status: int) -> None:
    nodes = star(4)
    nodes[SEED] = Node(links=(*nodes[SEED].links, *(f"https://b.test/{n}" for n in range(6))))
    nodes |= {f"https://b.test/{n}": Node() for n in range(6)} | {"https://b.test/robots.txt": Node(status=status, retry_after=LONG)}
    found = {run(nodes, per_host=4, robots_on_error=on_error, concurrency=c, latency=shuffled(c)).to_json() for c in CONCURRENCIES}
    assert len(found) == 1
    found_rows = rows(CrawlManifest.from_json(found.pop()))
    lost = "host-paused" if on_error == "allow" else "robots-unreachable"
    assert {found_rows[f"https://b.test/{n}"] for n in range(6)} == {lost}
