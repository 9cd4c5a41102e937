"""Pages that mean harm, and the outcomes in which each must end: a table that the tests and the stress run share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from forage.browser import PageOutcome, Visit
from forage.egress import ProxyLimits
from tests.support.browser_site import html
from tests.support.raw_server import Answer, Repeat, page

__all__ = ["HOSTILE", "HostilePage", "hostile_routes"]

OK, NOT_IDLE, FAILED, TOO_LARGE = PageOutcome.OK, PageOutcome.NOT_IDLE, PageOutcome.FAILED, PageOutcome.TOO_LARGE
DEADLINE, LENIENT = 5.0, 10.0
HUNG, CRASHED, EGRESS_LIMIT = PageOutcome.HUNG, PageOutcome.CRASHED, PageOutcome.EGRESS_LIMIT


def _always(_: Visit) -> bool:
    return True


@attrs.frozen(kw_only=True)
class HostilePage:
    """What it serves at its name, how it may end, what else must hold of the visit, and options that it is opened with."""

    name: str
    answers: list[Answer]
    outcomes: frozenset[PageOutcome]
    holds: Callable[[Visit], bool] = _always
    options: Mapping[str, Any] = attrs.field(factory=dict)

    def ends(self, *, answer_seconds: float) -> dict[str, Any]:
        """Options with a deadline that is short where the page is ended by it; for all others it is only there to end the test."""
        short = {"deadline": DEADLINE, "answer_seconds": answer_seconds if HUNG in self.outcomes else LENIENT}
        return {**(short if self.outcomes & {HUNG, NOT_IDLE} else {}), **self.options}


def _page(name: str, body: str, *outcomes: PageOutcome, holds: Callable[[Visit], bool] = _always, **options: Any) -> HostilePage:
    return _answer(name, html(body), *outcomes, holds=holds, **options)


def _answer(
    name: str, answers: list[Answer], *outcomes: PageOutcome, holds: Callable[[Visit], bool] = _always, **options: Any
) -> HostilePage:
    return HostilePage(name=name, answers=answers, outcomes=frozenset(outcomes), holds=holds, options=options)


def _redirect(target: str) -> list[Answer]:
    return [page(b"", status="302 Found", headers=[("Location", target)])]


HOSTILE: tuple[HostilePage, ...] = (
    _page(
        "dialogs",
        "<script>for(let i=0;i<15;i++){alert(i);confirm(i);prompt(i)}document.title='after'</script><p>end",
        OK,
        holds=lambda seen: len(seen.dialogs) > 20 and seen.warnings != (),
    ),
    _page("beforeunload", "<script>onbeforeunload=e=>{e.preventDefault();return 'stay'}</script><p>x", OK, teardown=True),
    _page("print", "<script>print();print()</script><p>x", OK),
    _page(
        "busy-loop",
        "<script>setTimeout(()=>{for(;;);},50)</script><p>x",
        OK,
        HUNG,
        NOT_IDLE,
        holds=lambda seen: seen.stopped or seen.outcome is not OK,
    ),
    _page("busy-at-once", "<p>x<script>for(;;);</script>", HUNG, NOT_IDLE),
    _page(
        "busy-again",
        "<script>(function f(){setTimeout(f);const t=Date.now();while(Date.now()-t<1e9);})()</script><p>x",
        OK,
        HUNG,
        NOT_IDLE,
    ),
    _page("busy-worker", "<script>new Worker(URL.createObjectURL(new Blob(['for(;;);'])))</script><p>x", OK),
    _page("endless-promises", "<script>setTimeout(()=>{(function f(){Promise.resolve().then(f)})()},50)</script><p>x", OK, HUNG, NOT_IDLE),
    _page("popup", "<script>for(let i=0;i<30;i++)open('/good?'+i)</script><p>x", OK),
    _page("download", "<a id=a href=/file download>x</a><script>a.click()</script>", OK, NOT_IDLE),
    _page(
        "blob-download",
        "<a id=a download=x.bin>x</a><script>a.href=URL.createObjectURL(new Blob(['x']));a.click()</script>",
        OK,
        holds=lambda seen: [download.name for download in seen.downloads] == ["x.bin"],
    ),
    _answer(
        "file",
        [page(b"abc", headers=[("Content-Disposition", "attachment; filename=x.bin")])],
        FAILED,
        holds=lambda seen: seen.error == "it is a download",
    ),
    _page(
        "memory",
        "<script>let a=[];setInterval(()=>{for(let i=0;i<64;i++)a.push(new Uint8Array(1<<20).fill(1))},1)</script>",
        CRASHED,
        NOT_IDLE,
        HUNG,
        min_wait=5.0,
    ),
    _page("large-document", '<p id=p><script>let s="x".repeat(1<<20);for(let i=0;i<100;i++)p.append(s)</script>', TOO_LARGE),
    _page("many-nodes", "<p>x<script>document.body.innerHTML='<b>x</b>'.repeat(2e6)</script>", TOO_LARGE, HUNG, NOT_IDLE, CRASHED),
    _page("crash", "<script>new WebSocket('ws://site.test/'+'x'.repeat(90e6))</script>", CRASHED, OK, TOO_LARGE),
    _page("large-message", "<script>fetch('data:text/plain,'+'x'.repeat(90e6)).catch(()=>{})</script>", TOO_LARGE, HUNG, NOT_IDLE),
    _page("large-console-line", "<script>console.error('x'.repeat(90e6))</script>", OK, TOO_LARGE, HUNG, NOT_IDLE),
    _page(
        "console-flood",
        "<script>for(let i=0;i<50000;i++)console.log('line',i)</script><p>x",
        OK,
    ),
    _page("request-flood", "<script>for(let i=0;i<400;i++)fetch('/flood?'+i).catch(()=>{})</script>", EGRESS_LIMIT, max_requests=100),
    _page(
        "polling",
        "<script>setInterval(()=>fetch('/poll').catch(()=>{}),50)</script><p>x",
        OK,
        NOT_IDLE,
        holds=lambda seen: "<p>x" in (seen.html or ""),
    ),
    _answer(
        "bytes",
        [Answer(steps=(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n", Repeat(data=b"<p>x", times=2_000_000)))],
        EGRESS_LIMIT,
        limits=ProxyLimits(bytes_down=500_000),
    ),
    _answer(
        "endless",
        [Answer(steps=(b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 900\r\n\r\n<p>x",), end="hang")],
        NOT_IDLE,
        holds=lambda seen: "<p>x" in (seen.html or ""),
    ),
    _answer("silent", [Answer(steps=(), end="hang")], NOT_IDLE, holds=lambda seen: seen.html is None),
    _answer(
        "cut",
        [Answer(steps=(b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 900\r\n\r\n<p>x",))],
        OK,
        NOT_IDLE,
        FAILED,
    ),
    _answer("to-file", _redirect("file:///etc/passwd"), FAILED),
    _answer("to-browser-page", _redirect("chrome://version/"), FAILED),
    _answer("to-metadata", _redirect("http://169.254.169.254/latest/"), FAILED, holds=lambda seen: seen.code is not None),
    _answer("to-itself", _redirect("/to-itself"), FAILED, holds=lambda seen: seen.code == "REDIRECT_LOOP"),
    _page(
        "leaves",
        "<meta http-equiv=refresh content='0;url=/elsewhere'><p id=p>still"
        "<script>setTimeout(()=>location='http://other.test/',50);setTimeout(()=>location.reload(),100)</script>",
        OK,
        holds=lambda seen: len(seen.left_for) >= 2 and "still" in (seen.html or ""),
    ),
    _page(
        "local-schemes",
        "<iframe src='file:///etc/passwd'></iframe><script>try{open('chrome://version')}catch(e){}"
        "setTimeout(()=>{try{location='file:///etc/passwd'}catch(e){}},50)</script><p>x",
        OK,
        holds=lambda seen: "root:" not in (seen.html or ""),
    ),
    _page("many-frames", "<p>x<script>for(let i=0;i<300;i++)document.body.append(document.createElement('iframe'))</script>", OK),
    _page(
        "getters-that-lie",
        "<p>truth<script>Object.defineProperty(Element.prototype,'outerHTML',{get(){return 'lie'}});"
        "document.createTreeWalker=()=>0</script>",
        OK,
        holds=lambda seen: "truth" in (seen.html or "") and seen.html != "lie",
    ),
    _page(
        "deep-tree",
        "<p>x<script>let d=document.body;for(let i=0;i<20000;i++){const e=document.createElement('i');d.append(e);d=e}</script>",
        OK,
        CRASHED,
        HUNG,
        TOO_LARGE,
    ),
    _page(
        "replaces-itself-again",
        "<script>setInterval(()=>{document.open();document.write('<p>again');document.close()},1)</script>",
        OK,
        NOT_IDLE,
        holds=lambda seen: "again" in (seen.html or ""),
    ),
    _page(
        "replaces-itself",
        "<script>setTimeout(()=>{document.open();document.write('<p>second');document.close()},50)</script>",
        OK,
        holds=lambda seen: "second" in (seen.html or ""),
    ),
)


def hostile_routes() -> dict[str, list[Answer]]:
    """Routes of a site that serves them all."""
    return {f"/{case.name}": case.answers for case in HOSTILE}
