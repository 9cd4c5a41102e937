"""What a browser leaves behind, at length: ``python -m tests.browser.stress [--cancel N] [--kill-browser N] [--kill-parent N] [--seed N]``.

Cancels browsers and pages at random moments of each phase, kills browsers under their pages and the processes that started them, in both
programs and over both transports; then no process, listener, connection, context or profile directory may be left. Visits every hostile
page alone (``--no-hostile`` leaves them out): each ends in its outcome within its deadline and 5 s, and the same browser shows a good page
right after.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

import trio

from forage.browser import PageOutcome, open_browser, visit_page
from tests.browser.cancelling import Cancellations, cancel_many
from tests.browser.hostile import HOSTILE, hostile_routes
from tests.browser.killing import BrowserDeaths, ParentDeaths, kill_browsers, kill_parents
from tests.support.browser_site import open_browser_site
from tests.support.browsers import Kind, browser_options, installed_kinds
from tests.support.leftovers import adopted_orphans, descendants, profile_directories
from tests.support.network_guard import forbid_traffic

__all__ = ["main", "shares"]

TRANSPORTS = ("websocket", "pipe")
GRACE = 5.0
ANSWER_SECONDS = 2.0
MEMORY = 800 * 1024 * 1024


def shares(count: int, parts: int) -> list[int]:
    """``count`` in so many parts of about the same size."""
    return [count * (part + 1) // parts - count * part // parts for part in range(parts)]


def say(text: object) -> None:
    print(text, flush=True)


async def cancel(count: int, chance: random.Random) -> None:
    """Cancel in both programs and over both transports."""
    figures = Cancellations(progress=sys.stderr.isatty())
    combinations = list(product(installed_kinds(), TRANSPORTS))
    for (kind, transport), part in zip(combinations, shares(count, len(combinations)), strict=True):
        if part:
            await cancel_many(part, browser_options(kind, transport=transport, close_seconds=20.0), chance, figures)
    say(figures)


async def kill_them(count: int, chance: random.Random) -> None:
    """Kill browsers of both programs, over both transports."""
    figures = BrowserDeaths()
    combinations = list(product(installed_kinds(), TRANSPORTS))
    for (kind, transport), part in zip(combinations, shares(count, len(combinations)), strict=True):
        if part:
            await kill_browsers(part, browser_options(kind, transport=transport), chance, figures)
    say(figures)


async def kill_owners(count: int, chance: random.Random, within: float) -> None:
    """Kill parents of both programs over both transports, three of four with a lifeline."""
    figures = ParentDeaths()
    combinations = list(product((True, True, True, False), installed_kinds(), TRANSPORTS))
    for (lifeline, kind, transport), part in zip(combinations, shares(count, len(combinations)), strict=True):
        if part:
            await kill_parents(part, kind, transport, lifeline, chance, figures, within=within)
    say(figures)


async def visit_hostile_pages(kind: Kind) -> None:
    """One after the other, in one browser."""
    longest = 0.0
    async with (
        open_browser_site(hostile_routes()) as site,
        open_browser(browser_options(kind, max_process_bytes=MEMORY)) as browser,
    ):
        for case in HOSTILE:
            options = site.options(**case.ends(answer_seconds=ANSWER_SECONDS))
            began = trio.current_time()
            seen = await visit_page(browser, f"{site.origin}/{case.name}", options)
            took = trio.current_time() - began
            assert seen.outcome in case.outcomes, f"{case.name}: {seen.outcome} ({seen.error})"
            assert case.holds(seen), f"{case.name}: {seen}"
            assert took <= options.deadline + GRACE, f"{case.name} took {took:.1f} s"
            longest = max(longest, took - options.deadline)
            good = await visit_page(browser, f"{site.origin}/good", site.options())
            assert (good.outcome, browser.broken) == (PageOutcome.OK, None), f"after {case.name}: {good.error}"
            assert await browser.contexts() == 0, case.name
    assert (descendants(), profile_directories()) == ([], [])
    say(f"{len(HOSTILE)} hostile pages, {kind}: each in its outcome, at most {longest:.1f} s after its deadline, a good page after each")


async def run(options: argparse.Namespace) -> None:
    """All that was asked for. AssertionError where a promise is broken, TooSlowError when it takes too long."""
    chance = random.Random(options.seed)
    with trio.fail_after(options.seconds), adopted_orphans():
        if options.hostile:
            for kind in installed_kinds():
                await visit_hostile_pages(kind)
        if options.cancel:
            await cancel(options.cancel, chance)
        if options.kill_browser:
            await kill_them(options.kill_browser, chance)
        if options.kill_parent:
            await kill_owners(options.kill_parent, chance, options.within)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    whole: Callable[[str, int, str], object] = lambda name, default, said: parser.add_argument(name, type=int, default=default, help=said)  # noqa: E731
    whole("--cancel", 300, "how many are cancelled")
    whole("--kill-browser", 50, "how many browsers are killed")
    whole("--kill-parent", 50, "how many parents are killed")
    whole("--seed", 0, "chooses the moments")
    whole("--seconds", 7200, "for all of it")
    parser.add_argument("--within", type=float, default=2.0, help="seconds until everything of a killed parent is gone")
    parser.add_argument("--hostile", action=argparse.BooleanOptionalAction, default=True, help="visit hostile pages, too")
    options = parser.parse_args(arguments)
    forbid_traffic()
    started = time.monotonic()
    trio.run(partial(run, options))
    say(f"seed {options.seed}: {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
