"""The nginx that tests crawl: ready at once, alone on its port, and gone afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from tests.support.nginx import find_nginx, open_nginx

pytestmark = pytest.mark.skipif(find_nginx() is None, reason="nginx is not installed (make system)")


async def ask(origin: str, path: str) -> bytes:
    host, _, port = origin.removeprefix("http://").partition(":")
    stream = await trio.open_tcp_stream(host, int(port))
    async with stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        return b"".join([part async for part in stream])


async def test_a_folder_is_served_byte_for_byte_and_the_log_names_the_request(tmp_path: Path) -> None:
    body = bytes(range(256))
    (tmp_path / "all.bin").write_bytes(body)
    with trio.fail_after(20):
        async with open_nginx(tmp_path) as site:
            answer = await ask(site.origin, "/all.bin")
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert answer.endswith(b"\r\n\r\n" + body)
            assert "GET /all.bin" in site.access_log.read_text("utf-8")


async def test_nothing_listens_and_nothing_runs_after_the_block(tmp_path: Path) -> None:
    with trio.fail_after(20):
        async with open_nginx(tmp_path) as site:
            pid = int((site.access_log.parent / "nginx.pid").read_text("utf-8")) if await ask(site.origin, "/") else 0
        with pytest.raises(OSError, match="all attempts to connect"):
            await ask(site.origin, "/")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not site.access_log.parent.exists()


async def test_an_error_inside_the_block_still_ends_the_server(tmp_path: Path) -> None:
    with trio.fail_after(20), pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="inside")):
        async with open_nginx(tmp_path) as site:
            raise RuntimeError("inside")
    with pytest.raises(OSError, match="all attempts to connect"):
        await ask(site.origin, "/")
