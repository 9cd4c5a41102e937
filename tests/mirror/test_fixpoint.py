"""Crawls of a loopback archive over real sockets, with a browser that reads: what converges, what blocks, what a rerun costs."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from forage.egress import EgressSession
from forage.errors import BrowserError, InvalidPolicyError
from forage.mirror.archive import Archive, GuardedArchive, archive_egress
from forage.mirror.cache import CacheRoot
from forage.mirror.capture import Capturer
from forage.mirror.demo_web import STAMP, asset, captures, document_url, page
from forage.mirror.fixpoint import crawl
from forage.mirror.keys import body_path, key_hash
from forage.mirror.ledgers import Ledgers
from forage.mirror.lock import RootBusyError, root_lock
from forage.mirror.loopback import Archived, Fault, LoopbackArchive, open_loopback_archive
from forage.mirror.policy import compile_policy
from forage.mirror.probe import RenderReport, RequestRecord
from forage.mirror.results import CrawlReport
from forage.mirror.seams import Seams
from forage.mirror.server import MirrorServer
from forage.mirror.sidecar import DynamicEntry, Sidecar
from forage.mirror.site import Site
from forage.mirror.verifier import Category, verify_root
from tests.support.page_reader import PageReader

NAMES = ["deep", "late", "lists", "odd", "plain"]
URLS = [document_url(name) for name in NAMES]


def key_of(name: str) -> str:
    return f"{STAMP}/http://site.example.org/{name}"


@asynccontextmanager
async def archive_of(
    *more: Archived, faults: dict[str, list[Fault]] | None = None
) -> AsyncIterator[tuple[LoopbackArchive, GuardedArchive]]:
    loopback = LoopbackArchive([*captures(), *more], faults=faults)
    async with open_loopback_archive(loopback) as base, EgressSession(archive_egress(base)) as session:
        yield loopback, GuardedArchive(session, base=base, timeout=5)


async def run(urls: list[str], root: Path, fetch: GuardedArchive | None, probe: PageReader | None = None, **options: Any) -> CrawlReport:
    return await crawl(
        urls, root=root, fetch=fetch, probe=PageReader() if probe is None else probe, **{"delay": 0.0, "attempts": 1} | options
    )


def statuses(report: CrawlReport) -> list[str]:
    return [result.status.value for result in report.results]


def asking_also(*urls: str, only: str = "") -> Callable[[str, RenderReport], RenderReport]:
    """A page that also asks for these URLs; ``{origin}`` is the mirror's own."""

    def edit(url: str, report: RenderReport) -> RenderReport:
        if not url.endswith(only):
            return report
        origin = url.partition("/web/")[0]
        more = tuple(RequestRecord(url=text.format(origin=origin), resource_type="image") for text in urls)
        return attrs.evolve(report, requests=report.requests + more)

    return edit


async def test_everything_that_a_reader_finds_is_captured_and_verified(tmp_path: Path) -> None:
    async with archive_of() as (loopback, fetch):
        report = await run(URLS, tmp_path, fetch, har=True)
    assert statuses(report) == ["verified"] * 5
    assert [result.key for result in report.results] == [key_of(name) for name in NAMES]
    assert report.results[0].members["iterations"] == 2
    assert verify_root(tmp_path).ok
    targets = Counter(hit.target for hit in loopback.log)
    assert max(targets.values()) == 1
    assert report.request_count == len(loopback.log)
    rows = Ledgers(tmp_path).verified(3)
    assert {row["browser"] for row in rows.values()} == {"reader/1"}
    assert {row["viewport"] for row in rows.values()} == {"1280x800"}
    logs = [json.loads(path.read_text("utf-8"))["log"] for path in (tmp_path / ".crawl/har").iterdir()]
    assert {log["version"] for log in logs} == {"1.2"}
    assert any(entry["response"]["status"] == 200 for log in logs for entry in log["entries"])


async def test_a_mirror_renders_again_with_the_archive_switched_off(tmp_path: Path) -> None:
    async with archive_of() as (_, fetch):
        await run(URLS, tmp_path, fetch)
    probe = PageReader()
    report = await run(URLS, tmp_path, None, probe, force=True)
    assert statuses(report) == ["verified"] * 5
    assert report.request_count == 0
    assert len(probe.rendered) == 5
    lines = (tmp_path / ".crawl/verified.jsonl").read_text("utf-8").splitlines()
    assert sum('"force-reprobe"' in line for line in lines) == 5


