"""Resolver protocol and look-ups over trio (egress policy, section 5)."""

from __future__ import annotations

from forage.egress.answers import DnsAnswers, Resolver

__all__ = ["DnsAnswers", "Resolver"]
