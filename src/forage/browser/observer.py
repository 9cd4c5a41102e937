"""The browser's events of one page, put together to requests: one hop after the other, over all sessions (pure).

Owns which events belong to one request, and which requests are in flight. Request numbers are unique in a browser, so the request of a
frame in its own process may begin in the session of its parent and end in its own. The number of requests kept is bounded, as pages are
hostile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from forage.browser.cdp import JsonObject
from forage.browser.request_log import RequestOutcome
from forage.browser.wording import clock_of, initiator_of, instant, text_of

__all__ = ["Hop", "RequestObserver"]

_NOT_REQUESTS: Final = ("data:", "blob:", "about:", "javascript:", "filesystem:", "chrome:", "chrome-error:", "devtools:")
# Open for as long as the page is, or nobody's business: they keep no page from being idle.
_NEVER_AWAITED: Final = frozenset(["EventSource", "WebSocket", "WebTransport", "Ping"])

_MOST_CHARACTERS: Final = 32 * 1024 * 1024  # of all URLs; one may have 2 Mi


class Hop:
    """One hop as far as it is known. ``ended`` and ``failure`` are set once; what comes later about the same hop is an echo."""

    __slots__ = (
        "blocked",
        "body_bytes",
        "ended",
        "failure",
        "frame",
        "from_cache",
        "from_service_worker",
        "index",
        "initiator",
        "method",
        "mime_type",
        "protocol",
        "redirect_url",
        "refused",
        "request_id",
        "resource_type",
        "session",
        "session_id",
        "started",
        "started_at",
        "status",
        "status_text",
        "url",
    )

    def __init__(self, request_id: str, index: int, url: str, method: str, session: str, session_id: str) -> None:
        self.request_id = request_id
        self.index = index
        self.url = url
        self.method = method
        self.session = session
        self.session_id = session_id
        self.frame = ""
        self.resource_type: str | None = None
        self.initiator: str | None = None
        self.status: int | None = None
        self.status_text = ""
        self.mime_type = ""
        self.protocol = ""
        self.body_bytes: int | None = None
        self.failure: str | None = None
        self.blocked: str | None = None
        self.refused: RequestOutcome | None = None
        self.from_cache = False
        self.from_service_worker = False
        self.started: float | None = None
        self.started_at: str | None = None
        self.ended: float | None = None
        self.redirect_url = ""


class RequestObserver:
    """Feed it events of the Network domain. ``most`` requests are kept; ``overflow`` is true once there were more."""

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._room = _MOST_CHARACTERS
        self.hops: list[Hop] = []
        self._latest: dict[str, Hop] = {}
        self._in_flight: dict[str, str] = {}
        self._arrived: Counter[tuple[str, str]] = Counter()
        self.overflow = False
        self._take: dict[str, Callable[[JsonObject, str, str], None]] = {
            "Network.requestWillBeSent": self._sent,
            "Network.requestServedFromCache": self._from_memory,
            "Network.responseReceived": self._received,
            "Network.loadingFinished": self._finished,
            "Network.loadingFailed": self._failed,
            "Network.webSocketCreated": self._socket_created,
            "Network.webSocketHandshakeResponseReceived": self._socket_answered,
            "Network.webSocketFrameError": self._socket_failed,
            "Network.webTransportCreated": self._transport_created,
            "Network.webTransportConnectionEstablished": self._transport_open,
        }

    @property
    def in_flight(self) -> int:
        """Requests that have begun and not ended, those left out that never need to end."""
        return len(self._in_flight)

    def observe(self, method: str, params: JsonObject, kind: str, session: str) -> bool:
        """Take in one event of a session of this ``kind``; True when it was about requests."""
        take = self._take.get(method)
        if take is None:
            return False
        take(params, kind, session)
        return True

    def latest(self, request_id: str) -> Hop | None:
        """The last hop of a request."""
        return self._latest.get(request_id)

    def of(self, request_id: str) -> Iterator[Hop]:
        return (hop for hop in self.hops if hop.request_id == request_id)

    def arrived(self, method: str, url: str) -> None:
        """The guard has passed on a whole answer. The browser tells of the end of a fetch once the page has read it, so maybe never."""
        awaited = (self._latest.get(request) for request in self._in_flight)
        hop = next((hop for hop in awaited if hop is not None and (hop.method, hop.url) == (method, url)), None)
        if hop is None:
            self._arrived[method, url] += 1
        else:
            del self._in_flight[hop.request_id]

    def end_session(self, session: str) -> None:
        """A frame or worker is gone: nothing more will be heard of what it was waiting for."""
        for request_id in [request for request, owner in self._in_flight.items() if owner == session]:
            del self._in_flight[request_id]

    def _begin(self, request_id: str, index: int, url: str, method: str, kind: str, session: str) -> Hop | None:
        if url.startswith(_NOT_REQUESTS):
            return None
        self._room -= len(url)
        if len(self.hops) >= self._most or self._room < 0:
            self.overflow = True
            return None
        hop = Hop(request_id, index, url, method, kind, session)
        self.hops.append(hop)
        self._latest[request_id] = hop
        return hop

    # requests

    def _sent(self, params: JsonObject, kind: str, session: str) -> None:
        request_id, request = text_of(params, "requestId"), params.get("request")
        if not request_id or not isinstance(request, dict):
            return
        url, method = text_of(request, "url"), text_of(request, "method")
        previous = self._latest.get(request_id)
        index = 0
        if previous is not None:
            redirect = params.get("redirectResponse")
            if not isinstance(redirect, dict):
                return  # the same request, told by a second session
            self._answer(previous, redirect)
            previous.redirect_url = url
            previous.ended = previous.ended or clock_of(params)
            index = previous.index + 1
        hop = self._begin(request_id, index, url, method, kind, session)
        if hop is None:
            return
        hop.resource_type = text_of(params, "type") or (None if previous is None else previous.resource_type)
        hop.initiator = initiator_of(params.get("initiator"))
        hop.frame = text_of(params, "frameId")
        hop.started, hop.started_at = clock_of(params), instant(clock_of(params, "wallTime"))
        if self._arrived[method, url]:
            self._arrived[method, url] -= 1  # the two logs are not heard in step
        elif hop.resource_type not in _NEVER_AWAITED:
            self._in_flight[request_id] = session

    def _from_memory(self, params: JsonObject, kind: str, session: str) -> None:
        if (hop := self._latest.get(text_of(params, "requestId"))) is not None:
            hop.from_cache = True

    def _received(self, params: JsonObject, kind: str, session: str) -> None:
        hop, response = self._latest.get(text_of(params, "requestId")), params.get("response")
        if hop is None or not isinstance(response, dict):
            return
        if text_of(response, "url").startswith("chrome-error:"):
            return  # the browser's own page about a failure
        self._answer(hop, response)
        hop.resource_type = hop.resource_type or text_of(params, "type") or None
        if hop.resource_type in _NEVER_AWAITED:
            self._in_flight.pop(hop.request_id, None)

    def _answer(self, hop: Hop, response: JsonObject) -> None:
        status = response.get("status")
        if isinstance(status, int) and hop.status is None:
            hop.status = status
        hop.status_text = text_of(response, "statusText")
        hop.mime_type = text_of(response, "mimeType")
        hop.protocol = text_of(response, "protocol")
        hop.from_cache = hop.from_cache or response.get("fromDiskCache") is True or response.get("fromPrefetchCache") is True
        hop.from_service_worker = response.get("fromServiceWorker") is True

    def _finished(self, params: JsonObject, kind: str, session: str) -> None:
        request_id = text_of(params, "requestId")
        self._in_flight.pop(request_id, None)
        hop = self._latest.get(request_id)
        if hop is not None and hop.ended is None:
            hop.ended = clock_of(params)
            size: Any = params.get("encodedDataLength")
            hop.body_bytes = int(size) if isinstance(size, (int, float)) and size >= 0 else None

    def _failed(self, params: JsonObject, kind: str, session: str) -> None:
        request_id = text_of(params, "requestId")
        self._in_flight.pop(request_id, None)
        hop = self._latest.get(request_id)
        if hop is None or hop.failure is not None:
            return
        hop.failure = text_of(params, "errorText") or "failed"
        hop.blocked = text_of(params, "blockedReason") or None
        cors = params.get("corsErrorStatus")
        if isinstance(cors, dict):
            hop.failure = f"{hop.failure} ({text_of(cors, 'corsError')})"
        hop.ended = hop.ended or clock_of(params)

    # sockets

    def _socket_created(self, params: JsonObject, kind: str, session: str) -> None:
        self._socket(text_of(params, "requestId"), params, kind, session, "WebSocket")

    def _transport_created(self, params: JsonObject, kind: str, session: str) -> None:
        self._socket(text_of(params, "transportId"), params, kind, session, "WebTransport")

    def _socket(self, request_id: str, params: JsonObject, kind: str, session: str, resource_type: str) -> None:
        if not request_id or request_id in self._latest:
            return
        hop = self._begin(request_id, 0, text_of(params, "url"), "GET", kind, session)
        if hop is not None:
            hop.resource_type = resource_type
            hop.initiator = initiator_of(params.get("initiator"))

    def _socket_answered(self, params: JsonObject, kind: str, session: str) -> None:
        hop, response = self._latest.get(text_of(params, "requestId")), params.get("response")
        if hop is not None and isinstance(response, dict):
            self._answer(hop, response)

    def _transport_open(self, params: JsonObject, kind: str, session: str) -> None:
        if (hop := self._latest.get(text_of(params, "transportId"))) is not None:
            hop.status = 200

    def _socket_failed(self, params: JsonObject, kind: str, session: str) -> None:
        if (hop := self._latest.get(text_of(params, "requestId"))) is not None and hop.failure is None:
            hop.failure = text_of(params, "errorMessage")[:200] or "failed"
