"""All vectors of this repository, one test a file; the same cases as ``make vectors``, through the same runner.

Also held here: how many recorded values are overridden, by which decisions, and that nothing is left over on either side.
"""

from __future__ import annotations

import io
import json
import re
import tomllib
from collections import Counter
from typing import Any

import pytest

from tests.vector_runner.__main__ import OWN, main
from tests.vector_runner.runner import load_adapters, load_overrides, run_files, vector_files

OVERRIDES = OWN / "overrides.toml"
# Overridden cases by the decision or rule that supersedes them. Another number is other behaviour: overrides.toml says why.
OVERRIDDEN: dict[str, int] = {
    "M1": 1,
    "M3": 1,
    "M4": 1,
    "M6": 2,
    "M9": 1,
    "M10": 13,
    "M11": 3,
    "M12": 1,
    "M4, M7, M10, M15": 1,
    "G1": 23,
    "G2": 1,
    "F2": 1,
    "F3": 3,
    "F5": 16,
    "A3": 2,
    "C1": 1,
    "C1, C3": 1,
    "C4": 2,
    "C5": 1,
    "C6": 1,
    "S1": 2,
    "V1": 13,
}
DECISION = re.compile(r"[VAGFCSBM]\d{1,2}|[UHD]\d{1,2}|section \d+(\.\d+)?")


def override_rows() -> list[dict[str, Any]]:
    if not OVERRIDES.exists():
        return []
    return list(tomllib.loads(OVERRIDES.read_text("utf-8")).get("override", []))


def case_ids() -> set[str]:
    found = set()
    for name in vector_files(OWN):
        text = (OWN / name).read_text("utf-8")
        rows: Any = [json.loads(line) for line in text.splitlines() if line.strip()] if name.endswith(".jsonl") else json.loads(text)
        if isinstance(rows, dict):
            rows = rows.get("cases", rows.get("pages", []))
        found |= {str(row["id"]) for row in rows}
    return found


@pytest.mark.parametrize("name", vector_files(OWN))
async def test_every_case_of_the_file_passes(name: str) -> None:
    report = io.StringIO()
    (result,) = await run_files(OWN, [name], load_overrides(OVERRIDES), report)
    assert result.ok, "\n" + report.getvalue()


def test_every_adapter_has_its_vector_file() -> None:
    assert sorted(load_adapters()) == vector_files(OWN)


def test_number_of_overridden_cases_by_decision() -> None:
    assert Counter(row["decision"] for row in override_rows()) == OVERRIDDEN


def test_every_override_names_its_decision_and_its_reason() -> None:
    for row in override_rows():
        assert DECISION.search(row["decision"]), row["id"]
        assert len(row["why"]) >= 20, row["id"]
        assert row["set"], row["id"]


def test_no_override_is_for_a_case_that_is_not_there() -> None:
    assert {row["id"] for row in override_rows()} <= case_ids()


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("elsewhere/unknown.json", '[{"id": "a"}]', "elsewhere/unknown.json: not yet run"),
        ("snapshots/references.json", "[]", "snapshots/references.json: holds no cases"),
        ("snapshots/references.json", '{"cases": []}', "snapshots/references.json: holds no cases"),
        ("snapshots/references.json", "[{", "snapshots/references.json: unreadable"),
    ],
)
def test_the_runner_fails_on_what_it_cannot_run(
    tmp_path: Any, capsys: pytest.CaptureFixture[str], name: str, content: str, line: str
) -> None:
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text(content, "utf-8")
    assert main([str(tmp_path)]) == 1
    assert line in capsys.readouterr().out


def test_the_runner_fails_on_a_folder_without_vectors(tmp_path: Any) -> None:
    assert main([str(tmp_path)]) == 1
