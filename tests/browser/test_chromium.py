"""The life of a browser: it starts contained, and whatever happens nothing of it is left, neither process nor file.

The browsers are real; nothing is reached beyond loopback, as their own traffic goes to a listener that refuses everything.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import trio

from forage.browser import BrowserOptions, PageOutcome, open_browser, visit_page
from forage.browser.processes import processes_of
from forage.browser.profiles import sweep_profiles
from forage.errors import BrowserError, BrowserErrorCode, BrowserMissingError, InvalidPolicyError
from tests.support.browser_site import open_browser_site
from tests.support.browsers import Kind, browser_options, installed_kinds
from tests.support.leftovers import browser_processes, profile_directories, wait_for, wait_until_gone
from tests.support.stepping import open_descriptors

KINDS = pytest.mark.parametrize("kind", installed_kinds())
TRANSPORTS = pytest.mark.parametrize("transport", ["websocket", "pipe"])
ROOT = os.geteuid() == 0
ROOT_OF_TREE = Path(__file__).resolve().parent.parent.parent

TEMPORARY = Path(tempfile.gettempdir())


def assert_nothing_is_left() -> None:
    assert browser_processes() == []
    assert profile_directories() == []


def test_both_programs_are_installed_for_these_tests() -> None:
    assert installed_kinds() == ["shell", "full"]


@KINDS
@TRANSPORTS
async def test_a_browser_starts_contained_and_leaves_nothing(kind: Kind, transport: Any) -> None:
    before = open_descriptors()
    async with open_browser_site({}) as site, open_browser(browser_options(kind, transport=transport)) as browser:
        facts = browser.facts
        assert (facts.kind, facts.transport, facts.sandbox, facts.user) == (kind, transport, True, "nobody" if ROOT else None)
        assert "Chrome/" in facts.product
        assert (browser.devtools_port is None) is (transport == "pipe")
        seen = await visit_page(browser, f"{site.origin}/good", site.options())
        assert (seen.outcome, seen.status) == (PageOutcome.OK, 200)
        owners = {Path(f"/proc/{process.pid}").stat().st_uid for process in processes_of(browser.group) if "chrom" in process.command[0]}
        assert (0 in owners) is False or not ROOT
        assert await browser.contexts() == 0
    assert_nothing_is_left()
    assert open_descriptors() == before


async def test_a_browser_without_its_sandbox_says_so() -> None:
    async with open_browser(browser_options(sandbox=False)) as browser:
        assert browser.facts.sandbox is False
        assert any("--no-sandbox" in process.command for process in processes_of(browser.group))
    assert_nothing_is_left()


async def test_the_sandbox_is_never_given_up_by_itself() -> None:
    async with open_browser(browser_options()) as browser:
        assert not any("--no-sandbox" in word for process in processes_of(browser.group) for word in process.command)


@pytest.mark.skipif(not ROOT, reason="only root cannot have the sandbox")
async def test_root_is_told_why_it_cannot_start_a_browser() -> None:
    with pytest.raises(BrowserError, match="root cannot have its sandbox") as caught:
        async with open_browser(BrowserOptions()):
            pass
    assert caught.value.code is BrowserErrorCode.START_FAILED
    assert_nothing_is_left()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"program": "no-such-browser"}, BrowserMissingError, "no-such-browser"),
        ({"program": "true"}, BrowserError, "ended at once"),
        ({"program": "/bin/cat", "transport": "pipe"}, BrowserError, "did not start"),
        ({"program": "sleep", "start_seconds": 0.3}, BrowserError, "did not start"),
        ({"user": "root"}, InvalidPolicyError, "unprivileged"),
        ({"user": "no-such-account"}, InvalidPolicyError, "account"),
        ({"transport": "carrier-pigeon"}, InvalidPolicyError, "transport"),
        ({"start_seconds": 0}, InvalidPolicyError, "start_seconds"),
        ({"max_process_bytes": 1}, InvalidPolicyError, "max_process_bytes"),
    ],
    ids=str,
)
async def test_what_cannot_be_started_is_an_error_with_a_reason(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        async with open_browser(BrowserOptions(**options)):
            pass
    assert_nothing_is_left()


async def test_an_exception_inside_leaves_the_block_as_it_was() -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_browser(browser_options()):
            raise ZeroDivisionError
    assert_nothing_is_left()


@TRANSPORTS
async def test_a_browser_that_is_killed_ends_its_pages_as_lost(transport: Any) -> None:
    async with open_browser_site({}) as site, open_browser(browser_options(transport=transport)) as browser, trio.open_nursery() as nursery:
        seen: list[Any] = []

        async def visit() -> None:
            seen.append(await visit_page(browser, f"{site.origin}/good", site.options(min_wait=20.0)))

        nursery.start_soon(visit)
        assert await wait_for(lambda: site.server.requests, seconds=10)
        os.kill(browser.group, signal.SIGKILL)
        assert await wait_for(lambda: seen, seconds=5)
        assert seen[0].outcome is PageOutcome.BROWSER_LOST
        assert browser.broken is not None
        assert (await visit_page(browser, f"{site.origin}/good", site.options())).outcome is PageOutcome.BROWSER_LOST
    assert_nothing_is_left()


async def killed_parent(transport: str, lifeline: str, temporary: Path = Path("/tmp")) -> int:
    """Start a browser in another process, kill that, and give its number."""
    command = [sys.executable, "-m", "tests.support.browser_process", transport, lifeline, "shell", "http://127.0.0.1:1", "1"]
    start = functools.partial(
        trio.run_process, command, stdout=subprocess.PIPE, check=False, env={**os.environ, "TMPDIR": str(temporary)}, cwd=ROOT_OF_TREE
    )
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(start)
        assert process.stdout is not None
        said = b""
        with trio.fail_after(60):
            while b"o" not in said:
                said += await process.stdout.receive_some(1)
        process.kill()
    return process.pid


async def test_without_the_lifeline_a_profile_stays_until_the_next_start_sweeps_it() -> None:
    apart = Path(tempfile.mkdtemp(prefix="f", dir="/tmp"))  # others sweep what is theirs and what is not
    apart.chmod(0o755)
    try:
        pid = await killed_parent("pipe", "none", apart)
        await wait_for(lambda: not browser_processes(pid), seconds=2.0)
        assert browser_processes(pid) == []  # with the pipe it ends by itself
        assert len(profile_directories(pid, apart)) == 1
        later = await killed_parent("pipe", "lifeline", apart)
        assert profile_directories(pid, apart) == []
        assert await wait_until_gone(later, parent=apart, seconds=2.0) == ([], [])
    finally:
        shutil.rmtree(apart)


def test_a_sweep_touches_only_what_is_stale_and_ours(tmp_path: Path) -> None:
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    stale, foreign, other = (TEMPORARY / f"forage-{n}-{pid}-1-{name}" for n, pid, name in (
        (namespace, 4_000_000, "aaaaaaaa"), (1, 4_000_000, "bbbbbbbb"), (namespace, 4_000_000, "toolong_name")))  # fmt: skip
    link = TEMPORARY / f"forage-{namespace}-4000000-1-cccccccc"
    (tmp_path / "kept").mkdir()
    try:
        for path in (stale, foreign, other):
            path.mkdir()
        link.symlink_to(tmp_path)
        assert sweep_profiles() >= 1
        assert [path.exists() for path in (stale, foreign, other, tmp_path / "kept")] == [False, True, True, True]
        assert link.is_symlink()
    finally:
        link.unlink()
        for path in (stale, foreign, other):
            if path.exists():
                path.rmdir()


def test_a_sweep_ends_a_browser_that_outlived_its_owner_and_nobody_who_only_names_its_profile() -> None:
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    stale = TEMPORARY / f"forage-{namespace}-4000000-2-dddddddd"
    stale.mkdir()
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    browser = subprocess.Popen([*command, f"--user-data-dir={stale}/p"])
    reader = subprocess.Popen([*command, str(stale)])
    try:
        assert sweep_profiles() >= 1
        assert browser.wait(10) == -signal.SIGKILL
        assert reader.poll() is None
        assert not stale.exists()
    finally:
        for process in (browser, reader):
            process.kill()
            process.wait()
