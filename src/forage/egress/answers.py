"""What a look-up gives, and who gives it: the seam between the guard and any resolver (pure).

Kept apart from the resolver so that the judging half imports no DNS library.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import attrs

__all__ = ["DnsAnswers", "Resolver"]


def _texts(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


@attrs.frozen(kw_only=True)
class DnsAnswers:
    """All addresses of one look-up, A and AAAA together, with the facts that the capture keeps.

    ``ttl`` is in seconds and is 0 where it is unknown (then nothing is cached). ``aliases`` are the CNAME targets in chain order,
    where the resolver shows them; ``server`` is the address of the name server that answered.
    """

    addresses: tuple[str, ...] = attrs.field(converter=_texts)
    ttl: float = 0.0
    aliases: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    server: str | None = None


class Resolver(Protocol):
    """Anything that turns a host name into addresses. The guard judges every answer; a resolver need not."""

    async def resolve(self, host: str) -> DnsAnswers:
        """Look up ``host`` (ASCII, lower case, no final dot) as an absolute name.

        Raises `EgressUnreachableError` (DNS_FAILURE) when there is no answer. Anything else that it raises is taken as that.
        """
        ...
