"""Roots that somebody else made: links, pipes, endless files and rotten records lead nowhere, hang nobody and prove nothing."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forage.cli import mirror_explain
from forage.egress import EgressSession
from forage.errors import CaptureError
from forage.mirror.answers import Outcome
from forage.mirror.archive import GuardedArchive, archive_egress
from forage.mirror.cache import MAX_SIDECAR_BYTES, CacheRoot, Entry
from forage.mirror.capture import RetryTerminal
from forage.mirror.demo_web import STAMP, asset, captures, document_url, page
from forage.mirror.explain import explain_document
from forage.mirror.fixpoint import crawl
from forage.mirror.keys import body_path, document_path, key_hash, sidecar_path
from forage.mirror.ledgers import Ledgers
from forage.mirror.lock import RootBusyError, root_lock
from forage.mirror.loopback import Archived, LoopbackArchive, open_loopback_archive
from forage.mirror.probe import RenderReport
from forage.mirror.results import CrawlReport
from forage.mirror.seams import Seams
from forage.mirror.site import Site
from forage.mirror.status import mirror_status
from forage.mirror.verifier import Category, verify_root
from tests.support.page_reader import PageReader

NOW = "2026-01-02T03:04:05.000Z"


def key_of(name: str) -> str:
    return f"{STAMP}/http://site.example.org/{name}"


PAGE, STYLE = key_of("deep"), key_of("a.css")


@asynccontextmanager
async def archive_of(*more: Archived) -> AsyncIterator[tuple[LoopbackArchive, GuardedArchive]]:
    loopback = LoopbackArchive([*captures(), *more])
    async with open_loopback_archive(loopback) as base, EgressSession(archive_egress(base)) as session:
        yield loopback, GuardedArchive(session, base=base, timeout=5)


async def run(root: Path, fetch: GuardedArchive | None, *names: str, probe: PageReader | None = None, **options: Any) -> CrawlReport:
    urls = [document_url(name) for name in names or ("deep",)]
    return await crawl(urls, root=root, fetch=fetch, probe=probe or PageReader(), **{"delay": 0.0, "attempts": 1} | options)


def statuses(report: CrawlReport) -> list[str]:
    return [result.status.value for result in report.results]


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "precious").write_bytes(b"precious")
    (folder / f"{'0' * 64}.1-0123456789ab.part").write_bytes(b"like scratch")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    return made


LINKS = [
    "cap",
    f"cap/{key_hash(PAGE)[:2]}",
    "meta",
    f"meta/{key_hash(PAGE)[:2]}",
    sidecar_path(key_hash(PAGE)),
    body_path(key_hash(PAGE)),
    "tmp",
    ".crawl",
    ".crawl/har",
    ".crawl/findings",
    ".crawl/lock",
    ".crawl/verified.jsonl",
    ".crawl/flaky.jsonl",
    f".crawl/findings/{key_hash(PAGE)}.json",
]


@pytest.mark.parametrize("name", LINKS)
async def test_a_link_in_a_root_leads_no_write_out_of_it(root: Path, outside: Path, name: str) -> None:
    link = root / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside / "precious" if "." in link.name[1:] or link.name == "lock" or len(link.name) == 64 else outside)
    before = contents(outside)
    restless = PageReader(edit=lambda _, report: attrs.evolve(report, failure="so that something is written about it"))
    async with archive_of() as (_, fetch):
        for probe in (restless, PageReader()):
            with_har = await run(root, fetch, probe=probe, har=True)
            assert set(statuses(with_har)) <= {"verified", "verified-cached", "probe-error", "error"}
    for command in (mirror_status, lambda path: explain_document(path, PAGE), lambda path: verify_root(path, fix=True)):
        with trio.fail_after(60):
            await trio.to_thread.run_sync(told, command, root)
    assert contents(outside) == before


def told(command: Callable[[Path], Any], root: Path) -> None:
    with contextlib.suppress(CaptureError):
        command(root)


async def test_where_sidecars_cannot_be_seen_no_body_is_an_orphan(root: Path, outside: Path) -> None:
    async with archive_of() as (_, fetch):
        await run(root, fetch)
    before = contents(root / "cap")
    (root / "meta").rename(outside / "meta")
    (root / "meta").symlink_to(outside / "meta")
    report = verify_root(root, fix=True)
    assert [finding.members["path"] for finding in report.of(Category.MALFORMED)] == ["meta"]
    assert contents(root / "cap") == before
    (root / "meta").unlink()
    (outside / "meta").rename(root / "meta")
    shard = root / "meta" / key_hash(PAGE)[:2]
    shard.rename(outside / "shard")
    shard.symlink_to(outside / "shard")
    assert [finding.members["path"] for finding in verify_root(root, fix=True).of(Category.MALFORMED)] == [f"meta/{shard.name}"]
    assert contents(root / "cap") == before


async def test_fixing_waits_for_no_writer_and_takes_nothing_from_one(root: Path) -> None:
    async with archive_of() as (_, fetch):
        await run(root, fetch)
    with root_lock(root, started="then"):
        assert verify_root(root, fix=True).ok  # nothing to delete: nobody is in the way
        CacheRoot(root).commit(Entry(key=PAGE, status="body", content_type="text/html", fetched_at=NOW), b"about to be published")
        (root / sidecar_path(key_hash(PAGE))).unlink()
        with pytest.raises(RootBusyError):
            verify_root(root, fix=True)
    assert (root / body_path(key_hash(PAGE))).exists()
    assert verify_root(root, fix=True).ok
    assert not (root / body_path(key_hash(PAGE))).exists()


PIPES = [
    sidecar_path(key_hash(STYLE)),
    body_path(key_hash(STYLE)),
    ".crawl/lock",
    ".crawl/verified.jsonl",
    ".crawl/flaky.jsonl",
    f".crawl/findings/{key_hash(PAGE)}.json",
]


@pytest.mark.parametrize("name", PIPES)
async def test_a_pipe_in_the_place_of_a_file_hangs_nobody(root: Path, name: str) -> None:
    async with archive_of() as (_, fetch):
        await run(root, fetch)
    pipe = root / name
    pipe.parent.mkdir(parents=True, exist_ok=True)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    with trio.fail_after(60):
        await trio.to_thread.run_sync(told, mirror_status, root)
        await trio.to_thread.run_sync(told, lambda path: explain_document(path, PAGE), root)
        await trio.to_thread.run_sync(told, verify_root, root)
        assert statuses(await run(root, None, force=True)) != ["verified-cached"]
    assert Site(CacheRoot(root)).answer("GET", document_path(STYLE)).status in {200, 500}


async def test_files_without_end_are_not_read(root: Path) -> None:
    async with archive_of() as (_, fetch):
        await run(root, fetch)
    with (root / sidecar_path(key_hash(STYLE))).open("r+b") as file:
        file.truncate(MAX_SIDECAR_BYTES + 1)
    with (root / ".crawl/verified.jsonl").open("ab") as file:
        file.truncate(file.tell() + (150 << 20))
    stamp = {"key": key_of("late"), "ruleVersion": 3}
    Ledgers(root).append("verified.jsonl", stamp)
    assert set(Ledgers(root).verified(3)) == {PAGE, key_of("late")}
    assert STYLE not in CacheRoot(root).load_corpus()
    assert [finding.members["error"] for finding in verify_root(root).of(Category.MALFORMED)] == ["cannot be read"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
NAMES = ["key", "verified", "ruleVersion", "browser", "reason", "at"]
ROW = st.dictionaries(st.sampled_from(NAMES), JSON | st.sampled_from([PAGE, 3, "probe-error"]), max_size=6)
RECORD = ["requests", "csp", "worklist", "unresolved", "corrupt", "unmatchedEscapes", "hardResidual", "incompleteClosure"]
FINDINGS = st.fixed_dictionaries(
    {}, optional={"log": JSON | st.fixed_dictionaries({"_forage": st.dictionaries(st.sampled_from(RECORD), JSON)})}
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.lists(ROW | JSON, max_size=4), st.lists(ROW | JSON | st.just({"key": PAGE, "reason": "probe-error"}), max_size=4), FINDINGS)
def test_no_record_breaks_a_command(root: Path, verified: list[Any], flaky: list[Any], findings: Any) -> None:
    CacheRoot(root).commit(Entry(key=PAGE, status="body", content_type="text/html", fetched_at=NOW), b"<p>")
    ledgers = Ledgers(root)
    ledgers.prepare()
    for name, rows in (("verified", verified), ("flaky", flaky)):
        (root / f".crawl/{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "ascii")
    ledgers.write_findings(PAGE, findings)
    assert mirror_status(root)["documents"] == 1
    explained = explain_document(root, PAGE)
    assert explained["status"] in {"verified", "flaky", "captured"}
    mirror_explain.tell(explained, io.StringIO())


async def test_a_sidecar_filed_under_another_name_is_not_held(root: Path) -> None:
    """It says that it is the font; a page that trusted it would be called complete without its font."""
    font = key_of("f.woff")
    CacheRoot(root).commit(Entry(key="2012/http://x.org/other", status="error", fetched_at=NOW))
    path = root / sidecar_path(key_hash("2012/http://x.org/other"))
    path.write_text(path.read_text("utf-8").replace("2012/http://x.org/other", font), "utf-8")
    async with archive_of() as (loopback, fetch):
        report = await run(root, fetch)
    assert statuses(report) == ["verified"]
    assert [hit.status for hit in loopback.log if hit.target.endswith("f.woff")] == [200]
    assert Site(CacheRoot(root)).answer("GET", document_path(font)).outcome is Outcome.HIT


async def test_a_sidecar_that_cannot_be_read_is_corrupt_and_named(root: Path) -> None:
    async with archive_of() as (_, fetch):
        await run(root, fetch)
        font = root / sidecar_path(key_hash(key_of("b.css")))
        document = root / sidecar_path(key_hash(PAGE))
        members = json.loads(document.read_text("utf-8"))
        del members["dynamic"]  # so that only the page itself leads to it
        document.write_text(json.dumps(members), "utf-8")
        font.write_text(font.read_text("utf-8").replace('"v":3', '"v":4'), "utf-8")
        report = await run(root, fetch, force=True)
    assert statuses(report) == ["corrupt"]
    assert report.results[0].members["corrupt"] == [key_of("b.css")]


async def test_what_arrives_while_a_page_renders_is_rendered_again(root: Path) -> None:
    """The page was answered with 404 for a style sheet that another document brought a moment later."""
    cache = CacheRoot(root)
    arrived: list[str] = []

    def arrives(url: str, report: RenderReport) -> RenderReport:
        if not arrived:
            arrived.append(url)
            cache.commit(Entry(key=key_of("b.css"), status="body", content_type="text/css", fetched_at=NOW), b"@font-face{src:url(f.woff)}")
            corpus.add(key_of("b.css"))
        return report

    corpus: set[str] = set()

    async def load(_: CacheRoot) -> set[str]:
        await trio.lowlevel.checkpoint()
        return corpus

    one = [page("one", '<script src="one.js"></script>'), asset("one.js", b'fetch("b.css")')]
    async with archive_of(*one) as (_, fetch):
        report = await run(root, fetch, "one", probe=PageReader(edit=arrives), seams=Seams(load_corpus=load))
    assert statuses(report) == ["verified"]
    assert report.results[0].members["iterations"] == 2
    assert CacheRoot(root).has_sidecar(key_of("f.woff"))


async def test_terminal_captures_of_verified_documents_are_asked_again_on_request(root: Path) -> None:
    async with archive_of() as (loopback, fetch):
        await run(root, fetch, "odd", "plain")
        loopback.log.clear()
        retry = RetryTerminal(statuses=frozenset(["error"]))
        report = await run(root, fetch, "odd", "plain", retry_terminal=retry)
        late = await run(root, fetch, "odd", "plain", retry_terminal=attrs.evolve(retry, seconds=3600.0))
    assert [hit.target.rpartition("/")[2] for hit in loopback.log] == ["gone.png"]
    assert statuses(report) == ["verified", "verified-cached"]
    assert statuses(late) == ["verified-cached"] * 2


async def test_a_stamp_never_outlives_a_render_that_came_out_otherwise(root: Path) -> None:
    async with archive_of() as (_, fetch):
        await run(root, fetch, "plain")
        crashing = PageReader(name="reader/2", edit=lambda _, report: attrs.evolve(report, failure="crashed"))
        assert statuses(await run(root, fetch, "plain", probe=crashing, reverify_browser=True)) == ["probe-error"]
        assert Ledgers(root).verified(3) == {}
        assert statuses(await run(root, fetch, "plain")) == ["verified"]


def test_a_page_that_names_too_much_is_an_error_and_leaves_what_was_there(root: Path) -> None:
    cache = CacheRoot(root)
    cache.commit(Entry(key=PAGE, status="error", fetched_at=NOW))
    many = tuple(f"2012/http://x.org/{n:0900}" for n in range(20_000))
    with pytest.raises(CaptureError, match="too many"):
        cache.commit(Entry(key=PAGE, status="body", content_type="text/html", fetched_at=NOW, requisites=many), b"<p>")
    sidecar = cache.read_sidecar(PAGE)
    assert sidecar is not None
    assert sidecar.status == "error"
    assert not (root / "cap").exists()


IN_NAMESPACE = ["unshare", "--mount", "--map-root-user", "sh", "-c", 'mount -t tmpfs -o "$1" none "$0" && shift && exec "$@"']
HERE = """if True:
    import sys, trio
    from pathlib import Path
    from forage.egress import EgressSession
    from forage.mirror import GuardedArchive, archive_egress, crawl, verify_root
    from tests.support.page_reader import PageReader

    async def main(base, folder, prepared, *urls):
        root = Path(folder, "root")
        async with EgressSession(archive_egress(base)) as session:
            async def once():
                fetch = GuardedArchive(session, base=base)
                report = await crawl(urls, root=root, fetch=fetch, probe=PageReader(), delay=0.0, attempts=1, documents=1)
                return [(result.status.value, result.members.get("error")) for result in report.results]
            print(await once())
            if prepared:
                import subprocess
                subprocess.run(["mount", "-o", prepared, "none", folder], check=True)
                print(await once())
        found = verify_root(root)
        left = {finding.category.value for finding in found.findings}
        print(found.counts["sidecars"], sorted(left))

    trio.run(main, *sys.argv[1:])
