"""One acquisition: what is sent, what is followed, what is kept, and what went wrong, in the words of the result."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing

from forage.egress import DnsAnswers, EgressPolicy
from forage.errors import BrowserError, EgressDeniedError, FetchError, FetchErrorKind, InvalidPolicyError, ResponseTooLargeError
from forage.fetch import ClockState, Fetcher, Source, fetch_source
from forage.snapshots import Snapshot, validate_snapshot
from tests.fetch.virtual_site import Routes, html, open_site, redirect
from tests.support.prior_store import PriorStore
from tests.support.virtual_hosts import Trouble, VirtualAnswer

A = "https://site.test/a"
B = "https://site.test/b"
Clock = trio.testing.MockClock


def kept(headers: dict[str, str], body: str = "old", **fields: Any) -> Snapshot:
    digest = hashlib.sha256(body.encode()).hexdigest()
    fields = {"source_id": A, "url": A, "status": 200, "fetched_at": "2026-08-01T00:00:00.000Z", **fields}
    return Snapshot(body=body, body_hash=digest, headers=headers, **fields)


async def test_a_page_becomes_a_durable_snapshot(autojump_clock: Clock) -> None:
    answer = html("é".encode(), ("X-A", "1"), ("X-A", "2"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"))
    async with open_site({A: answer}) as site:
        result = await site.fetcher.fetch(Source(id="page", url=f"{A}#top"))
    snapshot = result.unwrap()
    validate_snapshot(snapshot)
    assert (snapshot.source_id, snapshot.url, snapshot.status) == ("page", f"{A}#top", 200)
    assert (snapshot.body, snapshot.raw_bytes, snapshot.declared_charset) == ("é", "é".encode(), "utf-8")
    assert snapshot.fetched_at == "2026-09-01T00:00:00.000Z"
    assert snapshot.headers == {"content-type": "text/html; charset=utf-8", "x-a": "1, 2", "set-cookie": "a=1,b=2"}
    assert snapshot.redirects is None
    assert (result.ok, result.requests, result.redirects, result.warnings) == (True, 1, (), ())
    assert result.raw_headers is not None
    assert result.raw_headers[1:3] == ((b"X-A", b"1"), (b"X-A", b"2"))
    assert result.facts is not None


async def test_redirects_are_recorded_and_fragments_kept(autojump_clock: Clock) -> None:
    routes = {"http://site.test/a": redirect(A, status=301), A: redirect("/b#part"), B: html()}
    async with open_site(routes) as site:
        result = await site.fetcher.fetch("http://site.test/a#x")
    assert result.unwrap().url == f"{B}#part"
    assert result.unwrap().redirects == result.redirects == ("http://site.test/a#x", A)
    assert result.requests == 3


async def test_a_refused_redirect_carries_its_whole_target(autojump_clock: Clock) -> None:
    async with open_site({A: redirect("https://www.site.test/b?q=secret#f")}) as site:
        result = await site.fetcher.fetch(A)
    error = result.error
    assert error is not None
    assert (error.kind, error.reason) == (FetchErrorKind.EGRESS_DENIED, "REDIRECT_CROSS_HOST")
    assert error.target == "https://www.site.test/b?q=secret#f"
    assert "secret" not in error.message
    assert site.asked == [A]


async def test_a_refused_target_never_carries_credentials(autojump_clock: Clock) -> None:
    async with open_site({A: redirect("https://u:secret@site.test/b?q=1")}) as site:
        result = await site.fetcher.fetch(A)
    assert result.error is not None
    assert result.error.reason == "CREDENTIALS"
    assert "secret" not in repr(result)


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/é?q=1#ü".encode().decode("latin-1"), "https://site.test/%C3%A9?q=1#%C3%BC"),
        ("/\xe9?q=1#x", "https://site.test/%E9?q=1#x"),
    ],
)
async def test_octets_of_a_location_are_read_as_the_guard_reads_them(location: str, target: str, autojump_clock: Clock) -> None:
    routes = {A: redirect(location), target.partition("#")[0]: html()}
    async with open_site(routes) as site:
        assert (await site.fetcher.fetch(A)).unwrap().url == target


@pytest.mark.parametrize(
    ("location", "kind"),
    [
        ("http://[bad", FetchErrorKind.INVALID_URL),
        ("file:///etc/passwd", FetchErrorKind.INVALID_URL),
        ("javascript:alert(1)", FetchErrorKind.INVALID_URL),
        ("http://site.test/a", FetchErrorKind.EGRESS_DENIED),
        ("https://10.0.0.1/", FetchErrorKind.EGRESS_DENIED),
        ("https://u:p@site.test/b", FetchErrorKind.EGRESS_DENIED),
        ("https://site.test:8443/b", FetchErrorKind.EGRESS_DENIED),
        ("/a", FetchErrorKind.TOO_MANY_REDIRECTS),
    ],
)
async def test_redirects_that_are_not_followed(location: str, kind: FetchErrorKind, autojump_clock: Clock) -> None:
    async with open_site({A: redirect(location), B: html()}) as site:
        result = await site.fetcher.fetch(A)
        assert result.error is not None
        assert result.error.kind is kind
        assert site.asked == [A]


async def test_other_hosts_open_by_policy(autojump_clock: Clock) -> None:
    away = "https://www.site.test/"
    async with open_site({A: redirect(away), away: html()}, egress=EgressPolicy(redirect_hosts="same-site")) as site:
        assert (await site.fetcher.fetch(A)).unwrap().url == away


async def test_max_redirects_is_the_fetchers(autojump_clock: Clock) -> None:
    routes = {A: redirect("/1"), "https://site.test/1": redirect("/2"), "https://site.test/2": html()}
    async with open_site(routes, max_redirects=1) as site:
        result = await site.fetcher.fetch(A)
    assert result.error is not None
    assert result.error.kind is FetchErrorKind.TOO_MANY_REDIRECTS
    assert result.redirects == (A,)


async def test_caller_headers_go_to_the_origin_of_the_source_only(autojump_clock: Clock) -> None:
    away = "https://www.site.test/"
    routes = {A: redirect("/b"), B: redirect(away), away: html()}
    source = Source(
        id="s",
        url=A,
        headers={
            "Authorization": "t",
            "accept": "text/plain",
            "If-None-Match": '"x"',
            "User-Agent": "spoof",
            "Cookie": "c=1",
            "Host": "evil",
        },
        user_agent="Kestrel/1",
    )
    async with open_site(routes, egress=EgressPolicy(redirect_hosts="any")) as site:
        assert (await site.fetcher.fetch(source)).ok
        first, second, third = site.headers_of(A), site.headers_of(B), site.headers_of(away)
    assert first["authorization"] == second["authorization"] == "t"
    assert first["user-agent"] == third["user-agent"] == "Kestrel/1"
    assert first["accept"] == third["accept"] == "text/plain"
    assert first["host"] == "site.test"
    assert (first["if-none-match"], first["cookie"], second["cookie"]) == ('"x"', "c=1", "c=1")
    assert "if-none-match" not in second  # it was about the first URL
    assert not {"authorization", "cookie", "if-none-match"} & third.keys()


async def test_defaults_of_a_request(autojump_clock: Clock) -> None:
    async with open_site({A: html()}) as site:
        await site.fetcher.fetch(A)
        sent = site.headers_of(A)
    assert sent["accept-encoding"] == "gzip, br, zstd"
    assert sent["accept"].startswith("text/html")
    assert sent["user-agent"].startswith("forage/")
    assert not {"range", "cookie", "authorization", "referer"} & sent.keys()


async def test_cookies_live_for_one_acquisition_at_one_origin(autojump_clock: Clock) -> None:
    away = "https://www.site.test/"
    routes = {A: redirect("/b", ("Set-Cookie", "s=1; Path=/")), B: redirect(away), away: html()}
    async with open_site(routes, egress=EgressPolicy(redirect_hosts="any")) as site:
        await site.fetcher.fetch(A)
        assert site.headers_of(B)["cookie"] == "s=1"
        assert "cookie" not in site.headers_of(away)
        await site.fetcher.fetch(A)
        assert "cookie" not in site.headers_of(A)
    async with open_site(routes, egress=EgressPolicy(redirect_hosts="any"), cookies=False) as site:
        await site.fetcher.fetch(A)
        assert "cookie" not in site.headers_of(B)


async def test_robots_are_asked_at_each_hop(autojump_clock: Clock) -> None:
    robots = VirtualAnswer(body=b"User-agent: *\nDisallow: /b\n")
    async with open_site({"https://site.test/robots.txt": robots, A: redirect("/b"), B: html()}, obey_robots=True) as site:
        result = await site.fetcher.fetch(A)
        assert result.error is not None
        assert (result.error.kind, result.error.target) == (FetchErrorKind.ROBOTS_DENIED, B)
        assert result.error.reason == "https://site.test/robots.txt line 2: Disallow: /b"
        assert B not in site.asked
        assert (await site.fetcher.fetch(B, obey_robots=False)).ok


async def test_the_group_is_that_of_the_sources_own_agent(autojump_clock: Clock) -> None:
    robots = VirtualAnswer(body=b"User-agent: kestrel\nDisallow: /\n")
    async with open_site({"https://site.test/robots.txt": robots, A: html()}, obey_robots=True) as site:
        assert (await site.fetcher.fetch(A)).ok
        assert not (await site.fetcher.fetch(Source(id="s", url=A, user_agent="Kestrel/2"))).ok


async def test_a_304_stands_for_the_kept_snapshot(autojump_clock: Clock) -> None:
    prior = kept({"etag": '"1"', "last-modified": "x"})
    async with open_site({A: VirtualAnswer(status=304, headers=(("ETag", '"1"'),))}) as site:
        result = await site.fetcher.fetch(A, store=PriorStore(prior))
        sent = site.headers_of(A)
    assert (sent["if-none-match"], sent["if-modified-since"]) == ('"1"', "x")
    snapshot = result.unwrap()
    assert snapshot.not_modified
    assert (snapshot.body, snapshot.fetched_at) == ("old", prior.fetched_at)
    assert result.warnings == ()


async def test_a_304_that_nobody_asked_for_is_an_error(autojump_clock: Clock) -> None:
    routes = {A: VirtualAnswer(status=304), f"{A}?x": VirtualAnswer(status=304)}
    prior = PriorStore(kept({"etag": '"1"'}))
    async with open_site(routes) as site:
        for source, store in (
            (Source(id=A, url=A), None),
            (Source(id=A, url=A, revalidate=False), prior),
            (Source(id=A, url=A, headers={"If-None-Match": '"1"'}), None),
            (Source(id=A, url=f"{A}?x"), prior),
        ):
            result = await site.fetcher.fetch(source, store=store)
            assert result.error is not None
            assert (result.error.kind, result.error.status) == (FetchErrorKind.HTTP_ERROR, 304)


async def test_the_prior_is_used_where_a_redirect_leads_to_its_url(autojump_clock: Clock) -> None:
    routes = {B: redirect("/a"), A: VirtualAnswer(status=304)}
    async with open_site(routes) as site:
        result = await site.fetcher.fetch(Source(id=A, url=B), store=PriorStore(kept({"etag": '"1"'})))
        assert "if-none-match" not in site.headers_of(B)
    assert result.unwrap().not_modified


async def test_a_store_that_fails_costs_a_warning(autojump_clock: Clock) -> None:
    async with open_site({A: html()}) as site:
        result = await site.fetcher.fetch(A, store=PriorStore(None, fails=True))
    assert result.ok
    assert [w.partition(":")[0] for w in result.warnings] == ["revalidate"]


class _BrokenStore(PriorStore):
    """Somebody's store, with a mistake in it."""

    def __init__(self, gives: object) -> None:
        super().__init__(None)
        self._gives = gives

    async def latest(self, source_id: str) -> Any:
        await trio.lowlevel.checkpoint()
        if isinstance(self._gives, Exception):
            raise self._gives
        return self._gives


