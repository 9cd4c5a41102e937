"""When a page has come to rest (pure).

Its load is over, no request that could end is in flight, and nothing was heard of it for a while; not before a time that the caller
chose, for timers that fire late. A page that polls never rests.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ECHOES_OF_REST", "IdleRule"]

ECHOES_OF_REST: Final = frozenset(["networkAlmostIdle", "networkIdle", "firstMeaningfulPaint"])
"""Lifecycle events that say that nothing has happened for half a second. To wait as long after them again would double each wait."""


class IdleRule:
    """``quiet`` seconds without an event. Times are those of one monotonic clock."""

    def __init__(self, *, quiet: float) -> None:
        self._quiet = quiet
        self.not_before = 0.0
        self.last_event = 0.0
        self.loaded = False
        self.in_flight = 0

    def due(self) -> float | None:
        """When it will be at rest if nothing happens until then; None while something has to happen first."""
        if not self.loaded or self.in_flight:
            return None
        return max(self.not_before, self.last_event + self._quiet)
