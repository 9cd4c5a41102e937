"""The renderer: what a fetch or crawl gets of it, and that a rendering that fails costs the rendering and nothing else."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import trio

from forage.browser import BrowserOptions, ChromiumRenderer, PageOutcome, Viewport
from forage.crawler import CrawlPolicy, crawl
from forage.errors import BrowserError, BrowserErrorCode, BrowserMissingError, InvalidPolicyError
from forage.fetch import Fetcher, Source
from forage.snapshots import body_bytes, snapshot_hash_basis
from tests.support.browser_site import BrowserSite, html, open_browser_site
from tests.support.browsers import browser_options
from tests.support.leftovers import browser_processes, profile_directories
from tests.support.probe_site import PublicNames
from tests.support.raw_server import Answer, page

SHELL = (
    "<!doctype html><title>app</title><div id=root></div>"
    "<script src=/app.js></script><noscript>You need to enable JavaScript to run this app.</noscript>"
)
APP = "document.getElementById('root').innerHTML='<h1>Filled</h1><a href=/next>next</a><p>'+'words and more words '.repeat(20)+'</p>'"
ROUTES = {
    "/": html(SHELL),
    "/app.js": [page(APP.encode(), headers=[("Content-Type", "text/javascript")])],
    "/plain": html("<!doctype html><title>plain</title><p>" + "enough text to be no shell at all " * 20),
    "/next": html("<!doctype html><title>next</title><p>" + "enough text to be no shell at all " * 20),
    "/robots.txt": [page(b"", status="404 Not Found")],
    "/leaves": html("<!doctype html><p>stays<script>location='/next'</script>"),
    "/moves": html("<!doctype html><p>x<script>history.replaceState(0,'','/moved#here')</script>"),
    "/text": html("<!doctype html><p>seen</p><p hidden>hidden</p>"),
    "/back": html("<!doctype html><p>stays<script>history.back()</script>"),
    "/draws": html("<!doctype html><p id=p>x<script>requestAnimationFrame(() => { p.textContent = 'drawn' })</script>"),
    "/none": [page(b"", status="204 No Content")],
    "/file": [page(b"abc", headers=[("Content-Disposition", "attachment; filename=x.bin")])],
    "/never": [Answer(end="hang")],
}


def renderer(site: BrowserSite, **options: Any) -> ChromiumRenderer:
    given: dict[str, Any] = {"browser": browser_options(), "answer_seconds": 10.0, "quiet": 0.2}
    return ChromiumRenderer(egress=site.policy, resolver=PublicNames(), dialer=site.dialer, **{**given, **options})


async def test_a_fetch_on_demand_renders_a_shell_and_leaves_a_plain_page_alone() -> None:
    async with open_browser_site(ROUTES) as site, renderer(site) as made:
        fetcher = Fetcher(egress=site.policy, delay=0.0, dialer=site.dialer, render="on-shell", renderer=made)
        async with fetcher:
            rendered = (await fetcher.fetch(Source(id="a", url=f"{site.origin}/"))).unwrap()
            plain = (await fetcher.fetch(Source(id="b", url=f"{site.origin}/plain"))).unwrap()
    assert (rendered.rendered, rendered.url, rendered.status) == (True, f"{site.origin}/", 200)
    assert "<h1>Filled</h1>" in str(rendered.body)
    assert str(rendered.body).startswith("<!DOCTYPE html>")
    assert snapshot_hash_basis(rendered).value == "decoded-utf8"
    assert body_bytes(rendered) == str(rendered.body).encode()
    assert not plain.rendered
    assert (browser_processes(), profile_directories()) == ([], [])


async def test_a_crawl_follows_what_only_a_browser_shows() -> None:
    async with open_browser_site(ROUTES) as site, renderer(site) as made:
        policy = CrawlPolicy(max_pages=5, max_depth=1, delay=0.0, render="on-shell", egress=site.policy)
        manifest = await crawl(f"{site.origin}/", policy, renderer=made, dialer=site.dialer)
    assert [(page.url.removeprefix(site.origin), page.rendered) for page in manifest.pages] == [("/", True), ("/next", False)]


async def test_a_page_that_leaves_is_read_as_it_is_and_where_it_would_go_is_told() -> None:
    async with open_browser_site(ROUTES) as site, renderer(site) as made:
        result = await made.render(f"{site.origin}/leaves")
        assert result.left_for == (f"{site.origin}/next",)
        assert "stays" in result.html
        assert result.outcome is PageOutcome.OK
        assert any(warning.startswith("render-left-early") for warning in result.warnings)
        assert "/next" not in site.targets


async def test_final_url_text_and_picture() -> None:
    async with open_browser_site(ROUTES) as site, renderer(site) as made:
        moved = await made.render(f"{site.origin}/moves")
        assert moved.final_url == f"{site.origin}/moved#here"
        seen = await made.render(
            f"{site.origin}/text", read_text=True, screenshot="viewport", viewport=Viewport(width=300, height=200, scale=2.0)
        )
        assert seen.visit.text == "seen"
        png = seen.visit.screenshot or b""
        assert png.startswith(b"\x89PNG\r\n")
        assert (int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")) == (600, 400)
        whole = await made.render(f"{site.origin}/plain", screenshot="full", viewport=Viewport(width=40, height=50))
        assert int.from_bytes((whole.visit.screenshot or b"")[20:24], "big") > 50


async def test_a_page_that_goes_back_is_read_as_it_is() -> None:
    async with open_browser_site(ROUTES) as site, renderer(site) as made:
        result = await made.render(f"{site.origin}/back")
        assert (result.outcome, result.final_url) == (PageOutcome.OK, f"{site.origin}/back")
        assert "stays" in result.html


async def test_a_page_is_drawn() -> None:
    async with open_browser_site(ROUTES) as site, renderer(site) as made:
        assert "drawn" in (await made.render(f"{site.origin}/draws")).html


@pytest.mark.parametrize("kind", ["shell", "full"])
async def test_an_answer_that_is_no_document_is_told_at_once_and_a_download_with_its_name(kind: Any) -> None:
    async with open_browser_site(ROUTES) as site, renderer(site, browser=browser_options(kind)) as made:
        none, file = await made.render(f"{site.origin}/none"), await made.render(f"{site.origin}/file")
    assert (none.outcome, none.visit.status, none.visit.error) == (PageOutcome.FAILED, 204, "net::ERR_ABORTED")
    assert (file.outcome, file.visit.status, file.visit.error) == (PageOutcome.FAILED, 200, "it is a download")
    assert [download.name for download in file.visit.downloads] == ["x.bin"]
    assert max(none.visit.seconds, file.visit.seconds) < 10


@pytest.mark.parametrize("kind", ["shell", "full"])
async def test_a_document_that_does_not_come_ends_at_the_deadline(kind: Any) -> None:
    async with open_browser_site(ROUTES) as site, renderer(site, browser=browser_options(kind), deadline=1.0) as made:
        seen = await made.render(f"{site.origin}/never")
    assert seen.outcome is PageOutcome.NOT_IDLE
    assert [entry.url for entry in seen.requests] == [f"{site.origin}/never"]


async def test_a_browser_that_is_lost_costs_its_pages_and_the_next_page_gets_a_new_one() -> None:
    async with open_browser_site(ROUTES) as site, renderer(site) as made, trio.open_nursery() as nursery:
        results: list[Any] = []

        async def render() -> None:
            results.append(await made.render(f"{site.origin}/text", min_wait=15.0))

        nursery.start_soon(render)
        while "/text" not in site.targets:  # noqa: ASYNC110 - another process asks
            await trio.sleep(0.01)
        os.kill(min(browser_processes()), signal.SIGKILL)
        for pid in browser_processes():
            os.kill(pid, signal.SIGKILL)
        with trio.fail_after(10):
            while not results:  # noqa: ASYNC110 - as above
                await trio.sleep(0.01)
        assert results[0].outcome is PageOutcome.BROWSER_LOST
        with pytest.raises(BrowserError, match="lost") as caught:
            _ = results[0].html
        assert caught.value.code is BrowserErrorCode.NO_DOCUMENT
        assert (await made.render(f"{site.origin}/text")).outcome is PageOutcome.OK


async def test_without_a_browser_the_plain_page_stays_with_a_warning() -> None:
    async with open_browser_site(ROUTES) as site, renderer(site, browser=BrowserOptions(program="no-such-browser")) as made:
        with pytest.raises(BrowserMissingError):
            await made.render(f"{site.origin}/")
        async with Fetcher(egress=site.policy, delay=0.0, dialer=site.dialer, render="always", renderer=made) as fetcher:
            result = await fetcher.fetch(f"{site.origin}/")
    assert result.snapshot is not None
    assert not result.snapshot.rendered
    assert any("render-failed" in warning and "no-such-browser" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("url", "outcome"),
    [
        ("file:///etc/passwd", PageOutcome.SCHEME),
        ("chrome://version", PageOutcome.SCHEME),
        ("javascript:1", PageOutcome.SCHEME),
        ("http://127.0.0.1:9/", PageOutcome.FAILED),
        ("http://169.254.169.254/latest/meta-data/", PageOutcome.FAILED),
        ("http://user:secret@site.test/", PageOutcome.FAILED),
        ("nonsense", PageOutcome.FAILED),
    ],
)
async def test_what_the_guard_refuses_is_never_opened(url: str, outcome: PageOutcome) -> None:
    async with open_browser_site(ROUTES) as site, renderer(site) as made:
        result = await made.render(url)
        assert (result.outcome, result.requests, site.targets) == (outcome, (), [])
        assert "secret" not in " ".join(result.warnings)


async def test_a_browser_without_its_sandbox_is_named_in_every_result() -> None:
    async with open_browser_site(ROUTES) as site, renderer(site, browser=browser_options(sandbox=False)) as made:
        result = await made.render(f"{site.origin}/text")
    assert any(warning.startswith("render-no-sandbox") for warning in result.warnings)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"deadline": 0}, "deadline"),
        ({"max_dom_bytes": 1 << 30}, "max_dom_bytes"),
        ({"screenshot": "yes"}, "screenshot"),
        ({"viewport": Viewport(width=0)}, "viewport"),
        ({"quiet": float("nan")}, "quiet"),
    ],
)
async def test_wrong_options_name_their_field(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidPolicyError, match=field):
        ChromiumRenderer(**options)


@pytest.mark.parametrize("options", [{"pages": 0}, {"recycle_after": 0}, {"pages": True}])
async def test_wrong_options_of_the_pool_are_told_when_it_opens(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidPolicyError):
        async with ChromiumRenderer(**options):
            pass


async def test_console_errors_are_in_the_result() -> None:
    routes = {"/": html("<script>console.error('one',2);console.log('no');setTimeout(()=>{throw new Error('three')})</script>")}
    async with open_browser_site(routes) as site, renderer(site) as made:
        result = await made.render(f"{site.origin}/")
    texts = [message.text for message in result.visit.console if message.source != "network"]
    assert texts[0] == "one 2"
    assert any("three" in text for text in texts)
    assert "no" not in texts


async def test_halves_of_characters_that_scripts_leave_behind_cost_no_rendering() -> None:
    script = r"const s='a\ud83d\ude00b\ud83d'; console.error(s); document.body.append(s)"
    routes = {"/": html(f"<p>x<script>{script}</script>")}
    async with open_browser_site(routes) as site, renderer(site, read_text=True) as made:
        result = await made.render(f"{site.origin}/")
        async with Fetcher(egress=site.policy, delay=0.0, dialer=site.dialer, render="always", renderer=made) as fetcher:
            snapshot = (await fetcher.fetch(f"{site.origin}/")).unwrap()
    assert "a😀b\ufffd</body>" in result.html
    assert "a😀b\ufffd" in (result.visit.text or "")
    assert result.visit.console[0].text == "a😀b\ufffd"
    assert snapshot.rendered