@pytest.mark.parametrize("gives", [RuntimeError("disk"), KeyError("x"), TypeError(), 5, {"etag": "x"}])
async def test_a_store_with_a_mistake_of_its_own_ends_no_fetch(gives: object, autojump_clock: Clock) -> None:
    async with open_site({A: html()}) as site:
        result = await site.fetcher.fetch(A, store=_BrokenStore(gives))
    assert result.ok
    assert [w.partition(":")[0] for w in result.warnings] == ["revalidate"]
    assert (type(gives).__name__ if isinstance(gives, Exception) else f"it gave {type(gives).__name__}") in result.warnings[0]


@pytest.mark.parametrize(
    "answer",
    [
        VirtualAnswer(headers=(("Content-Length", "2000"),), body=b"x"),
        VirtualAnswer(body=b"x" * 1001),
        VirtualAnswer(headers=(("Content-Encoding", "gzip"),), body=gzip.compress(b"x" * 100_000)),
    ],
)
async def test_too_large_from_every_direction(answer: VirtualAnswer, autojump_clock: Clock) -> None:
    async with open_site({A: answer}) as site:
        result = await site.fetcher.fetch(A, max_response_bytes=1000)
    assert result.error is not None
    assert (result.error.kind, result.error.status, result.error.limit) == (FetchErrorKind.RESPONSE_TOO_LARGE, 200, 1000)
    with pytest.raises(ResponseTooLargeError):
        result.unwrap()


