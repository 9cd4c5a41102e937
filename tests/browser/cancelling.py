"""Browsers and pages cancelled at random moments of each phase of their life; then nothing may be left of them.

A phase is entered as a user would enter it, and told by the page itself where possible: a request of it reaches the server. How long it
takes is measured first, undisturbed, so that the moments fall into it on any machine.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle, islice
from typing import Any

import attrs
import trio

from forage.browser import Browser, BrowserOptions, PageOutcome, open_browser, visit_page
from tests.support.browser_site import GOOD, HTML, BrowserSite, html, open_browser_site
from tests.support.leftovers import descendants, profile_directories, wait_for
from tests.support.raw_server import Answer, RawServer, page
from tests.support.stepping import open_descriptors

__all__ = ["Cancellations", "cancel_many"]

PATIENCE = 20.0  # seconds for what no event tells of, on a busy machine
TELLS = "<script>onload=()=>fetch('/reached')</script>"
LARGE = "<!doctype html><title>large</title>" + TELLS + "<p>text of a document</p>\n" * 40_000
TALL = "<!doctype html><title>tall</title><style>p{height:2000px;background:linear-gradient(red,blue)}</style>" + TELLS + "<p>x</p>" * 4


@attrs.define(kw_only=True)
class Ground:
    """Where a phase is played: a site, and a browser to share or options for one of its own. ``reached``: the phase has begun."""

    site: BrowserSite
    options: BrowserOptions
    shared: Browser | None = None
    reached: trio.Event = attrs.field(factory=trio.Event)

    @asynccontextmanager
    async def browser(self) -> AsyncIterator[Browser]:
        if self.shared is not None:
            yield self.shared
        else:
            async with open_browser(self.options) as browser:
                yield browser

    async def visit(self, path: str, **options: Any) -> None:
        async with self.browser() as browser:
            await visit_page(browser, self.site.origin + path, self.site.options(**{"quiet": 0.05, **options}))


async def _start(ground: Ground) -> None:
    ground.reached.set()
    async with open_browser(ground.options):
        pass


async def _navigation(ground: Ground) -> None:
    await ground.visit("/slow")


async def _idle(ground: Ground) -> None:
    await ground.visit("/asks", min_wait=0.4)


async def _reading(ground: Ground) -> None:
    await ground.visit("/large", read_text=True)


async def _screenshot(ground: Ground) -> None:
    await ground.visit("/tall", screenshot="full")


async def _closing_a_page(ground: Ground) -> None:
    async with ground.browser() as browser, browser.open_page(ground.site.options()):
        ground.reached.set()


async def _clean_up(ground: Ground) -> None:
    async with open_browser(ground.options) as browser:
        await visit_page(browser, f"{ground.site.origin}/good", ground.site.options(quiet=0.0))
        ground.reached.set()


@attrs.frozen
class Phase:
    """``of_page``: it can be played in a browser that goes on afterwards."""

    name: str
    play: Callable[[Ground], Awaitable[None]]
    of_page: bool = True


PHASES: Sequence[Phase] = (
    Phase("start", _start, of_page=False),
    Phase("navigation", _navigation),
    Phase("idle", _idle),
    Phase("reading", _reading),
    Phase("screenshot", _screenshot),
    Phase("closing a page", _closing_a_page),
    Phase("clean-up", _clean_up, of_page=False),
)


@attrs.define
class Cancellations:
    """Figures: how many were cancelled within each phase, and how many phases were over before."""

    cancelled: Counter[str] = attrs.field(factory=Counter)
    over: int = 0
    progress: bool = False

    def add(self, phase: str, *, over: bool) -> None:
        self.over += over
        self.cancelled[phase] += not over
        if self.progress:
            print(f"\r{self.rounds} cancelled", end="", file=sys.stderr, flush=True)

    @property
    def rounds(self) -> int:
        return self.cancelled.total() + self.over

    def __str__(self) -> str:
        phases = ", ".join(f"{name} {count}" for name, count in self.cancelled.items())
        return f"{self.rounds} cancellations ({phases}; {self.over} fell behind the end): nothing left"


@asynccontextmanager
async def _open_ground(options: BrowserOptions) -> AsyncIterator[Ground]:
    grounds: list[Ground] = []

    def reached(_: RawServer) -> bytes:
        grounds[0].reached.set()
        return b""

    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n\r\n" % len(GOOD)
    routes = {
        "/slow": [Answer(steps=(reached, 0.1, head, 0.1, GOOD[:20].encode(), 0.1, GOOD[20:].encode()))],
        "/asks": html("<!doctype html><p>x" + TELLS),
        "/large": [page(LARGE.encode(), headers=HTML)],
        "/tall": [page(TALL.encode(), headers=HTML)],
        "/reached": [Answer(steps=(reached, b"HTTP/1.1 204 No Content\r\n\r\n"))],
    }
    async with open_browser_site(routes) as site:
        grounds.append(Ground(site=site, options=options))
        yield grounds[0]


async def _play(phase: Phase, ground: Ground, seconds: float = float("inf")) -> float | None:
    """Cancel so long after the phase began. How long it took when it was over before."""
    ground.reached = trio.Event()
    ended: float | None = None

    async def play() -> None:
        nonlocal ended
        await phase.play(ground)
        ended = trio.current_time()
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(play)
        with trio.fail_after(60):
            await ground.reached.wait()
        began = trio.current_time()
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    return None if ended is None else ended - began


async def _span(phase: Phase, ground: Ground) -> float:
    took = await _play(phase, ground)
    assert took is not None
    return took


def _opened_since(before: set[str]) -> list[str]:
    """Descriptors, but for those with which a watch of memory is just looking."""
    return [found for found in open_descriptors() - before if " /proc/" not in found]


async def _check(ground: Ground, before: set[str]) -> None:
    """Nothing is left, but for the shared browser, which is as good as before."""
    if ground.shared is None:
        assert descendants() == []
        assert profile_directories() == []
    else:
        assert ground.shared.broken is None, ground.shared.broken
        assert ground.shared.pages == 0
        with trio.move_on_after(PATIENCE):
            # A context that was being made when nobody waited for it any more is gone when the browser has had the time to make it.
            while await ground.shared.contexts():  # noqa: ASYNC110 - another process
                await trio.sleep(0.01)
        assert await ground.shared.contexts() == 0
    # The server's ends of connections are closed by tasks of the server.
    await wait_for(lambda: not _opened_since(before), seconds=PATIENCE)
    assert _opened_since(before) == []


def _steps(chance: random.Random, *, shared: bool) -> Iterator[Phase]:
    """Phases without end, in random order; those that can be played in a shared browser, or all."""
    phases = [phase for phase in PHASES if phase.of_page or not shared]
    chance.shuffle(phases)
    return cycle(phases)


async def _rounds(ground: Ground, count: int, chance: random.Random, spans: dict[str, float], figures: Cancellations) -> None:
    before = open_descriptors()
    for phase in islice(_steps(chance, shared=ground.shared is not None), count):
        took = await _play(phase, ground, chance.uniform(0, spans[phase.name]))
        await _check(ground, before)
        figures.add(phase.name, over=took is not None)


async def cancel_many(count: int, options: BrowserOptions, chance: random.Random, figures: Cancellations) -> None:
    """Cancel ``count`` times in browsers of one kind, within `adopted_orphans`. AssertionError when anything is left."""
    async with _open_ground(options) as ground:
        spans = {phase.name: await _span(phase, ground) for phase in PHASES if not phase.of_page}
        async with open_browser(options) as ground.shared:
            await ground.visit("/good")
            spans |= {phase.name: await _span(phase, ground) for phase in PHASES if phase.of_page}
            await _rounds(ground, count // 2, chance, spans, figures)
            good = await visit_page(ground.shared, f"{ground.site.origin}/good", ground.site.options())
            assert good.outcome is PageOutcome.OK, good.error
        ground.shared = None
        await _rounds(ground, count - count // 2, chance, spans, figures)
