"""httpx and httpx2 under the guard: one suite for both libraries."""

from __future__ import annotations

import gzip
import logging
import operator
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from types import ModuleType
from typing import Any

import httpx
import httpx2
import pytest
import trio

from forage.egress import EgressPolicy, GuardedTransport, guarded_client
from forage.egress.seam import bind
from forage.errors import (
    EgressCode,
    EgressDeniedError,
    EgressUnreachableError,
    FetchError,
    FetchErrorKind,
    InvalidPolicyError,
    ResponseTooLargeError,
)
from tests.support.corpus_network import SuccessiveAnswers
from tests.support.dialer import MappingDialer
from tests.support.raw_server import Answer, RawServer, Responder, Routes, open_raw_server, page

FOUR, OTHER = "93.184.216.34", "93.184.216.35"
URL = "http://a.example/"
NAMES = {name: [[FOUR]] for name in ("a.example", "1.2.3z4", "xn--n3h.example")} | {"b.example": [[OTHER]]}


@pytest.fixture(params=[httpx, httpx2], ids=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> ModuleType:
    module: ModuleType = request.param
    return module


class Setting:
    """A client of the library over a server that plays both addresses."""

    def __init__(self, library: ModuleType, server: RawServer, policy: EgressPolicy, options: dict[str, Any]) -> None:
        self.server = server
        self.resolver = SuccessiveAnswers(NAMES)
        self.dialer = MappingDialer({FOUR: server.place, OTHER: server.place})
        make: Any = guarded_client if library is httpx else bind(library)[1]
        self.client: Any = make(policy, resolver=self.resolver, dialer=self.dialer, **options)

    @property
    def targets(self) -> list[str]:
        return [request.target for request in self.server.requests]


@asynccontextmanager
async def opened(
    library: ModuleType, routes: Routes | Responder, *, redirect_hosts: Any = "same-host", **options: Any
) -> AsyncIterator[Setting]:
    async with open_raw_server(routes) as server:
        setting = Setting(library, server, EgressPolicy(redirect_hosts=redirect_hosts, max_answer_ttl=0.0), options)
        async with setting.client:
            yield setting


PACKED = gzip.compress(b'{"a": 1}')
JSON = page(PACKED, headers=[("Content-Type", "application/json"), ("Content-Encoding", "gzip"), ("X-A", "1"), ("x-a", "2")])


async def test_a_whole_response_is_decoded_once_and_has_the_headers_received(library: ModuleType) -> None:
    async with opened(library, {"/": [JSON]}) as setting:
        response = await setting.client.get(URL)
    assert isinstance(response, library.Response)
    assert (response.status_code, response.json(), response.http_version, response.reason_phrase) == (200, {"a": 1}, "HTTP/1.1", "OK")
    assert response.headers["content-encoding"] == "gzip"
    assert response.headers.get_list("x-a") == ["1", "2"]
    assert str(response.url) == URL
    assert (response.is_closed, response.history) == (True, [])
    assert response.elapsed.total_seconds() >= 0
    response.raise_for_status()


async def test_capture_facts_ride_on_the_response(library: ModuleType) -> None:
    async with opened(library, {"/": [JSON]}) as setting:
        capture = (await setting.client.get(URL)).extensions["forage.capture"]
    assert (capture["url"], capture["answers"], capture["tried"], capture["connected"]) == (URL, (FOUR,), (FOUR,), FOUR)
    assert capture["headers"][1] == (b"Content-Encoding", b"gzip")
    assert capture["encoded_bytes"] == len(PACKED)
    assert {"look-up", "connect", "head", "body"} == set(capture["timings"])
    assert len(list(capture)) == len(capture) == len(dict(capture))
    with pytest.raises(KeyError):
        capture["target"]


async def test_a_streamed_body_is_decoded_and_says_nothing_of_its_coding(library: ModuleType) -> None:
    async with opened(library, {"/": [JSON]}) as setting:
        async with setting.client.stream("GET", URL) as response:
            assert "content-encoding" not in response.headers
            assert "content-length" not in response.headers
            assert response.headers["x-a"] == "1, 2"
            assert b"".join([piece async for piece in response.aiter_bytes()]) == b'{"a": 1}'
            assert (b"Content-Encoding", b"gzip") in response.extensions["forage.capture"]["headers"]
        async with setting.client.stream("GET", URL) as response:
            assert [line async for line in response.aiter_lines()] == ['{"a": 1}']
        assert setting.server.connections == 1


async def test_leaving_a_stream_early_ends_its_connection(library: ModuleType) -> None:
    endless = Answer(steps=(b"HTTP/1.1 200 OK\r\n\r\nhello",), end="hang")
    async with opened(library, {"/": [endless, page()]}) as setting:
        async with setting.client.stream("GET", URL) as response, aclosing(response.aiter_raw()) as pieces:
            assert await anext(pieces) == b"hello"
        await setting.client.get(URL)
        assert setting.server.connections == 2


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("http:a.example/", EgressCode.INVALID_URL),
        ("http:///a.example/", EgressCode.INVALID_URL),
        ("http:\\\\a.example/", EgressCode.INVALID_URL),
        ("http://a.example\\@b.example/", EgressCode.INVALID_URL),
        ("http://a.exam\tple/", EgressCode.INVALID_URL),
        ("http://\ud800.example/", EgressCode.INVALID_URL),
        ("http://u:p@a.example/", EgressCode.CREDENTIALS),
        ("http://a%2eexample/", EgressCode.INVALID_HOST),
        ("http://0x7f.1/", EgressCode.INVALID_HOST),
        ("http://127.0.0.1/", EgressCode.DENIED_ADDRESS),
        ("http://[::ffff:10.0.0.1]/", EgressCode.DENIED_ADDRESS),
        ("http://localhost/", EgressCode.DENIED_HOST),
        ("http://a.example:8080/", EgressCode.INVALID_PORT),
        ("ws://a.example/", EgressCode.INVALID_SCHEME),
        ("/relative", EgressCode.INVALID_URL),
    ],
)
async def test_the_raw_text_is_judged_before_the_library_sees_it(library: ModuleType, text: str, code: EgressCode) -> None:
    async with opened(library, {}) as setting:
        with pytest.raises(EgressDeniedError) as caught:
            await setting.client.get(text)
        assert caught.value.code is code
        assert (setting.resolver.asked, setting.dialer.dialled) == ([], [])


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (" http://A.example:80/a|b?c=[d]&e='f'#g ", "/a|b?c=[d]&e=%27f%27"),
        ("http://a.example/%zz/../b\\c", "/b/c"),
        ("http://a.example", "/"),
        ("http://a.example/\u00e9", "/%C3%A9"),
        ("http://\uff41.example/x", "/x"),
    ],
)
async def test_what_is_sent_is_the_judged_url_not_the_librarys(library: ModuleType, text: str, target: str) -> None:
    async with opened(library, lambda _: page()) as setting:
        await setting.client.get(text)
        assert setting.targets == [target]
        assert setting.server.requests[0].header("host") == "a.example"


