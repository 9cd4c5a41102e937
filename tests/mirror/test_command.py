"""``forage mirror``: each command against real roots and a loopback archive; data on standard output, text for people on standard error."""

from __future__ import annotations

import argparse
import io
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from forage.cli import mirror as command
from forage.egress import EgressSession
from forage.errors import CaptureError, EgressDeniedError, InvalidPolicyError
from forage.mirror import CacheRoot, Site, open_mirror_server
from forage.mirror.archive import GuardedArchive, archive_egress
from forage.mirror.cache import Entry
from forage.mirror.demo_web import captures, document_url
from forage.mirror.fixpoint import crawl
from forage.mirror.keys import body_path, key_hash, sidecar_path
from forage.mirror.ledgers import Ledgers
from forage.mirror.lock import RootBusyError, root_lock
from forage.mirror.loopback import LoopbackArchive, open_loopback_archive
from forage.mirror.numbers import javascript_number
from forage.mirror.probe import RenderReport, RequestRecord
from tests.support.page_reader import PageReader

DEEP = "20120515093000/http://site.example.org/deep"


@attrs.frozen
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


async def forage(*arguments: object) -> Done:
    """Run a command in this process, with the real tools."""
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers(dest="command"))
    out, err = io.StringIO(), io.StringIO()
    code = await command.run(parser.parse_args(["mirror", *map(str, arguments)]), out, err)
    return Done(code, out.getvalue(), err.getvalue())


@asynccontextmanager
async def mirrored(root: Path, *names: str, edit: Any = None) -> AsyncIterator[tuple[LoopbackArchive, str]]:
    """A loopback archive, and a root into which these documents were crawled."""
    archive = LoopbackArchive(captures())
    async with open_loopback_archive(archive) as base, EgressSession(archive_egress(base)) as session:
        probe = PageReader() if edit is None else PageReader(edit=edit)
        await crawl([document_url(name) for name in names], root=root, fetch=GuardedArchive(session, base=base), probe=probe, delay=0.0)
        archive.log.clear()
        yield archive, base


async def test_a_static_crawl_prints_its_summary_and_says_that_nothing_is_verified(tmp_path: Path) -> None:
    async with mirrored(tmp_path) as (archive, base):
        flags = ["--root", tmp_path, "--static-only", "--delay", "0", "--archive-base", base, "--contact", "me@example.org"]
        done = await forage("crawl", *flags, document_url("deep"))
        assert "me@example.org" in archive.log[0].user_agent
    assert done.code == 0, done.err
    assert done.json["tally"] == {"static": 1}
    assert done.json["root"] == str(tmp_path)
    assert list(done.json) == ["root", "requestCount", "cap", "docs", "tally", "results"]
    assert "static-only" in done.err
    assert f"{DEEP}: 2 fetched" in done.err


async def test_a_crawl_without_browser_has_its_own_exit_code_and_hint(tmp_path: Path) -> None:
    done = await forage("crawl", "--root", tmp_path, "--browser-cmd", "no-such-browser", document_url("deep"))
    assert (done.code, done.out) == (10, "")
    assert "--static-only" in done.err


async def test_a_crawl_of_verified_documents_needs_no_browser(tmp_path: Path) -> None:
    async with mirrored(tmp_path, "deep", "plain"):
        done = await forage("crawl", "--root", tmp_path, "--ledger", tmp_path)
    assert done.code == 0
    assert done.json["tally"] == {"verified-cached": 2}


WARM = """if True:
    import argparse, io, json, sys, trio
    from forage.cli import mirror

    async def main(*arguments):
        opened = []
        watched = ("socket.", "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.system")
        sys.addaudithook(lambda event, _: opened.append(event) if event.startswith(watched) else None)
        out = io.StringIO()
        parser = argparse.ArgumentParser()
        mirror.add_parser(parser.add_subparsers())
        code = await mirror.run(parser.parse_args(["mirror", "crawl", *arguments]), out, sys.stderr)
        print(json.dumps([code, opened, json.loads(out.getvalue())["tally"]]))

    trio.run(main, *sys.argv[1:])
"""


