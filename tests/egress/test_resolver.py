"""Look-ups against a real name server on loopback that rebinds, delays, truncates, loops and lies; the cache; cancellation."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import dns.rcode
import pytest
import trio
import trio.testing

from forage.egress.answers import DnsAnswers
from forage.egress.evaluate import evaluate_url
from forage.egress.policy import EgressPolicy
from forage.egress.resolver import CachingResolver, DnsResolver
from forage.egress.session import EgressSession
from forage.errors import EgressCode, EgressDeniedError, EgressError, EgressUnreachableError, InvalidPolicyError
from tests.support.dialer import RecordingDialer
from tests.support.dns_server import (
    Answer,
    DnsServer,
    Question,
    add_records,
    aliases,
    delayed,
    dropped_on_tcp,
    forged_first,
    garbage,
    in_turn,
    new_reply,
    only,
    open_dns_server,
    rcode,
    records,
    silent,
    truncated,
)
from tests.support.stepping import cancel_at_every_step

SERVFAIL = rcode(dns.rcode.SERVFAIL)
PUBLIC, PUBLIC_V6 = "93.184.216.34", "2606:4700:4700::1111"


@pytest.fixture
async def server() -> AsyncIterator[DnsServer]:
    async with open_dns_server() as running:
        yield running


def resolver(*servers: DnsServer, attempt_seconds: float = 0.15) -> DnsResolver:
    return DnsResolver([server.endpoint for server in servers], attempt_seconds=attempt_seconds)


async def failure(resolver: DnsResolver | CachingResolver, host: str = "a.example") -> EgressUnreachableError:
    with pytest.raises(EgressUnreachableError) as caught:
        await resolver.resolve(host)
    assert caught.value.code is EgressCode.DNS_FAILURE
    assert caught.value.host == host
    return caught.value


# Answers


async def test_a_and_aaaa_are_asked_together_and_kept_with_their_facts(server: DnsServer) -> None:
    server.zone["a.example"] = records(PUBLIC, "93.184.216.35", PUBLIC_V6, ttl=42)
    found = await resolver(server).resolve("a.example")
    assert sorted(found.addresses) == sorted([PUBLIC, "93.184.216.35", PUBLIC_V6])
    assert (found.ttl, found.aliases, found.server) == (42.0, (), "127.0.0.1")
    assert sorted(server.asked("a.example")) == [("A", "udp"), ("AAAA", "udp")]


async def test_the_two_questions_run_side_by_side(server: DnsServer) -> None:
    server.zone["a.example"] = delayed(0.3, records(PUBLIC, PUBLIC_V6))
    with trio.fail_after(0.55):
        assert len((await resolver(server, attempt_seconds=2).resolve("a.example")).addresses) == 2


@pytest.mark.parametrize("address", [PUBLIC, PUBLIC_V6])
async def test_one_family_is_enough(server: DnsServer, address: str) -> None:
    server.zone["a.example"] = records(address)
    assert (await resolver(server).resolve("a.example")).addresses == (address,)


async def test_alias_chain_is_shown_and_its_least_ttl_counts(server: DnsServer) -> None:
    server.zone["a.example"] = aliases("b.example", "C.Example", addresses=[PUBLIC, PUBLIC_V6], ttl=7)
    found = await resolver(server).resolve("a.example")
    assert found.aliases == ("b.example", "c.example")
    assert sorted(found.addresses) == sorted([PUBLIC, PUBLIC_V6])
    assert found.ttl == 7.0


async def test_the_name_is_absolute_no_search_domain_is_tried(server: DnsServer) -> None:
    server.zone["a.example.corp.example"] = records(PUBLIC)
    await failure(resolver(server))
    assert {question.name for question in server.questions} == {"a.example"}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (rcode(dns.rcode.NXDOMAIN), "does not exist"),
        (rcode(dns.rcode.SERVFAIL), "SERVFAIL"),
        (rcode(dns.rcode.REFUSED), "REFUSED"),
        (rcode(dns.rcode.FORMERR), "FORMERR"),
        (rcode(dns.rcode.NOTIMP), "NOTIMP"),
        (rcode(dns.rcode.NOERROR), "no address"),
        (records(), "no address"),
        (aliases("b.example"), "no address"),
        (aliases("b.example", "a.example"), "do not end"),
        (aliases("a.example"), "do not end"),
        (aliases(*(f"n{n}.example" for n in range(17)), addresses=[PUBLIC]), "do not end"),
        (silent, "no name server answered"),
        (garbage(b""), "no name server answered"),
        (garbage(b"\x00" * 11), "no name server answered"),
        (garbage(b"\xff" * 512), "no name server answered"),
        (dropped_on_tcp(), "can be reached"),
        (dropped_on_tcp(b"\x01"), "can be reached"),
        (truncated(garbage(b"\xff" * 40)), "can be reached"),
    ],
)
async def test_look_up_without_a_good_answer_is_a_dns_failure(server: DnsServer, answer: Answer, why: str) -> None:
    server.zone["a.example"] = answer
    assert why in str(await failure(resolver(server, attempt_seconds=0.05)))


async def test_sixteen_aliases_are_followed(server: DnsServer) -> None:
    server.zone["a.example"] = aliases(*(f"n{n}.example" for n in range(15)), addresses=[PUBLIC])
    assert (await resolver(server).resolve("a.example")).addresses == (PUBLIC,)


@pytest.mark.parametrize("wrong", ["id", "name", "type", "flag"])
async def test_forged_answer_is_ignored_and_the_right_one_awaited(server: DnsServer, wrong: str) -> None:
    server.zone["a.example"] = forged_first(["10.0.0.1", "fd00::1"], records(PUBLIC), wrong=wrong)
    assert (await resolver(server).resolve("a.example")).addresses == (PUBLIC,)


async def test_answer_from_another_sender_is_not_seen(server: DnsServer) -> None:
    server.zone["a.example"] = silent
    async with open_dns_server() as other:
        other.zone["a.example"] = records("10.0.0.1")
        await failure(resolver(server, attempt_seconds=0.05))
        assert not other.questions


async def test_records_of_other_names_in_the_answer_are_left_out(server: DnsServer) -> None:
    def padded(question: Question) -> list[bytes]:
        reply = new_reply(question)
        add_records(reply, "other.example", 60, "A", ["10.0.0.1"])
        add_records(reply, question.name, 60, question.kind, [PUBLIC] if question.kind == "A" else [PUBLIC_V6])
        return [reply.to_wire()]

    server.zone["a.example"] = padded
    assert set((await resolver(server).resolve("a.example")).addresses) == {PUBLIC, PUBLIC_V6}


# Truncation, failover, partial failure


async def test_truncated_answer_is_asked_again_over_tcp(server: DnsServer) -> None:
    many = [f"93.184.{n >> 8}.{n & 255}" for n in range(1000)]
    server.zone["a.example"] = truncated(records(*many))
    assert len((await resolver(server, attempt_seconds=2).resolve("a.example")).addresses) == 1000
    assert ("A", "tcp") in server.asked("a.example")


async def test_more_addresses_than_the_bound_are_refused(server: DnsServer) -> None:
    v4 = [f"93.{n >> 8}.{n & 255}.1" for n in range(2100)]
    v6 = [f"2606:4700::{n:x}" for n in range(2100)]
    server.zone["a.example"] = truncated(records(*v4, *v6))
    assert "more than 4096" in str(await failure(resolver(server, attempt_seconds=5)))


@pytest.mark.parametrize("first", [silent, rcode(dns.rcode.SERVFAIL), rcode(dns.rcode.REFUSED), garbage(b"junk"), dropped_on_tcp()])
async def test_next_server_is_asked_when_one_fails(server: DnsServer, first: Answer) -> None:
    async with open_dns_server() as second:
        server.zone["a.example"] = first
        second.zone["a.example"] = records(PUBLIC)
        assert (await resolver(server, second).resolve("a.example")).addresses == (PUBLIC,)


async def test_server_that_answered_is_asked_first_from_then_on(server: DnsServer) -> None:
    async with open_dns_server() as second:
        server.zone["a.example"] = silent
        second.zone["a.example"] = records(PUBLIC)
        both = resolver(server, second)
        await both.resolve("a.example")
        asked = len(server.questions)
        await both.resolve("a.example")
        assert len(server.questions) == asked


async def test_server_that_is_not_there_fails_at_once() -> None:
    async with open_dns_server() as gone:
        endpoint = gone.endpoint
    with trio.fail_after(2):
        assert "can be reached" in str(await failure(DnsResolver([endpoint], attempt_seconds=60)))


async def test_name_that_does_not_exist_is_final(server: DnsServer) -> None:
    async with open_dns_server() as second:
        second.zone["a.example"] = records(PUBLIC)
        await failure(resolver(server, second))
        assert not second.questions


@pytest.mark.parametrize("broken", [rcode(dns.rcode.SERVFAIL), rcode(dns.rcode.NXDOMAIN), silent])
async def test_broken_aaaa_does_not_block_a_name_with_an_address(server: DnsServer, broken: Answer) -> None:
    server.zone["a.example"] = only("A", records(PUBLIC), broken)
    assert (await resolver(server, attempt_seconds=0.05).resolve("a.example")).addresses == (PUBLIC,)


async def test_alias_loop_in_one_family_refuses_the_other_too(server: DnsServer) -> None:
    server.zone["a.example"] = only("A", records(PUBLIC), aliases("a.example"))
    await failure(resolver(server))


async def test_lost_question_is_asked_again(server: DnsServer) -> None:
    server.zone["a.example"] = in_turn(silent, silent, records(PUBLIC))
    assert (await resolver(server, attempt_seconds=0.05).resolve("a.example")).addresses == (PUBLIC,)


@pytest.mark.parametrize(
    "host", ["", ".", "a..example", "a\\.example", "é.example", "\ud800", "x" * 64 + ".example", ".".join(["x" * 60] * 5)]
)
async def test_name_that_dns_cannot_carry_is_a_failure_without_a_question(server: DnsServer, host: str) -> None:
    await failure(resolver(server), host)
    assert not server.questions


async def test_server_may_be_reached_over_ipv6() -> None:
    async with open_dns_server("::1") as server:
        server.zone["a.example"] = truncated(records(PUBLIC))
        found = await resolver(server, attempt_seconds=2).resolve("a.example")
        assert (found.addresses, found.server) == ((PUBLIC,), "::1")


# Where servers come from


async def test_name_servers_come_from_resolv_conf_and_nothing_else_of_it(tmp_path: Path) -> None:
    conf = tmp_path / "resolv.conf"
    conf.write_text(
        "search corp.example\n# nameserver 10.0.0.1\nnameserver 127.0.0.53\n nameserver ::1\nnameserver nonsense\noptions ndots:5\n"
    )
    reading = DnsResolver(resolv_conf=conf)
    assert await reading._servers() == (("127.0.0.53", 53), ("::1", 53))


async def test_resolv_conf_is_read_again_after_a_minute(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    conf = tmp_path / "resolv.conf"
    conf.write_text("nameserver 127.0.0.1\n")
    reading = DnsResolver(resolv_conf=conf)
    assert await reading._servers() == (("127.0.0.1", 53),)
    conf.write_text("nameserver 127.0.0.2\n")
    assert await reading._servers() == (("127.0.0.1", 53),)
    autojump_clock.jump(61)
    assert await reading._servers() == (("127.0.0.2", 53),)


@pytest.mark.parametrize("text", ["", "search a.example\n", None])
async def test_machine_without_name_servers_is_a_failure(tmp_path: Path, text: str | None) -> None:
    conf = tmp_path / "resolv.conf"
    if text is not None:
        conf.write_text(text)
    assert "configured" in str(await failure(DnsResolver(resolv_conf=conf)))


async def test_environment_changes_nothing(server: DnsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOCALDOMAIN", "RES_OPTIONS", "HOSTALIASES", "RESOLV_HOST_CONF", "NSS_WRAPPER_HOSTS"):
        monkeypatch.setenv(name, "corp.example")
    server.zone["a.example"] = records(PUBLIC)
    assert (await resolver(server).resolve("a.example")).addresses == (PUBLIC,)
    assert os.environ["LOCALDOMAIN"] == "corp.example"


async def test_hosts_file_is_read_only_when_asked_for(server: DnsServer, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost a.example # loopback\n::1 A.Example.\nnonsense b.example\n")
    given = DnsResolver([server.endpoint], hosts_file=hosts, attempt_seconds=0.05)
    found = await given.resolve("a.example")
    assert (found.addresses, found.ttl, found.server) == (("127.0.0.1", "::1"), 0.0, "hosts file")
    assert not server.questions
    await failure(given, "b.example")
    await failure(resolver(server))


@pytest.mark.parametrize("entry", ["dns.example", "", ("127.0.0.1", 0), ("127.0.0.1", 65536), "127.1"])
def test_server_that_is_no_address_is_refused(entry: str | tuple[str, int]) -> None:
    with pytest.raises(InvalidPolicyError):
        DnsResolver([entry])


# Deadline, cache and the fail-closed boundary


class Scripted:
    """Answers from a list of what to do; the last one repeats."""

    def __init__(self, *script: DnsAnswers | BaseException | float | object) -> None:
        self._script = list(script)
        self.asked = 0

    async def resolve(self, host: str) -> DnsAnswers:
        await trio.lowlevel.checkpoint()
        step = self._script[min(self.asked, len(self._script) - 1)]
        self.asked += 1
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, float):
            await trio.sleep(step)
        return step  # type: ignore[return-value]  # also what no resolver should give


def good(ttl: float = 60.0, *addresses: str) -> DnsAnswers:
    return DnsAnswers(addresses=addresses or (PUBLIC,), ttl=ttl)


@pytest.mark.parametrize(("ttl", "cap", "kept"), [(30.0, 60.0, 30.0), (3600.0, 60.0, 60.0), (3600.0, 5.0, 5.0)])
async def test_answer_is_kept_for_its_ttl_and_no_longer_than_the_cap(
    autojump_clock: trio.testing.MockClock, ttl: float, cap: float, kept: float
) -> None:
    script = Scripted(good(ttl))
    caching = CachingResolver(script, EgressPolicy(max_answer_ttl=cap))
    await caching.resolve("a.example")
    autojump_clock.jump(kept - 0.1)
    await caching.resolve("a.example")
    assert script.asked == 1
    autojump_clock.jump(0.2)
    await caching.resolve("a.example")
    assert script.asked == 2


@pytest.mark.parametrize(("ttl", "cap"), [(0.0, 60.0), (60.0, 0.0), (-5.0, 60.0)])
async def test_ttl_of_zero_keeps_nothing(ttl: float, cap: float) -> None:
    script = Scripted(good(ttl))
    caching = CachingResolver(script, EgressPolicy(max_answer_ttl=cap))
    for _ in range(3):
        await caching.resolve("a.example")
    assert script.asked == 3


async def test_failures_are_not_kept() -> None:
    script = Scripted(OSError(), good())
    caching = CachingResolver(script, EgressPolicy())
    await failure(caching)
    assert (await caching.resolve("a.example")).addresses == (PUBLIC,)


async def test_cache_is_bounded_and_forgets_the_least_recently_used() -> None:
    script = Scripted(good())
    caching = CachingResolver(script, EgressPolicy())
    for n in range(1024):
        await caching.resolve(f"n{n}.example")
    await caching.resolve("n0.example")
    await caching.resolve("new.example")
    asked = script.asked
    await caching.resolve("n0.example")
    assert script.asked == asked
    await caching.resolve("n1.example")
    assert script.asked == asked + 1


async def test_answers_of_many_addresses_are_not_kept() -> None:
    script = Scripted(good(60.0, *(f"93.184.216.{n}" for n in range(65))))
    caching = CachingResolver(script, EgressPolicy())
    for _ in range(2):
        await caching.resolve("a.example")
    assert script.asked == 2


async def test_deadline_covers_the_whole_look_up(autojump_clock: trio.testing.MockClock) -> None:
    caching = CachingResolver(Scripted(10_000.0), EgressPolicy(resolve_seconds=7))
    begun = trio.current_time()
    assert "within 7 s" in str(await failure(caching))
    assert trio.current_time() - begun == pytest.approx(7)


@pytest.mark.parametrize(
    "outcome", [OSError("x"), ValueError("x"), KeyError("x"), trio.TooSlowError(), ExceptionGroup("x", [OSError()]), None, [PUBLIC], PUBLIC]
)
async def test_whatever_a_resolver_does_is_a_dns_failure(outcome: object) -> None:
    await failure(CachingResolver(Scripted(outcome), EgressPolicy()))


@pytest.mark.parametrize(
    "wrong",
    [
        {"ttl": "60"},
        {"ttl": None},
        {"ttl": True},
        {"ttl": float("nan")},
        {"ttl": float("inf")},
        {"ttl": 10**400},
        {"ttl": [60]},
        {"server": 5},
    ],
    ids=lambda wrong: str(wrong)[:20],
)
async def test_facts_of_a_resolver_that_cannot_be_read_are_a_dns_failure_in_every_use(wrong: dict[str, Any]) -> None:
    answers = DnsAnswers(**{"addresses": (PUBLIC,), "ttl": 60.0, **wrong})
    await failure(CachingResolver(Scripted(answers), EgressPolicy()))
    with pytest.raises(EgressUnreachableError) as caught:
        await evaluate_url("http://a.example/", resolver=Scripted(answers))
    assert caught.value.code is EgressCode.DNS_FAILURE
    async with EgressSession(resolver=Scripted(answers), dialer=RecordingDialer()) as session:
        with pytest.raises(EgressUnreachableError) as caught:
            await session.exchange("http://a.example/")
        assert caught.value.code is EgressCode.DNS_FAILURE


@pytest.mark.parametrize(
    "wrong", [{"addresses": (8,)}, {"addresses": (None, PUBLIC)}, {"aliases": (5,)}, {"addresses": (b"8.8.8.8",)}], ids=str
)
async def test_answers_of_a_resolver_that_are_no_text_are_refused(wrong: dict[str, Any]) -> None:
    answers = DnsAnswers(**{"addresses": (PUBLIC,), "ttl": 60.0, **wrong})
    for _ in range(2):
        with pytest.raises(EgressDeniedError):
            await evaluate_url("http://a.example/", resolver=Scripted(answers))


async def test_denial_of_a_resolver_passes_as_it_is() -> None:
    denial = EgressDeniedError(EgressCode.DENIED_ADDRESS, "a.example", block="x")
    with pytest.raises(EgressDeniedError) as caught:
        await CachingResolver(Scripted(denial), EgressPolicy()).resolve("a.example")
    assert caught.value is denial


async def test_cancellation_from_outside_is_no_failure() -> None:
    with trio.move_on_after(0.01) as scope:
        await CachingResolver(Scripted(10.0), EgressPolicy()).resolve("a.example")
    assert scope.cancelled_caught


# evaluate_url


async def test_evaluate_shows_what_a_request_would_dial(server: DnsServer) -> None:
    server.zone["a.example"] = records(PUBLIC, PUBLIC_V6)
    target = await evaluate_url("http://A.example./x#y", resolver=resolver(server))
    assert target.url == "http://a.example/x"
    assert {address.address for address in target.addresses} == {PUBLIC, PUBLIC_V6}
    assert target.answers is not None
    assert target.answers.server == "127.0.0.1"


async def test_literal_is_never_looked_up() -> None:
    script = Scripted(good())
    target = await evaluate_url("http://8.8.8.8/", resolver=script)
    assert [address.address for address in target.addresses] == ["8.8.8.8"]
    assert script.asked == 0


@pytest.mark.parametrize(
    "url", ["http://localhost/", "http://10.0.0.1/", "http://a.example:99/", "ftp://a.example/", "http://u@a.example/"]
)
async def test_denial_whose_reason_is_in_the_url_looks_nothing_up(url: str) -> None:
    script = Scripted(good())
    with pytest.raises(EgressDeniedError):
        await evaluate_url(url, resolver=script)
    assert script.asked == 0


@pytest.mark.parametrize("address", ["10.0.0.1", "169.254.169.254", "::1", "fd00::1", "::ffff:127.0.0.1"])
async def test_one_private_answer_refuses_the_name(server: DnsServer, address: str) -> None:
    server.zone["a.example"] = records(PUBLIC, PUBLIC_V6, address)
    with pytest.raises(EgressDeniedError) as caught:
        await evaluate_url("http://a.example/", resolver=resolver(server))
    assert (caught.value.code, caught.value.host) == (EgressCode.DENIED_ADDRESS, "a.example")


async def test_alias_with_a_refused_name_refuses_where_it_is_shown(server: DnsServer) -> None:
    server.zone["a.example"] = aliases("metadata.google.internal", addresses=[PUBLIC])
    with pytest.raises(EgressDeniedError) as caught:
        await evaluate_url("http://a.example/", resolver=resolver(server))
    assert (caught.value.code, caught.value.rule) == (EgressCode.DENIED_HOST, "D9")


async def test_name_that_rebinds_is_refused_when_it_does(server: DnsServer) -> None:
    server.zone["a.example"] = in_turn(records(PUBLIC), records("127.0.0.1"))
    asking = resolver(server)
    assert (await evaluate_url("http://a.example/", resolver=asking)).addresses[0].address == PUBLIC
    with pytest.raises(EgressDeniedError):
        await evaluate_url("http://a.example/", resolver=asking)


async def test_answers_of_a_hosts_file_are_judged_too(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 a.example\n")
    with pytest.raises(EgressDeniedError):
        await evaluate_url("http://a.example/", resolver=DnsResolver(hosts_file=hosts))


# Cancellation


@pytest.mark.parametrize(
    "answer",
    [
        records(PUBLIC, PUBLIC_V6),
        truncated(records(PUBLIC, PUBLIC_V6)),
        forged_first(["10.0.0.1"], records(PUBLIC), wrong="id"),
        SERVFAIL,
    ],
    ids=["udp", "tcp", "forged", "servfail"],
)
async def test_look_up_cancelled_at_any_step_leaves_nothing_open(server: DnsServer, answer: Answer) -> None:
    server.zone["a.example"] = answer
    asking = CachingResolver(resolver(server, attempt_seconds=5), EgressPolicy(max_answer_ttl=0))
    pauses = answer is SERVFAIL  # each run then takes two real pauses

    async def look_up() -> None:
        try:
            await asking.resolve("a.example")
        except EgressError:
            return

    assert await cancel_at_every_step(look_up, every=7 if pauses else 1) > 5


async def test_silent_server_can_be_left_at_once(server: DnsServer) -> None:
    server.zone["a.example"] = silent
    with trio.move_on_after(0.1) as scope:
        await resolver(server, attempt_seconds=60).resolve("a.example")
    assert scope.cancelled_caught
