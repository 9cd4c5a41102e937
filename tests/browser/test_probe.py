"""The log of one document: nothing that it asks for is missing, whatever the channel, and what is refused is told apart."""

from __future__ import annotations

from typing import Any

import pytest

from forage.browser import (
    Browser,
    PageOutcome,
    ProbeOptions,
    RequestEntry,
    RequestLog,
    RequestOutcome,
    Viewport,
    open_browser,
    probe_document,
)
from forage.egress import only
from forage.errors import InvalidPolicyError
from tests.support.browser_site import BrowserSite, html, open_browser_site
from tests.support.browsers import Kind, browser_options, installed_kinds
from tests.support.probe_site import PublicNames
from tests.support.raw_server import Answer, page

KINDS = pytest.mark.parametrize("kind", installed_kinds())
HTTPS = "https://web.archive.org"


async def probe(browser: Browser, site: BrowserSite, path: str = "/", **options: Any) -> RequestLog:
    given: dict[str, Any] = {
        "egress": site.policy,
        "resolver": PublicNames(),
        "dialer": site.dialer,
        "min_wait": 1.0,
        "deadline": 40.0,
        "answer_seconds": 15.0,
    }
    return await probe_document(browser, site.origin + path, ProbeOptions(**{**given, **options}))


def by_path(log: RequestLog) -> dict[str, RequestEntry]:
    return {entry.url.rpartition("/")[2]: entry for entry in log.requests}


@KINDS
async def test_requests_of_the_abort_family_are_named_by_every_channel_also_over_https(kind: Kind) -> None:
    body = f"""<!doctype html><img src="{HTTPS}/img"><script>
        navigator.sendBeacon("{HTTPS}/beacon");
        addEventListener("pagehide",()=>{{navigator.sendBeacon("{HTTPS}/unload");
            fetch("{HTTPS}/keepalive",{{keepalive:true,method:"POST",mode:"no-cors"}})}});
        new Worker(URL.createObjectURL(new Blob(['fetch("{HTTPS}/worker")'])));
        new WebSocket("wss://web.archive.org/socket");</script>
        <iframe sandbox="allow-scripts" srcdoc='<script>fetch("{HTTPS}/sandboxed",{{mode:"no-cors"}})</script>'></iframe>"""
    async with open_browser_site({"/": html(body)}) as site, open_browser(browser_options(kind)) as browser:
        log = await probe(browser, site, abort_hosts=("archive.org",))
    found = by_path(log)
    wanted = {"img", "beacon", "unload", "keepalive", "worker", "socket", "sandboxed"}
    assert wanted <= set(found)
    assert {found[name].outcome for name in wanted} == {RequestOutcome.ABORTED}
    assert (log.outcome, log.loaded, log.unexplained) == (PageOutcome.OK, True, ())


LEAVING = {
    "each": """addEventListener("unload",()=>{navigator.sendBeacon("http://leak.test/unload")})""",
    "stays": """navigation.addEventListener("navigate",event=>event.preventDefault())""",
    "spins": """addEventListener("pagehide",()=>{for(;;);})""",
}


@KINDS
@pytest.mark.parametrize("way", LEAVING)
async def test_what_a_page_sends_on_its_way_out_is_seen_however_it_goes(kind: Kind, way: str) -> None:
    """A document that is sent away is unloaded after the next one is there, and on a busy machine not at all: it goes by itself."""
    body = f"""<!doctype html><script>addEventListener("pagehide",
        ()=>{{navigator.sendBeacon("http://leak.test/hide")}});{LEAVING[way]}</script>
        <iframe sandbox="allow-scripts" srcdoc='<script>
            addEventListener("pagehide",()=>{{navigator.sendBeacon("http://leak.test/frame")}})</script>'></iframe>"""
    wanted = {"each": {"hide", "unload", "frame"}, "stays": {"hide", "frame"}, "spins": {"hide"}}[way]
    async with open_browser_site({"/": html(body)}) as site, open_browser(browser_options(kind)) as browser:
        log = await probe(browser, site, answer_seconds=6.0)
    assert wanted <= set(by_path(log))
    assert log.outcome is PageOutcome.OK


async def test_a_mirrors_probe_reaches_its_own_origin_and_nothing_else() -> None:
    body = '<!doctype html><img src="/own"><img src="http://other.test/x"><img src="https://secure.test/y"><img src="http://127.0.0.1:1/z">'
    async with open_browser_site({"/": html(body)}) as site, open_browser(browser_options()) as browser:
        log = await probe(browser, site, egress=only(site.origin))
        assert site.targets == ["/", "/own"]
    assert {name: entry.outcome.value for name, entry in by_path(log).items()} == {
        "": "answered",
        "own": "answered",
        "x": "refused",
        "y": "refused",
        "z": "failed",  # a port that the browser itself does not speak to
    }


