"""Each layer is usable alone: importing one loads no other (import contracts hold the sources, these tests hold the running program).

Every check runs in an interpreter of its own, so that what other tests imported plays no part.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

FACES = ["forage", "forage.egress", "forage.snapshots", "forage.fetch", "forage.browser", "forage.crawler", "forage.mirror"]
HTTP_CLIENTS = {"httpx", "httpx2", "httpcore", "anyio"}
PARSERS = {"selectolax", "protego"}
NETWORK = {"trio", "socket", "ssl", "dns", "httptools", "forage.egress"} | HTTP_CLIENTS


def loaded_by(code: str) -> set[str]:
    """Names of all modules that an interpreter holds after running ``code``, and of the packages around them."""
    script = f"{code}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    # Measuring coverage would load modules of its own.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def layers_but(*allowed: str) -> set[str]:
    names = {"cli", "demo", "crawler", "fetch", "egress", "snapshots", "browser", "mirror"}
    return {f"forage.{name}" for name in names - set(allowed)}


@pytest.mark.parametrize("face", FACES)
def test_importing_a_face_loads_nothing_below_or_beside_it(face: str) -> None:
    loaded = loaded_by(f"import {face}")
    assert not loaded & ((layers_but() | NETWORK | PARSERS) - {face})


@pytest.mark.parametrize("face", FACES)
def test_every_public_name_of_a_face_resolves(face: str) -> None:
    loaded_by(f"""if True:
        import {face} as face
        assert face.__all__ and set(face.__all__) <= set(dir(face))
        for name in face.__all__:
            getattr(face, name)
    """)


def test_the_layers_are_there_after_a_plain_import() -> None:
    loaded = loaded_by("import forage; forage.egress.EgressPolicy(); forage.errors.ForageError")
    assert "forage.egress" in loaded
    assert "forage.snapshots" not in loaded


@pytest.mark.parametrize("face", FACES)
def test_an_unknown_name_of_a_face_is_an_attribute_error(face: str) -> None:
    loaded_by(f"""if True:
        import {face} as face
        try:
            face.no_such_name
        except AttributeError as exc:
            assert {face!r} in str(exc)
        else:
            raise SystemExit("no error")
    """)


def test_judging_urls_and_addresses_needs_no_network_module() -> None:
    loaded = loaded_by("from forage.egress import EgressPolicy, classify_address; classify_address('93.184.215.14')")
    assert not loaded & (HTTP_CLIENTS | PARSERS | {"trio", "dns", "httptools"} | layers_but("egress"))


def test_the_session_of_the_guard_needs_no_http_client_parser_or_store() -> None:
    loaded = loaded_by("from forage.egress import EgressSession")
    assert "forage.egress.session" in loaded
    assert not loaded & (HTTP_CLIENTS | PARSERS | layers_but("egress"))


def test_the_client_of_the_guard_loads_httpx_and_still_no_store_or_html_parser() -> None:
    loaded = loaded_by("from forage.egress import guarded_client")
    assert "httpx" in loaded
    assert not loaded & (PARSERS | layers_but("egress"))


def test_references_need_no_network_and_no_event_loop() -> None:
    loaded = loaded_by("from forage.snapshots import Snapshot, build_source_ref, parse_source_ref, decode_text_body")
    assert not loaded & (NETWORK | PARSERS | layers_but("snapshots"))


def test_stores_need_no_network_code_of_ours_and_no_http_client() -> None:
    loaded = loaded_by("from forage.snapshots import FilesystemSnapshotStore, MemorySnapshotStore, resolve_source_ref")
    assert not loaded & (HTTP_CLIENTS | PARSERS | {"dns", "httptools"} | layers_but("snapshots"))


def test_a_crawl_needs_no_http_client() -> None:
    loaded = loaded_by("from forage import crawl, CrawlPolicy")
    assert not loaded & (HTTP_CLIENTS | {"forage.browser", "forage.mirror", "forage.cli", "forage.demo"})


def modules_that_say_they_are_pure() -> set[str]:
    found = set()
    for path in sorted((ROOT / "src").rglob("*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        if path.name != "__init__.py" and re.search(r"\bPure[.:]|[(;] ?pure[;)]", docstring):
            found.add(".".join(path.relative_to(ROOT / "src").with_suffix("").parts))
    return found


def test_the_import_contract_covers_every_module_that_says_it_is_pure() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (contract,) = [row for row in project["tool"]["importlinter"]["contracts"] if row["name"].startswith("pure modules")]
    missing = modules_that_say_they_are_pure() - set(contract["source_modules"])
    assert missing == set(), "add them to the contract in pyproject.toml"
