"""What it saves that many pages share one browser: ``python -m benchmarks.render [--playwright DIR] [--rounds N]``.

One program (chromium-headless-shell), one set of flags, the same guard and the same rule of rest for all; pages come from nginx on
loopback. Contestants take turns within a round, in an order that is turned around from round to round; each stays alive between its
turns, so that its start does not count. Prints medians over the rounds, paired within each:

- pages a second of `ChromiumRenderer` with 4 pages at once over those of a browser that Playwright starts and closes for each page, one
  after the other, each page at rest for half a second, which is how the npm package renders: at least 5 for a static page, at least 3.5
  for one with 30 assets. Beside it the same over forage's own start of a browser for each page;
- the same over Playwright's with 4 contexts at once in one browser, a page done as soon as it is loaded: at least 1.3 and 1.0. Each of its
  pages has a guard of its own, as forage's have; that they run in a process of their own is in its favour;
- memory beside it: the most that each contestant's processes held together (proportional set size), guard included;
- milliseconds of the guard's CPU for a page with 30 assets that a browser asks for (at most 20), and connections it made to the server.

Half a second of rest is Playwright's ``networkidle``, and forage's default. Exit code 1 when a floor is missed, and without Playwright, as
most of them are over it: ``make bench-render`` installs it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from forage.browser import BrowserOptions, ChromiumRenderer, PageOutcome, find_program
from forage.browser.flags import browser_flags
from forage.egress import EgressPolicy, ProxyEvent, SocketDialer, deny_all, open_proxy
from tests.support.nginx import open_nginx

ROOT: Final = Path(__file__).resolve().parent.parent
USER: Final = "nobody" if os.geteuid() == 0 else None
LANES: Final = 4
REST_SECONDS: Final = 0.5
ASSETS: Final = 30
GUARDED_PAGES: Final = 8
MOST_GUARD_SECONDS: Final = 0.020
SAMPLE_SECONDS: Final = 0.1


@attrs.frozen
class Workload:
    """``floors``: pages a second over those of Playwright, with a browser for each page and with one for all."""

    path: str
    pages: int
    pages_each: int
    floors: tuple[float, float]


WORKLOADS: Final = {
    "static page": Workload("static.html", 32, 6, (5.0, 1.3)),
    f"{ASSETS} assets": Workload("assets.html", 20, 5, (3.5, 1.0)),
}


def make_site(root: Path) -> None:
    """A page of 15 KB, and one with a style sheet, scripts and images, each of 2 KB."""
    text = "<p>" + "Some words of a paragraph that nobody reads. " * 7 + "</p>\n"
    body = text * 46
    names = ["style.css", *(f"s{n}.js" for n in range(4)), *(f"i{n}.svg" for n in range(ASSETS - 5))]
    tags = {"css": '<link rel=stylesheet href="{}">', "js": '<script src="{}"></script>', "svg": '<img src="{}" width=8 height=8>'}
    filler = "x" * 2_000
    contents = {
        "css": f"p{{color:#333}}/*{filler}*/",
        "js": f"document.title+='.';/*{filler}*/",
        "svg": f'<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><rect width="8" height="8"/><!--{filler}--></svg>',
    }
    head = "<!doctype html><meta charset=utf-8><title>page</title><link rel=icon href='data:,'>"
    root.joinpath("static.html").write_text(head + body, "utf-8")
    root.joinpath("assets.html").write_text(head + "".join(tags[name.rpartition(".")[2]].format(name) for name in names) + body, "utf-8")
    for name in names:
        root.joinpath(name).write_text(contents[name.rpartition(".")[2]], "utf-8")


# contestants, each in a process of its own: a JSON line is a run, a JSON line its figures


async def forage(spec: Mapping[str, Any]) -> None:
    """forage itself. ``lanes`` 0: a browser for each page, one after the other."""

    def renderer(pages: int) -> ChromiumRenderer:
        options = BrowserOptions(user=USER, program=spec["program"])
        policy = EgressPolicy(test_loopback_origins=(spec["origin"],))
        return ChromiumRenderer(browser=options, egress=policy, pages=pages, deadline=60.0, recycle_after=10_000)

    async with renderer(LANES) as shared:
        print(json.dumps({"ready": "forage"}), flush=True)
        while line := await trio.to_thread.run_sync(sys.stdin.readline):
            work = json.loads(line)
            sizes: set[int] = set()
            left = iter(range(work["pages"]))

            async def render(one: ChromiumRenderer, work: Mapping[str, Any] = work, sizes: set[int] = sizes) -> None:
                result = await one.render(work["url"], quiet=work["quiet"])
                assert result.outcome is PageOutcome.OK, result.warnings
                sizes.add(len(result.html))

            async def lane(left: Iterator[int] = left, render: Callable[..., Any] = render) -> None:
                for _ in left:
                    await render(shared)

            begun, cpu = time.perf_counter(), time.process_time()
            if work["lanes"] == 0:
                for _ in left:
                    async with renderer(1) as own:
                        await render(own)
            else:
                async with trio.open_nursery() as nursery:
                    for _ in range(work["lanes"]):
                        nursery.start_soon(lane)
            taken = {"seconds": time.perf_counter() - begun, "cpu": time.process_time() - cpu, "sizes": sorted(sizes)}
            print(json.dumps(taken), flush=True)


class CountingDialer:
    """Dials, and counts."""

    def __init__(self) -> None:
        self._dialer = SocketDialer()
        self.dialled = 0

    async def dial(self, address: str, port: int) -> Any:
        self.dialled += 1
        return await self._dialer.dial(address, port)


async def guard(spec: Mapping[str, Any]) -> None:
    """A guard alone: the answer to any line is what it has used so far."""
    dialer = CountingDialer()
    allowed: list[int] = []
    policy = EgressPolicy(test_loopback_origins=(spec["origin"],))

    def on_event(event: ProxyEvent) -> None:
        if event.event == "decision" and event.decision == "allowed":
            allowed.append(event.number)

    async def one_page(stream: trio.SocketStream) -> None:
        """A guard for a page, as long as this connection is open."""
        async with open_proxy(policy, dialer=dialer, on_event=on_event) as proxy:
            await stream.send_all(f"{proxy.url}\n".encode())
            await stream.receive_some()

    async with (
        open_proxy(policy, dialer=dialer, on_event=on_event) as proxy,
        open_proxy(deny_all()) as nowhere,
        trio.open_nursery() as nursery,
    ):
        (door,) = await nursery.start(partial(trio.serve_tcp, one_page, 0, host="127.0.0.1"))
        port = door.socket.getsockname()[1]
        print(json.dumps({"proxy": proxy.url, "nowhere": nowhere.url, "port": port}), flush=True)
        while await trio.to_thread.run_sync(sys.stdin.readline):
            print(json.dumps({"cpu": time.process_time(), "dialled": dialer.dialled, "allowed": len(allowed)}), flush=True)
        nursery.cancel_scope.cancel()


@attrs.define
class Contestant:
    """A running process that answers lines."""

    process: subprocess.Popen[str]
    greeting: dict[str, Any]

    def ask(self, **work: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(work) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a contestant ended")
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def contestant(command: Sequence[str]) -> Iterator[Contestant]:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        one = Contestant(process, {})
        one.greeting = one.answer()
        yield one
        assert process.stdin is not None
        process.stdin.close()


def own_contestant(what: str, spec: Mapping[str, Any]) -> list[str]:
    return [sys.executable, "-m", "benchmarks.render", "--work", what, json.dumps(spec)]


def browser_script(folder: Path, program: Path) -> Path:
    """The program under the account under which forage runs it, with a profile of its own."""
    home = folder / "home"
    home.mkdir()
    if USER is not None:
        shutil.chown(home, USER)
        folder.chmod(0o711)
    as_user = "" if USER is None else f"setpriv --reuid={USER} --regid=nogroup --clear-groups --no-new-privs -- "
    places = " ".join(f"{name}={home}" for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "TMPDIR"))
    script = folder / "browser"
    script.write_text(f'#!/bin/sh\ncd /\nexec env {places} {as_user}{program} "$@"\n', "utf-8")
    script.chmod(0o755)
    return script


def flags_for(proxy: str, profile: Path) -> list[str]:
    """forage's own flags."""
    memory = os.statvfs("/dev/shm")
    flags = browser_flags(
        profile=str(profile), proxy=proxy, transport="pipe", sandbox=True, shared_memory=memory.f_frsize * memory.f_blocks
    )
    return list(flags)


