"""A browser says nothing by itself: no packet leaves for the network, idle or with pages open. The long form is `tests.browser.silence`."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import trio

from tests.browser.silence import faults, obstacle, watch_browser
from tests.support.browsers import Kind, installed_kinds

why_not = cache(obstacle)


@pytest.mark.slow
async def test_no_packet_leaves_a_machine_for_a_browser_that_idles_and_shows_pages() -> None:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    rows: dict[Kind, dict[str, Any]] = {}

    async def watch(kind: Kind) -> None:
        rows[kind] = await watch_browser(kind, idle=3.0, pages=3)

    async with trio.open_nursery() as nursery:
        for kind in installed_kinds():
            nursery.start_soon(watch, kind)
    assert rows
    assert {kind: faults(row) for kind, row in rows.items()} == {kind: [] for kind in rows}


@pytest.mark.parametrize(
    ("packets", "control", "outcomes", "wrong"),
    [
        (0, 1, ["ok"], 0),
        (1, 1, ["ok", "not-idle"], 1),
        (0, 0, ["ok"], 1),
        (0, 1, ["ok", "failed"], 1),
    ],
)
def test_what_counts_as_a_fault(packets: int, control: int, outcomes: list[str], wrong: int) -> None:
    row = {"packets": packets, "frames": [], "outcomes": outcomes, "control": {"packets": control, "first": ["tcp"] * control}}
    assert len(faults(row)) == wrong
