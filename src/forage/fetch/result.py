"""What goes into a fetch and what comes out: values only (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs
from ada_url import URL

from forage.errors import EgressCode, EgressDeniedError, FetchError, FetchErrorKind, ResponseTooLargeError
from forage.snapshots import Snapshot

if TYPE_CHECKING:
    from forage.egress import CaptureFacts

__all__ = ["FetchFailure", "FetchResult", "Source"]


def _own(value: Any) -> Any:
    """A copy of a mapping; anything else is left for the fetcher to refuse."""
    return MappingProxyType(dict(value)) if isinstance(value, Mapping) else value


@attrs.frozen(kw_only=True)
class Source:
    """One URL to acquire and the id that its snapshots are kept under.

    ``headers`` go to the origin of ``url`` only, never along a redirect to another; they may replace Accept. ``user_agent`` replaces the
    fetcher's. With ``revalidate`` the request is made conditional on the latest snapshot of the store; the server's 304
    then stands for that snapshot. Making one checks nothing: a bad source is a result of kind ``invalid-config`` or ``invalid-url``.
    """

    id: str
    url: str
    headers: Mapping[str, str] = attrs.field(factory=dict, converter=_own, hash=False)
    user_agent: str | None = None
    revalidate: bool = True


@attrs.frozen(kw_only=True)
class FetchFailure:
    """Why there is no snapshot.

    ``status`` is that of the response, where a head was received. ``reason`` is the finer code where there is one: the guard's code,
    ``retry-after-too-long``, or the robots.txt line that denies. ``target`` is the URL of a redirect that was refused; ``retry_after``
    the seconds that the server asked for; ``limit`` the bytes that a response was above. ``page`` is the error page, when the fetcher
    keeps error bodies.
    """

    kind: FetchErrorKind
    message: str
    status: int | None = None
    reason: str | None = None
    target: str | None = None
    retry_after: float | None = None
    limit: int | None = None
    page: Snapshot | None = attrs.field(default=None, repr=False)


@attrs.frozen(kw_only=True)
class FetchResult:
    """The outcome of one acquisition: ``snapshot`` or ``error``.

    ``warnings`` are texts of the form ``code: what happened``, in the order of the events. ``redirects`` are the URLs that were left
    behind, ``last_url`` the one that was asked for last (None where nothing was); ``left_for`` those that a rendered page tried to go
    to by itself, in vain. ``facts`` are those of the last exchange,
    ``raw_headers`` its header lines as received; both are None where no head arrived.
    ``requests`` counts page requests, ``seconds`` is the whole time on trio's clock, waiting included.
    """

    source_id: str
    url: str
    snapshot: Snapshot | None = None
    error: FetchFailure | None = None
    warnings: tuple[str, ...] = ()
    redirects: tuple[str, ...] = ()
    last_url: str | None = None
    left_for: tuple[str, ...] = ()
    facts: CaptureFacts | None = attrs.field(default=None, repr=False)
    raw_headers: tuple[tuple[bytes, bytes], ...] | None = attrs.field(default=None, repr=False)
    requests: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether there is a snapshot."""
        return self.snapshot is not None

    def unwrap(self) -> Snapshot:
        """The snapshot.

        Raises where there is none: `EgressDeniedError` when the guard refused, `ResponseTooLargeError`, or `FetchError` with the kind.
        """
        if self.snapshot is not None:
            return self.snapshot
        error = self.error
        if error is None:
            raise AssertionError("a result has a snapshot or an error")
        code = next((code for code in EgressCode if code.value == error.reason), None)
        if error.kind is FetchErrorKind.EGRESS_DENIED and code is not None:
            raise EgressDeniedError(code, _host_of(error.target or self.url), target=_shown(error.target))
        if error.limit is not None:
            raise ResponseTooLargeError(error.limit)
        raise FetchError(error.kind, error.message, status=error.status)


def _host_of(url: str) -> str | None:
    try:
        return URL(url).hostname or None
    except ValueError:
        return None


def _shown(target: str | None) -> str | None:
    """Origin and path: the part of a target that an exception may carry."""
    return None if target is None else target.partition("#")[0].partition("?")[0]
