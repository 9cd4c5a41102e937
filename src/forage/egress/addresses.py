"""Which addresses may be dialled: the special-purpose table and its verdicts (egress policy, section 4).

Owns the table, and what embeds an IPv4 address in an IPv6 one. Knows nothing of names, ports or sockets.
Sources: IANA special-purpose registries (IPv4: RFC 6890 and 8190; IPv6: 2025-10-09), RFC 6052 (NAT64), RFC 5214 (ISATAP).

IPv4 is allowed unless listed. IPv6 is allowed only inside 2000::/3 and there unless listed, so that a reservation made tomorrow outside
of it is closed today. ``ipaddress`` reads the networks of a policy, never an answer: its ``is_global`` differs between Python versions.
"""

from __future__ import annotations

import ipaddress
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final, Literal, NoReturn

import attrs

from forage.egress.address_text import address_text, parse_address
from forage.errors import EgressCode, EgressDeniedError, InvalidPolicyError

__all__ = ["AddressRules", "EgressAddress", "address_text", "classify_address", "parse_address"]

_DENIED: Final = (
    # IPv4. Each row: the block as a policy would name it, and what it is.
    ("0.0.0.0/8", "this network"),  # RFC 791; Linux dials 0.0.0.0 as loopback
    ("10.0.0.0/8", "private use"),  # RFC 1918
    ("100.64.0.0/10", "shared address space"),  # RFC 6598; overlay VPNs, Alibaba metadata
    ("127.0.0.0/8", "loopback"),  # RFC 1122
    ("169.254.0.0/16", "link-local"),  # RFC 3927
    ("172.16.0.0/12", "private use"),  # RFC 1918
    ("192.0.0.0/24", "IETF protocol assignments"),  # RFC 6890; .9 and .10 are anycast for PCP and TURN, no web
    ("192.0.2.0/24", "documentation"),  # RFC 5737
    ("192.31.196.0/24", "AS112 sink"),  # RFC 7535
    ("192.52.193.0/24", "AMT relays"),  # RFC 7450
    ("192.88.99.0/24", "6to4 relay anycast"),  # RFC 7526
    ("192.168.0.0/16", "private use"),  # RFC 1918
    ("192.175.48.0/24", "AS112 sink"),  # RFC 7534
    ("198.18.0.0/15", "benchmarking"),  # RFC 2544; the range of fake-ip proxies
    ("198.51.100.0/24", "documentation"),  # RFC 5737
    ("203.0.113.0/24", "documentation"),  # RFC 5737
    ("224.0.0.0/4", "multicast"),  # RFC 5771
    ("240.0.0.0/4", "reserved"),  # RFC 1112
    ("255.255.255.255/32", "limited broadcast"),  # RFC 919
    # IPv6, first all that lies outside 2000::/3, then what of it has a name.
    ("::/3", "outside 2000::/3"),
    ("4000::/2", "outside 2000::/3"),
    ("8000::/1", "outside 2000::/3"),
    ("::/96", "IPv4-compatible"),  # RFC 4291, deprecated
    ("::/128", "unspecified"),  # RFC 4291; dialled as loopback
    ("::1/128", "loopback"),  # RFC 4291
    ("::ffff:0:0:0/96", "IPv4-translated"),  # RFC 2765, obsolete
    ("64:ff9b:1::/48", "local-use NAT64"),  # RFC 8215
    ("100::/64", "discard-only"),  # RFC 6666
    ("100:0:0:1::/64", "dummy prefix"),  # RFC 9780
    ("200::/7", "reserved (mesh networks use it)"),  # RFC 4048
    ("2001::/23", "IETF protocol assignments"),  # RFC 2928; AMT, AS112, ORCHID and DRIP are in it, none has web servers
    ("2001::/32", "Teredo"),  # RFC 4380; embeds IPv4 twice
    ("2001:2::/48", "benchmarking"),  # RFC 5180
    ("2001:db8::/32", "documentation"),  # RFC 3849
    ("2002::/16", "6to4"),  # RFC 3056; embeds IPv4
    ("2620:4f:8000::/48", "AS112 sink"),  # RFC 7534
    ("3fff::/20", "documentation"),  # RFC 9637
    ("5f00::/16", "segment routing"),  # RFC 9602
    ("fc00::/7", "unique local"),  # RFC 4193
    ("fe80::/10", "link-local"),  # RFC 4291
    ("fec0::/10", "site-local"),  # RFC 3879
    ("ff00::/8", "multicast"),  # RFC 4291
)

