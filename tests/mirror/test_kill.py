"""A mirror crawl that is killed goes on as if nothing had happened: the small form of ``python -m tests.mirror.kill``."""

from __future__ import annotations

import pytest

from tests.mirror.kill import kill_many


@pytest.mark.slow
async def test_killed_at_any_moment_a_crawl_ends_in_the_root_of_an_undisturbed_one() -> None:
    # Kills that fall early, so that one crawl takes most of them.
    soak = await kill_many(10, seed=0, share=0.25)
    assert soak.killed == 10
