"""The guard of the tests themselves: nothing here may leave the machine, whoever asks for it."""

from __future__ import annotations

import socket

import httpx
import pytest
import trio

from forage.egress import SocketDialer
from tests.support.network_guard import TrafficRefusedError, is_loopback

OUTSIDE = ["192.0.2.1", "10.0.0.1", "169.254.169.254", "93.184.216.34", "0.0.0.0", "2001:db8::1", "::ffff:192.0.2.1", "fe80::1"]


@pytest.mark.parametrize("address", OUTSIDE)
def test_a_plain_socket_is_refused_outside_loopback(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock, pytest.raises(TrafficRefusedError):
        sock.connect((address, 80))
    with socket.socket(family, socket.SOCK_STREAM) as sock, pytest.raises(TrafficRefusedError):
        sock.connect_ex((address, 80))
    with socket.socket(family, socket.SOCK_DGRAM) as sock, pytest.raises(TrafficRefusedError):
        sock.sendto(b"x", (address, 53))


@pytest.mark.parametrize("address", OUTSIDE)
async def test_the_dialer_of_the_product_is_refused_outside_loopback(address: str) -> None:
    with pytest.raises(TrafficRefusedError):
        await SocketDialer().dial(address, 80)


async def test_other_clients_are_refused_too() -> None:
    with pytest.raises(OSError, match="all attempts") as refused:
        await trio.open_tcp_stream("192.0.2.1", 80)
    assert isinstance(refused.value.__cause__, ExceptionGroup)
    assert refused.value.__cause__.subgroup(TrafficRefusedError) is not None
    async with httpx.AsyncClient(trust_env=False) as client:
        with pytest.raises((TrafficRefusedError, httpx.ConnectError)):
            await client.get("http://192.0.2.1/")


def test_no_name_is_looked_up() -> None:
    with pytest.raises(TrafficRefusedError):
        socket.getaddrinfo("example.com", 80)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1"])
def test_loopback_stays_open(address: str) -> None:
    assert is_loopback(address)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server, socket.create_connection(server.getsockname()[:2]):
        pass
