"""The line at the foot of a terminal that says how far a command is: written over again and again, out of the way of other lines.

Owns where the line is and when it is drawn; what it says is the caller's. Nothing is written where no terminal shows it.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

import trio

from forage.cli.options import counted, quoted

if TYPE_CHECKING:
    from forage.crawler import CrawlProgress

__all__ = ["StatusLine", "crawl_status"]

_EVERY = 0.2
_RATE_OVER = 10.0
_NARROW = 20


class StatusLine:
    """One line on ``err``; ``say`` writes another line above it. Without a terminal `run` writes nothing."""

    def __init__(self, err: TextIO, text: Callable[[], str]) -> None:
        self._err = err
        self._text = text
        self.shown = err.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Draw the line until cancelled, then take it away."""
        task_status.started()
        try:
            while self.shown:
                self._draw()
                await trio.sleep(_EVERY)
        finally:
            self.clear()

    def clear(self) -> None:
        """Take the line away, so that something else can be written on its place; it comes back by itself."""
        if self._drawn:
            self._drawn = False
            self._err.write("\r\x1b[K")
            self._err.flush()

    def say(self, line: str) -> None:
        """Write a line that stays."""
        self.clear()
        print(line, file=self._err)

    def _draw(self) -> None:
        # One column is left free: a full line would make some terminals go to the next one.
        room = max(_NARROW, self._columns() - 1)
        self._err.write(f"\r{self._text()[:room]}\x1b[K")
        self._err.flush()
        self._drawn = True

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._err.fileno()).columns
        except (OSError, ValueError):
            return 80


def crawl_status(progress: Callable[[], CrawlProgress], *, now: Callable[[], float] = time.monotonic) -> Callable[[], str]:
    """The text of the line for a crawl: pages, hosts, pages a second over the last ten, paused hosts, and when the next request starts."""
    seen: deque[tuple[float, int]] = deque()

    def text() -> str:
        moment, found = now(), progress()
        seen.append((moment, found.captured))
        while seen[0][0] < moment - _RATE_OVER:
            seen.popleft()
        since, before = seen[0]
        rate = (found.captured - before) / (moment - since) if moment > since else 0.0
        parts = [counted(found.captured, "page"), f"{found.failed} failed", f"{found.waiting} waiting", counted(found.hosts, "host")]
        parts.append(f"{rate:.1f}/s")
        paused = [wait for wait in found.waits if wait.paused]
        if paused:
            more = f" and {len(paused) - 1} more" if len(paused) > 1 else ""
            parts.append(f"paused: {quoted(paused[0].host)} {paused[0].seconds:.0f} s{more}")
        if found.next_start is not None:
            parts.append(f"next start in {found.next_start:.1f} s")
        return ", ".join(parts)

    return text
