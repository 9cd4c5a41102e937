"""Documents of a mirror where it is deployed, rendered as by a visitor: what its own policy blocks, and what it asks of others.

Owns the judgement of such a render. There is no root to compare with: a missing capture and one that the archive never had look alike, so
own-origin failures are told and do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs

from forage.errors import BrowserError
from forage.mirror.gate import judge_csp
from forage.mirror.keys import document_path
from forage.mirror.leaks import RequestClass, Sighting, classify_request, url_origin
from forage.mirror.policy import EscapePolicy
from forage.mirror.probe import Probe, ProbeSession, RenderReport, RequestRecord

__all__ = ["SpotCheck", "judge_deployed", "spot_check"]

_REPORTED: frozenset[RequestClass] = frozenset(
    [RequestClass.ALLOWED_ESCAPE, RequestClass.BEACON, RequestClass.UNFETCHABLE, RequestClass.INERT]
)


@attrs.frozen(kw_only=True)
class SpotCheck:
    """One document as it is deployed.

    ``status`` of the document's own answer, None without one. ``blocked`` are violations of its policy, ``asked`` URLs that it asked of
    others; ``sanctioned`` what the escape policy covers of both. ``failed`` are URLs of its own origin that were answered with an error.
    ``error`` says why the render proves less than it shows.
    """

    key: str
    url: str
    status: int | None = None
    blocked: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    sanctioned: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    navigations: tuple[str, ...] = ()
    browser: str | None = None
    error: str | None = None

    @property
    def ok(self) -> bool:
        """True when the document was there, came to rest, and its policy had nothing to block."""
        return self.status == 200 and self.error is None and not self.blocked and not self.asked

    def to_json(self) -> dict[str, Any]:
        return {"key": self.key, "ok": self.ok, **{name: value for name, value in attrs.asdict(self).items() if name != "key"}}


def _silent(_: SpotCheck) -> None:
    """Progress that nobody asked for."""


async def spot_check(
    base_url: str, keys: Iterable[str], *, probe: Probe, policy: EscapePolicy | None = None, on_check: Callable[[SpotCheck], None] = _silent
) -> tuple[SpotCheck, ...]:
    """Render documents of the mirror that is deployed at ``base_url``, one after another; ``on_check`` is told of each as it is done.

    Raises BrowserError when there is no browser, or none that starts.
    """
    checks = []
    async with probe.session() as session:
        for key in keys:
            check = await _check(session, base_url.rstrip("/") + document_path(key), key, EscapePolicy() if policy is None else policy)
            checks.append(check)
            on_check(check)
    return tuple(checks)


async def _check(session: ProbeSession, url: str, key: str, policy: EscapePolicy) -> SpotCheck:
    try:
        report = await session.render(url)
    except BrowserError as exc:
        return SpotCheck(key=key, url=url, error=str(exc))
    return judge_deployed(key, url, report, policy)


def judge_deployed(key: str, url: str, report: RenderReport, policy: EscapePolicy) -> SpotCheck:
    """What a render of a deployed document showed."""
    origin = url_origin(url)
    sightings = [classify_request(r.url, r.resource_type, origin=origin, held=(), policy=policy) for r in report.requests]
    abroad = [sighting for sighting in sightings if not sighting.local]
    blocked, sanctioned = judge_csp(report.csp, abroad, report.navigations, policy)
    asked = _urls(sighting for sighting in abroad if sighting.kind not in _REPORTED)
    document = next((record for record in report.requests if record.document), None)
    return SpotCheck(
        key=key,
        url=url,
        status=None if document is None else document.status,
        blocked=tuple(dict.fromkeys([*(finding.message for finding in report.csp if finding.url in asked), *blocked])),
        asked=asked,
        sanctioned=tuple(dict.fromkeys([*_urls(s for s in abroad if s.kind is RequestClass.ALLOWED_ESCAPE), *sanctioned])),
        failed=tuple(dict.fromkeys(r.url for r in report.requests if _failed(r) and r.url != f"{origin}/favicon.ico")),
        navigations=report.navigations,
        browser=report.browser,
        error=report.failure or report.unsettled,
    )


def _failed(record: RequestRecord) -> bool:
    """A part of the page that was asked for and did not come; what a page sends (POST) is no part of it."""
    return record.method == "GET" and not record.document and record.status is not None and record.status >= 400


def _urls(sightings: Iterable[Sighting]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(sighting.url for sighting in sightings))
