"""Command line of the vector runner; exit status 1 on any failure."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import trio

from tests.vector_runner.runner import load_overrides, run_files, vector_files

OWN = Path(__file__).resolve().parent.parent / "vectors"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make vectors", description="Run language-neutral vectors against forage.")
    parser.add_argument("folder", nargs="?", default=str(OWN), help="folder of the layout of tests/vectors")
    parser.add_argument("--files", default="", help="files to run, separated by spaces (default: all)")
    args = parser.parse_args(argv)
    root = Path(args.folder)
    names = vector_files(root, args.files.split())
    overrides = load_overrides(OWN / "overrides.toml")
    if root.resolve() != OWN:
        overrides |= load_overrides(root / "overrides.toml")
    if not names:
        print(f"no vector files in {root}", file=sys.stderr)
        return 1
    results = trio.run(run_files, root, names, overrides, sys.stdout)
    bad = [r for r in results if not r.ok]
    cases = sum(r.total for r in results)
    failed = sum(len(r.failures) for r in results)
    not_run = sum(r.problem is not None for r in results)
    print(f"{len(results)} files, {cases} cases: {cases - failed} passed, {failed} failed, {not_run} files not run")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
