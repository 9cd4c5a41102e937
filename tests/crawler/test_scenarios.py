"""Every crawl scenario, as its servers saw it: polite to each host, and accounted for to the last link."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from forage.crawler import CrawlManifest
from forage.fetch import parse_robots
from tests.support.accounting import assert_accounted
from tests.support.server_log import Pause, Seen, assert_at_most, assert_not_paused, assert_spaced, seen_by
from tests.vector_runner.adapters.crawl_scenarios import Bench, open_bench
from tests.vector_runner.model import Case

SCENARIOS = json.loads((Path(__file__).parents[1] / "vectors/crawl/fetch/crawl_scenarios.json").read_text("utf-8"))
NOT_A_CRAWL = {"after_cancel", "after_resume"}  # single fetches; and crawls in processes of their own, whose store is what counts


@pytest.mark.parametrize("scenario", [s for s in SCENARIOS if not NOT_A_CRAWL & set(s["expect"])], ids=lambda s: s["id"])
async def test_scenario_is_polite_and_accounted_for(scenario: Mapping[str, Any]) -> None:
    async with open_bench(Case(scenario)) as bench:
        manifests = await bench.run()
        assert bench.site.server is not None
        log = seen_by(bench.site.server)
    for manifest in manifests:
        _assert_accounted(scenario, manifest, log)
    assert_at_most(log, bench.policy.per_host)
    assert_spaced(log, _delays(bench))
    if bench.policy.group_by == "address":  # the names of this scenario are one machine
        assert_spaced([attrs.evolve(one, host="") for one in log], bench.policy.delay)
    assert_not_paused(log, _pauses(bench, log))


def _assert_accounted(scenario: Mapping[str, Any], manifest: CrawlManifest, log: list[Seen]) -> None:
    mine = [one for one in log if one.host in {host.host for host in manifest.hosts}]
    pages = {page.requested_url: page for page in manifest.pages}
    elsewhere = [skip.url for skip in manifest.skips if "fake_browser" in scenario["options"] or scenario["id"] == "crawl-render-scope"]
    probes = {one.target for one in mine if len(one.target) == 21 and f"https://{one.host}{one.target}" not in pages}
    if scenario["options"].get("soft_404_probe"):
        mine = [one for one in mine if one.target not in probes]
    assert_accounted(manifest, mine, scheme="https", elsewhere=elsewhere)


def _delays(bench: Bench) -> Mapping[str, float]:
    """The delay in force of each host: the policy's or that of its robots.txt, unless that is above what the policy takes."""
    delays = {}
    for host, routes in bench.site.hosts.items():
        robots = routes.get("/robots.txt", {})
        answers = robots if isinstance(robots, list) else [robots]
        wishes = [parse_robots(str(answer.get("body", "")).encode()).group("forage").crawl_delay for answer in answers]
        wish = max((wish for wish in wishes if wish is not None and wish <= bench.policy.max_crawl_delay), default=0.0)
        delays[host] = max(bench.policy.delay, wish)
    return delays


def _pauses(bench: Bench, log: list[Seen]) -> list[Pause]:
    """From each answer that asks for a pause, for as long as it asks."""
    counts: dict[tuple[str, str], int] = {}
    pauses = []
    for one in log:
        script = bench.site.hosts[one.host].get(one.target, {})
        place = counts[one.host, one.target] = counts.get((one.host, one.target), 0) + 1
        answer = script[min(place, len(script)) - 1] if isinstance(script, list) else script
        wait = answer.get("headers", {}).get("retry-after")
        if wait is not None and one.answered is not None:
            pauses.append(Pause(host=one.host, begin=one.answered, end=one.answered + float(wait)))
    return pauses
