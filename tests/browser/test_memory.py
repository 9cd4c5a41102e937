"""Chromium bounds nothing that pages do with arrays: a page that takes too much is ended, and it alone."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from forage.browser import Browser, BrowserOptions, PageOutcome, Visit, open_browser, open_pool, visit_page
from forage.errors import BrowserError
from tests.support.browser_site import BrowserSite, html, open_browser_site
from tests.support.browsers import browser_options
from tests.support.leftovers import browser_processes, profile_directories

LIMIT = 200 * 1024 * 1024
ROUTES = {
    "/grows": html("<script>const a=[];setInterval(()=>{for(let i=0;i<16;i++)a.push(new Uint8Array(1<<20).fill(1))},5)</script><p>x"),
    "/keeps": html("<script>const a=[];for(let i=0;i<40;i++)a.push(new Uint8Array(1<<20).fill(1))</script><p>x"),
}


async def test_a_page_that_takes_too_much_memory_is_ended_and_no_other_is() -> None:
    async with open_browser_site(ROUTES) as site, open_browser(browser_options(max_process_bytes=LIMIT)) as browser:
        seen: dict[str, Visit] = {}

        async def visit(path: str, min_wait: float) -> None:
            seen[path] = await visit_page(browser, site.origin + path, site.options(min_wait=min_wait))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(visit, "/grows", 25.0)
            nursery.start_soon(visit, "/keeps", 2.0)
        await visit("/good", 0.0)
        assert browser.broken is None
    assert [(path, seen[path].outcome) for path in ("/grows", "/keeps", "/good")] == [
        ("/grows", PageOutcome.CRASHED),
        ("/keeps", PageOutcome.OK),
        ("/good", PageOutcome.OK),
    ]
    assert seen["/grows"].error == f"it took more than {LIMIT} bytes of memory"


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    """None can be opened until the block ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first_free = os.open("/dev/null", os.O_RDONLY)
    os.close(first_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first_free, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.open("/dev/null", os.O_RDONLY)
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def good(browser: Browser, site: BrowserSite) -> Visit:
    return await visit_page(browser, f"{site.origin}/good", site.options())


async def test_without_descriptors_pages_and_starts_fail_as_such_and_what_runs_goes_on() -> None:
    async with open_browser_site(ROUTES) as site, open_browser(browser_options()) as browser, open_pool(BrowserOptions()) as pool:
        assert (await good(browser, site)).outcome is PageOutcome.OK
        with no_more_descriptors():
            failed = await good(browser, site)
            with pytest.raises(BrowserError):
                async with pool.browser():
                    pass
            await trio.sleep(0.5)  # the watch of its memory looks meanwhile
        assert failed.outcome is PageOutcome.FAILED
        assert (await good(browser, site)).outcome is PageOutcome.OK
    assert (browser_processes(), profile_directories()) == ([], [])
