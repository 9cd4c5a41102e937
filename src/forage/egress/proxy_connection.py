"""One connection of a client to the forward proxy: its one request, judged, carried out or refused, and told.

Owns the order of things: head, judgement of the target, body, look-up and connection (by `EgressSession` and `PinnedConnector`), the
decision told, and only then bytes to the target. Refusals say nothing to the page behind a browser: a CONNECT is answered with 403 (502
where nothing was denied but there was no connection), any other request by closing the connection, as an answer would look like one of
the target.

One request a connection, whatever its client would like: a second authority on a connection, and a request smuggled in behind another,
cannot happen. Connections to a target are kept by the session and used again, for requests to the same origin that are judged anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import attrs

from forage.egress.connector import PinnedConnector
from forage.egress.framing import body_framing
from forage.egress.proxy_account import Account, Budget, LimitReachedError, ListenerFailedError
from forage.egress.proxy_events import LIMIT, MALFORMED, Outcome, ProxyEvent
from forage.egress.proxy_heads import MalformedRequestError, ProxyRequest, find_head, parse_request, response_head
from forage.egress.proxy_rules import ProxyLimits, ProxyRules
from forage.egress.received import OpenExchange
from forage.egress.relay import Peer, PeerLostError, relay
from forage.egress.rules import JudgedUrl
from forage.egress.session import EgressSession
from forage.errors import EgressCode, EgressDeniedError, EgressError, EgressUnreachableError, FetchError

__all__ = ["ClientConnection", "Shared"]

_log = logging.getLogger("forage.egress")

_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_REFUSED: Final = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_UNREACHABLE: Final = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_ANY_LENGTH: Final = 2**63 - 1  # what an answer may have is for the limits of the proxy to say


@attrs.frozen(kw_only=True, eq=False)
class Shared:
    """What the connections of one proxy have in common. ``tell`` raises ListenerFailedError."""

    rules: ProxyRules
    limits: ProxyLimits
    session: EgressSession
    connector: PinnedConnector
    budget: Budget
    tell: Callable[[ProxyEvent], None]


class ClientConnection:
    """The request that comes over one accepted connection. ``run`` once; it closes the peer."""

    def __init__(self, shared: Shared, peer: Peer, *, number: int, client: str) -> None:
        self._shared = shared
        self._limits = shared.limits
        self._peer = peer
        self._account = Account(shared.rules, shared.budget, shared.tell, number=number, client=client)
        self._exchanging = False
        self._ended: Outcome = "idle"

    async def run(self) -> None:
        """Serve the request. Raises nothing of its own: whatever goes wrong is a refusal or an outcome, and told."""
        outcome: Outcome = "cancelled"
        account, scopes = self._account, self._shared.budget.scopes
        scopes.add(account.scope)
        try:
            with account.scope:
                account.allow_silence(self._limits.head_seconds)
                outcome = await self._serve()
            if account.scope.cancelled_caught:
                outcome = self._ended
        except Exception as exc:  # noqa: BLE001 - the guard fails closed
            outcome = self._outcome_of(exc)
        finally:
            scopes.discard(account.scope)
            self._peer.close()
            with suppress(ListenerFailedError):  # it ends the proxy by itself
                account.end(outcome)

    def look(self, now: float) -> None:
        """End it when it has been silent for too long, and when its client went away: a page that is left must not keep its requests
        running. To be called every now and then: a deadline and a watching task of its own would cost as much as the rest of a request.
        """
        if self._exchanging and self._peer.has_left():
            self._ended = "client-lost"
            self._account.scope.cancel()
        elif self._account.is_silent(now):
            self._account.scope.cancel()

    def refuse(self, limit: str) -> None:
        """Close without a look at the request: the proxy has no room for it. Raises ListenerFailedError."""
        self._peer.close()
        self._account.refuse(LIMIT, limit)

    def _outcome_of(self, exc: Exception) -> Outcome:
        """How a request ended that an exception ended. What was not decided by then is refused."""
        if isinstance(exc, PeerLostError):
            return "client-lost" if exc.peer is self._peer else "upstream-lost"
        if isinstance(exc, ListenerFailedError):
            return "cancelled"
        if isinstance(exc, FetchError):
            return "upstream-lost"
        if isinstance(exc, EgressError):
            with suppress(ListenerFailedError):
                self._account.deny(exc)
            return "complete"
        with suppress(ListenerFailedError):
            if isinstance(exc, LimitReachedError):
                self._account.refuse(LIMIT, str(exc))
                return "limit"
            _log.error("the proxy could not carry out a request", exc_info=exc)
            self._account.refuse(EgressCode.INVALID_URL, f"cannot be judged ({type(exc).__name__})")
        return "upstream-lost"

    async def _send(self, data: bytes) -> None:
        self._account.down(len(data))
        await self._peer.send(data)

    async def _serve(self) -> Outcome:
        raw = b""
        try:
            raw, rest = await self._read_head()
            if not raw:
                return "client-lost"  # a browser opens connections that it may never use
            request = parse_request(raw)
            self._account.asked(request)
            if request.is_connect:
                return await self._tunnel(request, rest)
            return await self._forward(request, rest)
        except MalformedRequestError as exc:
            self._account.refuse(MALFORMED, str(exc))
            if raw.startswith(b"CONNECT "):
                await self._send(_REFUSED)
            return "complete"

    async def _read_head(self) -> tuple[bytes, bytes]:
        """The head, and what came behind it. Empty when the client leaves before it has sent one."""
        buffer = b""
        while True:
            data = await self._peer.receive()
            if not data:
                return b"", b""
            searched = len(buffer)
            buffer = buffer + data if buffer else data
            self._account.head_part(len(data))
            end = find_head(buffer, searched)
            if end > self._limits.head_bytes or (end < 0 and len(buffer) > self._limits.head_bytes):
                raise MalformedRequestError(f"a head of more than {self._limits.head_bytes} bytes")
            if end >= 0:
                return buffer[:end], buffer[end:]

    def _judge(self, url: str) -> JudgedUrl:
        """The target under the policy and under the rules of this proxy. Raises EgressDeniedError; nothing is looked up yet."""
        judged = self._shared.session.judged(url)
        self._account.asked_host(judged.host)
        self._shared.rules.admit(judged)
        return judged

    def _connected(self, address: str) -> None:
        self._account.allow_silence(self._limits.idle_seconds)
        self._account.connected(address)

    # absolute form

    async def _forward(self, request: ProxyRequest, rest: bytes) -> Outcome:
        """Raises EgressError."""
        judged = self._judge(request.target)
        if judged.scheme != "http":  # a client that wants TLS makes it itself, through a tunnel
            raise EgressDeniedError(EgressCode.INVALID_SCHEME, judged.host, rule="proxy")
        body = await self._read_body(request, rest)
        self._account.allow_silence(self._limits.connect_seconds)
        self._exchanging = True
        opened = await self._shared.session.begin(
            judged,
            method=request.method,
            headers=request.headers,
            body=body,
            max_body_bytes=_ANY_LENGTH,
            decode=False,
            on_bytes=self._account.moved,
            on_connection=self._connected,
        )
        try:
            return await self._answer(request, opened)
        finally:
            opened.close()

    async def _read_body(self, request: ProxyRequest, rest: bytes) -> bytes:
        """The whole body, so that its framing is settled before anything is dialled. Raises MalformedRequestError, LimitReachedError."""
        if request.framing.kind == "none":
            return b""
        reader = request.framing.reader()
        most = self._limits.body_bytes
        if (request.framing.length or 0) > most:
            raise LimitReachedError("body-bytes")
        if request.expects_continue:
            await self._send(_CONTINUE)
        self._account.allow_silence(self._limits.head_seconds)
        pieces: list[bytes] = []
        size = 0
        try:
            while True:
                piece = reader.feed(rest)
                size += len(piece)
                if size > most:
                    raise LimitReachedError("body-bytes")
                pieces.append(piece)
                if reader.failure is not None:
                    raise reader.failure
                if reader.done:
                    return b"".join(pieces)
                rest = await self._peer.receive()
                if not rest:
                    raise PeerLostError(self._peer)
                self._account.up(len(rest))
        except FetchError as exc:
            raise MalformedRequestError("a body that is framed wrongly") from exc

    async def _answer(self, request: ProxyRequest, opened: OpenExchange) -> Outcome:
        """Pass the answer on as it comes, content codings untouched; an answer that breaks off must not look whole."""
        framing = body_framing(opened.head, request.method)
        sized = framing.kind in ("none", "length")
        chunked = not sized and request.minor_version > 0
        self._account.answered(opened.head.status)
        begun = response_head(opened.head, framing, chunked=chunked)
        if not opened.is_ready:
            await self._send(begun)  # a stream of events may be silent for long
            begun = b""
        try:
            while piece := await opened.piece():
                await self._send(begun + (b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece))
                begun = b""
        except FetchError:
            if not sized and not chunked:
                self._peer.reset_at_close()
            return "upstream-lost"
        if begun or chunked:
            await self._send(begun + (b"0\r\n\r\n" if chunked else b""))
        return "complete"

    # tunnels

    async def _tunnel(self, request: ProxyRequest, rest: bytes) -> Outcome:
        try:
            judged = self._judge(request.connect_url())
            self._account.allow_silence(self._limits.connect_seconds)
            addresses = await self._shared.session.judge(judged)
            sock, address, _ = await self._shared.connector.dial(judged, addresses)
        except EgressError as exc:
            self._account.deny(exc)
            await self._send(_UNREACHABLE if isinstance(exc, EgressUnreachableError) else _REFUSED)
            return "complete"
        upstream = Peer(sock)
        try:
            self._connected(address)
            await self._send(_ESTABLISHED)
            if rest:
                await upstream.send(rest)
            await relay(self._peer, upstream, on_first=self._account.up, on_second=self._account.down, on_half=self._half_ended)
            return "complete"
        finally:
            upstream.close()

    def _half_ended(self) -> None:
        """One end has said all that it will say; the other one may still answer, for a while."""
        self._account.allow_silence(min(self._limits.idle_seconds, self._limits.linger_seconds))
