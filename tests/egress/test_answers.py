"""Whole answers as scripts: every one of the fetch vectors at every cut, and mutated ones in numbers."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.fuzz_wire import fuzz
from tests.support.script_channel import outcome_of

SCRIPTS = Path(__file__).resolve().parent.parent / "vectors" / "crawl" / "fetch" / "fetch.json"
_CUT_BYTES = 4_096
_LONG = 65_536  # answers longer than this are for other tests


def scripts() -> list[Any]:
    """Each distinct answer of the fetch vectors that is made of bytes alone and comes to an end."""
    found: dict[bytes, tuple[str, bool]] = {}
    for case in json.loads(SCRIPTS.read_text("utf-8")):
        for answers in case["routes"].values():
            for answer in answers:
                steps = [step for step in answer["steps"] if "delay_ms" not in step]
                if answer["end"] == "hang" or not all("b64" in step for step in steps):
                    continue
                data = b"".join(base64.b64decode(step["b64"]) for step in steps)
                if len(data) <= _LONG:
                    found.setdefault(data, (case["id"], answer["end"] == "rst"))
    return [pytest.param(data, reset, id=name) for data, (name, reset) in found.items()]


@pytest.mark.parametrize(("data", "reset"), scripts())
async def test_an_answer_comes_to_the_same_wherever_it_is_cut(data: bytes, reset: bool) -> None:
    whole = await outcome_of([data] if data else [], reset=reset)
    for cut in range(1, min(len(data), _CUT_BYTES)):
        assert await outcome_of([data[:cut], data[cut:]], reset=reset) == whole, f"cut at {cut}"


async def test_mutated_answers_end_in_a_body_or_a_known_failure_and_the_same_one_wherever_they_are_cut() -> None:
    await fuzz(10_000, seed=7)
