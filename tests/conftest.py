"""Settings that hold for every test.

Property tests are derandomised: the same tree gives the same examples, so that a failure is about the change at hand. To look for new
examples, run with ``--hypothesis-profile=explore``.

No test reaches beyond loopback; ``tests/support/test_network_guard.py`` proves it.
"""

from __future__ import annotations

from hypothesis import settings

from tests.support.network_guard import forbid_traffic

forbid_traffic()

settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile("repeatable")
