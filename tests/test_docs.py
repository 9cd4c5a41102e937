"""What the documents say is so: the example runs as it is printed, every command is described, no link is dead."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest

from forage.cli import build_parser
from forage.snapshots import parse_source_ref

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")
COMMAND_PAGE = (ROOT / "docs" / "cli.md").read_text("utf-8")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("policy/*.md"), *ROOT.glob("benchmarks/*.md")])


def parsers(parser: argparse.ArgumentParser | None = None, name: str = "forage") -> dict[str, argparse.ArgumentParser]:
    """Every command and its parser, those below other commands included: ``forage egress check``."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in (parser or build_parser())._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, child in action.choices.items():
                found |= {f"{name} {word}": child, **parsers(child, f"{name} {word}")}
    return found


def test_the_example_of_the_readme_runs_as_printed(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(example, "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)], capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split(" ") for line in done.stdout.splitlines()]
    assert 4 <= len(rows) <= 8
    for url, status, reference in rows:
        cited = parse_source_ref(reference)
        assert (status, cited is not None and cited.url) == ("200", url)


@pytest.mark.parametrize("command", sorted(parsers()))
def test_every_command_and_each_of_its_options_is_described(command: str) -> None:
    assert command in COMMAND_PAGE
    for action in parsers()[command]._actions:
        for option in action.option_strings:
            if option.startswith("--") and option not in {"--help", "--json"}:
                assert f"`{option}" in COMMAND_PAGE or f" {option} " in COMMAND_PAGE, f"{command} {option}"


def test_every_command_of_the_readme_exists() -> None:
    known = set(parsers())
    for named in re.findall(r"^\| `(forage [a-z ]+[a-z])", README, re.MULTILINE):
        assert named.strip() in known, named


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text("utf-8"))
    assert [target for target in targets if not (document.parent / target).exists()] == []


def test_the_map_of_the_readme_is_the_tree() -> None:
    section = README.split("## Map", 1)[1].split("\n\n[", 1)[0]
    for place in re.findall(r"^    (\S+/)", section, re.MULTILINE):
        assert (ROOT / place).is_dir(), place
    for package in (ROOT / "src" / "forage").glob("*/__init__.py"):
        assert f"src/forage/{package.parent.name}/" in section, package.parent.name
