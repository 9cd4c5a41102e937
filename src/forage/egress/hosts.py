"""Which host names may be asked for (egress policy, section 2): syntax first, then the names that are refused (pure).

Works on the host that the WHATWG parser gives: ASCII and lower case. Owns no addresses; literals never come here.
"""

from __future__ import annotations

import re
from typing import Final

from ada_url import idna_to_unicode

from forage.errors import EgressCode, EgressDeniedError

__all__ = ["check_host", "without_root_dot"]

_NAME: Final = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*", re.ASCII)
_LONGEST_NAME: Final = 253

# Special-use or never delegated; refused with everything below them.
_DENIED_SUFFIXES: Final = frozenset(
    [
        "alt",  # RFC 9476
        "corp",  # never delegated (ICANN name collision)
        "home",  # as corp
        "home.arpa",  # RFC 8375
        "in-addr.arpa",  # RFC 1035
        "internal",  # reserved 2024; the metadata names of most clouds
        "intranet",  # RFC 6762, appendix G
        "ip6.arpa",  # RFC 3596
        "lan",  # RFC 6762, appendix G
        "local",  # RFC 6762
        "localdomain",
        "localhost",  # RFC 6761
        "onion",  # RFC 7686
        "private",  # RFC 6762, appendix G
        "svc",  # cluster services
    ]
)

# Metadata services below public suffixes; refused exactly.
_DENIED_NAMES: Final = frozenset(["metadata.goog", "metadata.packet.net", "metadata.platformequinix.com", "metadata.tencentyun.com"])


def without_root_dot(host: str) -> str:
    """The name without its one final dot. Root dots hide names from string checks; a second one stays and is an empty label."""
    return host.removesuffix(".")


def check_host(host: str) -> None:
    """Judge a name without root dot.

    Raises `EgressDeniedError`: INVALID_HOST for syntax, DENIED_HOST for a refused name. The error shows the name.
    """
    if len(host) > _LONGEST_NAME or _NAME.fullmatch(host) is None:
        raise EgressDeniedError(EgressCode.INVALID_HOST, host[: _LONGEST_NAME + 1], rule="H2")
    labels = host.split(".")
    if "xn--" in host and not all(_decodes(label) for label in labels if label.startswith("xn--")):
        raise EgressDeniedError(EgressCode.INVALID_HOST, host, rule="H3")
    if len(labels) == 1:
        # Search domains, container names, `metadata`, `wpad`: no public site lives there.
        raise EgressDeniedError(EgressCode.DENIED_HOST, host, rule="H4")
    if labels[-1] in _DENIED_SUFFIXES or ".".join(labels[-2:]) in _DENIED_SUFFIXES:
        raise EgressDeniedError(EgressCode.DENIED_HOST, host, rule="H5")
    if host in _DENIED_NAMES:
        raise EgressDeniedError(EgressCode.DENIED_HOST, host, rule="H6")


def _decodes(label: str) -> bool:
    """Whether an ``xn--`` label stands for a name that plain ASCII cannot write; URL parsers differ on those that do not."""
    return not idna_to_unicode(label).isascii()
