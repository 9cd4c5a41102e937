"""One suite for every channel (socket, TLS, in-memory), and what an exchange does with one."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import trio
import trio.testing

from forage.egress import EgressAddress, EgressPolicy, judge_url
from forage.egress.channels import Channel, SocketChannel, TlsChannel
from forage.egress.wire import HttpExchange
from forage.errors import FetchError, FetchErrorKind
from tests.support.authority import authority, server_context
from tests.support.memory_wire import MemoryPeer, MemoryWire


class Peer:
    """The other end, whatever carries it."""

    def __init__(
        self, send: Callable[[bytes], Awaitable[None]], receive: Callable[[], Awaitable[bytes]], end: Callable[[], Awaitable[None]],
        reset: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        self.send = send
        self.receive = receive
        self.end = end
        self.reset = reset


async def _connected() -> tuple[socket.socket, trio.SocketStream]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    return ours, trio.SocketStream(trio.socket.from_stdlib_socket(theirs))


def _peer_of(stream: trio.abc.Stream, raw: trio.SocketStream) -> Peer:
    async def receive() -> bytes:
        return bytes(await stream.receive_some(65_536))

    async def reset() -> None:
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.socket.close()

    return Peer(stream.send_all, receive, stream.aclose, reset)


@asynccontextmanager
async def plain() -> AsyncIterator[tuple[Channel, Peer]]:
    ours, theirs = await _connected()
    channel = SocketChannel(ours)
    async with theirs:
        yield channel, _peer_of(theirs, theirs)
    channel.close()


@asynccontextmanager
async def tls() -> AsyncIterator[tuple[Channel, Peer]]:
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority().configure_trust(client)
    ours, theirs = await _connected()
    secured = client.wrap_socket(ours, server_hostname="a.example", do_handshake_on_connect=False, suppress_ragged_eofs=False)
    channel, stream = TlsChannel(secured), trio.SSLStream(theirs, server_context("a.example"), server_side=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.do_handshake)
        await channel.handshake()
    try:
        yield channel, _peer_of(stream, theirs)
    finally:
        channel.close()
        await trio.aclose_forcefully(stream)


@asynccontextmanager
async def memory() -> AsyncIterator[tuple[Channel, Peer]]:
    peers: list[MemoryPeer] = []

    async def keep(peer: MemoryPeer) -> None:
        peers.append(peer)
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        wire = MemoryWire(nursery, keep, room=65_536)
        target = judge_url("http://93.184.216.34/", EgressPolicy())
        made = await wire.connect(target, (EgressAddress(address="93.184.216.34", family=4),))
        await trio.testing.wait_all_tasks_blocked()
        (peer,) = peers

        async def send(data: bytes) -> None:
            peer.send(data)

        async def end() -> None:
            peer.close()

        async def reset() -> None:
            peer.reset()

        yield made.channel, Peer(send, peer.receive, end, reset)
        made.channel.close()
        nursery.cancel_scope.cancel()


CHANNELS = [plain, tls, memory]
Opener = Callable[[], AbstractAsyncContextManager[tuple[Channel, Peer]]]


async def receive(channel: Channel, limit: int = 65_536) -> bytes:
    while (data := channel.receive(limit)) is None:
        await channel.readable()
    return data


@pytest.mark.parametrize("opened", CHANNELS)
class TestChannel:
    async def test_nothing_there_is_none_and_then_what_was_sent(self, opened: Opener) -> None:
        async with opened() as (channel, peer):
            assert channel.receive(10) is None
            await peer.send(b"hello")
            assert await receive(channel, 2) == b"he"
            assert await receive(channel) == b"llo"
            assert channel.receive(10) is None

    async def test_what_is_sent_arrives(self, opened: Opener) -> None:
        async with opened() as (channel, peer):
            assert channel.send(b"hello") == 5
            assert await peer.receive() == b"hello"

    async def test_the_end_is_empty_bytes_again_and_again(self, opened: Opener) -> None:
        async with opened() as (channel, peer):
            await peer.send(b"last")
            await peer.end()
            assert await receive(channel) == b"last"
            assert await receive(channel) == b""
            assert await receive(channel) == b""

    async def test_a_reset_is_a_lost_connection(self, opened: Opener) -> None:
        async with opened() as (channel, peer):
            await peer.reset()
            with pytest.raises(FetchError) as caught:
                await receive(channel)
            assert caught.value.kind is FetchErrorKind.NETWORK

    async def test_a_full_channel_takes_nothing_until_there_is_room(self, opened: Opener) -> None:
        async with opened() as (channel, peer):
            block, taken = bytes(65_536), 0
            for _ in range(1_000):
                step = channel.send(block)
                taken += step
                if not step:
                    break
            assert channel.send(block) == 0
            received = 0
            async with trio.open_nursery() as nursery:
                nursery.start_soon(channel.ready)
                while received < taken:
                    received += len(await peer.receive())
            assert received == taken

    async def test_ready_also_means_something_to_read(self, opened: Opener) -> None:
        async with opened() as (channel, peer):
            while channel.send(bytes(65_536)):
                pass
            await peer.send(b"early")
            with trio.fail_after(5):
                await channel.ready()
            assert await receive(channel) == b"early"

    async def test_waits_are_checkpoints_and_can_be_cancelled(self, opened: Opener) -> None:
        async with opened() as (channel, _):
            for wait in (channel.readable, channel.ready):
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await wait()
                assert scope.cancelled_caught

    @pytest.mark.parametrize("wait", ["readable", "ready"])
    async def test_closing_wakes_a_task_that_waits(self, opened: Opener, wait: str) -> None:
        async with opened() as (channel, _):
            while wait == "ready" and channel.send(bytes(65_536)):
                pass
            lost: list[FetchErrorKind] = []

            async def waiting() -> None:
                try:
                    await getattr(channel, wait)()
                except FetchError as exc:
                    lost.append(exc.kind)

            with trio.fail_after(5):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(waiting)
                    await trio.testing.wait_all_tasks_blocked(0.01)
                    channel.close()
            assert lost == [FetchErrorKind.NETWORK]

    async def test_closing_twice_is_closing(self, opened: Opener) -> None:
        async with opened() as (channel, _):
            channel.close()
            channel.close()


async def test_a_kept_tls_session_is_given_at_the_end() -> None:
    async with tls() as (channel, peer):
        assert isinstance(channel, TlsChannel)
        kept: list[ssl.SSLSession] = []
        channel._at_close = kept.append
        await peer.send(b"x")
        await receive(channel)
        channel.close()
        channel.close()
    assert len(kept) == 1


async def test_an_exchange_tells_whether_an_answer_began_and_may_be_followed_by_another() -> None:
    async with plain() as (channel, peer):
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        exchange = HttpExchange(channel)
        head = await exchange.start(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET")
        assert (head.status, exchange.began, exchange.reusable) == (200, True, False)
        assert await exchange.receive_body() == b"hi"
        assert await exchange.receive_body() == b""
        assert exchange.reusable


async def test_a_body_longer_than_memory_should_hold_comes_in_pieces() -> None:
    async with plain() as (channel, peer), trio.open_nursery() as nursery:
        nursery.start_soon(peer.send, b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + bytes(1_000_000))
        exchange = HttpExchange(channel)
        await exchange.start(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET")
        sizes = []
        while piece := await exchange.receive_body():
            sizes.append(len(piece))
    assert sum(sizes) == 1_000_000
    assert max(sizes) <= 65_536
