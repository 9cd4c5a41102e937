"""What the proxy keeps count of, and what it tells: bytes and silence of a connection, the budget of all, decisions and ends.

Owns when an event is told and how a connection runs out of time. It reads and writes no socket.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import trio

from forage.egress.proxy_events import LIMIT, MALFORMED, Decision, Outcome, ProxyEvent, shown_target
from forage.egress.proxy_heads import ProxyRequest
from forage.egress.proxy_rules import ProxyLimits, ProxyRules
from forage.errors import EgressCode, EgressError, EgressUnreachableError

__all__ = ["Account", "Budget", "LimitReachedError", "ListenerFailedError"]


class LimitReachedError(Exception):
    """A limit of the proxy; the text names it."""


class ListenerFailedError(Exception):
    """Whoever is told of events could not take one: nothing may happen that is not told."""


class Budget:
    """What all connections of a proxy may use together, and the scopes that end when it is used up."""

    def __init__(self, limits: ProxyLimits) -> None:
        self._limits = limits
        self.bytes_up = 0
        self.bytes_down = 0
        self.used_up: str | None = None
        self.scopes: set[trio.CancelScope] = set()

    def add_up(self, size: int) -> None:
        """Raises LimitReachedError."""
        self.bytes_up += size
        if self._limits.bytes_up is not None and self.bytes_up > self._limits.bytes_up:
            self.end("bytes-up")
            raise LimitReachedError("bytes-up")

    def add_down(self, size: int) -> None:
        """Raises LimitReachedError."""
        if self._limits.bytes_down is not None and self.bytes_down + size > self._limits.bytes_down:
            self.end("bytes-down")
            raise LimitReachedError("bytes-down")
        self.bytes_down += size

    def end(self, limit: str) -> None:
        """Close every connection; ``limit`` is why."""
        self.used_up = self.used_up or limit
        for scope in self.scopes:
            scope.cancel()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Account:
    """The account of one connection. ``scope`` goes around all that it does.

    ``tell`` is called with each event and raises ListenerFailedError; so do the methods that tell.
    """

    def __init__(self, rules: ProxyRules, budget: Budget, tell: Callable[[ProxyEvent], None], *, number: int, client: str) -> None:
        self._rules = rules
        self._budget = budget
        self._tell = tell
        self._begun = trio.current_time()
        self._silence = float("inf")
        self._due = float("inf")
        self._number = number
        self._client = client
        self._method = ""
        self._url = ""
        self._host: str | None = None
        self._address: str | None = None
        self._status: int | None = None
        self._decision: Decision | None = None
        self._up = 0
        self._down = 0
        self.scope = trio.CancelScope()

    # silence and bytes

    def allow_silence(self, seconds: float) -> None:
        """From now on, ``seconds`` without a byte end the connection."""
        self._silence = seconds
        self._due = trio.current_time() + seconds

    def is_silent(self, now: float) -> bool:
        """Whether it has been silent for too long."""
        return now > self._due

    def moved(self, _: int = 0) -> None:
        """Bytes came or went."""
        self._due = trio.current_time() + self._silence

    def up(self, size: int) -> None:
        """Bytes came from the client. Raises LimitReachedError."""
        self.moved()
        self._up += size
        self._budget.add_up(size)

    def head_part(self, size: int) -> None:
        """Bytes of the head came: its time is for the whole of it, however slowly it comes. Raises LimitReachedError."""
        self._up += size
        self._budget.add_up(size)

    def down(self, size: int) -> None:
        """Bytes are about to go to the client. Raises LimitReachedError."""
        self.moved()
        self._budget.add_down(size)
        self._down += size

    # what is known of the request

    def asked(self, request: ProxyRequest) -> None:
        self._method, self._url = request.method, shown_target(request.target)

    def asked_host(self, host: str) -> None:
        self._host = host

    def answered(self, status: int) -> None:
        self._status = status

    # decisions

    def connected(self, address: str) -> None:
        """Allowed, over a connection to this address. A request that is sent again, on a new connection, is told once."""
        self._address = address
        self._decide("allowed")

    def deny(self, exc: EgressError) -> None:
        """The guard refused, or nothing could be reached."""
        self._host = exc.host
        if isinstance(exc, EgressUnreachableError):
            decision: Decision = "unreachable"
        else:
            decision = "aborted" if self._rules.is_aborted(exc.host) else "refused"
        self._decide(decision, exc.code.value, exc.rule, exc.block)

    def refuse(self, code: str, rule: str) -> None:
        """Refused by the proxy itself."""
        self._decide("refused", code, rule)

    def end(self, outcome: Outcome) -> None:
        """The connection is over. Tells the end of an allowed request, and the decision where there was none before."""
        if outcome in ("cancelled", "idle") and self._budget.used_up is not None:
            outcome = "limit"
        if self._decision == "allowed":
            self._tell(
                ProxyEvent(
                    event="end",
                    number=self._number,
                    at=_now(),
                    client=self._client,
                    method=self._method,
                    url=self._url,
                    host=self._host,
                    decision="allowed",
                    address=self._address,
                    status=self._status,
                    bytes_up=self._up,
                    bytes_down=self._down,
                    seconds=round(trio.current_time() - self._begun, 3),
                    outcome=outcome,
                )
            )
        elif outcome == "limit":
            self.refuse(LIMIT, self._budget.used_up or "connection")
        elif self._method:
            self._decide("unreachable", EgressCode.CONNECT_FAILED.value, f"ended before a connection ({outcome})")
        elif self._up:
            self.refuse(MALFORMED, "an unfinished head")

    def _decide(self, decision: Decision, code: str | None = None, rule: str | None = None, block: str | None = None) -> None:
        if self._decision is None:
            self._decision = decision
            self._tell(
                ProxyEvent(
                    event="decision",
                    number=self._number,
                    at=_now(),
                    client=self._client,
                    method=self._method,
                    url=self._url,
                    host=self._host,
                    decision=decision,
                    code=code,
                    rule=rule,
                    block=block,
                    address=self._address,
                )
            )
