"""The site of the probe fixtures, played on loopback: pages with placeholders, their routes, and sinks that must stay empty.

``{self}`` is one loopback origin, opened by ``test_loopback_origins``. Every other host of a placeholder is a name that the resolver
answers with a public address, which the dialer leads to the same server; so loopback and link-local targets are refused as for a user.
Each page has a site of its own, so that what arrives is known to come from it.
"""

from __future__ import annotations

import base64
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import trio
from ada_url import URL
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from forage.egress import DnsAnswers, EgressPolicy
from tests.support.authority import authority
from tests.support.dialer import MappingDialer
from tests.support.raw_server import Answer, RawRequest, RawServer, open_raw_server

__all__ = ["TLS_FLAG", "ProbeSite", "PublicNames", "Sink", "open_probe_site", "open_sink", "tls_flag"]

PUBLIC = "93.184.215.14"
LEAK, LEAK2, TLS_LEAK, ARCHIVE = "leak.test", "leak2.test", "tls.test", "web.archive.org"
TLS_FLAG = "--ignore-certificate-errors-spki-list"
PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==")
_TYPES: Mapping[str, tuple[str, bytes]] = {
    ".html": ("text/html", b"<!doctype html><title>x</title>"),
    ".css": ("text/css", b""),
    ".js": ("text/javascript", b""),
    ".mjs": ("text/javascript", b""),
    ".json": ("application/json", b"{}"),
    ".svg": ("image/svg+xml", b'<svg xmlns="http://www.w3.org/2000/svg"/>'),
    ".vtt": ("text/vtt", b"WEBVTT\n"),
    **dict.fromkeys((".png", ".jpg", ".gif", ".webp", ".cur", ".ico", ".bmp"), ("image/png", PIXEL)),
}


