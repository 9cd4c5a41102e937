"""``forage egress`` as a process: verdicts, and a proxy that starts, audits and stops."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
import trio

from forage.cli import build_parser, egress
from tests.cli.test_commands import COMMAND, forage
from tests.support.raw_server import open_raw_server, page


async def read_line(stream: trio.abc.ReceiveStream) -> str:
    line = b""
    while not line.endswith(b"\n"):
        data = bytes(await stream.receive_some(1))
        assert data, "the output ended"
        line += data
    return line.decode().rstrip("\n")


@asynccontextmanager
async def open_command(*args: object) -> AsyncIterator[tuple[trio.Process, str, int]]:
    """The proxy as a process, and where it says that it listens."""
    async with trio.open_nursery() as nursery:
        command = [*COMMAND, "egress", "proxy", *map(str, args)]
        start = partial(trio.run_process, command, stdin=b"", stdout=subprocess.PIPE, check=False, capture_stderr=True)
        process: trio.Process = await nursery.start(start)
        try:
            assert process.stdout is not None
            with trio.fail_after(20):
                host, _, port = (await read_line(process.stdout)).rpartition(":")
            yield process, host.strip("[]"), int(port)
        finally:
            if process.returncode is None:
                process.kill()


async def end(process: trio.Process, number: int) -> int:
    process.send_signal(number)
    with trio.fail_after(10):
        return await process.wait()


async def ask(host: str, port: int, data: bytes) -> bytes:
    with trio.fail_after(10):
        async with await trio.open_tcp_stream(host, port) as stream:
            await stream.send_all(data)
            answer = b""
            while piece := bytes(await stream.receive_some()):
                answer += piece
            return answer


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_proxy_serves_audits_and_ends_on_a_signal(number: int, tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    async with (
        open_raw_server({"/page?token=secret": [page(b"hello")]}) as server,
        open_command("--listen", "127.0.0.1:0", "--audit", audit, "--allow-loopback-origin", server.origin) as (process, host, port),
    ):
        assert host == "127.0.0.1"
        answer = await ask(host, port, f"GET {server.origin}/page?token=secret HTTP/1.1\r\n\r\n".encode())
        assert answer.endswith(b"\r\n\r\nhello")
        assert await ask(host, port, b"GET http://169.254.169.254/?token=secret HTTP/1.1\r\n\r\n") == b""
        assert (await ask(host, port, b"CONNECT localhost:443 HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 403 ")
        hanging = await trio.open_tcp_stream(host, port)
        assert await end(process, number) == 0
        await hanging.aclose()
    rows = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(row["event"], row["decision"], row.get("code")) for row in rows] == [
        ("decision", "allowed", None),
        ("end", "allowed", None),
        ("decision", "refused", "DENIED_ADDRESS"),
        ("decision", "refused", "DENIED_HOST"),
    ]
    assert (rows[0]["url"], rows[0]["address"], rows[1]["outcome"]) == (f"{server.origin}/page", "127.0.0.1", "complete")
    assert rows[2]["block"] == "169.254.169.254/32 cloud metadata"
    assert "secret" not in audit.read_text()
    assert stat.S_IMODE(audit.stat().st_mode) == 0o600


async def test_audit_is_appended_to(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    audit.write_text("{}\n")
    async with open_command("--audit", audit) as (process, host, port):
        await ask(host, port, b"GET http://localhost/ HTTP/1.1\r\n\r\n")
        assert await end(process, signal.SIGTERM) == 0
    assert len(audit.read_text().splitlines()) == 2


async def test_proxy_stops_when_its_audit_cannot_be_written() -> None:
    async with open_command("--audit", "/dev/full") as (process, host, port):
        await ask(host, port, b"GET http://localhost/ HTTP/1.1\r\n\r\n")
        with trio.fail_after(10):
            assert await process.wait() == 1


async def test_proxy_listens_on_ipv6_loopback_too() -> None:
    async with open_command("--listen", "[::1]:0") as (process, host, port):
        assert host == "::1"
        assert (await ask(host, port, b"CONNECT 10.0.0.1:443 HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 403 ")
        assert await end(process, signal.SIGINT) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--listen", "0.0.0.0:0"], "loopback"),
        (["--listen", "192.0.2.1:0"], "loopback"),
        (["--listen", "localhost:0"], "ADDRESS:PORT"),
        (["--listen", "127.0.0.1"], "ADDRESS:PORT"),
        (["--listen", "127.0.0.1:70000"], "port"),
        (["--listen", "203.0.113.7:0", "--allow-remote"], "to be had"),
        (["--audit", "/nowhere/at/all"], "--audit"),
        (["--refuse-host", "Not a host"], "--refuse-host"),
        (["--max-connections", "0"], "--max-connections: takes"),
        (["--port", "0"], "ports"),
    ],
)
async def test_proxy_that_cannot_start_says_which_option(options: Sequence[str], message: str) -> None:
    done = await forage("egress", "proxy", *options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "nowhere" not in done.err


async def test_proxy_of_a_port_in_use_says_so() -> None:
    async with open_raw_server({}) as server:
        done = await forage("egress", "proxy", "--listen", server.host_header)
    assert done.code == 2
    assert os.strerror(98) in done.err


async def test_check_shows_verdict_code_rule_and_what_would_be_dialled() -> None:
    urls = [
        "http://169.254.169.254/x",
        "http://1.1.1.1/",
        "http://[2606:4700:4700::1111]/",
        "http://0x7f.1/",
        "http://metadata/",
        "ftp://a.example/",
    ]
    done = await forage("egress", "check", *urls)
    assert done.code == 0
    assert done.out.splitlines() == [
        "refused  http://169.254.169.254/x  DENIED_ADDRESS, rule addresses, host 169.254.169.254, in 169.254.169.254/32 cloud metadata",
        "allowed  http://1.1.1.1/  dials 1.1.1.1",
        "allowed  http://[2606:4700:4700::1111]/  dials 2606:4700:4700::1111",
        "refused  http://0x7f.1/  INVALID_HOST, rule U8, host 127.0.0.1, IPv4 address not in dotted decimal",
        "refused  http://metadata/  DENIED_HOST, rule H4, host metadata",
        "refused  ftp://a.example/  INVALID_SCHEME, rule U3, host a.example",
    ]
    assert done.err == ""


async def test_check_in_json_has_one_row_a_url() -> None:
    done = await forage("egress", "check", "--json", "http://1.1.1.1/a", "http://10.0.0.1/")
    allowed, refused = done.rows
    assert allowed == {
        "url": "http://1.1.1.1/a",
        "verdict": "allowed",
        "href": "http://1.1.1.1/a",
        "addresses": ["1.1.1.1"],
        "dials": ["1.1.1.1"],
    }
    assert (refused["verdict"], refused["code"], refused["block"]) == ("refused", "DENIED_ADDRESS", "10.0.0.0/8 private use")


async def test_check_exits_with_5_when_no_url_is_allowed() -> None:
    assert (await forage("egress", "check", "http://10.0.0.1/", "http://localhost/")).code == 5


async def test_check_of_a_name_without_an_address_is_unreachable() -> None:
    """In this process, where no name server beyond loopback can be asked."""
    out = StringIO()
    args = build_parser().parse_args(["egress", "check", "--json", "http://absent.invalid/"])
    assert await egress.run(args, out, StringIO()) == 5
    row = json.loads(out.getvalue())
    assert (row["verdict"], row["code"], row["rule"], row["host"]) == ("unreachable", "DNS_FAILURE", "D2", "absent.invalid")


async def test_opting_out_is_said_on_standard_error() -> None:
    done = await forage("egress", "check", "--unguarded", "http://10.0.0.1/")
    assert done.code == 0
    assert "egress guard: OFF" in done.err
