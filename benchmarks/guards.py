"""The egress corpus, black box, through forage and the guards that people use: ``python -m benchmarks.guards [--only NAME]``.

Each guard is installed from its registry by name and runs in a network namespace of its own, in which every address is local: a plain
guard really connects, so it must not run anywhere else. A name server plays a story's answers, a web server notes which address was
dialled. One row for each guard:

- ``reached``: stories in which an address was dialled that the policy closes, of those that must be denied;
- ``answered``: denied stories that ended in an answer, whatever was dialled: ports, spellings and redirects that a guard does not judge;
- ``over-blocked``: stories that are allowed and ended without an answer;
- ``hung``: fetches without an end within the time given.

`requests` and Node's fetch are in it as controls: without a guard the network must show what there is to reach. Stories that need options
of forage's policy, or answers that DNS cannot carry, are left out for all. Needs root (for namespaces), pip, npm and the registries.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import attrs
import trio

from forage.egress import EgressPolicy, judge_url
from forage.errors import EgressDeniedError

ROOT = Path(__file__).resolve().parent.parent
DRIVERS = ROOT / "benchmarks" / "guard_drivers"
CORPUS = ROOT / "tests" / "vectors" / "egress" / "cases.jsonl"
SECONDS = 25.0
NODE = "node@24"


@attrs.frozen
class Guard:
    """``packages`` are what its registry calls it and what it needs beside it; none for what is there already.

    ``same_host``: it follows redirects within a host only, by design; stories that other hosts may be followed to do not count as
    over-blocked.
    """

    name: str
    kind: str  # "python" | "node"
    packages: tuple[str, ...] = ()
    same_host: bool = False


GUARDS = (
    Guard("forage", "python"),
    Guard("@kontourai/forage", "node", ("@kontourai/forage",), same_host=True),
    Guard("advocate", "python", ("advocate",)),
    Guard("safeurl", "python", ("safeurl-python",)),
    Guard("requests-hardened", "python", ("requests-hardened",)),
    Guard("request-filtering-agent", "node", ("request-filtering-agent", "axios")),
    Guard("ssrf-req-filter", "node", ("ssrf-req-filter", "axios")),
    Guard("requests", "python", ("requests",)),
    Guard("node fetch", "node"),
)


def stories() -> list[dict[str, Any]]:
    """The stories that say the same to every guard."""
    with CORPUS.open(encoding="utf-8") as lines:
        return [story for line in lines if _is_for_all(story := json.loads(line))]


def _is_for_all(story: Mapping[str, Any]) -> bool:
    texts = [text for lookups in story.get("dns", {}).values() for lookup in lookups for text in lookup]
    return (
        set(story.get("policy", ())) <= {"cross_host_redirects"}
        and not story.get("unreachable")
        and not story.get("header_injection")
        and all(text.startswith("!") or _is_record(text) for text in texts)
    )


def _is_record(text: str) -> bool:
    try:
        return "%" not in text and bool(ip_address(text))
    except ValueError:
        return False


# outside: what is to be run


def install(guard: Guard, folder: Path) -> list[str]:
    """The command of the guard's driver, its packages in ``folder``."""
    if guard.kind == "node":
        packages = (*guard.packages, NODE)
        subprocess.run(["npm", "init", "--yes"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent", *packages], cwd=folder, check=True)
        return [str(folder / "node_modules" / "node" / "bin" / "node"), str(DRIVERS / "driver.mjs"), guard.name, str(folder)]
    python = sys.executable
    if guard.packages:
        venv.create(folder, with_pip=True)
        python = str(folder / "bin" / "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check", *guard.packages], check=True)
    return [python, str(DRIVERS / "driver.py"), guard.name]


def run(guard: Guard, folder: Path) -> dict[str, Any]:
    """One guard through the corpus, in namespaces of its own; its row."""
    command = install(guard, folder)
    inside = [sys.executable, "-m", "benchmarks.guards", "--inside", str(Path("/proc/self/ns/net").readlink()), str(folder), *command]
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *inside],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if guard.same_host:
        other_hosts = {story["id"] for story in stories() if story["expect"] == "allow" and story.get("policy")}
        row["over-blocked"] = [name for name in row["over-blocked"] if name not in other_hosts]
        row["allowed"] -= len(other_hosts)
    return row


# inside: one guard and its stories