class PublicNames:
    """A resolver that knows every name, at one public address. ``asked`` are the names, in order."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def resolve(self, host: str) -> DnsAnswers:
        await trio.lowlevel.checkpoint()
        self.asked.append(host)
        return DnsAnswers(addresses=(PUBLIC,), ttl=60.0, aliases=(), server=None)


class Sink:
    """Sockets that nothing must reach, on one port. ``datagrams`` and ``connections`` count what did."""

    def __init__(self) -> None:
        self.datagrams = 0
        self.connections = 0
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self.tcp.bind(("127.0.0.1", 0))
            self.port: int = self.tcp.getsockname()[1]
            self.udp.bind(("127.0.0.1", self.port))
            self.tcp.listen()
        except BaseException:
            self.close()
            raise

    def count(self) -> None:
        """Take in everything that is waiting."""
        self.udp.setblocking(False)
        self.tcp.setblocking(False)
        while True:
            try:
                self.udp.recvfrom(65_536)
            except BlockingIOError:
                break
            self.datagrams += 1
        while True:
            try:
                self.tcp.accept()[0].close()
            except BlockingIOError:
                break
            self.connections += 1

    @property
    def empty(self) -> bool:
        self.count()
        return not self.datagrams and not self.connections

    def proves_itself(self) -> bool:
        """Whether the sink sees what is sent to it. To be asked last: it is not empty afterwards."""
        before = self.datagrams, self.connections
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"control", ("127.0.0.1", self.port))
        with socket.create_connection(("127.0.0.1", self.port)):
            self.count()
        return (self.datagrams, self.connections) == (before[0] + 1, before[1] + 1)

    def close(self) -> None:
        self.udp.close()
        self.tcp.close()


@asynccontextmanager
async def open_sink() -> AsyncIterator[Sink]:
    """A sink until the block ends."""
    sink = Sink()
    try:
        await trio.lowlevel.checkpoint()
        yield sink
    finally:
        sink.close()


@cache
def _tls() -> tuple[ssl.SSLContext, str]:
    """A server context for the https leak, and the digest of its key."""
    leaf = authority().issue_cert(TLS_LEAK, f"*.{TLS_LEAK}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf.configure_cert(context)
    certificate = x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes())
    key = certificate.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    digest = hashes.Hash(hashes.SHA256())
    digest.update(key)
    return context, base64.b64encode(digest.finalize()).decode()


def tls_flag() -> str:
    """The flag by which a browser takes the certificate of the fixtures, and no other bad one."""
    return f"{TLS_FLAG}={_tls()[1]}"


@attrs.frozen(kw_only=True)
class Route:
    """A fixed answer at a host and a path."""

    host: str
    path: str
    status: int = 200
    headers: Mapping[str, str] = attrs.field(factory=dict)
    body: str = ""


class ProbeSite:
    """One running site. ``policy``, ``resolver`` and ``dialer`` are what a page of it is to be opened with."""

    def __init__(self, pages: Path, page: Mapping[str, Any], devtools_port: int) -> None:
        self._pages = pages
        self._page = page
        self._devtools_port = devtools_port
        self._page_path = "/" + str(page["file"])
        self._routes: dict[tuple[str, str], Route] = {}
        self.plain: RawServer
        self.tls: RawServer
        self.internal: Sink
        self.stun: Sink
        self.udp: Sink
        self.values: dict[str, str] = {}
        self.resolver = PublicNames()
        self.dialer = MappingDialer({})

    def settle(self) -> None:
        """Once all servers run: what the placeholders stand for, and who may be reached."""
        port, tls_port = self.plain.port, self.tls.port
        self.values = {
            "self": f"http://127.0.0.1:{port}",
            "leak": f"http://{LEAK}:{port}",
            "leak2": f"http://{LEAK2}:{port}",
            "leak_host": f"{LEAK}:{port}",
            "tls_leak": f"https://{TLS_LEAK}:{tls_port}",
            "archive": f"http://{ARCHIVE}:{port}",
            "port": str(port),
            "internal_port": str(self.internal.port),
            "devtools_port": str(self._devtools_port),
            "stun": f"127.0.0.1:{self.stun.port}",
            "udp": f"127.0.0.1:{self.udp.port}",
        }
        self.dialer = MappingDialer(
            {(PUBLIC, port): self.plain.place, ("127.0.0.1", port): self.plain.place, (PUBLIC, tls_port): self.tls.place}
        )
        for route in self._page.get("routes", ()):
            host = URL(self.values[route["host"]]).host
            self._routes[host, self.fill(route["path"])] = Route(
                host=host,
                path=self.fill(route["path"]),
                status=route.get("status", 200),
                headers={name: self.fill(value) for name, value in route.get("headers", {}).items()},
                body=self.fill(route.get("body", "")),
            )

    @property
    def policy(self) -> EgressPolicy:
        # Every port that a page may try is open, so that a refusal is about the address or the name.
        ports = {self.plain.port, self.tls.port, self.internal.port, self.stun.port, self.udp.port, self._devtools_port}
        return EgressPolicy(test_loopback_origins=(self.values["self"],), ports=tuple(sorted(ports)))

    @property
    def url(self) -> str:
        return self.values["self"] + self._page_path

    def fill(self, text: str) -> str:
        """Text with the placeholders replaced."""
        for name, value in self.values.items():
            text = text.replace("{" + name + "}", value)
        return text

    def arrived(self) -> list[tuple[str, str]]:
        """Method and URL of everything that reached a server, in order."""
        found = [(r.method, f"{'ws' if r.header('upgrade') else 'http'}://{r.header('host')}{r.target}") for r in self.plain.requests]
        return found + [(r.method, f"https://{r.header('host')}{r.target}") for r in self.tls.requests]

    # what the servers answer

    def answer(self, request: RawRequest) -> Answer:
        host, path = request.header("host") or "", request.target
        cors = _cors(request)
        route = self._routes.get((host, path)) or self._routes.get((host, path.partition("?")[0]))
        if route is not None:
            return _answer(route.status, {**cors, **route.headers}, route.body.encode())
        path = path.partition("?")[0]
        if f"http://{host}" == self.values["self"] and path.startswith("/pages/"):
            file = self._pages / path.removeprefix("/pages/")
            if file.parent == self._pages and file.is_file():
                headers = self._page.get("headers", {}) if path == self._page_path else {}
                content_type = _TYPES.get(file.suffix, ("text/html", b""))[0]
                extra = {name: self.fill(value) for name, value in headers.items()}
                return _answer(200, {"content-type": content_type, **cors, **extra}, self.fill(file.read_text("utf-8")).encode())
        return _default(path, cors)


def _cors(request: RawRequest) -> dict[str, str]:
    origin = request.header("origin")
    if origin is None:
        return {}
    return {
        "access-control-allow-origin": origin,
        "access-control-allow-credentials": "true",
        "access-control-allow-methods": request.header("access-control-request-method") or "*",
        "access-control-allow-headers": request.header("access-control-request-headers") or "*",
    }


def _default(path: str, cors: Mapping[str, str]) -> Answer:
    if path.endswith("/sse"):
        return _answer(200, {"content-type": "text/event-stream", **cors}, b"retry: 300\ndata: x\n\n")
    content_type, body = _TYPES.get(path[path.rfind(".") :] if "." in path.rpartition("/")[2] else "", ("text/plain", b""))
    return _answer(200, {"content-type": content_type, **cors}, body)


def _answer(status: int, headers: Mapping[str, str], body: bytes) -> Answer:
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {status} Status\r\n{fields}Content-Length: {len(body)}\r\n\r\n"
    return Answer(steps=(head.encode("latin-1") + body,), end="keep")


@asynccontextmanager
async def open_probe_site(pages: Path, page: Mapping[str, Any], *, devtools_port: int = 1) -> AsyncIterator[ProbeSite]:
    """The site of one page of a manifest, whose files are in ``pages``, until the block ends."""
    site = ProbeSite(pages, page, devtools_port)
    async with AsyncExitStack() as stack:
        site.internal, site.stun, site.udp = [await stack.enter_async_context(open_sink()) for _ in range(3)]
        site.plain = await stack.enter_async_context(open_raw_server(site.answer))
        site.tls = await stack.enter_async_context(open_raw_server(site.answer, tls=_tls()[0]))
        site.settle()
        yield site