async def test_verified_documents_cost_nothing(tmp_path: Path) -> None:
    async with archive_of() as (_, fetch):
        await run(URLS, tmp_path, fetch)
    before = sorted(tmp_path.rglob("*"))
    report = await crawl(URLS, root=tmp_path, fetch=None, probe=None)
    assert statuses(report) == ["verified-cached"] * 5
    assert sorted(tmp_path.rglob("*")) == before


async def test_another_browser_voids_stamps_only_when_asked(tmp_path: Path) -> None:
    async with archive_of() as (_, fetch):
        await run(URLS[-1:], tmp_path, fetch)
    other = PageReader(name="reader/2")
    assert statuses(await run(URLS[-1:], tmp_path, None, other)) == ["verified-cached"]
    events: list[Any] = []
    async with archive_of() as (_, fetch):
        await run(URLS[-2:], tmp_path, fetch, other, on_progress=events.append)
    changed = [event for event in events if event["type"] == "browser-changed"]
    assert changed == [{"type": "browser-changed", "browser": "reader/2", "stamps": ["reader/1"]}]
    assert statuses(await run(URLS[-1:], tmp_path, None, other, reverify_browser=True)) == ["verified"]
    assert statuses(await run(URLS[-1:], tmp_path, None, other, reverify_browser=True)) == ["verified-cached"]


async def test_documents_run_side_by_side_and_share_what_they_fetch(tmp_path: Path) -> None:
    pages = [page(f"p{n}", f'<link rel=stylesheet href="a.css"><img src="own{n}.png">') for n in range(8)]
    pages += [asset(f"own{n}.png", b"x") for n in range(8)]
    probe = PageReader(seconds=0.05)
    async with archive_of(*pages) as (loopback, fetch):
        report = await run([document_url(f"p{n}") for n in range(8)], tmp_path, fetch, probe)
    assert statuses(report) == ["verified"] * 8
    assert probe.most_at_once == 4
    assert max(Counter(hit.target for hit in loopback.log).values()) == 1


async def test_without_a_browser_nothing_is_claimed(tmp_path: Path) -> None:
    async with archive_of() as (loopback, fetch):
        with pytest.raises(BrowserError, match="--static-only"):
            await crawl(URLS, root=tmp_path, fetch=fetch, probe=None)
        assert not loopback.log
        report = await crawl(URLS, root=tmp_path, fetch=fetch, delay=0.0, static_only=True)
    assert statuses(report) == ["static"] * 5
    assert report.ok
    assert not (tmp_path / ".crawl/verified.jsonl").exists()


async def test_a_dry_run_says_what_is_missing_and_writes_nothing(tmp_path: Path) -> None:
    async with archive_of(faults={"http://site.example.org/one.png": [Fault(status=503)]}) as (_, fetch):
        await crawl([document_url("lists")], root=tmp_path, fetch=fetch, delay=0.0, attempts=1, static_only=True)
    before = sorted(tmp_path.rglob("*"))
    report = await crawl([document_url("lists"), document_url("new")], root=tmp_path, dry_run=True)
    assert [result.members["keys"] for result in report.results] == [[key_of("one.png")], []]
    assert [result.members["present"] for result in report.results] == [True, False]
    assert sorted(tmp_path.rglob("*")) == before


async def test_a_new_address_every_time_never_converges(tmp_path: Path) -> None:
    count = iter(range(100))

    def edit(url: str, report: RenderReport) -> RenderReport:
        return asking_also(f"{{origin}}/web/{key_of(f'r{next(count)}.png')}")(url, report)

    async with archive_of() as (_, fetch):
        report = await run(URLS[-1:], tmp_path, fetch, PageReader(edit=edit), max_iterations=2)
    assert statuses(report) == ["unconverged"]
    assert report.results[0].members == {"iterations": 2, "dynamicRecorded": 2, "residualMissing": 1, "residualEscapes": 0}
    assert not report.ok


async def test_a_child_that_cannot_be_fetched_blocks_and_heals_later(tmp_path: Path) -> None:
    faults = {"http://site.example.org/f.woff": [Fault(status=503)]}
    async with archive_of(faults=faults) as (_, fetch):
        first = await run(URLS[:1], tmp_path, fetch)
        second = await run(URLS[:1], tmp_path, fetch)
    assert [r.members.get("residualMissing") for r in first.results] == [1]
    assert statuses(first) == ["flaky"]
    assert Ledgers(tmp_path).flaky()[key_of("deep")]["reason"] == "no-progress"
    assert statuses(second) == ["verified"]
    assert second.results[0].members["dynamicRecorded"] == 0


