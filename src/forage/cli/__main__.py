"""``python -m forage.cli``: the command without its script."""

from __future__ import annotations

from forage.cli import main

raise SystemExit(main())
