"""``forage render``, ``probe`` and ``doctor``: what they show and write, and what they refuse before a browser is started."""

from __future__ import annotations

import json
import os
from io import StringIO
from pathlib import Path

import pytest

from forage.cli import build_parser, doctor, probe, render
from forage.errors import InvalidPolicyError
from tests.support.browser_site import html, open_browser_site
from tests.support.har_rules import har_problems

COMMANDS = {"render": render, "probe": probe, "doctor": doctor}
LOUD = "<title>t</title><p>text<script>console.error('oh no');fetch('/late')</script>"


async def run(*words: object) -> tuple[int, str, str]:
    args = build_parser().parse_args([str(word) for word in words])
    out, err = StringIO(), StringIO()
    code = await COMMANDS[args.command].run(args, out, err)
    return code, out.getvalue(), err.getvalue()


async def test_render_writes_the_page_its_picture_and_its_log(tmp_path: Path) -> None:
    async with open_browser_site({"/": html(LOUD)}) as site:
        picture, log = tmp_path / "p.png", tmp_path / "p.har"
        code, out, err = await run(
            "render", f"{site.origin}/", "--allow-loopback-origin", site.origin, "--text", "--screenshot", picture, "--har", log
        )
    assert (code, out) == (0, "text\n")
    assert "console: oh no" in err
    assert f"{picture}: {picture.stat().st_size} bytes" in err
    assert picture.read_bytes().startswith(b"\x89PNG")
    document = json.loads(log.read_text("utf-8"))
    assert har_problems(document) == []
    assert len(document["log"]["entries"]) == 2


async def test_probe_logs_every_request_under_the_name_of_the_page_and_not_of_where_it_was_left_for(tmp_path: Path) -> None:
    log = tmp_path / "p.har"
    async with open_browser_site({"/": html(LOUD)}) as site:
        words = ("--allow-loopback-origin", site.origin, "--min-wait", 0, "--browser-kind", "shell", "--har", log)
        code, out, err = await run("probe", f"{site.origin}/", *words)
    assert code == 0, err
    assert [json.loads(line)["url"].removeprefix(site.origin) for line in out.splitlines()] == ["/", "/late"]
    assert json.loads(log.read_text("utf-8"))["log"]["pages"][0]["title"] == f"{site.origin}/"


@pytest.mark.parametrize("command", ["render", "probe"])
async def test_what_the_guard_refuses_is_5_and_the_flag_that_opens_it_is_named(command: str) -> None:
    code, _, err = await run(command, "http://127.0.0.1:9/", "--browser-kind", "shell")
    assert code == 5
    assert "--allow-loopback-origin http://127.0.0.1:9" in err


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (("render", "--screenshot", "{folder}"), "--screenshot"),
        (("render", "--screenshot", "{folder}/none/a.png"), "--screenshot"),
        (("render", "--har", "{folder}/none/a.har"), "--har"),
        (("probe", "--har", "{folder}"), "--har"),
        (("render", "--full-page"), "--full-page"),
        (("render", "--viewport", "wide"), "--viewport"),
    ],
)
async def test_what_could_not_be_done_is_refused_before_anything_is(words: tuple[str, ...], flag: str, tmp_path: Path) -> None:
    command, *others = (word.format(folder=tmp_path) for word in words)
    with pytest.raises(InvalidPolicyError) as refused:
        await run(command, "http://127.0.0.1:9/", *others)
    assert refused.value.field == flag


async def test_doctor_tells_why_there_is_no_browser(tmp_path: Path) -> None:
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o644)
    code, out, err = await run("doctor", "--browser", program)
    assert (code, err) == (10, "a browser is not usable\n")
    assert json.loads(out)["findings"] == [{"level": "problem", "text": "the browser program 'chromium' cannot be executed"}]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts a browser under another account")
async def test_doctor_uses_an_unprivileged_account_for_root() -> None:
    code, out, _ = await run("doctor")
    assert code == 0
    assert json.loads(out)["browser"]["user"] == "nobody"
