"""The project's own files fit together: locks, policy, changelog fragments, set-up."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)
RUN, DEV = ROOT / "requirements" / "run.txt", ROOT / "requirements" / "dev.txt"


def pins(lock: Path) -> dict[str, str]:
    return {canonicalize_name(name): version for name, version in PIN.findall(lock.read_text("utf-8"))}


def required(*groups: str) -> list[Requirement]:
    listed = [*PROJECT["project"]["dependencies"]]
    for group in groups:
        listed += PROJECT["dependency-groups"][group]
    return [Requirement(line) for line in listed]


@pytest.mark.parametrize(("lock", "groups"), [(RUN, ["build"]), (DEV, ["build", "test", "lint", "lock"])], ids=["run", "dev"])
def test_a_lock_holds_what_the_project_asks_for(lock: Path, groups: list[str]) -> None:
    held = pins(lock)
    for requirement in required(*groups):
        assert Version(held[canonicalize_name(requirement.name)]) in requirement.specifier, f"{requirement}: run make lock"


def test_the_development_lock_holds_the_releases_that_users_get() -> None:
    assert pins(RUN).items() <= pins(DEV).items()


@pytest.mark.parametrize("lock", [RUN, DEV], ids=["run", "dev"])
def test_a_lock_has_hashes_for_everything_and_no_addresses(lock: Path) -> None:
    text = lock.read_text("utf-8")
    for block in re.split(r"\n(?=[A-Za-z0-9])", text)[1:]:
        assert PIN.match(block), block
        assert "--hash=sha256:" in block, block.splitlines()[0]
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text


def test_the_default_policy_sanctions_nothing() -> None:
    policy = json.loads((ROOT / "policy" / "allowed-escapes.json").read_text("utf-8"))
    assert policy == {"version": 1, "escapes": [], "csp": []}


def test_changelog_fragments_have_a_kind_and_a_text() -> None:
    kinds = {kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"]}
    for fragment in (ROOT / "changelog.d").iterdir():
        if fragment.name in PROJECT["tool"]["towncrier"]["ignore"]:
            continue
        assert re.fullmatch(rf"\+[a-z0-9-]+\.({'|'.join(kinds)})\.md", fragment.name), fragment.name
        assert fragment.read_text("utf-8").strip(), fragment.name


def test_continuous_integration_does_what_a_contributor_does() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    assert script[-1] == "exec make test"


def test_set_up_says_which_packages_it_knows_and_touches_nothing_that_is_there() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "system_packages.py")]
    unknown = subprocess.run([*tool, "no-such-package"], capture_output=True, text=True, check=False)
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "nginx-light" in unknown.stderr


def test_an_environment_that_is_up_to_date_costs_nothing(tmp_path: Path) -> None:
    tool = [sys.executable, str(ROOT / "tools" / "make_venv.py")]
    usage = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert (usage.returncode, usage.stdout) == (2, "")
    stamp = tmp_path / "venv" / ".forage-stamp.json"
    stamp.parent.mkdir()
    lock, project = (hashlib.sha256(path.read_bytes()).hexdigest() for path in (RUN, ROOT / "pyproject.toml"))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stamp.write_text(json.dumps({"folder": str(stamp.parent), "python": version, "run.txt": lock, "project": project}), "utf-8")
    done = subprocess.run([*tool, str(stamp.parent), str(RUN)], capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [path.name for path in stamp.parent.iterdir()] == [stamp.name]
