"""An exchange cancelled at any point leaves nothing: no descriptor, no task, no half-used connection that the next request could take."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from forage.egress import DnsAnswers, EgressPolicy, EgressSession, guarded_client
from tests.support.authority import server_context, trusted_by
from tests.support.corpus_network import SuccessiveAnswers
from tests.support.dialer import MappingDialer, SocketPairDialer
from tests.support.memory_wire import MemoryPeer, MemoryWire
from tests.support.raw_server import Answer, open_raw_server, page
from tests.support.stepping import cancel_at_every_step

FOUR, SIX = "93.184.216.34", "2606:4700:4700::1111"
URL = "http://a.example/"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class SteppingResolver:
    """Answers after a few steps of the scheduler."""

    async def resolve(self, host: str) -> DnsAnswers:
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        return DnsAnswers(addresses=(SIX, FOUR), ttl=0.0)


async def stuttering(peer: MemoryPeer) -> None:
    """Head and body in small parts, each a step apart."""
    while await peer.request() is not None:
        for part in (CHUNKED[:20], CHUNKED[20:], b"5\r\nhe", b"llo\r\n", b"0\r\n\r\n"):
            peer.send(part)
            await trio.lowlevel.checkpoint()


@asynccontextmanager
async def memory_session(nursery: trio.Nursery) -> AsyncIterator[tuple[EgressSession, MemoryWire]]:
    wire = MemoryWire(nursery, stuttering, refuse=(SIX,))
    async with EgressSession(EgressPolicy(), resolver=SteppingResolver(), wire=wire) as session:
        yield session, wire


async def test_look_up_connect_head_and_body_in_memory() -> None:
    async with trio.open_nursery() as nursery:

        async def operation() -> None:
            async with memory_session(nursery) as (session, wire):
                for _ in range(2):
                    assert (await session.exchange(URL)).body == b"hello"
            assert wire.open == []

        assert await cancel_at_every_step(operation) > 20
        nursery.cancel_scope.cancel()


async def test_a_session_that_lives_on_never_uses_what_a_cancelled_exchange_held() -> None:
    async with trio.open_nursery() as nursery, memory_session(nursery) as (session, wire):

        async def operation() -> None:
            try:
                for _ in range(2):
                    assert (await session.exchange(URL)).body == b"hello"
            finally:
                assert len(wire.open) <= 1
                session._idle._close_old(0, None)  # what is left in use is then a task that stays

        assert await cancel_at_every_step(operation) > 20
        assert (await session.exchange(URL)).body == b"hello"
        nursery.cancel_scope.cancel()


async def test_a_streamed_body_left_or_cancelled() -> None:
    async with trio.open_nursery() as nursery:

        async def operation() -> None:
            async with memory_session(nursery) as (session, wire):
                async with session.open_exchange(URL) as exchange:
                    assert await exchange.piece()
                    await trio.lowlevel.checkpoint()
                assert wire.open == []

        assert await cancel_at_every_step(operation) > 10
        nursery.cancel_scope.cancel()


async def test_an_early_answer_to_a_large_request() -> None:
    async def refusing(peer: MemoryPeer) -> None:
        await peer.request()
        await trio.lowlevel.checkpoint()
        peer.send(b"HTTP/1.1 413 X\r\nContent-Length: 0\r\n\r\n")

    async with trio.open_nursery() as nursery:

        async def operation() -> None:
            wire = MemoryWire(nursery, refusing, room=1_000)
            async with EgressSession(EgressPolicy(), resolver=SteppingResolver(), wire=wire) as session:
                assert (await session.exchange(URL, method="POST", body=bytes(10_000))).status == 413
            assert wire.open == []

        assert await cancel_at_every_step(operation) > 5
        nursery.cancel_scope.cancel()


async def test_staggered_dials_and_a_tls_handshake(tmp_path: Path) -> None:
    """Over socket pairs: descriptors without a network, every step of the handshake a step of this scheduler."""
    policy = EgressPolicy(ca_file=trusted_by(tmp_path))
    context = server_context("a.example")

    async def serve(stream: trio.SocketStream) -> None:
        secure = trio.SSLStream(stream, context, server_side=True)
        try:
            while b"\r\n\r\n" not in (data := bytes(await secure.receive_some(65_536))):
                if not data:
                    return
            await secure.send_all(CHUNKED + b"5\r\nhello\r\n0\r\n\r\n")
            await secure.receive_some(1)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            await trio.aclose_forcefully(secure)

    async with trio.open_nursery() as nursery:

        async def operation() -> None:
            dialer = SocketPairDialer(nursery, serve)
            async with EgressSession(policy, resolver=SteppingResolver(), dialer=dialer) as session:
                assert (await session.exchange("https://a.example/")).body == b"hello"

        assert await cancel_at_every_step(operation) > 10
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("stream", [False, True])
async def test_the_client_with_a_redirect(stream: bool) -> None:
    routes = {"/": [page(status="302 F", headers=[("Location", "/end")])], "/end": [page(b"end")]}
    async with open_raw_server(routes) as server:

        async def operation() -> None:
            dialer = MappingDialer({FOUR: server.place})
            async with guarded_client(resolver=SteppingResolver(), dialer=dialer) as client:
                request = client.build_request("GET", URL)
                response = await client.send(request, stream=stream)
                assert await response.aread() == b"end"

        assert await cancel_at_every_step(operation) > 10


@pytest.mark.parametrize("seed", range(10))
async def test_cancelled_at_random_over_real_sockets(seed: int, tmp_path: Path) -> None:
    """Two exchanges at a time, plain and TLS, cancelled after a random short time; the session goes on and answers right."""
    chance = random.Random(seed)
    drip = Answer(steps=(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 0.001, b"he", 0.001, b"llo"), end="keep")
    policy = EgressPolicy(ca_file=trusted_by(tmp_path))
    async with (
        open_raw_server({"/": [drip]}) as clear,
        open_raw_server({"/": [drip]}, tls=server_context("a.example")) as secure,
        EgressSession(
            policy,
            resolver=SuccessiveAnswers({"a.example": [[FOUR]]}),
            dialer=MappingDialer({(FOUR, 80): clear.place, (FOUR, 443): secure.place}),
        ) as session,
    ):
        for _ in range(2):
            with trio.move_on_after(chance.random() * 0.006):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(session.exchange, "http://a.example/")
                    nursery.start_soon(session.exchange, "https://a.example/")
        for url in ("http://a.example/", "https://a.example/"):
            assert (await session.exchange(url)).body == b"hello"
