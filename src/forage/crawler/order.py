"""The rule that numbers the entries of a crawl and hands their results back (pure).

The numbering depends on the site and the policy only and never on timing:

* Entries are numbered round robin over hosts in discovery order, first in first out (or by score) within a host.
* Entry n is chosen from the state after commit n - window. If that state leaves nothing to choose, the next commit is waited for
  and applied, one at a time.
* Never more than ``max_pages`` minus the committed attempts are under way.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Generic, TypeVar

from forage.crawler.frontier import Entry, Frontier

__all__ = ["CommitOrder", "Turn"]


class Turn(Enum):
    """Why there is no next entry."""

    WAIT = "a commit that the order needs has not arrived"
    DONE = "nothing is left to do, or a budget is used up"


R = TypeVar("R")


class CommitOrder(Generic[R]):
    """Numbers entries and hands results back in the order of their numbers.

    ``apply(entry, result)`` changes the frontier (links, redirect targets) and answers True when the entry counts against
    ``max_pages``. ``stop()`` reads the applied state and answers True when a budget is used up. ``settle(entry, result)`` is asked for each
    entry when its turn to be committed has come, and answers with the result that counts.
    """

    def __init__(
        self,
        frontier: Frontier,
        *,
        window: int,
        max_pages: int,
        apply: Callable[[Entry, R], bool],
        stop: Callable[[], bool],
        settle: Callable[[Entry, R], R],
    ) -> None:
        self._frontier = frontier
        self._window = window
        self._max_pages = max_pages
        self._apply = apply
        self._stop = stop
        self._settle = settle
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
        while (one := self._arrived.get(self._committed)) is not None:
            settled = self._settle(*one)
            if settled is not one[1]:
                one = self._arrived[self._committed] = (one[0], settled)
            ready.append(one)
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
