"""Virtual hosts in memory: a wire whose answers are chosen for each request, and a resolver that knows every name.

For tests in virtual time. Each request is one connection that ends with its answer, so bodies need no length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs
import trio

from forage.egress import DnsAnswers, EgressAddress, JudgedUrl
from forage.egress.wire import Connected
from forage.errors import EgressCode, EgressDeniedError, EgressUnreachableError
from tests.support.memory_wire import MemoryChannel, MemoryPeer, MemoryWire

__all__ = ["Asked", "Trouble", "VirtualAnswer", "VirtualHosts", "VirtualResolver"]

PUBLIC = "192.0.3.1"
"""An address that the guard lets pass; nothing is dialled there, the wire is memory."""


@attrs.frozen(kw_only=True)
class VirtualAnswer:
    """One answer. ``interim`` statuses go out before it; ``cut`` closes before a declared length is reached; ``delay`` in seconds."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    interim: tuple[int, ...] = ()
    cut: bool = False
    delay: float = 0.0

    def wire(self) -> bytes:
        interim = "".join(f"HTTP/1.1 {status} X\r\n\r\n" for status in self.interim)
        length = f"Content-Length: {len(self.body) + 10}\r\n" if self.cut else ""
        fields = "".join(f"{name}: {value}\r\n" for name, value in self.headers)
        return f"{interim}HTTP/1.1 {self.status} X\r\n{fields}{length}\r\n".encode("latin-1") + self.body


@attrs.frozen(kw_only=True)
class Trouble:
    """No answer: ``timeout``, ``reset``, ``connect``, ``tls``, ``dns`` or an egress code, in the way in which it happens."""

    kind: str


@attrs.define(kw_only=True)
class Asked:
    """One request: ``at`` is trio's time, ``headers`` is empty where no request reached the server."""

    url: str
    at: float
    headers: dict[str, str] = attrs.field(factory=dict)


Answers = Callable[[JudgedUrl, Asked], "VirtualAnswer | Trouble"]


class VirtualHosts:
    """A `Wire`: every connection is for one request, which ``answers`` answers. ``asked`` lists the requests in order."""

    def __init__(self, nursery: trio.Nursery, answers: Answers) -> None:
        self._nursery = nursery
        self._answers = answers
        self.asked: list[Asked] = []
        self.channels: list[MemoryChannel] = []

    async def connect(self, target: JudgedUrl, addresses: Sequence[EgressAddress]) -> Connected:
        asked = Asked(url=target.url, at=trio.current_time())
        self.asked.append(asked)
        answer = self._answers(target, asked)
        if isinstance(answer, Trouble) and answer.kind in ("connect", "tls", "dns"):
            code = EgressCode.DNS_FAILURE if answer.kind == "dns" else EgressCode.CONNECT_FAILED
            raise EgressUnreachableError(code, target.host)
        if isinstance(answer, Trouble) and answer.kind not in ("timeout", "reset"):
            raise EgressDeniedError(EgressCode(answer.kind), target.host)

        async def handle(peer: MemoryPeer) -> None:
            head = await peer.request()
            if head is None:
                return
            fields = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])
            asked.headers.update({name: value.strip() for name, _, value in fields})
            if isinstance(answer, VirtualAnswer):
                await trio.sleep(answer.delay)
                peer.send(answer.wire())
                peer.close()
            elif answer.kind == "reset":
                peer.reset()
            else:
                await trio.sleep_forever()

        wire = MemoryWire(self._nursery, handle)
        connected = await wire.connect(target, addresses)
        self.channels += wire.channels
        return connected


class VirtualResolver:
    """Answers ``names``, and a public address for every other name. A name without addresses does not resolve."""

    def __init__(self, names: Mapping[str, Sequence[str]] | None = None) -> None:
        self._names = dict(names or {})

    async def resolve(self, host: str) -> DnsAnswers:
        await trio.lowlevel.checkpoint()
        addresses = tuple(self._names.get(host, (PUBLIC,)))
        if not addresses:
            raise EgressUnreachableError(EgressCode.DNS_FAILURE, host)
        return DnsAnswers(addresses=addresses)
