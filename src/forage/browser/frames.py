"""The bytes that a browser sends over a WebSocket: whole text messages are taken out before a WebSocket reader sees them (pure).

For two reasons. A reader that meets a message above its limit must close the connection (RFC 6455 section 7.4.1, code 1009), and with it
every page of the browser, and any page can provoke such a message: its payload is dropped here and told as `Oversized`. And a browser sends
some ten messages for each request of a page: what a reader does for each of them costs more than what is done with it here.

Frames of servers are not masked; Chromium never splits a message over frames. The handshake, control frames and messages in parts are left
to the reader and its limit. Format: RFC 6455 section 5.2.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from forage.browser.oversized import Oversized, Skipped

__all__ = ["FrameGate"]

_LONGEST_HEAD: Final = 65_536
_WHOLE_TEXT: Final = 0x81


class FrameGate:
    """Feed it what arrives, hand on what it gives back. It begins at the response to the opening handshake.

    ``messages`` are those that it took, in order; whoever reads them takes them out.
    """

    def __init__(self, limit: int) -> None:
        self.messages: deque[str | Oversized] = deque()
        self._limit = limit
        self._held = b""
        self._opening = True
        self._passing = 0  # bytes of the current frame that go through as they come
        self._missing = 0  # bytes still to come of a message that is taken or dropped
        self._taken: list[bytes] = []
        self._skipped: Skipped | None = None

    def feed(self, data: bytes) -> bytes:
        """What a reader may see of ``data`` and of what was held back before it."""
        if self._held:
            data = self._held + data
            self._held = b""
        if self._opening:
            return self._feed_opening(data)
        at = min(self._passing, len(data))
        self._passing -= at
        given = [data[:at]] if at else []
        while at < len(data):
            at = self._take(data, at) if self._missing else self._frame(data, at, given)
        return b"".join(given)

    def _feed_opening(self, data: bytes) -> bytes:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if len(data) > _LONGEST_HEAD:
                return data  # no handshake: the reader will say so
            self._held = data
            return b""
        self._opening = False
        return data[: end + 4] + self.feed(data[end + 4 :])

    def _frame(self, data: bytes, at: int, given: list[bytes]) -> int:
        """Take the frame that begins at ``at``; where looking goes on."""
        head = _frame_head(data, at)
        if head is None:
            self._held = data[at:]
            return len(data)
        begins, length = head
        ends = min(begins + length, len(data))
        if data[at] != _WHOLE_TEXT:
            self._passing = begins + length - ends
            given.append(data[at:ends])
            return ends
        if length <= self._limit and begins + length == ends:  # almost always
            self.messages.append(str(data[begins:ends], "utf-8", "replace"))
            return ends
        self._missing = length
        self._skipped = Skipped() if length > self._limit else None
        return self._take(data, begins)

    def _take(self, data: bytes, at: int) -> int:
        """More of a message that did not come in one piece."""
        ends = min(at + self._missing, len(data))
        self._missing -= ends - at
        if self._skipped is not None:
            self._skipped.add(data[at:ends])
            if not self._missing:
                self.messages.append(self._skipped.told())
            return ends
        self._taken.append(data[at:ends])
        if not self._missing:
            self.messages.append(b"".join(self._taken).decode("utf-8", "replace"))
            self._taken = []
        return ends


def _frame_head(data: bytes, at: int) -> tuple[int, int] | None:
    """Where the payload begins and how long it is; None while the head is not whole."""
    if len(data) < at + 2:
        return None
    length, size = data[at + 1] & 0x7F, 2
    if length >= 126:
        size = 4 if length == 126 else 10
        if len(data) < at + size:
            return None
        length = int.from_bytes(data[at + 2 : at + size], "big")
    return at + size, length
