"""A message of the browser that is too large to take: how large it was, and whose (pure)."""

from __future__ import annotations

import re
from typing import Final

import attrs

__all__ = ["Oversized", "Skipped"]

_EDGE: Final = 160
_NUMBER: Final = re.compile(rb'\{"id":([0-9]{1,15}),')
_SESSION: Final = re.compile(rb'"sessionId":"([0-9A-F]{32})"\}\Z')


@attrs.frozen(kw_only=True)
class Oversized:
    """A message that was not taken: its size, the number of the call that it answers, the session that it belongs to; where known."""

    size: int
    number: int | None
    session: str | None


class Skipped:
    """A message that is passed over piece by piece: its first and last bytes are kept, to tell whose it was."""

    def __init__(self) -> None:
        self._head = b""
        self._tail = b""
        self._size = 0

    def add(self, piece: bytes | bytearray | memoryview) -> None:
        self._size += len(piece)
        if len(self._head) < _EDGE:
            self._head += bytes(piece[: _EDGE - len(self._head)])
        self._tail = (self._tail + bytes(piece[-_EDGE:]))[-_EDGE:]

    def told(self) -> Oversized:
        """Chromium writes the number of an answer first and the session last."""
        number, session = _NUMBER.match(self._head), _SESSION.search(self._tail)
        return Oversized(
            size=self._size,
            number=None if number is None else int(number[1]),
            session=None if session is None else session[1].decode("ascii"),
        )