async def test_a_kept_snapshot_above_the_limit_is_too_large_too(autojump_clock: Clock) -> None:
    async with open_site({A: VirtualAnswer(status=304)}, max_response_bytes=2) as site:
        result = await site.fetcher.fetch(A, store=PriorStore(kept({"etag": '"1"'})))
    assert result.error is not None
    assert result.error.kind is FetchErrorKind.RESPONSE_TOO_LARGE


async def test_exactly_the_limit_is_fine(autojump_clock: Clock) -> None:
    async with open_site({A: html(b"12345")}) as site:
        assert (await site.fetcher.fetch(A, max_response_bytes=5)).ok


async def test_retry_after_is_honoured_and_pauses_the_whole_host(autojump_clock: Clock) -> None:
    busy = VirtualAnswer(status=429, headers=(("Retry-After", "30"),))
    async with open_site({A: [busy, html()], B: html()}, retries=1) as site:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(site.fetcher.fetch, A)
            await trio.sleep(1)
            nursery.start_soon(site.fetcher.fetch, "http://site.test/c")  # http and https of one host share the clock
        assert site.starts == [0.0, 30.0, 30.0]
        assert set(site.asked[1:]) == {A, "http://site.test/c"}


async def test_a_retry_after_above_the_limit_fails_and_leaves_the_host_paused(autojump_clock: Clock) -> None:
    busy = VirtualAnswer(status=503, headers=(("Retry-After", "3120"),))
    async with open_site({A: busy, B: html()}, max_retry_wait=120) as site:
        result = await site.fetcher.fetch(A)
        assert result.error is not None
        assert (result.error.kind, result.error.status) == (FetchErrorKind.HTTP_ERROR, 503)
        assert (result.error.reason, result.error.retry_after) == ("retry-after-too-long", 3120.0)
        other = await site.fetcher.fetch(B)
        assert other.error is not None
        assert (other.error.kind, other.error.retry_after, other.requests) == (FetchErrorKind.HOST_PAUSED, 3120.0, 0)
        assert site.asked == [A]
        await trio.sleep(3000)
        assert (await site.fetcher.fetch(B)).ok
        assert trio.current_time() == 3120.0


