"""Address texts: the one plain form of each family that is read, and the canonical form that is written (pure).

Stricter than most readers on purpose: octal, short, padded, bracketed or zoned forms mean different addresses to different programs.
Formats: dotted decimal (RFC 3986, section 3.2.2) and RFC 4291, section 2.2; written as RFC 5952 says.
"""

from __future__ import annotations

import re
import struct
from typing import Final, Literal

__all__ = ["address_text", "parse_address"]

_LONGEST_IPV4: Final = 15
_LONGEST_IPV6: Final = 45  # ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255

_OCTETS: Final = {str(n): n for n in range(256)}  # membership also refuses leading zeros, signs and digits of other scripts
_GROUPS: Final = "[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{1,4}){0,7}"
_IPV6: Final = re.compile(f"({_GROUPS})?(?:(::)({_GROUPS})?)?", re.ASCII)
_HEXTETS: Final = struct.Struct(">8H")
_ZERO_RUNS: Final = tuple(":" + "0:" * length for length in range(8, 1, -1))  # longest first; a single zero group stays (RFC 5952, 4.2.2)


def _parse_ipv4(text: str) -> int | None:
    if len(text) > _LONGEST_IPV4:
        return None
    try:
        first, second, third, fourth = text.split(".")
        return _OCTETS[first] << 24 | _OCTETS[second] << 16 | _OCTETS[third] << 8 | _OCTETS[fourth]
    except (KeyError, ValueError):
        return None


def _parse_ipv6(text: str) -> int | None:
    if len(text) > _LONGEST_IPV6:
        return None
    if "." in text:
        head, _, tail = text.rpartition(":")
        ipv4 = _parse_ipv4(tail)
        if ipv4 is None:
            return None
        text = f"{head}:{ipv4 >> 16:x}:{ipv4 & 0xFFFF:x}"
    found = _IPV6.fullmatch(text)
    if found is None:
        return None
    before, gap, after = found.groups()
    high = before.split(":") if before else []
    low = after.split(":") if after else []
    if len(high) + len(low) > 7 if gap else len(high) != 8:
        return None
    value = 0
    for group in high:
        value = value << 16 | int(group, 16)
    value <<= 16 * (8 - len(high) - len(low))  # the gap
    for group in low:
        value = value << 16 | int(group, 16)
    return value


def parse_address(text: object) -> tuple[Literal[4, 6], int] | None:
    """Family and number of a plain address text; None for anything else: zone ids, brackets, ports, octal, short and padded forms."""
    if not isinstance(text, str):
        return None
    if ":" in text:
        value = _parse_ipv6(text)
        return None if value is None else (6, value)
    value = _parse_ipv4(text)
    return None if value is None else (4, value)


def address_text(family: Literal[4, 6], value: int) -> str:
    """The canonical text of an address (RFC 5952); one spelling, so that the peer of a socket can be compared with its pin."""
    if family == 4:
        return f"{value >> 24}.{value >> 16 & 255}.{value >> 8 & 255}.{value & 255}"
    text = ":%x:%x:%x:%x:%x:%x:%x:%x:" % _HEXTETS.unpack(value.to_bytes(16, "big"))  # noqa: UP031 - twice as fast as eight formats
    if ":0:0:" in text:
        zeros = next(run for run in _ZERO_RUNS if run in text)
        left, _, right = text.partition(zeros)
        return f"{left[1:]}::{right[:-1]}"
    return text[1:-1]