async def test_a_crawl_of_verified_documents_starts_no_process_no_listener_and_no_socket(tmp_path: Path) -> None:
    async with mirrored(tmp_path, "deep", "plain") as (archive, base):
        flags = ["--root", str(tmp_path), "--archive-base", base]
        command = [sys.executable, "-c", WARM, *flags, document_url("deep"), document_url("plain")]
        done = await trio.run_process(command, capture_stdout=True)
        assert not archive.log
    assert json.loads(done.stdout) == [0, [], {"verified-cached": 2}]


async def test_a_root_that_another_process_writes_is_one_error(tmp_path: Path) -> None:
    Ledgers(tmp_path).prepare()
    with root_lock(tmp_path, started="then"), pytest.raises(RootBusyError, match="since then"):
        await forage("crawl", "--root", tmp_path, "--static-only", DEEP)


async def test_a_dry_run_names_what_is_missing(tmp_path: Path) -> None:
    done = await forage("crawl", "-r", tmp_path, "--dry-run", DEEP, "garbage")
    assert done.code == 1
    assert [row["status"] for row in done.json["results"]] == ["dry-run", "error"]
    assert "garbage: unparseable-input" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        [DEEP],
        ["--root", "r"],
        ["--root", "r", "--max", "1.5", DEEP],
        ["--root", "r", "--delay", "soon", DEEP],
        ["--root", "r", "--delay", "nan", DEEP],
        ["--root", "r", "--delay", "1e9", DEEP],
        ["--root", "r", "--retry-terminal", "body", DEEP],
        ["--root", "r", "--retry-terminal", "error:x", DEEP],
        ["--root", "r", DEEP, "--force"],
    ],
)
async def test_wrong_usage(arguments: list[str], tmp_path: Path) -> None:
    done = await forage("crawl", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("forage mirror crawl: ")


@pytest.mark.parametrize("content", [None, "{", "x" * ((1 << 20) + 1)])
async def test_a_policy_file_that_cannot_be_used_is_refused(tmp_path: Path, content: str | None) -> None:
    policy = tmp_path / "policy.json"
    if content is not None:
        policy.write_text(content, "utf-8")
    with pytest.raises(InvalidPolicyError):
        await forage("crawl", "--root", tmp_path, "--allow-escapes", policy, DEEP)


async def test_terminal_captures_are_asked_again_on_request(tmp_path: Path) -> None:
    async with mirrored(tmp_path, "odd") as (archive, base):
        flags = ["--root", tmp_path, "--static-only", "--delay", "0", "--archive-base", base]
        await forage("crawl", *flags, document_url("odd"))
        assert not archive.log
        await forage("crawl", *flags, "--retry-terminal", "error,redirect:0", document_url("odd"))
        assert [hit.target.rpartition("/")[2] for hit in archive.log] == ["gone.png"]


async def test_verify_reports_reaps_and_brings_bodies_again(tmp_path: Path) -> None:
    async with mirrored(tmp_path, "deep") as (_, base):
        sound = await forage("verify", "--root", tmp_path)
        (tmp_path / body_path(key_hash(DEEP))).write_bytes(b"rot")
        (tmp_path / "tmp" / "left.part").write_bytes(b"")
        rotten = await forage("verify", "--root", tmp_path)
        mended = await forage("verify", "--root", tmp_path, "--fix", "--refetch", "--delay", "0", "--archive-base", base)
    assert (sound.code, sound.json["counts"]["sidecars"]) == (0, 5)
    assert rotten.code == 1
    assert [len(rotten.json["findings"][name]) for name in ("hashMismatch", "staleTmp")] == [1, 1]
    assert mended.code == 0, mended.out
    assert f"{DEEP}: fetched again" in mended.err


def asks_a_stranger(url: str, report: RenderReport) -> RenderReport:
    more = RequestRecord(url="https://stats.example.net/app.js", resource_type="script", initiator="http://127.0.0.1/web/x, line 3")
    return attrs.evolve(report, requests=(*report.requests, more)) if url.endswith("late") else report


async def test_status_and_explain_name_what_blocks_and_where_it_stands(tmp_path: Path) -> None:
    async with mirrored(tmp_path, "late", "plain", edit=asks_a_stranger):
        status = await forage("status", "--root", tmp_path, "--json")
        text = await forage("status", "--root", tmp_path)
        explained = await forage("explain", "--root", tmp_path, document_url("late"))
        as_json = await forage("explain", "--root", tmp_path, "--json", document_url("late"))
        verified = await forage("explain", "--root", tmp_path, document_url("plain"))
    assert status.code == 1
    assert (status.json["documents"], status.json["verified"], status.json["reasons"]) == (2, 1, {"unmatched-escapes": 1})
    assert "2 documents, 1 verified" in text.out
    assert (explained.code, verified.code) == (1, 0)
    assert "third party without policy: https://stats.example.net/app.js" in explained.out
    assert "asked for by http://127.0.0.1/web/x, line 3" in explained.out
    (row,) = as_json.json["blocking"]
    assert row["places"][0]["key"].endswith("/late")
    place = row["places"][0]
    source = (tmp_path / body_path(key_hash(place["key"]))).read_text("utf-8")
    assert source.splitlines()[place["line"] - 1][place["column"] - 1 :].startswith("/app.js")


async def test_a_crawl_says_what_did_not_verify_and_how_to_learn_why(tmp_path: Path) -> None:
    parser, out, err = argparse.ArgumentParser(), io.StringIO(), io.StringIO()
    command.add_parser(parser.add_subparsers())
    async with open_loopback_archive(LoopbackArchive(captures())) as base:
        flags = ["--root", str(tmp_path), "--delay", "0", "--archive-base", base]
        args = parser.parse_args(["mirror", "crawl", *flags, document_url("late"), document_url("absent")])
        tools = attrs.evolve(command.default_tools(), open_probe=lambda _: PageReader(edit=asks_a_stranger))
        assert await command.run_crawl(args, out, err, tools) == 1
    lines = err.getvalue().splitlines()
    assert [line.rpartition("/")[2] for line in lines[-5:-3]] == [
        "late: flaky",
        "absent: error: the archive has no such capture (HTTP 404)",
    ]
    assert lines[-3:-1] == ["forage mirror crawl: 2 of 2 documents did not verify", "why:"]
    assert lines[-1].split()[:4] == ["forage", "mirror", "explain", "--root"]
    assert (await forage(*lines[-1].split()[2:])).code == 1


@pytest.mark.parametrize("spelling", ["{base}", "{base}/"])
async def test_replay_urls_of_another_archive_name_the_same_documents(tmp_path: Path, spelling: str) -> None:
    async with open_loopback_archive(LoopbackArchive(captures())) as base:
        given = spelling.format(base=base)
        url = f"{base.replace('http:', 'HTTP:')}/web/{DEEP}"
        flags = ["--static-only", "--delay", "0", "--archive-base", given]
        crawled = await forage("crawl", "--root", tmp_path, *flags, url, document_url("deep"))
        assert (crawled.code, [row["key"] for row in crawled.json["results"]]) == (0, [DEEP])
        for inspect in ("status", "explain"):
            done = await forage(inspect, "--root", tmp_path, "--json", "--archive-base", given, url)
            assert DEEP in done.out
        with pytest.raises(InvalidPolicyError, match="KEY"):
            await forage("explain", "--root", tmp_path, url)  # of which archive is not said
        flags = ["--browser-cmd", "no-such-browser", "--archive-base", given]
        assert (await forage("spot-check", *flags, "http://127.0.0.1:1/mirror", url, f"http://127.0.0.1:1/mirror/web/{DEEP}")).code == 10


async def test_the_command_takes_documents_of_a_service_below_a_path(tmp_path: Path) -> None:
    base = "https://Wayback.example:443/kept/"
    url = f"https://wayback.example/kept/web/{DEEP}"
    done = await forage("crawl", "--root", tmp_path, "--dry-run", "--archive-base", base, url, f"https://wayback.example/web/{DEEP}")
    assert [row["status"] for row in done.json["results"]] == ["dry-run", "error"]


async def test_a_ledger_folder_that_is_not_there_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for name, said in {
        "nowhere": "--ledger takes the folder of a mirror that is there, not ",
        "file": "--ledger takes the folder of a mirror that is there, not ",
        "empty": "--ledger: no HTML document is held in ",
    }.items():
        for more in ([], [DEEP]):
            done = await forage("crawl", "--root", tmp_path / "root", "--ledger", tmp_path / name, *more)
            assert (done.code, done.out) == (2, "")
            assert done.err.startswith(f"forage mirror crawl: {said}{tmp_path / name}")
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("contact", "a\nb"),
        ("contact", ""),
        ("contact", "caf\xe9"),
        ("contact", "x" * 513),
        ("archive_base", "ftp://archive.example"),
        ("archive_base", "archive.example"),
        ("archive_base", "http://user:secret@archive.example"),
        ("archive_base", "http://10.0.0.1"),
        ("archive_base", "http://127.0.0.1"),
        ("archive_base", "http://archive.example:99999"),
        ("archive_base", "http://archive.example:8080"),
        ("archive_base", "http://archive.example/?q"),
        ("timeout", "0"),
        ("documents", "0"),
    ],
)
async def test_a_bad_value_is_told_before_anything_starts(tmp_path: Path, flag: str, value: str) -> None:
    root, option = tmp_path / "root", f"--{flag.replace('_', '-')}={value}"
    with pytest.raises(InvalidPolicyError, match=f"^{flag}"):
        await forage("crawl", "--root", root, "--static-only", option, DEEP)
    assert not root.exists()
    if flag in {"contact", "archive_base"}:
        with pytest.raises(InvalidPolicyError, match=f"^{flag}"):
            await forage("verify", "--root", tmp_path, option)


