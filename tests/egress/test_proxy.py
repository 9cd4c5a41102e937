"""The forward proxy over real sockets on loopback: what passes, what is refused and how, limits, and what is told of each request."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import attrs
import pytest
import trio
import trio.testing

from forage.egress import DnsAnswers, EgressPolicy
from forage.egress.proxy import Proxy, ProxyEvent, ProxyLimits, ProxyRules, deny_all, only, open_proxy
from forage.errors import InvalidPolicyError
from tests.support.authority import authority, server_context
from tests.support.corpus_network import SuccessiveAnswers
from tests.support.dialer import MappingDialer
from tests.support.raw_server import Answer, RawServer, Repeat, open_raw_server, page

PUBLIC = "93.184.216.34"
OTHER = "93.184.216.35"
REFUSED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
UNREACHABLE = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


@attrs.define
class Place:
    """A proxy before a network in which site.test and other.test are one raw server."""

    proxy: Proxy
    server: RawServer
    dialer: MappingDialer
    resolver: SuccessiveAnswers
    events: list[ProxyEvent]

    async def open(self) -> trio.SocketStream:
        return await trio.open_tcp_stream(self.proxy.host, self.proxy.port)

    async def ask(self, data: bytes) -> bytes:
        """Everything that the proxy answers to ``data`` until it closes."""
        with trio.fail_after(5):
            async with await self.open() as stream:
                await stream.send_all(data)
                return await read_all(stream)

    async def get(self, url: str, *headers: str, version: str = "1.1") -> bytes:
        lines = [f"GET {url} HTTP/{version}", *headers, "", ""]
        return await self.ask("\r\n".join(lines).encode("latin-1"))

    async def settled(self) -> None:
        await until(lambda: not self.proxy.connections)

    @property
    def decisions(self) -> list[tuple[str, str | None, str | None]]:
        return [(event.decision, event.code, event.rule) for event in self.events if event.event == "decision"]

    @property
    def outcomes(self) -> list[str | None]:
        return [event.outcome for event in self.events if event.event == "end"]


async def until(happened: Callable[[], object]) -> None:
    """Wait for something in another task that tells nobody."""
    for _ in range(1_000):
        if happened():
            return
        await trio.sleep(0.005)
    raise AssertionError("it did not happen")


async def read_all(stream: trio.abc.ReceiveStream) -> bytes:
    """What arrives until the other end closes, or resets."""
    pieces = []
    try:
        while piece := await stream.receive_some(65_536):
            pieces.append(bytes(piece))
    except trio.BrokenResourceError:
        pieces.append(b"<reset>")
    return b"".join(pieces)


def body_of(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


Routes = dict[str, Sequence[Answer]]


@asynccontextmanager
async def open_place(
    routes: Routes | None = None,
    rules: EgressPolicy | ProxyRules | None = None,
    *,
    limits: ProxyLimits | None = None,
    refuse_hosts: Sequence[str] = (),
    dns: dict[str, list[list[str]]] | None = None,
) -> AsyncIterator[Place]:
    async with open_raw_server(routes or {"/": [page(b"hello")]}) as server:
        dialer = MappingDialer({PUBLIC: server.place, OTHER: server.place, "127.0.0.1": server.place})
        resolver = SuccessiveAnswers(dns or {"site.test": [[PUBLIC]], "other.test": [[OTHER]], "inside.test": [["10.0.0.1"]]})
        events: list[ProxyEvent] = []
        async with open_proxy(
            rules, resolver=resolver, dialer=dialer, limits=limits, refuse_hosts=refuse_hosts, on_event=events.append
        ) as proxy:
            yield Place(proxy, server, dialer, resolver, events)


# what passes


async def test_absolute_form_request_goes_to_a_judged_address_and_the_answer_comes_back() -> None:
    async with open_place({"/a?b=c": [page(b"hello", headers=[("X-One", "1"), ("X-One", "2")])]}) as place:
        answer = await place.get("http://site.test/a?b=c", "Host: site.test", "X-Mine: yes")
    assert answer == b"HTTP/1.1 200 OK\r\nX-One: 1\r\nX-One: 2\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
    assert place.dialer.dialled == [(PUBLIC, 80)]
    (request,) = place.server.requests
    assert (request.method, request.target) == ("GET", "/a?b=c")
    assert request.headers == (("Host", "site.test"), ("X-Mine", "yes"))


async def test_decision_is_told_before_the_request_leaves_and_its_end_afterwards() -> None:
    async with open_raw_server(lambda _: page(b"hello")) as server:
        seen: list[tuple[ProxyEvent, int]] = []
        dialer = MappingDialer({PUBLIC: server.place})
        async with (
            open_proxy(
                resolver=SuccessiveAnswers({"site.test": [[PUBLIC]]}),
                dialer=dialer,
                on_event=lambda event: seen.append((event, len(server.requests))),
            ) as proxy,
            await trio.open_tcp_stream(proxy.host, proxy.port) as stream,
        ):
            host, port = stream.socket.getsockname()
            client = f"{host}:{port}"
            await stream.send_all(b"GET http://site.test/x?token=secret HTTP/1.1\r\nHost: site.test\r\n\r\n")
            answer = await read_all(stream)
    (decision, before), (end, after) = seen
    assert (before, after) == (0, 1)
    assert decision == ProxyEvent(
        event="decision",
        number=1,
        at=decision.at,
        client=client,
        method="GET",
        url="http://site.test/x?token=secret",
        host="site.test",
        decision="allowed",
        address=PUBLIC,
    )
    assert (end.event, end.number, end.status, end.outcome) == ("end", 1, 200, "complete")
    assert (end.bytes_up, end.bytes_down) == (65, len(answer))
    assert end.seconds is not None
    assert "secret" not in str(end.to_json())
    assert decision.to_json()["url"] == "http://site.test/x"


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("Connection: close, X-Hop", False),
        ("Proxy-Connection: keep-alive", False),
        ("Proxy-Authorization: Basic eDp5", False),
        ("Keep-Alive: timeout=5", False),
        ("TE: trailers", False),
        ("Upgrade: h2c", False),
        ("Alt-Svc: h3", False),
        ("Accept: */*", True),
        ("Cookie: a=b", True),
    ],
)
async def test_fields_between_neighbours_stop_at_the_proxy(sent: str, *, kept: bool) -> None:
    async with open_place() as place:
        await place.get("http://site.test/", "Host: site.test", sent, "X-Hop: 1")
    names = [name for name, _ in place.server.requests[0].headers]
    assert (sent.partition(":")[0] in names) == kept
    assert ("X-Hop" in names) == ("X-Hop" not in sent)


async def test_fields_between_neighbours_of_the_answer_stop_at_the_proxy() -> None:
    headers = [
        ("Alt-Svc", 'h3=":443"'),
        ("Proxy-Authenticate", "Basic"),
        ("Keep-Alive", "timeout=5"),
        ("Connection", "X-Hop"),
        ("X-Hop", "1"),
    ]
    async with open_place({"/": [page(b"hello", headers=[*headers, ("Set-Cookie", "a=b")])]}) as place:
        answer = await place.get("http://site.test/")
    assert answer == b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"


async def test_host_of_the_target_counts_not_the_host_field() -> None:
    async with open_place() as place:
        await place.get("http://site.test/", "Host: inside.test")
    assert place.server.requests[0].header("host") == "site.test"


async def test_connections_to_one_origin_are_kept_and_each_request_is_judged_anew() -> None:
    dns = {"site.test": [[PUBLIC], [PUBLIC], ["10.0.0.1"]]}
    async with open_place(dns=dns) as place:
        first = await place.get("http://site.test/")
        second = await place.get("http://site.test/")
        third = await place.get("http://site.test/")
    assert (body_of(first), body_of(second), third) == (b"hello", b"hello", b"")
    assert place.server.connections == 1
    assert place.decisions == [("allowed", None, None), ("allowed", None, None), ("refused", "DENIED_ADDRESS", "addresses")]
    assert place.resolver.asked == ["site.test"] * 3


async def test_bodies_of_requests_travel_whole() -> None:
    chunked = b"4;x=y\r\nabcd\r\n3\r\nefg\r\n0\r\nTrailer: x\r\n\r\n"
    async with open_place() as place:
        await place.ask(b"POST http://site.test/ HTTP/1.1\r\nContent-Length: 7\r\n\r\nabcdefg")
        await place.ask(b"POST http://site.test/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked)
        await place.ask(b"POST http://site.test/ HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    assert [request.body for request in place.server.requests] == [b"abcdefg", b"abcdefg", b""]
    assert [request.header("content-length") for request in place.server.requests] == ["7", "7", "0"]
    assert all(request.header("transfer-encoding") is None for request in place.server.requests)


async def test_client_that_expects_it_is_told_to_continue_once_its_target_is_judged() -> None:
    async with open_place() as place, await place.open() as stream:
        await stream.send_all(b"POST http://site.test/ HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert await stream.receive_some() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await stream.send_all(b"ab")
        assert body_of(await read_all(stream)) == b"hello"
        refused = await place.ask(b"POST http://inside/ HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert refused == b""
    assert place.server.requests[0].header("expect") is None


async def test_answer_without_a_length_comes_in_chunks_so_that_its_end_is_seen() -> None:
    chunks = Answer(steps=(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",), end="keep")
    until_close = Answer(steps=(b"HTTP/1.1 200 OK\r\n\r\nhello",))
    async with open_place({"/chunks": [chunks], "/close": [until_close]}) as place:
        for path in ("/chunks", "/close"):
            answer = await place.get(f"http://site.test{path}")
            assert answer == b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
            plain = await place.get(f"http://site.test{path}", version="1.0")
            assert plain == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"


BROKEN = [
    Answer(steps=(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",)),
    Answer(steps=(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",)),
]


@pytest.mark.parametrize("answer", BROKEN)
@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_answer_that_breaks_off_does_not_look_whole(answer: Answer, version: str) -> None:
    async with open_place({"/": [answer]}) as place:
        got = await place.get("http://site.test/", version=version)
    assert got.endswith(b"<reset>") or b"Content-Length: 5" in got or not got.endswith(b"0\r\n\r\n")
    assert b"hello" not in got
    assert place.outcomes == ["upstream-lost"]
    if version == "1.0" and b"chunked" in answer.steps[0]:  # type: ignore[operator]  # bytes here
        assert got.endswith(b"<reset>")


async def test_answer_without_body_keeps_its_length() -> None:
    head = Answer(steps=(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",), end="keep")
    async with open_place({"/": [head]}) as place:
        answer = await place.ask(b"HEAD http://site.test/ HTTP/1.1\r\n\r\n")
    assert answer == b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"


async def test_content_codings_are_left_alone() -> None:
    async with open_place({"/": [page(b"\x1f\x8bno gzip at all", headers=[("Content-Encoding", "gzip")])]}) as place:
        answer = await place.get("http://site.test/")
    assert body_of(answer) == b"\x1f\x8bno gzip at all"


async def test_redirects_are_passed_on_not_followed() -> None:
    async with open_place({"/": [page(b"moved", status="302 Found", headers=[("Location", "http://inside/")])]}) as place:
        answer = await place.get("http://site.test/")
    assert answer.startswith(b"HTTP/1.1 302 Found\r\nLocation: http://inside/\r\n")
    assert body_of(answer) == b"moved"


async def test_large_answers_pass_in_a_stream() -> None:
    big = Answer(steps=(b"HTTP/1.1 200 OK\r\nContent-Length: 30000000\r\n\r\n", Repeat(data=b"0123456789", times=3_000_000)), end="keep")
    async with open_place({"/": [big]}) as place:
        answer = await place.get("http://site.test/")
    assert len(body_of(answer)) == 30_000_000


# what is refused


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://10.0.0.1/", "DENIED_ADDRESS"),
        ("http://inside.test/", "DENIED_ADDRESS"),
        ("http://localhost/", "DENIED_HOST"),
        ("http://169.254.169.254/latest/meta-data", "DENIED_ADDRESS"),
        ("http://[::1]/", "DENIED_ADDRESS"),
        ("http://2130706433/", "INVALID_HOST"),
        ("http://site.test:8080/", "INVALID_PORT"),
        ("http://user:word@site.test/", "CREDENTIALS"),
        ("https://site.test/", "INVALID_SCHEME"),
        ("ftp://site.test/", "INVALID_SCHEME"),
        ("/", "INVALID_URL"),
        ("*", "INVALID_URL"),
        ("site.test:80", "INVALID_SCHEME"),
        ("http:site.test/", "INVALID_URL"),
    ],
)
async def test_refused_request_is_closed_without_an_answer(url: str, code: str) -> None:
    async with open_place() as place:
        assert await place.get(url, "Host: site.test") == b""
    (event,) = place.events
    assert (event.event, event.decision, event.code) == ("decision", "refused", code)
    assert "word" not in event.url
    assert place.dialer.dialled == []


@pytest.mark.parametrize(
    ("authority", "code"),
    [
        ("10.0.0.1:443", "DENIED_ADDRESS"),
        ("[::1]:443", "DENIED_ADDRESS"),
        ("inside.test:443", "DENIED_ADDRESS"),
        ("localhost:443", "DENIED_HOST"),
        ("site.test:22", "INVALID_PORT"),
        ("0x7f000001:443", "INVALID_HOST"),
        ("site.test", "MALFORMED_REQUEST"),
        ("site.test:", "MALFORMED_REQUEST"),
        ("site.test:0443", "MALFORMED_REQUEST"),
        ("site.test:65536", "MALFORMED_REQUEST"),
        ("user@site.test:443", "MALFORMED_REQUEST"),
        ("https://site.test:443", "MALFORMED_REQUEST"),
        ("site.test:443/path", "MALFORMED_REQUEST"),
        ("::1:443", "MALFORMED_REQUEST"),
        ("site%2etest:443", "MALFORMED_REQUEST"),
    ],
)
async def test_refused_tunnel_is_answered_with_403(authority: str, code: str) -> None:
    async with open_place() as place:
        assert await place.ask(f"CONNECT {authority} HTTP/1.1\r\n\r\n".encode()) == REFUSED
    (event,) = place.events
    assert (event.decision, event.code) == ("refused", code)
    assert place.dialer.dialled == []


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x05\x01\x00",
        b"\r\nGET http://site.test/ HTTP/1.1\r\n\r\n",
        b"GET http://site.test/\r\n\r\n",
        b"GET http://site.test/ HTTP/2.0\r\n\r\n",
        b"GET  http://site.test/ HTTP/1.1\r\n\r\n",
        b"GET http://site.test/ b HTTP/1.1\r\n\r\n",
        b"GET http://site.test/\xc3\xa9 HTTP/1.1\r\n\r\n",
        b"GET http://site.test/ HTTP/1.1\r\nHost: site.test\nX: y\r\n\r\n",
        b"GET http://site.test/ HTTP/1.1\r\nX: a\r\n folded\r\n\r\n",
        b"GET http://site.test/ HTTP/1.1\r\nX : a\r\n\r\n",
        b"GET http://site.test/ HTTP/1.1\r\nX: a\x00b\r\n\r\n",
        b"GET http://site.test/ HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST http://site.test/ HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST http://site.test/ HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab",
        b"POST http://site.test/ HTTP/1.1\r\nContent-Length: +2\r\n\r\nab",
        b"POST http://site.test/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST http://site.test/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST http://site.test/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n\r\n",
        b"GET http://site.test/ HTTP/1.1\r\n" + b"X: y\r\n" * 300 + b"\r\n",
    ],
)
async def test_request_that_readers_could_see_differently_is_closed_without_an_answer(data: bytes) -> None:
    async with open_place() as place:
        answer = await place.ask(data)
    assert answer in (b"", b"<reset>")
    assert [(event.decision, event.code) for event in place.events] == [("refused", "MALFORMED_REQUEST")]
    assert place.dialer.dialled == []


async def test_chunked_body_that_goes_wrong_behind_good_bytes_is_refused_however_it_comes() -> None:
    async with open_place() as place, await place.open() as stream:
        await stream.send_all(b"POST http://site.test/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nxyz\r\n")
        await trio.sleep(0.05)
        with suppress(trio.BrokenResourceError):
            await stream.send_all(b"0\r\n\r\n")
        assert await read_all(stream) in (b"", b"<reset>")
        await place.settled()
        assert [(decision, code) for decision, code, _ in place.decisions] == [("refused", "MALFORMED_REQUEST")]
        assert place.dialer.dialled == []


async def test_target_that_takes_nothing_and_floods_interim_answers_loses_the_connection() -> None:
    sent = 0

    async def flood(stream: trio.SocketStream) -> None:
        nonlocal sent
        with suppress(trio.BrokenResourceError):
            while True:
                await stream.send_all(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
                sent += 1

    async with trio.open_nursery() as nursery, open_place() as place:
        listeners = await nursery.start(trio.serve_listeners, flood, await trio.open_tcp_listeners(0, host="127.0.0.1"))
        place.dialer.servers[PUBLIC] = listeners[0].socket.getsockname()
        answer = await place.ask(b"POST http://site.test/ HTTP/1.1\r\nContent-Length: 8000000\r\n\r\n" + bytes(8_000_000))
        assert answer in (b"", b"<reset>")
        await place.settled()
        assert [event.decision for event in place.events if event.event == "decision"] == ["allowed"]
        assert place.outcomes == ["upstream-lost"]
        nursery.cancel_scope.cancel()


async def test_tunnel_with_a_body_is_refused() -> None:
    async with open_place() as place:
        answer = await place.ask(b"CONNECT site.test:443 HTTP/1.1\r\nContent-Length: 2\r\n\r\nab")
    assert answer == REFUSED
    assert place.dialer.dialled == []


async def test_one_request_a_connection_whatever_follows_it() -> None:
    async with open_place() as place:
        await place.ask(b"GET http://site.test/ HTTP/1.1\r\n\r\nGET http://other.test/ HTTP/1.1\r\n\r\n")
    assert [request.header("host") for request in place.server.requests] == ["site.test"]
    assert len(place.decisions) == 1


async def test_host_of_the_abort_rule_is_told_as_aborted_with_its_url() -> None:
    async with open_place(refuse_hosts=["site.test"]) as place:
        assert await place.get("http://site.test/a?b") == b""
        assert await place.get("http://www.SITE.test./") == b""
        assert await place.get("http://site.test:81/") == b""
        assert await place.ask(b"CONNECT deep.www.site.test:443 HTTP/1.1\r\n\r\n") == REFUSED
        assert body_of(await place.get("http://other.test/")) == b"hello"
        assert await place.get("http://notsite.test/") == b""
    assert [decision for decision, _, _ in place.decisions] == ["aborted"] * 4 + ["allowed", "unreachable"]
    assert place.events[0].url == "http://site.test/a?b"
    assert place.resolver.asked == ["other.test", "notsite.test"]


async def test_nothing_passes_a_proxy_that_denies_all() -> None:
    async with open_place(rules=deny_all()) as place:
        assert await place.get("http://site.test/") == b""
        assert await place.ask(b"CONNECT site.test:443 HTTP/1.1\r\n\r\n") == REFUSED
    assert place.decisions == [("refused", "DENIED_HOST", "deny-all")] * 2
    assert place.resolver.asked == []
    assert place.dialer.dialled == []


async def test_only_one_loopback_origin_passes_without_a_look_up() -> None:
    async with open_raw_server({"/": [page(b"mirror")]}) as mirror, open_place(rules=only(mirror.origin)) as place:
        place.dialer.servers["127.0.0.1"] = mirror.place
        assert body_of(await place.get(mirror.origin + "/")) == b"mirror"
        async with await place.open() as stream:
            await stream.send_all(f"CONNECT {mirror.host_header} HTTP/1.1\r\n\r\n".encode())
            assert await stream.receive_some() == ESTABLISHED
        allowed = len(place.dialer.dialled)
        assert await place.get("http://site.test/") == b""
        assert await place.get(f"http://localhost:{mirror.port}/") == b""
        assert await place.get(f"http://127.0.0.1:{mirror.port + 1}/") == b""
        assert await place.ask(b"CONNECT site.test:443 HTTP/1.1\r\n\r\n") == REFUSED
    assert [decision for decision, _, _ in place.decisions] == ["allowed"] * 2 + ["refused"] * 4
    assert place.decisions[2] == ("refused", "DENIED_HOST", "only")
    assert place.resolver.asked == []
    assert len(place.dialer.dialled) == allowed == 2


@pytest.mark.parametrize("origin", ["http://site.test", "http://127.0.0.1", "https://127.0.0.1:8080", "http://127.0.0.1:8080/"])
def test_only_takes_a_loopback_origin(origin: str) -> None:
    with pytest.raises(InvalidPolicyError):
        only(origin)


async def test_name_without_answers_is_unreachable() -> None:
    async with open_place() as place:
        assert await place.get("http://absent.test/") == b""
        assert await place.ask(b"CONNECT absent.test:443 HTTP/1.1\r\n\r\n") == UNREACHABLE
    assert [(decision, code) for decision, code, _ in place.decisions] == [("unreachable", "DNS_FAILURE")] * 2


async def test_address_that_does_not_answer_is_unreachable() -> None:
    async with open_place(dns={"site.test": [["93.184.216.99"]]}) as place:
        assert await place.get("http://site.test/") == b""
        assert await place.ask(b"CONNECT site.test:443 HTTP/1.1\r\n\r\n") == UNREACHABLE
    assert [(decision, code) for decision, code, _ in place.decisions] == [("unreachable", "CONNECT_FAILED")] * 2


async def test_answer_that_is_none_closes_the_connection_without_one() -> None:
    async with open_place({"/": [Answer(steps=(b"SSH-2.0-x\r\n",))]}) as place:
        assert await place.get("http://site.test/") == b""
    assert place.decisions == [("allowed", None, None)]
    assert place.outcomes == ["upstream-lost"]


# tunnels


async def test_tunnel_carries_tls_end_to_end() -> None:
    context = ssl.create_default_context()
    authority().configure_trust(context)
    async with open_raw_server({"/": [page(b"secret")]}, tls=server_context("site.test")) as server:
        events: list[ProxyEvent] = []
        dialer = MappingDialer({(PUBLIC, 443): server.place})
        resolver = SuccessiveAnswers({"site.test": [[PUBLIC]]})
        async with (
            open_proxy(resolver=resolver, dialer=dialer, on_event=events.append) as proxy,
            await trio.open_tcp_stream(proxy.host, proxy.port) as stream,
        ):
            await stream.send_all(b"CONNECT site.test:443 HTTP/1.1\r\nHost: site.test:443\r\n\r\n")
            assert await stream.receive_some() == ESTABLISHED
            secure = trio.SSLStream(stream, context, server_hostname="site.test", https_compatible=True)
            await secure.send_all(b"GET / HTTP/1.1\r\nHost: site.test\r\n\r\n")
            assert b"secret" in bytes(await secure.receive_some())
            await secure.aclose()
            await until(lambda: not proxy.connections)
    decision, end = events
    assert (decision.method, decision.url, decision.host, decision.address) == ("CONNECT", "site.test:443", "site.test", PUBLIC)
    assert (end.outcome, end.status) == ("complete", None)
    assert end.bytes_down > len(ESTABLISHED)
    assert dialer.dialled == [(PUBLIC, 443)]


async def echo(stream: trio.SocketStream) -> None:
    """Sends everything back after the other end has finished."""
    data = await read_all(stream)
    if data:
        await stream.send_all(data)


@asynccontextmanager
async def open_tunnel(limits: ProxyLimits | None = None) -> AsyncIterator[tuple[Proxy, trio.SocketStream, list[ProxyEvent]]]:
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        await nursery.start(trio.serve_listeners, echo, listeners)
        place = listeners[0].socket.getsockname()
        events: list[ProxyEvent] = []
        async with (
            open_proxy(
                resolver=SuccessiveAnswers({"site.test": [[PUBLIC]]}),
                dialer=MappingDialer({PUBLIC: place}),
                limits=limits,
                on_event=events.append,
            ) as proxy,
            await trio.open_tcp_stream(proxy.host, proxy.port) as stream,
        ):
            await stream.send_all(b"CONNECT site.test:80 HTTP/1.1\r\n\r\nearly ")
            assert bytes(await stream.receive_some()) == ESTABLISHED
            yield proxy, stream, events
        nursery.cancel_scope.cancel()


async def test_end_of_one_direction_is_passed_on_and_the_other_goes_on() -> None:
    async with open_tunnel() as (_, stream, events):
        await stream.send_all(b"and late")
        await stream.send_eof()
        assert await read_all(stream) == b"early and late"
    assert events[-1].outcome == "complete"


async def test_much_passes_both_ways() -> None:
    async with open_tunnel() as (proxy, stream, _):
        await stream.send_all(b"x" * 5_000_000)
        await stream.send_eof()
        assert len(await read_all(stream)) == 5_000_006
        assert proxy.bytes_up > 5_000_000 < proxy.bytes_down


async def test_tunnel_that_lingers_after_one_end_finished_is_closed() -> None:
    async with open_raw_server(lambda _: Answer(end="hang")) as server:
        events: list[ProxyEvent] = []
        async with (
            open_proxy(
                resolver=SuccessiveAnswers({"site.test": [[PUBLIC]]}),
                dialer=MappingDialer({PUBLIC: server.place}),
                limits=ProxyLimits(linger_seconds=0.05),
                on_event=events.append,
            ) as proxy,
            await trio.open_tcp_stream(proxy.host, proxy.port) as stream,
        ):
            await stream.send_all(b"CONNECT site.test:80 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n")
            await stream.receive_some()
            await stream.send_eof()
            with trio.fail_after(5):
                assert await read_all(stream) in (b"", b"<reset>")
    assert events[-1].outcome == "idle"


# limits


async def test_head_above_the_limit_is_refused() -> None:
    async with open_place(limits=ProxyLimits(head_bytes=200)) as place:
        assert body_of(await place.get("http://site.test/", "X: " + "y" * 100)) == b"hello"
        assert await place.get("http://site.test/", "X: " + "y" * 300) in (b"", b"<reset>")
    assert place.decisions[1] == ("refused", "MALFORMED_REQUEST", "a head of more than 200 bytes")


async def test_head_that_does_not_come_is_not_awaited_for_ever() -> None:
    async with open_place(limits=ProxyLimits(head_seconds=0.05)) as place:
        async with await place.open() as silent, await place.open() as slow:
            await slow.send_all(b"GET http://site")
            with trio.fail_after(5):
                assert await read_all(silent) == b""
                assert await read_all(slow) in (b"", b"<reset>")
        await place.settled()
    assert place.decisions == [("refused", "MALFORMED_REQUEST", "an unfinished head")]  # silence is no request


async def test_body_above_the_limit_is_refused_before_anything_is_dialled() -> None:
    async with open_place(limits=ProxyLimits(body_bytes=5)) as place:
        assert body_of(await place.ask(b"POST http://site.test/ HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcde")) == b"hello"
        dialled = len(place.dialer.dialled)
        for body in (b"Content-Length: 6\r\n\r\nabcdef", b"Transfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n0\r\n\r\n"):
            assert await place.ask(b"POST http://site.test/ HTTP/1.1\r\n" + body) in (b"", b"<reset>")
    assert place.decisions[1:] == [("refused", "LIMIT", "body-bytes")] * 2
    assert len(place.dialer.dialled) == dialled


async def test_connection_above_the_limit_is_closed_and_told() -> None:
    async with open_place(limits=ProxyLimits(connections=2)) as place:
        async with await place.open(), await place.open(), await place.open() as third:
            with trio.fail_after(5):
                assert await read_all(third) in (b"", b"<reset>")
        assert place.decisions == [("refused", "LIMIT", "connections")]
        await place.settled()
        assert body_of(await place.get("http://site.test/")) == b"hello"
    assert place.proxy.limit_reached == "connections"


@pytest.mark.parametrize(
    ("limits", "name"),
    [(ProxyLimits(bytes_down=10_000), "bytes-down"), (ProxyLimits(bytes_up=120), "bytes-up"), (ProxyLimits(seconds=0.3), "seconds")],
)
async def test_budget_that_is_used_up_closes_every_connection_and_refuses_later_ones(limits: ProxyLimits, name: str) -> None:
    endless = Answer(steps=(b"HTTP/1.1 200 OK\r\n\r\n", Repeat(data=b"0" * 1000, times=50)), end="hang")
    routes: Routes = {"/quiet": [Answer(steps=(b"HTTP/1.1 200 OK\r\n\r\n",), end="hang")], "/endless": [endless]}
    async with open_place(routes, limits=limits) as place:
        async with await place.open() as quiet:
            await quiet.send_all(b"GET http://site.test/quiet HTTP/1.1\r\n\r\n")
            await quiet.receive_some()
            big = await place.get("http://site.test/endless", "X: " + "y" * 200 if name == "bytes-up" else "X: y")
            assert not big.endswith(b"0\r\n\r\n")
            with trio.fail_after(5):
                assert await read_all(quiet) in (b"", b"<reset>")
        await place.settled()
        assert await place.get("http://site.test/") in (b"", b"<reset>")
        assert place.proxy.limit_reached == name
        assert place.proxy.bytes_down <= 10_000 or name != "bytes-down"
    assert place.decisions[-1] == ("refused", "LIMIT", name)
    assert set(place.outcomes) == {"limit"}


async def test_silence_ends_a_request() -> None:
    async with open_place({"/": [Answer(end="hang")]}, limits=ProxyLimits(idle_seconds=0.05)) as place:
        assert await place.get("http://site.test/") == b""
    assert place.outcomes == ["idle"]


async def test_look_up_that_hangs_ends_and_is_told() -> None:
    async with open_place(dns={"site.test": [["!TIMEOUT"]]}, limits=ProxyLimits(connect_seconds=0.05)) as place:
        assert await place.get("http://site.test/") == b""
    (event,) = place.events
    assert (event.decision, event.code, event.host) == ("unreachable", "CONNECT_FAILED", "site.test")


async def test_client_that_goes_away_ends_its_request() -> None:
    async with open_place({"/": [Answer(end="hang")]}) as place:
        async with await place.open() as stream:
            await stream.send_all(b"GET http://site.test/ HTTP/1.1\r\n\r\n")
            await until(lambda: place.server.requests)
        await place.settled()
    assert place.outcomes == ["client-lost"]


@pytest.mark.parametrize(
    "options",
    [{"connections": 0}, {"bytes_up": 0}, {"seconds": -1.0}, {"head_seconds": None}, {"idle_seconds": float("inf")}, {"head_bytes": True}],
)
def test_limit_that_is_none_names_its_field(options: dict[str, object]) -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        ProxyLimits(**options)  # type: ignore[arg-type]  # that is the point
    assert caught.value.field in options


# life


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "localhost", ""])
async def test_proxy_listens_on_loopback_only(host: str) -> None:
    with pytest.raises(InvalidPolicyError):
        async with open_proxy(host=host):
            raise AssertionError


async def test_proxy_listens_where_it_is_told() -> None:
    async with open_proxy(host="::1") as proxy:
        assert proxy.url == f"http://[::1]:{proxy.port}"
        with pytest.raises(OSError, match="in use"):
            async with open_proxy(host="::1", port=proxy.port):
                raise AssertionError
    async with open_proxy(host="0.0.0.0", allow_remote=True) as proxy:
        assert proxy.host == "0.0.0.0"


async def test_leaving_the_block_closes_every_connection() -> None:
    async with open_place({"/": [Answer(end="hang")]}) as place:
        stream = await place.open()
        await stream.send_all(b"GET http://site.test/ HTTP/1.1\r\n\r\n")
        await until(lambda: place.server.requests)
    async with stream:
        assert await read_all(stream) in (b"", b"<reset>")
    assert place.outcomes == ["cancelled"]
    with pytest.raises(OSError, match="all attempts to connect"):
        await trio.open_tcp_stream(place.proxy.host, place.proxy.port)


async def test_exception_of_the_block_leaves_it_as_it_is() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with open_proxy():
            raise KeyError("mine")


async def test_proxy_ends_when_nobody_can_be_told() -> None:
    def fail(_: ProxyEvent) -> None:
        raise OSError("disk is full")

    async with open_raw_server({"/": [page(b"hello")]}) as server:
        dialer = MappingDialer({PUBLIC: server.place})

        async def use() -> None:
            async with (
                open_proxy(resolver=SuccessiveAnswers({"site.test": [[PUBLIC]]}), dialer=dialer, on_event=fail) as proxy,
                await trio.open_tcp_stream(proxy.host, proxy.port) as stream,
            ):
                await stream.send_all(b"GET http://site.test/ HTTP/1.1\r\n\r\n")
                await trio.sleep_forever()

        with pytest.raises(OSError, match="disk is full"):
            await use()
        assert server.requests == []


class _Failing:
    async def resolve(self, host: str) -> DnsAnswers:
        raise RuntimeError(host)


async def test_unexpected_failure_is_a_refusal_and_the_proxy_goes_on() -> None:
    async with open_proxy(resolver=_Failing()) as proxy:
        for _ in range(2):
            async with await trio.open_tcp_stream(proxy.host, proxy.port) as stream:
                await stream.send_all(b"GET http://site.test/ HTTP/1.1\r\n\r\n")
                assert await read_all(stream) == b""


async def test_connection_that_is_reset_leaves_the_proxy_running() -> None:
    async with open_place() as place:
        for _ in range(20):
            sock = socket.create_connection((place.proxy.host, place.proxy.port))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            sock.close()
        assert body_of(await place.get("http://site.test/")) == b"hello"
