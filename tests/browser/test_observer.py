"""The browser's events of one page, put together to requests."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.browser.observer import RequestObserver


def sent(request_id: str, url: str, method: str = "GET", **members: Any) -> tuple[str, dict[str, Any]]:
    request = {"url": url, "method": method}
    return "Network.requestWillBeSent", {"requestId": request_id, "request": request, "timestamp": 5.0, "wallTime": 1e9, **members}


def observe(*events: tuple[str, dict[str, Any]], kind: str = "page", session: str = "S", most: int = 100) -> RequestObserver:
    observer = RequestObserver(most=most)
    for method, params in events:
        assert observer.observe(method, params, kind, session)
    return observer


def test_a_request_and_its_answer_are_one_hop() -> None:
    observer = observe(
        sent("1", "http://a.test/x", type="Image", initiator={"type": "parser", "url": "http://a.test/"}),
        ("Network.responseReceived", {"requestId": "1", "type": "Image", "response": {"status": 200, "mimeType": "image/png"}}),
        ("Network.loadingFinished", {"requestId": "1", "timestamp": 5.25, "encodedDataLength": 77}),
    )
    (hop,) = observer.hops
    assert (hop.url, hop.method, hop.resource_type, hop.status, hop.mime_type) == ("http://a.test/x", "GET", "Image", 200, "image/png")
    assert (hop.started, hop.ended, hop.body_bytes, hop.started_at) == (5.0, 5.25, 77, "2001-09-09T01:46:40.000Z")
    assert hop.initiator == "parser http://a.test/"
    assert observer.in_flight == 0


def test_a_redirect_is_a_hop_of_its_own_under_one_number() -> None:
    observer = observe(
        sent("1", "http://a.test/1", type="Image"),
        sent("1", "http://a.test/2", type="Image", redirectResponse={"status": 302}, timestamp=6.0),
        sent("1", "http://b.test/3", type="Image", redirectResponse={"status": 307}, timestamp=7.0),
        ("Network.loadingFailed", {"requestId": "1", "errorText": "net::ERR_FAILED"}),
    )
    assert [(hop.index, hop.url, hop.status, hop.redirect_url, hop.failure) for hop in observer.hops] == [
        (0, "http://a.test/1", 302, "http://a.test/2", None),
        (1, "http://a.test/2", 307, "http://b.test/3", None),
        (2, "http://b.test/3", None, "", "net::ERR_FAILED"),
    ]


def test_a_request_that_two_sessions_tell_of_is_one() -> None:
    observer = RequestObserver(most=10)
    observer.observe(*sent("1", "http://a.test/frame", type="Document"), "page", "parent")
    observer.observe(*sent("1", "http://a.test/frame", type="Document"), "frame", "child")
    observer.observe("Network.loadingFinished", {"requestId": "1"}, "frame", "child")
    assert [(hop.session, hop.url) for hop in observer.hops] == [("page", "http://a.test/frame")]
    assert observer.in_flight == 0


@pytest.mark.parametrize("kind", ["EventSource", "Ping"])
def test_what_never_needs_to_end_is_not_waited_for(kind: str) -> None:
    assert observe(sent("1", "http://a.test/x", type=kind)).in_flight == 0


def test_sockets_are_requests_that_nobody_waits_for() -> None:
    observer = observe(
        ("Network.webSocketCreated", {"requestId": "1", "url": "ws://a.test/s", "initiator": {"type": "script"}}),
        ("Network.webSocketHandshakeResponseReceived", {"requestId": "1", "response": {"status": 101}}),
        ("Network.webSocketCreated", {"requestId": "2", "url": "ws://b.test/s"}),
        ("Network.webSocketFrameError", {"requestId": "2", "errorMessage": "refused"}),
        ("Network.webTransportCreated", {"transportId": "3", "url": "https://c.test/t"}),
    )
    assert [(hop.resource_type, hop.url, hop.status, hop.failure) for hop in observer.hops] == [
        ("WebSocket", "ws://a.test/s", 101, None),
        ("WebSocket", "ws://b.test/s", None, "refused"),
        ("WebTransport", "https://c.test/t", None, None),
    ]
    assert observer.in_flight == 0


@pytest.mark.parametrize("url", ["data:image/png,x", "blob:http://a.test/1", "about:srcdoc", "chrome-error://chromewebdata/"])
def test_what_needs_no_network_is_no_request(url: str) -> None:
    observer = observe(sent("1", url))
    assert (observer.hops, observer.in_flight) == ([], 0)


def test_cache_and_workers_are_marked() -> None:
    observer = observe(
        sent("1", "http://a.test/1"),
        ("Network.requestServedFromCache", {"requestId": "1"}),
        sent("2", "http://a.test/2"),
        ("Network.responseReceived", {"requestId": "2", "response": {"status": 200, "fromDiskCache": True}}),
        sent("3", "http://a.test/3"),
        ("Network.responseReceived", {"requestId": "3", "response": {"status": 200, "fromServiceWorker": True}}),
    )
    assert [(hop.from_cache, hop.from_service_worker) for hop in observer.hops] == [(True, False), (True, False), (False, True)]


def test_the_browsers_own_error_page_is_no_answer() -> None:
    observer = observe(
        sent("1", "http://a.test/"),
        ("Network.loadingFailed", {"requestId": "1", "errorText": "net::ERR_EMPTY_RESPONSE"}),
        ("Network.responseReceived", {"requestId": "1", "response": {"url": "chrome-error://chromewebdata/", "status": 200}}),
        ("Network.loadingFinished", {"requestId": "1", "timestamp": 9.0}),
    )
    (hop,) = observer.hops
    assert (hop.status, hop.failure) == (None, "net::ERR_EMPTY_RESPONSE")


def test_a_session_that_ends_takes_its_requests_out_of_flight() -> None:
    observer = observe(sent("1", "http://a.test/1"), sent("2", "http://a.test/2"))
    observer.end_session("S")
    assert observer.in_flight == 0


def test_requests_are_kept_up_to_a_bound() -> None:
    observer = observe(*(sent(str(n), f"http://a.test/{n}") for n in range(5)), most=3)
    assert (len(observer.hops), observer.overflow) == (3, True)


def test_the_length_of_all_urls_is_bounded_too() -> None:
    observer = observe(*(sent(str(n), "http://a.test/" + "x" * 2_000_000) for n in range(20)))
    assert observer.overflow
    assert sum(len(hop.url) for hop in observer.hops) <= 32 * 1024 * 1024


METHODS = st.sampled_from([f"Network.{name}" for name in (
    "requestWillBeSent", "responseReceived", "loadingFinished", "loadingFailed", "requestServedFromCache", "webSocketCreated",
    "webSocketHandshakeResponseReceived", "webSocketFrameError", "webTransportCreated", "webTransportConnectionEstablished",
)])  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["1", "2", "http://a.test/", ""]),
    lambda inner: st.dictionaries(st.sampled_from(["url", "method", "status", "type", "callFrames", "stack"]), inner) | st.lists(inner),
    max_leaves=6,
)
NAMES = ["requestId", "transportId", "request", "response", "redirectResponse", "type", "timestamp", "wallTime", "errorText",
         "initiator", "encodedDataLength", "corsErrorStatus", "url", "blockedReason"]  # fmt: skip


@given(st.lists(st.tuples(METHODS, st.dictionaries(st.sampled_from(NAMES), VALUES)), max_size=12))
def test_events_of_any_form_are_taken_without_harm(events: list[tuple[str, dict[str, Any]]]) -> None:
    observer = observe(*events)
    assert observer.in_flight >= 0