async def test_back_off_of_a_pressed_host_grows_across_fetches(autojump_clock: Clock) -> None:
    async with open_site({A: [VirtualAnswer(status=429)] * 4 + [html()]}, retries=1) as site:
        for _ in range(3):
            await site.fetcher.fetch(A)
        assert site.starts == [0.0, 0.25, 0.75, 1.75, 3.75]


async def test_retries_are_told_and_counted(autojump_clock: Clock) -> None:
    routes: Routes = {A: [Trouble(kind="reset"), Trouble(kind="timeout"), html()]}
    async with open_site(routes, retries=2, attempt_seconds=5) as site:
        result = await site.fetcher.fetch(A)
    assert result.ok
    assert result.requests == 3
    assert [w.partition(":")[0] for w in result.warnings] == ["retry", "retry"]
    assert site.starts == [0.0, 0.25, 5.75]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Trouble(kind="timeout"), FetchErrorKind.TIMEOUT),
        (Trouble(kind="reset"), FetchErrorKind.NETWORK),
        (Trouble(kind="connect"), FetchErrorKind.NETWORK),
        (Trouble(kind="dns"), FetchErrorKind.NETWORK),
        (Trouble(kind="DENIED_ADDRESS"), FetchErrorKind.EGRESS_DENIED),
        (VirtualAnswer(body=b"x", cut=True), FetchErrorKind.INCOMPLETE_BODY),
        (VirtualAnswer(headers=(("Content-Encoding", "gzip"),), body=b"\x1f\x8b\x08junk"), FetchErrorKind.DECODE_ERROR),
        (VirtualAnswer(headers=(("Bad Name", "x"),)), FetchErrorKind.PROTOCOL),
        (VirtualAnswer(status=404), FetchErrorKind.HTTP_ERROR),
        (VirtualAnswer(status=302), FetchErrorKind.HTTP_ERROR),
        (VirtualAnswer(status=300, headers=(("Location", "/b"),)), FetchErrorKind.HTTP_ERROR),
        (VirtualAnswer(status=999), FetchErrorKind.HTTP_ERROR),
    ],
)
async def test_every_failure_has_its_kind(answer: VirtualAnswer | Trouble, kind: FetchErrorKind, autojump_clock: Clock) -> None:
    async with open_site({A: answer}, retries=0) as site:
        result = await site.fetcher.fetch(A)
    assert result.error is not None
    assert result.error.kind is kind
    assert not result.ok
    if kind is FetchErrorKind.EGRESS_DENIED:
        with pytest.raises(EgressDeniedError) as denied:
            result.unwrap()
        assert (denied.value.code, denied.value.host) == ("DENIED_ADDRESS", "site.test")
    else:
        with pytest.raises(FetchError) as caught:
            result.unwrap()
        assert caught.value.kind is kind