async def test_no_folder_is_not_the_current_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        await forage("crawl", "--root", tmp_path, "--ledger", "", DEEP)
    assert "argument --ledger: takes the path of a folder" in capsys.readouterr().err


@pytest.mark.parametrize("delay", ["nan", "-1", "inf", "1e9"])
async def test_a_bad_delay_is_told_before_a_mirror_is_read(tmp_path: Path, delay: str) -> None:
    with pytest.raises(InvalidPolicyError, match="--delay"):
        await forage("verify", "--root", tmp_path, f"--delay={delay}")


async def test_a_root_that_is_a_file_is_told_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = await forage("crawl", "--root", tmp_path / "file", "--static-only", DEEP)
    assert (done.code, done.out) == (2, "")
    assert "--root takes a folder" in done.err


async def test_one_of_a_thing_is_told_in_the_singular(tmp_path: Path) -> None:
    done = await forage("crawl", "--root", tmp_path, "--dry-run", "garbage")
    assert "1 of 1 document did not verify" in done.err


async def test_explain_of_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidPolicyError, match="KEY"):
        await forage("explain", "--root", tmp_path, "nonsense")
    assert "absent" in (await forage("explain", "--root", tmp_path, DEEP)).out


async def test_a_spot_check_needs_keys_and_a_browser() -> None:
    with pytest.raises(InvalidPolicyError, match=r"KEY.*'nonsense'"):
        await forage("spot-check", "http://127.0.0.1:1/", DEEP, "nonsense")
    for nowhere in ("nonsense", "http://127.0.0.1:1/?q", "http://127.0.0.1:1/#f", "http://127.0.0.1:1/ x"):
        with pytest.raises(InvalidPolicyError, match="BASE-URL"):
            await forage("spot-check", nowhere, DEEP)
    missing = await forage("spot-check", "--browser-cmd", "no-such-browser", "http://127.0.0.1:1/", DEEP)
    assert (missing.code, missing.out) == (10, "")