async def test_a_third_party_blocks_without_policy_and_is_reported_with_one(tmp_path: Path) -> None:
    probe = PageReader(edit=asking_also("https://stats.example.net/pixel"))
    policy = compile_policy({"escapes": [{"host": "example.net", "reason": "ads"}]})
    async with archive_of() as (_, fetch):
        blocked = await run(URLS[-1:], tmp_path, fetch, probe)
        allowed = await run(URLS[-1:], tmp_path, fetch, probe, policy=policy)
    assert (statuses(blocked), blocked.results[0].members["residualEscapes"]) == (["flaky"], 1)
    assert (statuses(allowed), allowed.results[0].members["allowedEscapes"]) == (["verified"], 1)


async def test_a_held_asset_that_is_still_asked_of_the_archive_blocks(tmp_path: Path) -> None:
    probe = PageReader(edit=asking_also(f"https://web.archive.org/web/{STAMP}im_/http://site.example.org/one.png", only="lists"))
    async with archive_of() as (_, fetch):
        report = await run([document_url("lists")], tmp_path, fetch, probe)
    assert statuses(report) == ["flaky"]
    assert Ledgers(tmp_path).flaky()[key_of("lists")]["reason"] == "unlocalized"


async def test_rotten_bytes_are_corrupt_and_named(tmp_path: Path) -> None:
    async with archive_of() as (_, fetch):
        await run(URLS[:1], tmp_path, fetch)
    (tmp_path / body_path(key_hash(key_of("a.css")))).write_bytes(b"rot")
    report = await run(URLS[:1], tmp_path, None, force=True)
    assert statuses(report) == ["corrupt"]
    assert report.results[0].members["corrupt"] == [key_of("a.css")]
    assert key_of("deep") not in Ledgers(tmp_path).verified(3)


async def test_a_document_without_bytes_never_verifies(tmp_path: Path) -> None:
    empty = Archived(timestamp=STAMP, original="http://site.example.org/empty", body=b"", content_type="text/plain")
    async with archive_of(empty) as (_, fetch):
        report = await run([document_url("empty"), document_url("missing")], tmp_path, fetch)
    assert statuses(report) == ["probe-error", "error"]


@pytest.mark.parametrize("text", ["garbage", "2014", "https://example.org/"])
async def test_an_input_that_cannot_be_parsed_is_a_result_at_its_place(tmp_path: Path, text: str) -> None:
    async with archive_of() as (_, fetch):
        report = await run([document_url("plain"), text, document_url("plain")], tmp_path, fetch)
    assert statuses(report) == ["verified", "error"]
    assert report.results[1].to_json() == {"key": text, "status": "error", "error": "unparseable-input"}


async def test_a_key_that_no_browser_can_ask_for_is_an_error(tmp_path: Path) -> None:
    async with archive_of() as (loopback, fetch):
        report = await run([f"{STAMP}/http://site.example.org/a/../plain"], tmp_path, fetch)
    assert statuses(report) == ["error"]
    assert not loopback.log


async def test_a_render_that_fails_is_the_error_of_its_document(tmp_path: Path) -> None:
    def edit(url: str, report: RenderReport) -> RenderReport:
        if url.endswith("late"):
            raise BrowserError("the page crashed")
        return report

    async with archive_of() as (_, fetch):
        report = await run(URLS, tmp_path, fetch, PageReader(edit=edit))
    assert statuses(report) == ["verified", "error", "verified", "verified", "verified"]
    assert report.results[1].members["error"] == "the page crashed"


async def test_the_request_cap_skips_what_is_left(tmp_path: Path) -> None:
    async with archive_of() as (loopback, fetch):
        report = await run(URLS, tmp_path, fetch, max_requests=4)
    assert report.cap == report.request_count == len(loopback.log) == 4
    assert statuses(report) == ["cap-skipped"] * 5
    assert not (tmp_path / ".crawl/flaky.jsonl").exists()
    assert "error" in report.results[0].members
    assert report.results[1].members == {}


async def test_one_writer_a_root(tmp_path: Path) -> None:
    Ledgers(tmp_path).prepare()
    async with archive_of() as (_, fetch):
        with root_lock(tmp_path, started="then"), pytest.raises(RootBusyError):
            await run(URLS, tmp_path, fetch)
        assert statuses(await run(URLS[-1:], tmp_path, fetch)) == ["verified"]