class Driver:
    """The guard's process. Started anew for a story with an environment of its own, and after one that hung."""

    def __init__(self, command: Sequence[str], nursery: trio.Nursery, folder: Path) -> None:
        self._command = command
        self._nursery = nursery
        self._folder = folder
        self._process: trio.Process | None = None
        self._changes: Mapping[str, str] = {}

    async def begin(self, story: Mapping[str, Any]) -> None:
        changes = story.get("env", {})
        if self._process is None or self._process.poll() is not None or changes != self._changes:
            await self._start(changes)
        any_host = bool(story.get("policy", {}).get("cross_host_redirects"))
        await self.ask({"op": "new", "any_host": any_host})

    async def _start(self, changes: Mapping[str, str]) -> None:
        self.kill()
        self._changes = changes
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "NODE_EXTRA_CA_CERTS": str(self._folder / "authority.pem"),
            "PYTHONDONTWRITEBYTECODE": "1",
            **changes,
        }
        start = partial(
            trio.run_process,
            list(self._command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=self._folder,
            check=False,
        )
        self._process = await self._nursery.start(start)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()

    async def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The reply, or a hang."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = b""
        with trio.move_on_after(SECONDS):
            with suppress(trio.BrokenResourceError):
                await self._process.stdin.send_all(json.dumps(message).encode() + b"\n")
                while not line.endswith(b"\n"):
                    if not (data := bytes(await self._process.stdout.receive_some())):
                        break
                    line += data
        if line.endswith(b"\n"):
            reply: dict[str, Any] = json.loads(line)
            return reply
        self.kill()
        await self._process.wait()
        return {"outcome": "hung"}


@asynccontextmanager
async def open_driver(command: Sequence[str], folder: Path) -> AsyncIterator[Driver]:
    async with trio.open_nursery() as nursery:
        driver = Driver(command, nursery, folder)
        try:
            yield driver
        finally:
            driver.kill()
            nursery.cancel_scope.cancel()


async def through(command: Sequence[str], folder: Path) -> dict[str, Any]:
    from benchmarks.guard_world import open_world, ports_of

    row: dict[str, Any] = {"denied": 0, "reached": [], "answered": [], "allowed": 0, "over-blocked": [], "hung": []}
    chosen = stories()
    async with open_world(ports_of(chosen)) as world, open_driver(command, folder) as driver:
        for story in chosen:
            hosts = [*story.get("dns", ()), *_literals([story["url"], *(then["url"] for then in story.get("then", ()))])]
            world.play(story, hosts)
            await driver.begin(story)
            for part in (story, *story.get("then", ())):
                world.dialled.clear()
                reply = await driver.ask(_message(story, part))
                await world.settled()
                _count(row, story["id"], part["expect"], reply, [address for address, _ in world.dialled])
                if reply["outcome"] == "hung":
                    break
    return row


def _message(story: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "op": "fetch",
        "url": part["url"],
        "method": story.get("method", "GET"),
        "headers": story.get("headers", []),
        "body": story.get("body"),
    }


def _literals(urls: Sequence[str]) -> list[str]:
    found = []
    for url in urls:
        with suppress(EgressDeniedError):
            found.append(judge_url(url, EgressPolicy()).host)
    return found


def _count(row: dict[str, Any], name: str, expect: str, reply: Mapping[str, Any], dialled: Sequence[str]) -> None:
    from tests.egress.fuzz_egress import is_open

    row["denied" if expect == "deny" else "allowed"] += 1
    if any(not is_open(address) for address in dialled):
        row["reached"].append(name)
    if reply["outcome"] == "hung":
        row["hung"].append(name)
    if reply["outcome"] == "answer" and expect == "deny":
        row["answered"].append(name)
    if reply["outcome"] != "answer" and expect == "allow":
        row["over-blocked"].append(name)


def inside(outside: str, folder: Path, command: Sequence[str]) -> None:
    from benchmarks.guard_world import enter

    enter(folder, folder.glob("lib/python*/site-packages/certifi/cacert.pem"), outside)
    print(json.dumps(trio.run(through, command, folder)))


def main() -> int:
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[guard.name for guard in GUARDS], help="run this guard alone; may be repeated")
    parser.add_argument("--show", action="store_true", help="name the stories of each figure")
    args = parser.parse_args()
    row: dict[str, Any] = {}
    for guard in GUARDS:
        if args.only and guard.name not in args.only:
            continue
        with tempfile.TemporaryDirectory(prefix="guard-") as folder:
            try:
                row = run(guard, Path(folder))
            except subprocess.CalledProcessError as exc:
                print(f"{guard.name:24} could not be run: {exc.cmd[0]} ended with {exc.returncode}", flush=True)
                continue
        print(
            f"{guard.name:24} reached {len(row['reached']):3} of {row['denied']}  answered {len(row['answered']):3}"
            f"  over-blocked {len(row['over-blocked']):3} of {row['allowed']}  hung {len(row['hung'])}",
            flush=True,
        )
        if args.show:
            for figure in ("reached", "answered", "over-blocked", "hung"):
                print(f"    {figure}: {' '.join(row[figure])}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
