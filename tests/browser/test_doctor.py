"""The doctor says whether a browser can be used, by using one, and why not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

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


@pytest.mark.parametrize(("mode", "wanted"), [(0o644, "cannot be executed"), (None, "is a folder")])
async def test_what_is_no_program_is_told_as_what_it_is(tmp_path: Path, mode: int | None, wanted: str) -> None:
    program = tmp_path / "browser"
    if mode is None:
        program.mkdir()
    else:
        program.write_text("#!/bin/sh\n")
        program.chmod(mode)
    found = await examine(BrowserOptions(program=program))
    assert (found.usable, found.missing) == (False, True)
    assert wanted in found.findings[0].text


@pytest.mark.parametrize(
    ("version", "too_old"), [("Chromium 60.0.3112.113 built on Debian", True), ("Chromium 156.0.8078.114", False), ("", False)]
)
async def test_a_browser_that_does_not_start_is_asked_how_old_it_is(version: str, too_old: bool, tmp_path: Path) -> None:
    program = tmp_path / "browser"
    program.write_text(f"#!/bin/sh\necho '{version}'\n")
    program.chmod(0o755)
    found = await examine(BrowserOptions(program=program))
    assert not found.usable
    assert any("60.0.3112.113 is too old" in finding.text for finding in found.findings) is too_old


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts a browser under another account")
@pytest.mark.parametrize("user", ["no-such-account", "root"])
async def test_an_account_that_cannot_be_had_is_a_problem_and_not_praised(user: str) -> None:
    found = await examine(BrowserOptions(user=user))
    assert not found.usable
    assert [finding.level for finding in found.findings if user in finding.text] == ["problem"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root cannot have the sandbox")
async def test_root_is_told_what_to_do() -> None:
    found = await examine(BrowserOptions())
    assert not found.usable
    assert any("unprivileged" in finding.text for finding in found.findings if finding.level != "ok")


async def test_a_sandbox_that_was_given_up_is_a_warning() -> None:
    found = await examine(browser_options(sandbox=False))
    assert found.usable
    assert any("sandbox is off" in finding.text for finding in found.findings if finding.level == "warning")
