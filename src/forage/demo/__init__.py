"""The bundled demonstration: a site on loopback, crawled through the guard (``forage demo``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forage._lazy import lazy_face

if TYPE_CHECKING:
    from forage.demo.run import run_demo as run_demo
    from forage.demo.site import DemoSite as DemoSite
    from forage.demo.site import open_demo_site as open_demo_site

__getattr__, __dir__, __all__ = lazy_face(
    __name__,
    {
        "DemoSite": "forage.demo.site",
        "open_demo_site": "forage.demo.site",
        "run_demo": "forage.demo.run",
    },
)