# Services that hand out credentials or rule the machine. No wider network opens them: ``allow_networks=["169.254.0.0/16"]`` is
# meant for a neighbour on the link, and must not give away the instance's role.
_METADATA: Final = (
    "100.88.222.5",  # Tencent
    "100.100.100.200",  # Alibaba
    "168.63.129.16",  # Azure platform endpoint, in ordinary public space
    "169.254.0.23",  # Tencent
    "169.254.1.1",  # in-cluster gateway
    "169.254.20.10",  # node-local DNS
    "169.254.42.42",  # Scaleway
    "169.254.169.249",  # AWS licence service
    "169.254.169.250",  # AWS licence service
    "169.254.169.253",  # AWS resolver
    "169.254.169.254",  # AWS, Azure, Google, OpenStack and most others
    "169.254.170.2",  # AWS container credentials
    "169.254.170.23",  # AWS pod identity
    "192.0.0.192",  # Oracle
    "fd00:42::42",  # Scaleway
    "fd00:ec2::23",  # AWS pod identity
    "fd00:ec2::253",  # AWS resolver
    "fd00:ec2::254",  # AWS
    "fd20:ce::254",  # Google
)

_METADATA_NAME: Final = "cloud metadata"
_NAT64_WELL_KNOWN: Final = "64:ff9b::/96"  # RFC 6052
_NAT64_LENGTHS: Final = (32, 40, 48, 56, 64, 96)  # RFC 6052, section 2.2
_MAPPED: Final = 0xFFFF  # the upper 96 bits of ::ffff:0:0/96


@attrs.frozen(kw_only=True)
class EgressAddress:
    """A judged address. ``address`` is the one text to dial; ``embedded`` the IPv4 address that was judged in its stead (NAT64, mapped)."""

    address: str
    family: Literal[4, 6]
    embedded: str | None = None


_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class _Blocks:
    """The whole space of one family cut into segments, each with the name of the block that refuses it, None, or "" (opened)."""

    def __init__(self, denied: Iterable[tuple[_Network, str]], opened: Sequence[_Network], metadata: Iterable[_Network]) -> None:
        ranked = [((0, network.prefixlen), network, f"{network} {name}") for network, name in denied]
        ranked += [((1, network.prefixlen), network, "") for network in opened]
        ranked += [((2, 0), network, f"{network} {_METADATA_NAME}") for network in metadata if network not in opened]
        ranked.sort(key=lambda row: row[0])
        # Painted from the widest to the narrowest, denied before opened before metadata: the last coat is the verdict.
        starts: list[int] = [0]
        verdicts: list[str | None] = [None]
        for _, network, verdict in ranked:
            first, after = int(network.network_address), int(network.broadcast_address) + 1
            beyond = verdicts[bisect_right(starts, after) - 1]
            low, high = bisect_left(starts, first), bisect_left(starts, after)
            cut = high == len(starts) or starts[high] != after
            starts[low:high] = [first, after] if cut else [first]
            verdicts[low:high] = [verdict, beyond] if cut else [verdict]
        self._starts = starts
        self._verdicts = verdicts

    def verdict(self, value: int) -> str | None:
        """Name of the block that refuses ``value``; None where nothing is said of it, "" where the policy opened it."""
        return self._verdicts[bisect_right(self._starts, value) - 1]


