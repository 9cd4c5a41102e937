"""What a crawl of a mirror came to: results of documents and the report of a run (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import attrs

__all__ = ["CrawlReport", "DocumentResult", "DocumentStatus"]


class DocumentStatus(StrEnum):
    """How a document of a run ended."""

    VERIFIED = "verified"
    VERIFIED_CACHED = "verified-cached"
    FLAKY = "flaky"
    UNCONVERGED = "unconverged"
    PROBE_ERROR = "probe-error"
    CORRUPT = "corrupt"
    CAP_SKIPPED = "cap-skipped"
    ERROR = "error"
    STATIC = "static"
    DRY_RUN = "dry-run"


@attrs.frozen(kw_only=True)
class DocumentResult:
    """One document; ``members`` are the counts and texts of its status, as the JSON summary has them."""

    key: str
    status: DocumentStatus
    members: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def ok(self) -> bool:
        """True when nothing is left to do for this document in this mode."""
        if self.status is DocumentStatus.STATIC:
            return not self.members.get("failures")
        return self.status in {DocumentStatus.VERIFIED, DocumentStatus.VERIFIED_CACHED, DocumentStatus.DRY_RUN}

    def to_json(self) -> dict[str, Any]:
        return {"key": self.key, "status": self.status.value, **self.members}


@attrs.frozen(kw_only=True)
class CrawlReport:
    """A run. ``request_count`` are the requests to the archive, ``cap`` their limit; results stand in the order of the inputs."""

    request_count: int
    cap: int | None
    results: tuple[DocumentResult, ...]

    @property
    def ok(self) -> bool:
        return all(result.ok for result in self.results)

    @property
    def tally(self) -> dict[str, int]:
        """How many documents ended how."""
        return dict(Counter(result.status.value for result in self.results))

    def to_json(self) -> dict[str, Any]:
        return {"requestCount": self.request_count, "cap": self.cap, "results": [result.to_json() for result in self.results]}
