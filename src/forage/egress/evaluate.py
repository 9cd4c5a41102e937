"""One URL judged as far as the addresses to dial, without dialling (egress policy, sections 1 to 5)."""

from __future__ import annotations

import attrs

from forage.egress.addresses import EgressAddress
from forage.egress.answers import DnsAnswers, Resolver
from forage.egress.options import check_part, check_policy
from forage.egress.policy import EgressPolicy, default_policy
from forage.egress.resolver import CachingResolver, DnsResolver
from forage.egress.rules import Judge, JudgedUrl

__all__ = ["EgressTarget", "evaluate_url", "look_up"]


@attrs.frozen(kw_only=True)
class EgressTarget:
    """A URL that may be asked for, and the addresses that may be dialled for it, in the order of the answers.

    ``answers`` are the facts of the look-up, None for an address literal. They hold for one request only: asking again looks up again.
    """

    url: str
    addresses: tuple[EgressAddress, ...]
    answers: DnsAnswers | None = None


async def look_up(url: JudgedUrl, judge: Judge, resolver: Resolver) -> EgressTarget:
    """The judged addresses of a judged URL. A literal is never looked up.

    Raises `EgressDeniedError` for an answer or alias that is refused, `EgressUnreachableError` (DNS_FAILURE) when there is none.
    """
    if url.literal is not None:
        return EgressTarget(url=url.url, addresses=(url.literal,))
    answers = await resolver.resolve(url.host)
    return EgressTarget(url=url.url, addresses=judge.answers(answers, url.host), answers=answers)


async def evaluate_url(url: str, policy: EgressPolicy | None = None, *, resolver: Resolver | None = None) -> EgressTarget:
    """Judge ``url`` and look its host up: what a request for it would dial now. Nothing is dialled but name servers.

    Without ``resolver`` the machine's name servers are asked. Raises `EgressDeniedError` and `EgressUnreachableError` as the guard does.
    """
    check_policy(policy)
    check_part("resolver", resolver, "resolve")
    judge = Judge(policy or default_policy())
    judged = judge.url(url)
    return await look_up(judged, judge, CachingResolver(resolver or DnsResolver(), judge.policy))
