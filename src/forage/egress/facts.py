"""What is known about one exchange beside its answer: capture facts (pure).

They ride on the response and are what provenance records: which addresses the name had, who said so, which was connected, what the
peer proved, how long each phase took, and the head and digest of the bytes as they came.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import attrs

__all__ = ["CaptureFacts", "TlsFacts"]


@attrs.frozen(kw_only=True)
class TlsFacts:
    """What the handshake settled. ``certificate`` is the peer's own certificate in DER form; ``resumed`` means that it was shown and
    checked on an earlier connection to the same name, port and address."""

    version: str
    cipher: str
    certificate: bytes = attrs.field(repr=False)
    resumed: bool = False

    @property
    def certificate_sha256(self) -> str:
        """Lower-case hexadecimal SHA-256 of the certificate."""
        return hashlib.sha256(self.certificate).hexdigest()


@attrs.frozen(kw_only=True)
class CaptureFacts:
    """Facts of one exchange.

    ``answers`` are all addresses of the look-up in force (empty for a literal), ``ttl`` its time to live in seconds, ``resolver`` the
    name server's address where it is known. ``tried`` are the addresses dialled for this exchange, none when the connection was
    ``reused``; ``connected`` is the address at the other end. ``timings`` maps the phases look-up, connect, handshake, head and body to
    seconds; a phase that did not happen is absent. ``head`` is the final head as received. ``encoded_bytes`` and ``encoded_sha256``
    are about the body after its transfer coding and before its content codings; the digest is empty where the body was not
    read to its end.
    """

    answers: tuple[str, ...] = ()
    ttl: float | None = None
    resolver: str | None = None
    tried: tuple[str, ...] = ()
    connected: str = ""
    tls: TlsFacts | None = None
    reused: bool = False
    timings: Mapping[str, float] = attrs.field(factory=dict)
    head: bytes = attrs.field(default=b"", repr=False)
    encoded_bytes: int = 0
    encoded_sha256: str = ""
