"""One polite, bounded acquisition: robots.txt, pacing, retries, redirects under the guard, and what became of it.

Usable without crawler and browser. Names load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forage._lazy import lazy_face

if TYPE_CHECKING:
    from forage.fetch.fetcher import Fetcher as Fetcher
    from forage.fetch.politeness import ClockState as ClockState
    from forage.fetch.politeness import HostClock as HostClock
    from forage.fetch.politeness import OnWait as OnWait
    from forage.fetch.politeness import WaitReason as WaitReason
    from forage.fetch.rendering import RenderedPage as RenderedPage
    from forage.fetch.rendering import Renderer as Renderer
    from forage.fetch.result import FetchFailure as FetchFailure
    from forage.fetch.result import FetchResult as FetchResult
    from forage.fetch.result import Source as Source
    from forage.fetch.robots import RobotsCopy as RobotsCopy
    from forage.fetch.robots_outcome import RobotsEntry as RobotsEntry
    from forage.fetch.robots_outcome import RobotsState as RobotsState
    from forage.fetch.robots_outcome import robots_url_of as robots_url_of
    from forage.fetch.robots_rules import RobotsFile as RobotsFile
    from forage.fetch.robots_rules import parse_robots as parse_robots
    from forage.fetch.robots_rules import product_token as product_token
    from forage.fetch.settings import DEFAULT_USER_AGENT as DEFAULT_USER_AGENT
    from forage.fetch.source import fetch_source as fetch_source

__getattr__, __dir__, __all__ = lazy_face(
    __name__,
    {
        "DEFAULT_USER_AGENT": "forage.fetch.settings",
        "ClockState": "forage.fetch.politeness",
        "FetchFailure": "forage.fetch.result",
        "FetchResult": "forage.fetch.result",
        "Fetcher": "forage.fetch.fetcher",
        "HostClock": "forage.fetch.politeness",
        "OnWait": "forage.fetch.politeness",
        "RenderedPage": "forage.fetch.rendering",
        "Renderer": "forage.fetch.rendering",
        "RobotsCopy": "forage.fetch.robots",
        "RobotsEntry": "forage.fetch.robots_outcome",
        "RobotsFile": "forage.fetch.robots_rules",
        "RobotsState": "forage.fetch.robots_outcome",
        "Source": "forage.fetch.result",
        "WaitReason": "forage.fetch.politeness",
        "fetch_source": "forage.fetch.source",
        "parse_robots": "forage.fetch.robots_rules",
        "product_token": "forage.fetch.robots_rules",
        "robots_url_of": "forage.fetch.robots_outcome",
    },
)
