"""The benchmark of guards makes real connections to whatever a guard lets through: it must not start outside of a namespace of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.guard_world import enter, ports_of
from benchmarks.guards import GUARDS, stories
from tests.egress.fuzz_egress import is_open


def test_nothing_is_set_up_in_the_network_of_the_machine(tmp_path: Path) -> None:
    here = str(Path("/proc/self/ns/net").readlink())
    with pytest.raises(RuntimeError, match="not a network namespace of its own"):
        enter(tmp_path, [], here)
    assert list(tmp_path.iterdir()) == []


def test_the_corpus_is_told_to_every_guard_alike() -> None:
    chosen = stories()
    assert len(chosen) > 900
    assert {80, 443, 3128, 6379} <= ports_of(chosen)
    assert 53 not in ports_of(chosen)  # the name server's
    assert len({guard.name for guard in GUARDS} - {"forage", "requests", "node fetch"}) >= 5


def test_the_second_opinion_on_addresses_is_that_of_the_corpus() -> None:
    """What an allowed story may be connected to is open."""
    for story in stories():
        if story["expect"] == "allow":
            assert all(is_open(address.removeprefix("::ffff:")) for address in story.get("connect", ())), story["id"]
