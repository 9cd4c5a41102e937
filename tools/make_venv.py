"""Brings a virtual environment to what a lock says: ``python3 tools/make_venv.py VENV LOCK``.

Owns: making the environment, installing a lock with hashes and the project itself in editable form, and a stamp that makes a second
run cost nothing. Does not own: writing locks (``make lock``) or packages of the operating system (``tools/system_packages.py``).
Standard library only, and plain enough for an old Python to reach the message that says which one is needed.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
STAMP = ".forage-stamp.json"
# What a machine's own pip set-up may add is not wanted here: a constraints file has no hashes, a target folder is not the environment.
DROPPED = ("PYTHONHOME", "PYTHONPATH", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIRE_HASHES", "PIP_NO_BINARY", "PIP_ONLY_BINARY")
SET = {"PIP_CONSTRAINT": os.devnull, "PIP_USER": "0", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def main(arguments: list[str]) -> int:
    if sys.version_info < OLDEST:
        return _fail(f"forage needs Python 3.11 or newer, this is {sys.version.split()[0]}; name another: make PYTHON=python3.13 ...")
    if len(arguments) != 2:
        return _fail("usage: make_venv.py VENV LOCK")
    folder, lock = Path(arguments[0]).resolve(), Path(arguments[1]).resolve()
    wanted = {"folder": str(folder), "python": _version(), lock.name: _digest(lock), "project": _digest(ROOT / "pyproject.toml")}
    stamp = _stamp(folder)
    if all(stamp.get(name) == value for name, value in wanted.items()):
        return 0
    try:
        if stamp.get("folder", wanted["folder"]) != wanted["folder"] or not _usable(folder):
            stamp = {}
            _create(folder)
        if stamp.get(lock.name) != wanted[lock.name]:
            print(f"installing {lock.relative_to(ROOT)} into {folder.name}", file=sys.stderr)
            _pip(folder, "install", "--require-hashes", "--only-binary=:all:", "--no-deps", "-r", str(lock))
        print(f"installing forage itself into {folder.name}", file=sys.stderr)
        _pip(folder, "install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
        _pip(folder, "check")
    except subprocess.CalledProcessError as exc:
        return _fail(f"{' '.join(map(str, exc.cmd[:5]))} ... ended with status {exc.returncode}; the environment is not complete")
    (folder / STAMP).write_text(json.dumps({**stamp, **wanted}, indent=1) + "\n", "utf-8")
    return 0


def _version() -> str:
    return ".".join(map(str, sys.version_info[:2]))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _stamp(folder: Path) -> dict[str, str]:
    try:
        return dict(json.loads((folder / STAMP).read_text("utf-8")))
    except (OSError, ValueError):
        return {}


def _usable(folder: Path) -> bool:
    """Whether an environment of this Python version is there, with a pip that starts."""
    probe = [str(folder / "bin" / "python"), "-I", "-c", "import pip, sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        return subprocess.run(probe, capture_output=True, text=True, check=True).stdout.strip() == _version()
    except (OSError, subprocess.CalledProcessError):
        return False


def _create(folder: Path) -> None:
    """Make the environment anew. Debian keeps ensurepip in python3-venv: root gets it installed, others are told."""
    print(f"making {folder.name} with Python {sys.version.split()[0]}", file=sys.stderr)
    try:
        import ensurepip  # noqa: F401 - asked for only when it is needed
    except ImportError:
        packages = [sys.executable, str(ROOT / "tools" / "system_packages.py"), "python3-venv"]
        subprocess.run(packages, check=True)
    # In a process of its own: an ensurepip that was installed just now is found there.
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)


def _pip(folder: Path, *arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in DROPPED}
    command = [str(folder / "bin" / "python"), "-I", "-m", "pip", "-qq", *arguments]  # errors only
    # pip's own output goes to stderr: stdout belongs to the command that the environment is made for.
    subprocess.run(command, env={**environment, **SET}, check=True, stdout=sys.stderr)


def _fail(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
