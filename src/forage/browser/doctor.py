"""Is there a browser that can be used on this machine, and if not, why: found by trying.

Owns the checks and their wording. It opens a page that reaches nothing.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, Literal

import attrs
import trio

from forage.browser.browser import open_browser
from forage.browser.options import BrowserOptions
from forage.browser.page_options import PageOptions
from forage.browser.processes import owners
from forage.browser.programs import BrowserProgram, find_program
from forage.browser.request_log import BrowserFacts
from forage.egress import deny_all
from forage.errors import BrowserError, BrowserMissingError, InvalidPolicyError

__all__ = ["Examination", "Finding", "examine"]

_FIRST_PERSON: Final = 1_000  # user numbers from here on are people's
_LAST_PERSON: Final = 60_000
_SMALL_SHARED_MEMORY: Final = 512 * 1024 * 1024
_OLDEST: Final = 112
_VERSION: Final = re.compile(r"Chrom[a-z]{1,4}[ /]([0-9]{1,4})(?:\.[0-9]{1,6}){2,3}")
_VERSION_SECONDS: Final = 5.0
_LONGEST_VERSION: Final = 500


@attrs.frozen(kw_only=True)
class Finding:
    """One thing that was looked at."""

    level: Literal["ok", "warning", "problem"]
    text: str


@attrs.frozen(kw_only=True)
class Examination:
    """What was found. ``missing``: there is no program at all. ``facts`` are those of the browser that was started."""

    findings: tuple[Finding, ...]
    facts: BrowserFacts | None = None
    missing: bool = False

    @property
    def usable(self) -> bool:
        return self.facts is not None


async def examine(options: BrowserOptions | None = None) -> Examination:
    """Start a browser as ``options`` say, open a page in it, and tell what stands in the way. Raises nothing of its own."""
    options = BrowserOptions() if options is None else options
    findings: list[Finding] = []
    try:
        program = find_program(options.program, prefer=options.prefer)
    except BrowserMissingError as exc:
        return Examination(findings=(Finding(level="problem", text=str(exc)),), missing=True)
    findings.append(Finding(level="ok", text=f"program: {program.path} ({program.kind})"))
    findings += _surroundings(options)
    try:
        async with open_browser(options) as browser:
            async with browser.open_page(PageOptions(egress=deny_all())) as page:
                answer = await page.call("Runtime.evaluate", {"expression": "6 * 7", "returnByValue": True}, seconds=10.0)
            facts = browser.facts
            works = answer.get("result", {}).get("value") == 42
    except (BrowserError, InvalidPolicyError) as exc:
        findings.append(Finding(level="problem", text=str(exc)))
        if isinstance(exc, BrowserError):
            findings += _age(await _said_version(program, options))
        return Examination(findings=tuple(findings))
    findings += _age(facts.product)
    if options.user is not None:
        findings.append(Finding(level="ok", text=f"runs under the account {options.user}"))
    if not works:
        findings.append(Finding(level="problem", text="a page was opened, and does not run scripts"))
        return Examination(findings=tuple(findings))
    findings.append(Finding(level="ok", text=f"starts and opens pages: {facts.product} over {_transport(options)}"))
    return Examination(findings=tuple(findings), facts=facts)


async def _said_version(program: BrowserProgram, options: BrowserOptions) -> str:
    """What the program says of itself when asked for its version; empty when it does not say in time."""
    account = {} if options.user is None or os.geteuid() != 0 else _account(options.user)
    said = b""
    with trio.move_on_after(_VERSION_SECONDS), suppress(OSError):
        command = [str(program.path), "--version"]
        done = await trio.run_process(command, capture_stdout=True, stderr=subprocess.DEVNULL, check=False, cwd="/", **account)
        said = done.stdout
    return said[:_LONGEST_VERSION].decode("utf-8", "replace")


def _account(name: str) -> dict[str, Any]:
    user = pwd.getpwnam(name)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _age(version: str) -> Iterator[Finding]:
    """Whether a version is older than what forage drives: the headless mode that is the browser itself."""
    found = _VERSION.search(version)
    if found is not None and int(found[1]) < _OLDEST:
        yield Finding(level="problem", text=f"{found[0]} is too old: {_OLDEST} is the first with the headless mode that is needed")


def _transport(options: BrowserOptions) -> str:
    return "a pipe" if options.transport == "pipe" else "a WebSocket"


def _surroundings(options: BrowserOptions) -> Iterator[Finding]:
    """What is worth knowing before it is started."""
    if not options.sandbox:
        yield Finding(level="warning", text="its sandbox is off (--no-sandbox): a page that breaks the renderer has this account")
    elif os.geteuid() == 0 and options.user is None:
        yield Finding(level="warning", text="root cannot have its sandbox: name an unprivileged account for it (--browser-user nobody)")
    memory = os.statvfs("/dev/shm")  # noqa: S108 - only its size is asked for
    if memory.f_frsize * memory.f_blocks < _SMALL_SHARED_MEMORY:
        yield Finding(level="warning", text="there is little shared memory: files are used in its place, which is slower")
    others = _other_people()
    if others and options.transport == "websocket":
        shown = ", ".join(others[:5])
        yield Finding(
            level="warning",
            text=f"others use this machine ({shown}): whoever reaches the debugging port drives the browser; use --transport pipe",
        )


def _other_people() -> list[str]:
    """Names of other accounts of people that run something now."""
    found = set()
    for number in owners():
        if number != os.geteuid() and _FIRST_PERSON <= number < _LAST_PERSON:
            try:
                found.add(pwd.getpwuid(number).pw_name)
            except KeyError:
                found.add(str(number))
    return sorted(found)
