"""A web site of any size on several loopback hosts, grown from a seed: the same seed and ports give the same pages and links.

Every kind of node that a crawl must tell apart is there: pages, text, redirects (within the host, to another one, to itself), missing and
broken pages, paths closed by robots.txt, nofollow links, second spellings of one page, links out of reach of the guard. How long an answer
takes depends on the round, which is chosen anew for each crawl; what it says does not.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from enum import StrEnum
from functools import cache, cached_property

import attrs
import trio

from forage.crawler import CrawlPolicy
from forage.egress import EgressPolicy
from tests.support.raw_server import Answer, RawRequest, RawServer, open_raw_server, page
from tests.support.server_log import Pause, Seen, Stall, seen_by, watch_stalls

__all__ = ["GeneratedSite", "Kind", "open_generated_site"]

HTML = [("Content-Type", "text/html; charset=utf-8")]
TEXT = [("Content-Type", "text/plain")]
ROBOTS = b"User-agent: *\nDisallow: /closed\n"


class Kind(StrEnum):
    """What a node answers."""

    PAGE = "n"
    TEXT = "text"
    MOVED = "moved"
    LEAVES = "leaves"
    MISSING = "missing"
    CLOSED = "closed"
    LOOP = "loop"
    BUSY = "busy"
    """429 with Retry-After once for each round, then a page."""


_SHARES = {Kind.TEXT: 2, Kind.MOVED: 4, Kind.LEAVES: 1, Kind.MISSING: 3, Kind.CLOSED: 2, Kind.LOOP: 1}
_REDIRECTS = frozenset({Kind.MOVED, Kind.LEAVES, Kind.LOOP})


@attrs.frozen(kw_only=True)
class _Node:
    number: int
    kind: Kind
    host: int
    path: str
    target: int = 0
    links: list[int] = attrs.field(factory=list)


class GeneratedSite:
    """The nodes and the servers that answer for them. ``begin_round`` empties the log and shuffles the latencies."""

    def __init__(self, nodes: Sequence[_Node], *, latency: float, retry_after: float) -> None:
        self._nodes = nodes
        self._by_place = {(node.host, node.path): node for node in nodes}
        self._latency = latency
        self._retry_after = retry_after
        self._round = 0
        self._refused: set[int] = set()
        self.servers: list[RawServer] = []
        self.pauses: list[Pause] = []
        self.stalls: list[Stall] = []

    @property
    def origins(self) -> list[str]:
        return [server.origin for server in self.servers]

    @property
    def seed(self) -> str:
        return self.url(0)

    @property
    def log(self) -> list[Seen]:
        """Everything asked in this round, in order of arrival."""
        return seen_by(*self.servers, stalls=self.stalls)

    def url(self, number: int) -> str:
        node = self._nodes[number]
        return self.servers[node.host].origin + node.path

    def pages_of(self, host: int) -> list[str]:
        """The pages with links of one host, by place."""
        return [self.url(node.number) for node in self._nodes if node.host == host and node.kind is Kind.PAGE]

    def redirect_of(self, url: str) -> str | None:
        """Where a URL of this site leads to, when it redirects."""
        node = next((node for node in self._nodes if self.url(node.number) == url), None)
        return self.url(node.target) if node is not None and node.kind in _REDIRECTS else None

    @property
    def size(self) -> int:
        return len(self._nodes)

    @cached_property
    def captured(self) -> int:
        """How many nodes a crawl without budgets ends in a page for; a redirect and its target are one or two, so this is a lower bound."""
        return sum(node.kind in (Kind.PAGE, Kind.TEXT, Kind.BUSY) for node in self._nodes)

    def policy(self, **options: object) -> CrawlPolicy:
        """No delay, no budget that this site reaches, and a guard that opens its hosts."""
        egress = EgressPolicy(allow_networks=("127.0.0.0/8",), ports=tuple(server.port for server in self.servers))
        wanted = {"delay": 0.0, "max_pages": 100_000, "max_depth": 1_000, "same_host": False, "egress": egress, **options}
        return CrawlPolicy(**wanted)  # type: ignore[arg-type]  # a test's keyword options

    def begin_round(self, number: int) -> None:
        self._round = number
        self._refused.clear()
        self.pauses.clear()
        self.stalls.clear()
        for server in self.servers:
            server.requests.clear()
            server.answered.clear()

    def responder(self, host: int) -> Callable[[RawRequest], Answer]:
        def respond(request: RawRequest) -> Answer:
            answer = self._answer(host, request)
            slow = random.Random(f"{self._round} {host} {request.target}").random() ** 4 * self._latency
            return attrs.evolve(answer, steps=(slow, *answer.steps)) if slow > 0.0005 else answer

        return respond

    def _answer(self, host: int, request: RawRequest) -> Answer:
        path = request.target.partition("?")[0]
        if path == "/robots.txt":
            return page(ROBOTS, headers=TEXT)
        node = self._by_place.get((host, path))
        if node is None or node.kind is Kind.MISSING:
            return page(b"", status="404 Not Found")
        if node.kind is Kind.BUSY and node.number not in self._refused:
            self._refused.add(node.number)
            until = request.at + self._retry_after
            self.pauses.append(Pause(host=request.header("host") or "", begin=request.at, end=until))
            return page(b"", status="429 Too Many Requests", headers=[("Retry-After", f"{self._retry_after:.0f}")])
        return self._static(node.number)

    @cache  # noqa: B019 - a site lives as long as its test
    def _static(self, number: int) -> Answer:
        node = self._nodes[number]
        if node.kind in _REDIRECTS:
            return page(b"", status="302 Found", headers=[("Location", self.url(node.target))])
        if node.kind is Kind.TEXT:
            return page(f"text of {number}".encode(), headers=TEXT)
        return page(self._html(node).encode(), headers=HTML)

    def _html(self, node: _Node) -> str:
        rng = random.Random(f"page {node.number}")
        hrefs = [self._spelled(node, number, rng) for number in node.links]
        anchors = [f'<a href="{href}">{href}</a>' for href in hrefs]
        if node.number % 7 == 0:
            anchors.append(f'<a rel=nofollow href="/only-nofollow/{node.number}">n</a>')
        if node.number % 50 == 0:
            anchors += ['<a href="http://10.0.0.1/">inside</a>', '<a href="mailto:a@site.test">m</a>', '<a href="#top">top</a>']
        filler = "x" * rng.choice((100, 1_000, 10_000))
        return f"<!doctype html><title>{node.number}</title><p>{filler}</p>{' '.join(anchors)}"

    def _spelled(self, node: _Node, number: int, rng: random.Random) -> str:
        """A link in one of the ways in which authors write it; the query of a page is the same page in any order."""
        target = self._nodes[number]
        text = target.path if target.host == node.host else self.url(number)
        if target.kind is Kind.PAGE and target.number % 11 == 0:
            text += rng.choice(("?a=1&b=2", "?b=2&a=1", "?a=1&b=2&utm_source=x", "?a=1&b=2#part"))
        return text


def _grow(pages: int, hosts: int, seed: int, busy: int) -> list[_Node]:
    rng = random.Random(f"site {seed}")
    kinds = [Kind.PAGE, *rng.choices([Kind.PAGE, *_SHARES], [100 - sum(_SHARES.values()), *_SHARES.values()], k=pages - 1)]
    for number in range(busy):
        kinds[(number + 1) * pages // (busy + 1)] = Kind.BUSY
    host_of = [0, *(rng.randrange(hosts) for _ in range(pages - 1))]
    holders = [number for number, kind in enumerate(kinds) if kind in (Kind.PAGE, Kind.BUSY)]
    nodes = []
    for number, (kind, host) in enumerate(zip(kinds, host_of, strict=True)):
        elsewhere = [n for n in rng.sample(holders, min(20, len(holders))) if (host_of[n] == host) is (kind is not Kind.LEAVES)]
        target = number if kind is Kind.LOOP or not elsewhere else elsewhere[0]
        nodes.append(_Node(number=number, kind=kind, host=host, path=f"/{kind.value}/{number}", target=target))
    for number in range(1, pages):
        # Parents a few generations up at most: wide enough for any concurrency, deep enough for the order to matter.
        before = bisect_left(holders, number)
        parents = holders[max(0, before - max(8, number // 6)) : before]
        nodes[rng.choice(parents)].links.append(number)
    for number in holders:
        nodes[number].links.extend([0, *rng.sample(range(pages), 3)])
    return nodes


@asynccontextmanager
async def open_generated_site(
    pages: int, *, hosts: int = 5, seed: int = 0, latency: float = 0.02, busy: int = 0, retry_after: float = 1.0
) -> AsyncIterator[GeneratedSite]:
    """Serve a site of ``pages`` nodes on 127.0.0.1 and the addresses after it.

    ``latency`` bounds the seconds that an answer takes, most take far less; ``busy`` pages answer 429 with ``retry_after`` once a round.
    """
    site = GeneratedSite(_grow(pages, hosts, seed, busy), latency=latency, retry_after=retry_after)
    async with AsyncExitStack() as stack:
        for host in range(hosts):
            server = await stack.enter_async_context(open_raw_server(site.responder(host), host=f"127.0.0.{host + 1}"))
            site.servers.append(server)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch_stalls, site.stalls)
            yield site
            nursery.cancel_scope.cancel()
