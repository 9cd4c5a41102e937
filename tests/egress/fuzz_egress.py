"""Generated URLs, answers and redirects against the guard: ``python -m tests.egress.fuzz_egress [COUNT] [SEED]``.

Whatever the input, `evaluate_url` and the client must end in an answer or in an error of their own, and nothing may be dialled but an
address of this request's look-up (or the literal in its URL) that the table of the policy, written down here a second time, leaves open.
"""

from __future__ import annotations

import ipaddress
import random
import sys
import time
from collections.abc import Sequence

import attrs
import trio

from forage.egress import DnsAnswers, EgressAddress, EgressPolicy, JudgedUrl, evaluate_url
from forage.egress.client import GuardedClient
from forage.egress.wire import Connected
from forage.errors import EgressCode, EgressError, EgressUnreachableError
from tests.support.script_channel import ScriptChannel

__all__ = ["fuzz", "is_open"]

# Section 4 of the policy, by hand. Inside 2000::/3 and outside these is open; so is IPv4 outside these.
_CLOSED = [
    ipaddress.ip_network(text)
    for text in [
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "168.63.129.16/32",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "2001::/23",
        "2001:db8::/32",
        "3fff::/20",
        "2002::/16",
        "2620:4f:8000::/48",
    ]
]
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_ISATAP = (b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe")


def is_open(text: str) -> bool:
    """The second opinion on an address that was dialled."""
    address = ipaddress.ip_address(text)
    if address in _NAT64:
        return is_open(str(ipaddress.IPv4Address(address.packed[12:])))
    if address.version == 6 and (address not in ipaddress.ip_network("2000::/3") or address.packed[8:12] in _ISATAP):
        return False
    return not any(address.version == network.version and address in network for network in _CLOSED)


_SCHEMES = (
    *("http://", "https://", "HTTP://", "http:", "http:/", "http:///", "http:\\\\", "//"),
    *("ftp://", "javascript:", "file:///", "", " http://"),
)
_HOSTS = (
    *("a.example", "A.EXAMPLE.", "b.example", "localhost", "a.localhost", "metadata.google.internal", "127.0.0.1", "0x7f.1"),
    *("017700000001", "2130706433", "93.184.216.34", "10.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[2606:4700:4700::1111]"),
    *("[fe80::1%25lo]", "[::]", "1.2.3.4.", "a..example", "xn--a.example", "\uff41.example", "a\u00ad.example", "\u2460.example"),
    *("169.254.169.254", "%61.example", "a_b.example", "-a.example", "example", "", "a.example\\@b.example", "u@a.example"),
    *("u:p@10.0.0.1", "a b.example", "a\tb.example", "*.example", "x" * 70),
)
_TAILS = (
    *("", "/", "/x?y#z", ":80/", ":443/", ":0/", ":65536/", ":8080/", ":/", "/..//\\..", "?q", "#f", "/\r\nX: y", "/\ud800", "/\x00"),
)
_ODD = (*"\t\n\r \\/@:#?%.[]\x00\u3002\uff0e\u200b\ud800", "..", "//", "\\\\", "%00", "%2e", "0x", "localhost", "127.0.0.1")


def address(chance: random.Random) -> str:
    """An address text: from a closed block, next to one, anywhere, or nothing of the kind."""
    choice = chance.randrange(6)
    if choice == 0:
        return chance.choice(["", "a.example", "1.2.3", "::1%lo", "[::1]", "010.0.0.1", "1.2.3.4/8", "\u0661.1.1.1", "0x7f000001"])
    if choice == 1:
        start = bytes.fromhex(chance.choice(["00", "20", "26", "0064ff9b", "0064ff9b0001", "fc", "fe80", "2002"]))
        return str(ipaddress.IPv6Address((start.ljust(12, b"\0") + chance.randbytes(4))[:16]))
    if choice == 2:
        return f"::ffff:{ipaddress.IPv4Address(chance.getrandbits(32))}"
    if choice == 3:
        return str(ipaddress.IPv6Address(chance.getrandbits(125) | 1 << 125))
    network = chance.choice(_CLOSED)
    edge = int(network.network_address) + chance.choice([-1, 0, network.num_addresses - 1, network.num_addresses])
    if network.version == 6:
        return str(ipaddress.IPv6Address(edge))
    return str(ipaddress.IPv4Address(edge % 2**32))


def url(chance: random.Random) -> str:
    scheme = chance.choice(_SCHEMES[:2] if chance.random() < 0.8 else _SCHEMES)
    text = scheme + chance.choice(_HOSTS[:3] if chance.random() < 0.5 else _HOSTS) + chance.choice(_TAILS)
    for _ in range(chance.choice([0, 0, 0, 1, 2])):
        at = chance.randrange(len(text) + 1)
        text = text[:at] + chance.choice(_ODD) + text[at + chance.randrange(2) :]
    return text


@attrs.define
class _World:
    """Resolver and wire of one story; what it answered and what was asked to be dialled."""

    chance: random.Random
    good: bool
    answered: set[str] = attrs.field(factory=set)
    dialled: list[tuple[JudgedUrl, str]] = attrs.field(factory=list)

    async def resolve(self, host: str) -> DnsAnswers:
        await trio.lowlevel.checkpoint()
        if self.chance.random() < 0.05:
            raise self.chance.choice([EgressUnreachableError(EgressCode.DNS_FAILURE, host), OSError("x"), ValueError("x")])
        count = self.chance.choice([0, 1, 1, 2, 3, 12])
        texts = ("93.184.216.34", "2606:4700:4700::1111") if self.good else tuple(address(self.chance) for _ in range(count))
        self.answered = set(texts)
        return DnsAnswers(addresses=texts, ttl=0.0)

    async def connect(self, target: JudgedUrl, addresses: Sequence[EgressAddress]) -> Connected:
        await trio.lowlevel.checkpoint()
        for judged in addresses:
            self.dialled.append((target, judged.address))
            self._check(target, judged.address)
        location = url(self.chance).encode("utf-8", "surrogatepass").replace(b"\r", b"").replace(b"\n", b"")
        head = b"HTTP/1.1 %d X\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % (self.chance.choice([200, 301, 302, 307]), location)
        return Connected(channel=ScriptChannel([head]), address=addresses[0].address, tried=(addresses[0].address,))

    def _check(self, target: JudgedUrl, text: str) -> None:
        assert is_open(text), f"dialled {text}"
        if target.literal is None:
            known = {_plain(answer) for answer in self.answered}
            assert _plain(text) in known, f"dialled {text}, which is no answer of this look-up"
        else:
            assert _plain(text) == _plain(target.host), f"dialled {text} for {target.host}"


def _plain(text: str) -> object:
    """An address by value; IPv4 in its IPv6 form is that IPv4."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return text
    return (found.ipv4_mapped or found) if found.version == 6 else found


_POLICIES = [
    EgressPolicy(max_answer_ttl=0.0),
    EgressPolicy(max_answer_ttl=0.0, redirect_hosts="any", max_redirects=3),
    EgressPolicy(max_answer_ttl=0.0, redirect_hosts="same-site", ports=(8080,)),
]


async def fuzz(count: int, seed: int) -> int:
    """``count`` stories of the seed; how many of them dialled. Raises AssertionError with the story that did not hold."""
    chance = random.Random(seed)
    dialled = 0
    for number in range(count):
        policy, text = chance.choice(_POLICIES), url(chance)
        world = _World(chance, chance.random() < 0.4)
        begun, refusal = time.monotonic(), ""
        try:
            if chance.random() < 0.5:
                target = await evaluate_url(text, policy, resolver=world)
                assert all(is_open(judged.address) for judged in target.addresses)
            else:
                async with GuardedClient(policy, resolver=world, wire=world) as client:
                    await client.get(text)
        except EgressError as exc:
            refusal = str(exc)
        except Exception as exc:
            raise AssertionError(f"story {number} of seed {seed}: {text!r}") from exc
        assert len(refusal) < 2_000
        assert time.monotonic() - begun < 5, f"story {number} of seed {seed}: {text!r}"
        dialled += bool(world.dialled)
    return dialled


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    begun = time.monotonic()
    dialled = trio.run(fuzz, count, seed)
    print(f"{count} stories of seed {seed}, {dialled} of them dialled, none where it must not: {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
