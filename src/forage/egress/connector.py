"""From judged addresses to one connection: staggered attempts, the peer check, TLS.

Owns which of the judged addresses are dialled and in which order (RFC 8305), the comparison of the peer with the pin, the handshake with
the name of the host, and the facts of all that. It judges nothing and looks nothing up: it has addresses only, so that what was
checked is what is connected. Nothing of the environment is read, neither proxies nor authorities nor key logs.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

import attrs
import trio

from forage.egress.addresses import EgressAddress
from forage.egress.channels import SocketChannel, TlsChannel
from forage.egress.facts import TlsFacts
from forage.egress.options import check_part, check_policy
from forage.egress.policy import EgressPolicy
from forage.egress.rules import JudgedUrl
from forage.egress.trust import client_context
from forage.egress.wire import Connected
from forage.errors import EgressCode, EgressUnreachableError

__all__ = ["ATTEMPT_DELAY", "MAX_TRIES", "Dialer", "PinnedConnector", "SocketDialer", "dial_order"]

ATTEMPT_DELAY = 0.25
"""Seconds before the next address is tried beside one that has not answered (RFC 8305 section 5)."""

MAX_TRIES = 8
"""Addresses dialled for one connection; a name with a thousand answers must not become a scan."""

_MAX_SESSIONS = 256


class Dialer(Protocol):
    """Makes the TCP connection. The one place from which a connection can leave; tests replace it."""

    async def dial(self, address: str, port: int) -> socket.socket:
        """A connected, non-blocking socket to the address in ``address``, which is never a name. Raises OSError."""
        ...


class SocketDialer:
    """Dials with the operating system."""

    async def dial(self, address: str, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        socket.inet_pton(family, address)  # connect() would hand anything else to the system's resolver
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = sock.connect_ex((address, port))
            if code in (errno.EINPROGRESS, errno.EWOULDBLOCK):  # POSIX, Windows
                await trio.lowlevel.wait_writable(sock)
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, "connect failed")
            return sock
        except BaseException:
            sock.close()
            raise


def dial_order(addresses: Sequence[EgressAddress]) -> list[str]:
    """At most MAX_TRIES addresses, families taking turns, IPv6 first, the order within a family kept (RFC 8305 section 4)."""
    six = [a.address for a in addresses if a.family == 6]
    four = [a.address for a in addresses if a.family == 4]
    order: list[str] = []
    for turn in range(max(len(six), len(four))):
        order += six[turn : turn + 1] + four[turn : turn + 1]
    return order[:MAX_TRIES]


@attrs.frozen
class _Lane:
    """What a TLS session is kept for: it vouches for this name at this place only."""

    host: str
    port: int
    address: str


class PinnedConnector:
    """The `Wire` of real sockets, one for a session.

    The TLS context is made on first need, and the last TLS session of a lane is offered again when the lane reconnects.
    """

    def __init__(self, policy: EgressPolicy, dialer: Dialer | None = None) -> None:
        check_policy(policy)
        check_part("dialer", dialer, "dial")
        self._policy = policy
        self._dialer = SocketDialer() if dialer is None else dialer
        self._context: ssl.SSLContext | None = None
        self._sessions: OrderedDict[_Lane, ssl.SSLSession] = OrderedDict()

    async def connect(self, target: JudgedUrl, addresses: Sequence[EgressAddress]) -> Connected:
        """Connect to one of ``addresses`` and, for https, prove the name. Raises EgressUnreachableError (CONNECT_FAILED).

        There is no deadline in here beside the kernel's own: it is the caller's, around the whole attempt.
        """
        if target.scheme == "https" and self._context is None:
            self._context = client_context(self._policy)
        begun = trio.current_time()
        sock, address, tried = await self.dial(target, addresses)
        connected = trio.current_time()
        if target.scheme != "https":
            channel = SocketChannel(sock)
            return Connected(channel=channel, address=address, tried=tried, connect_seconds=connected - begun)
        tls_channel, facts = await self._secure(sock, target, address)
        return Connected(
            channel=tls_channel,
            address=address,
            tried=tried,
            tls=facts,
            connect_seconds=connected - begun,
            handshake_seconds=trio.current_time() - connected,
        )

    async def dial(self, target: JudgedUrl, addresses: Sequence[EgressAddress]) -> tuple[socket.socket, str, tuple[str, ...]]:
        """A plain pinned connection (what a tunnel needs): socket, its address, and the addresses tried. Raises as `connect`."""
        order = dial_order(addresses)
        race = _Race(self._dialer, order, target.port)
        won = await race.run()
        if won is None:
            raise EgressUnreachableError(EgressCode.CONNECT_FAILED, target.host, rule="D5") from race.failure
        return won[0], won[1], tuple(order[: race.started])

    async def _secure(self, sock: socket.socket, target: JudgedUrl, address: str) -> tuple[TlsChannel, TlsFacts]:
        lane = _Lane(target.host, target.port, address)
        channel: TlsChannel | None = None
        try:
            assert self._context is not None
            # A literal is checked as an address and sends no server name; the ssl module tells them apart by their form.
            secured = self._context.wrap_socket(
                sock,
                server_hostname=target.host,
                do_handshake_on_connect=False,
                suppress_ragged_eofs=False,
                session=self._sessions.get(lane),
            )
            channel = TlsChannel(secured, lambda session: self._keep(lane, session))
            await channel.handshake()
            return channel, _tls_facts(secured)
        except (OSError, ValueError) as exc:  # SSLError is an OSError; a name that IDNA cannot carry is a ValueError
            self._sessions.pop(lane, None)
            _close(channel, sock)
            raise EgressUnreachableError(EgressCode.CONNECT_FAILED, target.host, rule="section 6") from exc
        except BaseException:
            _close(channel, sock)
            raise

    def _keep(self, lane: _Lane, session: ssl.SSLSession) -> None:
        self._sessions[lane] = session
        self._sessions.move_to_end(lane)
        if len(self._sessions) > _MAX_SESSIONS:
            self._sessions.popitem(last=False)


def _close(channel: TlsChannel | None, sock: socket.socket) -> None:
    if channel is not None:
        channel.abort()
    sock.close()


def _tls_facts(sock: ssl.SSLSocket) -> TlsFacts:
    certificate = sock.getpeercert(binary_form=True)
    cipher = sock.cipher()
    if sock.selected_alpn_protocol() not in (None, "http/1.1"):
        raise ssl.SSLError("the peer chose a protocol that was not offered")
    return TlsFacts(
        version=sock.version() or "", cipher=cipher[0] if cipher else "", certificate=certificate or b"", resumed=bool(sock.session_reused)
    )


class _Race:
    """Attempts that start one after another and run side by side; the first connection wins, all others are closed."""

    def __init__(self, dialer: Dialer, order: Sequence[str], port: int) -> None:
        self._dialer = dialer
        self._order = order
        self._port = port
        self._won: tuple[socket.socket, str] | None = None
        self.started = 0
        self.failure: Exception | None = None

    async def run(self) -> tuple[socket.socket, str] | None:
        try:
            if len(self._order) == 1:
                await self._attempt(self._order[0], None, None)
            else:
                async with trio.open_nursery() as nursery:
                    await self._stagger(nursery)
        except BaseException:
            if self._won is not None:
                self._won[0].close()
            raise
        return self._won

    async def _stagger(self, nursery: trio.Nursery) -> None:
        for address in self._order:
            failed = trio.Event()
            nursery.start_soon(self._attempt, address, failed, nursery.cancel_scope)
            with trio.move_on_after(ATTEMPT_DELAY):
                await failed.wait()

    async def _attempt(self, address: str, failed: trio.Event | None, others: trio.CancelScope | None) -> None:
        self.started += 1
        try:
            sock = await self._dialer.dial(address, self._port)
        except Exception as exc:  # noqa: BLE001 - whatever a dialer raises, there is no connection: fail closed
            self.failure = exc
            if failed is not None:
                failed.set()
            return
        if self._won is not None or not _is_pinned(sock, address):
            # A peer other than the pin would mean that something rerouted the connection after the check.
            sock.close()
            self.failure = self.failure or OSError("the peer is not the pinned address")
            if failed is not None:
                failed.set()
            return
        self._won = (sock, address)
        if others is not None:
            others.cancel()


def _is_pinned(sock: socket.socket, address: str) -> bool:
    try:
        peer = sock.getpeername()[0]
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return sock.family == family and socket.inet_pton(family, peer) == socket.inet_pton(family, address)
    except (OSError, ValueError):
        return False
