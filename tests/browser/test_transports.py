"""One contract for both transports: whole messages in order, large ones skipped and told, the end of the other side noticed.

The other side is a socket or a WebSocket server in this process.
"""

from __future__ import annotations

import json
import socket
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import pytest
import trio
import trio_websocket
from hypothesis import given
from hypothesis import strategies as st
from wsproto.events import TextMessage

from forage.browser.oversized import Oversized
from forage.browser.transport import PipeTransport, Transport
from forage.browser.websocket import open_websocket
from forage.errors import BrowserLostError

LIMIT = 100_000
SESSION = "0123456789ABCDEF0123456789ABCDEF"


class Other(Protocol):
    """The browser's side."""

    async def send(self, text: str) -> None: ...
    async def receive(self) -> str: ...
    async def hang_up(self) -> None: ...


class PipeOther:
    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._buffer = b""

    async def send(self, text: str) -> None:
        await self._stream.send_all(text.encode() + b"\0")

    async def receive(self) -> str:
        while b"\0" not in self._buffer:
            self._buffer += await self._stream.receive_some()
        message, _, self._buffer = self._buffer.partition(b"\0")
        return message.decode()

    async def hang_up(self) -> None:
        await self._stream.aclose()


class SocketOther:
    def __init__(self, connection: trio_websocket.WebSocketConnection) -> None:
        self._connection = connection

    async def send(self, text: str) -> None:
        await self._connection.send_message(text)

    async def receive(self) -> str:
        return str(await self._connection.get_message())

    async def hang_up(self) -> None:
        await trio.aclose_forcefully(self._connection._stream)


