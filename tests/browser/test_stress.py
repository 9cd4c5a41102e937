"""Whatever is cancelled or killed, and when, nothing of a browser is left: small forms of ``make stress-browser``."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.browser.cancelling import Cancellations, cancel_many
from tests.browser.killing import BrowserDeaths, ParentDeaths, kill_browsers, kill_parents
from tests.support.browsers import browser_options
from tests.support.leftovers import adopted_orphans

TRANSPORTS = pytest.mark.parametrize("transport", ["websocket", "pipe"])
PATIENCE = 20.0  # seconds, as other tests run beside these; the long form takes the 2 seconds literally


@pytest.fixture(autouse=True)
def _family() -> Iterator[None]:
    with adopted_orphans():
        yield


@pytest.mark.slow
@TRANSPORTS
async def test_cancelled_in_any_phase_it_leaves_nothing(transport: str) -> None:
    figures = Cancellations()
    await cancel_many(15, browser_options(transport=transport, close_seconds=20.0), random.Random(7), figures)
    assert figures.rounds == 15


@TRANSPORTS
async def test_a_browser_killed_under_its_pages_costs_those_and_leaves_nothing(transport: str) -> None:
    figures = BrowserDeaths()
    await kill_browsers(2, browser_options(transport=transport), random.Random(7), figures)
    assert figures.killed == 2


@TRANSPORTS
@pytest.mark.parametrize("lifeline", [True, False], ids=["lifeline", "none"])
async def test_a_killed_parent_leaves_no_browser_and_its_profile_at_most_to_the_next_start(transport: str, lifeline: bool) -> None:
    figures = ParentDeaths()
    await kill_parents(2, "shell", transport, lifeline, random.Random(7), figures, within=PATIENCE)
    assert figures.states.total() == 2
