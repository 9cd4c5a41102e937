"""The robots.txt files of many authorities: each had once, kept with an age, asked for again when it is old.

Owns the cache, its bounds, and that only one task asks for one file. How a request is made, paced and redirected under the guard is the
asker's; what a reply means is ``robots_outcome``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable

import attrs
import trio

from forage.fetch.robots_outcome import RobotsDecision, RobotsEntry, RobotsReply, RobotsRules, RobotsState, decide, robots_url, settle
from forage.fetch.robots_paths import RobotsGroup

__all__ = ["AskRobots", "Robots", "RobotsCopy"]

_MAX_ENTRIES, _MAX_HELD_BYTES = 10_000, 64 * 1024 * 1024

AskRobots = Callable[[str, "RobotsEntry | None"], Awaitable[RobotsReply]]
"""Ask for the file at a URL, with retries and redirects, conditional on the entry that is held."""


@attrs.frozen(kw_only=True)
class RobotsCopy:
    """A copy to begin with: bytes as served ``age`` seconds ago, or None and only for how long the file has been unreachable."""

    body: bytes | None = None
    age: float = 0.0
    etag: str | None = None
    last_modified: str | None = None
    unreachable_for: float | None = None


class _Slot:
    def __init__(self) -> None:
        self.lock = trio.Lock()
        self.entry: RobotsEntry | None = None
        self.groups: dict[str, RobotsGroup] = {}


class Robots:
    """The files of many authorities, each asked for by one task at a time and kept while it is fresh.

    The least recently used are forgotten beyond 10,000 files or 64 MiB of them; forgetting one costs a request, nothing else.
    """

    def __init__(self, ask: AskRobots, rules: RobotsRules) -> None:
        self._ask = ask
        self._rules = rules
        self._slots: OrderedDict[str, _Slot] = OrderedDict()
        self._held_bytes = 0

    async def entry(self, origin: str) -> RobotsEntry:
        """What is known of an origin's file, asked for first when it is not known or too old."""
        slot = await self._fresh(origin)
        assert slot.entry is not None
        return slot.entry

    async def decide(self, origin: str, target: str, user_agent: str) -> RobotsDecision:
        """Whether ``user_agent`` may ask for ``target`` (path and query) at ``origin``."""
        slot = await self._fresh(origin)
        assert slot.entry is not None
        group = slot.groups.get(user_agent)
        if group is None:
            if len(slot.groups) >= 16:  # user agents are the caller's, and few
                slot.groups.clear()
            group = slot.groups[user_agent] = slot.entry.file.group(user_agent)
        return decide(slot.entry, group, target, self._rules, now=trio.current_time())

    def remember(self, origin: str, copy: RobotsCopy) -> None:
        """Begin with a copy from an earlier run. An old one is asked for again and holds while the file is unreachable."""
        now = trio.current_time()
        url = robots_url(origin)
        since = None if copy.unreachable_for is None else now - copy.unreachable_for
        if copy.body is None:
            entry = RobotsEntry(url=url, state=RobotsState.UNREACHABLE, problem="was unreachable", unreachable_since=since, failures=1)
        else:
            reply = RobotsReply(status=200, body=copy.body, etag=copy.etag, last_modified=copy.last_modified)
            entry = settle(url, reply, None, now=now - copy.age, max_age=self._rules.max_age)
            entry = attrs.evolve(entry, unreachable_since=since)
        self._keep(self._slot(origin), entry)

    def _slot(self, origin: str) -> _Slot:
        slot = self._slots.get(origin)
        if slot is None:
            slot = self._slots[origin] = _Slot()
        self._slots.move_to_end(origin)
        return slot

    async def _fresh(self, origin: str) -> _Slot:
        slot = self._slot(origin)
        if slot.entry is not None and trio.current_time() < slot.entry.expires_at:
            return slot
        # A task that is cancelled here leaves nothing behind: the next one in the queue asks.
        async with slot.lock:
            if slot.entry is None or trio.current_time() >= slot.entry.expires_at:
                url = robots_url(origin)
                held = slot.entry
                reply = await self._ask(url, held)
                self._keep(slot, settle(url, reply, held, now=trio.current_time(), max_age=self._rules.max_age))
        return slot

    def _keep(self, slot: _Slot, entry: RobotsEntry) -> None:
        if slot.entry is not None:
            self._held_bytes -= slot.entry.file.size
        slot.entry = entry
        slot.groups = {}
        self._held_bytes += entry.file.size
        while len(self._slots) > _MAX_ENTRIES or self._held_bytes > _MAX_HELD_BYTES:
            spare = next((name for name, old in self._slots.items() if old is not slot and not old.lock.locked()), None)
            if spare is None:
                return
            old = self._slots.pop(spare)
            if old.entry is not None:
                self._held_bytes -= old.entry.file.size
