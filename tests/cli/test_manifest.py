"""``forage manifest diff``: what changed from one crawl to the next, as rows and as an exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_commands import HTML, forage, html, opened
from tests.support.raw_server import open_raw_server, page


async def crawl_twice(folder: Path) -> tuple[Path, Path]:
    """Manifests of one site before and after: a page stays, one changes, one moves, one goes and one comes."""
    gone = page(b"", status="404 Not Found")
    routes = {
        "/": [html("/same", "/body", "/moves", "/goes", "/comes")],
        "/same": [html()],
        "/body": [page(b"one", headers=HTML), page(b"two", headers=HTML)],
        "/moves": [page(b"x", headers=HTML), page(b"", status="302 Found", headers=[("Location", "/moved")])],
        "/moved": [page(b"x", headers=HTML)],
        "/goes": [html(), gone],
        "/comes": [gone, html()],
    }
    before, after = folder / "before.json", folder / "after.json"
    async with open_raw_server(routes) as server:
        for path in (before, after):
            done = await forage("crawl", server.origin, "--manifest", path, *opened(server))
            assert done.code == 0, done.err
    return before, after


async def test_rows_say_what_changed_and_why(tmp_path: Path) -> None:
    before, after = await crawl_twice(tmp_path)
    done = await forage("manifest", "diff", before, after)
    assert done.code == 1
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert [(row[0], row[1].rpartition("/")[2], *row[2:]) for row in rows] == [
        ("changed-body", "body"),
        ("changed-metadata", "moves"),
        ("new", "comes", "http-error"),
        ("gone", "goes", "http-error"),
    ]
    assert "1 new, 1 gone, 1 changed-body, 1 changed-metadata, 2 same" in done.err

    rows = [line.split("\t") for line in (await forage("manifest", "diff", before, after, "--all")).out.splitlines()]
    assert [row[0] for row in rows].count("same") == 2


async def test_json_rows_carry_both_citations(tmp_path: Path) -> None:
    before, after = await crawl_twice(tmp_path)
    done = await forage("manifest", "diff", before, after, "--json")
    assert done.code == 1
    assert {str(row["change"]) for row in done.rows} == {"changed-body", "changed-metadata", "new", "gone"}
    for row in done.rows:
        assert (row["before"] is None) == (row["change"] == "new")
        assert (row["after"] is None) == (row["change"] == "gone")
        assert all(str(reference).startswith("forage-snapshot:") for reference in (row["before"], row["after"]) if reference)


async def test_same_crawl_has_no_rows_and_exit_code_0(tmp_path: Path) -> None:
    before, _ = await crawl_twice(tmp_path)
    done = await forage("manifest", "diff", before, before)
    assert (done.code, done.out) == (0, "")
    assert "5 same" in done.err


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff", b'{"format": "forage.crawl-manifest/2"}'])
async def test_file_that_is_no_manifest_is_wrong_usage(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "m.json"
    if content is not None:
        path.write_bytes(content)
    done = await forage("manifest", "diff", path, path)
    assert done.code == 2
    assert "manifest" in done.err
    assert done.out == ""