@pytest.mark.parametrize("host", ["1.2.3z4", "xn--n3h.example"])
async def test_names_that_the_library_cannot_hold_are_reached(library: ModuleType, host: str) -> None:
    async with opened(library, lambda _: page()) as setting:
        response = await setting.client.get(f"http://{host}/")
        assert (response.status_code, response.extensions["forage.capture"]["url"]) == (200, f"http://{host}/")
        assert setting.server.requests[0].header("host") == host
        await setting.client.send(setting.client.build_request("GET", f"http://{host}/"))


async def test_url_objects_and_params(library: ModuleType) -> None:
    async with opened(library, lambda _: page()) as setting:
        await setting.client.get(library.URL("http://a.example/x?y=1"))
        await setting.client.get("http://a.example/x?y=1", params={"q": "a b", "r": ["1", "2"]})
        await setting.client.get("http://a.example/x?y=1", params={})
        assert setting.targets == ["/x?y=1", "/x?q=a+b&r=1&r=2", "/x"]


async def test_a_request_built_by_hand_or_changed_after_is_judged_when_sent(library: ModuleType) -> None:
    async with opened(library, lambda _: page()) as setting:
        await setting.client.send(library.Request("GET", "http://a.example/by-hand"))
        request = setting.client.build_request("GET", URL)
        request.url = library.URL("http://10.0.0.1/")
        with pytest.raises(EgressDeniedError):
            await setting.client.send(request)
        with pytest.raises(EgressDeniedError):
            await setting.client.send(library.Request("GET", "http://localhost/"))
        assert setting.targets == ["/by-hand"]


