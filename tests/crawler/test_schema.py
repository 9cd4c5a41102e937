"""The schema of manifests, held against real ones by an implementation that is not ours."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from hatchling.builders.wheel import WheelBuilder
from jsonschema import Draft202012Validator

from forage.crawler import (
    CrawlManifest,
    CrawlPolicy,
    HostStatistics,
    Page,
    PageCaptured,
    PageFailure,
    PageSkip,
    SitemapCounters,
    SkipReason,
    crawl,
    crawl_stream,
    manifest_schema,
)
from forage.crawler.tally import BUDGETS
from forage.snapshots import MemorySnapshotStore
from tests.crawler.stress import crawl_once
from tests.support.generated_site import open_generated_site

REPOSITORY = Path(__file__).parents[2]


def faults(manifest: Mapping[str, Any]) -> list[str]:
    return [error.message for error in Draft202012Validator(manifest_schema()).iter_errors(manifest)]


def assert_valid(manifest: CrawlManifest) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(manifest.to_json())
    assert faults(data) == []
    return data


def test_schema_is_one() -> None:
    Draft202012Validator.check_schema(manifest_schema())


def test_schema_is_the_callers_own() -> None:
    manifest_schema().clear()
    assert manifest_schema()


def _names(kind: type[Any]) -> set[str]:
    names = {field.name for field in attrs.fields(kind)} - {"snapshot"}
    return {first + "".join(part.title() for part in rest) for first, *rest in (name.split("_") for name in names)}


@pytest.mark.parametrize(("name", "kind"), [("page", Page), ("failure", PageFailure), ("skip", PageSkip), ("host", HostStatistics)])
def test_rows_have_the_members_of_their_classes(name: str, kind: type[Any]) -> None:
    row = manifest_schema()["$defs"][name]
    assert set(row["properties"]) == set(row["required"]) == _names(kind)
    assert row["additionalProperties"] is False


def test_manifest_has_the_members_of_its_class() -> None:
    schema = manifest_schema()
    assert set(schema["properties"]) == set(schema["required"]) == _names(CrawlManifest) | {"format", "counts"}
    assert set(schema["properties"]["sitemaps"]["properties"]) == _names(SitemapCounters)


def test_reasons_are_those_of_the_code() -> None:
    schema = manifest_schema()
    assert schema["$defs"]["skip"]["properties"]["reason"]["enum"] == [reason.value for reason in SkipReason]
    assert schema["properties"]["budgetsHit"]["items"]["enum"] == [reason.value for reason in SkipReason if reason in BUDGETS]


async def test_manifests_of_real_crawls_are_valid() -> None:
    async with open_generated_site(100, busy=1) as site:
        store = MemorySnapshotStore()
        data = assert_valid(await crawl(site.seed, site.policy(concurrency=8), store=store))
        assert all(data[rows] for rows in ("pages", "failures", "skips", "hosts"))
        assert_valid(await crawl(site.seed, site.policy(mode="replay"), store=store))
        assert_valid(await crawl(site.seed, site.policy(concurrency=8, discovery="both", max_pages=20)))
        async with crawl_stream(site.seed, site.policy(concurrency=8)) as stream:
            async for event in stream:
                if isinstance(event, PageCaptured):
                    stream.stop()
        assert stream.manifest is not None
        assert assert_valid(stream.manifest)["budgetsHit"] == ["interrupted"]


@pytest.mark.parametrize("seed", ["http://user:secret@site.test/?q=1", "http://10.0.0.1/"])
async def test_manifest_of_a_refused_seed_is_valid(seed: str) -> None:
    assert_valid(await crawl(seed, CrawlPolicy()))


@pytest.mark.parametrize(
    "change",
    [
        {"extra": 1},
        {"format": "forage.crawl-manifest/2"},
        {"startedAt": "yesterday"},
        {"policyDigest": "0"},
        {"budgetsHit": ["nofollow"]},
        {"skips": [{"url": "u", "reason": "because", "depth": 0, "detail": None}]},
        {"skips": [{"url": "u", "reason": "trap", "depth": -1, "detail": None}]},
        {"skips": [{"url": "u", "reason": "trap", "depth": 0}]},
        {"counts": {"seen": 1}},
        {"pages": [{}]},
    ],
    ids=str,
)
async def test_what_is_no_manifest_is_not_valid(change: dict[str, Any]) -> None:
    async with open_generated_site(5, hosts=1) as site:
        data = assert_valid(await crawl_once(site, 1))
    assert faults({**data, **change})


def test_wheel_holds_the_schema(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(REPOSITORY)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        assert json.loads(archive.read("forage/crawler/manifest.schema.json")) == manifest_schema()
