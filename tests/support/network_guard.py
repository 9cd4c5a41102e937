"""No test reaches beyond loopback: every connect, datagram and look-up of this process to another address is refused before it happens.

An audit hook (PEP 578) sees the calls of every library, whoever makes them, and cannot be taken out again. Child processes are not
covered; tests that start any give them addresses on loopback or a network namespace of their own.
"""

from __future__ import annotations

import ipaddress
import socket
import sys

__all__ = ["TrafficRefusedError", "forbid_traffic", "is_loopback"]

_installed: list[bool] = []


class TrafficRefusedError(OSError):
    """A test tried to reach an address that is not loopback."""


def is_loopback(host: object) -> bool:
    """True for a literal loopback address."""
    try:
        return isinstance(host, str) and ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _hook(event: str, args: tuple[object, ...]) -> None:
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        sock, address = args[0], args[1]
        if isinstance(address, tuple) and isinstance(sock, socket.socket) and not is_loopback(address[0]):
            raise TrafficRefusedError(f"{event} to {address[0]} from a test")
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        host = args[0]
        if host not in (None, "", "localhost") and not is_loopback(host) and not _is_literal(host):
            raise TrafficRefusedError(f"{event} of {host!r} from a test")


def _is_literal(host: object) -> bool:
    """A literal is parsed, not looked up."""
    try:
        ipaddress.ip_address(host if isinstance(host, str) else "")
    except ValueError:
        return False
    return True


def forbid_traffic() -> None:
    """Refuse from now on, until the process ends."""
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_hook)
