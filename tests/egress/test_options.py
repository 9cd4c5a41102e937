"""Whatever of the wrong kind a caller hands in is one typed error that names the argument, before anything is looked up or dialled."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import httpx
import httpx2
import pytest

from forage.egress import (
    AddressRules,
    CachingResolver,
    DnsResolver,
    EgressPolicy,
    EgressSession,
    GuardedTransport,
    PinnedConnector,
    ProxyLimits,
    ProxyRules,
    evaluate_url,
    guarded_client,
    only,
    open_proxy,
)
from forage.egress.seam import bind
from forage.errors import InvalidPolicyError
from tests.support.corpus_network import SuccessiveAnswers
from tests.support.dialer import RecordingDialer


class Stranger:
    """An object of a class that nobody here knows."""

    def __repr__(self) -> str:
        return "stranger"


NAMES = {"a.example": [["93.184.216.34"]]}
WRONG: list[Any] = [5, "x", b"x", [1], [None], {"a": 1}, Stranger(), float("nan"), True, -1, 10**30]
PARTS = ("policy", "resolver", "dialer", "wire")


@pytest.fixture(params=[httpx, httpx2], ids=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> ModuleType:
    module: ModuleType = request.param
    return module


def made(library: ModuleType) -> tuple[Callable[..., Any], Callable[..., Any]]:
    if library is httpx:
        return GuardedTransport, guarded_client
    transport, client = bind(library)
    return transport, client


def rows(field: str, *values: Any) -> list[tuple[str, Any]]:
    return [(field, value) for value in values]


def refused(field: str, make: Callable[[], object]) -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        make()
    assert caught.value.field == field


@pytest.mark.parametrize("value", [5, None, Stranger(), float("nan"), True, -1, "10.0.0.0/8", b"x", [5], [None], [["a"]]], ids=repr)
@pytest.mark.parametrize("field", ["allow_networks", "nat64_prefixes"])
def test_networks_that_are_no_list_of_texts(field: str, value: Any) -> None:
    refused(field, lambda: EgressPolicy(**{field: value}))
    refused(field, lambda: AddressRules(**{field: value}))


@pytest.mark.parametrize("value", WRONG, ids=repr)
@pytest.mark.parametrize("field", PARTS)
def test_parts_of_a_session(field: str, value: Any) -> None:
    refused(field, lambda: EgressSession(**{field: value}))


@pytest.mark.parametrize("value", WRONG, ids=repr)
@pytest.mark.parametrize("field", ["policy", "resolver", "dialer"])
def test_parts_of_clients_and_transports(field: str, value: Any, library: ModuleType) -> None:
    for make in made(library):
        refused(field, lambda make=make: make(**{field: value}))  # type: ignore[misc]  # mypy has no type for it


@pytest.mark.parametrize("value", ["x", -1, 1.5, None, True, float("nan"), [1]], ids=repr)
def test_limits_of_clients_and_transports(value: Any, library: ModuleType) -> None:
    for make in made(library):
        refused("max_body_bytes", lambda make=make: make(max_body_bytes=value))  # type: ignore[misc]


@pytest.mark.parametrize("value", ["x", -1, float("nan"), True, [1], Stranger(), ("a", 1, 1, 1)], ids=repr)
async def test_timeouts_of_a_client_however_they_are_given(value: Any, library: ModuleType) -> None:
    client = made(library)[1]
    refused("timeout", lambda: client(timeout=value))
    dialer = RecordingDialer()
    async with client(resolver=SuccessiveAnswers(NAMES), dialer=dialer) as opened:
        with pytest.raises(InvalidPolicyError) as caught:
            await opened.get("http://a.example/", timeout=value)
        assert caught.value.field == "timeout"
        with pytest.raises(InvalidPolicyError):
            opened.timeout = value
        opened.timeout = 7.0
        assert opened.timeout.read == 7.0
    assert dialer.dialled == []


@pytest.mark.parametrize("value", [5, [1], ["a"], Stranger(), {1: 2}], ids=repr)
async def test_headers_of_a_client_and_of_a_request(value: Any, library: ModuleType) -> None:
    client = made(library)[1]
    refused("headers", lambda: client(headers=value))
    async with client() as opened:
        with pytest.raises(InvalidPolicyError) as caught:
            await opened.get("http://a.example/", headers=value)
        assert caught.value.field == "headers"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *rows("max_body_bytes", "x", -1, 1.5, True),
        *rows("headers", 5, [1], [("a", 5)], [(5, "a")], [("a", "b", "c")], [("a", [])]),
        *rows("method", 5, None, b"GET"),
        *rows("body", 5, None, "text", [1]),
        *rows("on_bytes", 5),
    ],
)
async def test_options_of_an_exchange(field: str, value: Any) -> None:
    dialer = RecordingDialer()
    async with EgressSession(resolver=SuccessiveAnswers(NAMES), dialer=dialer) as session:
        with pytest.raises(InvalidPolicyError) as caught:
            await session.exchange("http://a.example/", **{field: value})
    assert caught.value.field == field
    assert dialer.dialled == []


async def test_parts_of_a_judgement() -> None:
    for field in ("policy", "resolver"):
        for value in (5, "", "x", Stranger()):
            options: dict[str, Any] = {field: value}
            with pytest.raises(InvalidPolicyError) as caught:
                await evaluate_url("http://93.184.216.34/", **options)
            assert caught.value.field == field


WRONG_ANYWHERE: list[Any] = [5, "x", Stranger()]


@pytest.mark.parametrize("value", WRONG_ANYWHERE, ids=repr)
def test_parts_of_connectors_and_resolvers(value: Any) -> None:
    refused("policy", lambda: PinnedConnector(value))
    refused("dialer", lambda: PinnedConnector(EgressPolicy(), value))
    refused("policy", lambda: CachingResolver(SuccessiveAnswers(NAMES), value))
    refused("resolver", lambda: CachingResolver(value, EgressPolicy()))
    refused("servers", lambda: DnsResolver(value))
    refused("servers", lambda: DnsResolver([value]))
    refused("attempt_seconds", lambda: DnsResolver(attempt_seconds=float("nan")))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *rows("policy", 5, "", "x", []),
        *rows("resolver", 5, "x"),
        *rows("dialer", 5, "x"),
        *rows("limits", 5, "x", [], 0),
        *rows("refuse_hosts", 5, None, "abc", b"x", [5], [None]),
        *rows("on_event", 5, "x"),
        *rows("host", 5, None, b"127.0.0.1", 2130706433),
        *rows("port", "x", None, 1.5, True, -1, 65_536),
    ],
)
async def test_options_of_a_proxy(field: str, value: Any) -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        async with open_proxy(**{field: value}):
            raise AssertionError("it was opened")
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *rows("policy", 5, None, "x"),
        *rows("origins", 5, "http://127.0.0.1:80801", [5]),
        *rows("refuse_hosts", 5, None, "abc", [5]),
    ],
)
def test_options_of_proxy_rules(field: str, value: Any) -> None:
    refused(field, lambda: ProxyRules(**{field: value}))


def test_what_is_less_than_proxy_rules() -> None:
    refused("test_loopback_origins", lambda: only(5))  # type: ignore[arg-type]
    refused("refuse_hosts", lambda: only("http://127.0.0.1:8080", refuse_hosts="abc"))
    refused("connections", lambda: ProxyLimits(connections="x"))  # type: ignore[arg-type]
