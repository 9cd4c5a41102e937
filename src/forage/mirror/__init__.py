"""Is this mirrored document complete: captures of a web archive, kept, served and gated at zero leaks.

Names load on first use; the facts (keys, parsers, sidecars, rewriting) need no network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forage._lazy import lazy_face

if TYPE_CHECKING:
    from forage.mirror.archive import ArchiveReply as ArchiveReply
    from forage.mirror.archive import ArchiveRequestError as ArchiveRequestError
    from forage.mirror.archive import GuardedArchive as GuardedArchive
    from forage.mirror.archive import archive_egress as archive_egress
    from forage.mirror.archive import open_guarded_archive as open_guarded_archive
    from forage.mirror.cache import CacheRoot as CacheRoot
    from forage.mirror.capture import RetryTerminal as RetryTerminal
    from forage.mirror.deployed import SpotCheck as SpotCheck
    from forage.mirror.deployed import spot_check as spot_check
    from forage.mirror.driver import Examination as Examination
    from forage.mirror.driver import ProbeDriver as ProbeDriver
    from forage.mirror.fixpoint import crawl as crawl
    from forage.mirror.keys import capture_key as capture_key
    from forage.mirror.keys import parse_wayback_path as parse_wayback_path
    from forage.mirror.keys import parse_wayback_url as parse_wayback_url
    from forage.mirror.live_probe import BrowserProbe as BrowserProbe
    from forage.mirror.localize import RULE_VERSION as RULE_VERSION
    from forage.mirror.policy import EscapePolicy as EscapePolicy
    from forage.mirror.policy import compile_policy as compile_policy
    from forage.mirror.policy import parse_policy as parse_policy
    from forage.mirror.probe import CspFinding as CspFinding
    from forage.mirror.probe import Probe as Probe
    from forage.mirror.probe import ProbeSession as ProbeSession
    from forage.mirror.probe import RenderReport as RenderReport
    from forage.mirror.probe import RequestRecord as RequestRecord
    from forage.mirror.results import CrawlReport as CrawlReport
    from forage.mirror.results import DocumentResult as DocumentResult
    from forage.mirror.results import DocumentStatus as DocumentStatus
    from forage.mirror.seams import Seams as Seams
    from forage.mirror.server import open_mirror_server as open_mirror_server
    from forage.mirror.sidecar import Sidecar as Sidecar
    from forage.mirror.site import CspMode as CspMode
    from forage.mirror.site import Site as Site
    from forage.mirror.verifier import verify_root as verify_root

__getattr__, __dir__, __all__ = lazy_face(
    __name__,
    {
        "RULE_VERSION": "forage.mirror.localize",
        "ArchiveReply": "forage.mirror.archive",
        "ArchiveRequestError": "forage.mirror.archive",
        "BrowserProbe": "forage.mirror.live_probe",
        "CacheRoot": "forage.mirror.cache",
        "CrawlReport": "forage.mirror.results",
        "CspFinding": "forage.mirror.probe",
        "CspMode": "forage.mirror.site",
        "DocumentResult": "forage.mirror.results",
        "DocumentStatus": "forage.mirror.results",
        "EscapePolicy": "forage.mirror.policy",
        "Examination": "forage.mirror.driver",
        "GuardedArchive": "forage.mirror.archive",
        "Probe": "forage.mirror.probe",
        "ProbeDriver": "forage.mirror.driver",
        "ProbeSession": "forage.mirror.probe",
        "RenderReport": "forage.mirror.probe",
        "RequestRecord": "forage.mirror.probe",
        "RetryTerminal": "forage.mirror.capture",
        "Seams": "forage.mirror.seams",
        "Sidecar": "forage.mirror.sidecar",
        "Site": "forage.mirror.site",
        "SpotCheck": "forage.mirror.deployed",
        "archive_egress": "forage.mirror.archive",
        "capture_key": "forage.mirror.keys",
        "compile_policy": "forage.mirror.policy",
        "crawl": "forage.mirror.fixpoint",
        "open_guarded_archive": "forage.mirror.archive",
        "open_mirror_server": "forage.mirror.server",
        "parse_policy": "forage.mirror.policy",
        "parse_wayback_path": "forage.mirror.keys",
        "parse_wayback_url": "forage.mirror.keys",
        "spot_check": "forage.mirror.deployed",
        "verify_root": "forage.mirror.verifier",
    },
)
