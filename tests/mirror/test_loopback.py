"""The loopback archive answers as a wayback service does, and what a crawl makes of each of its answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from forage.egress import EgressSession
from forage.mirror import CacheRoot, CrawlReport, GuardedArchive, archive_egress, crawl
from forage.mirror.archive import ArchiveReply, ArchiveRequestError
from forage.mirror.demo_web import STAMP, asset, page
from forage.mirror.ledgers import Ledgers
from forage.mirror.loopback import Archived, Fault, LoopbackArchive, open_loopback_archive
from tests.support.page_reader import PageReader

SITE = "http://site.example.org"
ARCHIVE = "https://web.archive.org/web"


@asynccontextmanager
async def archive_of(
    *captures: Archived, faults: dict[str, list[Fault]] | None = None
) -> AsyncIterator[tuple[LoopbackArchive, GuardedArchive]]:
    loopback = LoopbackArchive(captures, faults=faults)
    async with open_loopback_archive(loopback) as base, EgressSession(archive_egress(base)) as session:
        yield loopback, GuardedArchive(session, base=base, timeout=5)


async def asked(fetch: GuardedArchive, name: str, *, flag: str = "", timestamp: str = STAMP) -> ArchiveReply:
    return await fetch(f"{ARCHIVE}/{timestamp}{flag}/{SITE}/{name}")


async def crawled(root: Path, fetch: GuardedArchive, name: str) -> CrawlReport:
    return await crawl([f"{STAMP}/{SITE}/{name}"], root=root, fetch=fetch, probe=PageReader(), delay=0.0, attempts=1)


def kept(root: Path, name: str) -> dict[str, object]:
    sidecar = CacheRoot(root).read_sidecar(f"{STAMP}/{SITE}/{name}")
    assert sidecar is not None
    return dict(sidecar.members)


async def test_pages_are_framed_by_the_archives_own_markup_and_flags_say_how_much() -> None:
    async with archive_of(page("p", '<img src="a.png"><a href="/x">x</a>')) as (_, fetch):
        plain = (await asked(fetch, "p")).body.decode()
        framed = (await asked(fetch, "p", flag="if_")).body.decode()
        raw = (await asked(fetch, "p", flag="id_")).body.decode()
    assert "BEGIN WAYBACK TOOLBAR INSERT" in plain
    assert "__wm.init(" in framed
    assert "TOOLBAR" not in framed
    assert f'src="/web/{STAMP}im_/{SITE}/a.png"' in plain
    assert f'href="{ARCHIVE}/{STAMP}/{SITE}/x"' in plain
    assert raw == '<html><head><title>p</title></head><body><img src="a.png"><a href="/x">x</a></body></html>'


async def test_another_moment_is_redirected_to_the_nearest_capture_and_the_sidecar_says_so(tmp_path: Path) -> None:
    async with archive_of(page("p", '<img src="a.png">'), asset("a.png", b"A", timestamp="20120101000000")) as (_, fetch):
        reply = await asked(fetch, "a.png", flag="im_")
        report = await crawled(tmp_path, fetch, "p")
    assert (reply.status, reply.location) == (302, f"/web/20120101000000im_/{SITE}/a.png")
    assert report.ok
    assert kept(tmp_path, "a.png")["finalKey"] == f"20120101000000/{SITE}/a.png"


async def test_what_the_archive_lacks_is_a_404_and_a_terminal_child(tmp_path: Path) -> None:
    async with archive_of(page("p", '<img src="gone.png">')) as (_, fetch):
        assert (await asked(fetch, "gone.png")).status == 404
        report = await crawled(tmp_path, fetch, "p")
    assert report.ok
    assert kept(tmp_path, "gone.png")["status"] == "error"


async def test_a_redirect_elsewhere_is_a_notice_to_a_person_and_a_redirect_to_a_program(tmp_path: Path) -> None:
    moved = Archived(timestamp=STAMP, original=f"{SITE}/old", status=301, location="http://other.example.org/new")
    async with archive_of(moved, page("p", '<img src="old">')) as (_, fetch):
        notice = await asked(fetch, "old")
        report = await crawled(tmp_path, fetch, "p")
        assert kept(tmp_path, "old")["status"] == "redirect"
        document = await crawled(tmp_path / "other", fetch, "old")
    assert notice.status == 200
    assert report.ok
    assert document.tally == {"probe-error": 1}
    found = kept(tmp_path / "other", "old")
    assert (found["signature"], found["target"]) == (
        "redirect-interstitial",
        {"timestamp": STAMP, "url": "http://other.example.org/new"},
    )


async def test_a_page_around_a_frame_is_no_capture(tmp_path: Path) -> None:
    paper = Archived(timestamp=STAMP, original=f"{SITE}/paper", content_type="application/pdf", body=b"%PDF")
    async with archive_of(paper) as (_, fetch):
        assert (await asked(fetch, "paper", flag="oe_")).body == b"%PDF"
        report = await crawled(tmp_path, fetch, "paper")
    assert report.tally == {"probe-error": 1}
    assert kept(tmp_path, "paper")["signature"] == "wrapper-stub"
    assert Ledgers(tmp_path).verified(3) == {}


async def test_answers_that_fail_are_each_a_failure_of_its_own(tmp_path: Path) -> None:
    names = ["busy", "cut", "odd"]
    faults = {
        f"{SITE}/busy.png": [Fault(status=429, retry_after="1")],
        f"{SITE}/cut.png": [Fault(cut=True)],
        f"{SITE}/odd.png": [Fault(status=204)] * 2,
    }
    images = [asset(f"{name}.png", b"image" * 99) for name in names]
    body = "".join(f'<img src="{name}.png">' for name in names)
    async with archive_of(page("p", body), *images, faults=faults) as (loopback, fetch):
        busy = await asked(fetch, "busy.png")
        assert (busy.status, busy.retry_after) == (429, "1")
        with pytest.raises(ArchiveRequestError):
            await asked(fetch, "cut.png")
        first = await crawled(tmp_path, fetch, "p")
        second = await crawled(tmp_path, fetch, "p")
        loopback.down = True
        with pytest.raises(ArchiveRequestError):
            await asked(fetch, "p")
    assert (first.tally, first.results[0].members["residualMissing"]) == ({"flaky": 1}, 1)
    assert second.tally == {"verified": 1}
