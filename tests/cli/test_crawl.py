"""``forage crawl`` as people run it: on a terminal, interrupted, and going on where it was."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from jsonschema import Draft202012Validator

from forage.cli.status import StatusLine, crawl_status
from forage.crawler import CrawlManifest, CrawlProgress, HostWait, manifest_schema
from tests.cli.test_commands import forage, html, opened
from tests.support.raw_server import Answer, RawRequest, RawServer, open_raw_server, page
from tests.support.terminal import open_terminal

PAGES = 12


def chain(request: RawRequest) -> Answer:
    """Pages that lead from one to the next, and a host that wants to be left alone at the fourth."""
    if request.target == "/robots.txt":
        return page(b"", headers=[("Content-Type", "text/plain")])
    number = int(request.target.strip("/") or 0)
    return html(f"/{number + 1}") if number + 1 < PAGES else html()


def busy_at(number: int, seconds: int) -> object:
    asked: list[str] = []

    def respond(request: RawRequest) -> Answer:
        if request.target == f"/{number}" and request.target not in asked:
            asked.append(request.target)
            return page(b"", status="429 Too Many Requests", headers=[("Retry-After", str(seconds))])
        return chain(request)

    return respond


def crawl_words(server: RawServer, *words: object) -> list[str]:
    return [str(word) for word in ("crawl", server.origin, "--max-pages", 50, "--max-depth", 50, *opened(server), *words)]


def command(server: RawServer, *words: object) -> list[str]:
    return [sys.executable, "-m", "forage", *crawl_words(server, *words)]


def assert_valid(path: Path) -> CrawlManifest:
    text = path.read_text("utf-8")
    Draft202012Validator(manifest_schema()).validate(json.loads(text))
    return CrawlManifest.from_json(text)


async def test_terminal_shows_how_far_the_crawl_is_and_ctrl_c_ends_it_cleanly(tmp_path: Path) -> None:
    manifest, state = tmp_path / "m.json", tmp_path / "state"
    async with open_raw_server(busy_at(4, 60)) as server:  # type: ignore[arg-type]  # a responder
        words = command(server, "--manifest", manifest, "--state", state, "--store", tmp_path / "store")
        with trio.fail_after(60):
            async with open_terminal(words) as terminal:
                await terminal.until("next start in 5")
                terminal.press("\x03")
                code = await terminal.end()
        assert code == 11
        shown = terminal.shown
        assert "4 pages, 0 failed, 0 waiting, 1 host, " in shown
        assert f"paused: {server.host_header} 60 s" in shown
        assert "interrupted: finishing what is kept" in shown
        assert "Traceback" not in shown
        found = assert_valid(manifest)
        assert [page.stored for page in found.pages] == [True] * 4
        assert found.budgets_hit == ("interrupted",)
        # The last line that was drawn is taken away again; what stays are whole lines.
        assert shown.rindex("\r\x1b[K") > shown.rindex("next start in")
        (resumed,) = [line.strip() for line in shown.splitlines() if line.strip().startswith("forage crawl") and "--resume" in line]
        assert str(state) in resumed


async def test_second_ctrl_c_ends_at_once() -> None:
    async with open_raw_server(busy_at(2, 60)) as server:  # type: ignore[arg-type]  # a responder
        with trio.fail_after(60):
            async with open_terminal(command(server)) as terminal:
                await terminal.until("next start in")
                began = trio.current_time()
                terminal.press("\x03\x03")
                assert await terminal.end() == 11
    assert trio.current_time() - began < 10
    assert "Traceback" not in terminal.shown


async def test_line_fits_the_terminal_and_is_left_out_of_dumb_ones() -> None:
    async with open_raw_server(chain) as server:
        with trio.fail_after(60):
            async with open_terminal(command(server, "--delay", "0.05"), columns=30) as terminal:
                assert await terminal.end() == 0
            drawn = [part for part in terminal.shown.replace("\x1b[K", "\r").split("\r") if " waiting" in part]
            assert drawn
            assert all(len(part) <= 29 for part in drawn)
            async with open_terminal(command(server), environment={"TERM": "dumb"}) as terminal:
                assert await terminal.end() == 0
            assert "\x1b" not in terminal.shown


async def test_pipes_get_json_lines_and_no_control_sequences() -> None:
    async with open_raw_server(chain) as server:
        done = await forage(*crawl_words(server))
    assert [row["event"] for row in done.rows] == ["page"] * PAGES + ["done"]
    assert "\x1b" not in done.err + done.out
    assert "\r" not in done.err + done.out


async def test_crawl_goes_on_where_it_was(tmp_path: Path) -> None:
    state, store = tmp_path / "state", tmp_path / "store"
    async with open_raw_server(chain) as server:
        first = await forage(*crawl_words(server, "--state", state, "--store", store, "--max-seconds", "0.8", "--delay", "0.25"))
        assert first.code == 0, first.err
        pages = sum(row["event"] == "page" for row in first.rows)
        assert 0 < pages < PAGES
        server.requests.clear()
        second = await forage(*crawl_words(server, "--resume", state, "--store", store, "--delay", "0.25"))
        assert second.code == 0, second.err
        assert sum(row["event"] == "page" for row in second.rows) == PAGES
        asked = [request.target for request in server.requests if request.target != "/robots.txt"]
        assert asked == [f"/{number}" for number in range(pages, PAGES)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--resume", "{folder}/none"], "--resume: takes a file that an earlier crawl wrote with --state"),
        (["--state", "{folder}/a", "--resume", "{folder}/b"], "not allowed with"),
        (["--state", "{folder}/a", "--replay", "--store", "{folder}"], "--state: takes a crawl that asks servers"),
        (["--state", "{folder}/no/state"], "--state: takes a state file"),
        (["--state", "{folder}"], "--state: takes a state file"),
    ],
)
async def test_state_that_cannot_be_used_is_said_before_anything_is_asked(tmp_path: Path, words: Sequence[str], said: str) -> None:
    async with open_raw_server(chain) as server:
        done = await forage(*crawl_words(server, *(word.format(folder=tmp_path) for word in words)))
        assert server.requests == []
    assert done.code == 2
    assert said in done.err


async def test_state_is_for_one_policy_the_filter_included(tmp_path: Path) -> None:
    state, manifest = tmp_path / "state", tmp_path / "m.json"
    async with open_raw_server(chain) as server:
        done = await forage(*crawl_words(server, "--state", state, "--follow", "/[0-4]$", "--manifest", manifest))
        assert done.code == 0
        assert assert_valid(manifest).policy["shouldFollow"] == "URL matches /[0-4]$"
        again = await forage(*crawl_words(server, "--resume", state, "--follow", "/[0-5]$"))
    assert again.code == 2
    assert "same policy" in again.err


def test_status_tells_pages_hosts_rate_pauses_and_the_next_start() -> None:
    moment = [0.0]
    progress = [CrawlProgress()]
    text = crawl_status(lambda: progress[0], now=lambda: moment[0])
    assert text() == "0 pages, 0 failed, 0 waiting, 0 hosts, 0.0/s"
    moment[0] = 4.0
    waits = (
        HostWait(host="a.test", seconds=0.52, why="delay"),
        HostWait(host="b.test\x1b", seconds=12.4, why="host-paused"),
        HostWait(host="c.test", seconds=30, why="retry"),
    )
    progress[0] = CrawlProgress(captured=10, failed=1, hosts=1, waiting=7, under_way=2, waits=waits)
    assert text() == "10 pages, 1 failed, 7 waiting, 1 host, 2.5/s, paused: b.test\\x1b 12 s and 1 more, next start in 0.5 s"
    moment[0] = 15.0
    progress[0] = CrawlProgress(captured=10, hosts=1, waits=waits[2:])
    assert text() == "10 pages, 0 failed, 0 waiting, 1 host, 0.0/s, paused: c.test 30 s, next start in 30.0 s"


async def test_status_of_a_stream_that_is_no_terminal_is_nothing() -> None:
    err = io.StringIO()
    async with trio.open_nursery() as nursery:
        status = StatusLine(err, lambda: "never")
        await nursery.start(status.run)
        await trio.sleep(0.3)
        status.say("a line")
    assert err.getvalue() == "a line\n"
