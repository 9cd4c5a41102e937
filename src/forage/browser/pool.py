"""Browsers on demand: started when a page is wanted, shared by all pages, replaced when they are worn or in trouble.

Owns how many pages are open at once, when a browser is retired and which one a page gets. A browser that is lost takes its pages with it
and no others; the next page gets a new one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from forage.browser.browser import Browser, open_browser
from forage.browser.errors import LeftBehindError
from forage.browser.options import BrowserOptions
from forage.errors import BrowserError, InvalidPolicyError

__all__ = ["BrowserPool", "open_pool"]

_log = logging.getLogger("forage.browser")

_MOST_BY_DEFAULT: Final = 4
_RECYCLE_AFTER: Final = 200


@attrs.define(eq=False)
class _Tenure:
    """The time of one browser in the pool. It is over once it was retired and nobody uses it."""

    browser: Browser
    users: int = 0
    retired: bool = False
    over: trio.Event = attrs.field(factory=trio.Event)

    def release(self) -> None:
        if self.retired and not self.users:
            self.over.set()


class BrowserPool:
    """Gives browsers to pages. Made by `open_pool`."""

    def __init__(self, nursery: trio.Nursery, options: BrowserOptions, *, pages: int, recycle_after: int) -> None:
        self._nursery = nursery
        self._options = options
        self._recycle_after = recycle_after
        self._room = trio.Semaphore(pages)
        self._starting = trio.Lock()
        self._current: _Tenure | None = None
        self.started = 0
        self.left_behind: LeftBehindError | None = None

    @asynccontextmanager
    async def browser(self) -> AsyncIterator[Browser]:
        """A browser for one page, until the block ends; waits until there is room. Raises BrowserError when none can be started."""
        async with self._room:
            tenure = await self._tenure()
            try:
                yield tenure.browser
            finally:
                tenure.users -= 1
                if tenure.browser.broken is not None:
                    self._retire(tenure)
                tenure.release()

    async def _tenure(self) -> _Tenure:
        """The current browser, or a new one, with one more user."""
        async with self._starting:
            current = self._current
            if current is not None and (current.browser.broken is not None or current.browser.opened >= self._recycle_after):
                self._retire(current)
            if self._current is None:
                self._current = await self._nursery.start(self._keep_browser)
            self._current.users += 1
            return self._current

    def _retire(self, tenure: _Tenure) -> None:
        tenure.retired = True
        tenure.release()
        if self._current is tenure:
            self._current = None

    async def _keep_browser(self, *, task_status: trio.TaskStatus[_Tenure]) -> None:
        """Hold one browser until its tenure is over. A failure to clean it up does not end the pages of others: it is told at the end."""
        tenure: _Tenure | None = None
        try:
            async with open_browser(self._options) as browser:
                tenure = _Tenure(browser)
                self.started += 1
                task_status.started(tenure)
                await tenure.over.wait()
        except BrowserError as exc:
            if tenure is None:
                raise
            _log.warning("a browser did not end well: %s", exc)
            if isinstance(exc, LeftBehindError):
                self.left_behind = exc


def _check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidPolicyError(name, "a whole number from 1", got=value)


@asynccontextmanager
async def open_pool(
    options: BrowserOptions | None = None, *, pages: int | None = None, recycle_after: int = _RECYCLE_AFTER
) -> AsyncIterator[BrowserPool]:
    """A pool, until the block ends; then no browser of it is left. Nothing is started before the first page.

    ``pages`` at once, by default one for each processor, at most 4: more give nothing. A browser that has had ``recycle_after`` pages is
    replaced. Raises InvalidPolicyError, and LeftBehindError when a browser could not be cleaned up.
    """
    pages = pages if pages is not None else min(_MOST_BY_DEFAULT, os.cpu_count() or 1)
    _check_count("pages", pages)
    _check_count("recycle_after", recycle_after)
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        pool = BrowserPool(nursery, BrowserOptions() if options is None else options, pages=pages, recycle_after=recycle_after)
        try:
            yield pool
        except Exception as exc:  # noqa: BLE001 - raised below as it was, not in a group
            failure = exc
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if pool.left_behind is not None:
        raise pool.left_behind