async def test_a_root_that_cannot_be_written_is_the_error_of_every_document(tmp_path: Path) -> None:
    (tmp_path / ".crawl").write_bytes(b"")
    async with archive_of() as (loopback, fetch):
        report = await run(URLS, tmp_path, fetch)
    assert statuses(report) == ["error"] * 5
    assert not loopback.log


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_iterations", -1), ("max_iterations", 1.5), ("max_iterations", True), ("max_requests", 2**53), ("documents", 0)],
)
async def test_options_are_checked_before_anything_happens(tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(InvalidPolicyError) as failed:
        await run(URLS, tmp_path, None, **{name: value})
    assert failed.value.field == name
    assert not list(tmp_path.iterdir())


async def test_a_cancelled_run_leaves_the_root_sound_and_unlocked(tmp_path: Path) -> None:
    async with archive_of() as (_, fetch):
        for seconds in (0.005, 0.02, 0.05, 0.1):
            with trio.move_on_after(seconds):
                await run(URLS, tmp_path, fetch)
            assert not verify_root(tmp_path).of(Category.MALFORMED, Category.HASH_MISMATCH, Category.MISSING_BODY, Category.STALE_TMP)
        report = await run(URLS, tmp_path, fetch)
    assert set(statuses(report)) <= {"verified", "verified-cached"}


CHILD = """if True:
    import sys, trio
    from forage.egress import EgressSession
    from forage.mirror import GuardedArchive, archive_egress, crawl
    from tests.support.page_reader import PageReader

    async def main(base, root, *urls):
        async with EgressSession(archive_egress(base)) as session:
            fetch = GuardedArchive(session, base=base)
            # One at a time: which of two documents records a late child that both need depends on which asks first.
            report = await crawl(urls, root=root, fetch=fetch, probe=PageReader(seconds=0.02), delay=0.0, documents=1)
        raise SystemExit(not report.ok)

    trio.run(main, *sys.argv[1:])
"""


def without_times(root: Path) -> dict[str, Any]:
    """Bodies and sidecars, less the times at which they were made."""

    def timeless(row: Any) -> Any:
        if isinstance(row, dict):
            return {name: timeless(value) for name, value in row.items() if name not in {"fetchedAt", "firstSeen"}}
        return [timeless(value) for value in row] if isinstance(row, list) else row

    files = [path for kind in ("cap", "meta") for path in (root / kind).rglob("*") if path.is_file()]
    return {
        path.relative_to(root).as_posix(): timeless(json.loads(path.read_bytes())) if path.suffix else path.read_bytes() for path in files
    }


@pytest.mark.slow
async def test_a_run_that_is_killed_again_and_again_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    pages = [page(f"p{n}", f'<script src="s{n}.js"></script><link rel=stylesheet href="a.css">') for n in range(20)]
    pages += [asset(f"s{n}.js", f'fetch("d{n}.json")'.encode()) for n in range(20)] + [asset(f"d{n}.json", b"{}") for n in range(20)]
    urls = [document_url(f"p{n}") for n in range(20)]
    loopback = LoopbackArchive([*captures(), *pages])
    growths = [1, 4, 9, 3, 12, 7]
    async with open_loopback_archive(loopback) as base:
        for growth in growths:
            enough, count = trio.Event(), len(loopback.log) + growth
            loopback.on_hit = lambda _, enough=enough, count=count: enough.set() if len(loopback.log) >= count else None
            process = await trio.lowlevel.open_process([sys.executable, "-c", CHILD, base, str(tmp_path / "killed"), *urls])
            with trio.fail_after(60):
                await enough.wait()
            process.kill()
            assert await process.wait() == -9
        for name in ("killed", "calm"):
            done = await trio.run_process([sys.executable, "-c", CHILD, base, str(tmp_path / name), *urls], check=False)
            assert done.returncode == 0, name
    killed, calm = tmp_path / "killed", tmp_path / "calm"
    assert without_times(killed) == without_times(calm)
    assert set(Ledgers(killed).verified(3)) == set(Ledgers(calm).verified(3)) == {key_of(f"p{n}") for n in range(20)}
    assert not verify_root(killed, fix=True).findings
    # Only what was in flight at a kill may be asked of the archive once more; the calm run asks once as well.
    assert sum(Counter(hit.target for hit in loopback.log).values()) <= 2 * len(CacheRoot(calm).load_corpus()) + 4 * len(growths)


def test_the_clock_of_rows_is_the_one_that_was_given(tmp_path: Path) -> None:
    async def main() -> None:
        async with archive_of() as (_, fetch):
            await run(URLS[-1:], tmp_path, fetch, utc_now=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))

    trio.run(main)
    assert {row["at"] for row in Ledgers(tmp_path).verified(3).values()} == {"2026-01-02T03:04:05.000Z"}


