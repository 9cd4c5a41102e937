"""Ordered, de-duplicated, depth-bounded work, and the rule that numbers it.

Pure: no task, clock or socket. `Frontier` holds the URLs that wait, by host; `CommitOrder` decides which of them gets the next number and
from which state, so that the numbering depends on the site and the policy only and never on timing:

* Entries are numbered round robin over hosts in discovery order, first in first out (or by score) within a host.
* Entry n is chosen from the state after commit n - window. If that state leaves nothing to choose, the next commit is waited for
  and applied, one at a time.
* Never more than ``max_pages`` minus the committed attempts are under way.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Generic, Protocol, TypeVar

import attrs

__all__ = ["CommitOrder", "Entry", "FollowContext", "Frontier", "Turn", "host_key"]


def host_key(url: str) -> str:
    """The lane of a normalised http(s) URL: host name, with the port when it is not the scheme's default.

    http and https of one host share a lane, because they share the machine that politeness is for.
    """
    start = url.index("//") + 2
    end = len(url)
    for mark in "/?#":
        at = url.find(mark, start)
        if at != -1:
            end = min(end, at)
    return url[start:end]


@attrs.frozen(kw_only=True)
class Entry:
    """One numbered URL.

    ``host_index`` counts the entries of its host, from 0; ``key`` is the de-duplication key; ``covered`` says that a redirect had led to
    it before it was numbered.
    """

    number: int
    url: str
    key: str
    host: str
    host_index: int
    depth: int
    covered: bool = False


@attrs.frozen(kw_only=True)
class FollowContext:
    """What ``should_follow`` may know: the page that holds the link, its depth, the seed, and how many entries were committed."""

    page_url: str
    depth: int
    seed_url: str
    committed: int


class _Queue(Protocol):
    def push(self, url: str, key: str, score: float, ticket: int) -> None: ...
    def pop(self) -> tuple[str, str]: ...
    def __len__(self) -> int: ...


class _Fifo:
    """First in, first out. A URL that is its own key is kept once, without a tuple around it."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: deque[str | tuple[str, str]] = deque()

    def push(self, url: str, key: str, score: float, ticket: int) -> None:
        self._items.append(key if url == key else (url, key))

    def pop(self) -> tuple[str, str]:
        item = self._items.popleft()
        return (item, item) if isinstance(item, str) else item

    def __len__(self) -> int:
        return len(self._items)


class _ByScore:
    """Highest score first, ties in discovery order."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: list[tuple[float, int, str, str]] = []

    def push(self, url: str, key: str, score: float, ticket: int) -> None:
        heapq.heappush(self._items, (-score, ticket, url, key))

    def pop(self) -> tuple[str, str]:
        _, _, url, key = heapq.heappop(self._items)
        return url, key

    def __len__(self) -> int:
        return len(self._items)


class Frontier:
    """URLs that wait, by host, each key at most once. ``scored`` orders a host's URLs by score instead of discovery."""

    def __init__(self, *, scored: bool = False) -> None:
        self._new_queue: Callable[[], _Queue] = _ByScore if scored else _Fifo
        self._queues: dict[str, _Queue] = {}
        self._ring: deque[str] = deque()  # hosts whose queue is not empty, in the order of their turns
        self._depths: dict[str, int] = {}  # every key ever seen; a smaller depth found while it waits is taken
        self._covered: set[str] = set()
        self._host_counts: dict[str, int] = {}
        self._tickets = 0
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def knows(self, key: str, depth: int | None = None) -> bool:
        """True when the key was pushed or marked before; with a smaller ``depth`` the known one is lowered."""
        known = self._depths.get(key)
        if known is None:
            return False
        if depth is not None and depth < known:
            self._depths[key] = depth
        return True

    def mark(self, key: str, depth: int) -> None:
        """Count a key as seen without queueing it: a redirect target that was captured under another URL."""
        if key in self._depths:
            self._covered.add(key)
        else:
            self._depths[key] = depth

    def push(self, url: str, key: str, depth: int, *, score: float = 0.0) -> bool:
        """Queue a URL; False when its key was seen before."""
        if self.knows(key, depth):
            return False
        if key == url:
            key = url  # one string object in both the queue and the table
        self._depths[key] = depth
        host = host_key(url)
        queue = self._queues.get(host)
        if queue is None:
            queue = self._queues[host] = self._new_queue()
        if not len(queue):
            self._ring.append(host)
        self._tickets += 1
        queue.push(url, key, score, self._tickets)
        self._waiting += 1
        return True

    def pop(self, number: int) -> Entry:
        """The next URL in turn, as entry ``number``. IndexError when nothing waits."""
        host = self._ring.popleft()
        queue = self._queues[host]
        url, key = queue.pop()
        self._waiting -= 1
        if len(queue):
            self._ring.append(host)
        else:
            del self._queues[host]
        index = self._host_counts.get(host, 0)
        self._host_counts[host] = index + 1
        covered = key in self._covered
        return Entry(number=number, url=url, key=key, host=host, host_index=index, depth=self._depths[key], covered=covered)

    def drain(self) -> list[tuple[str, int]]:
        """Everything that still waits as (url, depth), in the order in which it would have been taken."""
        left = []
        while self._waiting:
            entry = self.pop(-1)
            left.append((entry.url, entry.depth))
        return left