async def test_a_spot_check_reaches_no_mirror_on_an_inner_network() -> None:
    with pytest.raises(EgressDeniedError):
        await forage("spot-check", "http://10.0.0.1/", DEEP)


@pytest.mark.slow
async def test_a_spot_check_tells_what_it_found(tmp_path: Path) -> None:
    async with mirrored(tmp_path, "plain"):
        held = frozenset(CacheRoot(tmp_path).load_corpus())
        async with open_mirror_server(Site(CacheRoot(tmp_path), held=held)) as server:
            flags = ["--min-wait", "0", "--browser-kind", "shell"]
            done = await forage("spot-check", *flags, server.url, document_url("plain"), document_url("absent"))
            as_json = await forage("spot-check", *flags, "--json", server.url, document_url("plain"))
    assert done.code == 1
    assert done.out.splitlines()[0].startswith("ok  ")
    assert "answered with 404" in done.out
    assert (as_json.code, as_json.json[0]["ok"]) == (0, True)


@pytest.mark.slow
async def test_the_demonstration_ends_well() -> None:
    done = await forage("demo", "--min-wait", "0", "--browser-kind", "shell")
    assert done.code == 0, done.out
    assert done.out.count("verified ") == 5
    assert done.out.count("http://site.example.org/") == 5
    assert "0 findings on disk" in done.out