def playwright_contestant(python: Path, folder: Path, program: Path, guard: Mapping[str, Any]) -> list[str]:
    script = browser_script(folder, program)
    # Playwright lets nobody but itself name the profile; without a name it is in the home.
    flags = [flag for flag in flags_for(guard["nowhere"], folder) if not flag.startswith("--user-data-dir")]
    spec = folder / "spec.json"
    spec.write_text(json.dumps({"program": str(script), "flags": flags, "port": guard["port"]}), "utf-8")
    return [str(python), str(ROOT / "benchmarks" / "playwright_peer.py"), str(spec)]


# memory


def tree_bytes(roots: Sequence[int]) -> int:
    """Proportional set size of these processes and all below them."""
    parents: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int(Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()[1])
            except OSError:
                continue
    held = 0
    for pid in parents:
        above = pid
        while above in parents and above not in roots:
            above = parents[above]
        if above in roots:
            try:
                held += int(Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").split("Pss:", 1)[1].split()[0])
            except (OSError, IndexError):
                continue
    return held * 1024


def most_held(roots: Sequence[int], work: Callable[[], object]) -> int:
    """The most that the processes held while ``work`` was done."""
    most, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(SAMPLE_SECONDS):
            most.append(tree_bytes(roots))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        work()
    finally:
        over.set()
        thread.join()
    return max(most)


# measuring


@attrs.frozen
class Field:
    """Who takes part. ``names`` without Playwright where it is not installed."""

    ours: Contestant
    guard: Contestant
    peer: Contestant | None
    origin: str

    def run(self, name: str, load: Workload, *, quiet: float, pages: int = 0) -> float:
        """Pages a second; ``quiet`` seconds of rest, or none."""
        url, count = f"{self.origin}/{load.path}", pages or (load.pages_each if name.endswith("each") else load.pages)
        who = self.peer if name.startswith("playwright") else self.ours
        assert who is not None
        taken = who.ask(
            url=url, pages=count, lanes=0 if name.endswith("each") else LANES, quiet=quiet, rest="networkidle" if quiet else "load"
        )
        assert len(taken["sizes"]) == 1, taken["sizes"]
        assert taken["sizes"][0] > 14_000, taken["sizes"]
        return float(count / taken["seconds"])

    def names(self) -> list[str]:
        return ["each", "shared", *(() if self.peer is None else ("playwright", "playwright each"))]

    def memory(self, name: str, load: Workload) -> int:
        roots = [self.ours.process.pid]
        if name.startswith("playwright"):
            assert self.peer is not None
            roots = [self.peer.process.pid, self.guard.process.pid]
        return most_held(roots, lambda: self.run(name, load, quiet=0.0))


def compare(field: Field, title: str, load: Workload, rounds: int) -> bool:
    """Whether the floors are held."""
    each, shared = load.floors
    rested = ratios(
        field,
        f"{title}, at rest",
        load,
        rounds,
        quiet=REST_SECONDS,
        rivals={
            "playwright each": ("Playwright with a browser for each page", each),
            "each": ("forage with a browser for each page", None),
        },
    )
    loaded = ratios(field, f"{title}, loaded", load, rounds, quiet=0.0, rivals={"playwright": ("Playwright with one for all", shared)})
    memory = ", ".join(f"{name} {field.memory(name, load) >> 20} MiB" for name in field.names())
    print(f"{title}: memory {memory}", flush=True)
    return rested and loaded


def ratios(field: Field, title: str, load: Workload, rounds: int, *, quiet: float, rivals: Mapping[str, tuple[str, float | None]]) -> bool:
    """Print pages a second of forage over those of each rival, paired within rounds. Whether the floors are held."""
    names = ["shared", *(name for name in rivals if name in field.names())]
    for name in names:
        field.run(name, load, quiet=quiet, pages=2 if name.endswith("each") else 2 * LANES)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names[:: 1 if turn % 2 else -1]:
            taken[name].append(field.run(name, load, quiet=quiet))
    held = True
    for name in names[1:]:
        words, floor = rivals[name]
        found = sorted(ours / theirs for ours, theirs in zip(taken["shared"], taken[name], strict=True))
        ratio = statistics.median(found)
        held = held and (floor is None or ratio >= floor)
        least = "" if floor is None else f"at least {floor}; "
        print(f"{title}, {LANES} at once / {words}: {ratio:.2f} ({least}{found[0]:.2f} to {found[-1]:.2f})", flush=True)
    rates = ", ".join(f"{name} {statistics.median(rates):.1f}" for name, rates in taken.items())
    print(f"{title}: pages a second {rates}", flush=True)
    return held


def guard_cost(guard: Contestant, origin: str, folder: Path, program: Path) -> tuple[float, int]:
    """CPU seconds of the guard for one page with assets, asked for by a browser; connections to the server for all of them."""
    script = browser_script(folder, program)
    url = f"{origin}/{WORKLOADS[f'{ASSETS} assets'].path}"
    proxy = guard.greeting["proxy"]

    def ask(number: int) -> None:  # each with a profile of its own: nothing is cached
        flags = [flag for flag in flags_for(proxy, folder / "home" / str(number)) if "remote-debugging" not in flag]
        command = [str(script), *flags[:-1], "--dump-dom", url]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, timeout=60)
        assert len(done.stdout) > 14_000

    ask(0)
    before = guard.ask()
    for number in range(1, GUARDED_PAGES + 1):
        ask(number)
    after = guard.ask()
    assert after["allowed"] - before["allowed"] == GUARDED_PAGES * (ASSETS + 1), (before, after)
    return (after["cpu"] - before["cpu"]) / GUARDED_PAGES, after["dialled"]