MOVED = page(b"moved", status="302 Found", headers=[("Location", "/end?q")])


@pytest.mark.parametrize("option", [{}, {"follow_redirects": True}])
async def test_redirects_are_followed_by_the_guard(library: ModuleType, option: dict[str, bool]) -> None:
    async with opened(library, {"/": [MOVED], "/end?q": [page(b"end")]}) as setting:
        response = await setting.client.get(URL, **option)
        assert (response.status_code, response.text, str(response.url)) == (200, "end", "http://a.example/end?q")
        assert [str(hop.url) for hop in response.history] == [URL]
        assert (response.history[0].status_code, response.history[0].content) == (302, b"")
        assert response.request.headers["host"] == "a.example"
        assert setting.resolver.asked == ["a.example"] * 2, "each hop is looked up anew"


async def test_a_redirect_can_be_had_as_it_is(library: ModuleType) -> None:
    async with opened(library, {"/": [MOVED]}) as setting:
        response = await setting.client.get(URL, follow_redirects=False)
        assert (response.status_code, response.content, response.headers["location"]) == (302, b"moved", "/end?q")
        assert setting.targets == ["/"]


@pytest.mark.parametrize(
    ("location", "code"),
    [
        ("http://b.example/", EgressCode.REDIRECT_CROSS_HOST),
        ("http://169.254.169.254/", EgressCode.REDIRECT_CROSS_HOST),
        ("http://a.example/", EgressCode.REDIRECT_LOOP),
        ("file:///etc/passwd", EgressCode.INVALID_SCHEME),
        ("http://[bad", EgressCode.REDIRECT_INVALID),
    ],
)
async def test_redirects_that_are_refused(library: ModuleType, location: str, code: EgressCode) -> None:
    async with opened(library, {"/": [page(status="302 F", headers=[("Location", location)])]}) as setting:
        for option in ({}, {"follow_redirects": True}):
            with pytest.raises(EgressDeniedError) as caught:
                await setting.client.get(URL, **option)
            assert caught.value.code is code
        assert {address for address, _ in setting.dialer.dialled} == {FOUR}


async def test_credentials_do_not_follow_to_another_host_and_do_not_come_back(library: ModuleType) -> None:
    hops = {
        "/": [page(status="302 F", headers=[("Location", "http://b.example/b")])],
        "/b": [page(status="302 F", headers=[("Location", "http://a.example/c")])],
        "/c": [page()],
    }
    async with opened(library, hops, redirect_hosts="any") as setting:
        await setting.client.get(URL, headers={"Authorization": "Bearer x", "Cookie": "k=v", "Accept-Language": "de"})
        seen = [(request.header("authorization"), request.header("cookie")) for request in setting.server.requests]
        assert seen == [("Bearer x", "k=v"), (None, None), (None, None)]
        assert [request.header("accept-language") for request in setting.server.requests] == ["de"] * 3


