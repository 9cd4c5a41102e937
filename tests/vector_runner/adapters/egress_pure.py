"""Vectors of the deciding half of the guard: one address, and one URL with its answers."""

from __future__ import annotations

from typing import Any

from forage.egress import DnsAnswers, EgressPolicy, classify_address, evaluate_url
from forage.egress.addresses import parse_address
from forage.errors import EgressDeniedError, EgressError, InvalidPolicyError
from tests.vector_runner.model import Case, adapter, differs


def _differs_in_address(got: str, expected: str) -> str | None:
    """Addresses are compared by value: the guard dials the canonical text, the vectors repeat the text they were given."""
    return differs("address", got if parse_address(got) is None else parse_address(got), parse_address(expected))


@adapter("snapshots/addresses.json")
def check_address(case: Case) -> str | None:
    safe_host, code, result = case.get("safeHost"), case.get("code"), case.get("result")
    try:
        found = classify_address(case["address"], safe_host)
    except EgressDeniedError as exc:
        case.plain("message")  # wording is not the contract
        return differs("code", exc.code.value, code) or differs("host", exc.host if safe_host else None, safe_host)
    if result is None:
        return f"allowed, expected {code}"
    case.plain("message")
    return differs("family", found.family, result["family"]) or _differs_in_address(found.address, result["address"])


class _Answers:
    """The resolver of a case; ``asked`` is the host that it answered for."""

    def __init__(self, answers: Any) -> None:
        self._answers = answers
        self.asked: str | None = None

    async def resolve(self, host: str) -> DnsAnswers:
        if self._answers == "throw":
            raise OSError("the case throws")
        self.asked = host
        return DnsAnswers(addresses=tuple(answer["address"] for answer in self._answers))


@adapter("snapshots/egress-urls.json")
async def check_url(case: Case) -> str | None:
    resolver = _Answers(case.plain("answers"))
    line = _outcome_differs(case["expect"], await _evaluate(case, resolver))
    return line or differs("resolver asked", resolver.asked, case["resolverAsked"])


async def _evaluate(case: Case, resolver: _Answers) -> dict[str, Any]:
    url = case["url"]
    try:
        policy = EgressPolicy(test_loopback_origins=tuple(case.plain("testOnlyAllowedLoopbackOrigins") or ()))
        target = await evaluate_url(url, policy, resolver=resolver)
    except InvalidPolicyError:
        return {"error": "TypeError"}  # what the original raises for a bad option
    except EgressError as exc:
        return {"code": exc.code.value, "host": exc.host}
    return {"href": target.url, "addresses": target.addresses}


def _outcome_differs(expect: Case, got: dict[str, Any]) -> str | None:
    expect.plain("message")
    if "error" in expect:
        return differs("error", got.get("error", got), expect["error"])
    if "code" in expect:
        return differs("code", got.get("code", got), expect["code"]) or differs("host", got.get("host") or "", expect["safeHost"] or "")
    line = differs("href", got.get("href", got), expect["href"]) or differs("addresses", len(got["addresses"]), len(expect["addresses"]))
    for address, expected in zip(got.get("addresses", ()), expect["addresses"], strict=False):
        line = line or differs("family", address.family, expected["family"]) or _differs_in_address(address.address, expected["address"])
    return line
