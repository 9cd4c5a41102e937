"""The gate to the archive: pacing, retries, Retry-After, redirects to the same capture and the request cap."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from forage.egress import EgressPolicy, EgressSession
from forage.errors import InvalidPolicyError
from forage.mirror.archive import Archive, ArchiveReply, ArchiveRequestError, GuardedArchive, RequestCapError, archive_egress
from forage.mirror.loopback import Archived, Fault, LoopbackArchive, open_loopback_archive

URL = "https://web.archive.org/web/20120515093000im_/http://x.org/a.png"
KEY = "20120515093000/http://x.org/a.png"
OK = ArchiveReply(status=200, body=b"x")


@attrs.define
class Script:
    """Answers in order, the last one again and again; remembers what was asked and when."""

    answers: Sequence[ArchiveReply | ArchiveRequestError]
    seconds: float = 0.0
    asked: list[tuple[float, str]] = attrs.field(factory=list)
    in_flight: int = 0
    most: int = 0

    async def fetch(self, url: str) -> ArchiveReply:
        self.asked.append((trio.current_time(), url))
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await trio.sleep(self.seconds)
        finally:
            self.in_flight -= 1
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if isinstance(answer, ArchiveRequestError):
            raise answer
        return answer

    @property
    def gaps(self) -> list[float]:
        times = [at for at, _ in self.asked]
        return [later - earlier for earlier, later in pairwise(times)]


def gate(
    script: Script,
    *,
    delay: float = 0.0,
    attempts: int = 3,
    max_requests: int | None = None,
    together: int = 1,
    base: str = "https://web.archive.org",
) -> Archive:
    return Archive(
        script.fetch,
        base=base,
        delay=delay,
        attempts=attempts,
        max_requests=max_requests,
        together=together,
        random=lambda: 0.5,
        utc_now=lambda: datetime(2026, 1, 2, tzinfo=UTC),
    )


@pytest.mark.parametrize("status", [429, 498, 500, 502, 503, 504])
async def test_transient_statuses_are_asked_again_after_doubling_waits(autojump_clock: trio.testing.MockClock, status: int) -> None:
    script = Script([ArchiveReply(status=status)])
    answer = await gate(script).get(URL)
    assert answer.reply.status == status
    assert script.gaps == pytest.approx([1.0, 2.0])


@pytest.mark.parametrize("status", [200, 204, 301, 404, 410, 403, 501])
async def test_other_statuses_are_final(autojump_clock: trio.testing.MockClock, status: int) -> None:
    script = Script([ArchiveReply(status=status)])
    assert (await gate(script).get(URL)).reply.status == status
    assert len(script.asked) == 1


async def test_a_transport_error_is_retried_and_a_denial_is_not(autojump_clock: trio.testing.MockClock) -> None:
    assert (await gate(Script([ArchiveRequestError("reset"), OK])).get(URL)).reply is OK
    denied = Script([ArchiveRequestError("denied", transient=False)])
    with pytest.raises(ArchiveRequestError):
        await gate(denied).get(URL)
    assert len(denied.asked) == 1


async def test_the_wait_has_a_jitter_of_a_fifth(autojump_clock: trio.testing.MockClock) -> None:
    for share, first in [(0.0, 0.8), (1.0, 1.2)]:
        script = Script([ArchiveReply(status=500), OK])
        archive = gate(script)
        archive._random = lambda share=share: share  # type: ignore[misc]
        await archive.get(URL)
        assert script.gaps == pytest.approx([first])


async def test_retry_after_is_honoured_and_pauses_everybody(autojump_clock: trio.testing.MockClock) -> None:
    script = Script([ArchiveReply(status=429, retry_after="30"), OK])
    archive = gate(script, together=2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(archive.get, URL)
        await trio.sleep(1)
        nursery.start_soon(archive.get, URL.replace("a.png", "b.png"))
    assert script.gaps[0] == pytest.approx(30)
    assert [url[-5:] for _, url in script.asked].count("b.png") == 1


async def test_a_longer_retry_after_fails_the_key(autojump_clock: trio.testing.MockClock) -> None:
    script = Script([ArchiveReply(status=503, retry_after="121")])
    assert (await gate(script).get(URL)).reply.status == 503
    assert len(script.asked) == 1


async def test_retry_after_may_be_a_date(autojump_clock: trio.testing.MockClock) -> None:
    script = Script([ArchiveReply(status=503, retry_after="Fri, 02 Jan 2026 00:00:20 GMT"), OK])
    await gate(script).get(URL)
    assert script.gaps == pytest.approx([20])


async def test_starts_are_spaced_over_all_tasks(autojump_clock: trio.testing.MockClock) -> None:
    script = Script([OK], seconds=10)
    archive = gate(script, delay=1.5, together=3)
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(archive.get, URL)
    assert all(gap >= 1.5 for gap in script.gaps)
    assert script.most == 3
    assert archive.requests == 4


@pytest.mark.parametrize(
    ("location", "final"),
    [
        ("/web/20120101000000im_/http://x.org/a.png", "20120101000000/http://x.org/a.png"),
        ("https://web.archive.org/web/20120101000000/https://www.x.org/a.png", "20120101000000/https://www.x.org/a.png"),
        ("//web.archive.org/web/2012/http://x.org:80/a.png#f", "2012/http://x.org:80/a.png"),
        ("http://archive.test/base/web/2012im_/http://x.org/a.png", "2012/http://x.org/a.png"),
    ],
)
async def test_a_redirect_to_the_same_original_is_followed(autojump_clock: trio.testing.MockClock, location: str, final: str) -> None:
    script = Script([ArchiveReply(status=302, location=location), OK])
    archive = gate(script, delay=1.5, base="http://archive.test/base/")
    answer = await archive.get(URL)
    assert answer.reply is OK
    assert answer.final_key == final
    assert script.gaps == pytest.approx([1.5])
    assert script.asked[1][1].startswith("https://web.archive.org/web/2012")
    assert archive.requests == 2


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("https://web.archive.org/web/2012im_/http://x.org/a/../b.png", True),
        ("https://web.archive.org/web/2012im_/http://x.org/../../../../save/http://x.org/", False),
        ("https://web.archive.org/web/2012im_/http://x.org/%2e%2e/..\\..\\../save/http://x.org/", False),
        ("https://web.archive.org/web/../save/http://x.org/", False),
        ("https://web.archive.org/web/x/y", False),
    ],
)
async def test_no_key_makes_us_ask_the_archive_for_anything_but_captures(url: str, asked: bool) -> None:
    script = Script([OK])
    archive = gate(script)
    if asked:
        await archive.get(url)
    else:
        with pytest.raises(ArchiveRequestError, match="not the URL of a capture"):
            await archive.get(url)
    assert archive.requests == len(script.asked) == asked


@pytest.mark.parametrize(
    "location",
    [
        None,
        "",
        "/web/2012im_/http://x.org/b.png",
        "/web/2012im_/http://y.org/a.png",
        "https://x.org/a.png",
        "https://web.archive.org/save/http://x.org/a.png",
        "//evil.example/web/2012im_/http://x.org/a.png",
        "/web/2012/",
    ],
)
async def test_any_other_redirect_is_the_answer(autojump_clock: trio.testing.MockClock, location: str | None) -> None:
    script = Script([ArchiveReply(status=302, location=location), OK])
    answer = await gate(script).get(URL)
    assert answer.reply.status == 302
    assert answer.final_key is None


async def test_a_chain_of_redirects_ends(autojump_clock: trio.testing.MockClock) -> None:
    script = Script([ArchiveReply(status=302, location=f"/web/{2000 + n}im_/http://x.org/a.png") for n in range(9)])
    answer = await gate(script).get(URL)
    assert answer.reply.status == 302
    assert len(script.asked) == 6


async def test_the_cap_counts_retries_and_hops(autojump_clock: trio.testing.MockClock) -> None:
    script = Script([ArchiveReply(status=500), ArchiveReply(status=302, location="/web/2011im_/http://x.org/a.png"), OK])
    archive = gate(script, max_requests=2)
    with pytest.raises(RequestCapError):
        await archive.get(URL)
    assert archive.requests == len(script.asked) == 2
    assert archive.capped


@pytest.mark.parametrize("base", ["", "ftp://x/", "http://", "http://x/?q", "x"])
def test_a_base_that_is_no_url_is_refused(base: str) -> None:
    with pytest.raises(InvalidPolicyError):
        gate(Script([OK]), base=base)


@pytest.mark.parametrize(("name", "value"), [("delay", -1.0), ("delay", float("nan")), ("attempts", 0), ("attempts", True)])
def test_options_of_the_gate_are_checked(name: str, value: Any) -> None:
    with pytest.raises(InvalidPolicyError) as failed:
        gate(Script([OK]), **{name: value})
    assert failed.value.field == name


def test_only_the_loopback_origin_of_the_base_is_opened() -> None:
    assert archive_egress("http://127.0.0.1:8080/x").test_loopback_origins == ("http://127.0.0.1:8080",)
    assert archive_egress("https://web.archive.org") == EgressPolicy()
    assert archive_egress("http://127.0.0.1.evil.example:80/") == EgressPolicy()


async def test_cancelling_a_waiting_request_gives_its_turn_back() -> None:
    script = Script([OK])
    archive = gate(script, delay=60)
    await archive.get(URL)
    with trio.move_on_after(0.05) as scope:
        await archive.get(URL)
    assert scope.cancelled_caught
    assert archive.requests == 1


async def test_the_guarded_seam_over_real_sockets() -> None:
    web = [Archived(timestamp="20120515093000", original="http://x.org/a.png", content_type="image/png", body=b"PNG")]
    faults = {"http://x.org/cut": [Fault(cut=True)], "http://x.org/slow": [Fault(seconds=5)], "http://x.org/large": []}
    for name, size in {"cut": 1000, "slow": 1, "large": 4096}.items():
        web.append(Archived(timestamp="20120515093000", original=f"http://x.org/{name}", content_type="image/png", body=b"y" * size))
    loopback = LoopbackArchive(web, faults=faults)
    async with open_loopback_archive(loopback) as base, EgressSession(archive_egress(base)) as session:
        fetch = GuardedArchive(session, base=base, timeout=60, max_body_bytes=1024, contact="ops@example.org")
        hasty = GuardedArchive(session, base=base, timeout=0.2)
        reply = await fetch(f"{URL}#fragment")
        assert (reply.status, reply.content_type, reply.body) == (200, "image/png", b"PNG")
        for name, transient in [("cut", True), ("slow", True), ("large", False)]:
            with pytest.raises(ArchiveRequestError) as failed:
                await (hasty if name == "slow" else fetch)(URL.replace("a.png", name))
            assert failed.value.transient is transient, name
        for foreign in ("http://127.0.0.1:1/web/2012/http://x.org/", "https://web.archive.org.127.0.0.1.example:1/"):
            with pytest.raises(ArchiveRequestError) as denied:
                await fetch(foreign)
            assert not denied.value.transient
    assert "#" not in loopback.log[0].target
    assert "ops@example.org" in loopback.log[0].user_agent