@pytest.mark.parametrize(("status", "method", "body"), [("303 S", "GET", b""), ("302 F", "GET", b""), ("307 T", "POST", b"x=1")])
async def test_what_a_redirected_post_becomes(library: ModuleType, status: str, method: str, body: bytes) -> None:
    async with opened(library, {"/": [page(status=status, headers=[("Location", "/end")])], "/end": [page()]}) as setting:
        response = await setting.client.post(URL, data={"x": "1"})
        last = setting.server.requests[-1]
        assert (last.method, last.body, response.request.method) == (method, body, method)
        assert (last.header("content-type") is None) is (method == "GET")


async def test_bodies_of_every_form_are_sent_with_a_length(library: ModuleType) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"bc"

    async with opened(library, lambda _: page()) as setting:
        await setting.client.post(URL, content=b"abc")
        await setting.client.post(URL, content=chunks())
        await setting.client.post(URL, json={"a": 1})
        await setting.client.post(URL, files={"f": b"abc"})
        bodies = [request.body for request in setting.server.requests]
        assert bodies[:2] == [b"abc", b"abc"]
        assert bodies[2].replace(b" ", b"") == b'{"a":1}'
        assert b"abc" in bodies[3]
        assert all(request.header("transfer-encoding") is None for request in setting.server.requests)


async def test_there_is_no_cookie_jar(library: ModuleType) -> None:
    async with opened(library, lambda _: page(headers=[("Set-Cookie", "sid=1")])) as setting:
        response = await setting.client.get(URL)
        await setting.client.get(URL)
        assert response.headers["set-cookie"] == "sid=1"
        assert all(request.header("cookie") is None for request in setting.server.requests)
        with pytest.raises(InvalidPolicyError, match="cookies"):
            setting.client.build_request("GET", URL, cookies={"a": "b"})


async def test_credentials_are_headers_or_nothing(library: ModuleType) -> None:
    async with opened(library, lambda _: page()) as setting:
        with pytest.raises(InvalidPolicyError, match="auth"):
            await setting.client.get(URL, auth=("user", "secret"))
        assert setting.targets == []


async def test_the_environment_changes_nothing(library: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / ".netrc").write_text("machine a.example login user password secret")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("HOME", str(tmp_path))
    async with opened(library, lambda _: page()) as setting:
        assert (await setting.client.get(URL)).status_code == 200
        assert setting.dialer.dialled == [(FOUR, 80)]
        assert setting.server.requests[0].header("authorization") is None


async def test_extensions_of_the_caller_are_dropped(library: ModuleType) -> None:
    async with opened(library, lambda _: page()) as setting:
        request = setting.client.build_request("GET", URL, extensions={"sni_hostname": "evil.example", "target": b"/evil", "timeout": {}})
        assert set(request.extensions) == {"timeout", "forage.target"}
        request.extensions["target"] = b"/evil"
        await setting.client.send(request)
        assert setting.targets == ["/"]


