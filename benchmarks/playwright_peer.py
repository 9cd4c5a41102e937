"""Playwright as a peer of `benchmarks.render`: run by the interpreter of an environment of its own, never by forage's.

    python3 -m venv peer && peer/bin/pip install playwright

and give that folder as ``--playwright``, or say ``make bench-render``, which does both. No browser is downloaded: it drives the
program that forage drives, with the flags that forage gives. ``playwright_peer.py SPEC`` reads one JSON line a run from standard input
and answers each with one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, async_playwright  # type: ignore[import-not-found,unused-ignore]  # in an environment of its own


async def one(browser: Browser, port: int, url: str, rest: str) -> int:
    """A page in a context of its own behind a guard of its own, as forage opens it; the length of its document."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    proxy = (await reader.readline()).decode().strip()
    context = await browser.new_context(proxy={"server": proxy, "bypass": "<-loopback>"}, viewport={"width": 1280, "height": 800})
    try:
        page = await context.new_page()
        await page.goto(url, wait_until=rest)
        return len(await page.content())
    finally:
        await context.close()
        writer.close()


async def run(launch: Callable[[], Awaitable[Browser]], browser: Browser, port: int, work: dict[str, Any]) -> dict[str, Any]:
    """``pages`` pages, ``lanes`` at once; none: a browser for each page, one after the other."""
    left = iter(range(work["pages"]))
    sizes: list[int] = []

    async def lane() -> None:
        sizes.extend([await one(browser, port, work["url"], work["rest"]) for _ in left])

    begun, cpu = time.perf_counter(), time.process_time()
    if work["lanes"] == 0:
        for _ in left:
            own = await launch()
            try:
                sizes.append(await one(own, port, work["url"], work["rest"]))
            finally:
                await own.close()
    await asyncio.gather(*(lane() for _ in range(work["lanes"])))
    return {"seconds": time.perf_counter() - begun, "cpu": time.process_time() - cpu, "sizes": sorted(set(sizes))}


async def main(spec: dict[str, Any]) -> None:
    async with async_playwright() as playwright:
        launch = partial(playwright.chromium.launch, executable_path=spec["program"], ignore_default_args=True, args=spec["flags"])
        browser = await launch()
        print(json.dumps({"ready": browser.version}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await run(launch, browser, spec["port"], json.loads(line))), flush=True)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text("utf-8"))))
