"""The bytes that a browser sends over a WebSocket, with messages above a limit taken out before a WebSocket reader sees them (pure).

A reader that meets a message above its limit must close the connection (RFC 6455 section 7.4.1, code 1009), and with it every page of the
browser; any page can provoke such a message. So the payload of a large frame is dropped on its way in and a small text frame put in its
place, which says how large it was and whose. Frames of servers are not masked; Chromium never splits a message over frames, and split ones
are left to the reader and its limit. Format: RFC 6455 section 5.2.
"""

from __future__ import annotations

import json
from typing import Final

from forage.browser.oversized import Oversized, Skipped

__all__ = ["FrameGate", "oversized_of"]

_MARK: Final = '{"forage-oversized":'
_LONGEST_HEAD: Final = 65_536
_WHOLE_TEXT: Final = 0x81


class FrameGate:
    """Feed it what arrives, hand on what it gives back. It begins at the response to the opening handshake."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = b""
        self._opening = True
        self._passing = 0  # bytes of the current frame that go through as they come
        self._dropping = 0  # bytes of a large frame still to come
        self._skipped = Skipped()

    def feed(self, data: bytes) -> bytes:
        """What a reader may see of ``data`` and of what was held back before it."""
        if self._held:
            data = self._held + data
            self._held = b""
        if self._opening:
            return self._feed_opening(data)
        at = min(self._passing, len(data))
        self._passing -= at
        if at == len(data):
            return data
        given = [data[:at]]
        while at < len(data):
            at = self._drop(data, at, given) if self._dropping else self._frame(data, at, given)
        return given[0] if len(given) == 1 else b"".join(given)

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
        if data[at] == _WHOLE_TEXT and length > self._limit:
            self._dropping, self._skipped = length, Skipped()
            return begins
        ends = min(begins + length, len(data))
        self._passing = begins + length - ends
        given.append(data[at:ends])
        return ends

    def _drop(self, data: bytes, at: int, given: list[bytes]) -> int:
        ends = min(at + self._dropping, len(data))
        self._skipped.add(data[at:ends])
        self._dropping -= ends - at
        if not self._dropping:
            given.append(_marker(self._skipped.told()))
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


def _marker(told: Oversized) -> bytes:
    text = f"{_MARK}{json.dumps([told.size, told.number, told.session])}}}".encode("ascii")
    return bytes([_WHOLE_TEXT, len(text)]) + text  # never more than 125 bytes


def oversized_of(message: str) -> Oversized | None:
    """What a message stands for that was put in the place of a large one; None for any other."""
    if not message.startswith(_MARK):
        return None
    size, number, session = json.loads(message)["forage-oversized"]
    return Oversized(size=size, number=number, session=session)
