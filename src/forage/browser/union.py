"""The guard's log and the browser's, made one (pure).

Owns which decision of the guard belongs to which request that the browser told of. For http the guard knows method and URL, and each of
its entries explains one request. For everything in a tunnel it knows host and port; a tunnel is explained by any request to that place.
What the guard saw and nothing explains is an entry of its own: a page made the browser ask for something past everything that it tells.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs
from ada_url import URL

from forage.browser.observer import Hop
from forage.browser.request_log import RequestEntry, RequestOutcome, Viewport

if TYPE_CHECKING:
    from forage.egress import ProxyEvent

__all__ = ["NamedRequest", "unite"]

_DEFAULT_PORTS: Final = {"http:": "80", "ws:": "80", "https:": "443", "wss:": "443"}
_BY_US: Final = "inspector"  # the browser's reason for a request that its interception failed
_LONGEST_TOLD: Final = 16_384  # the guard's events hold no longer URL
_OF_DECISION: Final[Mapping[str, RequestOutcome]] = {
    "refused": RequestOutcome.REFUSED,
    "aborted": RequestOutcome.ABORTED,
    "unreachable": RequestOutcome.UNREACHABLE,
}


@attrs.frozen(kw_only=True)
class NamedRequest:
    """A request that was seen at the browser's own interception only, or that only the document names."""

    method: str
    url: str
    resource_type: str | None
    outcome: RequestOutcome


def unite(
    hops: Sequence[Hop],
    events: Sequence[ProxyEvent],
    named: Iterable[NamedRequest] = (),
    *,
    document: str | None = None,
    viewport: Viewport | None = None,
) -> tuple[RequestEntry, ...]:
    """All requests of a page, those that the browser told of first, in its order. ``named`` adds those that it does not tell of.

    ``document`` is the request of the navigation itself.
    """
    _mark_overtaken(hops, document)
    guard = _GuardLog(events)
    names = {(request.method, request.url): request for request in named}
    for hop in hops:
        request = names.get((hop.method, hop.url))
        if request is not None and hop.blocked == _BY_US and request.outcome is not RequestOutcome.OPEN:
            hop.refused = hop.refused or request.outcome
    entries = [_entry(hop, guard.take(hop), document) for hop in hops]
    known = {(entry.method, entry.url) for entry in entries}
    unknown = [request for key, request in names.items() if key not in known]
    entries += [_named(request, guard.take_named(request)) for request in unknown]
    entries += [_of_guard(event, guard.end_of(event)) for event in guard.left()]
    return tuple(attrs.evolve(entry, number=number, viewport=viewport) for number, entry in enumerate(entries, 1))


def _mark_overtaken(hops: Sequence[Hop], document: str | None) -> None:
    """Attempts to leave that the page gave up for the next one before they came to where they are refused.

    The browser tells of them as failed requests of the root frame. One that was made for all that is in the guard's log, and stays there.
    """
    root = next((hop.frame for hop in hops if hop.request_id == document), "")
    for hop in hops:
        leaves = root and hop.frame == root and hop.resource_type == "Document" and hop.request_id != document
        if leaves and hop.refused is None and hop.status is None:
            hop.refused = RequestOutcome.NAVIGATION


def _authority(url: str) -> str | None:
    """``host:port`` of what goes through a tunnel; None for what does not."""
    try:
        parsed = URL(url)
    except ValueError:
        return None
    if parsed.protocol not in _DEFAULT_PORTS or parsed.protocol == "http:":
        return None
    return f"{parsed.hostname}:{parsed.port or _DEFAULT_PORTS[parsed.protocol]}"


