"""The loopback server of a mirror over real sockets: keeping connections, bounds, and whom it answers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import trio

from forage.mirror.answers import Outcome
from forage.mirror.cache import CacheRoot, Entry
from forage.mirror.keys import body_path, document_path, key_hash
from forage.mirror.server import MirrorServer, Request, Response, open_loopback_server, open_mirror_server
from forage.mirror.site import CspMode, Site

KEY = "20120515093000/http://x.org/é page?a=1"
NOW = "2026-01-02T03:04:05.000Z"


def filled(root: Path) -> CacheRoot:
    cache = CacheRoot(root)
    cache.commit(Entry(key=KEY, status="body", content_type="text/html", fetched_at=NOW), b"<p>hello</p>")
    cache.commit(Entry(key="2012/http://x.org/gone", status="error", fetched_at=NOW))
    cache.commit(Entry(key="2012/http://x.org/empty", status="empty", content_type="text/css", fetched_at=NOW))
    return cache


async def talk(server: MirrorServer, *requests: bytes) -> bytes:
    """Send requests one after another on one connection and read until the server closes it."""
    port = int(server.url.rpartition(":")[2])
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        for request in requests:
            await stream.send_all(request)
        await stream.send_eof()
        data = b""
        with trio.fail_after(30):
            async for block in stream:
                data += block
        return data


def get(path: str, *, method: str = "GET", host: str = "127.0.0.1", extra: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{extra}\r\n".encode()


async def test_a_connection_carries_several_requests_and_the_log_keeps_them(tmp_path: Path) -> None:
    async with open_mirror_server(Site(filled(tmp_path))) as server:
        data = await talk(server, get(document_path(KEY)), get(document_path(KEY), method="HEAD"), get("/web/2012/http://x.org/gone"))
    assert data.count(b"HTTP/1.1 200 OK") == 2
    assert data.count(b"<p>hello</p>") == 1
    assert data.count(b"Content-Length: 12\r\n") == 2
    assert b"HTTP/1.1 404 Not Found" in data
    assert server.log is not None
    assert [(row.status, row.outcome) for row in server.log] == [(200, Outcome.HIT), (200, Outcome.HIT), (404, Outcome.TERMINAL)]
    assert server.log[0].key == KEY


@pytest.mark.parametrize(
    "spelling", ["/web/20120515093000/http://x.org/é page?a=1", "http://127.0.0.1/web/20120515093000/http://x.org/%C3%A9%20page?a=1"]
)
async def test_spellings_of_a_target(tmp_path: Path, spelling: str) -> None:
    async with open_mirror_server(Site(filled(tmp_path))) as server:
        data = await talk(server, get(spelling.replace(" ", "%20")))
    assert b"<p>hello</p>" in data


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "127.0.0.2"])
async def test_a_name_that_is_not_ours_is_misdirected(tmp_path: Path, host: str) -> None:
    async with open_mirror_server(Site(filled(tmp_path))) as server:
        assert (await talk(server, get(document_path(KEY), host=host))).startswith(b"HTTP/1.1 421 ")


async def test_a_refused_upload_still_hears_why(tmp_path: Path) -> None:
    upload = get("/", method="POST", extra="Content-Length: 60000\r\n")
    async with open_mirror_server(Site(filled(tmp_path))) as server:
        assert (await talk(server, upload, b"x" * 30_000, b"x" * 30_000)).startswith(b"HTTP/1.1 405 ")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/", method="POST", extra="Content-Length: 3\r\n") + b"abc", b"405"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/2.0\r\n\r\n", b"400"),
        (get("/", method="DELETE"), b"405"),
    ],
)
async def test_what_a_mirror_does_not_answer(tmp_path: Path, request_bytes: bytes, status: bytes) -> None:
    async with open_mirror_server(Site(filled(tmp_path))) as server:
        assert (await talk(server, request_bytes)).split(b" ")[1] == status


async def test_a_head_without_end_is_cut_off(tmp_path: Path) -> None:
    async with open_mirror_server(Site(filled(tmp_path))) as server:
        port = int(server.url.rpartition(":")[2])
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            with trio.fail_after(30):
                try:
                    while True:
                        await stream.send_all(b"x" * 65_536)
                except trio.BrokenResourceError:
                    pass


async def test_a_body_that_rotted_is_never_sent(tmp_path: Path) -> None:
    site = Site(filled(tmp_path))
    path = tmp_path / body_path(key_hash(KEY))
    for damage in (lambda: path.write_bytes(b"<p>other</p>"), path.unlink, path.mkdir):
        damage()
        for method in ("GET", "HEAD"):
            answer = site.answer(method, document_path(KEY))
            assert (answer.status, answer.outcome, answer.key) == (500, Outcome.CORRUPT, KEY)
            assert ("Cache-Control", "no-store") in answer.headers


def test_a_sidecar_with_a_split_content_type_does_not_split_the_answer(tmp_path: Path) -> None:
    cache = filled(tmp_path)
    sidecar = tmp_path / f"meta/{key_hash(KEY)[:2]}/{key_hash(KEY)}.json"
    sidecar.write_text(sidecar.read_text("utf-8").replace('"text/html"', '"text/html\\r\\nX: y"'), "utf-8")
    assert dict(Site(cache).answer("GET", document_path(KEY)).headers)["Content-Type"] == "application/octet-stream"


def test_documents_carry_the_policy_in_either_mode(tmp_path: Path) -> None:
    cache = filled(tmp_path)
    for mode, name in [(CspMode.ENFORCE, "Content-Security-Policy"), (CspMode.REPORT_ONLY, "Content-Security-Policy-Report-Only")]:
        assert name in dict(Site(cache, csp_mode=mode).answer("GET", document_path(KEY)).headers)
        assert name in dict(Site(cache, csp_mode=mode).answer("GET", "/x").headers)
        assert name not in dict(Site(cache, csp_mode=mode).answer("GET", "/web/2012/http://x.org/empty").headers)


def test_the_index_links_to_every_document(tmp_path: Path) -> None:
    page = Site(filled(tmp_path)).answer("GET", "/").body.decode()
    assert document_path(KEY) in page
    assert "<h1>1 document</h1>" in page


async def test_the_listener_is_gone_after_the_block(tmp_path: Path) -> None:
    async with open_mirror_server(Site(filled(tmp_path))) as server:
        port = int(server.url.rpartition(":")[2])
        idle = await trio.open_tcp_stream("127.0.0.1", port)
    async with idle:
        with trio.fail_after(30):
            assert await idle.receive_some(1) == b""
    with pytest.raises(OSError, match=r"connect|refused"):
        await trio.open_tcp_stream("127.0.0.1", port)


async def test_cancelling_the_block_closes_the_listener(tmp_path: Path) -> None:
    urls = []
    with trio.CancelScope() as scope:
        async with open_mirror_server(Site(filled(tmp_path))) as server:
            urls.append(server.url)
            scope.cancel()
            await trio.sleep_forever()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(urls[0].rpartition(":")[2]))) != 0


async def test_an_answer_may_be_cut_short_on_purpose() -> None:
    async def handle(_: Request) -> Response:
        return Response(status=200, body=b"x" * 1000, abort=40)

    async with open_loopback_server(handle) as server:
        data = await talk(MirrorServer(url=server.url), get("/"))
    assert len(data) == 40
