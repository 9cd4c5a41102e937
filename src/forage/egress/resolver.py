"""Look-ups over trio: names to addresses (egress policy, section 5, rules D1, D2 and D8).

`DnsResolver` is a stub resolver: it asks the name servers of the machine, bounds what they may answer, and keeps the facts.
`CachingResolver` puts the deadline, the answer cache and the fail-closed boundary around any resolver. Neither judges an answer;
``rules`` does, also for answers that come from the cache.

The system's resolver is no choice: it cannot be cancelled, and it adds search domains, hosts files and plug-ins.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import NoneType
from typing import Final

import dns.exception
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import trio

from forage.egress.addresses import parse_address
from forage.egress.answers import DnsAnswers, Resolver
from forage.egress.dns_exchange import LookupFailedError, Records, Server, exchange, read_records
from forage.egress.options import check_part, check_policy, check_seconds
from forage.egress.policy import EgressPolicy
from forage.errors import EgressCode, EgressError, EgressUnreachableError, InvalidPolicyError

__all__ = ["CachingResolver", "DnsAnswers", "DnsResolver", "Resolver"]

_RESOLV_CONF: Final = Path("/etc/resolv.conf")
_REREAD_SECONDS: Final = 60.0  # a machine that changed its network has new name servers
_LARGEST_FILE: Final = 1 << 20
_MOST_SERVERS: Final = 8
_SERVERS: Final = 'a list of addresses like "9.9.9.9", each with an optional port'
_ROUNDS: Final = 3
_PAUSE_SECONDS: Final = 0.1
_MOST_ADDRESSES: Final = 4096
_HELD_ANSWERS: Final = 1024
_MOST_HELD_ADDRESSES: Final = 64  # so that no name server fills the cache with thousands for each name
_LONGEST_TTL: Final = 2**32  # seconds; it has 32 bits on the wire
_TYPES: Final = (dns.rdatatype.A, dns.rdatatype.AAAA)
_SETTLED: Final = (dns.rcode.NOERROR, dns.rcode.NXDOMAIN)


class DnsResolver:
    """Asks name servers for A and AAAA together, as absolute names: no search domains, no hosts file unless asked, no environment.

    ``servers``: addresses, each with an optional port; by default the ``nameserver`` lines of /etc/resolv.conf, read again every minute.
    ``hosts_file``: a file like /etc/hosts that is read once and asked first.
    ``attempt_seconds``: how long one server may take for one question before the next one is asked, in three rounds over all servers.

    Truncated answers are asked again over TCP. Answers that do not fit the question are ignored until the attempt is over. Holds no
    socket between look-ups; can be cancelled at any point.
    """

    def __init__(
        self,
        servers: Sequence[str | Server] = (),
        *,
        hosts_file: Path | None = None,
        attempt_seconds: float = 3.0,
        resolv_conf: Path = _RESOLV_CONF,
    ) -> None:
        check_seconds("attempt_seconds", attempt_seconds)
        if isinstance(servers, (str, bytes)) or not isinstance(servers, Iterable):
            raise InvalidPolicyError("servers", _SERVERS, got=servers)
        self._given = tuple(_server(entry) for entry in servers)
        self._hosts_file = hosts_file
        self._hosts: dict[str, tuple[str, ...]] | None = None
        self._attempt_seconds = attempt_seconds
        self._resolv_conf = resolv_conf
        self._read: tuple[Server, ...] = ()
        self._read_at = float("-inf")
        self._last_good: Server | None = None

    async def resolve(self, host: str) -> DnsAnswers:
        """All addresses of ``host``. Raises `EgressUnreachableError` (DNS_FAILURE). The caller sets the deadline."""
        listed = await self._in_hosts_file(host)
        if listed:
            return DnsAnswers(addresses=listed, ttl=0.0, server="hosts file")
        name = _absolute(host)
        if name is None:
            raise _failure(host, "not a name that DNS can carry")
        servers = await self._servers()
        if not servers:
            raise _failure(host, "no name server is configured")
        parts: dict[dns.rdatatype.RdataType, Records | LookupFailedError] = {}

        async def ask(kind: dns.rdatatype.RdataType) -> None:
            try:
                parts[kind] = await self._ask(name, kind, servers)
            except LookupFailedError as exc:
                parts[kind] = exc

        async with trio.open_nursery() as nursery:
            for kind in _TYPES:
                nursery.start_soon(ask, kind)
        return _joined(host, [parts[kind] for kind in _TYPES])

    async def _ask(self, name: dns.name.Name, kind: dns.rdatatype.RdataType, servers: Sequence[Server]) -> Records:
        why = "no name server answered"
        for number, server in enumerate(self._order(servers)):
            if number and number % len(servers) == 0:
                await trio.sleep(_PAUSE_SECONDS)
            try:
                response = await self._attempt(name, kind, server)
            except OSError:
                why = "no name server can be reached"
                continue
            if response is None:
                continue
            if response.rcode() in _SETTLED:
                self._last_good = server
                return read_records(response, server[0])
            why = f"the name server answered {dns.rcode.to_text(response.rcode())}"
        raise LookupFailedError(why)

    async def _attempt(self, name: dns.name.Name, kind: dns.rdatatype.RdataType, server: Server) -> dns.message.QueryMessage | None:
        """The answer of one server, None when it takes too long."""
        # A fresh question each time: its random id is what makes a forged answer miss.
        query = dns.message.make_query(name, kind)
        with trio.move_on_after(self._attempt_seconds):
            return await exchange(query, server)
        return None

    def _order(self, servers: Sequence[Server]) -> Iterator[Server]:
        """Every server in each round, the one that answered last first."""
        first = servers.index(self._last_good) if self._last_good in servers else 0
        for _ in range(_ROUNDS):
            yield from servers[first:]
            yield from servers[:first]

    async def _servers(self) -> tuple[Server, ...]:
        if self._given:
            return self._given
        if trio.current_time() >= self._read_at + _REREAD_SECONDS:
            text = await trio.to_thread.run_sync(_read_text, self._resolv_conf)
            self._read, self._read_at = _nameservers(text), trio.current_time()
        return self._read

    async def _in_hosts_file(self, host: str) -> tuple[str, ...]:
        if self._hosts_file is None:
            return ()
        if self._hosts is None:
            self._hosts = _hosts(await trio.to_thread.run_sync(_read_text, self._hosts_file))
        return self._hosts.get(host, ())


def _failure(host: str, why: str) -> EgressUnreachableError:
    return EgressUnreachableError(EgressCode.DNS_FAILURE, host, rule="D2", detail=why)


def _absolute(host: str) -> dns.name.Name | None:
    """The name as a question; no search domain is ever appended. None for text that is not exactly one ASCII name."""
    try:
        name = dns.name.from_text(host + ".")
    except (UnicodeError, dns.exception.DNSException):
        return None
    return name if host.isascii() and "\\" not in host and name != dns.name.root else None


def _joined(host: str, parts: Sequence[Records | LookupFailedError]) -> DnsAnswers:
    """Both record types as one answer. Where one type fails (old middle boxes drop AAAA) the other's addresses stand."""
    failed = [part for part in parts if isinstance(part, LookupFailedError)]
    found = [part for part in parts if isinstance(part, Records) and part.addresses]
    for part in failed:
        if part.fatal or not found:
            raise _failure(host, str(part)) from part
    addresses = tuple(address for part in found for address in part.addresses)
    if not addresses:
        raise _failure(host, "the name has no address")
    if len(addresses) > _MOST_ADDRESSES:
        raise _failure(host, f"more than {_MOST_ADDRESSES} addresses")
    aliases = dict.fromkeys(alias for part in parts if isinstance(part, Records) for alias in part.aliases)
    return DnsAnswers(addresses=addresses, ttl=min(part.ttl for part in found), aliases=tuple(aliases), server=found[0].server)


