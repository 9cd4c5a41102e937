"""Browsers in a process of its own, to be killed: ``python -m tests.support.browser_process TRANSPORT LIFELINE KIND URL PORT``.

Opens one, visits the page, closes it, and again, until it is killed. Says on standard output where it is, a letter each time: ``s`` it
starts a browser, ``o`` the browser is open, ``c`` it is about to be closed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import trio

from forage.browser import PageOptions, open_browser, visit_page
from forage.egress import EgressPolicy
from tests.support.browsers import browser_options
from tests.support.network_guard import forbid_traffic

__all__ = ["run"]


async def run(arguments: Sequence[str]) -> None:
    transport, lifeline, kind, origin, port = arguments
    options = browser_options("full" if kind == "full" else "shell", transport=transport, lifeline=lifeline == "lifeline")
    page = PageOptions(egress=EgressPolicy(test_loopback_origins=(origin,), ports=(int(port),)), min_wait=0.3)
    while True:
        print("s", end="", flush=True)
        async with open_browser(options) as browser:
            print("o", end="", flush=True)
            await visit_page(browser, f"{origin}/good", page)
            print("c", end="", flush=True)


if __name__ == "__main__":
    forbid_traffic()
    trio.run(run, sys.argv[1:])
