"""How messages get to a browser and back: what a transport is, and the one over a pair of sockets that Chromium calls a pipe.

Owns the framing by NUL bytes and the limit on a message. A page can make the browser write messages of any size (a console line of 500 MB);
a message above the limit is skipped and told as `Oversized`, so that one page cannot end the connection that all pages share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

import trio

from forage.browser.oversized import Oversized, Skipped
from forage.errors import BrowserLostError

__all__ = ["MESSAGE_LIMIT", "Message", "PipeTransport", "Transport"]

MESSAGE_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of one message. JSON may write a character in 6 bytes, so that a document of 8 MiB fits."""

_BLOCK: Final = 262_144
Message: TypeAlias = "str | Oversized"


class Transport(Protocol):
    """Messages to and from one browser. One task sends, one reads."""

    async def send(self, texts: Sequence[str]) -> None:
        """Send messages, in one piece where they fit: each piece wakes the browser.

        Raises BrowserLostError; a send that was cancelled leaves the transport unusable.
        """
        ...

    async def read(self, take: Callable[[Message], None]) -> None:
        """Hand each message to ``take`` as it comes, until the end. ``take`` may raise BrowserLostError, which ends the transport.

        Nothing is read while this does not run; it may be cancelled and called again.
        """
        ...

    async def aclose(self) -> None:
        """Close without waiting for the other end."""
        ...


class PipeTransport:
    """Messages ended by NUL over one end of a socket pair. No port is open, and Chromium ends when this end is closed, by whatever."""

    def __init__(self, stream: trio.SocketStream, *, limit: int = MESSAGE_LIMIT) -> None:
        self._stream = stream
        self._limit = limit
        self._buffer = bytearray()
        self._searched = 0
        self._skipped: Skipped | None = None

    async def send(self, texts: Sequence[str]) -> None:
        try:
            await self._stream.send_all(b"".join(text.encode() + b"\0" for text in texts))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            raise BrowserLostError from exc

    async def read(self, take: Callable[[Message], None]) -> None:
        while True:
            while (message := self._next()) is not None:
                take(message)
            try:
                data = await self._stream.receive_some(_BLOCK)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            if not data:
                return
            self._buffer += data

    def _next(self) -> Message | None:
        end = self._buffer.find(b"\0", self._searched)
        if self._skipped is None and (end > self._limit or (end < 0 and len(self._buffer) > self._limit)):
            self._skipped = Skipped()
        if self._skipped is not None:
            return self._skip(end)
        if end < 0:
            self._searched = len(self._buffer)
            return None
        message = self._buffer[:end].decode("utf-8", "replace")
        del self._buffer[: end + 1]
        self._searched = 0
        return message

    def _skip(self, end: int) -> Oversized | None:
        assert self._skipped is not None
        self._searched = 0
        piece = self._buffer[:end] if end >= 0 else self._buffer
        self._skipped.add(piece)
        if end < 0:
            self._buffer = bytearray()
            return None
        del self._buffer[: end + 1]
        told, self._skipped = self._skipped.told(), None
        return told

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)