async def test_the_deadline_covers_the_body(autojump_clock: Clock) -> None:
    async with open_site({A: VirtualAnswer(headers=(("Content-Length", "9"),), body=b"x", delay=4)}, retries=0, attempt_seconds=5) as site:
        result = await site.fetcher.fetch(A)
    assert result.error is not None
    assert result.error.status == 200


async def test_silence_can_be_bounded(autojump_clock: Clock) -> None:
    async with open_site({A: VirtualAnswer(delay=4)}, retries=0, attempt_seconds=60, idle_seconds=3) as site:
        result = await site.fetcher.fetch(A)
        assert result.error is not None
        assert (result.error.kind, trio.current_time()) == (FetchErrorKind.TIMEOUT, 3.0)


async def test_error_pages_are_kept_on_request(autojump_clock: Clock) -> None:
    gone = html(b"<p>gone</p>", status=410)
    async with open_site({A: gone}) as site:
        result = await site.fetcher.fetch(A)
        assert result.error is not None
        assert result.error.page is None
    async with open_site({A: gone}, keep_error_bodies=True) as site:
        result = await site.fetcher.fetch(A)
        assert result.error is not None
        assert result.error.page is not None
        assert (result.error.page.status, result.error.page.body) == (410, "<p>gone</p>")
        validate_snapshot(result.error.page)


class Page:
    html = "<p>rendered</p>"
    warnings = ("navigated: away",)
    left_for = ("https://out.test/x",)


class FakeRenderer:
    def __init__(self, *, fails: bool = False, takes: float = 0.0) -> None:
        self.asked: list[str] = []
        self._fails = fails
        self._takes = takes

    async def render(self, url: str) -> Page:
        self.asked.append(url)
        await trio.sleep(self._takes)
        if self._fails:
            raise BrowserError("no browser")
        return Page()


async def test_a_rendered_page_keeps_url_status_and_headers(autojump_clock: Clock) -> None:
    renderer = FakeRenderer()
    async with open_site({A: redirect("/b"), B: html(b"plain")}, render="always", renderer=renderer, delay=1.0) as site:
        result = await site.fetcher.fetch(f"{A}#x")
        assert trio.current_time() == 2.0  # the browser's own request waits for its turn
    snapshot = result.unwrap()
    validate_snapshot(snapshot)
    assert renderer.asked == [A]
    assert (snapshot.url, snapshot.rendered, snapshot.body, snapshot.raw_bytes) == (B, True, "<p>rendered</p>", None)
    assert result.warnings == ("navigated: away",)
    assert result.left_for == ("https://out.test/x",)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"renderer": None}, "render-unavailable"),
        ({"renderer": FakeRenderer(fails=True)}, "render-failed"),
        ({"renderer": FakeRenderer(takes=99), "render_seconds": 5}, "render-failed"),
    ],
)
async def test_without_a_rendered_page_the_plain_one_stays(options: dict[str, Any], code: str, autojump_clock: Clock) -> None:
    async with open_site({A: html(b"plain")}, render="always", **options) as site:
        result = await site.fetcher.fetch(A)
    assert result.unwrap().body == "plain"
    assert [w.partition(":")[0] for w in result.warnings] == [code]


