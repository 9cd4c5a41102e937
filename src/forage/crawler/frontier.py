"""Ordered, de-duplicated, depth-bounded work: the URLs that wait, by host, and every key that was ever seen.

Pure but for its overflow: beyond a number of known URLs everything moves to a private temporary SQLite database, which has no
name in the file system and ends with the frontier (or with the process, however that ends). What is taken when is the same in either form;
the rule that numbers entries is `order`'s.
"""

from __future__ import annotations

import heapq
import itertools
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import attrs

__all__ = ["Entry", "FollowContext", "Frontier", "HostKeys", "host_key"]


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


class HostKeys:
    """`host_key` of URLs that come one after another: most are of the same host as the one before."""

    def __init__(self) -> None:
        self._root, self._host = "", ""

    def of(self, url: str) -> str:
        """The host key of a normalised URL."""
        if not self._root or not url.startswith(self._root):
            self._host = host_key(url)
            self._root = f"{url[: url.index('//')]}//{self._host}/"
        return self._host


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


class _Shelf(Protocol):
    """Where a frontier keeps what it knows."""

    @property
    def depth(self) -> Callable[[str], int | None]: ...
    def set_depth(self, key: str, depth: int) -> None: ...
    def cover(self, key: str) -> None: ...
    def is_covered(self, key: str) -> bool: ...
    def put(self, host: str, url: str, key: str, score: float, ticket: int) -> None: ...
    def take(self, host: str) -> tuple[str, str]: ...


class _Memory:
    """First in first out by deque, or by score with a heap. A URL that is its own key is kept once, without a tuple around it."""

    def __init__(self, *, scored: bool) -> None:
        self._scored = scored
        self._depths: dict[str, int] = {}
        self._covered: set[str] = set()
        self._fifo: dict[str, deque[str | tuple[str, str]]] = {}
        self._heap: dict[str, list[tuple[float, int, str, str]]] = {}

    @property
    def depth(self) -> Callable[[str], int | None]:
        return self._depths.get

    def set_depth(self, key: str, depth: int) -> None:
        self._depths[key] = depth

    def cover(self, key: str) -> None:
        self._covered.add(key)

    def is_covered(self, key: str) -> bool:
        return key in self._covered

    def put(self, host: str, url: str, key: str, score: float, ticket: int) -> None:
        if self._scored:
            heapq.heappush(self._heap.setdefault(host, []), (-score, ticket, url, key))
        else:
            queue = self._fifo.get(host)
            if queue is None:
                queue = self._fifo[host] = deque()
            queue.append(key if url == key else (url, key))

    def take(self, host: str) -> tuple[str, str]:
        if self._scored:
            heap = self._heap[host]
            _, _, url, key = heapq.heappop(heap)
            if not heap:
                del self._heap[host]
            return url, key
        queue = self._fifo[host]
        item = queue.popleft()
        if not queue:
            del self._fifo[host]
        return (item, item) if isinstance(item, str) else item

    def move_to(self, shelf: _Disk) -> None:
        """Give everything away; what was first stays first."""
        shelf.fill(((key, depth, key in self._covered) for key, depth in self._depths.items()), self._rows())

    def _rows(self) -> Iterator[tuple[str, float, int, str, str]]:
        tickets = itertools.count(-sum(map(len, self._fifo.values())))  # before every later one
        for host, queue in self._fifo.items():
            for item in queue:
                url, key = (item, item) if isinstance(item, str) else item
                yield host, 0.0, next(tickets), url, key
        for host, heap in self._heap.items():
            for rank, ticket, url, key in heap:
                yield host, rank, ticket, url, key


_WAITING = """
CREATE TABLE waiting (host TEXT, rank REAL, ticket INTEGER, url TEXT NOT NULL, key TEXT NOT NULL,
                      PRIMARY KEY (host, rank, ticket)) WITHOUT ROWID
"""


