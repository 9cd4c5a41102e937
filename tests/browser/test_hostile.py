"""Pages that mean harm end in their outcome, in time, and the same browser shows a good page right after.

One program here; both, one page at a time, in `tests.browser.stress`.
"""

from __future__ import annotations

import pytest
import trio

from forage.browser import PageOutcome, open_browser, visit_page
from tests.browser.hostile import HOSTILE, HostilePage, hostile_routes
from tests.support.browser_site import BrowserSite, open_browser_site
from tests.support.browsers import browser_options
from tests.support.leftovers import browser_processes, profile_directories

GRACE = 5.0
ANSWER_SECONDS = 2.0
PATIENCE = 4.0  # times as long, as other tests run beside this one; the long form takes it literally
AT_ONCE = 4
MEMORY = 800 * 1024 * 1024


@pytest.mark.slow
async def test_every_hostile_page_ends_in_its_outcome_and_hurts_no_other() -> None:
    wrong: list[str] = []
    async with (
        open_browser_site(hostile_routes()) as site,
        open_browser(browser_options(max_process_bytes=MEMORY, close_seconds=20.0)) as browser,
    ):
        room = trio.CapacityLimiter(AT_ONCE)

        async def one(case: HostilePage) -> None:
            async with room:
                options = site.options(**case.ends(answer_seconds=ANSWER_SECONDS))
                began = trio.current_time()
                seen = await visit_page(browser, f"{site.origin}/{case.name}", options)
                took = trio.current_time() - began
            if seen.outcome not in case.outcomes or not case.holds(seen):
                wrong.append(f"{case.name}: {seen.outcome} ({seen.error}), {seen.warnings}, {seen.left_for}, {len(seen.html or '')}")
            if took > PATIENCE * (options.deadline + GRACE):
                wrong.append(f"{case.name}: took {took:.1f} s")

        async with trio.open_nursery() as nursery:
            for case in HOSTILE:
                nursery.start_soon(one, case)
        good = await visit_page(browser, f"{site.origin}/good", site.options())
        assert (good.outcome, good.error) == (PageOutcome.OK, None)
        assert (await browser.contexts(), browser.broken) == (0, None)
    assert not wrong, "\n".join(wrong)
    assert (browser_processes(), profile_directories()) == ([], [])


async def test_good_pages_go_on_beside_a_hostile_one() -> None:
    async with open_browser_site(hostile_routes()) as site, open_browser(browser_options()) as browser, trio.open_nursery() as nursery:
        outcomes: list[PageOutcome] = []

        async def good(site: BrowserSite) -> None:
            for _ in range(3):
                seen = await visit_page(browser, f"{site.origin}/good", site.options(quiet=0.1))
                outcomes.append(seen.outcome)

        for name in ("busy-at-once", "memory", "crash"):
            nursery.start_soon(visit_page, browser, f"{site.origin}/{name}", site.options(deadline=2.0, answer_seconds=1.0))
        nursery.start_soon(good, site)
        nursery.start_soon(good, site)
    assert outcomes == [PageOutcome.OK] * 6
