"""Files on their way to their names: written, then synced, then linked in the order that was planned, then their directories synced.

Owns the bookkeeping between these steps; what is written, and in which order it gets its names, is decided by `publication` and `pruning`.
Blocking.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from forage._files import OpenDirectory, Temporary

__all__ = ["Staging", "staging"]

Owner = TypeVar("Owner")

# Temporaries of one source that are written and not yet synced, each with an open file.
_MOST_UNSYNCED = 8


class Staging(Generic[Owner]):
    """Temporaries, and the steps that give them their names. A step may belong to an owner: whose failure concerns that owner alone."""

    def __init__(self) -> None:
        self._temporaries: list[Temporary] = []
        self._unsynced: list[Temporary] = []
        self._steps: list[tuple[Owner | None, Callable[[], None]]] = []

    def write(self, directory: OpenDirectory, name: str, parts: Iterable[bytes]) -> Temporary:
        """A temporary with this content; the kernel begins to write it out at once, so that many share a commit when synced."""
        if len(self._unsynced) >= _MOST_UNSYNCED:
            self.sync()
        temporary = Temporary(directory, name, parts, start_writing=True)
        self._temporaries.append(temporary)
        self._unsynced.append(temporary)
        return temporary

    def write_text(self, directory: OpenDirectory, name: str, text: str) -> Temporary:
        """`write` for an index entry."""
        return self.write(directory, name, (text.encode(),))

    def then(self, owner: Owner | None, step: Callable[[], None]) -> None:
        """Plan a step for after all contents are durable."""
        self._steps.append((owner, step))

    def sync(self) -> None:
        """Make all contents durable."""
        while self._unsynced:
            self._unsynced.pop().sync()

    def run_steps(self, run: Callable[[Owner, Callable[[], None]], None] | None = None) -> None:
        """Run the planned steps in order; those of an owner through ``run``."""
        for owner, step in self._steps:
            if owner is None or run is None:
                step()
            else:
                run(owner, step)

    def discard(self) -> None:
        """Remove the temporaries. One that cannot be removed is left for the next writer: nothing depends on it."""
        for temporary in self._temporaries:
            with contextlib.suppress(OSError):
                temporary.discard()


@contextlib.contextmanager
def staging() -> Iterator[Staging[object]]:
    """A staging without owners, whose temporaries are gone when the block ends."""
    held: Staging[object] = Staging()
    try:
        yield held
    finally:
        held.discard()
