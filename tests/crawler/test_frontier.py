"""The order of a crawl depends on site and policy only; nothing here waits or connects."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.crawler.frontier import Entry, Frontier, host_key
from forage.crawler.order import CommitOrder, Turn

Site = Mapping[str, Sequence[str]]


@pytest.mark.parametrize(
    ("url", "lane"),
    [
        ("https://site.test/", "site.test"),
        ("http://site.test/a?b#c", "site.test"),
        ("https://site.test:8443/a", "site.test:8443"),
        ("https://[2001:db8::1]:8443/", "[2001:db8::1]:8443"),
        ("https://site.test?q=/x", "site.test"),
    ],
)
def test_lane_is_host_and_port_unless_default(url: str, lane: str) -> None:
    assert host_key(url) == lane


def test_hosts_take_turns_and_each_host_is_first_in_first_out() -> None:
    frontier = Frontier()
    for url in ["http://a/1", "http://a/2", "http://b/1", "http://a/3", "http://c/1", "http://b/2"]:
        assert frontier.push(url, url, 1)
    taken = [frontier.pop(n).url for n in range(6)]
    assert taken == ["http://a/1", "http://b/1", "http://c/1", "http://a/2", "http://b/2", "http://a/3"]


def test_a_key_is_queued_once_and_keeps_the_first_spelling() -> None:
    frontier = Frontier()
    assert frontier.push("http://a/p?b=1&a=2", "http://a/p?a=2&b=1", 1)
    assert not frontier.push("http://a/p?a=2&b=1", "http://a/p?a=2&b=1", 1)
    assert frontier.pop(0).url == "http://a/p?b=1&a=2"
    assert len(frontier) == 0


def test_depth_is_the_shortest_path_known_when_the_entry_is_numbered() -> None:
    frontier = Frontier()
    frontier.push("http://a/x", "http://a/x", 3)
    frontier.push("http://a/x", "http://a/x", 2)
    assert frontier.pop(0).depth == 2


def test_scores_order_a_host_and_ties_keep_discovery_order() -> None:
    frontier = Frontier(scored=True)
    for url, score in [("http://a/low", 0.0), ("http://a/high", 5.0), ("http://a/high2", 5.0)]:
        frontier.push(url, url, 1, score=score)
    assert [frontier.pop(n).url for n in range(3)] == ["http://a/high", "http://a/high2", "http://a/low"]


def test_redirect_target_that_waits_is_numbered_as_covered() -> None:
    frontier = Frontier()
    frontier.push("http://a/t", "http://a/t", 1)
    frontier.mark("http://a/t", 1)
    assert frontier.pop(0).covered
    frontier.mark("http://a/new", 1)
    assert not frontier.push("http://a/new", "http://a/new", 1)


@pytest.mark.parametrize("scored", [False, True])
@given(
    rows=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.integers(0, 3), st.sampled_from([0.0, 1.0, 2.5])), max_size=60),
    in_memory=st.integers(1, 30),
    pops=st.integers(0, 20),
)
def test_frontier_on_disk_gives_the_same_entries(scored: bool, rows: list[tuple[str, int, int, float]], in_memory: int, pops: int) -> None:
    def run(in_memory: int) -> tuple[list[Entry], list[tuple[str, int]], bool]:
        with closing(Frontier(scored=scored, in_memory=in_memory)) as frontier:
            taken = []
            for number, (host, name, depth, score) in enumerate(rows):
                url = f"http://{host}/{name}"
                frontier.push(url, f"{url}?key" if name % 2 else url, depth, score=score)
                if name % 7 == 0:
                    frontier.mark(f"http://{host}/{name + 1}?key", depth)
                if number < pops and len(frontier):
                    taken.append(frontier.pop(number))
            return taken, list(frontier.drain()), frontier.on_disk

    *in_ram, _ = run(10**9)
    *spilled, on_disk = run(in_memory)
    assert spilled == in_ram
    assert on_disk == (len({(h, n) for h, n, _, _ in rows}) > in_memory) or on_disk


class _Driver:
    """Crawls a site given as a link table, finishing entries in an order that a random source picks."""

    def __init__(self, site: Site, *, window: int, max_pages: int, concurrency: int, seed: int) -> None:
        self.site = site
        self.random = random.Random(seed)
        self.concurrency = concurrency
        self.frontier = Frontier()
        self.order: CommitOrder[str] = CommitOrder(
            self.frontier, window=window, max_pages=max_pages, apply=self._apply, stop=lambda: False, settle=lambda _, result: result
        )
        self.committed: list[str] = []
        self.most_started = 0
        self.max_pages = max_pages
        first = next(iter(site))
        self.frontier.push(first, first, 0)

    def _apply(self, entry: Entry, result: str) -> bool:
        for url in self.site.get(entry.url, ()):
            self.frontier.push(url, url, entry.depth + 1)
        return True

    def run(self) -> list[str]:
        waiting: list[Entry] = []
        while True:
            turn = self.order.next_entry()
            while isinstance(turn, Entry):
                waiting.append(turn)
                turn = self.order.next_entry()
            assert len(waiting) <= self.max_pages - len(self.committed)
            if turn is Turn.DONE:
                assert not waiting
                return self.committed
            assert waiting, "the order waits although nothing is under way"
            entry = waiting.pop(self.random.randrange(min(self.concurrency, len(waiting))))
            self.committed += [e.url for e, _ in self.order.arrive(entry, "ok")]


@st.composite
def sites(draw: st.DrawFn) -> dict[str, list[str]]:
    urls = [f"http://h{draw(st.integers(0, 3))}/{i}" for i in range(draw(st.integers(1, 30)))]
    return {url: draw(st.lists(st.sampled_from(urls), max_size=6)) for url in urls}


@given(site=sites(), window=st.integers(1, 9), max_pages=st.integers(0, 40), seed=st.integers(0, 2**32))
def test_commit_order_is_the_same_at_any_concurrency(site: dict[str, list[str]], window: int, max_pages: int, seed: int) -> None:
    one = _Driver(site, window=window, max_pages=max_pages, concurrency=1, seed=0).run()
    many = _Driver(site, window=window, max_pages=max_pages, concurrency=64, seed=seed).run()
    assert many == one
    assert len(one) == len(set(one)) <= max_pages


@given(site=sites(), seed=st.integers(0, 2**32))
def test_every_reachable_url_is_visited_once_when_the_budget_allows(site: dict[str, list[str]], seed: int) -> None:
    reachable: set[str] = set()
    left = [next(iter(site))]
    while left:
        url = left.pop()
        if url not in reachable:
            reachable.add(url)
            left.extend(site[url])
    committed = _Driver(site, window=4, max_pages=100, concurrency=8, seed=seed).run()
    assert sorted(committed) == sorted(reachable)


def test_budget_that_is_used_up_leaves_the_rest_in_the_frontier() -> None:
    site = {"http://a/": [f"http://a/{i}" for i in range(10)]}
    driver = _Driver(site, window=64, max_pages=4, concurrency=8, seed=3)
    assert len(driver.run()) == 4
    assert [url for url, _ in driver.frontier.drain()] == [f"http://a/{i}" for i in range(3, 10)]


def test_skipped_entries_do_not_use_up_the_page_budget() -> None:
    frontier = Frontier()
    for i in range(6):
        frontier.push(f"http://a/{i}", f"http://a/{i}", 0)
    order: CommitOrder[bool] = CommitOrder(
        frontier, window=64, max_pages=2, apply=lambda _, counts: counts, stop=lambda: False, settle=lambda _, counts: counts
    )
    visited = []
    while isinstance(turn := order.next_entry(), Entry) or turn is Turn.WAIT:
        assert isinstance(turn, Entry)
        visited.append(turn.url)
        order.arrive(turn, turn.url != "http://a/0")
    assert visited == ["http://a/0", "http://a/1", "http://a/2"]
