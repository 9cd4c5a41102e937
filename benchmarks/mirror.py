"""A mirror crawl of 100 documents with 30 assets each, and the same again once all are verified: ``python -m benchmarks.mirror``.

The archive plays on loopback in this process; each crawl runs in a process of its own, with the shell program. Prints one line: wall and
CPU seconds a document (forage's own, and the browser's as far as its processes were seen alive), archive requests beside the distinct keys
asked for (they must be equal), and the warm run: what it started and opened (must be nothing), and its seconds beside its imports (at most
1). A document is rendered twice: its late child is found by the first render.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import trio

from forage.browser import BrowserOptions
from forage.cli import build_parser
from forage.cli import mirror as command
from forage.mirror import BrowserProbe, crawl, open_guarded_archive
from forage.mirror.demo_web import STAMP, asset, page
from forage.mirror.loopback import Archived, LoopbackArchive, open_loopback_archive

ROOT: Final = Path(__file__).resolve().parent.parent
SHARED: Final = 5
ASSETS: Final = 30
SAMPLE_SECONDS: Final = 0.1
TICKS: Final = os.sysconf("SC_CLK_TCK")
MOST_WARM_SECONDS: Final = 1.0
WATCHED: Final = frozenset(["socket.__new__", "socket.bind", "subprocess.Popen", "os.exec", "os.fork", "os.posix_spawn", "os.system"])


def web(documents: int) -> list[Archived]:
    """Documents with a style sheet, a script and images; a few assets are common to all, one of each document comes late."""
    shared = [asset("style.css", b"p{color:red}"), asset("app.js", b'fetch("late-" + document.title + ".json")')]
    shared += [asset(f"logo{n}.png", b"logo") for n in range(SHARED - len(shared))]
    logos = "".join(f'<img src="logo{n}.png">' for n in range(SHARED - 2))
    captures = list(shared)
    for n in range(documents):
        own = [f"d{n}-{k}.png" for k in range(ASSETS - SHARED - 1)]
        body = logos + "".join(f'<img src="{name}">' for name in own) + '<script src="app.js"></script>'
        captures += [page(f"d{n}", body, head='<link rel=stylesheet href="style.css">'), asset(f"late-d{n}.json", b"{}")]
        captures += [asset(name, b"image") for name in own]
    return captures


class ProcessTimes:
    """CPU seconds of all processes below this one, while they are there to be looked at."""

    def __init__(self) -> None:
        self._seen: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ProcessTimes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def seconds(self) -> float:
        return sum(self._seen.values())

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self._sample()

    def _sample(self) -> None:
        parents, times = {}, {}
        for pid, parent, seconds in _processes():
            parents[pid], times[pid] = parent, seconds
        for pid, seconds in times.items():
            above = pid
            while above in parents and above != os.getpid():
                above = parents[above]
            if above == os.getpid() and pid != above:
                self._seen[pid] = max(seconds, self._seen.get(pid, 0.0))


def _processes() -> Iterator[tuple[int, int, float]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                fields = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            yield int(entry.name), int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS


async def cold(spec: dict[str, Any]) -> dict[str, Any]:
    """The crawl itself."""
    user = "nobody" if os.geteuid() == 0 else None
    probe = BrowserProbe(BrowserOptions(prefer="shell", user=user), min_wait=spec["min_wait"], together=spec["together"])
    with ProcessTimes() as browser:
        wall, cpu = time.perf_counter(), time.process_time()
        async with open_guarded_archive(base=spec["base"]) as fetch:
            report = await crawl(
                spec["keys"],
                root=Path(spec["root"]),
                fetch=fetch,
                probe=probe,
                archive_base=spec["base"],
                delay=0.0,
                documents=spec["together"],
            )
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"tally": report.tally, "requests": report.request_count, "wall": wall, "cpu": cpu, "browser_cpu": browser.seconds}


async def warm(spec: dict[str, Any]) -> dict[str, Any]:
    """The command on a root in which all is verified, twice: the first time with what it imports on the way."""
    counts: Counter[str] = Counter()
    sys.addaudithook(lambda event, _: counts.update([event]) if event in WATCHED else None)
    args = build_parser().parse_args(["mirror", "crawl", "--root", spec["root"], "--archive-base", spec["base"], *spec["keys"]])
    seconds, codes = [], []
    for _ in range(2):
        begun = time.perf_counter()
        codes.append(await command.run(args, io.StringIO(), io.StringIO()))
        seconds.append(time.perf_counter() - begun)
    return {"codes": codes, "seconds": seconds, "opened": dict(counts)}


async def _in_a_process(what: str, spec: Path) -> dict[str, Any]:
    done = await trio.run_process([sys.executable, "-m", "benchmarks.mirror", what, str(spec)], capture_stdout=True, cwd=ROOT)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Both runs, and what the archive saw."""
    archive = LoopbackArchive(web(args.documents))
    keys = [f"{STAMP}/http://site.example.org/d{n}" for n in range(args.documents)]
    async with open_loopback_archive(archive) as base:
        with tempfile.TemporaryDirectory() as folder:
            spec = Path(folder, "spec.json")
            values = {"root": str(Path(folder, "root")), "base": base, "keys": keys, "together": args.together, "min_wait": args.min_wait}
            spec.write_text(json.dumps(values), "utf-8")
            first = await _in_a_process("cold", spec)
            asked = Counter(hit.target for hit in archive.log)
            second = await _in_a_process("warm", spec)
    assert first["tally"] == {"verified": args.documents}, first["tally"]
    assert first["requests"] == len(archive.log) == len(asked), (first["requests"], len(archive.log), len(asked))
    assert second["codes"] == [0, 0], second
    assert second["opened"] == {}, second
    assert second["seconds"][1] <= MOST_WARM_SECONDS, second
    each = {name: round(first[name] / args.documents, 3) for name in ("wall", "cpu", "browser_cpu")}
    return {
        "documents": args.documents,
        "seconds a document": each,
        "archive requests": first["requests"],
        "distinct keys": len(asked),
        "warm seconds": round(second["seconds"][1], 3),
        "warm with imports": round(second["seconds"][0], 3),
        "warm opened": second["opened"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--together", type=int, default=4, help="documents rendered at once")
    parser.add_argument("--min-wait", type=float, default=0.2)
    print(json.dumps(trio.run(measure, parser.parse_args())))


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in {"cold", "warm"}:
        work = cold if sys.argv[1] == "cold" else warm
        print(json.dumps(trio.run(work, json.loads(Path(sys.argv[2]).read_text("utf-8")))))
    else:
        main()
