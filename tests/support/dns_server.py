"""An authoritative name server on loopback whose answers a test writes: it rebinds, delays, truncates, loops and lies.

``async with open_dns_server() as server`` serves UDP and TCP on one port of 127.0.0.1. ``server.zone`` maps a name (lower case, no final
dot) to how it is answered; a name that is not there does not exist. ``server.questions`` keeps what was asked.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import attrs
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset
import trio

__all__ = [
    "Answer",
    "DnsServer",
    "Question",
    "add_records",
    "aliases",
    "delayed",
    "dropped_on_tcp",
    "forged_first",
    "garbage",
    "in_turn",
    "new_reply",
    "only",
    "open_dns_server",
    "rcode",
    "records",
    "silent",
    "truncated",
]

_MOST_BYTES: Final = 65_535


@attrs.frozen(kw_only=True)
class Question:
    """What was asked, and over which transport; ``query`` is the message."""

    name: str
    kind: str
    transport: str
    query: dns.message.Message


# Wire messages to send in order, a number among them being seconds to wait; none for silence.
Answer = Callable[[Question], Sequence[bytes | float]]


def new_reply(question: Question) -> dns.message.Message:
    """An answer to ``question`` without records."""
    reply = dns.message.make_response(question.query, recursion_available=True)
    reply.flags |= dns.flags.AA
    return reply


def add_records(reply: dns.message.Message, owner: str, ttl: int, kind: str, texts: Sequence[str]) -> None:
    """Put records of one owner and type into the answer section."""
    if texts:
        reply.answer.append(dns.rrset.from_text_list(dns.name.from_text(owner), ttl, dns.rdataclass.IN, kind, texts))


def _of_kind(kind: str, addresses: Sequence[str]) -> list[str]:
    return [address for address in addresses if (":" in address) == (kind == "AAAA")]


def records(*addresses: str, ttl: int = 60) -> Answer:
    """A and AAAA records, each where it is asked for."""

    def answer(question: Question) -> list[bytes]:
        reply = new_reply(question)
        add_records(reply, question.name, ttl, question.kind, _of_kind(question.kind, addresses))
        return [reply.to_wire(max_size=_MOST_BYTES)]

    return answer


def aliases(*chain: str, addresses: Sequence[str] = (), ttl: int = 60) -> Answer:
    """A CNAME chain from the name asked for along ``chain``, the last name with ``addresses``."""

    def answer(question: Question) -> list[bytes]:
        reply = new_reply(question)
        owner = question.name
        for target in chain:
            add_records(reply, owner, ttl, "CNAME", [target + "."])
            owner = target
        add_records(reply, owner, ttl, question.kind, _of_kind(question.kind, addresses))
        return [reply.to_wire(max_size=_MOST_BYTES)]

    return answer


def rcode(code: dns.rcode.Rcode) -> Answer:
    """An empty answer with this code."""

    def answer(question: Question) -> list[bytes]:
        reply = new_reply(question)
        reply.set_rcode(code)
        return [reply.to_wire()]

    return answer


def silent(question: Question) -> list[bytes]:
    """Never answers."""
    return []


def delayed(seconds: float, then: Answer) -> Answer:
    """Answers late."""

    def answer(question: Question) -> Sequence[bytes | float]:
        return [seconds, *then(question)]

    return answer


def in_turn(*answers: Answer) -> Answer:
    """One answer after the other for each record type; the last one repeats. This is how a name rebinds."""
    asked: dict[str, int] = {}

    def answer(question: Question) -> Sequence[bytes | float]:
        turn = asked.get(question.kind, 0)
        asked[question.kind] = turn + 1
        return answers[min(turn, len(answers) - 1)](question)

    return answer


def only(kind: str, then: Answer, otherwise: Answer = silent) -> Answer:
    """``then`` for one record type, ``otherwise`` for the rest."""

    def answer(question: Question) -> Sequence[bytes | float]:
        return (then if question.kind == kind else otherwise)(question)

    return answer


def truncated(then: Answer) -> Answer:
    """Nothing but the truncation flag over UDP, the answer over TCP."""

    def answer(question: Question) -> Sequence[bytes | float]:
        if question.transport == "tcp":
            return then(question)
        reply = new_reply(question)
        reply.flags |= dns.flags.TC
        return [reply.to_wire()]

    return answer


def dropped_on_tcp(sent: bytes = b"") -> Answer:
    """Truncated over UDP; over TCP some bytes and then the end."""

    def answer(question: Question) -> Sequence[bytes | float]:
        if question.transport == "tcp":
            return [sent]
        return truncated(silent)(question)

    return answer


def garbage(*messages: bytes) -> Answer:
    """Bytes as they are."""

    def answer(question: Question) -> Sequence[bytes | float]:
        return messages

    return answer


def forged_first(forged: Sequence[str], then: Answer, *, wrong: str) -> Answer:
    """An answer that does not fit the question (``wrong``: "id", "name", "type" or "flag") before what ``then`` gives."""

    def answer(question: Question) -> Sequence[bytes | float]:
        lie = new_reply(question)
        add_records(lie, question.name, 60, question.kind, _of_kind(question.kind, forged))
        if wrong == "id":
            lie.id = (question.query.id + 1) & 0xFFFF
        elif wrong == "name":
            lie.question = [dns.rrset.RRset(dns.name.from_text("other.example"), dns.rdataclass.IN, lie.question[0].rdtype)]
        elif wrong == "type":
            lie.question = [dns.rrset.RRset(lie.question[0].name, dns.rdataclass.IN, dns.rdatatype.TXT)]
        else:
            lie.flags &= ~dns.flags.QR
        return [lie.to_wire(), *then(question)]

    return answer


def _framed(message: bytes) -> bytes:
    """A message as TCP carries it; a single byte stands for an answer that breaks off."""
    return len(message).to_bytes(2, "big") + message if len(message) > 1 else message


class DnsServer:
    """The running server. ``address`` and ``port`` are where it listens."""

    def __init__(self, address: str, port: int) -> None:
        self.address = address
        self.port = port
        self.zone: dict[str, Answer] = {}
        self.questions: list[Question] = []

    @property
    def endpoint(self) -> tuple[str, int]:
        return self.address, self.port

    def asked(self, name: str) -> list[tuple[str, str]]:
        """(record type, transport) of each question for ``name``."""
        return [(question.kind, question.transport) for question in self.questions if question.name == name]

    async def _answer(self, wire: bytes, transport: str, send: Callable[[bytes], Awaitable[object]]) -> None:
        query = dns.message.from_wire(wire)
        asked = query.question[0]
        name = asked.name.to_text(omit_final_dot=True).lower()
        question = Question(name=name, kind=dns.rdatatype.to_text(asked.rdtype), transport=transport, query=query)
        self.questions.append(question)
        for step in self.zone.get(name, rcode(dns.rcode.NXDOMAIN))(question):
            if isinstance(step, float):
                await trio.sleep(step)
            else:
                await send(step)

    async def serve_udp(self, sock: trio.socket.SocketType, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:

            async def reply(wire: bytes, client: tuple[object, ...]) -> None:
                await self._answer(wire, "udp", lambda message: sock.sendto(message, client))

            task_status.started()
            while True:
                wire, client = await sock.recvfrom(_MOST_BYTES)
                nursery.start_soon(reply, wire, client)

    async def serve_tcp(self, stream: trio.SocketStream) -> None:
        async with stream:
            try:
                wire = b""
                while len(wire) < 2 or len(wire) < 2 + int.from_bytes(wire[:2], "big"):
                    more = await stream.receive_some()
                    if not more:
                        return
                    wire += more
                await self._answer(wire[2:], "tcp", lambda message: stream.send_all(_framed(message)))
            except trio.BrokenResourceError:
                pass  # the client was cancelled


def _bound_pair(address: str) -> tuple[trio.socket.SocketType, trio.SocketListener]:
    """A UDP socket and a TCP listener on one free port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for _ in range(50):
        datagrams = trio.socket.socket(family, socket.SOCK_DGRAM)
        stream = socket.socket(family, socket.SOCK_STREAM)
        try:
            stream.bind((address, 0))
            port = stream.getsockname()[1]
            stream.listen(64)
            stream.setblocking(False)
            datagrams._sock.bind((address, port))  # type: ignore[attr-defined]  # trio's bind awaits a look-up that is not needed here
        except OSError:
            datagrams.close()
            stream.close()
            continue
        return datagrams, trio.SocketListener(trio.socket.from_stdlib_socket(stream))
    raise OSError("no port that is free for UDP and TCP")


@asynccontextmanager
async def open_dns_server(address: str = "127.0.0.1") -> AsyncIterator[DnsServer]:
    """A name server that serves while the block runs."""
    datagrams, listener = _bound_pair(address)
    with datagrams:
        server = DnsServer(address, datagrams.getsockname()[1])
        async with trio.open_nursery() as nursery:
            await nursery.start(server.serve_udp, datagrams)
            await nursery.start(trio.serve_listeners, server.serve_tcp, [listener])
            yield server
            nursery.cancel_scope.cancel()
