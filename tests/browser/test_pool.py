"""Browsers on demand: one for all pages, a bound on pages, new ones for worn and for broken ones, none left."""

from __future__ import annotations

import os
import signal

import pytest
import trio

from forage.browser import BrowserOptions, PageOutcome, open_pool, visit_page
from forage.errors import BrowserMissingError
from tests.support.browser_site import open_browser_site
from tests.support.browsers import browser_options
from tests.support.leftovers import browser_processes, profile_directories


async def test_nothing_is_started_before_the_first_page() -> None:
    async with open_pool(browser_options()) as pool:
        assert (pool.started, browser_processes()) == (0, [])


async def test_pages_share_a_browser_up_to_the_bound() -> None:
    together, most = 0, 0
    async with open_pool(browser_options(), pages=2) as pool, trio.open_nursery() as nursery:

        async def use() -> None:
            nonlocal together, most
            async with pool.browser():
                together += 1
                most = max(most, together)
                await trio.sleep(0.05)
                together -= 1

        for _ in range(6):
            nursery.start_soon(use)
    assert (most, pool.started) == (2, 1)
    assert (browser_processes(), profile_directories()) == ([], [])


async def test_a_worn_browser_is_replaced_once_its_pages_are_done() -> None:
    async with open_browser_site({}) as site, open_pool(browser_options(), recycle_after=2) as pool:
        for _ in range(5):
            async with pool.browser() as browser:
                assert (await visit_page(browser, f"{site.origin}/good", site.options(quiet=0.0))).outcome is PageOutcome.OK
        assert pool.started == 3


async def test_a_lost_browser_is_replaced() -> None:
    async with open_pool(browser_options()) as pool:
        async with pool.browser() as first:
            os.kill(first.group, signal.SIGKILL)
            with trio.fail_after(5):
                while first.broken is None:  # noqa: ASYNC110 - another process dies
                    await trio.sleep(0.01)
        async with pool.browser() as second:
            assert second is not first
            assert second.broken is None
    assert (browser_processes(), profile_directories()) == ([], [])


async def test_a_browser_that_cannot_be_started_is_told_to_whoever_wanted_it_and_to_each_anew() -> None:
    async with open_pool(BrowserOptions(program="no-such-browser")) as pool:
        for _ in range(2):
            with pytest.raises(BrowserMissingError):
                async with pool.browser():
                    pass


async def test_an_exception_of_a_user_leaves_as_it_was_and_leaves_nothing() -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_pool(browser_options()) as pool, pool.browser():
            raise ZeroDivisionError
    assert (browser_processes(), profile_directories()) == ([], [])


async def test_cancelled_while_a_browser_starts_it_leaves_nothing() -> None:
    for delay in (0.0, 0.02, 0.1, 0.3):
        with trio.move_on_after(delay):
            async with open_pool(browser_options()) as pool, pool.browser():
                await trio.sleep_forever()
        assert (browser_processes(), profile_directories()) == ([], [])
