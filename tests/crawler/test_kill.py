"""A crawl that is killed goes on as if nothing had happened: small forms of ``python -m tests.crawler.kill``."""

from __future__ import annotations

from pathlib import Path

import pytest

from forage.crawler import crawl
from forage.snapshots import FilesystemSnapshotStore
from tests.crawler.kill import CONCURRENCY, POLICY, Kept, crawl_killed_after, kill_many
from tests.support.generated_site import open_generated_site
from tests.support.server_log import assert_at_most, assert_not_paused, assert_spaced


@pytest.mark.slow
async def test_killed_at_any_moment_a_crawl_ends_in_the_manifest_of_an_undisturbed_one() -> None:
    await kill_many(10, seed=0, pages=500)


@pytest.mark.slow
@pytest.mark.parametrize("busy", [0, 2])
async def test_death_shortens_no_delay_and_no_pause(tmp_path: Path, busy: int) -> None:
    kept = Kept(folder=tmp_path)
    async with open_generated_site(24, hosts=2, busy=busy, retry_after=2.0) as site:
        death = await crawl_killed_after(site, kept, 1.2, {**POLICY, "delay": 0.2})
        assert death.code != 0
        before = len(site.log)
        assert before > 2
        manifest = await crawl(
            site.seed, site.policy(delay=0.2, concurrency=8), store=FilesystemSnapshotStore(kept.store), state=kept.state
        )
        assert len(site.log) > before
        assert_spaced(site.log, 0.2)
        assert_not_paused(site.log, site.pauses)
        assert_at_most(site.log, 1)
        assert manifest.counts.captured >= site.captured
        await kept.check_store(manifest, interrupted=CONCURRENCY)
