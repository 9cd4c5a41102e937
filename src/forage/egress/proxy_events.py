"""What the forward proxy tells about each request: the decision, and how it ended (no I/O)."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import attrs

__all__ = ["LIMIT", "MALFORMED", "Decision", "Outcome", "ProxyEvent", "shown_target"]

Decision = Literal["allowed", "refused", "aborted", "unreachable"]
Outcome = Literal["complete", "client-lost", "upstream-lost", "idle", "limit", "cancelled"]

MALFORMED: Final = "MALFORMED_REQUEST"
"""Code of a request that is none, beside those of `EgressCode`."""

LIMIT: Final = "LIMIT"
"""Code of a connection or request above a limit of the proxy; ``rule`` names the limit."""

_LONGEST_SHOWN: Final = 16_384
_USERINFO: Final = re.compile(r"(?<=//)[^/?#\\]*@")


@attrs.frozen(kw_only=True)
class ProxyEvent:
    """One line of the audit.

    Every request and tunnel has a ``decision``, told before its first byte leaves; an allowed one has an ``end`` with the same ``number``.

    ``at``: UTC, milliseconds. ``client``: address and port of the other end. ``url``: what was asked for, whole, its query included (an
    authority ``host:port`` for CONNECT); empty when it could not be read. ``host``: the canonical host where there is one. ``code``: an
    `EgressCode`, MALFORMED or LIMIT; ``rule`` and ``block`` as errors have them. ``address``: the pinned address in use. ``status``: of the
    answer that was passed on. ``bytes_up`` and ``bytes_down``: received from and sent to the client, heads included. ``seconds``: from
    the accepted connection to the end.
    """

    event: Literal["decision", "end"]
    number: int
    at: str
    client: str
    method: str = ""
    url: str = ""
    host: str | None = None
    decision: Decision
    code: str | None = None
    rule: str | None = None
    block: str | None = None
    address: str | None = None
    status: int | None = None
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float | None = None
    outcome: Outcome | None = None

    def to_json(self) -> dict[str, Any]:
        """Members for an audit file: without query and fragment, which hold tokens, and without what is not known."""
        row = {_camel(name): value for name, value in attrs.asdict(self).items() if value is not None}
        row["url"] = self.url.partition("?")[0].partition("#")[0]
        if self.event == "decision":
            del row["bytesUp"], row["bytesDown"]
        return row


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def shown_target(target: str) -> str:
    """A request target as an event may hold it: bounded, and without userinfo."""
    return _USERINFO.sub("", target)[:_LONGEST_SHOWN]
