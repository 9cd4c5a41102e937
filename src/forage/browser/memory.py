"""Watches the memory of a browser's processes, because Chromium itself bounds nothing that pages do with arrays.

A renderer above the limit is killed: its page ends as crashed, whichever page that is, and the browser lives on. Any other process above
twice the limit ends the browser. What counts is memory of the process itself, not what it shares.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Final

import trio

from forage.browser.processes import ProcessFacts, kill_group, processes_of

__all__ = ["MemoryWatch"]

_EVERY_SECONDS: Final = 0.25
_MEMORABLE_SECONDS: Final = 2.0


class MemoryWatch:
    """Ends what has more than ``limit`` bytes in the process group ``group``. ``ended`` counts what it has ended."""

    def __init__(self, group: int, limit: int) -> None:
        self._group = group
        self._limit = limit
        self._last = float("-inf")
        self.ended = 0

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await trio.sleep(_EVERY_SECONDS)
            for process in await trio.to_thread.run_sync(self._too_large):
                # Noted before it happens: the page hears of the crash at once.
                self.ended += 1
                self._last = trio.current_time()
                if process.kind == "renderer":
                    with suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGKILL)
                else:
                    kill_group(self._group)

    def _too_large(self) -> list[ProcessFacts]:
        try:
            return [p for p in processes_of(self._group) if p.anonymous_bytes > self._limit * (1 if p.kind == "renderer" else 2)]
        except OSError:  # no descriptor is left to look with: pages are not ended for that, and the next look is soon
            return []

    def why_ended(self) -> str | None:
        """Why a process ended just now, if it was ended here."""
        if trio.current_time() - self._last > _MEMORABLE_SECONDS:
            return None
        return f"it took more than {self._limit} bytes of memory"