async def test_on_shell_renders_shells_only(autojump_clock: Clock) -> None:
    shell = html(b'<div id="root"></div><script src="/x.js"></script>')
    renderer = FakeRenderer()
    plain = VirtualAnswer(headers=(("Content-Type", "text/plain"),), body=shell.body)
    async with open_site({A: shell, B: html(b"<p>" + b"word " * 100), "https://site.test/t": plain}, renderer=renderer) as site:
        for url in (A, B, "https://site.test/t"):
            assert (await site.fetcher.fetch(url, render="on-shell")).ok
    assert renderer.asked == [A]


async def test_a_rendered_page_above_the_limit_is_too_large(autojump_clock: Clock) -> None:
    async with open_site({A: html(b"x")}, render="always", renderer=FakeRenderer(), max_response_bytes=10) as site:
        result = await site.fetcher.fetch(A)
    assert result.error is not None
    assert result.error.kind is FetchErrorKind.RESPONSE_TOO_LARGE


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (Source(id=" ", url=A), FetchErrorKind.INVALID_CONFIG),
        (Source(id="x" * 1025, url=A), FetchErrorKind.INVALID_CONFIG),
        (Source(id="\ud800", url=A), FetchErrorKind.INVALID_CONFIG),
        (Source(id=5, url=A), FetchErrorKind.INVALID_CONFIG),  # type: ignore[arg-type]  # what callers do
        (Source(id="s", url=A, headers={"A\r\nB": "x"}), FetchErrorKind.INVALID_CONFIG),
        (Source(id="s", url=A, headers={"A": "x\r\nB: y"}), FetchErrorKind.INVALID_CONFIG),
        (Source(id="s", url=A, headers=["A"]), FetchErrorKind.INVALID_CONFIG),
        (Source(id="s", url=A, user_agent="x\r\ny"), FetchErrorKind.INVALID_CONFIG),
        (Source(id="s", url=None), FetchErrorKind.INVALID_URL),  # type: ignore[arg-type]  # what callers do
        (Source(id="s", url="ftp://site.test/"), FetchErrorKind.INVALID_URL),
        (Source(id="s", url="site.test/a"), FetchErrorKind.INVALID_URL),
        (Source(id="s", url="https://site.test/" + "a" * 9000), FetchErrorKind.INVALID_URL),
        (Source(id="s", url="https://u:p@site.test/"), FetchErrorKind.EGRESS_DENIED),
        (Source(id="s", url="https://localhost/"), FetchErrorKind.EGRESS_DENIED),
        (Source(id="s", url="https://site.test:8443/"), FetchErrorKind.EGRESS_DENIED),
    ],
)
async def test_a_bad_source_is_a_result_and_no_request(source: Source, kind: FetchErrorKind, autojump_clock: Clock) -> None:
    async with open_site({}) as site:
        result = await fetch_source(source, fetcher=site.fetcher)
        assert result.error is not None
        assert result.error.kind is kind
        assert site.asked == []


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "10", 2**53])
async def test_a_bad_limit_is_a_result(limit: Any, autojump_clock: Clock) -> None:
    async with open_site({A: html()}) as site:
        result = await fetch_source(A, fetcher=site.fetcher, max_response_bytes=limit)
        assert result.error is not None
        assert result.error.kind is FetchErrorKind.INVALID_CONFIG


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("delay", -1), ("delay", float("nan")), ("delay", "1"), ("per_host", 0), ("retries", "2"), ("attempt_seconds", 0),
        ("idle_seconds", 0), ("user_agent", ""), ("user_agent", "a\nb"), ("robots_on_error", "open"), ("render", True),
        ("max_response_bytes", 0), ("group_by", "net"), ("max_redirects", -1), ("cookies", 1), ("on_wait", 5),
        ("egress", 5), ("egress", {}), ("resolver", 5), ("dialer", object()), ("wire", "x"), ("renderer", 5),
    ],
)  # fmt: skip
async def test_an_invalid_option_names_its_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        Fetcher(**{field: value})
    assert caught.value.field == field
    result = await fetch_source(A, **{field: value}) if field != "max_response_bytes" else await fetch_source(A, max_response_bytes=value)
    assert result.error is not None
    assert result.error.kind is FetchErrorKind.INVALID_CONFIG


