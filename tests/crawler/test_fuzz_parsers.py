"""Ten thousand mutated pages and sitemaps; `fuzz_parsers` runs more, and robots files, which have tests of their own."""

from __future__ import annotations

import pytest

from tests.crawler.fuzz_parsers import KINDS, Kind, fuzz, main


@pytest.mark.parametrize(("kind", "count"), list(zip(KINDS, (10_000, 10_000, 1000), strict=True)), ids=[kind.name for kind in KINDS])
def test_mutated_inputs_end_in_a_result(kind: Kind, count: int) -> None:
    done, _ = fuzz(kind, seed=0, count=count, seconds=600)
    assert done == count


def test_command_prints_a_line_a_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--count", "20", "--kinds", "html", "sitemap"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["html", "sitemap"]
    assert "20 inputs" in lines[0]
