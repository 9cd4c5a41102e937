"""Loads vector files, applies overrides, runs the adapters and reports.

One line a file, ``<path>: <passed>/<total> passed, <n> overridden``, then a line for each failing id. A file without adapter, without
cases or of an unknown form is a failure, as is a case with a member that nothing reads.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import pkgutil
import tomllib
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TextIO

import attrs
import trio

from tests.vector_runner import adapters
from tests.vector_runner.model import ADAPTERS, Adapter, Case

__all__ = ["FileResult", "load_adapters", "load_overrides", "run_files", "vector_files"]


@attrs.frozen(kw_only=True)
class Override:
    """A case whose recorded value a decision supersedes: members by dotted path, and the value that is right.

    ``file`` is named where another file has a case of the same id.
    """

    id: str
    decision: str
    why: str
    set: dict[str, Any]
    file: str | None = None


@attrs.define(kw_only=True)
class FileResult:
    """What became of one file. ``failures`` maps case ids to one line each; ``problem`` is about the file itself."""

    path: str
    total: int = 0
    overridden: int = 0
    failures: dict[str, str] = attrs.field(factory=dict)
    problem: str | None = None

    @property
    def ok(self) -> bool:
        return self.problem is None and not self.failures

    def lines(self) -> list[str]:
        if self.problem is not None:
            return [f"{self.path}: {self.problem}"]
        head = f"{self.path}: {self.total - len(self.failures)}/{self.total} passed, {self.overridden} overridden"
        return [head, *(f"  {case}: {line}" for case, line in self.failures.items())]


def load_adapters() -> dict[str, Adapter]:
    """Import every module of the adapters package; each registers the files it knows."""
    for module in pkgutil.iter_modules(adapters.__path__):
        importlib.import_module(f"{adapters.__name__}.{module.name}")
    return ADAPTERS


def load_overrides(path: Path) -> dict[str, Override]:
    """The overrides of ``overrides.toml`` by case id; each needs a decision and a reason."""
    if not path.exists():
        return {}
    rows = tomllib.loads(path.read_text("utf-8")).get("override", [])
    found = {
        row["id"]: Override(
            id=row["id"],
            decision=row["decision"],
            why=row["why"],
            set={k: json.loads(v) for k, v in row["set"].items()},
            file=row.get("file"),
        )
        for row in rows
    }
    if len(found) != len(rows):
        raise ValueError("overrides.toml names a case twice")
    return found


def vector_files(root: Path, only: Sequence[str] = ()) -> list[str]:
    """Vector files below ``root``, or the named ones; paths are relative with forward slashes."""
    if only:
        return list(only)
    found = [*root.rglob("*.json"), *root.rglob("*.jsonl")]
    skip = {"pages"}
    return sorted(str(p.relative_to(root)) for p in found if not skip & set(p.relative_to(root).parts))


def _load_cases(path: Path) -> list[dict[str, Any]]:
    text = path.read_text("utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    data = json.loads(text)
    if isinstance(data, dict):
        shared = {k: v for k, v in data.items() if k not in {"cases", "kind", "schema", "family", "note", "clock", "generator"}}
        cases: Any = data.get("cases", data.get("pages", []))
        return [{**case, "_file": shared} if shared else case for case in cases]
    return list(data)


def _apply(case: dict[str, Any], override: Override) -> dict[str, Any]:
    case = copy.deepcopy(case)
    for path, value in override.set.items():
        at: Any = case
        *parents, last = path.split(".")
        for name in parents:
            at = at[int(name)] if isinstance(at, list) else at.setdefault(name, {})
        if isinstance(at, list):
            at[int(last)] = value
        else:
            at[last] = value
    return case


async def _run_case(adapter: Adapter, data: dict[str, Any], shared: tuple[Any, ...]) -> str | None:
    case = Case(data)
    try:
        answer = adapter.check(case, *shared)
        line = await answer if inspect.isawaitable(answer) else answer
    except Exception as exc:  # a case must never end the run
        return f"{type(exc).__name__}: {exc}"[:400]
    if line is not None:
        return line
    unread = [name for name in case.unread() if not name.startswith("_file")]
    return f"members that nothing checks: {', '.join(unread)}" if unread else None


async def _run_cases(adapter: Adapter, path: Path, cases: Iterable[dict[str, Any]]) -> dict[str, str | None]:
    """What each case says, by its id; async ones run side by side."""
    lines: dict[str, str | None] = {}
    limiter = trio.CapacityLimiter(adapter.together)

    async def one(data: dict[str, Any], shared: tuple[Any, ...]) -> None:
        async with limiter:
            lines[str(data["id"])] = await _run_case(adapter, data, shared)

    async with AsyncExitStack() as stack:
        shared = () if adapter.session is None else (await stack.enter_async_context(adapter.session(path)),)
        nursery = await stack.enter_async_context(trio.open_nursery())
        for data in cases:
            nursery.start_soon(one, data, shared)
    return lines


async def run_file(root: Path, name: str, overrides: dict[str, Override]) -> FileResult:
    """Run one file; async cases run side by side, and the results keep the order of the file."""
    result = FileResult(path=name)
    adapter = load_adapters().get(name)
    if adapter is None:
        result.problem = "not yet run (no adapter for this kind)"
        return result
    try:
        cases = _load_cases(root / name)
    except (OSError, ValueError) as exc:
        result.problem = f"unreadable ({type(exc).__name__})"
        return result
    if not cases:
        result.problem = "holds no cases"
        return result
    result.total = len(cases)
    for place, data in enumerate(cases):
        override = overrides.get(str(data.get("id")))
        if override is not None and override.file in (None, name):
            result.overridden += 1
            cases[place] = _apply(data, override)
    lines = await _run_cases(adapter, root / name, cases)
    if len(lines) != len(cases):
        result.problem = "holds a case id twice"
    for data in cases:
        line = lines[str(data["id"])]
        if line is not None:
            result.failures[str(data["id"])] = line
    return result


async def run_files(root: Path, names: Iterable[str], overrides: dict[str, Override], out: TextIO) -> list[FileResult]:
    """Run files one after another and print their lines as they end."""
    results = []
    for name in names:
        result = await run_file(root, name, overrides)
        results.append(result)
        print(*result.lines(), sep="\n", file=out, flush=True)
    return results
