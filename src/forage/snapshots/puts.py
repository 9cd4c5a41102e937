"""One put: its bytes, and what became of it.

Owns the encoding of a record for writing and the public error of a failed system call. It writes nothing.
"""

from __future__ import annotations

import os
import time

import attrs

from forage.errors import SnapshotStoreError, StoreErrorCode, StoreErrorReason
from forage.snapshots.model import Snapshot
from forage.snapshots.records import record_name, record_slices

__all__ = ["Put", "write_error"]

_LARGE_PIECE = 64 * 1024
_MOMENT = 0.0001


def write_error(exc: OSError) -> SnapshotStoreError:
    """The public error of a system call that failed while writing; names the cause, no path."""
    cause = os.strerror(exc.errno) if exc.errno else type(exc).__name__
    message = f"the store could not be written: {cause}"
    return SnapshotStoreError(StoreErrorCode.SNAPSHOT_STORE_ERROR, StoreErrorReason.WRITE_FAILED, message)


@attrs.define(eq=False)
class Put:
    """One put of a group and what became of it: ``busy`` (another writer holds the lock), ``error``, or neither: it is durable.

    A busy one may be handed in again.
    """

    snapshot: Snapshot
    busy: bool = False
    error: BaseException | None = None
    name: str = ""
    parts: tuple[bytes, ...] = ()
    slot: int | None = None
    """A slot that has its name while the record has not."""

    @property
    def is_open(self) -> bool:
        """Nothing is decided yet."""
        return self.error is None and not self.busy

    def hold_slot(self, number: int | None) -> None:
        """The slot got its name; until the record does, it has to go if anything fails."""
        self.slot = number

    def encode(self) -> None:
        """Name and bytes of the record. InvalidSnapshotError for a snapshot that cannot be stored."""
        if not self.parts:
            self.name = record_name(self.snapshot)
            self.parts = _encoded(self.snapshot)


def _encoded(snapshot: Snapshot) -> tuple[bytes, ...]:
    """The record in pieces; a small one in one piece, to be written by one call.

    After each large piece the interpreter is free for a moment, so that encoding 64 MiB holds up no event loop.
    """
    pieces: list[bytes] = []
    for piece in record_slices(snapshot):
        pieces.append(piece)
        if len(piece) > _LARGE_PIECE:
            time.sleep(_MOMENT)  # zero would not do: the thread that waits has to wake up first
    return tuple(pieces) if sum(map(len, pieces)) > _LARGE_PIECE else (b"".join(pieces),)