@pytest.mark.parametrize("source", [None, 5, b"https://site.test/", [], object(), ("a", "b")])
@pytest.mark.parametrize("options", [{}, {"delay": "x"}])
async def test_a_source_that_is_none_is_a_result(source: Any, options: dict[str, Any]) -> None:
    error = (await fetch_source(source, **options)).error
    assert error is not None
    assert error.kind is FetchErrorKind.INVALID_CONFIG
    assert error.message.partition(":")[0] in ("source", *options)


@pytest.mark.parametrize(
    "call",
    [
        {"fetcher": 5}, {"fetcher": object()}, {"store": 5}, {"store": "snapshots/"}, {"obey_robots": "yes"}, {"render": 5},
        {"source.revalidate": "x"}, {"source.revalidate": None},
    ],
)  # fmt: skip
async def test_an_argument_of_a_wrong_type_is_a_result_that_names_it(call: dict[str, Any], autojump_clock: Clock) -> None:
    ((name, value),) = call.items()
    source = Source(id=A, url=A, revalidate=value) if name == "source.revalidate" else Source(id=A, url=A)
    async with open_site({}) as site:
        rest = {} if name == "source.revalidate" else call
        result = await fetch_source(source, **{"fetcher": site.fetcher, **rest})
        assert site.asked == []
    assert (result.source_id, result.url) == (A, A)
    assert result.error is not None
    assert result.error.kind is FetchErrorKind.INVALID_CONFIG
    assert result.error.message.startswith(f"{name}: takes ")


def test_retries_are_clamped() -> None:
    assert Fetcher(retries=-3).settings.retries == 0
    assert Fetcher(retries=99).settings.retries == 5


async def test_hosts_do_not_wait_for_each_other(autojump_clock: Clock) -> None:
    urls = [f"https://h{number}.test/{page}" for number in range(20) for page in range(3)]
    async with open_site({url: html() for url in urls}, delay=1.0) as site:
        async with trio.open_nursery() as nursery:
            for url in urls:
                nursery.start_soon(site.fetcher.fetch, url)
        assert trio.current_time() == 2.0
        assert len(site.asked) == 60


async def test_hosts_on_one_address_share_a_clock_when_grouped(autojump_clock: Clock) -> None:
    names = {"a.test": ["192.0.3.7", "192.0.3.9"], "b.test": ["192.0.3.7"], "c.test": ["192.0.3.8"], "gone.test": []}
    urls = [f"https://{name}/" for name in names]
    async with open_site({url: html() for url in urls}, names=names, delay=1.0, group_by="address", retries=0) as site:
        async with trio.open_nursery() as nursery:
            for url in urls:
                nursery.start_soon(site.fetcher.fetch, url)
        starts = {request.url: request.at for request in site.hosts.asked}
    assert abs(starts["https://a.test/"] - starts["https://b.test/"]) == 1.0
    assert starts["https://c.test/"] == 0.0


