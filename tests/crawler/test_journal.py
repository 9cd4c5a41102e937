"""What a state file keeps: outcomes by number, sitemaps, pauses; one process, one policy, all or nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.crawler import Link, Page, PageFailure, PageSkip, SitemapFinds, SitemapUrl, SitemapWarning, SkipReason
from forage.crawler.frontier import Entry
from forage.crawler.journal import Journal, StateError
from forage.crawler.lanes import HostLoss, Outcome
from forage.errors import InvalidPolicyError

STARTED = "2026-09-01T00:00:00.000Z"
URL = "https://site.test/a"


def entry(number: int, url: str = URL) -> Entry:
    return Entry(number=number, url=url, key=url, host="site.test", host_index=number, depth=1)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "state")
    yield journal
    journal.close()


def again(journal: Journal, path: Path) -> Journal:
    """The file as the next process opens it."""
    journal.close()
    return Journal(path)


texts = st.text(max_size=20)
links = st.builds(
    Link,
    kind=st.sampled_from(["a", "frame", "refresh", "sitemap"]),
    url=st.integers(0, 9).map(lambda n: f"https://site.test/{n}"),
    nofollow=st.booleans(),
    delay=st.one_of(st.none(), st.floats(0, 1e6)),
)
skips = st.builds(PageSkip, url=texts, reason=st.sampled_from(SkipReason), depth=st.integers(0, 9), detail=st.one_of(st.none(), texts))
pages = st.builds(
    Page,
    number=st.integers(0, 99),
    url=texts,
    requested_url=texts,
    status=st.integers(100, 999),
    depth=st.integers(0, 9),
    source_id=texts,
    source_ref=texts,
    body_hash=texts,
    body_bytes=st.integers(0, 2**40),
    fetched_at=texts,
    rendered=st.booleans(),
    not_modified=st.booleans(),
    stored=st.booleans(),
    soft_404=st.booleans(),
    redirects=st.tuples(texts),
    warnings=st.tuples(texts, texts),
    snapshot=st.none(),
)
failures = st.builds(
    PageFailure,
    number=st.integers(0, 99),
    url=texts,
    code=texts,
    message=texts,
    depth=st.integers(0, 9),
    status=st.one_of(st.none(), st.integers(100, 599)),
    rule=st.one_of(st.none(), texts),
    target=st.one_of(st.none(), texts),
    last_url=st.one_of(st.none(), texts),
    redirects=st.tuples(texts),
    warnings=st.tuples(texts),
)
rows = st.one_of(
    st.fixed_dictionaries({"page": pages}), st.fixed_dictionaries({"failure": failures}), st.fixed_dictionaries({"skip": skips})
)
rest = st.fixed_dictionaries(
    {
        "links": st.lists(links, max_size=4).map(tuple),
        "covered": st.lists(texts, max_size=2).map(tuple),
        "found_skips": st.lists(skips, max_size=2).map(tuple),
        "loses": st.one_of(st.none(), st.builds(HostLoss, host=texts, reason=st.sampled_from(SkipReason), detail=texts)),
        "warnings": st.lists(texts, max_size=2).map(tuple),
    }
)


def test_every_outcome_comes_back_as_it_was(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "state")
    journal.begin("seed", "policy", "{}", STARTED)
    numbers = iter(range(1_000_000))

    @given(row=rows, more=rest)
    def keep(row: dict[str, Any], more: dict[str, Any]) -> None:
        number = next(numbers)
        outcome = Outcome(**row, **more)
        journal.write("seed", [(entry(number), outcome)])
        assert journal.find("seed", entry(number)) == outcome

    keep()
    journal.close()


def skipped(url: str = URL) -> Outcome:
    return Outcome(skip=PageSkip(url=url, reason=SkipReason.DUPLICATE, depth=1))


def test_bodies_are_not_kept_twice(journal: Journal) -> None:
    page = Page(
        number=0,
        url=URL,
        requested_url=URL,
        status=200,
        depth=0,
        source_id=URL,
        source_ref=URL,
        body_hash="0" * 64,
        body_bytes=1,
        fetched_at=STARTED,
        snapshot=object(),  # type: ignore[arg-type]  # whatever it is, it is not written
    )
    journal.write("seed", [(entry(0), Outcome(page=page))])
    found = journal.find("seed", entry(0))
    assert found is not None
    assert found.page is not None
    assert found.page.snapshot is None
    assert found.page == page


async def test_next_process_finds_what_was_kept_and_says_that_it_goes_on(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "state")
    assert not journal.resumed
    record = journal.begin("seed", "policy", "{}", STARTED)
    assert not record.resumed
    assert await record.keep([(entry(0), skipped()), (entry(2), skipped())]) is None
    journal = again(journal, tmp_path / "state")
    assert journal.resumed
    record = journal.begin("seed", "policy", "{}", "2027-01-01T00:00:00.000Z")
    assert (record.resumed, record.started) == (True, STARTED)
    assert [record.find(entry(number)) for number in range(3)] == [skipped(), None, skipped()]
    other = journal.begin("other seed", "another policy", "{}", STARTED)
    assert other.find(entry(0)) is None
    journal.close()


async def test_entry_of_another_order_is_not_taken_from_the_file(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "state")
    await journal.begin("seed", "policy", "{}", STARTED).keep([(entry(0), skipped())])
    journal = again(journal, tmp_path / "state")
    record = journal.begin("seed", "policy", "{}", STARTED)
    other = entry(0, "https://site.test/b")
    assert record.find(other) is None
    with pytest.raises(StateError, match="order"):
        journal.find("seed", other)
    journal.close()


def test_policy_may_not_change_under_a_crawl(journal: Journal) -> None:
    journal.begin("seed", "policy", "{}", STARTED)
    with pytest.raises(InvalidPolicyError, match="same policy"):
        journal.begin("seed", "another", "{}", STARTED)


def test_options_of_a_seed_may_not_change_under_a_crawl_and_are_kept_as_a_digest(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "state")
    journal.begin("seed", "policy", '[["authorization","Bearer sesame"]]', STARTED)
    journal = again(journal, tmp_path / "state")
    assert journal.begin("seed", "policy", '[["authorization","Bearer sesame"]]', STARTED).resumed
    with pytest.raises(InvalidPolicyError, match="headers"):
        journal.begin("seed", "policy", '[["authorization","Bearer other"]]', STARTED)
    journal.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"sesame" not in kept
    assert b"bearer" not in kept.lower()


def test_same_secret_has_another_digest_in_each_file(tmp_path: Path) -> None:
    digests = set()
    for name in ("one", "two"):
        journal = Journal(tmp_path / name)
        journal.begin("seed", "policy", "secret", STARTED)
        journal.close()
        with closing(sqlite3.connect(tmp_path / name)) as db:
            digests.add(db.execute("SELECT seed FROM crawls").fetchone()[0])
    assert len(digests) == 2


def test_state_of_an_earlier_layout_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
        db.execute("INSERT INTO about VALUES ('format', 'forage.crawl-state/1')")
        db.execute("CREATE TABLE crawls (crawl TEXT PRIMARY KEY, policy TEXT NOT NULL, started TEXT NOT NULL, sitemaps TEXT) WITHOUT ROWID")
        db.execute("INSERT INTO crawls VALUES ('seed', 'policy', ?, NULL)", (STARTED,))
    with pytest.raises(StateError, match="crawl-state/1"):
        Journal(path)
    with closing(sqlite3.connect(path)) as db:
        assert [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")] == ["about", "crawls"]


def test_batch_is_kept_whole_or_not_at_all(journal: Journal) -> None:
    journal.begin("seed", "policy", "{}", STARTED)
    unwritable = attrs.evolve(entry(1), number=2**70)
    with pytest.raises((StateError, OverflowError)):
        journal.write("seed", [(entry(0), skipped()), (unwritable, skipped())])
    assert journal.find("seed", entry(0)) is None
    journal.write("seed", [(entry(0), skipped())])
    assert journal.find("seed", entry(0)) == skipped()


async def test_sitemaps_come_back(tmp_path: Path) -> None:
    finds = SitemapFinds(
        urls=(SitemapUrl(loc=URL, lastmod="2026-01", alternates=(("de", "https://site.test/de"),)),),
        off_scope=("https://other.test/",),
        documents_read=2,
        sitemaps_read=1,
        requests=3,
        unpacked_bytes=99,
        warnings=(SitemapWarning(code="sitemap-off-scope", url=URL),),
    )
    journal = Journal(tmp_path / "state")
    record = journal.begin("seed", "policy", "{}", STARTED)
    await record.keep_sitemaps(finds)
    assert record.sitemaps() is None  # it was this process that found them
    journal = again(journal, tmp_path / "state")
    assert journal.begin("seed", "policy", "{}", STARTED).sitemaps() == finds
    assert journal.begin("other", "policy", "{}", STARTED).sitemaps() is None
    journal.close()


def test_pauses_are_instants_whatever_the_zone(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "state")
    until = datetime(2026, 9, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    journal.pause("site.test", until - timedelta(hours=1))
    journal.pause("site.test", until)
    journal = again(journal, tmp_path / "state")
    assert list(journal.pauses()) == [("site.test", until)]
    assert journal.pauses()[0][1].tzinfo is UTC
    journal.close()


def test_file_is_used_by_one_at_a_time_and_closed_once_is_closed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "state")
    journal.begin("seed", "policy", "{}", STARTED)
    journal.close()
    journal.close()
    with pytest.raises(StateError):
        journal.find("seed", entry(0))
    journal = Journal(tmp_path / "state")
    journal.close()


async def test_record_that_cannot_be_written_says_that_the_crawl_cannot_go_on_from_here(journal: Journal) -> None:
    record = journal.begin("seed", "policy", "{}", STARTED)
    journal.close()
    trouble = await record.keep([(entry(0), skipped())])
    assert trouble is not None
    assert "resumed" in trouble
    await record.keep_sitemaps(SitemapFinds())
    assert record.find(entry(0)) is None
