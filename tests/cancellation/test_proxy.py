"""A proxy cancelled at any point, with its clients or without them, leaves no descriptor, no task and no listener."""

from __future__ import annotations

import random

import pytest
import trio

from forage.egress import DnsAnswers, Proxy, ProxyEvent, open_proxy
from tests.support.corpus_network import SuccessiveAnswers
from tests.support.dialer import MappingDialer
from tests.support.raw_server import Answer, open_raw_server
from tests.support.stepping import cancel_at_every_step

FOUR = "93.184.216.34"
CHUNKED = Answer(
    steps=(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 0.001, b"5\r\nhe", 0.001, b"llo\r\n0\r\n\r\n"), end="keep"
)
ABSOLUTE = b"POST http://a.example/ HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
TUNNEL = b"CONNECT a.example:80 HTTP/1.1\r\n\r\n"


class SteppingResolver:
    """Answers after a few steps of the scheduler."""

    async def resolve(self, host: str) -> DnsAnswers:
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        return DnsAnswers(addresses=(FOUR,), ttl=0.0)


async def ask(host: str, port: int, head: bytes, *later: bytes) -> bytes:
    """Send ``head``, then the rest bit by bit, each after something came back; then what comes until the end."""
    async with await trio.open_tcp_stream(host, port) as stream:
        await stream.send_all(head)
        got = bytes(await stream.receive_some())
        for part in later:
            await stream.send_all(part)
        while data := bytes(await stream.receive_some()):
            got += data
            if got.endswith(b"\r\n0\r\n\r\n"):
                break  # a tunnel stays open until its client ends it
        return got


@pytest.mark.parametrize(
    ("head", "later"),
    [(ABSOLUTE, (b"a", b"b")), (TUNNEL, (b"GET / HTTP/1.1\r\n", b"\r\n"))],
    ids=["absolute form", "tunnel"],
)
async def test_proxy_and_client_cancelled_at_every_step(head: bytes, later: tuple[bytes, ...]) -> None:
    async with open_raw_server(lambda _: CHUNKED) as server:

        async def operation() -> None:
            dialer = MappingDialer({FOUR: server.place})
            async with open_proxy(resolver=SteppingResolver(), dialer=dialer) as proxy:
                answer = await ask(proxy.host, proxy.port, head, *later)
                assert b"hello" in answer.replace(b"he\r\n3\r\nllo", b"hello")

        assert await cancel_at_every_step(operation) > 20


async def test_refusals_cancelled_at_every_step() -> None:
    async def operation() -> None:
        async with open_proxy() as proxy:
            assert await ask(proxy.host, proxy.port, b"GET http://10.0.0.1/ HTTP/1.1\r\n\r\n") == b""
            assert (await ask(proxy.host, proxy.port, b"CONNECT localhost:443 HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 403 ")

    assert await cancel_at_every_step(operation) > 10


@pytest.mark.parametrize("seed", range(10))
async def test_clients_cancelled_at_random_over_real_sockets(seed: int) -> None:
    """Ten rounds of a request and a tunnel at once, cancelled after a short time; the proxy goes on, tells all and leaves nothing."""
    chance = random.Random(seed)
    events: list[ProxyEvent] = []
    async with open_raw_server(lambda _: CHUNKED) as server:
        dialer = MappingDialer({FOUR: server.place})
        resolver = SuccessiveAnswers({"a.example": [[FOUR]]})
        async with open_proxy(resolver=resolver, dialer=dialer, on_event=events.append) as proxy:
            for _ in range(10):
                with trio.move_on_after(chance.random() * 0.008):
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(ask, proxy.host, proxy.port, ABSOLUTE, b"ab")
                        nursery.start_soon(ask, proxy.host, proxy.port, TUNNEL, b"GET / HTTP/1.1\r\n\r\n")
            assert b"llo" in await ask(proxy.host, proxy.port, ABSOLUTE, b"ab")
            with trio.fail_after(5):
                for _ in range(1_000):
                    if not proxy.connections:
                        break
                    await trio.sleep(0.005)
            assert proxy.connections == 0
    decided = [event.number for event in events if event.event == "decision"]
    ended = [event.number for event in events if event.event == "end"]
    assert len(decided) == len(set(decided))
    assert sorted(ended) == sorted({e.number for e in events if e.event == "decision" and e.decision == "allowed"})


@pytest.mark.parametrize("seed", range(10))
async def test_proxy_cancelled_at_random_over_real_sockets(seed: int) -> None:
    chance = random.Random(100 + seed)
    async with open_raw_server(lambda _: CHUNKED) as server:
        for _ in range(10):
            events: list[ProxyEvent] = []
            opened: list[Proxy] = []
            with trio.move_on_after(chance.random() * 0.01):
                async with (
                    open_proxy(
                        resolver=SuccessiveAnswers({"a.example": [[FOUR]]}),
                        dialer=MappingDialer({FOUR: server.place}),
                        on_event=events.append,
                    ) as proxy,
                    trio.open_nursery() as nursery,
                ):
                    opened.append(proxy)
                    for _ in range(3):
                        nursery.start_soon(ask, proxy.host, proxy.port, ABSOLUTE, b"ab")
                        nursery.start_soon(ask, proxy.host, proxy.port, TUNNEL, b"GET / HTTP/1.1\r\n\r\n")
            allowed = {event.number for event in events if event.decision == "allowed" and event.event == "decision"}
            assert allowed == {event.number for event in events if event.event == "end"}
            assert all(proxy.connections == 0 for proxy in opened)
