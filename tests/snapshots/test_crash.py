"""A writer killed at any system call leaves a store that holds what was acknowledged. `make crash-store` runs all calls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.snapshots.crash_store import SCENARIOS, Call, list_calls, run_killed, trace

SAMPLES = {"first-put": 4, "put": 3, "released-put": 2, "prune": 3}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_store_survives_a_writer_that_is_killed(name: str, tmp_path: Path) -> None:
    """At calls spread evenly over the write. Fails, with the reason, where tracing is refused."""
    scenario = SCENARIOS[name]
    calls = list_calls(tmp_path, scenario)
    count = SAMPLES[name]
    for number in range(count):
        run_killed(tmp_path, scenario, calls[(2 * number + 1) * len(calls) // (2 * count)])


def opened(call: Call) -> str:
    """The path of the file descriptor that a call is given."""
    found = re.match(r"\d+<([^>]*)>", call.arguments)
    return found[1] if found else ""


def linked(call: Call) -> tuple[str, str]:
    found = re.match(r'\d+<([^>]*)>, "([^"]*)", \d+<([^>]*)>, "([^"]*)"', call.arguments)
    return (f"{found[1]}/{found[2]}", f"{found[3]}/{found[4]}") if found else ("", "")


@pytest.mark.parametrize("name", ["first-put", "put", "prune"])
def test_contents_are_durable_before_names_and_names_before_the_acknowledgement(name: str, tmp_path: Path) -> None:
    calls = trace(tmp_path / "store", SCENARIOS[name])
    end = next(number for number, call in enumerate(calls) if call.name == "acknowledgement")
    links = [(number, *linked(call)) for number, call in enumerate(calls) if call.name == "link" and linked(call)[0].endswith(".tmp")]
    assert links
    for at, temporary, final in links:
        assert any(call.name == "fsync" and opened(call) == temporary for call in calls[:at]), f"{temporary} linked before it was synced"
        folder = final.rsplit("/", 1)[0]
        assert any(call.name == "fsync" and opened(call) == folder for call in calls[at:end]), f"{folder} not synced before the end"
    made = [number for number, call in enumerate(calls) if call.name == "mkdir"]
    for at in made if name == "first-put" else ():
        parent = opened(calls[at])
        assert any(call.name == "fsync" and opened(call) == parent for call in calls[at:end]), (
            f"{parent} not synced after a folder was made"
        )