class _GuardLog:
    """Decisions of the guard, each explained at most once; tunnels as often as they like."""

    def __init__(self, events: Sequence[ProxyEvent]) -> None:
        self._ends = {event.number: event for event in events if event.event == "end"}
        self._requests: dict[tuple[str, str], deque[ProxyEvent]] = defaultdict(deque)
        self._tunnels: dict[str, list[ProxyEvent]] = defaultdict(list)
        self._explained: set[str] = set()
        for event in events:
            if event.event != "decision" or not event.method:
                continue
            if event.method == "CONNECT":
                self._tunnels[event.url].append(event)
            else:
                self._requests[event.method, event.url].append(event)

    def end_of(self, event: ProxyEvent) -> ProxyEvent | None:
        return self._ends.get(event.number)

    def take(self, hop: Hop) -> ProxyEvent | None:
        """The decision about a request; None for one that never came to the guard, and so explains nothing that did."""
        if hop.from_cache or hop.blocked is not None or hop.refused is not None:
            return None
        authority = _authority(hop.url)
        if authority is not None:
            return self._tunnel(authority)
        waiting = self._requests.get((hop.method, _without_userinfo(hop.url)[:_LONGEST_TOLD]))
        return waiting.popleft() if waiting else None

    def take_named(self, request: NamedRequest) -> ProxyEvent | None:
        authority = _authority(request.url)
        return None if authority is None else self._tunnel(authority)

    def _tunnel(self, authority: str) -> ProxyEvent | None:
        tunnels = self._tunnels.get(authority)
        if not tunnels:
            return None
        self._explained.add(authority)
        # One that was let through says that the request may have left, whatever became of the others.
        return next((event for event in tunnels if event.decision == "allowed"), tunnels[0])

    def left(self) -> list[ProxyEvent]:
        """Decisions that nothing explains, in their order. Refused connections that sent no request are none."""
        unexplained = [event for waiting in self._requests.values() for event in waiting]
        for authority, tunnels in self._tunnels.items():
            if authority not in self._explained:
                unexplained += tunnels
        return sorted(unexplained, key=lambda event: event.number)


def _without_userinfo(url: str) -> str:
    if "@" not in url.partition("//")[2].partition("/")[0]:
        return url
    scheme, slashes, rest = url.partition("//")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{authority.rpartition('@')[2]}{slash}{path}"


def _outcome(hop: Hop, event: ProxyEvent | None) -> RequestOutcome:
    if hop.refused is not None:
        return hop.refused
    if event is not None and event.decision in _OF_DECISION:
        return _OF_DECISION[event.decision]
    if hop.status is not None:
        return RequestOutcome.ANSWERED
    if hop.blocked is not None:
        return RequestOutcome.BLOCKED
    return RequestOutcome.OPEN if hop.failure is None else RequestOutcome.FAILED


def _entry(hop: Hop, event: ProxyEvent | None, document: str | None) -> RequestEntry:
    took = None if hop.started is None or hop.ended is None else round(max(0.0, hop.ended - hop.started), 6)
    entry = RequestEntry(
        number=0,
        url=hop.url,
        method=hop.method,
        resource_type=hop.resource_type,
        outcome=_outcome(hop, event),
        hop=hop.index,
        request_id=hop.request_id,
        document=hop.index == 0 and hop.request_id == document,
        session=hop.session,
        initiator=hop.initiator,
        status=hop.status,
        status_text=hop.status_text,
        mime_type=hop.mime_type,
        protocol=hop.protocol,
        body_bytes=hop.body_bytes,
        failure=hop.failure,
        blocked=hop.blocked,
        from_cache=hop.from_cache,
        from_service_worker=hop.from_service_worker,
        in_browser=True,
        started_at=hop.started_at,
        seconds=took,
        redirect_url=hop.redirect_url,
    )
    return _decided(entry, event)


def _decided(entry: RequestEntry, event: ProxyEvent | None) -> RequestEntry:
    if event is None:
        return entry
    return attrs.evolve(entry, at_guard=True, decision=event.decision, code=event.code, rule=event.rule, address=event.address)


def _named(request: NamedRequest, event: ProxyEvent | None) -> RequestEntry:
    entry = RequestEntry(
        number=0,
        url=request.url,
        method=request.method,
        resource_type=request.resource_type,
        outcome=request.outcome,
        in_browser=True,
    )
    return _decided(entry, event)


def _of_guard(event: ProxyEvent, end: ProxyEvent | None) -> RequestEntry:
    outcome = _OF_DECISION.get(event.decision)
    if outcome is None:
        outcome = RequestOutcome.OPEN if end is None else RequestOutcome.ANSWERED if end.status is not None else RequestOutcome.FAILED
    entry = RequestEntry(
        number=0,
        url=event.url,
        method=event.method,
        outcome=outcome,
        session="guard",
        status=None if end is None else end.status,
        started_at=event.at,
        seconds=None if end is None else end.seconds,
    )
    return _decided(entry, event)
