"""A network in which every address is local, for `benchmarks.guards`: its name server, its web server, and what was dialled.

Only for the inside of a network namespace: `enter` makes sure of that before anything else, and raises otherwise.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import dns.rcode
import trio
import trio.testing

from tests.support.authority import authority, server_context
from tests.support.dns_server import Answer, DnsServer, aliases, garbage, in_turn, rcode, records, silent, truncated

__all__ = ["World", "enter", "open_world", "ports_of"]

NAME_SERVER = "127.0.0.53"
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_MANY = 20  # addresses that do not fit into 512 bytes


def enter(folder: Path, certificates: Iterable[Path], outside: str) -> None:
    """Set up this process's network and mount namespaces. Raises RuntimeError unless they are new ones without any way out."""
    if str(Path("/proc/self/ns/net").readlink()) == outside:
        raise RuntimeError("this is not a network namespace of its own")
    links = [line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]]
    if links != ["lo"]:
        raise RuntimeError(f"there is more than a loopback device: {links}")
    for words in ("link set lo up", "route add local 0.0.0.0/0 dev lo", "-6 route add local ::/0 dev lo"):
        subprocess.run(["ip", *words.split()], check=True)
    for name, text in {
        "/etc/resolv.conf": f"nameserver {NAME_SERVER}\noptions timeout:1 attempts:1\n",
        "/etc/nsswitch.conf": "hosts: files dns\n",
        "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    }.items():
        _mount(folder / Path(name).name, text.encode(), Path(name))
    pem = authority().cert_pem.bytes()
    built_in = ssl.get_default_verify_paths().openssl_cafile
    for path in {Path(place) for place in (*_BUNDLES, built_in)} | set(certificates):
        if path.is_file():
            _mount(folder / "authority.pem", pem, path)


def _mount(source: Path, data: bytes, target: Path) -> None:
    source.write_bytes(data)
    subprocess.run(["mount", "--bind", str(source), str(target.resolve())], check=True)


def ports_of(stories: Iterable[Mapping[str, Any]]) -> set[int]:
    """Every port that a story could mean, so that no dial goes unseen."""
    found = {80, 443}
    for story in stories:
        texts = [story["url"], *(then["url"] for then in story.get("then", ())), *story.get("env", {}).values()]
        texts += [value for response in story.get("redirects", ()) for _, value in response.get("headers", ())]
        found |= {int(port) for text in texts for port in re.findall(r":(\d{1,5})(?!\d)", text)}
    return {port for port in found if 0 < port < 65_536 and port != 53}


class _Names(DnsServer):
    """A name server that takes one question after the other on a connection, as glibc sends them."""

    async def serve_tcp(self, stream: trio.SocketStream) -> None:
        buffer = b""
        async with stream:
            with suppress(trio.BrokenResourceError):
                while data := bytes(await stream.receive_some()):
                    buffer += data
                    while len(buffer) >= 2 and len(buffer) >= (end := 2 + int.from_bytes(buffer[:2], "big")):
                        wire, buffer = buffer[2:end], buffer[end:]
                        await self._answer(wire, "tcp", lambda message: stream.send_all(len(message).to_bytes(2, "big") + message))


class World:
    """The running network. ``dialled`` are the places that were connected to, in order, as (address, port)."""

    def __init__(self) -> None:
        self.names = _Names(NAME_SERVER, 53)
        self.dialled: list[tuple[str, int]] = []
        self._responses: list[Mapping[str, Any]] = []
        self._behaviour: str | None = None
        self._tls: ssl.SSLContext | None = None

    def play(self, story: Mapping[str, Any], certified: Iterable[str]) -> None:
        """Set the stage for a story."""
        self.names.zone = {name: in_turn(*map(_answer, lookups)) for name, lookups in story.get("dns", {}).items()}
        for name, chain in story.get("cname", {}).items():
            chain = [chain] if isinstance(chain, str) else chain
            self.names.zone[name] = aliases(*chain, addresses=story["dns"][name][-1], ttl=0)
        self.names.questions.clear()
        self.dialled.clear()
        self._responses = list(story.get("redirects", ()))
        self._behaviour = story.get("server")
        self._tls = None
        self._certified = tuple(story["tls"]["cert_names"]) if "tls" in story else tuple(certified)

    async def settled(self) -> None:
        """Wait until every connection was accepted."""
        await trio.testing.wait_all_tasks_blocked(0.003)

    async def serve(self, stream: trio.SocketStream) -> None:
        host, port = stream.socket.getsockname()[:2]
        address = ipaddress.ip_address(host)
        mapped = address.ipv4_mapped if address.version == 6 else None
        self.dialled.append((str(mapped or address), port))
        try:
            with trio.move_on_after(20):
                await self._converse(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            pass  # a guard that does not like what it sees goes away
        finally:
            await trio.aclose_forcefully(stream)

    async def _converse(self, stream: trio.SocketStream) -> None:
        first = await stream.socket.recv(1, socket.MSG_PEEK)
        if self._behaviour == "reset":
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        elif self._behaviour == "garbage":
            await stream.send_all(b"\x00\xff\x17garbage\r\n\r\n")
        elif first == b"\x16":
            if self._tls is None:
                self._tls = server_context(*(self._certified or ("nobody.invalid",)))
            secure = trio.SSLStream(stream, self._tls, server_side=True, https_compatible=True)
            await secure.do_handshake()
            await self._answer(secure)
        elif first:
            await self._answer(stream)

    async def _answer(self, stream: trio.abc.Stream) -> None:
        buffer = b""
        while True:
            while b"\r\n\r\n" not in buffer:
                data = bytes(await stream.receive_some(65_536))
                if not data:
                    return
                buffer += data
            head, _, buffer = buffer.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            while len(buffer) < (int(length[1]) if length else 0):
                buffer += bytes(await stream.receive_some(65_536))
            buffer = buffer[int(length[1]) if length else 0 :]
            await stream.send_all(self._response(bodiless=head.startswith(b"HEAD ")))

    def _response(self, *, bodiless: bool) -> bytes:
        response: Mapping[str, Any] = self._responses.pop(0) if self._responses else {"status": 200, "body": "hello"}
        body = str(response.get("body", "")).encode()
        fields = "".join(f"{name}: {value}\r\n" for name, value in response.get("headers", []))
        bodiless = bodiless or response["status"] in (204, 304)
        head = f"HTTP/1.1 {response['status']} X\r\n{fields}" + ("" if bodiless else f"Content-Length: {len(body)}\r\n") + "\r\n"
        return head.encode("utf-8", "surrogateescape") + (b"" if bodiless else body)


def _answer(lookup: list[str]) -> Answer:
    if lookup and lookup[0].startswith("!"):
        failures: dict[str, Answer] = {"!TIMEOUT": silent, "!MALFORMED": garbage(b"\x00\x01\x02")}
        return failures.get(lookup[0].partition(":")[0], rcode(dns.rcode.NXDOMAIN))
    found = records(*lookup, ttl=0)
    return truncated(found) if len(lookup) > _MANY else found


@asynccontextmanager
async def open_world(ports: Iterable[int]) -> AsyncIterator[World]:
    """Name server and web server until the block ends."""
    world = World()
    with trio.socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        async with trio.open_nursery() as nursery:
            await datagrams.bind((NAME_SERVER, 53))
            await nursery.start(world.names.serve_udp, datagrams)
            listeners = await trio.open_tcp_listeners(53, host=NAME_SERVER)
            await nursery.start(partial(trio.serve_listeners, world.names.serve_tcp, listeners))
            for port in ports:
                for host in ("0.0.0.0", "::"):
                    listeners = await trio.open_tcp_listeners(port, host=host)
                    await nursery.start(partial(trio.serve_listeners, world.serve, listeners))
            try:
                yield world
            finally:
                nursery.cancel_scope.cancel()
