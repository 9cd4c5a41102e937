"""The files of many authorities: had once, asked for again when old, redirects under the guard."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from forage.errors import FetchErrorKind
from forage.fetch import RobotsCopy, RobotsState
from forage.fetch.robots import Robots
from forage.fetch.robots_outcome import RobotsEntry, RobotsReply, RobotsRules
from tests.fetch.virtual_site import Routes, html, open_site, redirect
from tests.support.virtual_hosts import Trouble, VirtualAnswer

ROBOTS = "https://site.test/robots.txt"
CLOSED = VirtualAnswer(body=b"User-agent: *\nDisallow: /private\nSitemap: /map.xml\n")
OPEN = VirtualAnswer(body=b"User-agent: *\nDisallow:\n")


async def test_many_tasks_cost_one_request(autojump_clock: trio.testing.MockClock) -> None:
    async with open_site({ROBOTS: CLOSED}, obey_robots=True, per_host=16) as site:
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(site.fetcher.fetch, f"https://site.test/{number}")
        assert site.asked.count(ROBOTS) == 1
        await trio.sleep(86_399)
        await site.fetcher.fetch("https://site.test/a")
        assert site.asked.count(ROBOTS) == 1
        await trio.sleep(1)
        await site.fetcher.fetch("https://site.test/a")
        assert site.asked.count(ROBOTS) == 2


async def test_each_authority_has_its_own_file_and_http_and_https_are_two(autojump_clock: trio.testing.MockClock) -> None:
    async with open_site({ROBOTS: CLOSED}, obey_robots=True) as site:
        results = [
            await site.fetcher.fetch(url)
            for url in ("https://site.test/private", "http://site.test/private", "https://www.site.test/private")
        ]
        assert [r.error and r.error.kind for r in results] == [
            FetchErrorKind.ROBOTS_DENIED, FetchErrorKind.HTTP_ERROR, FetchErrorKind.HTTP_ERROR,
        ]  # fmt: skip
        assert {"http://site.test/robots.txt", "https://www.site.test/robots.txt", ROBOTS} <= set(site.asked)


@pytest.mark.parametrize("value", ["\x80", '"\xe9"', "x" * 4097, ""])
async def test_a_validator_that_no_request_may_hold_does_not_keep_an_old_copy_for_ever(
    value: str, autojump_clock: trio.testing.MockClock
) -> None:
    tagged = VirtualAnswer(headers=(("ETag", value), ("Last-Modified", value)), body=CLOSED.body)
    async with open_site({ROBOTS: [tagged, OPEN]}, obey_robots=True) as site:
        await site.fetcher.robots("https://site.test/")
        await trio.sleep(86_400)
        entry = await site.fetcher.robots("https://site.test/")
        assert entry.state is RobotsState.PARSED
        assert entry.problem is None
        assert not {"if-none-match", "if-modified-since"} & set(site.headers_of(ROBOTS))
        assert not (await site.fetcher.fetch("https://site.test/private")).warnings


@pytest.mark.parametrize("value", ["\x01", "a\nb", "a\x7f"])
async def test_a_remembered_validator_that_no_request_may_hold_is_not_sent(value: str, autojump_clock: trio.testing.MockClock) -> None:
    async with open_site({ROBOTS: OPEN}, obey_robots=True) as site:
        site.fetcher.remember_robots("https://site.test/", RobotsCopy(body=CLOSED.body, age=86_400.0, etag=value, last_modified=value))
        await site.fetcher.robots("https://site.test/")
        assert not {"if-none-match", "if-modified-since"} & set(site.headers_of(ROBOTS))


async def test_an_old_copy_is_asked_for_conditionally(autojump_clock: trio.testing.MockClock) -> None:
    tagged = VirtualAnswer(headers=(("ETag", '"r1"'), ("Last-Modified", "then")), body=CLOSED.body)
    async with open_site({ROBOTS: [tagged, VirtualAnswer(status=304)]}, obey_robots=True) as site:
        await site.fetcher.robots("https://site.test/")
        await trio.sleep(86_400)
        entry = await site.fetcher.robots("https://site.test/")
        assert entry.state is RobotsState.PARSED
        sent = site.headers_of(ROBOTS)
        assert (sent["if-none-match"], sent["if-modified-since"]) == ('"r1"', "then")
        result = await site.fetcher.fetch("https://site.test/private")
        assert result.error is not None
        assert result.error.reason == f"{ROBOTS} line 2: Disallow: /private"


async def test_an_unreachable_file_heals(autojump_clock: trio.testing.MockClock) -> None:
    routes: Routes = {ROBOTS: [VirtualAnswer(status=500)] * 3 + [OPEN], "https://site.test/": html()}
    async with open_site(routes, obey_robots=True, retries=2) as site:
        result = await site.fetcher.fetch("https://site.test/")
        assert result.error is not None
        assert result.error.kind is FetchErrorKind.ROBOTS_UNREACHABLE
        assert "https://site.test/" not in site.asked
        await trio.sleep(30)
        await site.fetcher.fetch("https://site.test/")
        assert len(site.asked) == 3  # not asked for again at once
        await trio.sleep(40)
        assert (await site.fetcher.fetch("https://site.test/")).ok


async def test_redirects_are_followed_across_hosts_and_judged(autojump_clock: trio.testing.MockClock) -> None:
    away = "https://cdn.test/rules.txt"
    async with open_site({ROBOTS: redirect(away), away: CLOSED, "https://site.test/": html()}, obey_robots=True) as site:
        result = await site.fetcher.fetch("https://site.test/private/x")
        assert result.error is not None
        assert result.error.kind is FetchErrorKind.ROBOTS_DENIED
        assert (await site.fetcher.fetch("https://site.test/")).ok
        entry = await site.fetcher.robots("https://site.test/")
        assert entry.sitemaps == ("https://site.test/map.xml",)  # relative to the authority's own file


@pytest.mark.parametrize(
    "location",
    ["http://site.test/robots.txt", "http://10.0.0.1/robots.txt", "https://localhost/r", "https://u:p@site.test/r", "file:///etc/passwd"],
)
async def test_what_the_guard_refuses_leaves_the_file_unreachable(location: str, autojump_clock: trio.testing.MockClock) -> None:
    async with open_site({ROBOTS: redirect(location)}, obey_robots=True, robots_on_error="allow") as site:
        result = await site.fetcher.fetch("https://site.test/")
        assert result.error is not None
        assert result.error.kind is FetchErrorKind.ROBOTS_UNREACHABLE
        assert site.asked == [ROBOTS]


@pytest.mark.parametrize("location", ["/robots.txt", "/r1", "http://[bad", "/\\x"])
async def test_redirects_that_lead_nowhere_leave_the_site_open(location: str, autojump_clock: trio.testing.MockClock) -> None:
    routes = {ROBOTS: redirect(location), "https://site.test/": html()}
    routes |= {f"https://site.test/r{n}": redirect(f"/r{n + 1}") for n in range(10)}
    async with open_site(routes, obey_robots=True) as site:
        assert (await site.fetcher.fetch("https://site.test/")).ok
        entry = await site.fetcher.robots("https://site.test/")
        assert entry.state is RobotsState.UNAVAILABLE
        assert any("robots-redirect" in note for note in entry.warnings)
        assert len(site.asked) <= 7


async def test_a_host_that_resolves_to_a_private_address_is_egress_denied(autojump_clock: trio.testing.MockClock) -> None:
    async with open_site({}, names={"inside.test": ["10.0.0.5"]}, obey_robots=True) as site:
        result = await site.fetcher.fetch("https://inside.test/")
        assert result.error is not None
        assert (result.error.kind, result.error.reason) == (FetchErrorKind.EGRESS_DENIED, "DENIED_ADDRESS")
        assert site.asked == []


async def test_a_paused_host_is_said_to_be_paused_not_unreachable(autojump_clock: trio.testing.MockClock) -> None:
    async with open_site({ROBOTS: OPEN, "https://site.test/": html()}, obey_robots=True, max_retry_wait=60) as site:
        site.fetcher.clock("site.test").pause(600)
        result = await site.fetcher.fetch("https://site.test/")
        assert result.error is not None
        assert (result.error.kind, result.error.retry_after) == (FetchErrorKind.HOST_PAUSED, 600.0)
        assert site.asked == []
        await trio.sleep(600)
        assert (await site.fetcher.fetch("https://site.test/")).ok


async def test_a_file_that_declares_a_gigabyte_is_read_as_far_as_needed(autojump_clock: trio.testing.MockClock) -> None:
    big = VirtualAnswer(headers=(("Content-Length", "1000000000"),), body=CLOSED.body + b"#" * 600_000)
    async with open_site({ROBOTS: big}, obey_robots=True) as site:
        entry = await site.fetcher.robots("https://site.test/")
        assert (entry.state, entry.file.truncated) == (RobotsState.PARSED, True)


async def test_a_name_without_addresses_is_unreachable(autojump_clock: trio.testing.MockClock) -> None:
    async with open_site({}, names={"gone.test": []}, obey_robots=True) as site:
        result = await site.fetcher.fetch("https://gone.test/")
        assert result.error is not None
        assert result.error.kind is FetchErrorKind.ROBOTS_UNREACHABLE
        assert "DNS_FAILURE" in result.error.message


async def test_a_copy_from_an_earlier_run_is_used(autojump_clock: trio.testing.MockClock) -> None:
    async with open_site({ROBOTS: Trouble(kind="connect")}, obey_robots=True, retries=0) as site:
        site.fetcher.remember_robots("https://site.test/x", RobotsCopy(body=CLOSED.body, age=80_000))
        result = await site.fetcher.fetch("https://site.test/private")
        assert result.error is not None
        assert result.error.kind is FetchErrorKind.ROBOTS_DENIED
        assert site.asked == []
        await trio.sleep(10_000)
        entry = await site.fetcher.robots("https://site.test/")
        assert entry.state is RobotsState.STALE


async def test_a_cancelled_asker_leaves_the_next_one_to_ask(autojump_clock: trio.testing.MockClock) -> None:
    asked = 0

    async def ask(url: str, held: RobotsEntry | None) -> RobotsReply:
        nonlocal asked
        asked += 1
        await trio.sleep(10)
        return RobotsReply(status=200, body=CLOSED.body)

    robots = Robots(ask, RobotsRules())
    entries: list[RobotsEntry] = []

    async def wait() -> None:
        entries.append(await robots.entry("https://site.test"))

    async with trio.open_nursery() as nursery:
        with trio.move_on_after(5):
            nursery.start_soon(wait)
            async with trio.open_nursery() as inner:
                inner.start_soon(wait)
                await trio.sleep_forever()
    assert [entry.state for entry in entries] == [RobotsState.PARSED]
    assert asked in (1, 2)


async def test_what_is_held_is_bounded_in_bytes(autojump_clock: trio.testing.MockClock) -> None:
    asked: list[str] = []

    async def ask(url: str, held: RobotsEntry | None) -> RobotsReply:
        asked.append(url)
        await trio.lowlevel.checkpoint()
        return RobotsReply(status=200, body=b"#" * 500_000)

    robots = Robots(ask, RobotsRules())
    for number in range(150):
        await robots.entry(f"https://h{number}.test")
    await robots.entry("https://h149.test")
    assert len(asked) == 150
    await robots.entry("https://h0.test")
    assert len(asked) == 151  # the least recently used one went