"""


def may_mount() -> bool:
    return subprocess.run([*IN_NAMESPACE[:3], "true"], check=False, capture_output=True, timeout=30).returncode == 0


async def on_small_disk(folder: Path, base: str, mount: str, remount: str, *names: str) -> list[str]:
    command = [*IN_NAMESPACE, str(folder), mount, sys.executable, "-c", HERE, base, str(folder), remount, *map(document_url, names)]
    done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


@pytest.mark.skipif(not may_mount(), reason="no mount namespaces here")
async def test_a_full_disk_is_an_error_and_nothing_is_half_written(root: Path) -> None:
    large = [page("large", '<img src="big.png">'), asset("big.png", b"x" * 400_000)]
    async with open_loopback_archive(LoopbackArchive([*captures(), *large])) as base:
        first, last = await on_small_disk(root, base, "size=300k", "", "plain", "large")
    assert first == "[('verified', None), ('error', 'the mirror cannot be written (No space left on device)')]"
    assert last == "2 ['incompleteClosure']"


@pytest.mark.skipif(not may_mount(), reason="no mount namespaces here")
async def test_a_read_only_disk_is_an_error_but_for_what_is_verified(root: Path) -> None:
    async with open_loopback_archive(LoopbackArchive(captures())) as base:
        lines = await on_small_disk(root, base, "size=900k", "remount,ro", "plain")
        assert lines == ["[('verified', None)]", "[('verified-cached', None)]", "1 []"]
