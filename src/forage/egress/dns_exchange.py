"""One question to one name server, and what its answer says: UDP, then TCP when it is truncated.

Messages are dnspython's (RFC 1035). The sockets are ours: connected UDP sockets, so that the kernel drops what other senders forge and
reports a dead server at once; and dnspython's own transports load an HTTP client, where one is installed, which the guard must not.
Owns no retries, no choice of server and no deadline; the caller has them.
"""

from __future__ import annotations

import socket
from typing import Final

import attrs
import dns.exception
import dns.flags
import dns.message
import dns.rcode
import trio

__all__ = ["LookupFailedError", "Records", "Server", "exchange", "read_records"]

Server = tuple[str, int]
"""Address and port of a name server."""

_LARGEST_MESSAGE: Final = 65_535


class LookupFailedError(Exception):
    """One record type has no usable answer. ``fatal``: the answer itself is wrong, so that the other type's is not trusted either."""

    def __init__(self, why: str, *, fatal: bool = False) -> None:
        self.fatal = fatal
        super().__init__(why)


@attrs.frozen(kw_only=True)
class Records:
    """What an answer says of one record type. ``ttl``: the least of the chain, in seconds; ``server``: who said it."""

    addresses: tuple[str, ...]
    aliases: tuple[str, ...]
    ttl: float
    server: str


def read_records(response: dns.message.QueryMessage, server: str) -> Records:
    """The records that answer the question, along its alias chain; records of other names are left out.

    Raises `LookupFailedError` for a name that does not exist, a loop, or more than 16 aliases.
    """
    try:
        chain = response.resolve_chaining()
    except dns.exception.DNSException as exc:
        # Loops and chains of more than 16 names, NXDOMAIN beside an answer.
        raise LookupFailedError("the answer contradicts itself or its aliases do not end", fatal=True) from exc
    if response.rcode() == dns.rcode.NXDOMAIN:
        raise LookupFailedError("the name does not exist")
    aliases = tuple(str(rdata.target).removesuffix(".").lower() for rrset in chain.cnames for rdata in rrset)
    addresses = () if chain.answer is None else tuple(str(rdata.address) for rdata in chain.answer)
    return Records(addresses=addresses, aliases=aliases, ttl=float(chain.minimum_ttl), server=server)


async def exchange(query: dns.message.QueryMessage, server: Server) -> dns.message.QueryMessage:
    """The answer of ``server`` to ``query``; waits for ever for one that never comes. Raises OSError when the server cannot be reached."""
    response = await _exchange_udp(query, server)
    if response.flags & dns.flags.TC:
        response = await _exchange_tcp(query, server)
    return response


def _family(server: Server) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in server[0] else socket.AF_INET


async def _exchange_udp(query: dns.message.QueryMessage, server: Server) -> dns.message.QueryMessage:
    with trio.socket.socket(_family(server), socket.SOCK_DGRAM) as sock:
        await sock.connect(server)
        await sock.send(query.to_wire())
        while True:
            response = _parsed(query, await sock.recv(_LARGEST_MESSAGE))
            if response is not None:
                return response


async def _exchange_tcp(query: dns.message.QueryMessage, server: Server) -> dns.message.QueryMessage:
    with trio.socket.socket(_family(server), socket.SOCK_STREAM) as sock:
        await sock.connect(server)
        wire = query.to_wire()
        await trio.SocketStream(sock).send_all(len(wire).to_bytes(2, "big") + wire)
        length = int.from_bytes(await _receive_exactly(sock, 2), "big")
        response = _parsed(query, await _receive_exactly(sock, length))
    if response is None:
        raise ConnectionError("the answer does not fit the question")
    return response


async def _receive_exactly(sock: trio.socket.SocketType, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = await sock.recv(count - len(data))
        if not more:
            raise ConnectionError("closed before the answer was whole")
        data += more
    return data


def _parsed(query: dns.message.QueryMessage, wire: bytes) -> dns.message.QueryMessage | None:
    """The message, or None for bytes that are none or that answer another question: another id, name, type or class."""
    try:
        response = dns.message.from_wire(wire)
        return response if isinstance(response, dns.message.QueryMessage) and query.is_response(response) else None
    except Exception:  # noqa: BLE001 - bytes of a stranger: whatever the parser makes of them, they are no answer
        return None
