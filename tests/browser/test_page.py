"""A page by its events alone: the browser is a list of what it would have been told."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import trio
import trio.testing

from forage.browser.connection import CdpConnection
from forage.browser.oversized import Oversized
from forage.browser.page import Page
from forage.browser.page_options import PageOptions
from forage.egress import judge_url

URL = "http://a.test/"


class Nobody:
    """A transport to no browser."""

    async def send(self, texts: Sequence[str]) -> None:
        await trio.lowlevel.checkpoint()

    async def read(self, take: Callable[[str | Oversized], None]) -> None:
        await trio.sleep_forever()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


def loaded_page(quiet: float) -> Page:
    """A page that has just shown and loaded its document."""
    options = PageOptions(quiet=quiet)
    page = Page(CdpConnection(Nobody()), options, context="C", why_crashed=lambda: None)
    page.attach("S", {"type": "page", "targetId": "F"})
    page.set_out(judge_url(URL, options.egress.policy))
    for method, params in (
        ("Network.requestWillBeSent", {"requestId": "R", "frameId": "F", "type": "Document", "request": {"url": URL, "method": "GET"}}),
        ("Fetch.requestPaused", {"requestId": "P", "networkId": "R", "frameId": "F", "request": {"url": URL}}),
        ("Page.frameNavigated", {"frame": {"id": "F", "loaderId": "R", "url": URL}}),
        ("Network.loadingFinished", {"requestId": "R"}),
        ("Page.lifecycleEvent", {"frameId": "F", "loaderId": "R", "name": "load"}),
    ):
        page.handle(method, params, "S")
    return page


@pytest.mark.parametrize(
    ("name", "ends"),
    [("networkIdle", 1.0), ("networkAlmostIdle", 1.0), ("firstMeaningfulPaint", 1.0), ("firstPaint", 1.6), ("load", 1.6)],
)
async def test_the_browsers_own_word_that_a_page_rests_does_not_make_it_wait_again(
    name: str, ends: float, autojump_clock: trio.testing.MockClock
) -> None:
    page, begun = loaded_page(quiet=1.0), trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(page.rest, 0.0)
        await trio.sleep(0.6)
        page.handle("Page.lifecycleEvent", {"frameId": "F", "loaderId": "R", "name": name}, "S")
    assert trio.current_time() - begun == pytest.approx(ends)