async def test_the_documents_own_request_is_marked_and_must_be_answered() -> None:
    routes = {"/": html("<p>x"), "/none": [Answer(steps=(), end="close")]}
    async with open_browser_site(routes) as site, open_browser(browser_options()) as browser:
        log, failed = await probe(browser, site), await probe(browser, site, "/none")
    (document,) = [entry for entry in log.requests if entry.document]
    assert (document.url, document.status, document.in_browser, document.at_guard) == (f"{site.origin}/", 200, True, True)
    assert log.loaded
    assert (failed.loaded, failed.outcome) == (False, PageOutcome.FAILED)


async def test_icons_that_the_shell_does_not_fetch_are_named_once() -> None:
    body = """<base href="/deep/"><link rel="shortcut icon" href="a.png"><link rel=icon href="a.png">
        <link rel=apple-touch-icon href=b.png><link rel=icon href="data:,x">"""
    async with open_browser_site({"/": html(body)}) as site, open_browser(browser_options("shell")) as browser:
        log = await probe(browser, site)
    named = [(entry.url, entry.resource_type) for entry in log.requests if entry.outcome is RequestOutcome.NAMED]
    assert named == [(f"{site.origin}/deep/a.png", "Image")]


async def test_icons_that_full_chromium_fetches_are_requests() -> None:
    body = '<link rel=icon href="/a.png"><p>x'
    async with open_browser_site({"/": html(body)}) as site, open_browser(browser_options("full")) as browser:
        log = await probe(browser, site)
        assert "/a.png" in site.targets
    assert by_path(log)["a.png"].at_guard


async def test_a_document_is_rendered_once_for_each_viewport_and_all_requests_count() -> None:
    body = '<img srcset="/small.png 400w, /large.png 2000w" sizes="100vw">'
    sizes = (Viewport(width=320, height=600), Viewport(width=1900, height=900))
    async with open_browser_site({"/": html(body)}) as site, open_browser(browser_options()) as browser:
        log = await probe(browser, site, viewports=sizes)
    assert {(entry.url.rpartition("/")[2], entry.viewport) for entry in log.requests} >= {("small.png", sizes[0]), ("large.png", sizes[1])}
    assert [entry.number for entry in log.requests] == list(range(1, len(log.requests) + 1))


async def test_violations_of_a_policy_are_told_in_both_modes() -> None:
    body = "<script>eval('1')</script><img src='http://other.test/x.png'>"
    policies = [("Content-Security-Policy", "img-src 'self'"), ("Content-Security-Policy-Report-Only", "script-src 'self' 'unsafe-inline'")]
    async with open_browser_site({"/": html(body, headers=policies)}) as site, open_browser(browser_options()) as browser:
        log = await probe(browser, site)
    assert {(issue.directive, issue.report_only, issue.url) for issue in log.csp} >= {
        ("img-src", False, "http://other.test/x.png"),
        ("script-src", True, None),
    }
    assert by_path(log)["x.png"].outcome is RequestOutcome.BLOCKED


async def test_pages_do_not_see_each_other() -> None:
    body = "<script>const n=+(localStorage.n||0)+1;localStorage.n=n;document.cookie='n='+n;fetch('/seen?'+n+document.cookie)</script>"
    async with open_browser_site({"/": html(body)}) as site, open_browser(browser_options()) as browser:
        await probe(browser, site)
        await probe(browser, site)
        assert [target for target in site.targets if target.startswith("/seen")] == ["/seen?1n=1"] * 2


@pytest.mark.parametrize(
    ("options", "field"), [({"viewports": ()}, "viewports"), ({"deadline": 0}, "deadline"), ({"min_wait": -1}, "min_wait")]
)
def test_wrong_options_name_their_field(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidPolicyError, match=field):
        ProbeOptions(**options)


@KINDS
async def test_a_shared_worker_that_ends_with_its_page_is_no_crash(kind: Kind) -> None:
    body = """<!doctype html><script>new SharedWorker("/shared.js").port.start()</script>"""
    script = [page(b"fetch('/asked')", headers=[("Content-Type", "text/javascript")])]
    async with open_browser_site({"/": html(body), "/shared.js": script}) as site, open_browser(browser_options(kind)) as browser:
        log = await probe(browser, site)
    assert {"shared.js", "asked"} <= set(by_path(log))
    assert log.outcome is PageOutcome.OK
    assert [visit.warnings for visit in log.visits] == [()]
