"""Ten thousand mutated answers and robots.txt files; the long runs are `python -m tests.fetch.fuzz_http`."""

from __future__ import annotations

import pytest

from tests.fetch.fuzz_http import fuzz_responses, fuzz_robots

COUNT = 10_000


@pytest.mark.slow
def test_every_mutated_answer_ends_in_a_result_about_its_own_url() -> None:
    assert fuzz_responses(seed=20_260_901, count=COUNT, seconds=600) == COUNT


def test_every_mutated_robots_file_is_read() -> None:
    assert fuzz_robots(seed=20_260_901, count=COUNT, seconds=600) == COUNT