class Turn(Enum):
    """Why there is no next entry."""

    WAIT = "a commit that the order needs has not arrived"
    DONE = "nothing is left to do, or a budget is used up"


R = TypeVar("R")


class CommitOrder(Generic[R]):
    """Numbers entries and hands results back in the order of their numbers.

    ``apply(entry, result)`` changes the frontier (links, redirect targets) and answers True when the entry counts against
    ``max_pages``. ``stop()`` reads the applied state and answers True when a budget is used up.
    """

    def __init__(
        self, frontier: Frontier, *, window: int, max_pages: int, apply: Callable[[Entry, R], bool], stop: Callable[[], bool]
    ) -> None:
        self._frontier = frontier
        self._window = window
        self._max_pages = max_pages
        self._apply = apply
        self._stop = stop
        self._arrived: dict[int, tuple[Entry, R]] = {}
        self._numbered = 0
        self._committed = 0
        self._applied = 0
        self._counted = 0
        self._stopped = False

    @property
    def numbered(self) -> int:
        """Entries that have a number."""
        return self._numbered

    @property
    def applied(self) -> int:
        """Commits that the frontier has seen."""
        return self._applied

    @property
    def counted(self) -> int:
        """Applied entries that count against ``max_pages``."""
        return self._counted

    def arrive(self, entry: Entry, result: R) -> list[tuple[Entry, R]]:
        """Take one result, in any order; answer those whose turn to be committed has come."""
        self._arrived[entry.number] = (entry, result)
        ready = []
        while self._committed in self._arrived:
            ready.append(self._arrived[self._committed])
            self._committed += 1
        return ready

    def _apply_next(self) -> bool:
        if self._applied == self._committed:
            return False
        entry, result = self._arrived.pop(self._applied)
        self._applied += 1
        self._counted += self._apply(entry, result)
        return True

    def next_entry(self) -> Entry | Turn:
        """The entry whose turn it is, or why there is none now."""
        while self._applied <= self._numbered - self._window:
            if not self._apply_next():
                return Turn.WAIT
        while True:
            self._stopped = self._stopped or self._stop()
            under_way = self._numbered - self._applied
            room = self._max_pages - self._counted - under_way
            if not self._stopped and room > 0 and len(self._frontier):
                entry = self._frontier.pop(self._numbered)
                self._numbered += 1
                return entry
            if not under_way:
                return Turn.DONE
            if not self._apply_next():
                return Turn.WAIT
