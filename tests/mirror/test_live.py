"""The gate with a real Chromium and a loopback archive: what is found at run time, what is proved complete, and what is never called so."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from forage.egress import EgressSession
from forage.errors import BrowserError
from forage.mirror import BrowserProbe, CacheRoot, CrawlReport, CspMode, Site, crawl, open_mirror_server, verify_root
from forage.mirror.archive import GuardedArchive, archive_egress
from forage.mirror.cache import Entry
from forage.mirror.demo_web import asset, page
from forage.mirror.deployed import SpotCheck, spot_check
from forage.mirror.keys import body_path, key_hash
from forage.mirror.ledgers import Ledgers
from forage.mirror.loopback import Archived, ArchiveHit, Fault, LoopbackArchive, open_loopback_archive
from forage.mirror.policy import compile_policy
from tests.support.browsers import Kind, browser_options, installed_kinds
from tests.support.live_web import COMPLETE, WAYS_OUT, captures, key_of, way_out

pytestmark = pytest.mark.slow


@attrs.define(kw_only=True)
class World:
    """An archive that answers, and crawls of it into one root."""

    root: Path
    archive: LoopbackArchive
    fetch: GuardedArchive
    events: list[Mapping[str, Any]] = attrs.field(factory=list)

    async def crawl(self, *names: str, kind: Kind = "shell", **options: Any) -> CrawlReport:
        return await crawl(
            map(key_of, names),
            root=self.root,
            fetch=self.fetch,
            probe=probe(kind),
            on_progress=self.events.append,
            **{"delay": 0.0, "attempts": 1} | options,
        )

    @property
    def dropped(self) -> list[str]:
        return [event["line"] for event in self.events if event["type"] == "drop"]


def probe(kind: Kind) -> BrowserProbe:
    return BrowserProbe(browser_options(kind), min_wait=0.2, quiet=0.2, together=2)


@asynccontextmanager
async def world(root: Path, faults: Mapping[str, list[Fault]] | None = None, *, more: Sequence[Archived] = ()) -> AsyncIterator[World]:
    archive = LoopbackArchive([*captures(), *more], faults=faults)
    async with open_loopback_archive(archive) as base, EgressSession(archive_egress(base)) as session:
        yield World(root=root, archive=archive, fetch=GuardedArchive(session, base=base, timeout=10))


def found_at_run_time(root: Path, name: str) -> set[str]:
    sidecar = CacheRoot(root).read_sidecar(key_of(name))
    assert sidecar is not None
    return {entry.key.rpartition("/")[2] for entry in sidecar.dynamic}


async def deployed(root: Path, *keys: str) -> dict[str, SpotCheck]:
    """Render documents from a server that enforces its policy; nothing is in its place but the root."""
    site = Site(CacheRoot(root), held=frozenset(CacheRoot(root).load_corpus()), csp_mode=CspMode.ENFORCE)
    async with open_mirror_server(site) as server:
        return {check.key: check for check in await spot_check(server.url, keys, probe=probe("shell"))}


async def test_what_a_browser_finds_is_captured_until_it_renders_alone(tmp_path: Path) -> None:
    busy = {f"http://site.example.org/{name}": [Fault(status=429, retry_after="1")] for name in ("b.css", "w2.js")}
    async with world(tmp_path, busy) as the:
        report = await the.crawl(*COMPLETE, delay=0.1, attempts=2)
        assert report.tally == {"verified": len(COMPLETE)}, [result.to_json() for result in report.results]
        assert the.dropped == []
        assert found_at_run_time(tmp_path, "depth") == {"b.css", "f.woff"}
        assert found_at_run_time(tmp_path, "images") == {"seen.png"}
        assert found_at_run_time(tmp_path, "scripts") == {"late.json", "w.js", "w2.js", "deep.json", "bye.gif"}
        assert verify_root(tmp_path).ok
        targets = Counter(hit.target for hit in the.archive.log if hit.status != 429)
        assert set(targets.values()) == {1}
        assert_patient(the.archive.log, delay=0.1, pause=1.0)
        the.archive.down, before = True, len(the.archive.log)
        CacheRoot(tmp_path).commit(planted(), PLANTED.body)
        checks = await deployed(tmp_path, *map(key_of, COMPLETE), PLANTED.key)
        assert len(the.archive.log) == before
    found = checks.pop(PLANTED.key)
    assert [check.to_json() for check in checks.values() if not check.ok] == []
    assert [url for check in checks.values() for url in check.failed] == []
    assert not found.ok
    assert found.asked == ("https://leak.example.net/x.png",)
    assert any("img-src" in text and "leak.example.net" in text for text in found.blocked), found
    assert any("script-src" in text and "eval" in text for text in found.blocked), found


PLANTED = page("planted", '<img src="https://leak.example.net/x.png"><script>try { eval("1") } catch {}</script>')


def planted() -> Entry:
    return Entry(key=PLANTED.key, status="body", content_type=PLANTED.content_type, fetched_at="2026-01-02T03:04:05.000Z")


async def test_what_is_not_complete_is_never_called_so(tmp_path: Path) -> None:
    names = ["set", "new", "chain", "stats", "rotten", "bodiless", "abroad", "leaves", "submits", "busy"]
    faults = {f"http://site.example.org/set{n}.gif": [Fault(status=503)] * 9 for n in range(2)}
    faults["http://site.example.org/bodiless"] = [Fault(status=200)]
    async with world(tmp_path, faults) as the:
        await the.crawl("rotten", static_only=True)
        (tmp_path / body_path(key_hash(key_of("rot.png")))).write_bytes(b"other")
        report = await the.crawl(*names, max_iterations=2)
        results = {result.key: result for result in report.results}
        blocked_by = {name: Ledgers(tmp_path).flaky().get(key_of(name), {}).get("reason") for name in names}
        policy = compile_policy({"escapes": [{"host": "stats.example.net", "reason": "counts visits"}]})
        (allowed,) = (await the.crawl("stats", policy=policy)).results
    assert {name: (results[key_of(name)].status.value, blocked_by[name]) for name in names} == {
        "set": ("flaky", "no-progress"),
        "new": ("unconverged", "unconverged"),
        "chain": ("unconverged", "unconverged"),
        "stats": ("flaky", "unmatched-escapes"),
        "rotten": ("corrupt", "corrupt"),
        "bodiless": ("probe-error", "probe-error"),
        "abroad": ("flaky", "unlocalized"),
        "leaves": ("verified", None),
        "submits": ("verified", None),
        "busy": ("probe-error", "probe-error"),
    }
    assert results[key_of("rotten")].members["corrupt"] == [key_of("rot.png")]
    # Which of the two depends on how far its endless loop lets the browser get.
    assert results[key_of("busy")].members["error"] in {
        "the page's scripts had to be ended",
        "the page had not come to rest at the deadline",
    }
    assert (allowed.status.value, allowed.members["allowedEscapes"]) == ("verified", 1)
    left = {"navigation refused: https://elsewhere.example.net/", "navigation refused: https://form.example.net/?"}
    assert left <= set(the.dropped)


RESTLESS = b"""<p>always on its way<script>
onload = () => { for (let i = 0; i < 20; i++) setTimeout(() => {
  location.href = "https://elsewhere.example.net/" + i; location.href = "http://other.example.net/" + i; location.href = "/web/2012/" + i;
}, 50 + i * 3); };
</script>"""


@pytest.mark.parametrize("kind", installed_kinds())
async def test_a_page_whose_navigations_overtake_each_other_asks_for_none_of_them(tmp_path: Path, kind: Kind) -> None:
    async with world(tmp_path, more=[asset("restless", RESTLESS)]) as made:
        report = await made.crawl("restless", kind=kind)
        assert report.tally == {"verified": 1}, report.to_json()
        assert "navigation refused: https://elsewhere.example.net/1" in made.dropped


async def test_no_way_out_of_a_page_is_missed(tmp_path: Path) -> None:
    """Whatever asks (frames, workers, sockets, links, what runs while a page is left), it is refused, and told."""
    async with world(tmp_path) as the:
        report = await the.crawl("out")
    assert [result.status.value for result in report.results] == ["flaky"], report.results
    told = "".join(Ledgers(tmp_path).flaky()[key_of("out")]["residualEscapes"])
    assert [name for name in WAYS_OUT if f"//{way_out(name)}" not in told] == []


@pytest.mark.parametrize("kind", installed_kinds())
async def test_icons_count_in_either_program_and_the_stamp_names_it(tmp_path: Path, kind: Kind) -> None:
    icons = [
        page("icons", "", head='<script>document.write(\'<link rel="icon" href="drawn.png">\')</script>'),
        asset("drawn.png", b"x"),
    ]
    async with world(tmp_path, more=icons) as the:
        report = await the.crawl("icons", kind=kind)
    assert report.ok
    assert found_at_run_time(tmp_path, "icons") == {"drawn.png"}
    (stamp,) = Ledgers(tmp_path).verified(3).values()
    assert stamp["viewport"] == "1280x800@1"
    assert ("HeadlessChrome" in stamp["browser"]) == (kind == "shell")


def assert_patient(log: Sequence[ArchiveHit], *, delay: float, pause: float) -> None:
    """As the archive saw it: no request starts too soon after another, none within a pause that it asked for."""
    assert any(hit.status == 429 for hit in log)
    for hit, following in pairwise(log):
        assert following.at - hit.at >= (pause if hit.status == 429 else delay) - 0.02, (hit, following)


async def test_a_browser_that_cannot_be_started_fails_the_run_and_leaves_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as the:
        with pytest.raises(BrowserError, match="did not start"):
            await crawl(
                [key_of("depth")], root=tmp_path, fetch=the.fetch, probe=BrowserProbe(browser_options("shell", program="/bin/false"))
            )
        assert not the.archive.log
    assert not (tmp_path / ".crawl/flaky.jsonl").exists()


async def test_a_cancelled_crawl_leaves_no_browser(tmp_path: Path) -> None:
    async with world(tmp_path) as the:
        for wanted in ("depth", "scripts"):
            with trio.CancelScope() as scope:
                the.archive.on_hit = lambda hit, wanted=wanted, scope=scope: scope.cancel() if wanted in hit.target else None
                await the.crawl("depth", "images", "scripts", delay=0.2)
            assert scope.cancelled_caught
            assert children() == []


def children() -> list[str]:
    """Processes below this one that still run."""
    own, found = str(os.getpid()), []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text("utf-8").rpartition(")")[2].split() if entry.name.isdecimal() else []
        except OSError:
            continue
        if len(fields) > 1 and fields[1] == own and fields[0] != "Z":
            found.append(entry.name)
    return found
