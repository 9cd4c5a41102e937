"""A forward proxy under the guard: whoever uses it, a browser or any other program, reaches what the policy allows and nothing else.

Takes absolute-form requests for http and CONNECT for everything else (``https:``, ``ws:``, ``wss:``), judges each under one `EgressPolicy`,
connects to a judged address only, and tells every decision. Owns the listener, the number of connections and the life of it all; what
happens on one connection is in ``proxy_connection``. Nothing is changed in what passes but the fields between neighbours; no Via is added,
so that a target sees what it would see without the proxy. A tunnel is judged at its start; TLS inside of it is end to end.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from typing import Final

import attrs
import trio

from forage.egress.answers import Resolver
from forage.egress.connector import Dialer, PinnedConnector
from forage.egress.options import check_callable, check_port
from forage.egress.policy import EgressPolicy, default_policy
from forage.egress.proxy_account import Budget, ListenerFailedError
from forage.egress.proxy_connection import ClientConnection, Shared
from forage.egress.proxy_events import ProxyEvent
from forage.egress.proxy_rules import ProxyLimits, ProxyRules, deny_all, only
from forage.egress.relay import Peer
from forage.egress.session import EgressSession
from forage.errors import InvalidPolicyError

__all__ = ["Proxy", "ProxyEvent", "ProxyLimits", "ProxyRules", "deny_all", "only", "open_proxy"]

_BACKLOG: Final = 128
_PAUSE_SECONDS: Final = 0.1  # until descriptors are free again
_LOOK_SECONDS: Final = 0.1  # how much longer than allowed a connection may be silent
_SHORTAGE: Final = frozenset([errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])


class Proxy:
    """A running proxy. ``host`` and ``port`` are where it listens; ``limit_reached`` names the first limit that it met, None so far."""

    def __init__(self, shared: Shared, listener: socket.socket) -> None:
        self._shared = shared
        self._listener = listener
        self.host: str
        self.port: int
        self.host, self.port = listener.getsockname()[:2]
        self.limit_reached: str | None = None
        self._open: set[ClientConnection] = set()
        self._nobody = trio.lowlevel.ParkingLot()
        self._number = 0

    @property
    def url(self) -> str:
        """What a client's proxy setting takes: ``http://127.0.0.1:PORT``."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    @property
    def connections(self) -> int:
        """Connections of clients that are open now."""
        return len(self._open)

    @property
    def bytes_up(self) -> int:
        """Bytes received from clients so far."""
        return self._shared.budget.bytes_up

    @property
    def bytes_down(self) -> int:
        """Bytes sent to clients so far."""
        return self._shared.budget.bytes_down

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept until cancelled."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            if self._shared.limits.seconds is not None:
                nursery.start_soon(self._out_of_time, self._shared.limits.seconds)
            nursery.start_soon(self._look)
            while True:
                await trio.lowlevel.wait_readable(self._listener)
                try:
                    sock, place = self._listener.accept()
                except OSError as exc:  # a client that left before it was accepted, or no descriptor for it
                    if exc.errno in _SHORTAGE:
                        await trio.sleep(_PAUSE_SECONDS)
                    continue
                self._admit(sock, place, nursery)

    def _admit(self, sock: socket.socket, place: tuple[str, int], nursery: trio.Nursery) -> None:
        sock.setblocking(False)
        with suppress(OSError):  # some systems refuse it for a client that has left already
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._number += 1
        host, port = place[:2]
        client = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        connection = ClientConnection(self._shared, Peer(sock), number=self._number, client=client)
        limit = self._shared.budget.used_up or ("connections" if len(self._open) >= self._shared.limits.connections else None)
        if limit is None:
            self._open.add(connection)
            self._nobody.unpark()
            nursery.start_soon(self._run, connection)
            return
        self.limit_reached = self.limit_reached or limit
        with suppress(ListenerFailedError):  # everything is being cancelled
            connection.refuse(limit)

    async def _run(self, connection: ClientConnection) -> None:
        try:
            await connection.run()
        finally:
            self._open.discard(connection)
            self.limit_reached = self.limit_reached or self._shared.budget.used_up

    async def _look(self) -> None:
        """One task for all connections, and none of its time while there is none."""
        while True:
            if not self._open:
                await self._nobody.park()
            await trio.sleep(_LOOK_SECONDS)
            now = trio.current_time()
            for connection in self._open:
                connection.look(now)

    async def _out_of_time(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self._shared.budget.end("seconds")
        self.limit_reached = self.limit_reached or "seconds"


class _Teller:
    """Hands events on. When the callback fails the proxy ends, as what cannot be told must not happen."""

    def __init__(self, on_event: Callable[[ProxyEvent], None] | None, scope: trio.CancelScope) -> None:
        self._on_event = on_event
        self._scope = scope
        self.failure: Exception | None = None

    def tell(self, event: ProxyEvent) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception as exc:
            self.failure = self.failure or exc
            self._scope.cancel()
            raise ListenerFailedError from exc


def _listen(host: str, port: int, *, allow_remote: bool) -> socket.socket:
    """A listener on an address literal. Raises InvalidPolicyError, OSError."""
    try:
        address = ip_address(str(host))
    except ValueError as exc:
        raise InvalidPolicyError("host", "an address to listen on, like 127.0.0.1", got=host) from exc
    if not address.is_loopback and not allow_remote:
        # Whoever reaches the port may use it: on an open address that is the whole network.
        raise InvalidPolicyError("host", "a loopback address, or any with allow_remote=True", got=host)
    check_port("port", port)
    listener = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


@asynccontextmanager
async def open_proxy(
    policy: EgressPolicy | ProxyRules | None = None,
    *,
    resolver: Resolver | None = None,
    dialer: Dialer | None = None,
    limits: ProxyLimits | None = None,
    refuse_hosts: Iterable[str] = (),
    on_event: Callable[[ProxyEvent], None] | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    allow_remote: bool = False,
) -> AsyncIterator[Proxy]:
    """A proxy on ``host`` and ``port`` (0: any that is free), until the block ends; then no connection of it is left.

    ``policy`` is what clients may reach; `only` and `deny_all` are less than any policy. ``refuse_hosts`` are refused with their subdomains
    and told as aborted. ``on_event`` is called for every decision before a byte of the request leaves, and at the end of each allowed
    request; it must not wait. When it raises, the proxy ends and the exception leaves this block.

    Raises InvalidPolicyError, and OSError where the port cannot be had.
    """
    rules = policy if isinstance(policy, ProxyRules) else ProxyRules(policy=default_policy() if policy is None else policy)
    if refused := ProxyRules(refuse_hosts=refuse_hosts).refuse_hosts:
        rules = attrs.evolve(rules, refuse_hosts=(*rules.refuse_hosts, *refused))
    limits = ProxyLimits() if limits is None else limits
    if not isinstance(limits, ProxyLimits):
        raise InvalidPolicyError("limits", "a ProxyLimits", got=limits)
    check_callable("on_event", on_event)
    connector = PinnedConnector(rules.policy, dialer)
    session = EgressSession(rules.policy, resolver=resolver, wire=connector)
    failure: Exception | None = None
    scope = trio.CancelScope()
    teller = _Teller(on_event, scope)
    shared = Shared(rules=rules, limits=limits, session=session, connector=connector, budget=Budget(limits), tell=teller.tell)
    with _listen(host, port, allow_remote=allow_remote) as listener:
        proxy = Proxy(shared, listener)
        with scope:
            async with session, trio.open_nursery() as nursery:
                await nursery.start(proxy.serve)
                try:
                    yield proxy
                except Exception as exc:  # noqa: BLE001 - raised below as it was, not in a group
                    failure = exc
                nursery.cancel_scope.cancel()
    if teller.failure is not None:
        raise teller.failure
    if failure is not None:
        raise failure