class _Disk:
    """The same in a temporary database: memory stays bounded whatever a site lists."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)  # an empty name: on disk, private, gone when closed
        for statement in (
            "PRAGMA journal_mode=OFF",
            "PRAGMA synchronous=OFF",
            "PRAGMA cache_size=-65536",
            "CREATE TABLE known (key TEXT PRIMARY KEY, depth INTEGER NOT NULL, covered INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID",
            _WAITING,
            "BEGIN",
        ):
            self._db.execute(statement)

    def fill(self, known: Iterable[tuple[str, int, bool]], waiting: Iterable[tuple[str, float, int, str, str]]) -> None:
        """Take over what another shelf held."""
        self._db.executemany("INSERT INTO known VALUES (?, ?, ?)", known)
        self._db.executemany("INSERT INTO waiting VALUES (?, ?, ?, ?, ?)", waiting)

    def depth(self, key: str) -> int | None:
        row = self._db.execute("SELECT depth FROM known WHERE key = ?", (key,)).fetchone()
        return None if row is None else int(row[0])

    def set_depth(self, key: str, depth: int) -> None:
        new = "INSERT INTO known (key, depth) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET depth = excluded.depth"
        self._db.execute(new, (key, depth))

    def cover(self, key: str) -> None:
        self._db.execute("UPDATE known SET covered = 1 WHERE key = ?", (key,))

    def is_covered(self, key: str) -> bool:
        row = self._db.execute("SELECT covered FROM known WHERE key = ?", (key,)).fetchone()
        return row is not None and bool(row[0])

    def put(self, host: str, url: str, key: str, score: float, ticket: int) -> None:
        self._db.execute("INSERT INTO waiting VALUES (?, ?, ?, ?, ?)", (host, -score, ticket, url, key))

    def take(self, host: str) -> tuple[str, str]:
        first = "SELECT rank, ticket, url, key FROM waiting WHERE host = ? ORDER BY rank, ticket LIMIT 1"
        rank, ticket, url, key = self._db.execute(first, (host,)).fetchone()
        self._db.execute("DELETE FROM waiting WHERE host = ? AND rank = ? AND ticket = ?", (host, rank, ticket))
        return url, key

    def close(self) -> None:
        self._db.close()


class Frontier:
    """URLs that wait, by host, each key at most once.

    ``scored`` orders a host's URLs by score instead of discovery; ``in_memory`` is how many known URLs are held before all of them move to
    disk. Close it when done.
    """

    def __init__(self, *, scored: bool = False, in_memory: int = 2_000_000) -> None:
        self._shelf: _Shelf = _Memory(scored=scored)
        self._depth = self._shelf.depth  # asked for each link of each page
        self._in_memory = in_memory
        self._ring: deque[str] = deque()  # hosts with URLs that wait, in the order of their turns
        self._counts: dict[str, int] = {}  # how many wait, by host
        self._indexes: dict[str, int] = {}  # entries numbered so far, by host
        self._tickets = 0
        self._waiting = 0
        self._known = 0
        self._host_of = HostKeys().of

    def __len__(self) -> int:
        return self._waiting

    @property
    def on_disk(self) -> bool:
        """Whether there were too many known URLs to hold in memory."""
        return isinstance(self._shelf, _Disk)

    def close(self) -> None:
        """Let go of the database, if there is one. Idempotent."""
        if isinstance(self._shelf, _Disk):
            self._shelf.close()

    def knows(self, key: str, depth: int | None = None) -> bool:
        """True when the key was pushed or marked before; with a smaller ``depth`` the known one is lowered."""
        known = self._depth(key)
        if known is None:
            return False
        if depth is not None and depth < known:
            self._shelf.set_depth(key, depth)
        return True

    def mark(self, key: str, depth: int) -> None:
        """Count a key as seen without queueing it: a redirect target that was captured under another URL."""
        if self._shelf.depth(key) is None:
            self._learn(key, depth)
        else:
            self._shelf.cover(key)

    def push(self, url: str, key: str, depth: int, *, score: float = 0.0) -> bool:
        """Queue a URL; False when its key was seen before."""
        if self.knows(key, depth):
            return False
        if key == url:
            key = url  # one string object in both the queue and the table
        self._learn(key, depth)
        host = self._host_of(url)
        count = self._counts.get(host, 0)
        if not count:
            self._ring.append(host)
        self._counts[host] = count + 1
        self._tickets += 1
        self._shelf.put(host, url, key, score, self._tickets)
        self._waiting += 1
        return True

    def pop(self, number: int) -> Entry:
        """The next URL in turn, as entry ``number``. IndexError when nothing waits."""
        host, url, key = self._take()
        index = self._indexes.get(host, 0)
        self._indexes[host] = index + 1
        depth = self._shelf.depth(key) or 0
        return Entry(number=number, url=url, key=key, host=host, host_index=index, depth=depth, covered=self._shelf.is_covered(key))

    def _take(self) -> tuple[str, str, str]:
        host = self._ring.popleft()
        url, key = self._shelf.take(host)
        self._waiting -= 1
        left = self._counts[host] - 1
        if left:
            self._counts[host] = left
            self._ring.append(host)
        else:
            del self._counts[host]
        return host, url, key

    def drain(self) -> Iterator[tuple[str, int]]:
        """Everything that still waits as (url, depth), in the order in which it would have been taken."""
        while self._waiting:
            _, url, key = self._take()
            yield url, self._shelf.depth(key) or 0

    def _learn(self, key: str, depth: int) -> None:
        self._shelf.set_depth(key, depth)
        self._known += 1
        if self._known > self._in_memory and isinstance(self._shelf, _Memory):
            disk = _Disk()
            self._shelf.move_to(disk)
            self._shelf = disk
            self._depth = disk.depth