async def test_headers_that_only_the_guard_sets(library: ModuleType) -> None:
    headers = {
        "Host": "evil",
        "Connection": "upgrade",
        "Transfer-Encoding": "chunked",
        "Proxy-Authorization": "x",
        "Expect": "100-continue",
    }
    async with opened(library, lambda _: page(), headers={"User-Agent": "mine"}) as setting:
        await setting.client.get(URL, headers=headers)
        (request,) = setting.server.requests
        assert request.header("host") == "a.example"
        assert all(request.header(name.lower()) is None for name in headers if name != "Host")
        assert (request.header("user-agent"), request.header("accept-encoding")) == ("mine", "gzip, br, zstd")
        for bad in ({"X": "a\r\nb: c"}, {"X Y": "1"}, {"Host": "a\nb"}):
            with pytest.raises(EgressDeniedError) as caught:
                await setting.client.get(URL, headers=bad)
            assert caught.value.code is EgressCode.INVALID_HEADER
        assert len(setting.server.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        Answer(steps=(b"SSH-2.0-x\r\n",)),
        Answer(steps=(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",)),
        Answer(steps=(b"HTTP/1.1 200",)),
        Answer(end="reset"),
    ],
)
async def test_a_failure_before_a_head_is_a_failed_connection(library: ModuleType, answer: Answer) -> None:
    async with opened(library, {"/": [answer]}) as setting:
        with pytest.raises(EgressUnreachableError) as caught:
            await setting.client.get(URL)
        assert (caught.value.code, caught.value.host) == (EgressCode.CONNECT_FAILED, "a.example")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(steps=(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",)), FetchErrorKind.INCOMPLETE_BODY),
        (page(b"\x1f\x8bjunk", headers=[("Content-Encoding", "gzip")]), FetchErrorKind.DECODE_ERROR),
        (page(gzip.compress(bytes(2_000)), headers=[("Content-Encoding", "gzip")]), FetchErrorKind.RESPONSE_TOO_LARGE),
        (page(bytes(2_000)), FetchErrorKind.RESPONSE_TOO_LARGE),
    ],
)
async def test_failures_of_the_body_have_a_kind(library: ModuleType, answer: Answer, kind: FetchErrorKind, stream: bool) -> None:
    async with opened(library, {"/": [answer]}, max_body_bytes=1_000) as setting:
        request = setting.client.build_request("GET", URL)
        with pytest.raises(FetchError) as caught:  # noqa: PT012 - the head may come before the failure
            response = await setting.client.send(request, stream=stream)
            async with aclosing(response):
                await response.aread()
        assert (caught.value.kind, caught.value.status) == (kind, 200)


async def test_a_request_body_is_bounded_too(library: ModuleType) -> None:
    async with opened(library, lambda _: page(), max_body_bytes=1_000) as setting:
        with pytest.raises(ResponseTooLargeError):
            await setting.client.post(URL, content=bytes(1_001))


async def test_silence_ends_in_the_librarys_timeout(library: ModuleType) -> None:
    silent = Answer(end="hang")
    stalled = Answer(steps=(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",), end="hang")
    dripping = Answer(steps=(b"HTTP/1.1 200 OK\r\n", 0.2, b"Content-Length: 2\r\n", 0.2, b"\r\nh", 0.2, b"i"), end="keep")
    timeout = library.Timeout(0.3)
    async with opened(library, {"/": [silent], "/stalled": [stalled], "/drip": [dripping]}, timeout=timeout) as setting:
        for path in ("", "stalled"):
            with pytest.raises(library.ReadTimeout):
                await setting.client.get(URL + path)
        async with setting.client.stream("GET", URL + "stalled") as response:
            with pytest.raises(library.ReadTimeout):
                await response.aread()
        assert (await setting.client.get(URL + "drip")).text == "hi"
        with trio.move_on_after(0.5) as scope:
            await setting.client.get(URL, timeout=None)
        assert scope.cancelled_caught


async def test_a_closed_client_says_so(library: ModuleType) -> None:
    async with opened(library, lambda _: page()) as setting:
        client = setting.client
    with pytest.raises(RuntimeError, match="closed"):
        await client.get(URL)


@pytest.mark.parametrize("option", ["proxy", "mounts", "auth", "cookies", "trust_env", "transport", "verify", "base_url", "event_hooks"])
def test_options_that_would_route_or_remember_do_not_exist(library: ModuleType, option: str) -> None:
    with pytest.raises(TypeError):
        bind(library)[1](**{option: None})


async def test_no_url_is_logged(library: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with opened(library, lambda _: page()) as setting:
            await setting.client.get(URL + "?token=secret")
    assert "secret" not in caplog.text
    assert "a.example" not in caplog.text


async def test_a_bare_transport_judges_each_hop_and_logs_no_query(library: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    transport_class = GuardedTransport if library is httpx else bind(library)[0]
    async with open_raw_server(
        {"/?token=secret": [JSON], "/in": [page(status="302 F", headers=[("Location", "http://10.0.0.1/")])]}
    ) as server:
        transport = transport_class(resolver=SuccessiveAnswers(NAMES), dialer=MappingDialer({FOUR: server.place}))
        with caplog.at_level(logging.INFO):
            async with library.AsyncClient(transport=transport, trust_env=False, follow_redirects=True) as client:
                response = await client.get(URL + "?token=secret")
                assert (response.json(), response.headers.get("content-encoding")) == ({"a": 1}, None)
                for url in ("http://localhost/", URL + "in"):
                    with pytest.raises(EgressDeniedError):
                        await client.get(url)
                with pytest.raises(EgressDeniedError):
                    await client.get(URL, headers={"X": "a\r\nb"})
    assert "http://a.example/" in caplog.text
    assert "secret" not in caplog.text
    assert logging.getLogger(library.__name__).filters == []


def test_httpx_is_loaded_by_the_client_alone() -> None:
    script = "import sys, forage.egress; forage.egress.EgressSession; assert not {'httpx', 'httpx2', 'httpcore'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("params", {"q": "1"}),
        ("auth", ("u", "p")),
        ("cookies", {"a": "b"}),
        ("base_url", URL),
        ("event_hooks", {"request": [print]}),
    ],
)
async def test_what_a_client_would_leave_out_in_silence_is_refused_where_it_is_set(library: ModuleType, name: str, value: Any) -> None:
    async with opened(library, {"/": [page()]}) as setting:
        client = setting.client
        with pytest.raises(InvalidPolicyError) as caught:
            setattr(client, name, value)
        assert caught.value.field == name
        setattr(client, name, {} if name == "event_hooks" else None if name != "base_url" else "")
        assert not any(dict(client.event_hooks).values())
        assert (client.auth, str(client.params), str(client.base_url), len(client.cookies)) == (None, "", "", 0)
        assert (await client.get(URL)).status_code == 200
    assert setting.server.requests[-1].target == "/"


async def test_the_jar_and_the_hooks_of_a_client_take_nothing(library: ModuleType) -> None:
    async with opened(library, {"/": [page(headers=[("Set-Cookie", "a=1")])]}) as setting:
        jar = setting.client.cookies
        for put in (lambda: jar.set("k", "v"), lambda: jar.update({"k": "v"}), lambda: operator.setitem(jar, "k", "v")):
            with pytest.raises(InvalidPolicyError) as caught:
                put()
            assert caught.value.field == "cookies"
        with pytest.raises(AttributeError):
            setting.client.event_hooks["request"].append(print)
        with pytest.raises(TypeError):
            setting.client.event_hooks["request"] = [print]
        response = await setting.client.get(URL)
        assert dict(response.cookies) == {"a": "1"}
        assert len(setting.client.cookies) == 0


async def test_a_body_that_trio_cannot_read_is_refused_by_name(library: ModuleType) -> None:
    async def texts() -> AsyncIterator[Any]:
        yield "text"

    async with opened(library, {"/": [page()]}) as setting:
        for content in (iter([b"a", b"b"]), [b"a", b"b"], texts()):
            with pytest.raises(InvalidPolicyError) as caught:
                await setting.client.post(URL, content=content)
            assert caught.value.field == "content"
        assert setting.targets == []


async def test_a_client_that_was_never_made_leaves_no_filter_behind(library: ModuleType) -> None:
    make: Any = guarded_client if library is httpx else bind(library)[1]
    before = list(logging.getLogger(library.__name__).filters)
    for wrong in ({"headers": 5}, {"timeout": "x"}, {"policy": 5}, {"resolver": 5}, {"max_body_bytes": -1}):
        with pytest.raises(InvalidPolicyError):
            make(**wrong)
    assert logging.getLogger(library.__name__).filters == before
