"""Checks of what callers hand in, before anything is started with it: one typed error that names the argument (pure).

Objects that take part (resolver, dialer, wire) are known by the methods that are called, not by their class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from forage.egress.policy import EgressPolicy
from forage.errors import InvalidPolicyError

__all__ = ["check_bytes", "check_callable", "check_part", "check_policy", "check_port", "check_seconds", "text_tuple"]


def check_policy(value: object, field: str = "policy") -> None:
    """Raises InvalidPolicyError for what is neither an EgressPolicy nor None."""
    if value is not None and not isinstance(value, EgressPolicy):
        raise InvalidPolicyError(field, "an EgressPolicy", got=value)


def check_part(field: str, value: object, method: str) -> None:
    """Raises InvalidPolicyError for what is neither None nor an object with this method."""
    if value is not None and not callable(getattr(value, method, None)):
        raise InvalidPolicyError(field, f"an object with the method {method}", got=value)


def check_callable(field: str, value: object) -> None:
    """Raises InvalidPolicyError for what is neither None nor can be called."""
    if value is not None and not callable(value):
        raise InvalidPolicyError(field, "something that can be called", got=value)


def check_bytes(field: str, value: object) -> None:
    """Raises InvalidPolicyError for what is no count of bytes."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidPolicyError(field, "a number of bytes, 0 or above", got=value)


def check_port(field: str, value: object) -> None:
    """Raises InvalidPolicyError for what is no port to listen on."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 65_535:
        raise InvalidPolicyError(field, "a port from 1 to 65535, or 0 for any that is free", got=value)


def check_seconds(field: str, value: object) -> None:
    """Raises InvalidPolicyError for what is no time to wait; infinity waits for ever."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value) or value < 0:
        raise InvalidPolicyError(field, "seconds, 0 or above", got=value)


def text_tuple(field: str, value: Iterable[str] | Any, accepted: str) -> tuple[str, ...]:
    """The texts of an iterable. Raises InvalidPolicyError for anything else, a lone text as well: its letters are never meant."""
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        texts = tuple(value)
        if all(isinstance(text, str) for text in texts):
            return texts
    raise InvalidPolicyError(field, accepted, got=value)
