"""The crawl's wiring over a scripted acquirer: order, budgets, accounting, early ends. Times are the autojump clock's."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from forage.crawler import CrawlPolicy, SkipReason
from forage.crawler.discovery import SitemapFinds
from forage.crawler.engine import Crawl
from forage.crawler.events import CrawlEvent, PageCaptured, PageFailed, UrlSkipped
from forage.crawler.frontier import Entry
from forage.crawler.lanes import HostTurn, Outcome
from forage.crawler.links import Link
from forage.crawler.manifest import CrawlManifest, Page, PageFailure
from forage.crawler.tally import Tally

SEED = "http://a.test/"


@attrs.frozen
class Site:
    """Links by URL, redirect targets, and URLs that fail."""

    links: Mapping[str, Sequence[str]]
    redirects: Mapping[str, str] = attrs.field(factory=dict)
    broken: frozenset[str] = frozenset()


class ScriptedAcquirer:
    """Answers from a `Site` after a pause that a random source picks; remembers what was asked and how many at once."""

    def __init__(self, site: Site, *, slots: int = 1000, seed: int = 0, pause: Callable[[str], float] | None = None) -> None:
        self.site = site
        self.asked: list[str] = []
        self.most = 0
        self._slots = trio.CapacityLimiter(slots)
        self._random = random.Random(seed)
        self._pause = pause or (lambda _: self._random.random())

    async def acquire(self, entry: Entry, turn: HostTurn | None) -> Outcome:
        async with self._slots:
            self.asked.append(entry.url)
            self.most = max(self.most, int(self._slots.borrowed_tokens))
            await trio.sleep(self._pause(entry.url))
        if entry.url in self.site.broken:
            failure = PageFailure(number=entry.number, url=entry.url, code="network", message="reset", depth=entry.depth)
            return Outcome(failure=failure)
        final = self.site.redirects.get(entry.url, entry.url)
        links = tuple(Link(kind="a", url=url) for url in self.site.links.get(final, ()))
        return Outcome(page=_page(entry, final), links=links, covered=() if final == entry.url else (final,))

    async def discover(self) -> SitemapFinds:
        raise AssertionError("these crawls follow links only")


def _page(entry: Entry, url: str) -> Page:
    return Page(
        number=entry.number,
        url=url,
        requested_url=entry.url,
        status=200,
        depth=entry.depth,
        source_id=entry.url,
        source_ref=f"ref:{entry.url}",
        body_hash="0" * 64,
        body_bytes=10,
        fetched_at="2026-01-01T00:00:00.000Z",
    )


async def crawl_site(
    acquirer: ScriptedAcquirer, policy: CrawlPolicy, *, started: Callable[[Crawl], None] | None = None
) -> tuple[CrawlManifest, list[CrawlEvent]]:
    events: list[CrawlEvent] = []

    async def emit(event: CrawlEvent) -> None:
        await trio.lowlevel.checkpoint()
        events.append(event)

    tally = Tally()
    running = Crawl(seed_url=SEED, policy=policy, acquirer=acquirer, tally=tally, emit=emit)
    if started is not None:
        started(running)
    await running.run()
    manifest = tally.manifest(
        seed=SEED, mode="live", policy={}, policy_digest="", started_at="", ended_at="", tool="", sitemaps=running.sitemaps
    )
    return manifest, events


def policy_of(**options: object) -> CrawlPolicy:
    return CrawlPolicy(**{"max_pages": 100, "max_depth": 50, "same_host": False, **options})  # type: ignore[arg-type]  # a test's keyword options


async def test_pages_are_committed_breadth_first(autojump_clock: trio.testing.MockClock) -> None:
    site = Site({SEED: ["http://a.test/1", "http://a.test/2"], "http://a.test/1": ["http://a.test/3"]})
    manifest, events = await crawl_site(ScriptedAcquirer(site), policy_of())
    assert [p.url for p in manifest.pages] == [SEED, "http://a.test/1", "http://a.test/2", "http://a.test/3"]
    assert [p.depth for p in manifest.pages] == [0, 1, 1, 2]
    assert [e.page for e in events if isinstance(e, PageCaptured)] == list(manifest.pages)


async def test_redirect_target_of_a_host_is_not_visited_again(autojump_clock: trio.testing.MockClock) -> None:
    site = Site({SEED: ["http://a.test/r", "http://a.test/t"]}, redirects={"http://a.test/r": "http://a.test/t"})
    acquirer = ScriptedAcquirer(site)
    manifest, _ = await crawl_site(acquirer, policy_of(concurrency=8))
    assert acquirer.asked == [SEED, "http://a.test/r"]
    assert [(s.url, s.reason) for s in manifest.skips] == [("http://a.test/t", SkipReason.DUPLICATE)]


async def test_every_url_seen_has_exactly_one_row(autojump_clock: trio.testing.MockClock) -> None:
    links = {SEED: [f"http://a.test/{i}" for i in range(20)] + ["http://out.test/x", "http://a.test/bad"]}
    site = Site(links, broken=frozenset({"http://a.test/bad"}))
    manifest, events = await crawl_site(ScriptedAcquirer(site), policy_of(same_host=True, max_pages=10))
    urls = [p.requested_url for p in manifest.pages] + [f.url for f in manifest.failures] + [s.url for s in manifest.skips]
    assert sorted(urls) == sorted([SEED, *links[SEED]])
    assert manifest.counts.seen == 23
    assert manifest.counts.captured == 10
    assert manifest.truncated
    assert manifest.budgets_hit == ("max-pages",)
    assert len([e for e in events if isinstance(e, PageCaptured | PageFailed | UrlSkipped)]) == 23


async def test_byte_and_failure_budgets_end_the_crawl_with_their_own_reason(autojump_clock: trio.testing.MockClock) -> None:
    links = {f"http://a.test/{i}": [f"http://a.test/{i + 1}"] for i in range(40)} | {SEED: ["http://a.test/0"]}
    manifest, _ = await crawl_site(ScriptedAcquirer(Site(links)), policy_of(max_bytes=50))
    assert len(manifest.pages) == 5
    assert manifest.budgets_hit == ("max-bytes",)
    broken = Site({SEED: [f"http://a.test/{i}" for i in range(9)]}, broken=frozenset(f"http://a.test/{i}" for i in range(9)))
    manifest, _ = await crawl_site(ScriptedAcquirer(broken), policy_of(max_failures=2, window=1))
    assert len(manifest.failures) == 3
    assert manifest.budgets_hit == ("max-failures",)


@pytest.mark.parametrize("concurrency", [1, 4, 64])
@pytest.mark.parametrize("window", [1, 64])
async def test_byte_and_failure_budgets_end_at_the_entry_that_used_them_up(
    concurrency: int, window: int, autojump_clock: trio.testing.MockClock
) -> None:
    urls = [f"http://{host}.test/{i}" for i in range(30) for host in "abcd"]
    for budget, broken in ({"max_bytes": 50}, frozenset[str]()), ({"max_failures": 4}, frozenset(urls)):
        acquirer = ScriptedAcquirer(Site({SEED: urls}, broken=broken), slots=concurrency, seed=concurrency)
        manifest, _ = await crawl_site(acquirer, policy_of(window=window, max_pages=500, **budget))
        rows = [page.requested_url for page in manifest.pages] + [failure.url for failure in manifest.failures]
        assert sorted(rows) == sorted([SEED, *urls[: 4 if "max_bytes" in budget else 5]])
        assert manifest.counts.seen == 1 + len(urls)
        assert manifest.budgets_hit == ("max-bytes" if "max_bytes" in budget else "max-failures",)


async def test_running_out_of_time_keeps_what_was_captured(autojump_clock: trio.testing.MockClock) -> None:
    site = Site({SEED: ["http://a.test/slow", "http://a.test/after"]})
    acquirer = ScriptedAcquirer(site, pause=lambda url: 3600 if url.endswith("slow") else 1)
    before = trio.current_time()
    manifest, _ = await crawl_site(acquirer, policy_of(max_seconds=10))
    assert trio.current_time() - before <= 11
    assert [p.url for p in manifest.pages] == [SEED]
    assert {s.url: s.reason for s in manifest.skips} == {
        "http://a.test/slow": SkipReason.MAX_SECONDS,
        "http://a.test/after": SkipReason.MAX_SECONDS,
    }


async def test_stopping_lists_the_rest_as_interrupted(autojump_clock: trio.testing.MockClock) -> None:
    site = Site({SEED: [f"http://a.test/{i}" for i in range(5)]})
    running: list[Crawl] = []

    async def halt_later() -> None:
        await trio.sleep(1.5)
        running[0].halt(SkipReason.INTERRUPTED)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(halt_later)
        manifest, _ = await crawl_site(ScriptedAcquirer(site, pause=lambda _: 1), policy_of(), started=running.append)
    assert [p.url for p in manifest.pages] == [SEED]
    assert {s.reason for s in manifest.skips} == {SkipReason.INTERRUPTED}
    assert manifest.counts.seen == 6


async def test_hung_host_holds_others_back_by_the_window_at_most(autojump_clock: trio.testing.MockClock) -> None:
    fast = [f"http://b.test/{i}" for i in range(100)]
    site = Site({SEED: ["http://hung.test/", *fast]})
    acquirer = ScriptedAcquirer(site, pause=lambda url: 1e6 if "hung" in url else 0.01)
    with trio.move_on_after(1000):
        await crawl_site(acquirer, policy_of(max_pages=200, window=16, concurrency=64))
    assert len(acquirer.asked) == 1 + 16


async def test_should_follow_filters_and_orders(autojump_clock: trio.testing.MockClock) -> None:
    def judge(link: Link, context: object) -> bool | float:
        return False if link.url.endswith("no") else float(link.url.rpartition("/")[2])

    site = Site({SEED: ["http://a.test/1", "http://a.test/9", "http://a.test/no", "http://a.test/5"]})
    manifest, _ = await crawl_site(ScriptedAcquirer(site), policy_of(should_follow=judge))
    assert [p.url.rpartition("/")[2] for p in manifest.pages[1:]] == ["9", "5", "1"]
    assert [(s.url, s.reason) for s in manifest.skips] == [("http://a.test/no", SkipReason.FILTERED)]


@st.composite
def sites(draw: st.DrawFn) -> Site:
    urls = [SEED, *(f"http://{draw(st.sampled_from('abcd'))}.test/{i}" for i in range(draw(st.integers(0, 25))))]
    links = {url: draw(st.lists(st.sampled_from(urls), max_size=5)) for url in urls}
    redirects = {url: draw(st.sampled_from(urls)) for url in urls if draw(st.integers(0, 5)) == 0}
    return Site(links, redirects=redirects, broken=frozenset(url for url in urls[1:] if draw(st.integers(0, 7)) == 0))


@settings(max_examples=60)
@given(
    site=sites(),
    window=st.sampled_from([1, 2, 5, 64]),
    per_host=st.integers(1, 3),
    slots=st.sampled_from([2, 16]),
    max_pages=st.sampled_from([3, 100]),
    seed=st.integers(0, 2**32),
)
def test_manifest_is_the_same_whatever_the_timing(site: Site, window: int, per_host: int, slots: int, max_pages: int, seed: int) -> None:
    policy = policy_of(window=window, per_host=per_host, max_pages=max_pages)

    async def once(slots: int, seed: int) -> CrawlManifest:
        return (await crawl_site(ScriptedAcquirer(site, slots=slots, seed=seed), policy))[0]

    clock = trio.testing.MockClock(autojump_threshold=0)
    plain = trio.run(once, 1, 0, clock=clock)
    shuffled = trio.run(once, slots, seed, clock=trio.testing.MockClock(autojump_threshold=0))
    assert shuffled == plain
    rows = [p.requested_url for p in plain.pages] + [f.url for f in plain.failures] + [s.url for s in plain.skips]
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize("steps", range(0, 60, 3))
async def test_cancelling_a_crawl_leaves_no_task(steps: int, autojump_clock: trio.testing.MockClock) -> None:
    site = Site({SEED: [f"http://{h}.test/{i}" for h in "abc" for i in range(3)]})
    before = trio.lowlevel.current_statistics().tasks_living
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def cancel() -> None:
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                scope.cancel()

            nursery.start_soon(cancel)
            await crawl_site(ScriptedAcquirer(site), policy_of(concurrency=4))
    assert trio.lowlevel.current_statistics().tasks_living == before
