"""The blueprint's stop rules as a worker carries them out: the same code by which a report judges an early end."""

from __future__ import annotations

from a3r.blueprints.stop_rules import broken_rule, rule_words

__all__ = ["broken_rule", "rule_words"]
