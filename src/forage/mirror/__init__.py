"""Is this mirrored document complete: captures of a web archive, kept, served and gated at zero leaks.

Names load on first use; the facts (keys, parsers, sidecars, rewriting) need no network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forage._lazy import lazy_face

if TYPE_CHECKING:
    from forage.mirror.keys import capture_key as capture_key
    from forage.mirror.keys import parse_wayback_path as parse_wayback_path
    from forage.mirror.keys import parse_wayback_url as parse_wayback_url
    from forage.mirror.policy import EscapePolicy as EscapePolicy
    from forage.mirror.policy import compile_policy as compile_policy
    from forage.mirror.policy import parse_policy as parse_policy

__getattr__, __dir__, __all__ = lazy_face(
    __name__,
    {
        "EscapePolicy": "forage.mirror.policy",
        "capture_key": "forage.mirror.keys",
        "compile_policy": "forage.mirror.policy",
        "parse_policy": "forage.mirror.policy",
        "parse_wayback_path": "forage.mirror.keys",
        "parse_wayback_url": "forage.mirror.keys",
    },
)
