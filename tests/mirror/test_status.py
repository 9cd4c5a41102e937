"""``forage mirror status`` and ``explain`` say what is on disk: a stamp counts for as long as the files do."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from forage.egress import EgressSession
from forage.mirror import CacheRoot, verify_root
from forage.mirror.archive import GuardedArchive, archive_egress
from forage.mirror.cache import Entry
from forage.mirror.demo_web import STAMP, captures, document_url
from forage.mirror.fixpoint import crawl
from forage.mirror.keys import body_path, key_hash, sidecar_path
from forage.mirror.ledgers import Ledgers
from forage.mirror.loopback import Fault, LoopbackArchive, open_loopback_archive
from forage.mirror.probe import RenderReport, RequestRecord
from forage.mirror.status import mirror_status
from tests.cli.test_commands import Done, forage
from tests.support.page_reader import PageReader

NOW = "2026-01-02T03:04:05.000Z"


def key_of(name: str) -> str:
    return f"{STAMP}/http://site.example.org/{name}"


DEEP, PLAIN, FONT = key_of("deep"), key_of("plain"), key_of("f.woff")


@asynccontextmanager
async def archive(**faults: list[Fault]) -> AsyncIterator[tuple[str, GuardedArchive]]:
    loopback = LoopbackArchive(captures(), faults={f"http://site.example.org/{name}": rows for name, rows in faults.items()})
    async with open_loopback_archive(loopback) as base, EgressSession(archive_egress(base)) as session:
        yield base, GuardedArchive(session, base=base)


@pytest.fixture
async def verified(tmp_path: Path) -> Path:
    """A root with two verified documents, one of which has a font at depth 3."""
    root = tmp_path / "root"
    async with archive() as (_, fetch):
        report = await crawl([document_url("deep"), document_url("plain")], root=root, fetch=fetch, probe=PageReader(), delay=0.0)
    assert report.ok
    return root


def sidecar_of(root: Path, key: str) -> Path:
    return root / sidecar_path(key_hash(key))


def body_of(root: Path, key: str) -> Path:
    return root / body_path(key_hash(key))


async def status_of(root: Path, *more: object) -> tuple[Done, dict[str, Any]]:
    done = await forage("mirror", "status", "--root", root, "--json", *more)
    return done, json.loads(done.out)


async def test_status_and_explain_of_a_sound_root_end_with_0(verified: Path) -> None:
    done, status = await status_of(verified)
    assert (done.code, done.err, status["verified"], status["findings"]) == (0, "", 2, {})
    assert (await forage("mirror", "explain", "--root", verified, DEEP)).code == 0


def flipped(path: Path) -> None:
    """As long as it was: nothing but its digest tells."""
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])


DAMAGE: dict[str, tuple[Callable[[Path], Any], set[str]]] = {
    "its sidecar is no JSON": (lambda root: sidecar_of(root, DEEP).write_bytes(b"{"), {DEEP}),
    "its sidecar is for another key": (lambda root: shutil.copy(sidecar_of(root, PLAIN), sidecar_of(root, DEEP)), {DEEP}),
    "its sidecar is of a later version": (
        lambda root: sidecar_of(root, DEEP).write_bytes(sidecar_of(root, DEEP).read_bytes().replace(b'"v":3', b'"v":4')),
        {DEEP},
    ),
    "its sidecar is gone": (lambda root: sidecar_of(root, DEEP).unlink(), {DEEP}),
    "its sidecar is a folder": (lambda root: a_folder(sidecar_of(root, DEEP)), {DEEP}),
    "its sidecar says that there is no body": (
        lambda root: sidecar_of(root, DEEP).write_bytes(sidecar_of(root, DEEP).read_bytes().replace(b'"body"', b'"empty"')),
        {DEEP},
    ),
    "its body was changed": (lambda root: flipped(body_of(root, DEEP)), {DEEP}),
    "its body is gone": (lambda root: body_of(root, DEEP).unlink(), {DEEP}),
    "the body of its child was changed": (lambda root: flipped(body_of(root, FONT)), {DEEP}),
    "the sidecar of its child is rotten": (lambda root: sidecar_of(root, FONT).write_bytes(b"\xff"), {DEEP}),
    "the sidecar of its child is gone": (lambda root: sidecar_of(root, FONT).unlink(), {DEEP}),
    "all bodies are behind a link": (lambda root: linked(root / "cap"), {DEEP, PLAIN}),
    "all sidecars are behind a link": (lambda root: linked(root / "meta"), {DEEP, PLAIN}),
    "all sidecars are gone": (lambda root: shutil.rmtree(root / "meta"), {DEEP, PLAIN}),
    "a shard of the sidecars is behind a link": (lambda root: linked(sidecar_of(root, DEEP).parent), {DEEP}),
}


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def linked(folder: Path) -> None:
    """The very same files, where no link is followed."""
    away = folder.parents[1 if folder.parent.name == "root" else 2] / "away"
    folder.rename(away)
    folder.symlink_to(away)


@pytest.mark.parametrize("what", DAMAGE)
async def test_no_stamp_makes_a_document_verified_whose_files_are_broken(verified: Path, what: str) -> None:
    damage, broken = DAMAGE[what]
    damage(verified)
    done, status = await status_of(verified)
    assert {row["key"] for row in status["unverified"]} == broken
    assert (done.code, status["documents"], status["verified"]) == (1, 2, 2 - len(broken))
    for key in (DEEP, PLAIN):
        explained = await forage("mirror", "explain", "--root", verified, key)
        assert explained.code == (key in broken), explained.out
        assert (": verified" in explained.out) is (key not in broken)


async def test_status_says_which_command_names_what_is_broken(verified: Path) -> None:
    flipped(body_of(verified, FONT))
    done = await forage("mirror", "status", "--root", verified)
    assert done.out.splitlines() == ["2 documents, 1 verified", "     1  corrupt", f"corrupt\t{DEEP}"]
    assert done.err.splitlines() == ["forage mirror status: 1 finding on disk; which:", f"  forage mirror verify --root {verified}"]
    explained = await forage("mirror", "explain", "--root", verified, DEEP)
    assert explained.out.splitlines() == [f"{DEEP}: corrupt", f"  body that does not match its sidecar: {FONT}"]


async def test_what_the_documents_advise_mends_what_is_broken(verified: Path) -> None:
    flipped(body_of(verified, FONT))
    sidecar_of(verified, DEEP).write_bytes(b"{")
    async with archive() as (base, fetch):
        refetch = ["--refetch", "--delay", "0", "--archive-base", base]
        assert (await forage("mirror", "verify", "--root", verified, *refetch)).code == 1
        sidecar_of(verified, DEEP).unlink()
        report = await crawl([document_url("deep")], root=verified, fetch=fetch, probe=PageReader(), delay=0.0, force=True)
    assert report.tally == {"verified": 1}
    assert (await status_of(verified))[0].code == 0


async def test_records_nested_without_end_are_no_records(verified: Path) -> None:
    with (verified / ".crawl/verified.jsonl").open("a", encoding="ascii") as file:
        file.write("[" * 500_000 + "\n" + '{"key":' * 200_000 + "\n" + '{"key":"2012/http://x/","ruleVersion":' + "9" * 5000 + "}\n")
    assert (await status_of(verified))[0].code == 0


async def test_what_is_broken_and_belongs_to_no_document_is_told_too(verified: Path) -> None:
    CacheRoot(verified).commit(Entry(key=key_of("else"), status="body", content_type="font/woff", fetched_at=NOW), b"else")
    flipped(body_of(verified, key_of("else")))
    done, status = await status_of(verified)
    assert (done.code, status["verified"], status["findings"]) == (1, 2, {"hashMismatch": 1})


async def test_what_no_document_needs_is_no_damage(verified: Path) -> None:
    (verified / "tmp/left.part").write_bytes(b"")
    (verified / "README").write_bytes(b"")
    assert not verify_root(verified).ok
    assert (await status_of(verified))[0].code == 0


@pytest.mark.parametrize("flags", [[], ["--static-only"]])
async def test_a_crawl_whose_documents_all_end_in_an_error_leaves_a_status_that_does_not_end_with_0(
    tmp_path: Path, flags: list[str]
) -> None:
    async with archive() as (base, fetch):
        options: dict[str, Any] = {"static_only": bool(flags), "delay": 0.0, "attempts": 1}
        names = [document_url("absent"), document_url("never")]
        report = await crawl(names, root=tmp_path, fetch=fetch, probe=PageReader(), archive_base=base, **options)
    assert report.tally == {"error": 2}
    done, status = await status_of(tmp_path)
    assert (done.code, status["documents"], status["verified"], status["reasons"]) == (1, 2, 0, {"error": 2})
    explained = await forage("mirror", "explain", "--root", tmp_path, key_of("absent"))
    assert (explained.code, explained.out) == (1, f"{key_of('absent')}: error, the archive has no such capture (HTTP 404)\n")


async def test_an_error_is_forgotten_once_the_document_came(tmp_path: Path) -> None:
    async with archive(plain=[Fault(status=404)]) as (_, fetch):
        for expected in ("error", "static", "verified"):
            static = expected != "verified"
            report = await crawl(
                [document_url("plain")], root=tmp_path, fetch=fetch, probe=PageReader(), delay=0.0, attempts=1, static_only=static
            )
            assert report.tally == {expected: 1}
            reasons = {"error": {"error": 1}, "static": {"not-rendered": 1}, "verified": {}}[expected]
            assert mirror_status(tmp_path)["reasons"] == reasons


async def test_documents_beyond_the_cap_of_a_run_are_documents(tmp_path: Path) -> None:
    async with archive() as (_, fetch):
        names = [document_url("plain"), document_url("deep"), document_url("late")]
        report = await crawl(names, root=tmp_path, fetch=fetch, probe=PageReader(), delay=0.0, max_requests=1)
    assert report.tally == {"verified": 1, "cap-skipped": 2}
    assert mirror_status(tmp_path)["reasons"] == {"cap-skipped": 2}


async def test_a_crawl_that_was_killed_leaves_its_documents_unverified(tmp_path: Path) -> None:
    async with archive() as (_, fetch):
        with trio.CancelScope() as scope:

            async def killed(url: str) -> Any:
                if url.endswith("/deep"):
                    scope.cancel()
                return await fetch(url)

            names = [document_url("plain"), document_url("deep")]
            await crawl(names, root=tmp_path, fetch=killed, probe=PageReader(), delay=0.0, documents=1)
    status = mirror_status(tmp_path)
    assert (status["documents"], status["verified"], status["reasons"]) == (2, 1, {"absent": 1})


@pytest.mark.parametrize("made", [[], ["meta", ".crawl"]])
async def test_a_folder_without_documents_is_not_verified(tmp_path: Path, made: list[str]) -> None:
    for name in made:
        (tmp_path / name).mkdir()
    done, status = await status_of(tmp_path)
    assert (done.code, status["documents"]) == (1, 0)
    assert "no documents" in done.err


async def test_records_behind_a_link_are_no_records(verified: Path) -> None:
    (verified / ".crawl").rename(verified.parent / "records")
    (verified / ".crawl").symlink_to(verified.parent / "records")
    for command in (["status"], ["explain", DEEP]):
        done = await forage("mirror", command[0], "--root", verified, *command[1:])
        assert (done.code, done.out) == (1, "")
        assert done.err == f"forage mirror {command[0]}: the crawler's records cannot be read\n"


async def test_status_of_some_documents(verified: Path) -> None:
    flipped(body_of(verified, FONT))
    _, status = await status_of(verified, PLAIN)
    assert (status["documents"], status["verified"]) == (1, 1)
    done, status = await status_of(verified, document_url("deep"), key_of("absent"), key_of("absent"))
    assert [(row["reason"], row["key"]) for row in status["unverified"]] == [("corrupt", DEEP), ("absent", key_of("absent"))]
    assert done.code == 1


def asks_a_stranger(_: str, report: RenderReport) -> RenderReport:
    more = RequestRecord(url="https://stats.example.net/app.js", resource_type="script")
    return attrs.evolve(report, requests=(*report.requests, more))


async def test_broken_files_hide_nothing_of_the_last_render(tmp_path: Path) -> None:
    async with archive() as (_, fetch):
        await crawl([document_url("deep")], root=tmp_path, fetch=fetch, probe=PageReader(edit=asks_a_stranger), delay=0.0)
    sidecar_of(tmp_path, FONT).unlink()
    explained = await forage("mirror", "explain", "--root", tmp_path, DEEP)
    assert f"{DEEP}: flaky, unmatched-escapes" in explained.out
    assert mirror_status(tmp_path)["reasons"] == {"unmatched-escapes": 1}
    flipped(body_of(tmp_path, DEEP))
    explained = await forage("mirror", "explain", "--root", tmp_path, DEEP)
    assert explained.out.splitlines()[0] == f"{DEEP}: corrupt"
    assert "third party without policy: https://stats.example.net/app.js" in explained.out


async def test_status_beside_a_crawl_blames_nothing_that_is_on_its_way(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    async with archive() as (_, fetch), trio.open_nursery() as nursery:

        async def watch() -> None:
            while True:
                seen.append(await trio.to_thread.run_sync(mirror_status, tmp_path))

        nursery.start_soon(watch)
        for _ in range(5):
            names = [document_url(name) for name in ("deep", "late", "lists", "plain")]
            await crawl(names, root=tmp_path, fetch=fetch, probe=PageReader(), delay=0.0, force=True)
        nursery.cancel_scope.cancel()
    reasons = {reason for status in seen for reason in status["reasons"]}
    assert reasons <= {"not-rendered", "absent"}, reasons
    assert mirror_status(tmp_path)["verified"] == 4


async def test_keys_that_no_terminal_and_no_encoding_takes_are_told_all_the_same(tmp_path: Path) -> None:
    ledgers = Ledgers(tmp_path)
    ledgers.prepare()
    keys = ["20120515093000/http://x.org/\x1b[2J", "20120515093000/http://x.org/\ud800", "20120515093000/http://x.org/\u202e", "2012/é"]
    for key in keys:
        ledgers.append("verified.jsonl", {"key": key, "ruleVersion": 3})
    ledgers.append("flaky.jsonl", {"key": "2012/x", "reason": "\x1b[2J\ud800"})
    for flags in ([], ["--json"]):
        done = await forage("mirror", "status", "--root", tmp_path, *flags)
        assert done.code == 1
        assert done.err == ""
        assert "\x1b" not in done.out
    for key in (*keys[::2], "2012/x"):
        done = await forage("mirror", "explain", "--root", tmp_path, key)
        assert done.code == 1
        assert "\x1b" not in done.out + done.err
    undecodable = os.fsdecode(b"20120515093000/http://x.org/\xff")
    assert (await forage("mirror", "explain", "--root", tmp_path, undecodable)).code == 1
