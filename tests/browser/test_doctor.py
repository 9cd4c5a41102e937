"""The doctor says whether a browser can be used, by using one, and why not."""

from __future__ import annotations

import os
import sys

import pytest

from forage.browser import BrowserOptions, examine
from tests.support.browsers import Kind, browser_options, installed_kinds
from tests.support.leftovers import browser_processes, profile_directories


@pytest.mark.parametrize("kind", installed_kinds())
async def test_a_browser_that_works_is_usable(kind: Kind) -> None:
    found = await examine(browser_options(kind))
    assert found.usable
    assert not found.missing
    assert found.facts is not None
    assert found.facts.kind == kind
    assert (browser_processes(), profile_directories()) == ([], [])


async def test_no_browser_is_missing() -> None:
    found = await examine(BrowserOptions(program="no-such-browser"))
    assert (found.usable, found.missing) == (False, True)
    assert [finding.level for finding in found.findings] == ["problem"]


async def test_a_program_that_is_no_browser_is_not_usable() -> None:
    found = await examine(BrowserOptions(program=sys.executable, start_seconds=2.0))
    assert (found.usable, found.missing) == (False, False)
    assert "did not start" in found.findings[-1].text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root cannot have the sandbox")
async def test_root_is_told_what_to_do() -> None:
    found = await examine(BrowserOptions())
    assert not found.usable
    assert any("unprivileged" in finding.text for finding in found.findings if finding.level != "ok")


async def test_a_sandbox_that_was_given_up_is_a_warning() -> None:
    found = await examine(browser_options(sandbox=False))
    assert found.usable
    assert any("sandbox is off" in finding.text for finding in found.findings if finding.level == "warning")
