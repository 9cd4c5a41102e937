"""A session of guarded exchanges: every request judged, connections kept and used again.

Owns the order of one hop: judge, look up, judge the answers, take a kept connection (``idle``) or make one, exchange. It follows no
redirect, has no cookies, does not retry an answer and knows no politeness.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

import trio

from forage.egress.addresses import EgressAddress
from forage.egress.answers import DnsAnswers, Resolver
from forage.egress.connector import Dialer, PinnedConnector
from forage.egress.idle import IdleConnections
from forage.egress.options import check_bytes, check_callable, check_part, check_policy
from forage.egress.outgoing import build_request, encode_fields
from forage.egress.policy import EgressPolicy
from forage.egress.received import Connection, OpenExchange, Received
from forage.egress.rules import Judge, JudgedUrl
from forage.egress.wire import HttpExchange, Wire
from forage.errors import FetchError, InvalidPolicyError

if TYPE_CHECKING:
    from forage.egress.resolver import CachingResolver

__all__ = ["DEFAULT_MAX_BODY_BYTES", "EgressSession", "OpenExchange", "Received"]

DEFAULT_MAX_BODY_BYTES = 67_108_864
"""Bytes of a body, before and after decoding, where the caller sets no limit: 64 MiB."""

_log = logging.getLogger("forage.egress")

_IDEMPOTENT = frozenset(["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"])  # RFC 9110 9.2.2
_MAX_MEMO = 256


class EgressSession:
    """An async context manager; leaving it closes every idle connection.

    ``resolver`` replaces look-ups, ``dialer`` the making of TCP connections, ``wire`` the connector as a whole. Not for use by several
    threads; many tasks may use it side by side.
    """

    def __init__(
        self,
        policy: EgressPolicy | None = None,
        *,
        resolver: Resolver | None = None,
        dialer: Dialer | None = None,
        wire: Wire | None = None,
    ) -> None:
        check_policy(policy)
        check_part("resolver", resolver, "resolve")
        check_part("dialer", dialer, "dial")
        check_part("wire", wire, "connect")
        self.policy = EgressPolicy() if policy is None else policy
        if not self.policy.guarded:
            _log.warning("the egress guard is off for this session: private and local addresses can be reached")
        self._judge = Judge(self.policy)
        self._resolver = resolver
        self._caching: CachingResolver | None = None
        self._wire: Wire = PinnedConnector(self.policy, dialer) if wire is None else wire
        self._idle = IdleConnections()
        self._roots: dict[str, JudgedUrl] = {}  # root URLs by Host header: what this policy makes of an origin
        self._fields: dict[tuple[tuple[str, str], ...], bytes] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._idle.close()

    async def exchange(
        self,
        target: JudgedUrl | str,
        *,
        method: str = "GET",
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        max_body_bytes: int | None = None,
        decode: bool = True,
        on_bytes: Callable[[int], None] | None = None,
    ) -> Received:
        """One request and its whole answer, redirects not followed.

        The body of a redirect is dropped. ``max_body_bytes`` (None: DEFAULT_MAX_BODY_BYTES) bounds the body as declared, as received
        and after each coding; ``decode=False`` leaves content codings on. ``on_bytes`` is told the size of each block that arrives: move
        the deadline of a scope of yours there to bound silence as well. Fields that only the guard sets are left out of ``headers``.
        A request on a kept connection that died before any byte of an answer is sent once more on a new one, if its method is idempotent.

        Raises EgressDeniedError; EgressUnreachableError (DNS_FAILURE, CONNECT_FAILED); FetchError with kind NETWORK (lost before a head),
        PROTOCOL, INCOMPLETE_BODY or DECODE_ERROR, and ResponseTooLargeError, ``status`` set once it is known. There is no deadline in
        here: put `trio.fail_after` around it; a cancelled exchange closes its connection.
        """
        opened = await self.begin(
            target, method=method, headers=headers, body=body, max_body_bytes=max_body_bytes, decode=decode, on_bytes=on_bytes
        )
        try:
            return await opened.read()
        finally:
            opened.close()

    def judged(self, url: str) -> JudgedUrl:
        """The judgement of a URL's text under the policy, remembered for the exchange that follows. Raises EgressDeniedError."""
        return self._judge.url(url)

    async def judge(self, target: JudgedUrl | str) -> tuple[EgressAddress, ...]:
        """Judge a URL and its addresses as a request would, without connecting. Raises EgressDeniedError, EgressUnreachableError."""
        judged = self._judged(target)
        addresses, _ = await self._route(judged, {})
        return addresses

    @asynccontextmanager
    async def open_exchange(
        self,
        target: JudgedUrl | str,
        *,
        method: str = "GET",
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        max_body_bytes: int | None = None,
        decode: bool = True,
        on_bytes: Callable[[int], None] | None = None,
    ) -> AsyncIterator[OpenExchange]:
        """As `exchange`, but with the body still to be read: `OpenExchange.piece`. Leaving early closes the connection."""
        opened = await self.begin(
            target, method=method, headers=headers, body=body, max_body_bytes=max_body_bytes, decode=decode, on_bytes=on_bytes
        )
        try:
            yield opened
        finally:
            opened.close()

    async def begin(
        self,
        target: JudgedUrl | str,
        *,
        method: str = "GET",
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        max_body_bytes: int | None = None,
        decode: bool = True,
        on_bytes: Callable[[int], None] | None = None,
        on_connection: Callable[[str], None] | None = None,
    ) -> OpenExchange:
        """The exchange behind `open_exchange` for callers whose own interface ends it elsewhere. They must call its ``close``.

        ``on_connection`` is told the pinned address of the connection before the request leaves, each time it is sent.
        """
        judged = self._judged(target)
        if max_body_bytes is not None:
            check_bytes("max_body_bytes", max_body_bytes)
        check_callable("on_bytes", on_bytes)
        request = build_request(method, judged.target, judged.host_header, self._encoded(headers), body)
        fresh = False
        timings: dict[str, float] = {}
        while True:
            addresses, answers = await self._route(judged, timings)
            connection = None if fresh else self._idle.take(judged, addresses)
            if connection is None:
                connection = await self._connect(judged, addresses, timings)
            begun = trio.current_time()
            exchange = await _ask(connection, request, method, on_bytes, on_connection)
            if exchange is None:
                fresh = True
                continue
            timings["head"] = trio.current_time() - begun
            return OpenExchange(
                target=judged,
                connection=connection,
                exchange=exchange,
                answers=answers,
                timings=timings,
                limit=DEFAULT_MAX_BODY_BYTES if max_body_bytes is None else max_body_bytes,
                decode=decode,
                release=self._idle.put,
            )

    def _judged(self, target: JudgedUrl | str) -> JudgedUrl:
        """The target under this session's policy, whoever judged it before.

        A judgement is about the origin; path and query are data. So a judged URL is taken when its origin is what this policy makes of it:
        a dictionary look-up for each request of a crawl.
        """
        if not isinstance(target, JudgedUrl):
            return self._judge.url(target)
        if self._judge.has(target):
            return target
        root = self._roots.get(target.host_header)
        if root is None or root.scheme != target.scheme:
            root = self._judge.url(f"{target.scheme}://{target.host_header}/")
            if len(self._roots) >= _MAX_MEMO:
                self._roots.clear()
            self._roots[target.host_header] = root
        same = (root.host, root.port, root.literal, root.loopback_origin) == (
            target.host,
            target.port,
            target.literal,
            target.loopback_origin,
        )
        return target if same and target.url == f"{root.origin}{target.target}" else self._judge.url(target.url)

    def _encoded(self, headers: Sequence[tuple[str, str]]) -> bytes:
        if not headers:
            return b""
        try:
            key = tuple(headers)
            known = self._fields.get(key)
            if known is not None:
                return known
            fields = encode_fields(key)
        except (TypeError, ValueError) as exc:
            raise InvalidPolicyError("headers", "pairs of a name and a value, both text") from exc
        if len(self._fields) >= _MAX_MEMO:
            self._fields.clear()
        self._fields[key] = fields
        return fields

    async def _route(self, judged: JudgedUrl, timings: dict[str, float]) -> tuple[tuple[EgressAddress, ...], DnsAnswers | None]:
        """The addresses that this request may go to: the literal, or the judged answers of a look-up in force."""
        if judged.literal is not None:
            return (judged.literal,), None
        begun = trio.current_time()
        answers = await self._resolver_in_use().resolve(judged.host)
        timings["look-up"] = trio.current_time() - begun
        return self._judge.answers(answers, judged.host), answers

    def _resolver_in_use(self) -> CachingResolver:
        """The resolver behind deadline and answer cache; the DNS library loads on the first look-up."""
        if self._caching is None:
            from forage.egress.resolver import CachingResolver, DnsResolver

            self._caching = CachingResolver(DnsResolver() if self._resolver is None else self._resolver, self.policy)
        return self._caching

    async def _connect(self, judged: JudgedUrl, addresses: Sequence[EgressAddress], timings: dict[str, float]) -> Connection:
        made = await self._wire.connect(judged, addresses)
        timings["connect"] = made.connect_seconds
        if made.handshake_seconds is not None:
            timings["handshake"] = made.handshake_seconds
        lane = (judged.scheme, judged.host, judged.port, made.address)
        return Connection(channel=made.channel, lane=lane, tried=made.tried, tls=made.tls)


async def _ask(
    connection: Connection,
    request: bytes,
    method: str,
    on_bytes: Callable[[int], None] | None,
    on_connection: Callable[[str], None] | None,
) -> HttpExchange | None:
    """Send a request and read the head of its answer. None when a kept connection turns out to have been given up by the peer.

    That is when it dies before any byte of an answer, our request having crossed its end (RFC 9112 9.3.1), or when what comes is the 408
    that was sent to the idle connection (RFC 9110 15.5.9). Only a request that may be repeated is taken for that.
    """
    exchange = HttpExchange(connection.channel, on_bytes)
    may_repeat = connection.used and method in _IDEMPOTENT
    try:
        if on_connection is not None:
            on_connection(connection.lane[3])
        await exchange.start(request, method)
    except FetchError:
        connection.channel.close()
        if may_repeat and not exchange.began:
            return None
        raise
    except BaseException:
        connection.channel.close()
        raise
    if may_repeat and exchange.head.status == 408 and not exchange.framing.reusable:
        connection.channel.close()
        return None
    return exchange
