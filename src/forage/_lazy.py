"""Package faces that load a module only when one of its names is asked for (PEP 562).

So that each layer is usable alone: ``import forage.egress`` loads no store, browser or HTML parser.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

__all__ = ["lazy_face"]


def lazy_face(
    package: str, names: Mapping[str, str], modules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``(__getattr__, __dir__, __all__)`` for a package.

    ``names`` maps a public name to the module that defines it; ``modules`` are the public modules below the package, which are imported
    when they are first looked at.
    """

    def __getattr__(name: str) -> Any:  # noqa: N807 - the hook that PEP 562 looks for
        if name in modules:
            return import_module(f"{package}.{name}")  # which sets the attribute, too
        try:
            module = names[name]
        except KeyError:
            raise AttributeError(f"module {package!r} has no attribute {name!r}") from None
        value = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:  # noqa: N807 - as above
        return sorted({*vars(sys.modules[package]), *names, *modules})

    return __getattr__, __dir__, sorted([*names, *modules])