class _MovingResolver:
    """A name whose answers change from look-up to look-up, the last one repeated; all others are at one place."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)

    async def resolve(self, host: str) -> DnsAnswers:
        await trio.lowlevel.checkpoint()
        if host != "evil.test":
            return DnsAnswers(addresses=("192.0.3.34",), ttl=0)
        return DnsAnswers(addresses=tuple(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]), ttl=0)


EVIL, VICTIM = "https://evil.test/", "https://victim.test/"
_HERE, _THERE = ("192.0.3.34",), ("192.0.3.99",)


@pytest.mark.parametrize("answers", [(_HERE, _THERE), (_HERE, _THERE, _HERE, _THERE, _HERE, _THERE)])
async def test_a_site_that_is_elsewhere_than_it_says_pauses_no_other_one(answers: Sequence[Sequence[str]], autojump_clock: Clock) -> None:
    """The look-up for the clock and that of the connection are two: the owner of a name may answer them differently."""
    pressed = VirtualAnswer(status=429, headers=(("Retry-After", "100000"),))
    routes: Routes = {EVIL: pressed, VICTIM: html()}
    async with open_site(routes, resolver=_MovingResolver(*answers), group_by="address", retries=0) as site:
        first = await site.fetcher.fetch(EVIL)
        assert (await site.fetcher.fetch(VICTIM)).ok
        second = await site.fetcher.fetch(EVIL)
    assert first.error is not None
    assert second.error is not None
    assert (first.error.kind, second.error.kind) == (FetchErrorKind.HTTP_ERROR, FetchErrorKind.HOST_PAUSED)
    assert site.asked == [EVIL, VICTIM]


async def test_a_site_that_is_elsewhere_than_it_says_delays_no_other_one(autojump_clock: Clock) -> None:
    slow = VirtualAnswer(body=b"User-agent: *\nCrawl-delay: 50\n")
    routes: Routes = {f"{EVIL}robots.txt": slow, EVIL: html(), VICTIM: html(), f"{VICTIM}b": html()}
    moving = _MovingResolver(_HERE, _THERE, _HERE, _THERE)
    async with open_site(routes, resolver=moving, group_by="address", obey_robots=True) as site:
        for url in (EVIL, VICTIM, f"{VICTIM}b", EVIL):
            assert (await site.fetcher.fetch(url)).ok
        assert trio.current_time() < 101
        pages = [asked.at for asked in site.hosts.asked if asked.url == EVIL]
        assert pages[1] - pages[0] >= 50
        assert max(asked.at for asked in site.hosts.asked if asked.url.startswith(VICTIM)) < 51


async def test_a_host_that_moved_is_grouped_by_its_new_address(autojump_clock: Clock) -> None:
    moving = _MovingResolver(_THERE, _THERE, _HERE)
    async with open_site({EVIL: html(), VICTIM: html()}, resolver=moving, group_by="address", delay=10.0) as site:
        await site.fetcher.fetch(EVIL)
        await site.fetcher.fetch(VICTIM)
        assert site.starts == [0.0, 0.0]
        for url in (EVIL, EVIL, VICTIM):
            await site.fetcher.fetch(url)
        assert site.starts[3] - site.starts[2] == 10.0 or site.starts[4] - site.starts[3] == 10.0
        assert site.starts[4] - site.starts[3] == 10.0


@pytest.mark.parametrize("addresses", [("192.0.3.7", "192.0.3.9"), ("192.0.3.9", "192.0.3.7")])
async def test_a_pause_is_obeyed_whichever_address_of_a_host_asked_for_it(addresses: Sequence[str], autojump_clock: Clock) -> None:
    pressed = VirtualAnswer(status=429, headers=(("Retry-After", "30"),))
    async with open_site({A: [pressed, html()]}, names={"site.test": addresses}, group_by="address") as site:
        assert (await site.fetcher.fetch(A)).ok
        assert site.starts == [0.0, 30.0]


async def test_a_fetcher_goes_on_where_another_stopped(autojump_clock: Clock) -> None:
    async with open_site({A: html()}, delay=10.0) as site:
        await site.fetcher.fetch(A)
        states = site.fetcher.clock_states()
    assert states == {"site.test": ClockState(since_start=0.0)}
    async with open_site({A: html()}, delay=10.0) as site:
        site.fetcher.restore_clocks(states)
        await site.fetcher.fetch(A)
        assert site.starts == [10.0]


async def test_doubtful_answers_are_marked(autojump_clock: Clock) -> None:
    odd = VirtualAnswer(
        status=206,
        headers=(("Content-Type", "text/html"), ("Content-Type", "image/png"), ("Vary", "*"), ("Content-Type", "text/plain; charset=q")),
    )
    async with open_site({A: odd}) as site:
        result = await site.fetcher.fetch(A)
    assert [w.partition(":")[0] for w in result.warnings] == ["partial-content", "vary-star", "duplicate-content-type", "charset"]
    assert result.unwrap().declared_charset == "q"
