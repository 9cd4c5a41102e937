"""The bundled site answers what a crawl must cope with, and its server keeps to HTTP and to its bounds."""

from __future__ import annotations

import gzip
import zlib

import h11
import pytest
import trio

from forage.demo import DemoSite, open_demo_site
from forage.demo.content import Answer, DemoPages

ORIGIN = "http://127.0.0.1:8000"
PAGES = DemoPages(ORIGIN, year=2026)


def header(answer: Answer, name: str) -> str | None:
    return dict(answer.headers).get(name)


async def exchange(stream: trio.SocketStream, connection: h11.Connection, path: str, method: str = "GET") -> tuple[h11.Response, bytes]:
    """One request and its answer, read by a parser that is not ours."""
    request = h11.Request(method=method, target=path, headers=[("Host", "127.0.0.1")])
    sent = connection.send(request)
    assert sent is not None
    await stream.send_all(sent + (connection.send(h11.EndOfMessage()) or b""))
    response, body = None, b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some())
        elif isinstance(event, h11.Response):
            response = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            break
    connection.start_next_cycle()
    assert response is not None
    return response, body


async def connect(site: DemoSite) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", site.port)


def test_a_missing_page_is_404_and_the_calendar_never_ends() -> None:
    assert PAGES.get("/nowhere").status == 404
    assert PAGES.get("/calendar/2026/13").status == 404
    month = PAGES.get("/calendar/9998/12")
    assert month.status == 200
    assert b'href="/calendar/9999/01"' in month.body


def test_the_cafe_is_written_in_windows_1252_and_is_not_utf_8() -> None:
    cafe = PAGES.get("/cafe")
    assert header(cafe, "Content-Type") == "text/html; charset=windows-1252"
    assert "£2 – or 3 €" in cafe.body.decode("windows-1252")
    with pytest.raises(UnicodeDecodeError):
        cafe.body.decode("utf-8")


def test_the_guest_book_links_inside() -> None:
    body = PAGES.get("/guestbook").body.decode("utf-8")
    for inside in ("http://169.254.169.254/", "http://localhost:8000/", "http://10.0.0.5/", "http://rebind.harbour-museum.test/"):
        assert f'href="{inside}' in body


def test_the_sitemap_is_an_index_with_a_gzip_part() -> None:
    index = PAGES.get("/sitemap.xml").body.decode("utf-8")
    assert f"<loc>{ORIGIN}/sitemap-rooms.xml.gz</loc>" in index
    part = gzip.decompress(PAGES.get("/sitemap-rooms.xml.gz").body).decode("utf-8")
    assert f"<loc>{ORIGIN}/collection/whale</loc>" in part
    assert f"Sitemap: {ORIGIN}/sitemap.xml" in PAGES.get("/robots.txt").body.decode("utf-8")


def test_the_plan_is_a_whole_picture() -> None:
    picture = PAGES.get("/plan.png").body
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    at = 8
    kinds = []
    while at < len(picture):
        length = int.from_bytes(picture[at : at + 4], "big")
        kind, data = picture[at + 4 : at + 8], picture[at + 8 : at + 8 + length]
        assert int.from_bytes(picture[at + 8 + length : at + 12 + length], "big") == zlib.crc32(kind + data)
        kinds.append(kind)
        at += 12 + length
    assert kinds == [b"IHDR", b"IDAT", b"IEND"]


async def test_one_connection_carries_many_requests_and_the_busy_page_is_busy_once() -> None:
    with trio.fail_after(10):
        async with open_demo_site(year=2026) as site, await connect(site) as stream:
            connection = h11.Connection(h11.CLIENT)
            busy, _ = await exchange(stream, connection, "/tides")
            assert (busy.status_code, dict(busy.headers)[b"retry-after"]) == (429, b"1")
            for _ in range(2):
                response, body = await exchange(stream, connection, "/tides")
                assert response.status_code == 200
                assert b"High water" in body
            storm, body = await exchange(stream, connection, "/news/storm")
            assert dict(storm.headers)[b"content-encoding"] == b"gzip"
            assert b"The roof held" in gzip.decompress(body)
            head, body = await exchange(stream, connection, "/about", "HEAD")
            assert (head.status_code, body) == (200, b"")
            refused, _ = await exchange(stream, connection, "/about", "DELETE")
            assert refused.status_code == 405
            assert site.requests == ["GET /tides"] * 3 + ["GET /news/storm", "HEAD /about", "DELETE /about"]


async def test_a_head_without_end_closes_the_connection() -> None:
    with trio.fail_after(10):
        async with open_demo_site() as site, await connect(site) as stream:
            with pytest.raises((trio.BrokenResourceError, EOFError)):  # noqa: PT012 - either side may notice first
                await stream.send_all(b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000)
                if await stream.receive_some() == b"":
                    raise EOFError


async def test_nothing_listens_after_the_block() -> None:
    with trio.fail_after(10):
        async with open_demo_site() as site:
            pass
        with pytest.raises(OSError, match="all attempts to connect"):
            await connect(site)
