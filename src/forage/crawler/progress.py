"""How far a crawl is, for whoever watches it: figures of the moment, and which hosts are waited for.

Pure: instants are the caller's clock, in seconds. Plays no part in what a crawl does.
"""

from __future__ import annotations

import attrs

__all__ = ["CrawlProgress", "HostWait", "Waits"]

_MANY = 1000
PAUSES = frozenset({"host-paused", "retry"})
"""Reasons to wait that are the host's wish of the moment, and not the usual spacing of requests."""


@attrs.frozen(kw_only=True)
class HostWait:
    """The next request to ``host`` starts in ``seconds``; ``why`` as in `HostPaused`."""

    host: str
    seconds: float
    why: str

    @property
    def paused(self) -> bool:
        """Whether the host asked to be left alone, or an answer of it is waited for anew."""
        return self.why in PAUSES


@attrs.frozen(kw_only=True)
class CrawlProgress:
    """Figures of one moment: rows by kind, and the hosts that have any; URLs ``waiting`` for their turn, and ``under_way``.

    ``waits`` are the hosts whose clock is waited for, soonest first.
    """

    captured: int = 0
    failed: int = 0
    skipped: int = 0
    hosts: int = 0
    waiting: int = 0
    under_way: int = 0
    waits: tuple[HostWait, ...] = ()

    @property
    def next_start(self) -> float | None:
        """Seconds until the next request that waits for a host's clock; None where none does."""
        return self.waits[0].seconds if self.waits else None


class Waits:
    """Until when each host is waited for. What is over is forgotten."""

    def __init__(self) -> None:
        self._until: dict[str, tuple[float, str]] = {}

    def note(self, host: str, until: float, why: str, *, now: float) -> None:
        """A request to ``host`` waits until an instant."""
        if len(self._until) >= _MANY:
            self._until = {name: wait for name, wait in self._until.items() if wait[0] > now}
        self._until[host] = until, why

    def current(self, now: float) -> tuple[HostWait, ...]:
        """The waits that are not over."""
        waits = (HostWait(host=host, seconds=until - now, why=why) for host, (until, why) in self._until.items() if until > now)
        return tuple(sorted(waits, key=lambda wait: (wait.seconds, wait.host)))