def _embedded_anywhere(value: int) -> tuple[int, ...]:
    """IPv4 addresses that an IPv6 address may carry under any scheme, also refused ones, so that none smuggles a metadata address."""
    found = [value & 0xFFFFFFFF]  # compatible, translated, NAT64 with a 96-bit prefix, ISATAP
    top = value >> 112
    if top == 0x2002:
        found.append(value >> 80 & 0xFFFFFFFF)
    if value >> 96 == 0x20010000:
        found += [value >> 64 & 0xFFFFFFFF, ~value & 0xFFFFFFFF]  # Teredo: server, and client with inverted bits
    return tuple(found)


def _decode_nat64(value: int, length: int) -> int:
    """The IPv4 address after a NAT64 prefix of ``length`` bits (RFC 6052, 2.2): bits 64 to 71 are not part of it."""
    if length == 96:
        return value & 0xFFFFFFFF
    joined = (value >> 64) << 56 | value & (1 << 56) - 1  # bits 64..71 taken out: 120 bits are left
    return joined >> 120 - length - 32 & 0xFFFFFFFF


@cache
def _tables() -> tuple[tuple[tuple[_Network, str], ...], tuple[_Network, ...]]:
    """The denied networks with their names, and the metadata addresses, both read once for all policies."""
    return tuple((ipaddress.ip_network(text), name) for text, name in _DENIED), tuple(map(ipaddress.ip_network, _METADATA))


class AddressRules:
    """The verdict on an address under one policy. Immutable; made once for a policy, then a table look-up.

    ``allow_networks``: networks that become allowed. A metadata address opens only by its own /32 or /128, and an address that embeds
    an IPv4 address (mapped, NAT64) is judged by that one: name the IPv4 network.
    ``nat64_prefixes``: further translation prefixes of 32, 40, 48, 56, 64 or 96 bits.
    ``guarded=False`` opens every address; text that is no address is still refused.
    Raises `InvalidPolicyError` naming the field.
    """

    def __init__(self, allow_networks: Sequence[str] = (), nat64_prefixes: Sequence[str] = (), *, guarded: bool = True) -> None:
        allowed = [_network("allow_networks", text) for text in _listed("allow_networks", allow_networks)]
        prefixes = [_nat64_network(text) for text in _listed("nat64_prefixes", nat64_prefixes)] + [ipaddress.IPv6Network(_NAT64_WELL_KNOWN)]
        self._guarded = guarded
        # Longest first, so that the narrowest of overlapping prefixes says where the IPv4 address stands.
        self._nat64 = tuple(
            (128 - p.prefixlen, int(p.network_address) >> 128 - p.prefixlen, p.prefixlen, str(p))
            for p in sorted(set(prefixes), key=lambda p: -p.prefixlen)
        )
        denied, metadata = _tables()
        self._ipv4, self._ipv6 = (
            _Blocks(
                [row for row in denied if row[0].version == version],
                [network for network in allowed if network.version == version],
                [network for network in metadata if network.version == version],
            )
            for version in (4, 6)
        )
        self._closed_metadata = frozenset(int(n.network_address) for n in metadata if n.version == 4 and n not in allowed)

    def classify(self, address: str, safe_host: str | None = None) -> EgressAddress:
        """The address to dial. Raises `EgressDeniedError`, INVALID_HOST for what is no plain address text and DENIED_ADDRESS with
        ``block``; its ``host`` is ``safe_host``, else the address.
        """
        parsed = parse_address(address)
        if parsed is None:
            raise EgressDeniedError(EgressCode.INVALID_HOST, safe_host, rule="D4", detail="not a plain address text")
        family, value = parsed
        if family == 4:
            block = self._ipv4.verdict(value) if self._guarded else None
            if block:
                _deny(block, safe_host, address)
            return EgressAddress(address=address, family=4)
        return self._classify_ipv6(value, safe_host)

    def _classify_ipv6(self, value: int, safe_host: str | None) -> EgressAddress:
        if value >> 32 == _MAPPED:
            # The kernel dials a mapped address over IPv4, so the IPv4 address is what is judged and dialled.
            embedded = address_text(4, value & 0xFFFFFFFF)
            self._judge_embedded(value & 0xFFFFFFFF, "::ffff:0:0/96", safe_host or embedded)
            return EgressAddress(address=embedded, family=4, embedded=embedded)
        text = address_text(6, value)
        if not self._guarded:
            return EgressAddress(address=text, family=6)
        block = self._ipv6.verdict(value)
        if block is None or not block.endswith(_METADATA_NAME):
            for shift, prefix, length, name in self._nat64:
                if value >> shift == prefix:
                    inner = _decode_nat64(value, length)
                    self._judge_embedded(inner, name, safe_host or text)
                    return EgressAddress(address=text, family=6, embedded=address_text(4, inner))
        block = self._tunnel(value, block)
        if block:
            _deny(block, safe_host, text)
        return EgressAddress(address=text, family=6)

    def _judge_embedded(self, value: int, prefix: str, host: str) -> None:
        block = self._ipv4.verdict(value) if self._guarded else None
        if block:
            _deny(f"{block}, embedded in {prefix}", host, host)

    def _tunnel(self, value: int, block: str | None) -> str | None:
        """The verdict on an IPv6 address that nothing translates, tunnels to IPv4 included."""
        if block:
            return block
        if block is None:
            # ISATAP interface identifiers tunnel to the IPv4 address they hold, under any prefix (RFC 5214, 6.1).
            return "ISATAP interface identifier" if value >> 32 & 0xFDFFFFFF == 0x5EFE else None
        if any(inner in self._closed_metadata for inner in _embedded_anywhere(value)):
            # Opened by a wide network: it must not reach a metadata address in disguise.
            return f"{_METADATA_NAME}, embedded"
        return None


