"""When a page has come to rest: loaded, nothing in flight, quiet, and not too early."""

from __future__ import annotations

import pytest

from forage.browser.idle import IdleRule


@pytest.mark.parametrize(
    ("loaded", "in_flight", "last_event", "not_before", "due"),
    [
        (False, 0, 10.0, 0.0, None),
        (True, 1, 10.0, 0.0, None),
        (True, 0, 10.0, 0.0, 10.5),
        (True, 0, 10.0, 14.0, 14.0),
        (True, 0, 14.0, 14.0, 14.5),
    ],
)
def test_rest_is_due_after_load_without_requests_and_a_quiet_while(
    loaded: bool, in_flight: int, last_event: float, not_before: float, due: float | None
) -> None:
    rule = IdleRule(quiet=0.5)
    rule.loaded, rule.in_flight, rule.last_event, rule.not_before = loaded, in_flight, last_event, not_before
    assert rule.due() == due
