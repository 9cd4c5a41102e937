"""Wrong usage, refusals and what a person can do about them: told in the words of the command line, before anything is asked."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import trio

import forage as face
from forage.cli import build_parser
from forage.cli.options import opening_hint
from forage.cli.output import check_output, write_output
from forage.errors import ForageError, InvalidPolicyError
from tests.cli.test_commands import COMMAND, HTML, forage, html, opened
from tests.support.raw_server import Answer, RawRequest, open_raw_server, page

SITE = "https://site.test/"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["egress", "check", "--port", "0", SITE], "forage egress check: --port: takes"),
        (["egress", "proxy", "--max-connections", "0"], "forage egress proxy: --max-connections: takes"),
        (["fetch", "ftp://site.test/"], "forage fetch: url: takes an absolute http or https URL"),
        (["fetch", ""], "forage fetch: url: takes"),
        (["fetch", SITE, "--id", " "], "forage fetch: --id: takes"),
        (["fetch", SITE, "--max-response-bytes", "0"], "--max-response-bytes: takes"),
        (["fetch", SITE, "--header", "Host: inside.test"], "--header: takes"),
        (["fetch", SITE, "--header", "content-length: 3"], "--header: takes"),
        (["fetch", SITE, "--header", "a b: c"], "--header: takes"),
        (["fetch", SITE, "--store", ""], "--store"),
        (["crawl", SITE, "--store", ""], "--store"),
        (["replay", SITE, "--store", ""], "--store"),
        (["crawl", SITE, "--ca-file", "/absent.pem"], "forage crawl: --ca-file: takes a readable file"),
        (["egress", "check", "--ca-file", "/dev/null", SITE], "forage egress check: --ca-file: takes"),
        (["crawl", SITE, "--manifest", "/absent/m.json"], "forage crawl: --manifest: takes"),
        (["crawl", SITE, "--manifest", "/"], "forage crawl: --manifest: takes"),
        (
            ["mirror", "crawl", "--root", "/absent", "--contact", "a\nb", "2012/http://x.test/"],
            "forage mirror crawl: --contact: takes one line",
        ),
        (["mirror", "verify", "--root", "/", "--contact", "a\nb"], "forage mirror verify: --contact: takes one line"),
        (["mirror", "explain", "--root", "/", "x"], "forage mirror explain: KEY: takes TIMESTAMP/ORIGINAL, or a replay URL of https://web"),
        (["mirror", "status", "--root", "/", "x"], "forage mirror status: KEY: takes TIMESTAMP/ORIGINAL, or a replay URL of https://web"),
        (["mirror", "spot-check", "nonsense", "2012/http://x.test/"], "forage mirror spot-check: BASE-URL: takes the http or https URL"),
        *(
            (["mirror", action, "--root", "/absent", *more], f"forage mirror {action}: --root: takes the folder of a mirror")
            for action, more in {"status": [], "verify": [], "serve": [], "explain": ["20120515093000/http://site.test/"]}.items()
        ),
    ],
)
async def test_wrong_usage_exits_with_2_and_names_command_and_flag(args: list[str], said: str) -> None:
    done = await forage(*args)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            ["--allow-loopback-origin", "http://127.0.0.1:8000/a"],
            '--allow-loopback-origin: takes origins "http://127.0.0.1:PORT" or "http://[::1]:PORT", not \'http://127.0.0.1:8000/a\'\n',
        ),
        (["--port", "8080", "--port", "99999"], "--port: takes ports from 1 to 65535, not 8080, 99999\n"),
        (["--delay=-1"], "--delay: takes seconds from 0, at most 604800, not -1\n"),
        (["--user-agent", "a\nb"], "--user-agent: takes printable ASCII text, not 'a\\nb'\n"),
    ],
)
async def test_what_a_flag_does_not_take_is_shown_as_it_was_typed(flags: list[str], said: str) -> None:
    done = await forage("fetch", SITE, *flags)
    assert (done.code, done.out, done.err) == (2, "", f"forage fetch: {said}")


async def test_a_loopback_origin_may_end_in_a_slash() -> None:
    with_slash = await forage("egress", "check", "--allow-loopback-origin", "http://127.0.0.1:8000/", "http://127.0.0.1:8000/a")
    assert (with_slash.code, with_slash.err) == (0, "")


async def test_an_unknown_flag_shows_the_usage_of_its_command() -> None:
    done = await forage("egress", "check", "--bogus", SITE)
    assert done.code == 2
    assert done.err.startswith("usage: forage egress check ")
    assert "--bogus" in done.err


async def test_version_is_that_of_the_package() -> None:
    done = await forage("--version")
    assert (done.code, done.out) == (0, f"forage {face.__version__}\n")


async def test_output_that_cannot_be_written_is_one_line_and_exit_code_1() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        command = [*COMMAND, "egress", "check", "http://1.1.1.1/"]
        done = await trio.run_process(command, stdout=full, capture_stderr=True, check=False)
    finally:
        os.close(full)
    assert done.returncode == 1
    assert done.stderr == b"forage egress check: the output cannot be written (No space left on device)\n"


def test_interrupt_while_the_command_loads_leaves_no_traceback() -> None:
    script = """if True:
        import signal, sys, forage.cli
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background jobs ignore it
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        sys.exit(forage.cli.main(["egress", "proxy"]))
    """
    done = subprocess.run([COMMAND[0], "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (11, "")


def test_an_interrupt_that_a_loading_module_loses_is_told_all_the_same() -> None:
    script = """if True:
        import signal, sys, forage.cli
        class Careless:
            def find_spec(self, name, *_):
                if name == "trio":
                    try:
                        signal.raise_signal(signal.SIGINT)
                    except BaseException:
                        pass
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.meta_path.insert(0, Careless())
        sys.exit(forage.cli.main(["egress", "check", "http://10.0.0.1/"]))
    """
    done = subprocess.run([COMMAND[0], "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (11, "", "")


def test_loading_the_command_waits_with_all_that_is_slow() -> None:
    script = "import sys, forage.cli; sys.exit('trio' in sys.modules)"
    assert subprocess.run([COMMAND[0], "-c", script], timeout=30, check=False).returncode == 0


# --- refusals and what opens them


@pytest.mark.parametrize(
    ("code", "url", "hint"),
    [
        ("INVALID_PORT", "http://127.0.0.1:8000/a", "--allow-loopback-origin http://127.0.0.1:8000"),
        ("DENIED_ADDRESS", "http://[::1]:8000/", "--allow-loopback-origin http://[::1]:8000"),
        ("DENIED_ADDRESS", "http://127.0.0.1/", "--allow-loopback-origin"),
        ("INVALID_PORT", "https://site.test:8443/", "--port 8443"),
        ("DENIED_ADDRESS", "http://10.0.0.1/", None),
        ("INVALID_PORT", "http://site.test:0/", None),
        ("DENIED_HOST", "http://localhost/", None),
        ("INVALID_URL", "nonsense", None),
        (None, SITE, None),
    ],
)
def test_a_refusal_names_the_one_flag_that_opens_it(code: str | None, url: str, hint: str | None) -> None:
    found = opening_hint(code, url)
    assert (found is None) is (hint is None)
    assert (hint or "") in (found or "")


async def test_a_refused_loopback_url_comes_with_the_hint() -> None:
    for command in (["crawl"], ["fetch"], ["egress", "check"]):
        done = await forage(*command, "http://127.0.0.1:8000/")
        assert done.code == 5
        assert "--allow-loopback-origin http://127.0.0.1:8000" in done.err
        assert "port 8000" in done.out + done.err


async def test_a_host_that_is_down_was_not_refused() -> None:
    async with open_raw_server({}) as server:
        origin = server.origin
    for flags, where in ([], "skipped (robots-unreachable)"), (["--ignore-robots"], "failed (network CONNECT_FAILED)"):
        done = await forage("crawl", origin, *flags, "--delay", 0, "--allow-loopback-origin", origin)
        assert done.code == 1
        assert where in done.err
        assert "could not be reached, CONNECT_FAILED for 127.0.0.1" in done.err
        assert "refused" not in done.err
        assert "pauses for 0.0 s" not in done.err


# --- the next command


def test_the_next_command_repeats_the_flags_and_no_header() -> None:
    line = ["crawl", SITE, "--store", "a b", "--max-pages", "7", "--ignore-robots", "--port", "81", "--port", "82"]
    args = build_parser().parse_args([*line, "--header", "Authorization: secret", "--user-agent=-x", "--delay", "1.0"])
    words = shlex.split(args.next_command(args, "https://other.test/?q='1'"))
    assert words[:3] == ["forage", "crawl", "https://other.test/?q='1'"]
    again = build_parser().parse_args(words[1:])
    for name in ("store", "max_pages", "ignore_robots", "port", "user_agent", "delay"):
        assert getattr(again, name) == getattr(args, name)
    assert again.header == []


@pytest.mark.parametrize(("command", "code"), [("crawl", 5), ("fetch", 5)])
async def test_a_target_that_the_guard_refuses_is_not_suggested(command: str, code: int) -> None:
    moved = page(b"", status="302 Found", headers=[("Location", "http://169.254.169.254/latest/")])
    async with open_raw_server({"/": [moved]}) as server:
        done = await forage(command, server.origin + "/", *opened(server))
    assert done.code == code
    assert "DENIED_ADDRESS" in done.err
    assert "forage crawl http" not in done.err
    assert "forage fetch http" not in done.err


async def test_fetch_suggests_the_target_with_its_flags(tmp_path: Path) -> None:
    moved = page(b"", status="302 Found", headers=[("Location", "https://www.site.test/")])
    async with open_raw_server({"/": [moved]}) as server:
        done = await forage("fetch", server.origin + "/", "--store", tmp_path, "--ignore-robots", *opened(server))
    (line,) = re.findall("^  (forage fetch .*)$", done.err, re.MULTILINE)
    assert f"forage fetch https://www.site.test/ --store {tmp_path} --delay 0.0 --ignore-robots --allow-loopback-origin" in line


# --- the manifest's file


def test_a_written_file_takes_the_place_of_the_old_one_and_of_nothing_else(tmp_path: Path) -> None:
    old, link, new = tmp_path / "old", tmp_path / "link", tmp_path / "new"
    old.write_text("x")
    old.chmod(0o640)
    link.symlink_to(old)
    for path in (link, new):
        check_output("--manifest", path)
        write_output("--manifest", path, "text")
    assert (old.read_text(), old.stat().st_mode & 0o777, new.read_text()) == ("text", 0o640, "text")
    assert link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "new", "old"]
    check_output("--manifest", Path("/dev/stdout"))
    with pytest.raises(InvalidPolicyError):
        check_output("--manifest", tmp_path)
    with pytest.raises(ForageError, match="cannot be written"):
        write_output("--manifest", tmp_path / "absent" / "m.json", "text")


async def test_a_manifest_that_cannot_be_written_in_the_end_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()

    def respond(request: RawRequest) -> Answer:
        if folder.exists():
            folder.rmdir()
        return html()

    async with open_raw_server(respond) as server:
        done = await forage("crawl", server.origin, "--manifest", folder / "m.json", *opened(server))
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("forage crawl: --manifest: ")


# --- what fetch and replay tell


async def test_fetch_tells_all_that_it_knows_in_json(tmp_path: Path) -> None:
    def respond(request: RawRequest) -> Answer:
        if request.target == "/a":
            return page(b"", status="302 Found", headers=[("Location", "/b")])
        if request.header("if-none-match"):
            return page(b"", status="304 Not Modified", headers=[("ETag", '"1"')])
        return page(b"b", headers=[*HTML, ("ETag", '"1"')])

    async with open_raw_server(respond) as server:
        moved = await forage("fetch", server.origin + "/a", "--ignore-robots", "--json", *opened(server))
        for _ in range(2):
            done = await forage("fetch", server.origin + "/b", "--ignore-robots", "--json", "--store", tmp_path, *opened(server))
    (row,), (again,) = moved.rows, done.rows
    assert row["redirects"] == [server.origin + "/a"]
    assert (row["requests"], row["connected"], row["notModified"], row["warnings"]) == (2, "127.0.0.1", False, [])
    assert {"seconds", "timings", "answers"} <= set(row)
    assert again["notModified"] is True
    assert "not modified" in done.err
    assert "connected to 127.0.0.1\n" in done.err
    assert "1 request in" in done.err


async def test_replay_gives_the_newest_of_all_that_it_looks_for(tmp_path: Path) -> None:
    bodies = iter([b"fetched", b"crawled"])
    async with open_raw_server(lambda _: page(next(bodies), headers=HTML)) as server:
        for command in ("fetch", "crawl"):
            done = await forage(command, server.origin + "/", "--ignore-robots", "--store", tmp_path, *opened(server))
            assert done.code == 0, done.err
    replayed = await forage("replay", server.origin + "/", "--store", tmp_path, "--body")
    assert replayed.out == "crawled"


async def test_failures_are_json_where_json_is_asked_for(tmp_path: Path) -> None:
    resolved = await forage("resolve", "nonsense", "--store", tmp_path, "--json")
    replayed = await forage("replay", SITE, "--store", tmp_path, "--json")
    shown = await forage("snapshots", "show", tmp_path, "nonsense", "--json")
    assert (resolved.code, replayed.code, shown.code) == (1, 1, 1)
    assert resolved.rows[0]["error"] == "invalid-reference"
    assert replayed.rows[0]["error"] == "no-snapshot"
    assert shown.rows[0]["error"] == "no-snapshot"
    assert json.loads(replayed.out)["sourceIds"][0] == SITE