def _deny(block: str, safe_host: str | None, address: str) -> NoReturn:
    raise EgressDeniedError(EgressCode.DENIED_ADDRESS, safe_host or address, block=block, rule="addresses")


def _listed(field: str, values: object) -> Iterable[object]:
    if isinstance(values, Iterable) and not isinstance(values, (str, bytes)):
        return values
    raise InvalidPolicyError(field, "a list of networks", got=values)


def _network(field: str, text: object) -> _Network:
    accepted = 'networks like "10.0.0.0/8" or "fd00::/8", without host bits'
    try:
        network = ipaddress.ip_network(text) if isinstance(text, str) and "%" not in text else None
    except ValueError:
        network = None
    if network is None:
        raise InvalidPolicyError(field, accepted, got=text)
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen >= 96 and network.network_address.ipv4_mapped is not None:
        return ipaddress.IPv4Network((network.network_address.ipv4_mapped, network.prefixlen - 96))
    return network


def _nat64_network(text: object) -> ipaddress.IPv6Network:
    network = _network("nat64_prefixes", text)
    if not isinstance(network, ipaddress.IPv6Network) or network.prefixlen not in _NAT64_LENGTHS:
        raise InvalidPolicyError("nat64_prefixes", "IPv6 prefixes of 32, 40, 48, 56, 64 or 96 bits", got=text)
    return network


@cache
def _default_rules() -> AddressRules:
    return AddressRules()  # immutable, so that sharing it shares no state


def classify_address(address: str, safe_host: str | None = None) -> EgressAddress:
    """Judge one address text by the default policy: the address to dial.

    Raises `EgressDeniedError`: INVALID_HOST when the text is no plain address, DENIED_ADDRESS with the name of the ``block``.
    ``safe_host`` is what the error shows as host, for an answer to a look-up the name that was asked for.
    """
    return _default_rules().classify(address, safe_host)