class Ours:
    """The side under test, its messages taken one at a time."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._taken: deque[str | Oversized] = deque()

    async def receive(self) -> str | Oversized | None:
        """The next message, None at the end."""
        with trio.CancelScope() as enough:

            def take(message: str | Oversized) -> None:
                self._taken.append(message)
                enough.cancel()

            if not self._taken:
                await self.transport.read(take)
        return self._taken.popleft() if self._taken else None

    async def send(self, *texts: str) -> None:
        await self.transport.send(texts)


@asynccontextmanager
async def open_pipe_pair() -> AsyncIterator[tuple[Ours, Other]]:
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.setblocking(False)
    async with trio.SocketStream(trio.socket.from_stdlib_socket(theirs)) as stream:
        transport = PipeTransport(trio.SocketStream(trio.socket.from_stdlib_socket(ours)), limit=LIMIT)
        try:
            yield Ours(transport), PipeOther(stream)
        finally:
            await transport.aclose()


@asynccontextmanager
async def open_socket_pair() -> AsyncIterator[tuple[Ours, Other]]:
    accepted: list[SocketOther] = []
    ready, over = trio.Event(), trio.Event()

    async def serve(request: trio_websocket.WebSocketRequest) -> None:
        accepted.append(SocketOther(await request.accept()))
        ready.set()
        await over.wait()

    async with trio.open_nursery() as nursery:
        server: Any = await nursery.start(trio_websocket.serve_websocket, serve, "127.0.0.1", 0, None)
        transport = await open_websocket(nursery, server.port, "/devtools/browser/x", limit=LIMIT)
        await ready.wait()
        try:
            yield Ours(transport), accepted[0]
        finally:
            await transport.aclose()
            over.set()
            nursery.cancel_scope.cancel()


PAIRS = pytest.mark.parametrize("pair", [open_pipe_pair, open_socket_pair], ids=["pipe", "websocket"])


@PAIRS
async def test_messages_pass_whole_and_in_order_both_ways(pair: Any) -> None:
    async with pair() as (ours, other):
        texts = ["{}", "x" * 99_000, "ä€😀", "", "{}"]
        for text in filter(None, texts):
            await other.send(text)
            assert await ours.receive() == text
            await ours.send(text)
            assert await other.receive() == text


@PAIRS
async def test_many_messages_at_once_keep_their_order(pair: Any) -> None:
    async with pair() as (ours, other), trio.open_nursery() as nursery:

        async def send_all() -> None:
            for number in range(500):
                await other.send(json.dumps({"n": number}))

        nursery.start_soon(send_all)
        for number in range(500):
            assert await ours.receive() == json.dumps({"n": number})


@PAIRS
async def test_many_messages_that_are_sent_in_one_piece_keep_their_order(pair: Any) -> None:
    async with pair() as (ours, other), trio.open_nursery() as nursery:
        texts = [json.dumps({"n": number, "x": "y" * (number * 37 % 5_000)}) for number in range(200)]
        nursery.start_soon(ours.send, *texts)
        for text in texts:
            assert await other.receive() == text


@PAIRS
async def test_a_message_that_cannot_be_read_ends_the_transport(pair: Any) -> None:
    def take(message: str | Oversized) -> None:
        raise BrowserLostError("no message")

    async with pair() as (ours, other):
        await other.send("{")
        with pytest.raises(BrowserLostError, match="no message"):
            await ours.transport.read(take)


@PAIRS
async def test_nothing_is_read_while_nobody_takes_it(pair: Any) -> None:
    async with pair() as (ours, other), trio.open_nursery() as nursery:
        sent = 0

        async def send_much() -> None:
            nonlocal sent
            while True:
                await other.send("x" * 50_000)
                sent += 1

        nursery.start_soon(send_much)
        with trio.move_on_after(0.3):
            await trio.sleep_forever()
        held = sent
        assert await ours.receive() == "x" * 50_000
        assert held < 500
        nursery.cancel_scope.cancel()


@PAIRS
async def test_a_message_above_the_limit_is_skipped_and_the_next_one_comes(pair: Any) -> None:
    async with pair() as (ours, other), trio.open_nursery() as nursery:
        event = json.dumps({"method": "A.a", "params": {"x": "y" * 300_000}, "sessionId": SESSION}, separators=(",", ":"))
        reply = json.dumps({"id": 7, "result": {"x": "y" * 300_000}}, separators=(",", ":"))

        async def send_all() -> None:
            for text in (event, reply, "{}"):
                await other.send(text)

        nursery.start_soon(send_all)
        assert await ours.receive() == Oversized(size=len(event), number=None, session=SESSION)
        assert await ours.receive() == Oversized(size=len(reply), number=7, session=None)
        assert await ours.receive() == "{}"


@PAIRS
async def test_a_message_of_exactly_the_limit_is_taken(pair: Any) -> None:
    async with pair() as (ours, other), trio.open_nursery() as nursery:
        nursery.start_soon(other.send, "x" * LIMIT)
        assert await ours.receive() == "x" * LIMIT
        nursery.start_soon(other.send, "x" * (LIMIT + 1))
        assert await ours.receive() == Oversized(size=LIMIT + 1, number=None, session=None)


@PAIRS
async def test_the_end_of_the_other_side_is_the_end(pair: Any) -> None:
    async with pair() as (ours, other):
        await other.send("{}")
        assert await ours.receive() == "{}"
        await other.hang_up()
        assert await ours.receive() is None


@PAIRS
async def test_sending_to_nobody_is_told(pair: Any) -> None:
    async with pair() as (ours, other):
        await other.hang_up()

        async def send_much() -> None:
            while True:
                await ours.send("x" * 50_000)

        with pytest.raises(BrowserLostError):
            await send_much()


@PAIRS
async def test_a_waiting_receiver_can_be_cancelled_and_goes_on_later(pair: Any) -> None:
    async with pair() as (ours, other):
        with trio.move_on_after(0.01) as scope:
            await ours.receive()
        assert scope.cancelled_caught
        await other.send("{}")
        assert await ours.receive() == "{}"


@PAIRS
async def test_closing_does_not_wait_for_the_other_side(pair: Any) -> None:
    async with pair() as (ours, _):
        with trio.fail_after(1):
            await ours.transport.aclose()


async def test_nobody_listens() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        async with trio.open_nursery() as nursery:
            with pytest.raises(BrowserLostError):
                await open_websocket(nursery, sock.getsockname()[1], "/")


@given(st.lists(st.binary(max_size=400).filter(lambda data: b"\0" not in data), max_size=8), st.integers(1, 50))
def test_a_pipe_reads_the_same_messages_however_they_are_cut(payloads: list[bytes], size: int) -> None:
    class Cut(trio.abc.ReceiveStream):
        def __init__(self, data: bytes) -> None:
            self.data = data

        async def receive_some(self, max_bytes: int | None = None) -> bytes:
            await trio.lowlevel.checkpoint()
            piece, self.data = self.data[:size], self.data[size:]
            return piece

        async def aclose(self) -> None:
            await trio.lowlevel.checkpoint()

    async def read() -> list[object]:
        transport = PipeTransport(Cut(b"".join(payload + b"\0" for payload in payloads)), limit=100)  # type: ignore[arg-type]  # the half
        found: list[object] = []
        await transport.read(found.append)
        return found

    found = trio.run(read)
    assert [m.size if isinstance(m, Oversized) else m for m in found] == [
        len(p) if len(p) > 100 else p.decode("utf-8", "replace") for p in payloads
    ]


async def test_a_message_in_parts_is_put_together() -> None:
    async with open_socket_pair() as (ours, other):
        connection = other._connection  # type: ignore[attr-defined]
        await other.send("{}")
        assert await ours.receive() == "{}"
        await connection._send(TextMessage("[1,", message_finished=False))
        await connection._send(TextMessage("2]"))
        assert await ours.receive() == "[1,2]"