SCRIPT = """if True:
    import argparse, sys, trio
    from forage.cli import mirror
    parser = argparse.ArgumentParser()
    mirror.add_parser(parser.add_subparsers())
    raise SystemExit(trio.run(mirror.run, parser.parse_args(sys.argv[1:]), sys.stdout, sys.stderr))
"""


async def started(*arguments: object) -> trio.Process:
    return await trio.lowlevel.open_process([sys.executable, "-c", SCRIPT, "mirror", *map(str, arguments)], stdout=-1, stderr=-1)


async def test_serve_answers_until_interrupted(tmp_path: Path) -> None:
    async with mirrored(tmp_path, "deep"):
        process = await started("serve", "--root", tmp_path)
        assert process.stdout is not None
        with trio.fail_after(60):
            url = (await process.stdout.receive_some()).decode().strip()
        async with EgressSession(archive_egress(url)) as session:
            received = await session.exchange(f"{url}web/{DEEP}")
        process.send_signal(signal.SIGINT)
        with trio.fail_after(60):
            assert await process.wait() == 0
    assert b'href="/web/20120515093000cs_/http://site.example.org/a.css"' in received.body
    assert received.header("content-security-policy") is not None


@pytest.mark.parametrize("port", ["-1", "99999"])
async def test_serving_takes_no_port_that_is_none(tmp_path: Path, port: str) -> None:
    with pytest.raises(InvalidPolicyError, match="port"):
        await forage("serve", "--root", tmp_path, "--port", port)


async def test_a_port_that_is_taken_is_one_error(tmp_path: Path) -> None:
    async with open_loopback_archive(LoopbackArchive(captures())) as base:
        with pytest.raises(CaptureError, match="cannot be listened on"):
            await forage("serve", "--root", tmp_path, "--port", base.rpartition(":")[2])


@pytest.mark.parametrize("command", ["verify", "status"])
async def test_reading_a_whole_mirror_can_be_interrupted(tmp_path: Path, command: str) -> None:
    CacheRoot(tmp_path).commit(Entry(key=DEEP, status="error", fetched_at="2026-01-02T03:04:05.000Z"))
    sidecar = tmp_path / sidecar_path(key_hash(DEEP))
    for n in range(3000):
        sidecar.with_name(f"{n}.json").write_bytes(b"{}")
    done: list[Done] = []

    async def verify() -> None:
        done.append(await forage(command, "--root", tmp_path))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(verify)
        await trio.testing.wait_all_tasks_blocked()
        signal.raise_signal(signal.SIGINT)
    assert (done[0].code, done[0].out) == (11, "")


async def test_an_interrupted_crawl_ends_cleanly_and_keeps_what_it_has(tmp_path: Path) -> None:
    archive, second = LoopbackArchive(captures()), trio.Event()
    archive.on_hit = lambda _: second.set() if len(archive.log) == 2 else None
    async with open_loopback_archive(archive) as base:
        flags = ["--root", tmp_path, "--static-only", "--delay", "2", "--documents", "1", "--archive-base", base]
        process = await started("crawl", *flags, document_url("deep"), document_url("late"))
        with trio.fail_after(60):
            await second.wait()  # the first document's child: the document itself is kept by then
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 11
        assert process.stderr is not None
        assert b"interrupted" in await process.stderr.receive_some()
    assert (tmp_path / body_path(key_hash(DEEP))).exists()
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        (" 5 ", 5),
        ("0x10", 16),
        ("0b11", 3),
        ("0o17", 15),
        ("1e3", 1000),
        ("5.", 5),
        (".5", 0.5),
        ("+7", 7),
        ("-0", 0),
        ("\ufeff1", 1),
    ],
)
def test_numbers_as_javascript_reads_them(text: str, value: float) -> None:
    assert javascript_number(text) == value


@pytest.mark.parametrize("text", ["x", "1_000", "5px", "0x", "-0x10", "Infinity", "NaN", "1e999", "١", "1 2", "9" * 401, "0b2", "--1"])
def test_what_is_no_number(text: str) -> None:
    assert javascript_number(text) is None
