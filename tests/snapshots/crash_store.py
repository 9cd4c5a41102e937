"""Kills a writer at every system call that touches the store, and looks at what is left.

    python -m tests.snapshots.crash_store [--sample N] [--scenario NAME]

For each scenario the calls of the writing thread are listed once; then for each pair (call, n) the same write is done anew in a fresh
interpreter that is killed as it enters that call. Afterwards the store must read well, hold everything that was acknowledged, and be
sound again, with nothing left over, both when the same write is repeated and when a prune runs instead. Needs strace.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs
import trio

from forage.snapshots import FilesystemSnapshotStore, HeadKind, Snapshot, lookup_of, record_name, source_directory
from forage.snapshots.records import encode_record, released_record_name
from forage.testing import sample_snapshot
from tests.support.trees import paths

__all__ = ["SCENARIOS", "Call", "CrashError", "Scenario", "list_calls", "run_killed", "trace"]

CEILING = 8
SOURCE = source_directory("source")
CALLS = ("mkdir", "openat", "write", "fsync", "close", "link", "unlink", "rename", "utimensat")
# As the kernel knows them.
NAMES = {"mkdir": "mkdirat,mkdir", "link": "linkat,link", "unlink": "unlinkat,unlink", "rename": "renameat,renameat2,rename"}
TRACED = ",".join(NAMES.get(call, call) for call in CALLS)


class CrashError(AssertionError):
    """A store did not survive, or could not be traced."""


# --- scenarios


@attrs.frozen(kw_only=True)
class Scenario:
    """What is there before, the write that is killed, and what may be there after."""

    name: str
    before: Callable[[Path], Awaitable[None]]
    write: Callable[[FilesystemSnapshotStore], Awaitable[object]]
    acknowledged: Sequence[Snapshot]
    """What must be there whenever the writer dies."""
    possible: Sequence[Snapshot] = ()
    """What may be there besides."""


def store_at(root: Path) -> FilesystemSnapshotStore:
    return FilesystemSnapshotStore(root, max_history_files=CEILING)


async def _nothing(root: Path) -> None:
    root.mkdir()


async def _two_records(root: Path) -> None:
    for number in (0, 1):
        await store_at(root).put(sample_snapshot(number))


async def _five_records_and_damage(root: Path) -> None:
    store = store_at(root)
    for number in range(5):
        await store.put(sample_snapshot(number))
    folder = root / SOURCE
    (folder / "capacity-index" / "initialized.txt").unlink()
    next((folder / "identity-index").iterdir()).unlink()
    free = next(path for n in range(CEILING) if not (path := folder / "capacity-index" / f"{n}.txt").exists())
    free.write_text(record_name(sample_snapshot(4)))


async def _released_records(root: Path) -> None:
    folder = root / SOURCE
    folder.mkdir(parents=True)
    for number in (0, 1):
        snapshot = sample_snapshot(number)
        (folder / str(released_record_name(snapshot.fetched_at, snapshot.body_hash))).write_bytes(encode_record(snapshot))


def _some(*numbers: int) -> list[Snapshot]:
    return [sample_snapshot(number) for number in numbers]


def _prune(store: FilesystemSnapshotStore) -> Awaitable[object]:
    return store.prune("source", keep_last=2, keep=[lookup_of(sample_snapshot(0))])


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(name="first-put", before=_nothing, write=lambda store: store.put(sample_snapshot(0)), acknowledged=(), possible=_some(0)),
        Scenario(
            name="put", before=_two_records, write=lambda store: store.put(sample_snapshot(2)), acknowledged=_some(0, 1), possible=_some(2)
        ),
        Scenario(
            name="released-put", before=_released_records, write=lambda store: store.put(sample_snapshot(1)), acknowledged=_some(0, 1)
        ),
        Scenario(name="prune", before=_five_records_and_damage, write=_prune, acknowledged=_some(0, 3, 4), possible=_some(1, 2)),
    )
}


# --- the writer, in an interpreter of its own


async def _work(root: Path, scenario: Scenario) -> None:
    with tempfile.TemporaryDirectory() as folder:  # everything is imported, and the thread that will write is there
        await store_at(Path(folder)).put(sample_snapshot(0, source_id="warm"))
        await store_at(Path(folder)).prune("warm", keep_last=1)
    print("ready", flush=True)
    sys.stdin.readline()
    await scenario.write(store_at(root))
    print("done", flush=True)


@contextmanager
def _worker(root: Path, scenario: Scenario) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.snapshots.crash_store", "--work", str(root), "--scenario", scenario.name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout is not None
            if worker.stdout.readline() != "ready\n":
                raise CrashError("the writer did not start")
            yield worker
        finally:
            worker.kill()


def _threads_without_tracer(pid: int) -> bool:
    untraced = re.compile(r"^TracerPid:\s+0$", re.MULTILINE)
    return any(untraced.search((task / "status").read_text()) for task in Path(f"/proc/{pid}/task").iterdir())


@contextmanager
def _tracer(pid: int, *options: str) -> Iterator[None]:
    strace = shutil.which("strace")
    if strace is None:
        raise CrashError("strace is not installed; `make test` installs it for the super-user, else install it by hand")
    with subprocess.Popen([strace, "-f", "-qq", "-p", str(pid), *options], stderr=subprocess.PIPE, text=True) as tracer:
        try:
            while _threads_without_tracer(pid):
                if tracer.poll() is not None:
                    assert tracer.stderr is not None
                    raise CrashError(f"tracing is refused here: {tracer.stderr.read().strip()}")
                time.sleep(0.002)
            yield
            tracer.wait(60)
        finally:
            if tracer.poll() is None:
                tracer.terminate()


def _go(worker: subprocess.Popen[str]) -> str:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write("go\n")
    worker.stdin.close()
    answer = worker.stdout.read()
    worker.wait(60)
    return answer


# --- tracing


@attrs.frozen
class Call:
    """The n-th call of this name of the thread that writes."""

    name: str
    number: int
    arguments: str

    def __str__(self) -> str:
        return f"{self.name}:{self.number}"


def trace(root: Path, scenario: Scenario) -> list[Call]:
    """All traced calls of the thread that writes, in order, also those that do not touch the store; then the acknowledgement."""
    trio.run(scenario.before, root)
    log = root.parent / f"{root.name}.trace"
    with _worker(root, scenario) as worker:
        with _tracer(worker.pid, "-y", "-s", "0", "-e", f"trace={TRACED}", "-o", str(log)):
            answer = _go(worker)
        if answer != "done\n" or worker.returncode != 0:
            raise CrashError("the traced write did not end well")
    lines = re.findall(r"^(\d+) +(\w+)\((.*)$", log.read_text(), re.MULTILINE)
    writers = {thread for thread, _, arguments in lines if str(root) in arguments}
    if len(writers) != 1:
        raise CrashError(f"{len(writers)} threads wrote to the store")
    counts: dict[str, int] = {}
    found = []
    for thread, name, arguments in lines:
        if thread in writers:
            known = name.removesuffix("2").removesuffix("at") if name not in CALLS else name
            counts[known] = counts.get(known, 0) + 1
            found.append(Call(known, counts[known], arguments))
        elif name == "write":
            found.append(Call("acknowledgement", 1, arguments))
    return found


def list_calls(folder: Path, scenario: Scenario) -> list[Call]:
    """The calls to be killed at: those that touch the store."""
    root = folder / f"{scenario.name}-listed"
    return [call for call in trace(root, scenario) if str(root) in call.arguments and call.name in CALLS]


# --- killing, and looking at what is left


def run_killed(folder: Path, scenario: Scenario, call: Call) -> None:
    """Kill the writer at this call; CrashError when the store is not as it must be."""
    root = folder / f"{scenario.name}-{call.name}-{call.number}"
    trio.run(scenario.before, root)
    kill = f"inject={NAMES.get(call.name, call.name)}:signal=KILL:when={call.number}"
    with _worker(root, scenario) as worker:
        with _tracer(worker.pid, "-e", f"trace={TRACED}", "-e", kill, "-o", "/dev/null"):
            answer = _go(worker)
        if worker.returncode != -signal.SIGKILL:
            raise CrashError(f"{scenario.name}, {call}: the writer was not killed")
    try:
        acknowledged = list(scenario.acknowledged) + (list(scenario.possible) if answer and scenario.name != "prune" else [])
        trio.run(_check, root, scenario, acknowledged)
    except Exception as exc:
        raise CrashError(f"{scenario.name}, killed at {call} ({call.arguments[:160]}): {exc!r}") from exc
    shutil.rmtree(root)


async def _check(root: Path, scenario: Scenario, acknowledged: Sequence[Snapshot]) -> None:
    await _check_readable(root, scenario, acknowledged)
    pruned = root.with_name(root.name + "-pruned")
    shutil.copytree(root, pruned, symlinks=True)
    with trio.fail_after(20):
        await scenario.write(store_at(root))
    await _check_sound(root)
    # A prune puts right what a killed writer left, also where nobody repeats the write.
    with trio.fail_after(20):
        await store_at(pruned).prune("source", keep_last=100)
    await _check_readable(pruned, scenario, acknowledged)
    await _check_sound(pruned)
    shutil.rmtree(pruned)


async def _check_readable(root: Path, scenario: Scenario, acknowledged: Sequence[Snapshot]) -> None:
    history = await store_at(root).list("source")
    lost = set(acknowledged) - set(history)
    strange = set(history) - {*acknowledged, *scenario.possible}
    if lost or strange:
        raise CrashError(f"lost {len(lost)}, strange {len(strange)}")
    latest = await store_at(root).latest("source")
    if latest != (history[0] if history else None):
        raise CrashError("latest is not the head")


async def _check_sound(root: Path) -> None:
    left = [name for name in paths(root) if name.endswith((".tmp", ".lock", ".break", ".aside"))]
    if left:
        raise CrashError(f"left over: {left}")
    folder = root / SOURCE
    records = {path.name for path in folder.glob("*.json")} if folder.exists() else set()
    indexes = {name: list((folder / name).glob("*.txt")) for name in ("capacity-index", "identity-index")}
    slots = [path.read_text() for path in indexes["capacity-index"] if path.name[0].isdigit()]
    entries = [path.read_text() for path in indexes["identity-index"]]
    named = sorted(name for name in records if len(name) > 80)  # 0.3 records have no identity entries, and slots only by a put
    if sorted(name for name in slots if name in named) != named or set(slots) - records or sorted(entries) != named:
        raise CrashError(f"{len(records)} records, {len(slots)} slots, {len(entries)} identity entries")
    if records and records == set(named):
        kind = (await store_at(root).read_verified_head("source")).kind
        if kind is not HeadKind.FOUND:
            raise CrashError(f"the head is {kind}")


# --- command line


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make crash-store", description="Kill a writer at every system call that touches the store.")
    parser.add_argument("--scenario", choices=sorted(SCENARIOS))
    parser.add_argument("--sample", type=int, help="only so many pairs of each scenario, evenly spread")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    chosen = [SCENARIOS[args.scenario]] if args.scenario else list(SCENARIOS.values())
    if args.work is not None:
        trio.run(_work, args.work, chosen[0])
        return 0
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        for scenario in chosen:
            calls = list_calls(Path(name), scenario)
            picked = calls if args.sample is None else calls[:: max(1, len(calls) // args.sample)]
            for call in picked:
                try:
                    run_killed(Path(name), scenario, call)
                except CrashError as exc:
                    failed += 1
                    print(exc, file=sys.stderr)
            print(f"{scenario.name}: killed at {len(picked)} of {len(calls)} calls", flush=True)
    print("every store survived" if not failed else f"{failed} did not survive")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
