"""The ``forage`` command as a process: data on standard output, people's text on standard error, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from tests.support.raw_server import Answer, RawRequest, RawServer, open_raw_server, page

HTML = [("Content-Type", "text/html; charset=utf-8")]
COMMAND = [sys.executable, "-m", "forage"]


@attrs.frozen
class Done:
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.out.splitlines()]


async def forage(*args: object) -> Done:
    """Run the command to its end; any traceback fails the test."""
    with trio.fail_after(30):
        done = await trio.run_process([*COMMAND, *map(str, args)], capture_stdout=True, capture_stderr=True, check=False)
    err = done.stderr.decode()
    assert "Traceback" not in err, err
    return Done(done.returncode, done.stdout.decode(), err)


def html(*hrefs: str) -> Answer:
    return page("".join(f'<a href="{href}">x</a>' for href in hrefs).encode(), headers=HTML)


def opened(server: RawServer) -> Sequence[object]:
    return ["--delay", "0", "--allow-loopback-origin", server.origin]


async def test_crawl_then_resolve_and_replay(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with open_raw_server({"/": [html("/a", "https://out.test/")], "/a": [html()]}) as server:
        crawled = await forage("crawl", server.origin, "--store", store, "--manifest", tmp_path / "m.json", *opened(server))
    assert crawled.code == 0, crawled.err
    assert [r["event"] for r in crawled.rows] == ["page", "page", "skipped", "done"]
    assert "2 captured, 0 failed, 1 skipped" in crawled.err
    manifest = json.loads((tmp_path / "m.json").read_text())
    assert manifest["counts"] == {"seen": 3, "captured": 2, "failed": 0, "skipped": 1}
    reference = str(crawled.rows[1]["sourceRef"])

    resolved = await forage("resolve", reference, "--store", store, "--json")
    assert resolved.code == 0
    assert resolved.rows[0]["integrity"] == "snapshot-envelope"
    body = await forage("resolve", reference, "--store", store, "--body")
    assert body.out == ""
    home = await forage("replay", server.origin + "/", "--store", store, "--body")
    assert home.out == '<a href="/a">x</a><a href="https://out.test/">x</a>'
    again = await forage("crawl", server.origin, "--store", store, "--replay", *opened(server))
    assert again.code == 0
    assert [r["sourceRef"] for r in again.rows if r["event"] == "page"] == [r["sourceRef"] for r in crawled.rows if r["event"] == "page"]


async def test_reference_that_does_not_resolve_says_why(tmp_path: Path) -> None:
    done = await forage("resolve", "forage-snapshot:x?url=u", "--store", tmp_path)
    assert done.code == 1
    assert "invalid-reference" in done.err
    assert done.out == ""


async def test_seed_that_the_guard_refuses_exits_with_5() -> None:
    done = await forage("crawl", "http://169.254.169.254/latest/meta-data/")
    assert done.code == 5
    assert [r["event"] for r in done.rows] == ["failed", "done"]
    assert "DENIED_ADDRESS" in done.err


async def test_seed_that_redirects_to_another_host_prints_the_next_command(tmp_path: Path) -> None:
    moved = page(b"", status="301 Moved", headers=[("Location", "https://www.site.test/?q='a b'")])
    async with open_raw_server({"/": [moved]}) as server:
        done = await forage("crawl", server.origin, "--store", tmp_path, *opened(server))
    assert done.code == 1
    assert f"forage crawl 'https://www.site.test/?q=%27a%20b%27' --store {tmp_path}" in done.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["crawl", "nonsense"], "forage crawl: url: takes an absolute http or https URL"),
        (["crawl", "https://site.test/", "--max-pages", "-1"], "--max-pages: takes"),
        (["crawl", "https://site.test/", "--follow", "("], "--follow"),
        (["crawl", "https://site.test/", "--header", "broken"], "--header"),
        (["crawl", "https://site.test/", "--replay"], "--store"),
        (["crawl", "https://site.test/", "--allow-network", "10.0.0.0/40"], "--allow-network: takes"),
        (["crawl", "https://site.test/", "--allow-loopback-origin", "http://10.0.0.1:80"], "--allow-loopback-origin: takes"),
        (["crawl"], "url"),
        (["nothing"], "nothing"),
    ],
)
async def test_wrong_usage_exits_with_2_and_names_the_flag(args: Sequence[str], said: str) -> None:
    done = await forage(*args)
    assert done.code == 2
    assert said in done.err
    assert done.out == ""


async def test_store_that_cannot_be_used_is_said_before_anything_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    async with open_raw_server({"/": [html()]}) as server:
        done = await forage("crawl", server.origin, "--store", path, *opened(server))
        assert server.requests == []
    assert done.code == 1
    assert "store" in done.err


async def test_fetch_shows_the_facts_and_keeps_the_snapshot(tmp_path: Path) -> None:
    async with open_raw_server({"/": [html()], "/robots.txt": [page(b"")]}) as server:
        done = await forage("fetch", server.origin + "/", "--store", tmp_path, "--json", *opened(server))
        assert done.code == 0, done.err
        replayed = await forage("replay", server.origin + "/", "--store", tmp_path, "--json")
    assert done.rows[0]["status"] == 200
    assert "connected to 127.0.0.1" in done.err
    assert replayed.rows[0]["sourceRef"] == done.rows[0]["sourceRef"]


async def test_fetch_of_a_refused_url_exits_with_5() -> None:
    done = await forage("fetch", "http://10.0.0.5/", "--json")
    assert done.code == 5
    assert done.rows[0]["reason"] == "DENIED_ADDRESS"


async def test_egress_check_prints_verdict_code_rule_and_address() -> None:
    done = await forage("egress", "check", "http://127.0.0.1/", "http://1.1.1.1/", "--json")
    assert done.code == 0
    refused, allowed = done.rows
    assert (refused["verdict"], refused["code"], refused["block"]) == ("refused", "DENIED_ADDRESS", refused["block"])
    assert (allowed["verdict"], allowed["addresses"]) == ("allowed", ["1.1.1.1"])
    assert (await forage("egress", "check", "http://127.0.0.1/")).code == 5


async def test_interrupt_ends_with_a_whole_manifest_and_exit_code_11(tmp_path: Path) -> None:
    slow = Answer(steps=(60.0,), end="hang")
    asked = trio.Event()

    def respond(request: RawRequest) -> Answer:
        if request.target == "/slow":
            asked.set()
            return slow
        return html("/slow")

    async with open_raw_server(respond) as server:
        command = [*COMMAND, "crawl", server.origin, "--ignore-robots", "--manifest", str(tmp_path / "m.json"), *map(str, opened(server))]
        async with trio.open_nursery() as nursery:
            start = partial(trio.run_process, command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            process = await nursery.start(start)
            with trio.fail_after(20):
                await asked.wait()
                process.send_signal(signal.SIGINT)
                await process.wait()
    assert process.returncode == 11
    manifest = json.loads((tmp_path / "m.json").read_text())
    assert manifest["counts"]["captured"] == 1
    assert manifest["skips"][0]["reason"] == "interrupted"


async def test_unguarded_is_said_aloud_and_stands_in_the_manifest(tmp_path: Path) -> None:
    async with open_raw_server({"/": [html()]}) as server:
        done = await forage("crawl", server.origin, "--unguarded", "--port", server.port, "--delay", 0, "--manifest", tmp_path / "m.json")
    assert done.code == 0, done.err
    assert "guard: OFF" in done.err
    assert json.loads((tmp_path / "m.json").read_text())["policy"]["egress"]["guarded"] is False


async def test_output_of_untrusted_text_cannot_drive_the_terminal() -> None:
    moved = page(b"", status="404 \x1b[2J", headers=HTML)
    async with open_raw_server({"/": [html("/%1b[2J")], "/%1b[2J": [moved]}) as server:
        done = await forage("crawl", server.origin, *opened(server))
    assert "\x1b" not in done.err
    assert "\x1b" not in done.out


def test_reader_that_goes_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [*COMMAND, "egress", "check", "http://127.0.0.1/"], stdout=write, stderr=subprocess.PIPE, timeout=30, check=False
        )
    finally:
        os.close(write)
    assert b"Traceback" not in done.stderr
