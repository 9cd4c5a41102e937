"""The JSON Schema of manifests, for those who read them without this package. Owns its loading; the file lies beside this module."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

__all__ = ["manifest_schema"]


def manifest_schema() -> dict[str, Any]:
    """The schema (draft 2020-12) of what `CrawlManifest.to_json` writes, as JSON values of the caller's own."""
    schema: dict[str, Any] = json.loads(files("forage.crawler").joinpath("manifest.schema.json").read_text("utf-8"))
    return schema