FULL = """if True:
    import resource, sys, trio
    from forage.egress import EgressSession
    from forage.mirror import GuardedArchive, archive_egress, crawl

    async def main(base, root, url):
        async with EgressSession(archive_egress(base)) as session:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
            report = await crawl([url], root=root, fetch=GuardedArchive(session, base=base), delay=0.0, static_only=True)
        print(report.results[0].to_json())

    trio.run(main, *sys.argv[1:])
"""


async def test_a_disk_that_is_full_is_an_error_and_nothing_is_half_written(tmp_path: Path) -> None:
    async with open_loopback_archive(LoopbackArchive([page("large", "x" * 5000)])) as base:
        done = await trio.run_process([sys.executable, "-c", FULL, base, str(tmp_path), document_url("large")], capture_stdout=True)
    assert b"'status': 'error'" in done.stdout
    assert b"cannot be written" in done.stdout
    assert not [path for kind in ("cap", "meta", "tmp") for path in (tmp_path / kind).rglob("*") if path.is_file()]


async def test_each_seam_is_replaceable_alone(tmp_path: Path) -> None:
    called: list[str] = []
    real = Seams()

    async def read(root: CacheRoot, key: str) -> Sidecar | None:
        called.append("read")
        return await real.read_sidecar(root, key)

    async def record(root: CacheRoot, key: str, entries: Sequence[DynamicEntry]) -> Sidecar:
        called.append("record")
        return await real.record_dynamic(root, key, entries)

    async def load(root: CacheRoot) -> set[str]:
        called.append("load")
        return await real.load_corpus(root)

    @asynccontextmanager
    async def serve(site: Site) -> AsyncIterator[MirrorServer]:
        called.append("serve")
        async with real.serve(site) as server:
            yield server

    async with archive_of() as (_, fetch):
        archive = Archive(fetch, delay=0.0, random=lambda: 0.0, utc_now=lambda: datetime.now(UTC))
        capture = Capturer(CacheRoot(tmp_path), archive, utc_now=lambda: datetime.now(UTC))
        seams = Seams(serve=serve, capture=capture, record_dynamic=record, read_sidecar=read, load_corpus=load)
        report = await run(URLS[:1], tmp_path, None, seams=seams)
    assert statuses(report) == ["verified"]
    assert set(called) == {"read", "record", "load", "serve"}
    assert (report.request_count, archive.requests) == (0, 5)


async def test_scratch_of_a_killed_writer_is_cleared_and_that_of_others_is_not(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    ours, theirs = tmp_path / "tmp" / f"{'0' * 64}.77-0123456789ab.json.part", tmp_path / "tmp" / "0123.part"
    for path in (ours, theirs):
        path.write_bytes(b"half")
    async with archive_of() as (_, fetch):
        await run(URLS[-1:], tmp_path, fetch)
    assert not ours.exists()
    assert theirs.exists()


async def test_what_a_restless_page_asks_for_is_fetched_and_the_page_is_not_verified(tmp_path: Path) -> None:
    def restless(url: str, report: RenderReport) -> RenderReport:
        return attrs.evolve(report, unsettled="never at rest")

    async with archive_of() as (_, fetch):
        report = await run(URLS[:1], tmp_path, fetch, PageReader(edit=restless))
    (result,) = report.results
    assert (result.status.value, result.members["dynamicRecorded"], result.members["error"]) == ("probe-error", 3, "never at rest")
    assert Ledgers(tmp_path).flaky()[result.key]["reason"] == "probe-error"


async def test_a_page_that_crashes_proves_nothing(tmp_path: Path) -> None:
    def crashed(url: str, report: RenderReport) -> RenderReport:
        return attrs.evolve(report, failure="crashed")

    async with archive_of() as (_, fetch):
        report = await run(URLS[:1], tmp_path, fetch, PageReader(edit=crashed))
    assert (statuses(report), report.results[0].members["dynamicRecorded"]) == (["probe-error"], 0)


async def test_an_icon_that_no_program_fetched_is_looked_at_all_the_same(tmp_path: Path) -> None:
    def named(url: str, report: RenderReport) -> RenderReport:
        icon = RequestRecord(url=f"{url.partition('/web/')[0]}/web/{key_of('icon.png')}", resource_type="image", failure="named")
        return attrs.evolve(report, requests=(*(r for r in report.requests if "icon" not in r.url), icon))

    async with archive_of() as (_, fetch):
        await run([document_url("lists")], tmp_path, fetch, static_only=True)
        (tmp_path / body_path(key_hash(key_of("icon.png")))).write_bytes(b"rot")
        report = await run([document_url("lists")], tmp_path, fetch, PageReader(edit=named))
    assert (statuses(report), report.results[0].members["corrupt"]) == (["corrupt"], [key_of("icon.png")])
