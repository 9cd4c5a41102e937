"""How a browser is started: one value, checked when it is made."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from forage.browser.programs import ProgramKind
from forage.errors import InvalidPolicyError

__all__ = ["BrowserOptions", "TransportKind", "is_one_of", "is_seconds"]

TransportKind = Literal["websocket", "pipe"]

_LONGEST_START: Final = 600.0
_LEAST_MEMORY: Final = 128 * 1024 * 1024


def is_one_of(*names: str) -> Any:
    """A validator: the value is one of ``names``."""

    def check(_: object, field: attrs.Attribute[Any], value: object) -> None:
        if value not in names:
            raise InvalidPolicyError(field.name, " or ".join(map(repr, names)), got=value)

    return check


def is_seconds(most: float, *, zero: bool = False) -> Any:
    """A validator: the value is a duration, at most ``most`` seconds."""

    def check(_: object, field: attrs.Attribute[Any], value: object) -> None:
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if not number or not (0 <= value <= most if zero else 0 < value <= most):  # type: ignore[operator]
            raise InvalidPolicyError(field.name, f"seconds {'from' if zero else 'above'} 0, at most {most:g}", got=value)

    return check


def _is_memory(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < _LEAST_MEMORY:
        raise InvalidPolicyError(field.name, f"a number of bytes from {_LEAST_MEMORY}", got=value)


def _texts(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(value)


@attrs.frozen(kw_only=True)
class BrowserOptions:
    """Which program, and how it is contained. Raises InvalidPolicyError, which names the field.

    ``program``: a name or path, None to look for one; ``prefer`` the kind that is looked for first. ``transport``: ``pipe`` where other
    users share the machine, as a debugging port is open to all of them.

    ``sandbox=False`` gives up Chromium's own sandbox, and every result says so. Root cannot have it: name an unprivileged ``user`` instead,
    under whose account the browser then runs (only root can).

    ``max_process_bytes``: a renderer with more memory of its own is killed, and its page ends as crashed; any other process of the browser
    may have twice as much. ``lifeline``: a shell beside the browser ends it and removes its profile when this process is killed.
    ``start_seconds`` until it answers, ``call_seconds`` for one answer of it later, ``close_seconds`` to close a page: after that it is not
    used for others.
    ``extra_flags`` go behind all others; they can undo any of them.
    """

    program: str | Path | None = None
    prefer: ProgramKind = attrs.field(default="shell", validator=is_one_of("shell", "full"))
    transport: TransportKind = attrs.field(default="websocket", validator=is_one_of("websocket", "pipe"))
    sandbox: bool = attrs.field(default=True, validator=attrs.validators.instance_of(bool))
    user: str | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.instance_of(str)))
    lifeline: bool = attrs.field(default=True, validator=attrs.validators.instance_of(bool))
    max_process_bytes: int = attrs.field(default=1024 * 1024 * 1024, validator=_is_memory)
    start_seconds: float = attrs.field(default=20.0, validator=is_seconds(_LONGEST_START))
    call_seconds: float = attrs.field(default=10.0, validator=is_seconds(_LONGEST_START))
    close_seconds: float = attrs.field(default=3.0, validator=is_seconds(_LONGEST_START))
    extra_flags: tuple[str, ...] = attrs.field(default=(), converter=_texts)
