"""Browsers, and the processes that started them, killed at random moments; then nothing may be left of them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import attrs
import trio

from forage.browser import BrowserOptions, BrowserPool, PageOutcome, open_browser, open_pool, visit_page
from forage.browser.processes import processes_of
from tests.browser.hostile import hostile_routes
from tests.support.browser_site import BrowserSite, open_browser_site
from tests.support.browsers import Kind, browser_options
from tests.support.leftovers import browser_processes, descendants, profile_directories, wait_for

__all__ = ["BrowserDeaths", "ParentDeaths", "kill_browsers", "kill_parents"]

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE = 20.0  # seconds for what a busy machine does in its own time
PAGES = 3
PATHS = ("/good", "/polling", "/many-frames")
SURVIVE = frozenset([PageOutcome.OK, PageOutcome.NOT_IDLE])
LOST = frozenset([PageOutcome.BROWSER_LOST, PageOutcome.CRASHED])


@attrs.define
class BrowserDeaths:
    """Figures: how pages ended beside a browser that was killed, and the longest time until the next good page was there."""

    killed: int = 0
    outcomes: Counter[str] = attrs.field(factory=Counter)
    longest: float = 0.0

    def __str__(self) -> str:
        pages = ", ".join(f"{name} {count}" for name, count in sorted(self.outcomes.items()))
        return f"{self.killed} browsers killed (pages: {pages}; next good page within {self.longest:.1f} s): nothing left"


async def kill_browsers(count: int, options: BrowserOptions, chance: random.Random, figures: BrowserDeaths) -> None:
    """Kill ``count`` browsers of a pool under their pages, within `adopted_orphans`. AssertionError when it costs more than those."""
    async with open_browser_site(hostile_routes()) as site:
        async with open_pool(options, pages=PAGES) as pool:
            async with pool.browser():
                pass
            began = trio.current_time()
            await _visit_all(pool, site)
            span = trio.current_time() - began
            for _ in range(count):
                await _kill_one(pool, site, chance.uniform(0.0, span), figures, all_at_once=chance.random() < 0.3)
            assert pool.started >= count
        assert (descendants(), profile_directories()) == ([], [])


async def _visit_all(pool: BrowserPool, site: BrowserSite, seen: list[PageOutcome] | None = None) -> None:
    """Visit the pages side by side; outcomes are added to ``seen``."""

    async def visit(path: str) -> None:
        async with pool.browser() as browser:
            visit = await visit_page(browser, site.origin + path, site.options(deadline=1.0, min_wait=0.3))
            if seen is not None:
                seen.append(visit.outcome)

    async with trio.open_nursery() as nursery:
        for path in PATHS:
            nursery.start_soon(visit, path)


async def _kill_one(pool: BrowserPool, site: BrowserSite, seconds: float, figures: BrowserDeaths, *, all_at_once: bool) -> None:
    """Kill the browser so long after its pages have been asked for: its first process alone, or all of them."""
    seen: list[PageOutcome] = []
    async with pool.browser() as victim:
        group = victim.group
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_visit_all, pool, site, seen)
        await trio.sleep(seconds)
        (os.killpg if all_at_once else os.kill)(group, signal.SIGKILL)
        figures.killed += 1
        killed = trio.current_time()
    assert set(seen) <= SURVIVE | LOST, seen
    assert len(seen) == len(PATHS)
    figures.outcomes.update(outcome.value for outcome in seen)
    # Where no page was open any more, nobody has been told yet.
    assert await wait_for(lambda: victim.broken, seconds=PATIENCE)
    async with pool.browser() as browser:
        assert browser.group != group
        good = await visit_page(browser, f"{site.origin}/good", site.options())
        assert good.outcome is PageOutcome.OK, good.error
    figures.longest = max(figures.longest, trio.current_time() - killed)
    await wait_for(lambda: not list(processes_of(group)), seconds=PATIENCE)
    assert list(processes_of(group)) == []


@attrs.define
class ParentDeaths:
    """Figures: in which state parents were killed, the longest time until all was gone, and profiles that were left to a sweep."""

    states: Counter[str] = attrs.field(factory=Counter)
    longest: float = 0.0
    swept: int = 0

    def __str__(self) -> str:
        states = ", ".join(f"{count} {name}" for name, count in self.states.items())
        return (
            f"{self.states.total()} parents killed ({states}): gone within {self.longest:.1f} s, "
            f"{self.swept} profiles left to the next start: nothing left"
        )


STATES = {"s": "while a browser started", "o": "while it was open", "c": "while it was closed"}


async def kill_parents(
    count: int, kind: Kind, transport: str, lifeline: bool, chance: random.Random, figures: ParentDeaths, *, within: float
) -> None:
    """Kill ``count`` processes that have a browser, within `adopted_orphans`. AssertionError when anything outlives them.

    With a lifeline all is gone ``within`` so many seconds where the browser was open; what was half made or half gone may leave its
    profile, no process, to the next start. Without it the same holds of the pipe; on a socket the browser, too, is left to the next start.
    """
    async with open_browser_site({}) as site:
        for _ in range(count):
            pid, state = await _killed_parent(site, kind, transport, lifeline, chance)
            figures.states[STATES[state]] += 1
            began = trio.current_time()
            if lifeline or transport == "pipe":
                await wait_for(lambda: not descendants(), seconds=within)
                assert descendants() == [], f"{transport}, {STATES[state]}"
                if lifeline and state == "o":
                    await wait_for(partial(_no_profile, pid), seconds=max(0.0, within - (trio.current_time() - began)))
                    assert profile_directories(pid) == []
                figures.longest = max(figures.longest, trio.current_time() - began)
            figures.swept += len(profile_directories(pid))
            async with open_browser(browser_options(kind, transport=transport)) as browser:
                assert (browser_processes(pid), profile_directories(pid), browser.broken) == ([], [], None)
            await wait_for(lambda: not descendants(), seconds=PATIENCE)
            assert descendants() == []


def _no_profile(pid: int) -> bool:
    return not profile_directories(pid)


async def _killed_parent(site: BrowserSite, kind: Kind, transport: str, lifeline: bool, chance: random.Random) -> tuple[int, str]:
    """Kill one at a random moment of its first two browsers, and give its number and what it said last."""
    command = [sys.executable, "-m", "tests.support.browser_process", transport, "lifeline" if lifeline else "none", kind, site.origin]
    said = ""
    async with trio.open_nursery() as nursery:
        run = partial(trio.run_process, [*command, str(site.port)], stdout=subprocess.PIPE, check=False, cwd=REPOSITORY)
        process: trio.Process = await nursery.start(run)
        assert process.stdout is not None
        # So many steps, then a while: moments fall into each state, however long it takes on this machine.
        steps, wait = chance.randint(1, 5), chance.uniform(0.0, 0.4)
        with trio.fail_after(120):
            while len(said) < steps:
                said += (await process.stdout.receive_some(1)).decode()
        with trio.move_on_after(wait):
            while True:
                said += (await process.stdout.receive_some(1)).decode()
        process.kill()
    return process.pid, said[-1]
