"""Sees to programs of the operating system that tests need: ``python3 tools/system_packages.py nginx-light python3-doc ...``.

Owns: telling what is absent, and on Debian as root installing it, with no service left running. Does not own Python packages.
A machine that has everything is not touched. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

# Debian package -> what shows that it is there: a program, or a pattern of files.
KNOWN = {
    "chromium": "chromium",
    "chromium-headless-shell": "chromium-headless-shell",
    "nginx-light": "nginx",
    "python3-doc": "/usr/share/doc/python3.*/html/index.html",
    "python3-venv": "/usr/lib/python3*/ensurepip/__init__.py",
    "strace": "strace",
    "valgrind": "valgrind",
}
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
POLICY = Path("/usr/sbin/policy-rc.d")
SERVICES = {"nginx-light": "nginx.service"}


def main(arguments: list[str]) -> int:
    unknown = [name for name in arguments if name not in KNOWN]
    if unknown or not arguments:
        print(f"usage: system_packages.py PACKAGE..., of {' '.join(KNOWN)}", file=sys.stderr)
        return 2
    absent = _absent(arguments)
    if not absent:
        return 0
    command = f"apt-get install --no-install-recommends {' '.join(absent)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"error: needed and not found: {', '.join(absent)}. On Debian, as root: {command}", file=sys.stderr)
        return 2
    print(f"installing from Debian: {' '.join(absent)}", file=sys.stderr)
    try:
        _install(absent)
    except subprocess.CalledProcessError as exc:
        sys.stderr.write(exc.stdout)
        print(f"error: {' '.join(exc.cmd[:2])} ended with status {exc.returncode}; needed: {command}", file=sys.stderr)
        return 2
    still = _absent(absent)
    if still:
        print(f"error: installed, but not found: {', '.join(still)}", file=sys.stderr)
        return 2
    return 0


def _absent(packages: list[str]) -> list[str]:
    return [name for name in packages if not _present(KNOWN[name])]


def _present(sign: str) -> bool:
    if sign.startswith("/"):
        return any(Path("/").glob(sign[1:]))
    return shutil.which(sign, path=os.environ.get("PATH", os.defpath) + ":" + SBIN) is not None


def _install(packages: list[str]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Small container images tell dpkg to leave documentation out; ours is test data.
    apt = ["apt-get", "-qq", "-y", "-o", "Dpkg::Use-Pty=0", "-o", "DPkg::Options::=--path-include=/usr/share/doc/python3*"]
    _quietly([*apt, "update"], environment)
    # A package must not start its service here: tests start their own, with their own files, and end it.
    ours = not POLICY.exists()
    if ours:
        POLICY.write_text("#!/bin/sh\nexit 101\n", "utf-8")
        POLICY.chmod(0o755)
    try:
        _quietly([*apt, "install", "--no-install-recommends", *packages], environment)
    finally:
        if ours:
            POLICY.unlink()
    if Path("/run/systemd/system").exists():
        # Nor at the next start of the machine. A service whose package was there before is not touched.
        for unit in (SERVICES[name] for name in packages if name in SERVICES):
            subprocess.run(["systemctl", "disable", unit], check=False, stdout=sys.stderr)


def _quietly(command: list[str], environment: dict[str, str]) -> None:
    """What apt prints matters when it fails; the error carries it then."""
    subprocess.run(command, env=environment, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
