"""How a page is opened, watched and read: one value, checked when it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from forage.browser.options import is_one_of, is_seconds
from forage.browser.request_log import Viewport
from forage.egress import EgressPolicy, ProxyLimits, ProxyRules
from forage.errors import InvalidPolicyError

if TYPE_CHECKING:
    from forage.egress import Dialer, Resolver

__all__ = ["LARGEST_DOM", "PageOptions", "rules_of"]

LARGEST_DOM: Final = 10 * 1024 * 1024
"""Bytes of a document that one message can carry, whatever is in it: JSON may write a byte as 6."""

_DEFAULT_DOM: Final = 8 * 1024 * 1024
_LONGEST: Final = 3_600.0
_MOST_REQUESTS: Final = 100_000
_WIDEST: Final = 16_384


def _whole(least: int, most: int) -> Any:
    def check(_: object, field: attrs.Attribute[Any], value: object) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise InvalidPolicyError(field.name, f"a whole number from {least} to {most}", got=value)

    return check


def _viewport(_: object, field: attrs.Attribute[Any], value: Viewport) -> None:
    if not (1 <= value.width <= _WIDEST and 1 <= value.height <= _WIDEST and 0.1 <= value.scale <= 10):
        raise InvalidPolicyError(field.name, f"1 to {_WIDEST} pixels a side and a scale from 0.1 to 10", got=str(value))


def rules_of(egress: EgressPolicy | ProxyRules | None) -> ProxyRules:
    """A policy as the rules of a proxy; None for the default policy."""
    if isinstance(egress, ProxyRules):
        return egress
    return ProxyRules() if egress is None else ProxyRules(policy=egress)


@attrs.frozen(kw_only=True)
class PageOptions:
    """What a page may reach, how long it has, and what is read of it. Sizes in bytes, times in seconds.

    ``egress``: what it may reach, a policy or rules of a proxy. ``limits``: of its proxy.

    ``deadline`` for loading and coming to rest; ``min_wait`` before it counts as at rest, ``quiet`` without an event. ``scroll``: to the
    end, once, for what loads late. ``teardown``: leave the page at the end and listen for what it sends then. ``name_https``: have every
    https request named at the browser's own interception, also those that its events do not tell of, at a price for each.

    ``answer_seconds``: how long a page at rest may take for one answer before its scripts are ended, and again before it counts as hung.

    ``read_html``, ``read_text``, ``read_console`` (errors only), ``screenshot`` (``full`` for the whole page) say what is read;
    ``max_dom_bytes`` of a document.
    ``find_icons``: tell the icons that the document names, where the program does not fetch any. ``max_requests`` are kept; a page that
    makes more is ended. Raises InvalidPolicyError.
    """

    egress: ProxyRules = attrs.field(factory=ProxyRules, converter=rules_of)
    limits: ProxyLimits = attrs.field(factory=ProxyLimits)
    resolver: Resolver | None = None
    dialer: Dialer | None = None
    viewport: Viewport = attrs.field(factory=Viewport, validator=_viewport)
    user_agent: str | None = None
    deadline: float = attrs.field(default=20.0, validator=is_seconds(_LONGEST))
    min_wait: float = attrs.field(default=0.0, validator=is_seconds(_LONGEST, zero=True))
    quiet: float = attrs.field(default=0.5, validator=is_seconds(_LONGEST, zero=True))
    answer_seconds: float = attrs.field(default=2.0, validator=is_seconds(_LONGEST))
    scroll: bool = False
    teardown: bool = False
    name_https: bool = False
    read_html: bool = True
    read_text: bool = False
    read_console: bool = True
    find_icons: bool = False
    screenshot: Literal["no", "viewport", "full"] = attrs.field(default="no", validator=is_one_of("no", "viewport", "full"))
    max_dom_bytes: int = attrs.field(default=_DEFAULT_DOM, validator=_whole(1, LARGEST_DOM))
    max_requests: int = attrs.field(default=5_000, validator=_whole(1, _MOST_REQUESTS))
