"""The order of a crawl over real sockets, at any concurrency: small forms of ``make stress-crawl``."""

from __future__ import annotations

import attrs
import pytest

from forage.crawler import CrawlPolicy, FollowContext, Link, SkipReason, crawl
from forage.egress import EgressPolicy
from tests.crawler.stress import NOW, crawl_once, many_seeds, one_manifest, polite
from tests.support.generated_site import open_generated_site
from tests.support.raw_server import Answer, RawRequest, open_raw_server, page
from tests.support.server_log import assert_at_most


@pytest.mark.slow
async def test_one_site_gives_one_manifest_at_any_concurrency() -> None:
    async with open_generated_site(200) as site:
        manifest = await one_manifest(site, [1, 4, 16, 64], 3)
        assert manifest.counts.captured >= site.captured
        assert not manifest.truncated


def prefer(link: Link, context: FollowContext) -> bool | float:
    number = int(link.url.partition("?")[0].rpartition("/")[2] or 0)
    return False if number % 13 == 12 else float(number % 5) - context.depth


@pytest.mark.parametrize(
    "options",
    [
        {"per_host": 3},
        {"max_pages": 40},
        {"max_bytes": 100_000},
        {"max_failures": 3},
        {"max_depth": 3},
        {"should_follow": prefer, "max_pages": 60},
        {"window": 1},
        {"window": 7, "per_host": 2},
    ],
    ids=" ".join,
)
async def test_what_a_policy_leaves_out_is_the_same_at_any_concurrency(options: dict[str, object]) -> None:
    async with open_generated_site(100, seed=1) as site:
        await one_manifest(site, [2, 32], 1, **options)


async def test_more_requests_at_a_time_only_where_the_policy_says_so() -> None:
    async with open_generated_site(60, hosts=1, latency=0.1) as site:
        await crawl_once(site, 1, concurrency=16)
        assert assert_at_most(site.log, 1) == 1
        await crawl_once(site, 2, concurrency=16, per_host=4)
        assert 1 < assert_at_most(site.log, 4) <= 4


@pytest.mark.slow
async def test_hosts_are_left_alone_for_the_delay_and_for_as_long_as_they_ask() -> None:
    async with open_generated_site(60, busy=3) as site:
        manifest, _ = await polite(site, 0.2, concurrency=32)
        assert len(site.pauses) == 3
        assert not any(skip.reason is SkipReason.HOST_PAUSED for skip in manifest.skips)


@pytest.mark.slow
async def test_many_seeds_are_one_polite_visitor_and_change_no_manifest() -> None:
    async with open_generated_site(60) as site:
        seeds = [url for host in range(len(site.servers)) for url in site.pages_of(host)[:4]]
        together = await many_seeds(site, seeds, delay=0.2, concurrency=32)
        assert len(together) == len(seeds)
        for seed in seeds[::5]:
            (alone,) = (await many_seeds(site, [seed], delay=0.2, concurrency=32)).values()
            assert alone == together[seed]


@pytest.mark.parametrize("per_host", [1, 4])
async def test_host_that_asks_for_too_long_a_pause_is_lost_at_the_same_page_at_any_concurrency(per_host: int) -> None:
    html = [("Content-Type", "text/html; charset=utf-8")]
    busy = page(b"", status="429 Too Many Requests", headers=[("Retry-After", "500")])

    def respond(request: RawRequest) -> Answer:
        body = "".join(f'<a href="/n/{n}">x</a>' for n in range(1, 21)) if request.target == "/" else ""
        answer = busy if request.target == "/n/5" else page(body.encode(), headers=html)
        return attrs.evolve(answer, steps=(0.01, *answer.steps))

    async with open_raw_server(respond) as server:
        manifests = []
        for concurrency in (1, 2, 4, 16):
            policy = CrawlPolicy(
                max_pages=50,
                delay=0.0,
                per_host=per_host,
                concurrency=concurrency,
                obey_robots=False,
                egress=EgressPolicy(test_loopback_origins=(server.origin,)),
            )
            manifests.append(await crawl(server.origin, policy, utc_now=lambda: NOW))
    assert len({manifest.to_json() for manifest in manifests}) == 1
    assert manifests[0].counts.captured == 5
