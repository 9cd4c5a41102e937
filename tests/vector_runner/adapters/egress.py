"""The egress corpus, and the original's redirect cases: whole stories through `guarded_client`.

Each runs in a fresh client without an answer cache, over a dialer that records every attempt and reaches one loopback server only. A story
that must be denied fails when an address was dialled that no judged request of it may use, whatever the error.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import trio

from forage.egress import EgressPolicy, guarded_client, judge_url
from forage.egress.client import GuardedClient
from forage.errors import EgressDeniedError, EgressError, FetchError
from tests.support.authority import authority
from tests.support.corpus_network import STORY_SECOND, CorpusNetwork, Seen, open_corpus_network
from tests.vector_runner.model import Case, adapter, differs

_SECONDS = 5.0  # a story that takes longer hangs
_environment = trio.Lock()  # one story at a time changes the environment of the process


@cache
def _authority_file() -> str:
    folder = Path(tempfile.mkdtemp(prefix="egress-corpus-"))
    path = folder / "authority.pem"
    authority().cert_pem.write_to_path(str(path))
    return str(path)


def _policy(options: Mapping[str, Any]) -> EgressPolicy:
    known = {"cross_host_redirects", "max_redirects", "ports", "nat64_prefixes", "allow_networks", "test_loopback_origins"}
    if not known >= set(options):
        raise AssertionError(f"policy options that nothing knows: {set(options) - known}")
    plain = {name: value for name, value in options.items() if name != "cross_host_redirects"}
    return EgressPolicy(
        **plain,
        redirect_hosts="any" if options.get("cross_host_redirects") else "same-host",
        resolve_seconds=10.0 * STORY_SECOND,
        max_answer_ttl=0.0,
        ca_file=_authority_file(),
    )


@contextmanager
def _environ(changes: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@adapter("egress/cases.jsonl", together=8)
async def check_story(case: Case) -> str | None:
    changes = case.plain("env", {})
    if not changes:
        return await _check_story(case)
    async with _environment:
        with _environ(changes):
            return await _check_story(case)


async def _check_story(case: Case) -> str | None:
    case.plain("class")
    policy = _policy(case.plain("policy", {}))
    dns = case.plain("dns")
    tls = case.plain("tls")
    following = case.get("then", [])
    names = tls["cert_names"] if tls is not None else [*dns, *_literals([case["url"], *(other["url"] for other in following)], policy)]
    async with (
        open_corpus_network(
            dns, case.plain("redirects", []), unreachable=case.plain("unreachable", []), behaviour=case.plain("server"), cert_names=names
        ) as network,
        guarded_client(policy, resolver=network.resolver, dialer=network.dialer, timeout=_SECONDS) as client,
    ):
        line = await _check_request(case, client, network)
        most = case.plain("max_dials")
        if line is None and most is not None and len(network.dialer.dialled) > most:
            line = f"dialled {network.dialer.dialled}, at most {most} are right"
        for number, other in enumerate(following):
            if line is None and (line := await _check_request(other, client, network)) is not None:
                line = f"then[{number}]: {line}"
        return line


def _literals(urls: Sequence[str], policy: EgressPolicy) -> list[str]:
    """Hosts of the URLs that the policy lets through: they have certificates, names and addresses alike."""
    found = []
    for url in urls:
        with suppress(EgressDeniedError):
            found.append(judge_url(url, policy).host)
    return found


async def _check_request(case: Case, client: GuardedClient, network: CorpusNetwork) -> str | None:
    requests, dials, lookups = len(network.requests), len(network.dialer.dialled), len(network.resolver.asked)
    outcome = await _fetch(case, client)
    seen, dialled, asked = network.requests[requests:], network.dialer.dialled[dials:], network.resolver.asked[lookups:]
    injected = bool(case.plain("header_injection", default=False))
    line = _outcome_differs(outcome, case["expect"], case["code"], case.plain("alt_codes", []), injected=injected)
    if line is None and case["expect"] == "deny":
        early = injected or case["code"] is None
        line = _denial_differs(case["url"], client.policy, outcome, seen, dialled, asked, early=early)
    return line or _connect_differs(case.plain("connect"), seen, dialled) or _wire_differs(case.plain("wire", []), network, requests)


async def _fetch(case: Case, client: GuardedClient) -> str:
    """``allow``, or the name of the error: a policy code, or the class of a refusal before any I/O."""
    headers = [tuple(pair) for pair in case.plain("headers", [])]
    body = case.plain("body")
    try:
        with trio.fail_after(_SECONDS):
            await client.request(case.plain("method", "GET"), case["url"], headers=headers, content=body)
    except EgressError as exc:
        return exc.code.value
    except (FetchError, ValueError, TypeError) as exc:
        return type(exc).__name__
    return "allow"


def _outcome_differs(outcome: str, expect: str, code: str | None, other: Sequence[str], *, injected: bool) -> str | None:
    if expect == "allow":
        return differs("outcome", outcome, "allow")
    if outcome == "allow":
        return f"allowed, expected {code}"
    if code is None:
        return None if injected or not outcome.endswith("Error") else f"ended in {outcome}"
    return None if outcome in {code, *other} else differs("code", outcome, code)


def _denial_differs(
    url: str,
    policy: EgressPolicy,
    outcome: str,
    seen: Sequence[Seen],
    dialled: Sequence[tuple[str, int]],
    asked: Sequence[str],
    *,
    early: bool,
) -> str | None:
    """What was dialled may only be what earlier hops asked for; what the URL alone decides costs no look-up."""
    if outcome == "CONNECT_FAILED":
        return None
    if {address for address, _ in dialled} != {request.address for request in seen}:
        return f"denied with {outcome}, but dialled {dialled}"
    if not _is_judged(url, policy) and (asked or dialled):
        return f"the URL alone decides, but {asked} was looked up"
    return f"refused, but only after {dialled or asked}" if early and (dialled or asked or seen) else None


def _is_judged(url: str, policy: EgressPolicy) -> bool:
    try:
        judge_url(url, policy)
    except EgressDeniedError:
        return False
    return True


def _connect_differs(expected: Sequence[str] | None, seen: Sequence[Seen], dialled: Sequence[tuple[str, int]]) -> str | None:
    if expected is None:
        return None
    carried = {seen[0].address} if seen else set()
    if not carried:
        return f"no request arrived, expected one at {expected}"
    return None if carried <= set(expected) else f"connected to {carried}, expected {expected} (dialled {dialled})"


def _wire_differs(expected: Sequence[Mapping[str, Any]], network: CorpusNetwork, start: int) -> str | None:
    seen = network.requests[start:]
    if len(seen) < len(expected):
        return f"{len(seen)} requests arrived, expected {len(expected)}"
    for number, (rule, request) in enumerate(zip(expected, seen, strict=False)):
        before = {other.connection for other in network.requests[: start + number]}
        line = _request_differs(rule, request, is_new=request.connection not in before)
        if line is not None:
            return f"request {number}: {line}"
    return None


def _request_differs(rule: Mapping[str, Any], seen: Seen, *, is_new: bool) -> str | None:
    checks: dict[str, Any] = {
        "host": lambda value: differs("Host", seen.header("host"), value),
        "target": lambda value: differs("target", seen.target, value),
        "method": lambda value: differs("method", seen.method, value),
        "sni": lambda value: differs("server name", seen.server_name, value),
        "new_connection": lambda value: differs("new connection", is_new, value),
        "present": lambda value: differs("headers", {name: seen.header(name) for name in value}, value),
        "absent": lambda value: differs("headers", [name for name in value if seen.header(name) is not None], []),
        "not_value": lambda value: differs("headers", [name for name in value if seen.header(name) == value[name]], []),
    }
    for name, value in rule.items():
        if name not in checks:
            return f"nothing checks {name}"
        line: str | None = checks[name](value)
        if line is not None:
            return line
    return None


@asynccontextmanager
async def _original(case: Case) -> AsyncIterator[tuple[GuardedClient, CorpusNetwork]]:
    """The original's scripted responses, as a network; a response that is an error resets the connection."""
    responses = [
        {
            "status": response.get("status", 200),
            "headers": [*response.get("headers", {}).items(), ("Connection", "close")],  # the original keeps no connection
            "body": response.get("body", ""),
            "reset": bool(response.get("error")),
        }
        for response in case.plain("responses")
    ]
    dns = {"example.test": [["93.184.216.34"]], "other.test": [["93.184.216.35"]], "www.example.test": [["93.184.216.34"]]}
    dns |= {host: answers if answers and isinstance(answers[0], list) else [answers] for host, answers in case.plain("dns").items()}
    limit = case.plain("maxRedirects")
    policy = EgressPolicy(max_redirects=5 if limit is None else limit, max_answer_ttl=0.0, ca_file=_authority_file())
    async with (
        open_corpus_network(dns, responses, cert_names=list(dns)) as network,
        guarded_client(policy, resolver=network.resolver, dialer=network.dialer, timeout=_SECONDS) as client,
    ):
        yield client, network


@adapter("snapshots/egress-redirects.json")
async def check_original(case: Case) -> str | None:
    mode = case.plain("init").get("redirect")
    expect = case.plain("expect")
    async with _original(case) as (client, network):
        try:
            response = await client.get(case["url"], follow_redirects=mode != "manual")
            got: dict[str, Any] = {
                "status": response.status_code,
                "body": response.text,
                "location": response.headers.get("location"),
            }
        except EgressError as exc:
            got = {"code": exc.code.value}
        wanted = {name: value for name, value in expect.items() if name in ("status", "body", "location", "code")}
        return differs("outcome", got, wanted) or differs("resolver asked", network.resolver.asked, case.plain("resolverAsked"))
