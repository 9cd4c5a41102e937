"""Ten thousand generated stories: nothing is dialled but judged addresses, and nothing fails in a way of its own."""

from __future__ import annotations

import ipaddress
import random

from forage.egress import AddressRules
from forage.errors import EgressDeniedError
from tests.egress.fuzz_egress import address, fuzz, is_open


async def test_generated_urls_answers_and_redirects_never_reach_a_closed_address() -> None:
    assert await fuzz(10_000, seed=5) > 500


def test_the_second_opinion_agrees_with_the_table_of_the_guard() -> None:
    chance, rules = random.Random(3), AddressRules()
    for _ in range(20_000):
        text = address(chance)
        try:
            found = rules.classify(text, None).address
        except EgressDeniedError:
            found = None
        try:
            plain = ipaddress.ip_address(text)
        except ValueError:
            assert found is None, text
            continue
        mapped = plain.ipv4_mapped if plain.version == 6 else None
        if "%" not in text:
            assert is_open(str(mapped or plain)) is (found is not None), text
