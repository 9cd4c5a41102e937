"""One hop under the guard: judged each time, one answer for one request, connections kept only where nothing can be mixed up."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from forage.egress import DnsAnswers, EgressAddress, EgressPolicy, EgressSession, Received, judge_url
from forage.egress.idle import IDLE_SECONDS, MAX_IDLE_CONNECTIONS
from forage.errors import (
    EgressCode,
    EgressDeniedError,
    EgressUnreachableError,
    FetchError,
    FetchErrorKind,
    ResponseTooLargeError,
)
from tests.support.authority import server_context, trusted_by
from tests.support.bombs import BOMBS
from tests.support.corpus_network import SuccessiveAnswers
from tests.support.dialer import MappingDialer, RecordingDialer
from tests.support.memory_wire import MemoryPeer, MemoryWire
from tests.support.raw_server import Answer, RawServer, Repeat, open_raw_server, page

FOUR, OTHER = "93.184.216.34", "93.184.216.35"
URL = "http://a.example/"
Handler = Callable[[MemoryPeer], Awaitable[None]]


def ok(body: bytes = b"hello", *fields: str, status: str = "200 OK") -> bytes:
    lines = "".join(f"{field}\r\n" for field in fields)
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode("latin-1") + body


def answering(*answers: bytes, end: str = "keep") -> Handler:
    """A handler that answers the n-th request of a connection with the n-th answer, then waits, closes or resets."""

    async def handle(peer: MemoryPeer) -> None:
        for answer in answers:
            if await peer.request() is None:
                return
            peer.send(answer)
        if end == "close":
            peer.close()
        elif end == "reset":
            peer.reset()

    return handle


class Network:
    """A session over an in-memory wire, and what happened on it. ``handlers``: one for each connection, the last one repeated."""

    def __init__(self, nursery: trio.Nursery, handlers: Sequence[Handler], names: dict[str, list[list[str]]], room: int) -> None:
        self._handlers = handlers
        self._served = 0
        self.wire = MemoryWire(nursery, self._serve, room=room)
        self.resolver = SuccessiveAnswers(names)
        self.session = EgressSession(EgressPolicy(redirect_hosts="any"), resolver=self.resolver, wire=self.wire)

    async def _serve(self, peer: MemoryPeer) -> None:
        handler = self._handlers[min(self._served, len(self._handlers) - 1)]
        self._served += 1
        await handler(peer)

    async def get(self, url: str = URL, *, limit: int | None = None, method: str = "GET") -> Received:
        return await self.session.exchange(url, max_body_bytes=limit, method=method)


@asynccontextmanager
async def open_network(*handlers: Handler, names: dict[str, list[list[str]]] | None = None, room: int = 1 << 20) -> AsyncIterator[Network]:
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        network = Network(nursery, handlers, names or {"a.example": [[FOUR]], "b.example": [[FOUR]]}, room)
        try:
            async with network.session:
                yield network
            assert network.wire.open == [], "a connection outlives its session"
        except Exception as exc:
            failure = exc
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def kind_of(answer: bytes, *, end: str = "close", limit: int | None = None) -> tuple[FetchErrorKind, int | None]:
    async with open_network(answering(answer, end=end)) as network:
        with pytest.raises(FetchError) as caught:
            await network.get(limit=limit)
        assert network.wire.open == []
        return caught.value.kind, caught.value.status


async def test_an_answer_with_its_facts() -> None:
    body = gzip.compress(b"hello" * 100)
    answer = ok(body, "Content-Encoding: gzip", "X-A: 1", "x-a: 2")
    async with open_network(answering(answer)) as network:
        received = await network.get("HTTP://A.example:80/p?q#f")
    assert (received.url, received.status, received.reason, received.http_version) == ("http://a.example/p?q", 200, "OK", "1.1")
    assert received.body == b"hello" * 100
    assert received.header("X-a") == "1, 2"
    assert received.header("absent") is None
    facts = received.facts
    assert (facts.answers, facts.tried, facts.connected, facts.reused, facts.tls) == ((FOUR,), (FOUR,), FOUR, False, None)
    assert facts.head == answer[: -len(body)]
    assert (facts.encoded_bytes, facts.encoded_sha256) == (len(body), hashlib.sha256(body).hexdigest())
    assert list(facts.timings) == ["look-up", "connect", "head", "body"]


async def test_a_connection_is_kept_and_says_so() -> None:
    async with open_network(answering(ok(b"1"), ok(b"2"))) as network:
        first, second = await network.get(), await network.get(URL + "2")
    assert (first.body, second.body) == (b"1", b"2")
    assert (second.facts.reused, second.facts.tried, second.facts.connected) == (True, (), FOUR)
    assert network.wire.dialled == [FOUR]


async def test_the_last_connection_used_is_taken_first(autojump_clock: trio.testing.MockClock) -> None:
    order: list[int] = []

    def numbered(number: int) -> Handler:
        async def handle(peer: MemoryPeer) -> None:
            while await peer.request() is not None:
                order.append(number)
                await trio.sleep(0.1 * (number + 1))
                peer.send(ok())

        return handle

    async with open_network(numbered(0), numbered(1)) as network:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(network.get)
            nursery.start_soon(network.get)
        await network.get()
    assert order == [0, 1, 1]


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (ok(b"hello", "Connection: close"), "the server says close"),
        (ok(b"hello") + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "an answer nobody asked for"),
        (ok(b"hello") + b"\r\n", "a blank line too many"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "two framings"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", "an old server"),
        (ok(b"", "X: y", status="204 No Content").replace(b"Content-Length: 0", b"Content-Length: 5") + b"hello", "a body with 204"),
    ],
)
async def test_a_connection_that_could_mix_up_answers_is_not_used_again(answer: bytes, what: str) -> None:
    async with open_network(answering(answer, ok(b"wrong")), answering(ok(b"right"))) as network:
        await network.get()
        assert (await network.get(URL + "2")).body == b"right", what


async def test_what_arrives_between_two_requests_ends_the_connection() -> None:
    async def pushy(peer: MemoryPeer) -> None:
        await peer.request()
        peer.send(ok(b"first"))
        await trio.sleep(0.01)
        peer.send(ok(b"evil"))
        await peer.request()
        peer.send(ok(b"more evil"))

    async with open_network(pushy, answering(ok(b"right"))) as network:
        assert (await network.get()).body == b"first"
        await trio.sleep(0.1)
        assert (await network.get(URL + "2")).body == b"right"


async def test_a_peer_that_closed_meanwhile_is_noticed_before_the_request() -> None:
    async with open_network(answering(ok(b"1"), end="close"), answering(ok(b"2"))) as network:
        await network.get()
        await trio.testing.wait_all_tasks_blocked()
        received = await network.get()
    assert (received.body, received.facts.reused) == (b"2", False)


async def test_a_kept_connection_that_dies_unanswered_is_replaced_once() -> None:
    async def dying(peer: MemoryPeer) -> None:
        await peer.request()
        peer.send(ok(b"1"))
        await peer.request()
        peer.reset()

    async with open_network(dying, answering(ok(b"2"))) as network:
        await network.get()
        received = await network.get()
    assert (received.body, received.facts.reused, received.facts.tried) == (b"2", False, (FOUR,))
    assert network.resolver.asked == ["a.example"] * 3, "the new connection is judged anew"


async def test_a_timeout_told_to_an_idle_connection_is_no_answer_to_the_next_request() -> None:
    late = ok(b"late", "Connection: close", status="408 Request Timeout")
    async with open_network(answering(ok(b"1"), late), answering(ok(b"2"), late)) as network:
        await network.get()
        assert (await network.get()).body == b"2"
        assert (await network.get(method="POST")).status == 408, "what may have had an effect is not sent again"


@pytest.mark.parametrize(("method", "first"), [("POST", b""), ("GET", b"H"), ("GET", b"HTTP/1.1 200 OK\r\n")])
async def test_a_request_is_not_sent_twice_otherwise(method: str, first: bytes) -> None:
    """Not if it may have had an effect, nor if an answer had begun."""

    async def dying(peer: MemoryPeer) -> None:
        await peer.request()
        peer.send(ok(b"1"))
        await peer.request()
        peer.send(first)
        peer.close()

    async with open_network(dying, answering(ok(b"2"))) as network:
        await network.get()
        with pytest.raises(FetchError) as caught:
            await network.get(method=method)
    assert caught.value.kind is FetchErrorKind.NETWORK
    assert len(network.wire.dialled) == 1


async def test_a_new_connection_that_dies_is_not_replaced() -> None:
    assert await kind_of(b"") == (FetchErrorKind.NETWORK, None)
    assert await kind_of(b"", end="reset") == (FetchErrorKind.NETWORK, None)


async def test_another_host_on_the_same_address_has_its_own_connection() -> None:
    async with open_network(answering(ok(b"a"), ok(b"a2")), answering(ok(b"b"))) as network:
        assert (await network.get()).body == b"a"
        assert (await network.get("http://b.example/")).body == b"b"
        assert (await network.get()).body == b"a2"


async def test_a_name_that_rebinds_to_a_private_address_is_refused_in_spite_of_a_live_connection() -> None:
    async with open_network(answering(ok(), ok(b"evil")), names={"a.example": [[FOUR], ["10.0.0.1"]]}) as network:
        await network.get()
        with pytest.raises(EgressDeniedError) as caught:
            await network.get()
    assert (caught.value.code, caught.value.host) == (EgressCode.DENIED_ADDRESS, "a.example")
    assert network.wire.dialled == [FOUR]


async def test_a_name_that_moves_leaves_the_connection_to_its_old_address() -> None:
    async with open_network(answering(ok(b"old")), answering(ok(b"new")), names={"a.example": [[FOUR], [OTHER]]}) as network:
        assert (await network.get()).body == b"old"
        received = await network.get()
    assert (received.body, received.facts.connected) == (b"new", OTHER)


async def test_a_refusal_whose_reason_is_in_the_url_looks_nothing_up() -> None:
    async with open_network(answering(ok())) as network:
        for url in ("http://10.0.0.1/", "http://localhost/", "ftp://a.example/", "http://u@a.example/", "http://a.example:22/", "x"):
            with pytest.raises(EgressDeniedError):
                await network.get(url)
        with pytest.raises(EgressDeniedError):
            await network.session.exchange(URL, headers=(("X", "a\r\nb"),))
    assert (network.resolver.asked, network.wire.dialled) == ([], [])


async def test_a_target_judged_elsewhere_is_judged_again() -> None:
    loose = EgressSession(EgressPolicy(guarded=False)).judged("http://localhost:8080/")
    async with open_network(answering(ok())) as network:
        with pytest.raises(EgressDeniedError):
            await network.session.exchange(loose)


async def test_a_judged_target_is_taken_as_it_is_where_the_policy_makes_the_same_of_it() -> None:
    async with open_network(answering(*[ok()] * 9)) as network:
        target = judge_url("http://a.example/p?q", EgressPolicy())
        assert (await network.session.exchange(target)).url == "http://a.example/p?q"
        for forged in (
            attrs.evolve(target, host="localhost"),
            attrs.evolve(target, literal=EgressAddress(address="10.0.0.1", family=4)),
            attrs.evolve(target, port=22),
            attrs.evolve(target, url="http://b.example/"),
        ):
            assert (await network.session.exchange(forged)).facts.connected == FOUR
        with pytest.raises(EgressDeniedError):
            await network.session.exchange(attrs.evolve(target, target="/\r\nX: y", url="http://a.example/\r\nX: y"))


async def test_judging_alone_connects_to_nothing() -> None:
    async with open_network(answering(ok())) as network:
        assert [address.address for address in await network.session.judge(URL)] == [FOUR]
        with pytest.raises(EgressUnreachableError) as caught:
            await network.session.judge("http://absent.example/")
    assert caught.value.code is EgressCode.DNS_FAILURE
    assert network.wire.dialled == []


@pytest.mark.parametrize(
    ("answer", "end", "kind", "status"),
    [
        (b"HTTP/1.1 200", "close", FetchErrorKind.NETWORK, None),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "close", FetchErrorKind.NETWORK, None),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "reset", FetchErrorKind.NETWORK, None),
        (b"SSH-2.0-x\r\n", "keep", FetchErrorKind.PROTOCOL, None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "keep", FetchErrorKind.PROTOCOL, None),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "keep", FetchErrorKind.PROTOCOL, None),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100, "keep", FetchErrorKind.PROTOCOL, None),
        (b"HTTP/1.1 404 X\r\nContent-Length: 9\r\n\r\nhello", "close", FetchErrorKind.INCOMPLETE_BODY, 404),
        (b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\nhello", "reset", FetchErrorKind.INCOMPLETE_BODY, 200),
        (b"HTTP/1.1 200 X\r\n\r\nhello", "reset", FetchErrorKind.INCOMPLETE_BODY, 200),
        (b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "close", FetchErrorKind.INCOMPLETE_BODY, 200),
        (b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "keep", FetchErrorKind.PROTOCOL, 200),
        (ok(b"\x1f\x8bjunk", "Content-Encoding: gzip"), "keep", FetchErrorKind.DECODE_ERROR, 200),
        (ok(gzip.compress(b"x", mtime=0)[:-1], "Content-Encoding: gzip"), "keep", FetchErrorKind.DECODE_ERROR, 200),
        (ok(b"x", "Content-Encoding: " + ", ".join(["gzip"] * 12)), "keep", FetchErrorKind.DECODE_ERROR, 200),
    ],
)
async def test_how_an_exchange_fails(answer: bytes, end: str, kind: FetchErrorKind, status: int | None) -> None:
    assert await kind_of(answer, end=end) == (kind, status)


async def test_limits_hold_for_the_declared_the_received_and_the_decoded_body() -> None:
    too_large = (FetchErrorKind.RESPONSE_TOO_LARGE, 200)
    assert await kind_of(b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n", end="keep", limit=100) == too_large
    assert await kind_of(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 101, end="keep", limit=100) == too_large
    assert await kind_of(ok(gzip.compress(bytes(101)), "Content-Encoding: gzip"), end="keep", limit=100) == too_large
    async with open_network(answering(ok(b"x" * 100))) as network:
        assert len((await network.get(limit=100)).body) == 100


@pytest.mark.parametrize("coding", BOMBS)
async def test_a_bomb_of_10_gib_ends_in_response_too_large(coding: str) -> None:
    async def bomb(peer: MemoryPeer) -> None:
        await peer.request()
        peer.send(f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\n\r\n".encode())
        for data in BOMBS[coding]():
            peer.send(data)
            await trio.lowlevel.checkpoint()

    async with open_network(bomb) as network:
        with pytest.raises(ResponseTooLargeError):
            await network.get(limit=1_000_000)


async def test_transfer_codings_are_undone_before_content_codings() -> None:
    inner = gzip.compress(b"hello")
    outer = gzip.compress(inner)
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(outer), outer)
    answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: gzip, chunked\r\n\r\n" + chunked
    async with open_network(answering(answer)) as network:
        received = await network.get()
    assert received.body == b"hello"
    assert received.facts.encoded_sha256 == hashlib.sha256(inner).hexdigest()


async def test_content_codings_can_be_left_on() -> None:
    body = gzip.compress(b"hello")
    async with open_network(answering(ok(body, "Content-Encoding: gzip"))) as network:
        assert (await network.session.exchange(URL, decode=False)).body == body


async def test_interim_answers_are_passed_over() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    async with open_network(answering(interim + ok(b"hello"), ok(b"2"))) as network:
        assert (await network.get()).status == 200
        assert (await network.get()).facts.reused


async def test_an_early_answer_to_a_large_request_is_read_and_ends_the_connection() -> None:
    async def refusing(peer: MemoryPeer) -> None:
        await peer.request()
        peer.send(ok(b"too large", status="413 Content Too Large"))

    async with open_network(refusing, answering(ok(b"2")), room=4_096) as network:
        received = await network.session.exchange(URL, method="POST", body=b"x" * 1_000_000)
        assert (received.status, received.body) == (413, b"too large")
        assert (await network.get()).body == b"2"


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_an_early_answer_that_comes_in_bits_ends_the_sending_at_its_first_bits(begun: bytes) -> None:
    async def refusing(peer: MemoryPeer) -> None:
        await peer.request()
        answer = begun + ok(b"too large", status="413 Content Too Large")
        for at in range(0, len(answer), 5):
            peer.send(answer[at : at + 5])
            await trio.testing.wait_all_tasks_blocked()

    async with open_network(refusing, room=4_096) as network:
        with trio.fail_after(5):
            received = await network.session.exchange(URL, method="PUT", body=bytes(100_000))
        assert (received.status, received.body) == (413, b"too large")


@pytest.mark.parametrize(
    "flood", [b"HTTP/1.1 100 Continue\r\n\r\n" * 2_600, b"HTTP/1.1 102 Processing\r\nX: " + b"x" * 60_000], ids=["heads", "one head"]
)
async def test_a_peer_that_takes_nothing_and_floods_interim_answers_is_a_protocol_error(flood: bytes) -> None:
    sent = 0

    async def flooding(peer: MemoryPeer) -> None:
        nonlocal sent
        while sent < 1 << 24:
            peer.send(flood if not sent else flood[-60_000:])
            sent += len(flood)
            await trio.testing.wait_all_tasks_blocked()

    async with open_network(flooding, room=4_096) as network:
        with trio.fail_after(5), pytest.raises(FetchError) as caught:
            await network.session.exchange(URL, method="PUT", body=bytes(100_000))
        assert caught.value.kind is FetchErrorKind.PROTOCOL
        assert sent < 200_000
        assert network.wire.open == []


async def test_a_large_request_goes_out_whole_past_interim_answers() -> None:
    sizes: list[int] = []

    async def patient(peer: MemoryPeer) -> None:
        head = await peer.request()
        assert head is not None
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        size = 0
        while size < 1_000_000 - 4_096:
            await trio.lowlevel.checkpoint()
            size += len(await peer.receive())
        sizes.append(size)
        peer.send(ok(b"taken"))

    async with open_network(patient, room=4_096) as network:
        with trio.fail_after(10):
            received = await network.session.exchange(URL, method="POST", body=b"x" * 1_000_000)
    assert received.body == b"taken"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_the_body_of_a_redirect_is_dropped(status: int, autojump_clock: trio.testing.MockClock) -> None:
    small = ok(b"moved", "Location: /b", status=f"{status} X")
    endless = f"HTTP/1.1 {status} X\r\nLocation: /b\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nspam\r\n".encode()
    async with open_network(answering(small, endless), answering(ok(b"end"))) as network:
        assert (await network.get()).body == b""
        received = await network.get()
        assert (received.facts.reused, received.header("location")) == (True, "/b")
        assert trio.current_time() < 1
        assert (await network.get()).body == b"end"


async def test_a_redirect_status_without_location_keeps_its_body() -> None:
    async with open_network(answering(ok(b"moved", status="302 Found"))) as network:
        assert (await network.get()).body == b"moved"


async def test_an_idle_connection_is_closed_when_it_is_old(autojump_clock: trio.testing.MockClock) -> None:
    async with open_network(answering(ok(b"1"), ok(b"wrong")), answering(ok(b"2"), ok(b"3"))) as network:
        await network.get()
        await trio.sleep(IDLE_SECONDS + 1)
        assert (await network.get()).body == b"2"
        assert len(network.wire.open) == 1
        await trio.sleep(IDLE_SECONDS - 1)
        assert (await network.get()).body == b"3"


async def test_idle_connections_are_bounded_and_old_ones_swept(autojump_clock: trio.testing.MockClock) -> None:
    hosts = {f"h{number}.example": [[FOUR]] for number in range(MAX_IDLE_CONNECTIONS + 20)}
    async with open_network(answering(ok()), names=hosts) as network:
        for host in hosts:
            await network.get(f"http://{host}/")
        assert len(network.wire.open) == MAX_IDLE_CONNECTIONS
        await trio.sleep(IDLE_SECONDS + 1)
        await network.get("http://h0.example/")
        assert len(network.wire.open) == 1


async def test_progress_is_told_so_that_silence_can_be_bounded(autojump_clock: trio.testing.MockClock) -> None:
    async def dripping(peer: MemoryPeer) -> None:
        await peer.request()
        for byte in ok(b"hello"):
            peer.send(bytes([byte]))
            await trio.sleep(1)

    async with open_network(dripping) as network:
        with trio.fail_after(1.5) as scope:

            def moved(_: int) -> None:
                scope.deadline = trio.current_time() + 1.5

            received = await network.session.exchange(URL, on_bytes=moved)
    assert received.body == b"hello"
    assert trio.current_time() > 40


async def test_an_open_exchange_gives_pieces_and_closes_when_it_is_left(autojump_clock: trio.testing.MockClock) -> None:
    async def slow(peer: MemoryPeer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
        await trio.sleep(1)
        peer.send(b"world")

    async with open_network(slow) as network:
        async with network.session.open_exchange(URL) as exchange:
            assert exchange.head.status == 200
            assert await exchange.piece() == b"hello"
        assert network.wire.open == []
        async with network.session.open_exchange(URL) as exchange:
            pieces = []
            while piece := await exchange.piece():
                pieces.append(piece)
            assert exchange.facts().encoded_bytes == 10
        assert pieces == [b"hello", b"world"]
        assert len(network.wire.open) == 1


async def test_a_flood_does_not_starve_other_tasks_or_deadlines() -> None:
    async with open_raw_server({"/": [Answer(steps=(b"HTTP/1.1 200 OK\r\n\r\n", Repeat(data=bytes(65_536), times=100_000)))]}) as server:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery, EgressSession(_opened(server)) as session:
            nursery.start_soon(other)
            with trio.move_on_after(0.3):
                await session.exchange(server.origin, max_body_bytes=1 << 40)
            nursery.cancel_scope.cancel()
        assert turns > 20


async def test_every_exchange_has_a_checkpoint() -> None:
    async with open_network(answering(*[ok()] * 3)) as network:
        await network.get()
        with trio.testing.assert_checkpoints():
            await network.get()
        with trio.CancelScope() as scope:
            scope.cancel()
            await network.get()
        assert scope.cancelled_caught


def _opened(server: RawServer) -> EgressPolicy:
    return EgressPolicy(test_loopback_origins=(server.origin,))


async def test_two_lookups_are_not_made_while_an_answer_is_fresh(autojump_clock: trio.testing.MockClock) -> None:
    class Counting:
        asked = 0

        async def resolve(self, host: str) -> DnsAnswers:
            self.asked += 1
            return DnsAnswers(addresses=(FOUR,), ttl=5)

    resolver = Counting()
    async with trio.open_nursery() as nursery:
        wire = MemoryWire(nursery, answering(*[ok()] * 9))
        async with EgressSession(resolver=resolver, wire=wire) as session:
            await session.exchange(URL)
            await session.exchange(URL)
            assert resolver.asked == 1
            await trio.sleep(6)
            received = await session.exchange(URL)
        assert (resolver.asked, received.facts.ttl) == (2, 5)
        nursery.cancel_scope.cancel()


async def test_real_sockets_keep_resume_and_reset(tmp_path: Path) -> None:
    answers = [page(b"1"), page(b"2", end="close"), Answer(end="reset"), page(b"4")]
    async with open_raw_server({"/": answers}, tls=server_context("a.example")) as server:
        policy = EgressPolicy(ca_file=trusted_by(tmp_path))
        dialer = MappingDialer({FOUR: server.place})
        async with EgressSession(policy, resolver=SuccessiveAnswers({"a.example": [[FOUR]]}), dialer=dialer) as session:
            first = await session.exchange("https://a.example/")
            second = await session.exchange("https://a.example/")
            with pytest.raises(FetchError) as caught:
                await session.exchange("https://a.example/")
            last = await session.exchange("https://a.example/")
    assert [received.body for received in (first, second, last)] == [b"1", b"2", b"4"]
    assert caught.value.kind is FetchErrorKind.NETWORK
    assert (first.facts.reused, second.facts.reused, last.facts.reused) == (False, True, False)
    assert first.facts.tls is not None
    assert last.facts.tls is not None
    assert (first.facts.tls.resumed, last.facts.tls.resumed) == (False, True)
    assert list(first.facts.timings) == ["look-up", "connect", "handshake", "head", "body"]


async def test_a_body_without_framing_over_tls_needs_the_closing_alert(tmp_path: Path) -> None:
    """A cut by somebody on the path must not pass for the end of a page (RFC 9112 section 9.8)."""
    policy = EgressPolicy(ca_file=trusted_by(tmp_path))
    head = b"HTTP/1.1 200 OK\r\n\r\nhello"
    for end, complete in (("close", True), ("cut", False)):
        async with open_raw_server({"/": [Answer(steps=(head,), end=end)]}, tls=server_context("a.example")) as server:
            resolver, dialer = SuccessiveAnswers({"a.example": [[FOUR]]}), MappingDialer({FOUR: server.place})
            async with EgressSession(policy, resolver=resolver, dialer=dialer) as session:
                if complete:
                    assert (await session.exchange("https://a.example/")).body == b"hello"
                else:
                    with pytest.raises(FetchError) as caught:
                        await session.exchange("https://a.example/")
                    assert caught.value.kind is FetchErrorKind.INCOMPLETE_BODY


async def test_without_a_resolver_literals_need_no_name_server() -> None:
    async with open_raw_server({"/": [page(b"here")]}) as server, EgressSession(_opened(server)) as session:
        assert (await session.exchange(server.origin)).body == b"here"


async def test_nothing_but_judged_loopback_is_dialled_in_these_tests() -> None:
    dialer = RecordingDialer()
    async with EgressSession(resolver=SuccessiveAnswers({"a.example": [[FOUR]]}), dialer=dialer) as session:
        with pytest.raises(EgressUnreachableError):
            await session.exchange(URL)
    assert dialer.dialled == [(FOUR, 80)]


SCRIPTS = [
    ok(b"hello"),
    ok(gzip.compress(b"hello", mtime=0), "Content-Encoding: gzip"),
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nX-Sum: 1\r\n\r\n",
    b"\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\nContent-Length: 5\nX: folded\n value\n\nhello",
]


@pytest.mark.parametrize("number", range(len(SCRIPTS)))
async def test_an_answer_is_the_same_wherever_it_is_cut(number: int) -> None:
    script = SCRIPTS[number]

    async def cut(peer: MemoryPeer) -> None:
        for at in range(1, len(script)):
            if await peer.request() is None:
                return
            peer.send(script[:at])
            await trio.testing.wait_all_tasks_blocked()
            peer.send(script[at:])

    async with open_network(cut) as network:
        for _ in range(1, len(script)):
            received = await network.get()
            assert (received.status, received.body) == (200, b"hello")
        assert len(network.wire.dialled) == 1


async def misbehave(peer: MemoryPeer, plan: Sequence[str], cuts: Sequence[int]) -> None:
    """Answer each path with itself, and push more or less than that as the plan says for the path."""
    while (head := await peer.request()) is not None:
        path = head.split(b" ")[1]
        what = plan[int(path[1:])]
        surplus = {"extra": ok(b"/evil"), "two": ok(b"/evil") * 2, "junk": b"0\r\n\r\n"}.get(what, b"")
        data = ok(path)[: -1 if what == "cut" else None] + surplus
        for cut in cuts:
            peer.send(data[:cut])
            data = data[cut:]
            await trio.sleep(0.001)
        peer.send(data)
        if what == "late":
            await trio.sleep(0.001)
            peer.send(ok(b"/late"))
        if what in ("close", "cut"):
            peer.close()
            return


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(["plain", "extra", "late", "cut", "close", "two", "junk"]), min_size=2, max_size=8),
    st.lists(st.integers(1, 40), max_size=4),
)
def test_a_page_is_never_returned_for_another(plan: list[str], cuts: list[int]) -> None:
    """Whatever a server pushes, early, late or too much: an answer carries the path that was asked for, or there is an error."""

    async def handler(peer: MemoryPeer) -> None:
        await misbehave(peer, plan, cuts)

    async def crawl() -> None:
        async with open_network(handler) as network:
            for turn, what in enumerate(plan):
                try:
                    body = (await network.get(f"{URL}{turn}")).body
                except FetchError:
                    body = b"cut"
                assert body == (b"cut" if what == "cut" else f"/{turn}".encode())
                await trio.sleep(0.01)

    trio.run(crawl, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_a_body_that_unfolds_to_nothing_lets_others_run_and_deadlines_hold() -> None:
    skippable = b"\x50\x2a\x4d\x18\x00\x00\x00\x00"
    answer = ok(gzip.compress(skippable * 9_000), "Content-Encoding: zstd, gzip")
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with open_network(answering(answer, answer)) as network:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            assert (await network.get()).body == b""
            nursery.cancel_scope.cancel()
        assert turns > 500
        async with network.session.open_exchange(URL) as opened:
            with trio.CancelScope() as scope:
                scope.cancel()
                await opened.piece()
            assert scope.cancelled_caught