async def measure(args: argparse.Namespace) -> int:
    """Everything; the exit code."""
    program = find_program(prefer="shell").path
    with tempfile.TemporaryDirectory(prefix="forage-render-") as name:
        folder = Path(name)
        for part in ("site", "peer", "alone"):
            folder.joinpath(part).mkdir()
        folder.chmod(0o711)
        make_site(folder / "site")
        async with open_nginx(folder / "site") as site:
            return await trio.to_thread.run_sync(_measure, args, folder, program, site.origin)


def _measure(args: argparse.Namespace, folder: Path, program: Path, origin: str) -> int:
    spec = {"origin": origin, "program": str(program)}
    with ExitStack() as stack:
        guarding = stack.enter_context(contestant(own_contestant("guard", spec)))
        ours = stack.enter_context(contestant(own_contestant("forage", spec)))
        peer = None
        if args.playwright is None:
            print("without Playwright, over which the floors are: `make bench-render` installs it")
        else:
            python = args.playwright / "bin" / "python"
            peer = stack.enter_context(contestant(playwright_contestant(python, folder / "peer", program, guarding.greeting)))
        field = Field(ours, guarding, peer, origin)
        held = [compare(field, title, load, args.rounds) for title, load in WORKLOADS.items() if args.only in title]
    with contestant(own_contestant("guard", spec)) as guarding:
        spent, connections = guard_cost(guarding, origin, folder / "alone", program)
    held.append(spent <= MOST_GUARD_SECONDS)
    print(
        f"guard, a page of {ASSETS} assets: {spent * 1000:.1f} ms CPU (at most {MOST_GUARD_SECONDS * 1000:.0f}); "
        f"{connections} connections to the server for {GUARDED_PAGES + 1} pages"
    )
    return 0 if all(held) and peer is not None else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--playwright", type=Path, metavar="DIR", help="an environment in which Playwright is installed")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", metavar="TEXT", help="workloads with this in their name")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        trio.run({"forage": forage, "guard": guard}[args.work[0]], json.loads(args.work[1]))
        return 0
    return trio.run(measure, args)


if __name__ == "__main__":
    raise SystemExit(main())