def _server(entry: str | Server) -> Server:
    try:
        address, port = (entry, 53) if isinstance(entry, str) else entry
        usable = parse_address(address.partition("%")[0]) is not None and 1 <= port <= 65535
    except (TypeError, ValueError, AttributeError):
        usable = False
    if not usable:
        raise InvalidPolicyError("servers", _SERVERS, got=entry)
    return address, port


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_FILE).decode("utf-8", "replace")
    except OSError:
        return ""


def _nameservers(text: str) -> tuple[Server, ...]:
    """The ``nameserver`` lines of resolv.conf(5); search, domain and options are left out on purpose."""
    words = (line.split() for line in text.splitlines())
    found = (line[1] for line in words if len(line) >= 2 and line[0] == "nameserver")
    usable = dict.fromkeys((address, 53) for address in found if parse_address(address.partition("%")[0]) is not None)
    return tuple(usable)[:_MOST_SERVERS]


def _hosts(text: str) -> dict[str, tuple[str, ...]]:
    """The names of hosts(5), lower case; lines without a plain address are left out."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        if parse_address(address) is not None:
            for name in names:
                found.setdefault(name.lower().removesuffix("."), []).append(address)
    return {name: tuple(addresses) for name, addresses in found.items()}


class CachingResolver:
    """Any resolver under a policy: one deadline a look-up, answers kept for their TTL, every failure a DNS_FAILURE.

    Answers are kept for ``policy.max_answer_ttl`` seconds at most and for 1024 names, least recently used first out; failures and
    answers of more than 64 addresses are not kept. The caller judges what comes from here each time, so that a cached answer is no way
    around the guard.
    """

    def __init__(self, resolver: Resolver, policy: EgressPolicy) -> None:
        check_policy(policy)
        check_part("resolver", resolver, "resolve")
        self._resolver = resolver
        self._seconds = policy.resolve_seconds
        self._max_ttl = policy.max_answer_ttl
        self._held: OrderedDict[str, tuple[float, DnsAnswers]] = OrderedDict()

    async def resolve(self, host: str) -> DnsAnswers:
        """The answers for ``host``, from the cache without a checkpoint. Raises `EgressUnreachableError` (DNS_FAILURE)."""
        held = self._held.get(host)
        if held is not None and trio.current_time() < held[0]:
            self._held.move_to_end(host)
            return held[1]
        self._held.pop(host, None)
        answers = await self._look_up(host)
        seconds = min(answers.ttl, self._max_ttl)
        if seconds > 0 and len(answers.addresses) <= _MOST_HELD_ADDRESSES:
            self._held[host] = (trio.current_time() + seconds, answers)
            if len(self._held) > _HELD_ANSWERS:
                self._held.popitem(last=False)
        return answers

    async def _look_up(self, host: str) -> DnsAnswers:
        try:
            with trio.fail_after(self._seconds):
                answers: object = await self._resolver.resolve(host)
        except EgressError:
            raise
        except trio.TooSlowError as exc:
            raise _failure(host, f"no answer within {self._seconds:g} s") from exc
        except Exception as exc:  # the guard fails closed, whatever a resolver does
            raise _failure(host, f"the resolver failed ({type(exc).__name__})") from exc
        if not isinstance(answers, DnsAnswers) or not _is_readable(answers.ttl, answers.server):
            raise _failure(host, "the resolver gave no answers")
        return answers


def _is_readable(ttl: object, server: object) -> bool:
    """Whether the facts beside the addresses are what they should be: a TTL that is none must not fail behind the boundary."""
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)) or not isinstance(server, (str, NoneType)):
        return False
    return -_LONGEST_TTL <= ttl <= _LONGEST_TTL  # false for NaN
