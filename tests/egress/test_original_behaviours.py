"""What the first implementation of this guard promised its users, by name: whole stories through `guarded_client`."""

from __future__ import annotations

import logging
import traceback

import pytest

from forage.egress import EgressPolicy, evaluate_url, guarded_client
from forage.errors import EgressCode, EgressDeniedError, EgressError
from tests.support.corpus_network import CorpusNetwork, SuccessiveAnswers, open_corpus_network

PUBLIC, SECOND, PRIVATE = "93.184.216.34", "93.184.216.35", "10.0.0.1"
NO_CACHE = EgressPolicy(max_answer_ttl=0.0)


def moved(location: str) -> dict[str, object]:
    return {"status": 302, "headers": [["Location", location]]}


async def get(network: CorpusNetwork, url: str, policy: EgressPolicy = NO_CACHE) -> str:
    """The status of the answer as text, or the code of the refusal."""
    async with guarded_client(policy, resolver=network.resolver, dialer=network.dialer) as client:
        try:
            return str((await client.get(url)).status_code)
        except EgressError as exc:
            return exc.code.value


@pytest.mark.parametrize("answers", [[PUBLIC, PRIVATE], [PRIVATE, PUBLIC], [PUBLIC, "::1"], [*[PUBLIC] * 99, "169.254.169.254"]])
async def test_mixed_answers_are_refused_before_connecting(answers: list[str]) -> None:
    async with open_corpus_network({"site.test": [answers]}, [], cert_names=()) as network:
        assert await get(network, "http://site.test/") == "DENIED_ADDRESS"
        assert network.dialer.dialled == []


async def test_each_hop_is_resolved_and_pinned_again() -> None:
    """The name moves between two hops: the second one goes to the new address, and is refused once that is inside."""
    turns = {"site.test": [[PUBLIC], [SECOND], [PRIVATE]]}
    async with open_corpus_network(turns, [moved("/two"), moved("/three")], cert_names=()) as network:
        assert await get(network, "http://site.test/one") == "DENIED_ADDRESS"
        assert network.resolver.asked == ["site.test"] * 3
        assert [(request.address, request.target) for request in network.requests] == [(PUBLIC, "/one"), (SECOND, "/two")]
        assert network.dialer.dialled == [(PUBLIC, 80), (SECOND, 80)]


async def test_each_hop_dials_what_its_own_look_up_judged_not_what_a_later_one_says() -> None:
    """Rebinding between check and use: there is no second look-up that an attacker could answer."""
    async with open_corpus_network({"site.test": [[PUBLIC], [PRIVATE]]}, [], cert_names=()) as network:
        assert await get(network, "http://site.test/") == "200"
        assert network.resolver.asked == ["site.test"]
        assert network.dialer.dialled == [(PUBLIC, 80)]


@pytest.mark.parametrize("location", ["http://other.test/", "//other.test/", "http://sub.site.test/", "http://site.test:8080/"])
async def test_another_host_is_refused_before_its_look_up(location: str) -> None:
    names = {"site.test": [[PUBLIC]], "other.test": [[SECOND]], "sub.site.test": [[SECOND]]}
    async with open_corpus_network(names, [moved(location)], cert_names=()) as network:
        assert await get(network, "http://site.test/", EgressPolicy(max_answer_ttl=0.0, ports=(8080,))) == "REDIRECT_CROSS_HOST"
        assert network.resolver.asked == ["site.test"]
        assert network.dialer.dialled == [(PUBLIC, 80)]


SECRETS = ("sesame", "hunter2", "/private/path", "bearer-of-news")


@pytest.mark.parametrize(
    "url",
    [
        "http://hunter2:sesame@site.test/private/path?key=sesame",
        "http://localhost/private/path?key=sesame#hunter2",
        "http://inside.test/private/path?key=sesame",
        "http://absent.test/private/path?key=sesame",
        "http://site.test:99/private/path?key=sesame",
        "http://site.test/private/path?key=sesame",
        "ftp://site.test/private/path?key=sesame",
    ],
)
async def test_no_secret_is_in_an_error(url: str, caplog: pytest.LogCaptureFixture) -> None:
    names = {"site.test": [[PUBLIC]], "inside.test": [[PRIVATE]]}
    caplog.set_level(logging.DEBUG)
    async with (
        open_corpus_network(names, [moved("http://other.test/?key=sesame")], cert_names=()) as network,
        guarded_client(NO_CACHE, resolver=network.resolver, dialer=network.dialer) as client,
    ):
        with pytest.raises(EgressError) as caught:
            await client.get(url, headers={"Authorization": "bearer-of-news"})
    exc = caught.value
    shown = f"{exc} {exc!r} {exc.host} {exc.block} {exc.rule} {exc.detail} {exc.target} {caplog.text}"
    chain = "".join(line for link in (exc, exc.__cause__) if link for line in traceback.format_exception_only(link))
    assert [secret for secret in SECRETS if secret in shown + chain] == []


async def test_a_literal_is_never_looked_up_and_a_denial_of_the_url_neither() -> None:
    resolver = SuccessiveAnswers({})
    assert (await evaluate_url(f"http://{PUBLIC}/", resolver=resolver)).addresses[0].address == PUBLIC
    for url in ("http://127.0.0.1/", "http://localhost/", "http://site.test:99/", "ftp://site.test/", "http://a@site.test/"):
        with pytest.raises(EgressDeniedError):
            await evaluate_url(url, resolver=resolver)
    assert resolver.asked == []


async def test_every_denial_has_the_original_code() -> None:
    """The codes are stored by users of both implementations."""
    assert {code.value for code in EgressCode} >= {
        *("INVALID_URL", "INVALID_SCHEME", "CREDENTIALS", "INVALID_HOST", "DENIED_HOST", "INVALID_PORT", "DNS_FAILURE", "DENIED_ADDRESS"),
        *("REDIRECT_INVALID", "REDIRECT_LIMIT", "REDIRECT_LOOP", "REDIRECT_CROSS_HOST", "REDIRECT_DOWNGRADE", "CONNECT_FAILED"),
    }


async def test_opting_out_of_the_guard_is_logged_once_a_session(caplog: pytest.LogCaptureFixture) -> None:
    async with guarded_client(EgressPolicy(guarded=False)) as client:
        assert client.policy.guarded is False
    async with guarded_client():
        pass
    assert [(record.name, record.levelname) for record in caplog.records] == [("forage.egress", "WARNING")]
    assert "guard is off" in caplog.text
